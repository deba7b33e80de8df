//! One call's hold on its channel: the steps by which it gets a slot, sends, and finds its reply, and what becomes of the slot
//! when the future is dropped before.

use super::{Channel, Inner, Request, State};
use crate::{RpcError, window::Phase};
use locus_fabric::Nic;
use std::task::Poll;

/// What a call holds of its channel; dropping it gives that back, or leaves the slot to its reply.
pub(super) struct Hold<'a, N: Nic> {
    pub(super) channel: &'a Channel<N>,
    pub(super) held: Held,
}

/// Which part of a channel is held.
#[derive(Clone, Copy)]
pub(super) enum Held {
    Nothing,
    /// A place among those who wait for a slot.
    Wait,
    Slot(u32),
}

impl<N: Nic> Hold<'_, N> {
    /// One step of a call: gets a slot, sends, or looks for the reply.
    #[inline]
    pub(super) fn advance(&mut self, request: &Request<'_>) -> Poll<Result<u32, RpcError>> {
        let channel = self.channel;
        let inner = &mut *channel.inner.borrow_mut();
        let index = match self.held {
            Held::Slot(index) => index,
            Held::Nothing | Held::Wait => match self.acquire(inner, request.mutates) {
                Ok(Some(index)) => index,
                Ok(None) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            },
        };
        if matches!(inner.window.slots[index as usize].phase, Phase::Sent) && inner.state == State::Connected
        {
            inner.look_for(&channel.hub, channel.member, index as usize);
        }
        let slot = &mut inner.window.slots[index as usize];
        match slot.phase {
            Phase::Answered => Poll::Ready(Ok(index)),
            Phase::Unknown => {
                self.held = Held::Nothing;
                inner.window.release(index);
                Poll::Ready(Err(RpcError::OutcomeUnknown))
            }
            _ if matches!(inner.state, State::Closed(_)) => {
                let unknown = slot.mutation && slot.ever_sent;
                self.held = Held::Nothing;
                inner.window.release(index);
                Poll::Ready(Err(if unknown { RpcError::OutcomeUnknown } else { inner.lost_error() }))
            }
            Phase::Unsent if inner.state == State::Connected => {
                inner.send(channel, index, request);
                Poll::Pending
            }
            _ => Poll::Pending,
        }
    }

    /// Takes a slot if there is one, or a place among those who wait.
    #[inline]
    fn acquire(&mut self, inner: &mut Inner<N>, mutation: bool) -> Result<Option<u32>, RpcError> {
        let channel = self.channel;
        if matches!(inner.state, State::Closed(_)) {
            return Err(inner.lost_error());
        }
        if let Some(index) = inner.window.acquire(mutation) {
            self.stop_waiting();
            self.held = Held::Slot(index);
            return Ok(Some(index));
        }
        if let Held::Nothing = self.held {
            if channel.waiting.get() >= inner.config.waiting_max {
                return Err(RpcError::WindowFull(inner.config.waiting_max));
            }
            channel.waiting.set(channel.waiting.get() + 1);
            self.held = Held::Wait;
            inner.counters.slot_waits += 1;
        }
        // All slots may be held by futures that are gone or not polled: their replies are handled here.
        inner.look_for_all(&channel.hub, channel.member);
        Ok(None)
    }

    fn stop_waiting(&mut self) {
        if let Held::Wait = self.held {
            self.channel.waiting.set(self.channel.waiting.get() - 1);
            self.held = Held::Nothing;
        }
    }
}

impl<N: Nic> Drop for Hold<'_, N> {
    fn drop(&mut self) {
        self.stop_waiting();
        let Held::Slot(index) = self.held else { return };
        let inner = &mut *self.channel.inner.borrow_mut();
        match inner.window.slots[index as usize].phase {
            Phase::Sent => {
                inner.window.slots[index as usize].abandoned = true;
                // Perhaps nobody polls the channel any more, and a mutation that is carried out much later would surprise.
                if inner.doorbell.waits() {
                    inner.ring();
                }
            }
            _ => inner.window.release(index),
        }
    }
}
