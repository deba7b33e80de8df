//! The limit on how long a call waits for a server that is connected and does not answer: that is stopped, hangs, or has far too
//! much to do. One that is lost shows sooner ([`Loss`](crate::Loss)).
//!
//! Calls grow older by ticks, which are noticed among the empty polls and lie a quarter of the limit apart or more. So no call
//! reads a clock, and a client that was held up itself makes its calls one tick older, however long that took. What has seen
//! one tick more than there are quarters has waited for the limit.
//!
//! A request that was sent keeps its slot, as if the call were dropped: its reply may come yet, and the server would take
//! another request of the slot for a newer one.

use super::Inner;
use crate::{RpcError, window::Phase};
use locus_fabric::{Link, Nic};
use std::time::Duration;

/// A call that is older has waited for the limit.
const TICKS_MAX: u8 = 4;

/// The ticks of a channel.
#[derive(Debug)]
pub(super) struct Ticks {
    apart_ns: u64,
    last_ns: u64,
    /// How many there were.
    count: u64,
}

impl Ticks {
    /// For calls that wait so long.
    pub fn new(limit: Duration) -> Self {
        let apart_ns = limit.as_nanos() / u128::from(TICKS_MAX);
        Self { apart_ns: u64::try_from(apart_ns).unwrap_or(u64::MAX), last_ns: 0, count: 0 }
    }

    /// The server is there, and has had no time yet.
    pub fn connected(&mut self, now_ns: u64) {
        self.last_ns = now_ns;
    }

    /// How many there were, for who waits without a slot.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether who came at this count has waited for the limit.
    pub fn are_too_many_since(&self, count: u64) -> bool {
        self.count - count > TICKS_MAX.into()
    }
}

impl<N: Nic> Inner<N> {
    /// Makes calls older if it is time. To be asked now and then while there are any.
    pub(super) fn tick(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.ticks.last_ns) < self.ticks.apart_ns {
            return;
        }
        (self.ticks.last_ns, self.ticks.count) = (now_ns, self.ticks.count + 1);
        for slot in self.window.slots.iter_mut().filter(|slot| !slot.abandoned) {
            if matches!(slot.phase, Phase::Unsent | Phase::Sent) {
                slot.ticks = slot.ticks.saturating_add(1);
            }
            if slot.phase == Phase::Sent && slot.ticks > TICKS_MAX {
                slot.phase = Phase::Overdue;
            }
        }
    }

    /// Whether a call whose request could not be sent has waited for the limit.
    #[inline]
    pub(super) fn stays_unsent(&self, index: u32) -> bool {
        let slot = &self.window.slots[index as usize];
        slot.ticks > TICKS_MAX && slot.phase == Phase::Unsent
    }

    #[cold]
    pub(super) fn overdue_error(&self, change_pending: bool) -> RpcError {
        RpcError::Unanswered { peer: self.link.peer(), limit: self.config.timeout, change_pending }
    }
}
