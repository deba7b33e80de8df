//! The queue pair over which long values go ahead of requests that cannot be ordered behind them.
//!
//! One queue pair carries WRITEs and the request behind them in order, over RC. A request over UC or UD has a queue pair that
//! may lose a part of a value, or carries no WRITEs; so the value goes first, by WRITEs over RC, and the request is not sent
//! before the last of them is acknowledged.
//!
//! **What the acknowledgement says** of the bytes that the server is to copy when it sees the request:
//! * on `shm` all: the client's processor has stored them before the WRITE completes, with a release, and stores the request
//!   after; so whoever sees the request by an acquire sees them;
//! * on SoftRoCE all: its responder copies a WRITE's bytes to memory before it acknowledges it, and the request sets out after
//!   that;
//! * on a NIC that the responder has them and answers for them, not that memory does. NICs hand their stores to PCIe, which
//!   keeps them in order unless they are marked as relaxed, and we register nothing so. But the specification orders nothing
//!   between two queue pairs, and a request may come in through another engine.
//!
//! So nothing rests on it: the request carries a checksum over the value. The server checks the bytes that it has copied, and
//! a request whose value is not there, or not all of it, it refuses without having changed anything. The refusal is the
//! request's one outcome, remembered as any other, so whoever called may place the value again and ask anew.
//!
//! **Whose bytes a request finds.** A place holds a request's value until the request is answered
//! ([`Slot::staged`](crate::window::Slot)): then the server answers repetitions of it from its session, without a look at the
//! place. A request that was given up keeps it as long. With the link ends the staging region, and requests over the next one
//! name places in another. A late request that found a later value nevertheless would fail its checksum.

use crate::{Hub, RpcError, line::PIECES_MAX, outbox::Outbox, tag, tag::Kind, tag::Tag};
use locus_fabric::{
    Completion, FabricError, Facts, LocalSlice, Nic, PostError, QueuePair, QueuePairConfig, RemoteSlice,
    Status,
};
use std::cell::{Cell, RefCell};

/// How many values may be under way at once; more places than that take turns.
const VALUES_MAX: usize = 4;

/// An RC queue pair for values, as a member of its hub. The server's end of it takes nothing of the server's CPU.
pub struct Ahead<N: Nic> {
    hub: Hub<N>,
    member: u16,
    outbox: RefCell<Outbox<N>>,
    /// How it broke, if it did.
    failure: Cell<Option<Status>>,
}

impl<N: Nic> Ahead<N> {
    /// Makes the queue pair over a link; it must be connected with one of the server's.
    pub fn new(hub: &Hub<N>, link: &N::Link) -> Result<Self, RpcError> {
        let config = QueuePairConfig {
            send_depth: VALUES_MAX * PIECES_MAX,
            receive_depth: 1,
            inline_bytes: 0,
            reads_outstanding: 1,
            ..QueuePairConfig::default()
        };
        let pair = hub.with_queue(|queue| hub.nic().create_queue_pair(link, &config, queue, queue))?;
        let member = hub.join(config.send_depth + config.receive_depth)?;
        let tag = Tag::new(member, hub.connection());
        let outbox = RefCell::new(Outbox::new(pair, tag, config.send_depth, config.inline_bytes, None));
        Ok(Self { hub: hub.clone(), member, outbox, failure: Cell::new(None) })
    }

    /// What the server must know to connect a queue pair of its own to this one.
    pub fn facts(&self, link: &N::Link) -> Result<Facts, FabricError> {
        self.outbox.borrow().pair.facts(link)
    }

    /// Connects with the server's queue pair.
    pub fn connect(&mut self, facts: Facts) -> Result<(), FabricError> {
        self.outbox.get_mut().pair.connect(facts)
    }

    /// Posts the WRITE of a piece, if there is room, and gives its number. The bytes must stay as they are until it is done.
    pub(crate) fn write(&self, from: LocalSlice<'_, N>, to: RemoteSlice<'_, N>) -> Result<u32, PostError> {
        let outbox = &mut *self.outbox.borrow_mut();
        if !outbox.room(1) {
            return Err(PostError::SendQueueFull(0));
        }
        outbox.write(from, to, true)
    }

    /// Starts what was posted.
    pub(crate) fn ring(&self) -> Result<(), PostError> {
        self.outbox.borrow_mut().ring()
    }

    /// Takes note of what was acknowledged.
    pub(crate) fn poll(&self) -> Result<(), Status> {
        let outbox = &mut *self.outbox.borrow_mut();
        self.hub.drain(self.member, |&Completion { id, status, .. }| match tag::kind(id) {
            _ if !outbox.tag().owns(id) => {}
            _ if status != Status::Success => self.failure.set(self.failure.get().or(Some(status))),
            Kind::Send(number) => outbox.completed(number),
            Kind::Receive(_) => {}
        });
        self.failure.get().map_or(Ok(()), Err)
    }

    /// Whether the WRITE of this number is acknowledged, as of the last poll.
    pub(crate) fn is_done(&self, number: u32) -> bool {
        self.outbox.borrow().is_done(number)
    }
}

impl<N: Nic> Drop for Ahead<N> {
    fn drop(&mut self) {
        self.outbox.get_mut().pair.fail();
        self.hub.leave(self.member);
    }
}
