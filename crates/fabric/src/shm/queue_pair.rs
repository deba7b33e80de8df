//! Queue pairs: their making and connecting, and what happens to them on each poll. The two queues have files of their
//! own.

use super::{
    ShmLink, ShmNic, ShmRegion,
    channel::{Inbound, Outbound, Verdict, status_of},
    completion_queue::Queue,
    held::Held,
    link::LinkInner,
    mapping::Mapping,
    receive_queue::Receives,
    region::Imported,
    send_queue::Sends,
};
use crate::{
    Completion, FabricError, Facts, LocalSlice, Opcode, PostError, QueuePair, QueuePairConfig,
    QueuePairState, RemoteSlice, SendRequest, Status, Transport,
};
use std::{cell::RefCell, rc::Rc, sync::Arc};

/// After how many polls the peer's life is looked at.
const LOOK_EVERY: u32 = 64;
/// After how many polls regions that nobody uses any more are given up.
const SWEEP_EVERY: u32 = 1 << 12;

/// A queue pair. Stays on the thread that made it.
#[derive(Debug)]
pub struct ShmQueuePair {
    core: Rc<RefCell<Core>>,
    number: u32,
}

/// Names a UD queue pair of a peer.
#[derive(Clone, Debug)]
pub struct ShmAddress {
    pub(crate) outbound: Rc<RefCell<Outbound>>,
}

/// All of a queue pair; the handle and the completion queues share it.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) number: u32,
    pub(crate) state: QueuePairState,
    pub(crate) config: QueuePairConfig,
    pub(crate) link: Arc<LinkInner>,
    pub(crate) sends: Sends,
    pub(crate) receives: Receives,
    pub(crate) send_queue: Rc<Queue>,
    pub(crate) receive_queue: Rc<Queue>,
    /// Regions of this process and of the peer that posted verbs use.
    pub(crate) local: Held<Mapping>,
    pub(crate) remote: Held<Imported>,
    /// Where messages arrive: one ring, on UD one per peer that was told of this queue pair.
    pub(crate) inbound: Vec<Inbound>,
    /// Where messages go; none on UD, where addresses name their own.
    pub(crate) outbound: Option<Outbound>,
    /// What the oldest request gets when the queue pair is in error; the others are flushed.
    pub(crate) oldest: Option<Status>,
    polls: u32,
    /// Whether this process takes part in membarriers.
    membarrier: bool,
}

impl ShmQueuePair {
    pub(crate) fn create(
        nic: &ShmNic,
        number: u32,
        link: &Arc<LinkInner>,
        config: &QueuePairConfig,
        send: &Rc<Queue>,
        receive: &Rc<Queue>,
    ) -> Result<Self, FabricError> {
        if !link.alive() {
            return Err(FabricError::PeerLost { peer: link.name() });
        }
        let inbound = match config.transport {
            Transport::Ud => Vec::new(),
            Transport::Rc | Transport::Uc => vec![Inbound::create(link, config, receive, send)?],
        };
        send.channel.watch(link)?;
        receive.channel.watch(link)?;
        let core = Core {
            number,
            state: QueuePairState::Init,
            config: config.clone(),
            link: link.clone(),
            sends: Sends::new(config.send_depth, config.inline_bytes),
            receives: Receives::new(config.receive_depth),
            send_queue: send.clone(),
            receive_queue: receive.clone(),
            local: Held::new(),
            remote: Held::new(),
            inbound,
            outbound: None,
            oldest: None,
            polls: 0,
            membarrier: nic.membarrier(),
        };
        let core = Rc::new(RefCell::new(core));
        send.attach(&core);
        receive.attach(&core);
        Ok(Self { core, number })
    }
}

impl QueuePair for ShmQueuePair {
    type Nic = ShmNic;

    fn number(&self) -> u32 {
        self.number
    }

    /// Where it is in its life. Looks after the peer too, which polls do only now and then.
    fn state(&self) -> QueuePairState {
        let mut core = self.core.borrow_mut();
        core.drive(true);
        core.state
    }

    fn facts(&self, link: &ShmLink) -> Result<Facts, FabricError> {
        let mut core = self.core.borrow_mut();
        if core.config.transport == Transport::Ud {
            let inbound = Inbound::create(&link.inner, &core.config, &core.receive_queue, &core.send_queue)?;
            core.receive_queue.channel.watch(&link.inner)?;
            core.inbound.push(inbound);
        } else if link.inner.id != core.link.id {
            return Err(FabricError::State("a connected queue pair belongs to the link it was made for"));
        }
        match core.inbound.last() {
            Some(inbound) => inbound.facts(core.number, &core.config),
            None => Err(FabricError::State("the queue pair is in error")),
        }
    }

    fn connect(&mut self, facts: Facts) -> Result<(), FabricError> {
        let mut core = self.core.borrow_mut();
        if core.config.transport == Transport::Ud {
            return Err(FabricError::Unsupported(
                "UD queue pairs do not connect: activate, and address each message",
            ));
        }
        if core.state != QueuePairState::Init {
            return Err(FabricError::State("the queue pair was connected before, or is in error"));
        }
        core.outbound = Some(core.import(facts, &core.link)?);
        core.state = QueuePairState::Ready;
        Ok(())
    }

    fn activate(&mut self) -> Result<(), FabricError> {
        let mut core = self.core.borrow_mut();
        match (core.config.transport, core.state) {
            (Transport::Ud, QueuePairState::Init) => core.state = QueuePairState::Ready,
            (Transport::Ud, _) => {
                return Err(FabricError::State("the queue pair was activated before, or is in error"));
            }
            _ => return Err(FabricError::Unsupported("RC and UC queue pairs become ready by connecting")),
        }
        Ok(())
    }

    fn address(&self, link: &ShmLink, facts: Facts) -> Result<ShmAddress, FabricError> {
        let core = self.core.borrow();
        if core.config.transport != Transport::Ud {
            return Err(FabricError::Unsupported("only UD queue pairs have addresses"));
        }
        Ok(ShmAddress { outbound: Rc::new(RefCell::new(core.import(facts, &link.inner)?)) })
    }

    #[inline]
    fn post_send(&mut self, request: &SendRequest<'_, ShmNic>) -> Result<(), PostError> {
        self.core.borrow_mut().post_send(request)
    }

    #[inline(always)]
    fn read_at_once(&mut self, into: &mut [u8], from: &RemoteSlice<'_, ShmNic>) -> bool {
        self.core.borrow().read_at_once(into, from)
    }

    #[inline(always)]
    fn write_at_once(&mut self, pieces: &[&[u8]], to: &RemoteSlice<'_, ShmNic>) -> bool {
        self.core.borrow_mut().write_at_once(pieces, to)
    }

    #[inline(always)]
    fn send_at_once(&mut self, pieces: &[&[u8]]) -> bool {
        self.core.borrow_mut().send_at_once(pieces)
    }

    #[inline(always)]
    fn receive_at_once(&mut self, into: &mut [u8]) -> Option<usize> {
        self.core.borrow_mut().receive_at_once(into)
    }

    #[inline]
    fn ring(&mut self) -> Result<(), PostError> {
        let mut core = self.core.borrow_mut();
        if core.state == QueuePairState::Ready {
            core.start_stores();
        }
        Ok(())
    }

    #[inline]
    fn post_receive(&mut self, id: u64, buffer: LocalSlice<'_, ShmNic>) -> Result<(), PostError> {
        self.core.borrow_mut().post_receive(id, &buffer)
    }

    fn fail(&mut self) {
        self.core.borrow_mut().fail(Status::Flushed);
    }
}

impl Drop for ShmQueuePair {
    fn drop(&mut self) {
        let mut core = self.core.borrow_mut();
        core.close(Verdict::Closed);
        core.send_queue.detach(&self.core);
        core.receive_queue.detach(&self.core);
    }
}

impl Core {
    fn import(&self, facts: Facts, link: &LinkInner) -> Result<Outbound, FabricError> {
        let fence = !(self.membarrier && link.peer.membarrier);
        Outbound::import(facts, link, self.config.transport, fence)
            .map_err(|what| FabricError::Protocol { peer: link.name(), what: what.into() })
    }

    /// Does whatever can be done now. Called by every poll of either completion queue.
    #[inline]
    pub(crate) fn drive(&mut self, thorough: bool) {
        self.polls = self.polls.wrapping_add(1);
        match self.state {
            QueuePairState::Ready => {
                if self.sends.are_open() {
                    self.advance_sends();
                }
                self.advance_receives();
            }
            QueuePairState::Init => {}
            QueuePairState::Error => return self.flush(),
        }
        if thorough || self.polls.is_multiple_of(LOOK_EVERY) {
            self.look_around();
        }
    }

    /// Looks whether the peer still lives and listens.
    #[cold]
    fn look_around(&mut self) {
        if self.polls.is_multiple_of(SWEEP_EVERY) {
            self.local.sweep();
            self.remote.sweep();
        }
        if self.send_queue.overflowed() || self.receive_queue.overflowed() {
            return self.fail(Status::Flushed);
        }
        if self.config.transport == Transport::Ud {
            // UD has no peer of its own; what dead ones sent stays until it is taken.
            let message_bytes = self.config.message_bytes;
            self.inbound.retain(|from| from.link.alive() || matches!(from.peek(message_bytes), Ok(Some(_))));
            return;
        }
        if !self.link.alive() {
            return self.fail(Status::PeerLost);
        }
        let verdict = self.outbound.as_ref().map_or(0, Outbound::verdict);
        if verdict != 0 && self.state == QueuePairState::Ready {
            self.settle();
            if self.state == QueuePairState::Ready {
                self.fail(status_of(verdict));
            }
        }
    }

    /// Breaks the queue pair: `oldest` is what the oldest unfinished request gets, the others are flushed.
    #[cold]
    pub(crate) fn fail(&mut self, oldest: Status) {
        if self.state == QueuePairState::Error {
            return;
        }
        self.state = QueuePairState::Error;
        self.oldest = Some(oldest);
        self.close(if oldest == Status::ProtocolViolation { Verdict::Violation } else { Verdict::Closed });
        if self.sends.is_empty() {
            // Nobody is left to be told; what is posted from now on is flushed.
            self.oldest = None;
        }
        self.flush();
    }

    /// Tells the peer that nothing more will be taken from it.
    fn close(&mut self, verdict: Verdict) {
        for inbound in &mut self.inbound {
            inbound.speak(verdict);
        }
        if let Some(outbound) = &mut self.outbound {
            outbound.wake();
        }
        if self.config.transport == Transport::Ud {
            self.inbound.clear();
        }
    }

    /// Ends everything that is posted, as far as the completion queues have room; called again on every poll.
    #[cold]
    fn flush(&mut self) {
        self.flush_sends();
        self.flush_receives();
    }

    /// Makes a completion of something that failed.
    pub(crate) fn failed(&self, id: u64, status: Status) -> Completion {
        Completion { id, queue_pair: self.number, status, opcode: Opcode::Send, bytes: 0, immediate: None }
    }

    /// Keeps a local range alive for a posted verb.
    #[inline]
    pub(crate) fn hold(&mut self, region: &ShmRegion, offset: usize, bytes: usize) -> Range {
        Range { held: self.local.hold(region.mapping()), offset, bytes }
    }
}

/// A range of a held region of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) held: u32,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}
