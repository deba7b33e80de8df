//! Verbs-shaped access to remote memory: queue pairs, completion queues and regions, over shared memory and over RDMA NICs.
//!
//! Everything above this crate reaches other processes through the traits of this module ([`Nic`] first) alone, so that the same protocol
//! and index code runs on every provider: [`shm`] (a software NIC in shared memory), [`verbs`] (RDMA NICs), and [`sim`]
//! (a simulated world). The semantics are those of InfiniBand verbs as the papers use them (Mitchell §2.1, Kalia §2.2); the
//! conformance suite in `tests/conformance` holds every provider to them.
//!
//! The control path (links, regions, creating and connecting queue pairs) may block, allocate and make system calls.
//! The data path ([`QueuePair`], [`CompletionQueue`], the words of a [`Region`]) does none of these.

mod address;
mod checks;
mod copy;
pub mod echo;
mod error;
mod mapping;
mod nic;
mod prefetch;
pub mod shm;
pub mod sim;
pub mod verbs;
mod vocabulary;
mod words;

pub use address::{Address, RDMA_PORT};
pub use error::{FabricError, PostError};
pub use locus_runtime::Park;
pub use nic::{
    CompletionQueue, ControlMessage, Facts, Link, Listener, LocalSlice, Nic, QueuePair, Region, RemoteRegion,
    RemoteSlice,
};
pub use prefetch::{Prefetch, Prefetches};
pub use vocabulary::{
    Access, Atomicity, Completion, Opcode, PagePolicy, Pages, Payload, Properties, QueuePairConfig,
    QueuePairState, ReadOrder, ReceiverNotReady, SendRequest, Status, Transport, Verb, Work,
};
