//! The performance model of machines: what each step of a verb costs a NIC, its PCIe slot, its link and a core.
//!
//! | file | what |
//! |---|---|
//! | `machine` | what a preset says: the costs of each step |
//! | `units` | nanoseconds and rates as a preset writes them |
//! | `resource` | something that does one thing at a time |
//! | `contexts` | the cache of queue-pair contexts |
//! | `nic` | the resources of one host's NIC, and how a verb uses them |
//! | `path` | how messages and answers pass from host to host |
//!
//! Everything is queueing on resources that are free again at some moment; throughput, latency and saturation follow.
//! A resource is taken only when its turn has come, in order of virtual time, so that nothing reserves it for later and
//! blocks what comes in between.

mod contexts;
mod machine;
mod nic;
mod path;
mod resource;
mod units;

pub use machine::{Contexts, LinkCosts, Machine, NicCosts, Pcie, ProcessorCosts, Requester, Responder};
pub use nic::NicUsage;
pub(crate) use nic::{NicState, Operation, Request};
pub use units::{GigabytesPerSecond, Nanoseconds};
