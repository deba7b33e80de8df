//! The traits that a provider implements.

use crate::{
    Access, Address, Completion, FabricError, PagePolicy, Pages, PostError, Prefetch, Properties,
    QueuePairConfig, QueuePairState, SendRequest, Work,
};
use locus_runtime::Park;
use std::{os::fd::OwnedFd, sync::atomic::AtomicU64, time::Duration};

/// An opened network interface. Cheap to clone; every thread may use it.
pub trait Nic: Clone + Send + Sync + 'static {
    /// Registered memory of this process.
    type Region: Region;
    /// Registered memory of a peer.
    type RemoteRegion: RemoteRegion;
    /// A bootstrap connection to one peer process.
    type Link: Link<Nic = Self>;
    /// Accepts links.
    type Listener: Listener<Link = Self::Link>;
    /// Where completions arrive. Stays on the thread that made it.
    type CompletionQueue: CompletionQueue;
    /// A queue pair. Stays on the thread that made it.
    type QueuePair: QueuePair<Nic = Self>;
    /// Names a UD queue pair of a peer.
    type AddressHandle: Clone + 'static;

    /// What this NIC can do.
    fn properties(&self) -> &Properties;
    /// Reserves `bytes` of zeroed memory (rounded up to whole pages) and registers it. The pages exist when this
    /// returns: running out of memory is an error here and never a signal later.
    fn register(&self, bytes: usize, access: Access, pages: PagePolicy) -> Result<Self::Region, FabricError>;
    /// Makes a completion queue for the calling thread.
    fn create_completion_queue(&self, depth: usize) -> Result<Self::CompletionQueue, FabricError>;
    /// Makes another completion queue for the thread of `other`, on the same completion channel: a thread that sleeps on
    /// one of them wakes when something arrives on any.
    fn create_completion_queue_beside(
        &self,
        other: &Self::CompletionQueue,
        depth: usize,
    ) -> Result<Self::CompletionQueue, FabricError>;
    /// Makes a queue pair for the calling thread, to speak with the peer of `link` (UD: with any peer; the link is the
    /// first). `send` takes the completions of its sends, `receive` those of its RECVs; they may be the same.
    fn create_queue_pair(
        &self,
        link: &Self::Link,
        config: &QueuePairConfig,
        send: &Self::CompletionQueue,
        receive: &Self::CompletionQueue,
    ) -> Result<Self::QueuePair, FabricError>;
    /// Starts to accept links at an address. Refuses one that a living process serves.
    fn listen(&self, address: &Address) -> Result<Self::Listener, FabricError>;
    /// Links with the process that serves an address.
    fn connect(&self, address: &Address) -> Result<Self::Link, FabricError>;
    /// Two linked ends in this process: how an embedded store and its client meet.
    fn pair(&self) -> Result<(Self::Link, Self::Link), FabricError>;
    /// Why nothing can be made now, in words, if the device was taken away and is not back. Tries to open it.
    fn trouble(&self) -> Option<String> {
        None
    }
    /// Tells what the calling thread does besides verbs. Nothing but a simulated NIC takes note, and elsewhere this is
    /// no code at all.
    #[inline(always)]
    fn charge(_work: Work) {}
}

/// What one side must tell the other so that it can use a region or a queue pair: bytes, and on `shm` descriptors.
#[derive(Debug, Default)]
pub struct Facts {
    /// The provider's own encoding. A peer's facts are checked by whoever takes them.
    pub bytes: Vec<u8>,
    /// Descriptors that travel along.
    pub handles: Vec<OwnedFd>,
}

/// A message on a link, and the facts that came along.
pub type ControlMessage = (Vec<u8>, Vec<Facts>);

/// Accepts links from other processes.
pub trait Listener: Send {
    /// What it accepts.
    type Link;
    /// Waits for the next link; `None` when the time has passed.
    fn accept(&self, timeout: Duration) -> Result<Option<Self::Link>, FabricError>;
    /// Where it listens, as a client would write it.
    fn address(&self) -> Address;
}

/// A bootstrap connection to one peer process: carries the messages that set everything else up, and notices when the
/// peer is gone, upon which all queue pairs made over it flush. Clones share the connection.
pub trait Link: Clone + Send + Sync + 'static {
    /// The provider.
    type Nic: Nic<Link = Self>;
    /// Sends one control message (at most [`Link::MESSAGE_BYTES_MAX`] with the facts' bytes counted in). Blocks.
    fn send(&self, message: &[u8], facts: Vec<Facts>) -> Result<(), FabricError>;
    /// Waits for one control message; `None` when the time has passed.
    fn receive(&self, timeout: Duration) -> Result<Option<ControlMessage>, FabricError>;
    /// Lets the peer use a region with the region's access rights, and says how.
    fn grant(&self, region: &<Self::Nic as Nic>::Region) -> Result<Facts, FabricError>;
    /// Takes a region that the peer granted.
    fn import(&self, facts: Facts) -> Result<<Self::Nic as Nic>::RemoteRegion, FabricError>;
    /// Whether the peer lives, as far as can be told without a system call. Cheap enough for every operation. On `shm`
    /// it turns false before a successor of the peer can listen on its address.
    fn alive(&self) -> bool;
    /// Looks (with a system call) whether the peer is gone, and closes the link if so. For a housekeeping thread.
    fn check(&self) -> bool;
    /// Closes the link: the peer sees us gone, and all queue pairs made over it flush.
    fn close(&self);
    /// Who the peer is, for messages to people.
    fn peer(&self) -> String;
    /// The longest control message.
    const MESSAGE_BYTES_MAX: usize = 1 << 20;
}

/// Registered memory of this process. Clones share the memory, which lives as long as any of them or any posted verb.
///
/// The words are atomic because remote readers, and with [`Access::RemoteWrite`] remote writers, race with the owner.
/// Words are little-endian in memory order: byte `i` of the region is byte `i % 8` of word `i / 8`.
pub trait Region: Clone + Send + Sync + 'static {
    /// Its length in bytes, a multiple of the page size.
    fn bytes(&self) -> usize;
    /// What pages it lies on.
    fn pages(&self) -> Pages;
    /// What peers may do to it.
    fn access(&self) -> Access;
    /// All words, for loads. Stores go through [`Region::store`].
    fn words(&self) -> &[AtomicU64];
    /// Stores one word, relaxed. A simulated region lets concurrent READs sample first.
    ///
    /// # Panics
    /// When the index is outside: a bug of the caller.
    fn store(&self, index: usize, word: u64);
    /// Orders all earlier stores before all later ones, for remote readers too.
    fn release(&self) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
    }
    /// Borrows bytes without copying.
    ///
    /// # Safety
    /// While the borrow lives, nobody stores to this range: no call of [`Region::store`], no verb of this process that
    /// targets it, and no remote writer.
    unsafe fn slice(&self, offset: usize, bytes: usize) -> &[u8];
    /// Copies bytes out word by word, relaxed; they may be torn. The range is checked.
    ///
    /// # Panics
    /// When the range is outside: a bug of the caller.
    fn copy_out(&self, offset: usize, into: &mut [u8]);
    /// Copies whole words out, beginning with the one of this index, otherwise like [`Region::copy_out`].
    ///
    /// # Panics
    /// When they are outside: a bug of the caller.
    #[inline(always)]
    fn copy_words_out(&self, index: usize, into: &mut [[u8; 8]]) {
        crate::copy::copy_words_out(&self.words()[index..][..into.len()], into);
    }
    /// Copies bytes in, word by word, relaxed; the bytes around them in the first and last word are kept.
    ///
    /// # Panics
    /// When the range is outside: a bug of the caller.
    fn copy_in(&self, offset: usize, from: &[u8]);
    /// Takes the region back from all peers: a READ that has not completed by the time this returns fails with
    /// [`Status::RemoteAccess`](crate::Status::RemoteAccess), and so do all later ones.
    fn revoke(&self);
}

/// Registered memory of a peer, as a target of READs, WRITEs and atomics.
pub trait RemoteRegion: Clone + Send + 'static {
    /// Its length in bytes.
    fn bytes(&self) -> usize;
    /// What brings a range nearer, so that a following READ is quicker. Nothing where the NIC cannot do that, or out of
    /// range.
    fn ahead(&self, offset: usize, bytes: usize) -> Prefetch;
}

/// A range of a region of this process.
pub struct LocalSlice<'a, N: Nic> {
    /// The region.
    pub region: &'a N::Region,
    /// Where in it, in bytes.
    pub offset: usize,
    /// How many bytes.
    pub bytes: usize,
}

/// A place in a region of the peer; the length is that of the local side.
pub struct RemoteSlice<'a, N: Nic> {
    /// The region.
    pub region: &'a N::RemoteRegion,
    /// Where in it, in bytes.
    pub offset: usize,
}

/// A queue pair (Mitchell §2.1.1). Requests of one send queue start in the order posted and complete in that order.
pub trait QueuePair {
    /// The provider.
    type Nic: Nic<QueuePair = Self>;
    /// Its number, unique in this process while it lives.
    fn number(&self) -> u32;
    /// Where it is in its life.
    fn state(&self) -> QueuePairState;
    /// What the peer must know to connect to this queue pair (UD: to address it) over this link.
    fn facts(&self, link: &<Self::Nic as Nic>::Link) -> Result<Facts, FabricError>;
    /// Connects with the queue pair that sent these facts and becomes ready. RC and UC.
    fn connect(&mut self, facts: Facts) -> Result<(), FabricError>;
    /// Becomes ready without a peer. UD.
    fn activate(&mut self) -> Result<(), FabricError>;
    /// Takes the address of a peer's UD queue pair.
    fn address(
        &self,
        link: &<Self::Nic as Nic>::Link,
        facts: Facts,
    ) -> Result<<Self::Nic as Nic>::AddressHandle, FabricError>;
    /// Posts to the send queue. Where several posts follow each other, [`QueuePair::ring`] after the last one starts
    /// them all; until then they may or may not have started.
    fn post_send(&mut self, request: &SendRequest<'_, Self::Nic>) -> Result<(), PostError>;
    /// Carries out a READ at once into any memory, past the completion queue, if nothing that was posted is unfinished.
    /// Only on NICs whose READs take no time of their own ([`Properties::reads_at_once`]). False if it was not carried
    /// out, or failed: what `into` holds then is of no use; post the READ to see why.
    fn read_at_once(&mut self, _into: &mut [u8], _from: &RemoteSlice<'_, Self::Nic>) -> bool {
        false
    }
    /// Carries out a WRITE of these pieces at once, past both queues, if nothing that was posted is unfinished: whoever sees
    /// what this process stores later sees these bytes, too. Over RC and UC, only on NICs whose WRITEs take no time of their own
    /// ([`Properties::writes_at_once`]). False if nothing was stored; post the WRITE to see why.
    fn write_at_once(&mut self, _pieces: &[&[u8]], _to: &RemoteSlice<'_, Self::Nic>) -> bool {
        false
    }
    /// Sends a message at once, past both queues, if nothing that was posted waits to start: it arrives like an unsignaled SEND.
    /// Over RC and UC, only on NICs that carry messages without a hand of their own ([`Properties::messages_at_once`]). False
    /// if nothing was sent, for instance since the peer has no room; post the SEND to wait for that, or to see why.
    fn send_at_once(&mut self, _pieces: &[&[u8]]) -> bool {
        false
    }
    /// Takes the next message at once, past the completion queue, and says how long it is: one by SEND without an immediate that
    /// fits `into` and the oldest RECV, which stays posted. Over RC and UC, on the same NICs. None if there is no such message;
    /// what else has come, or is wrong, a poll brings. Messages for which a poll has taken a RECV are older than those taken
    /// here later.
    fn receive_at_once(&mut self, _into: &mut [u8]) -> Option<usize> {
        None
    }
    /// Starts whatever was posted (the doorbell).
    fn ring(&mut self) -> Result<(), PostError>;
    /// Posts a RECV. On UD the first 40 bytes of the buffer are for the GRH.
    fn post_receive(&mut self, id: u64, buffer: LocalSlice<'_, Self::Nic>) -> Result<(), PostError>;
    /// Breaks the queue pair on purpose: everything posted is flushed, and the peer notices.
    fn fail(&mut self);
}

/// Where completions arrive (Mitchell §2.1.1). Polling also drives software NICs.
pub trait CompletionQueue: Park {
    /// Takes up to `into.len()` completions; never blocks. A queue that overflows breaks the queue pairs that feed it.
    fn poll(&mut self, into: &mut [Completion]) -> usize;
}
