//! The vocabulary of verbs: transports, work requests, completions and what a NIC declares of itself.

use crate::{LocalSlice, Nic, RemoteSlice};

/// How a queue pair carries messages (Mitchell §2.1.3, Table 2.1; Kalia §2.2.2, Table 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection: every verb.
    Rc,
    /// Unreliable connection: WRITE, SEND and RECV; no READ, no atomics. A message may be lost.
    Uc,
    /// Unreliable datagram: SEND and RECV alone, up to one MTU, to any queue pair. A message may be lost.
    Ud,
}

/// What a peer may do to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing: the region serves as buffers of the owner's own verbs.
    Local,
    /// READ. The owner is the only writer, and the provider enforces it.
    RemoteRead,
    /// READ, WRITE and atomics.
    RemoteWrite,
}

/// What pages a region should lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagePolicy {
    /// Huge pages where the system grants them; [`crate::Region::pages`] says what came of it.
    PreferHuge,
    /// The base page size, for comparison.
    Base,
}

/// What pages a region lies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Pages of 2 MiB.
    Huge,
    /// The base page size, with the reason in words.
    Base(String),
}

/// In which order a READ samples the bytes of a remote region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOrder {
    /// In increasing order of addresses.
    Increasing,
    /// In any order.
    Unordered,
}

/// What remote atomics are atomic with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomicity {
    /// The NIC has no atomics.
    None,
    /// With other atomics through the same NIC only.
    Nic,
    /// With the CPU's atomics too.
    Global,
}

/// What a NIC declares of itself. Code above the fabric may rely on nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct Properties {
    /// The provider's name: `shm`, `verbs` or `sim`.
    pub provider: &'static str,
    /// In which order a READ samples memory.
    pub read_order: ReadOrder,
    /// Aligned pieces of this many bytes are sampled at once by a READ and stored at once by a WRITE, as far as words go:
    /// 1 where even words may be torn.
    pub read_atomicity_bytes: usize,
    /// Whether a WRITE's bytes become visible in increasing order of addresses.
    pub write_in_order: bool,
    /// Whether a WRITE wakes who sleeps on the completion queue of the RECVs of the queue pair that it arrives over.
    /// Elsewhere only one with an immediate does.
    pub writes_wake: bool,
    /// What remote atomics are atomic with.
    pub atomics: Atomicity,
    /// The largest inline payload, in bytes.
    pub inline_bytes_max: usize,
    /// The largest SEND over RC and UC, in bytes.
    pub message_bytes_max: usize,
    /// The largest SEND over UD, in bytes, the 40-byte GRH not counted.
    pub datagram_bytes_max: usize,
    /// The largest READ or WRITE, in bytes.
    pub transfer_bytes_max: usize,
    /// The deepest send queue and receive queue.
    pub queue_depth_max: usize,
    /// The deepest completion queue.
    pub completions_max: usize,
    /// How many READs and atomics of one queue pair may be outstanding.
    pub reads_outstanding_max: usize,
    /// Whether messages over UC and UD can be lost although the receiver was ready.
    pub loses_messages: bool,
    /// Whether a doorbell is a system call: then a few polls are worth waiting for what else may be posted.
    pub dear_doorbells: bool,
    /// Whether [`RemoteRegion::ahead`](crate::RemoteRegion::ahead) brings the bytes nearer.
    pub prefetches: bool,
    /// Whether [`QueuePair::read_at_once`](crate::QueuePair::read_at_once) works: a READ is over when it is started.
    pub reads_at_once: bool,
    /// Whether [`QueuePair::write_at_once`](crate::QueuePair::write_at_once) works: so is a WRITE.
    pub writes_at_once: bool,
    /// Whether [`QueuePair::send_at_once`](crate::QueuePair::send_at_once) and
    /// [`QueuePair::receive_at_once`](crate::QueuePair::receive_at_once) work.
    pub messages_at_once: bool,
}

/// What becomes of an RC message for which the receiver has posted no RECV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverNotReady {
    /// It waits (`rnr_retry` 7).
    Wait,
    /// The sender's queue pair fails with [`Status::ReceiverNotReady`].
    Fail,
}

/// The limits of a queue pair, checked when posting.
#[derive(Clone, Debug)]
pub struct QueuePairConfig {
    /// How the queue pair carries messages.
    pub transport: Transport,
    /// How many sends may be posted and not completed.
    pub send_depth: usize,
    /// How many RECVs may be posted and not completed.
    pub receive_depth: usize,
    /// The largest inline payload that will be posted, in bytes.
    pub inline_bytes: usize,
    /// How many READs and atomics may be outstanding; a further one waits in the send queue.
    pub reads_outstanding: usize,
    /// The largest message that will be received, in bytes.
    pub message_bytes: usize,
    /// What becomes of RC messages for which the peer posted no RECV.
    pub receiver_not_ready: ReceiverNotReady,
}

impl Default for QueuePairConfig {
    fn default() -> Self {
        Self {
            transport: Transport::Rc,
            send_depth: 128,
            receive_depth: 128,
            inline_bytes: 256,
            reads_outstanding: 16,
            message_bytes: 8 << 10,
            receiver_not_ready: ReceiverNotReady::Wait,
        }
    }
}

/// Where a queue pair is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePairState {
    /// Created, not yet connected: receives may be posted, sends may not.
    Init,
    /// Ready to send and receive.
    Ready,
    /// Broken: whatever was posted is flushed, and so is whatever is posted from now on.
    Error,
}

/// The bytes that a SEND or a WRITE carries.
pub enum Payload<'a, N: Nic> {
    /// Gathered from anywhere and copied while posting: the memory is free again at once.
    Inline(&'a [&'a [u8]]),
    /// From a registered region, which must stay as it is until the completion.
    Slice(LocalSlice<'a, N>),
}

/// One verb with its operands.
pub enum Verb<'a, N: Nic> {
    /// Fetches remote memory. RC.
    Read {
        /// Where the bytes go; its length is the length of the READ.
        into: LocalSlice<'a, N>,
        /// Where they come from.
        from: RemoteSlice<'a, N>,
    },
    /// Stores into remote memory. RC and UC. With an immediate it also consumes a RECV at the peer. Over RC success says that
    /// the peer's NIC answers for the bytes; a message over another queue pair may be seen before them.
    Write {
        /// The bytes.
        payload: Payload<'a, N>,
        /// Where they go.
        to: RemoteSlice<'a, N>,
        /// Delivered with the completion of the peer's RECV.
        immediate: Option<u32>,
    },
    /// Sends a message into a RECV of the peer. RC, UC, and UD with an address.
    Send {
        /// The message.
        payload: Payload<'a, N>,
        /// Delivered with the completion of the peer's RECV.
        immediate: Option<u32>,
        /// The receiver: required on UD, absent elsewhere.
        to: Option<&'a N::AddressHandle>,
    },
    /// If the aligned remote word equals `expected`, stores `desired`; the old value goes to `into` (8 bytes). RC.
    CompareSwap {
        /// Where the old value goes.
        into: LocalSlice<'a, N>,
        /// The word.
        at: RemoteSlice<'a, N>,
        /// What it must be.
        expected: u64,
        /// What it becomes.
        desired: u64,
    },
    /// Adds to the aligned remote word; the old value goes to `into` (8 bytes). RC.
    FetchAdd {
        /// Where the old value goes.
        into: LocalSlice<'a, N>,
        /// The word.
        at: RemoteSlice<'a, N>,
        /// What is added, wrapping.
        add: u64,
    },
}

/// A work request for the send queue.
pub struct SendRequest<'a, N: Nic> {
    /// Comes back in the completion.
    pub id: u64,
    /// What to do.
    pub verb: Verb<'a, N>,
    /// Whether success raises a completion. A failure always does. An unsignaled request's place in the send queue is
    /// free again once a later request of the same queue has completed, so every `send_depth`-th must be signaled.
    pub signaled: bool,
}

/// What a processor does between verbs. Simulated NICs make it take virtual time ([`Nic::charge`]); lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A request is made or taken apart: frame, session, slot.
    Request,
    /// A reply with a value is put together or taken apart.
    Reply(usize),
    /// A key is hashed and routed.
    Hash(usize),
    /// A key is looked up by its owner, in a batch.
    Lookup,
    /// What a READ brought is verified by its checksum, and parsed.
    Verify(usize),
    /// A record is made, checksummed and put into its table.
    Change(usize),
}

/// What a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A READ of ours.
    Read,
    /// A WRITE of ours.
    Write,
    /// A SEND of ours.
    Send,
    /// An atomic of ours.
    Atomic,
    /// A RECV that a SEND filled.
    Receive,
    /// A RECV that a WRITE with immediate consumed; the bytes are where the WRITE put them.
    ReceiveWrite,
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// As asked.
    Success,
    /// The message was longer than the RECV posted for it.
    LocalLength,
    /// The range or the rights of the remote region did not allow it, or the region was revoked.
    RemoteAccess,
    /// The peer rejected the request (a message longer than its RECV).
    RemoteInvalidRequest,
    /// The peer had no RECV posted and the queue pair was set to fail on that.
    ReceiverNotReady,
    /// The peer is gone.
    PeerLost,
    /// The peer broke the wire protocol of the provider: it is not trusted any more.
    ProtocolViolation,
    /// The queue pair was in error, or came into it, before this request was carried out.
    Flushed,
}

/// The end of a work request, taken from a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's id.
    pub id: u64,
    /// The number of the queue pair it was posted to.
    pub queue_pair: u32,
    /// How it ended. Unless it is success, only `id` and `queue_pair` mean anything besides.
    pub status: Status,
    /// What it was.
    pub opcode: Opcode,
    /// For a receive: how many bytes arrived, on UD including the 40 bytes of the GRH.
    pub bytes: u32,
    /// For a receive: the immediate.
    pub immediate: Option<u32>,
}

impl Completion {
    /// A placeholder, to make room for [`CompletionQueue::poll`](crate::CompletionQueue::poll).
    pub const EMPTY: Self = Self {
        id: 0,
        queue_pair: 0,
        status: Status::Flushed,
        opcode: Opcode::Send,
        bytes: 0,
        immediate: None,
    };
}
