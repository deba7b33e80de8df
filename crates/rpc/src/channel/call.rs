//! One call: the steps by which it gets a slot, sends, and finds its reply, and what becomes of the slot when the call is
//! dropped before.

use super::{Channel, Inner, Reply, Request, State};
use crate::{RpcError, frame::REPLY_HEADER_BYTES, window::Phase};
use locus_fabric::{Nic, Work};

/// A call under way, see [`Channel::begin`]. It holds a slot of its channel, or a place among those who wait for one;
/// dropping it gives that back, or leaves the slot to its reply.
pub struct Call<'a, N: Nic> {
    channel: &'a Channel<N>,
    request: &'a Request<'a>,
    held: Held,
}

/// What a step of a call came to.
#[derive(Debug)]
pub enum Step {
    /// It waits: for a slot, or for the reply.
    Waits,
    /// It waits, and will for ever unless the channel is connected again or closed.
    Lost,
    /// The reply is here, for [`Call::take`].
    Answered,
    /// There will be none.
    Ended(RpcError),
}

/// Which part of a channel is held.
#[derive(Clone, Copy)]
enum Held {
    Nothing,
    /// A place among those who wait for a slot, since this tick.
    Wait(u64),
    Slot(u32),
}

impl<'a, N: Nic> Call<'a, N> {
    #[inline]
    pub(super) fn new(channel: &'a Channel<N>, request: &'a Request<'a>) -> Self {
        Self { channel, request, held: Held::Nothing }
    }

    /// Gets a slot, sends, or looks for the reply.
    #[inline(always)]
    pub fn step(&mut self) -> Step {
        let inner = &mut *self.channel.inner.borrow_mut();
        match self.held {
            Held::Slot(index) if inner.waits_in_vain(index as usize) => Step::Waits,
            _ => self.advance(inner),
        }
    }

    /// The same where there is something to do.
    fn advance(&mut self, inner: &mut Inner<N>) -> Step {
        let channel = self.channel;
        let index = match self.held {
            Held::Slot(index) => index,
            Held::Nothing | Held::Wait(_) => match self.acquire(inner) {
                Ok(Some(index)) => index,
                Ok(None) => return inner.waits(),
                Err(error) => return Step::Ended(error),
            },
        };
        let phase = inner.window.slots[index as usize].phase;
        if matches!(phase, Phase::Sent | Phase::Overdue) && inner.state == State::Connected {
            inner.look_for(&channel.hub, channel.member, index as usize);
        }
        match inner.window.slots[index as usize].phase {
            Phase::Answered => Step::Answered,
            Phase::Unsent if inner.state == State::Connected => {
                if inner.stays_unsent(index) {
                    return self.end_overdue(inner, index);
                }
                inner.send(channel, index, self.request);
                inner.waits()
            }
            Phase::Overdue => self.end_overdue(inner, index),
            Phase::Unknown => self.end(inner, index),
            _ if matches!(inner.state, State::Closed(_)) => self.end(inner, index),
            _ => inner.waits(),
        }
    }

    /// Hands over the reply that a step has found.
    ///
    /// # Panics
    /// When there is none: a bug of the caller.
    #[inline]
    pub fn take<T>(mut self, on_reply: impl FnOnce(&Reply<'_>) -> T) -> T {
        let Held::Slot(index) = self.held else { panic!("a call without a reply") };
        // The frame leaves its slot for the moment and the slot is free, so that `on_reply` may use the channel, however
        // narrow its window.
        self.held = Held::Nothing;
        let (status, version, frame, bytes) = {
            let window = &mut self.channel.inner.borrow_mut().window;
            assert!(window.slots[index as usize].phase == Phase::Answered, "a call without a reply");
            let lent = window.lend(index);
            window.release(index);
            lent
        };
        let value = frame.as_ref().and_then(|frame| frame.get(REPLY_HEADER_BYTES..bytes)).unwrap_or_default();
        N::charge(Work::Reply(value.len()));
        let output = on_reply(&Reply { status, version, value });
        let slot = &mut self.channel.inner.borrow_mut().window.slots[index as usize];
        if slot.frame.is_none() {
            slot.frame = frame;
        }
        output
    }

    /// The call ends without a reply.
    #[cold]
    fn end(&mut self, inner: &mut Inner<N>, index: u32) -> Step {
        let slot = &inner.window.slots[index as usize];
        let unknown = slot.phase == Phase::Unknown || slot.mutation && slot.ever_sent;
        self.held = Held::Nothing;
        inner.window.release(index);
        Step::Ended(if unknown { RpcError::OutcomeUnknown } else { inner.lost_error() })
    }

    /// The call ends since the server did not answer in time.
    #[cold]
    fn end_overdue(&mut self, inner: &mut Inner<N>, index: u32) -> Step {
        let slot = &inner.window.slots[index as usize];
        let change_pending = slot.mutation && slot.ever_sent;
        self.held = Held::Nothing;
        match slot.phase {
            Phase::Unsent => inner.window.release(index),
            _ => inner.abandon(index),
        }
        Step::Ended(inner.overdue_error(change_pending))
    }

    /// Takes a slot if there is one, or a place among those who wait.
    #[inline]
    fn acquire(&mut self, inner: &mut Inner<N>) -> Result<Option<u32>, RpcError> {
        let channel = self.channel;
        if matches!(inner.state, State::Closed(_)) {
            return Err(inner.lost_error());
        }
        // Who comes while others wait lets those have their turn first, or a caller that comes again and again would keep them
        // waiting for ever. Only once: they may be futures that nobody polls.
        let lets_others = matches!(self.held, Held::Nothing)
            && (1..inner.config.waiting_max).contains(&channel.waiting.get());
        if !lets_others && let Some(index) = inner.window.acquire(self.request.mutates) {
            self.stop_waiting();
            self.held = Held::Slot(index);
            return Ok(Some(index));
        }
        if let Held::Wait(tick) = self.held
            && inner.ticks.are_too_many_since(tick)
        {
            self.stop_waiting();
            return Err(inner.overdue_error(false));
        }
        if let Held::Nothing = self.held {
            if channel.waiting.get() >= inner.config.waiting_max {
                return Err(RpcError::WindowFull(inner.config.waiting_max));
            }
            channel.waiting.set(channel.waiting.get() + 1);
            self.held = Held::Wait(inner.ticks.count());
            inner.counters.slot_waits += 1;
            if lets_others {
                // The core must not sleep before it has come again.
                channel.hub.note_news();
            }
        }
        // All slots may be held by futures that are gone or not polled: their replies are handled here.
        inner.look_for_all(&channel.hub, channel.member);
        Ok(None)
    }

    fn stop_waiting(&mut self) {
        if let Held::Wait(_) = self.held {
            self.channel.waiting.set(self.channel.waiting.get() - 1);
            self.held = Held::Nothing;
        }
    }
}

impl<N: Nic> Drop for Call<'_, N> {
    fn drop(&mut self) {
        self.stop_waiting();
        let Held::Slot(index) = self.held else { return };
        let inner = &mut *self.channel.inner.borrow_mut();
        match inner.window.slots[index as usize].phase {
            Phase::Sent | Phase::Overdue => inner.abandon(index),
            _ => inner.window.release(index),
        }
    }
}

impl<N: Nic> Inner<N> {
    /// Leaves a slot whose request was sent to its reply.
    fn abandon(&mut self, index: u32) {
        let slot = &mut self.window.slots[index as usize];
        (slot.phase, slot.abandoned) = (Phase::Sent, true);
        // Perhaps nobody polls the channel any more, and a mutation that is carried out much later would surprise.
        if self.doorbell.waits() {
            self.ring();
        }
    }
}
