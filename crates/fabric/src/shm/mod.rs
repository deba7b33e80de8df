//! The provider `shm`: a software NIC in shared memory between the processes of one machine.
//!
//! | file | what |
//! |---|---|
//! | `control`, `life` | what a process tells all peers by memory: that it lives, who sleeps, what was taken back |
//! | `frame`, `wire`, `link`, `listener` | the bootstrap connection |
//! | `region`, `held` | regions, and how verbs keep them; `mapping` and `copy` are the crate's |
//! | `word`, `ring`, `message`, `sleep`, `channel` | messages between queue pairs, and waking who waits for them |
//! | `queue_pair`, `request`, `send_queue`, `receive_queue`, `completion_queue` | the verbs |
//!
//! A READ is a copy from the peer's mapped region and a WRITE one into it: no system call, no CPU of the peer. SENDs and
//! the notifications of WRITEs with immediate go through a ring per connection and meet their RECVs when the receiver
//! polls.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
compile_error!("the provider shm needs 64-bit little-endian Linux: memfds, seals, robust futexes");

mod channel;
mod completion_channel;
mod completion_queue;
mod control;
mod frame;
mod held;
mod life;
mod link;
mod listener;
mod message;
#[cfg(all(test, loom))]
mod models;
mod queue_pair;
mod receive_queue;
mod region;
mod request;
mod ring;
mod send_queue;
mod sleep;
#[cfg(test)]
mod tests;
mod wire;
mod word;

pub use completion_queue::ShmCompletionQueue;
pub use link::ShmLink;
pub use listener::ShmListener;
pub use queue_pair::{ShmAddress, ShmQueuePair};
pub use region::{ShmRegion, ShmRemoteRegion};

use crate::{
    Access, Address, Atomicity, FabricError, Nic, PagePolicy, Properties, QueuePairConfig, ReadOrder, checks,
    copy, mapping,
};
use control::Control;
use rustix::thread::{MembarrierCommand, membarrier};
use std::{
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering, compiler_fence, fence},
    },
};

/// The software NIC. All that are opened in one process share its control area.
#[derive(Clone, Debug)]
pub struct ShmNic {
    inner: Arc<Opened>,
}

#[derive(Debug)]
struct Opened {
    control: &'static Arc<Control>,
    membarrier: bool,
    properties: Properties,
}

/// Numbers queue pairs, uniquely in this process.
static NEXT_QUEUE_PAIR: AtomicU32 = AtomicU32::new(1);

impl ShmNic {
    /// Opens the NIC: makes this process's control area if it has none yet.
    pub fn open() -> Result<Self, FabricError> {
        let control = Control::of_process()?;
        let membarrier = membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok();
        Ok(Self { inner: Arc::new(Opened { control, membarrier, properties: properties() }) })
    }

    /// What this system offers, in words, for people who wonder about speed.
    pub fn capabilities(&self) -> &'static str {
        if self.membarrier() {
            "membarrier: senders pass no fence"
        } else {
            "no membarrier: every SEND passes a fence"
        }
    }

    pub(crate) fn control(&self) -> &Arc<Control> {
        self.inner.control
    }

    /// Whether this process takes part in expedited global membarriers.
    pub(crate) fn membarrier(&self) -> bool {
        self.inner.membarrier
    }
}

fn properties() -> Properties {
    Properties {
        provider: "shm",
        read_order: if copy::IN_ORDER { ReadOrder::Increasing } else { ReadOrder::Unordered },
        read_atomicity_bytes: 8,
        write_in_order: copy::IN_ORDER,
        writes_wake: true,
        atomics: Atomicity::Global,
        inline_bytes_max: 4096,
        message_bytes_max: message::MESSAGE_BYTES_MAX,
        datagram_bytes_max: request::DATAGRAM_BYTES_MAX,
        transfer_bytes_max: message::TRANSFER_BYTES_MAX,
        queue_depth_max: 16 << 10,
        completions_max: 64 << 10,
        reads_outstanding_max: 256,
        // What finds the ring full is lost.
        loses_messages: true,
        dear_doorbells: false,
        prefetches: true,
        reads_at_once: true,
        writes_at_once: true,
        messages_at_once: true,
    }
}

/// The fence on the side of the sleeper; see `sleep`.
fn heavy_fence(membarrier_works: bool) {
    if !membarrier_works || membarrier(MembarrierCommand::GlobalExpedited).is_err() {
        fence(Ordering::SeqCst);
    }
}

/// The fence on the side of the sender; see [`sleep`].
#[inline(always)]
fn light_fence(real: bool) {
    if real {
        fence(Ordering::SeqCst);
    } else {
        compiler_fence(Ordering::SeqCst);
    }
}

impl Nic for ShmNic {
    type Region = ShmRegion;
    type RemoteRegion = ShmRemoteRegion;
    type Link = ShmLink;
    type Listener = ShmListener;
    type CompletionQueue = ShmCompletionQueue;
    type QueuePair = ShmQueuePair;
    type AddressHandle = ShmAddress;

    fn properties(&self) -> &Properties {
        &self.inner.properties
    }

    fn register(&self, bytes: usize, access: Access, pages: PagePolicy) -> Result<ShmRegion, FabricError> {
        ShmRegion::register(self.control(), bytes, access, pages)
    }

    fn create_completion_queue(&self, depth: usize) -> Result<ShmCompletionQueue, FabricError> {
        checks::completions(depth, self.properties())?;
        ShmCompletionQueue::create(self, depth)
    }

    fn create_completion_queue_beside(
        &self,
        other: &ShmCompletionQueue,
        depth: usize,
    ) -> Result<ShmCompletionQueue, FabricError> {
        checks::completions(depth, self.properties())?;
        Ok(other.beside(depth))
    }

    fn create_queue_pair(
        &self,
        link: &ShmLink,
        config: &QueuePairConfig,
        send: &ShmCompletionQueue,
        receive: &ShmCompletionQueue,
    ) -> Result<ShmQueuePair, FabricError> {
        checks::configuration(config, self.properties())?;
        let number = NEXT_QUEUE_PAIR.fetch_add(1, Ordering::Relaxed);
        ShmQueuePair::create(self, number, &link.inner, config, &send.queue, &receive.queue)
    }

    fn listen(&self, address: &Address) -> Result<ShmListener, FabricError> {
        let path = listener::path(address)?;
        ShmListener::listen(self, path)
    }

    fn connect(&self, address: &Address) -> Result<ShmLink, FabricError> {
        let path = listener::path(address)?;
        listener::connect(self, path)
    }

    fn pair(&self) -> Result<(ShmLink, ShmLink), FabricError> {
        let (near, far) = UnixStream::pair()
            .map_err(|source| FabricError::System { what: "making a pair of sockets", source })?;
        ShmLink::pair(self, near, far)
    }
}
