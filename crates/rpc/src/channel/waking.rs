//! Waking a server that does not notice what is WRITten to it, where [`Properties::writes_wake`](locus_fabric::Properties::writes_wake)
//! does not hold: by a WRITE with immediate and no bytes.
//!
//! - A server may sleep unless it has answered a moment ago; so a request that is sent alone after a pause is followed by one that
//!   wakes. It comes after the request: whoever is woken finds the request.
//! - The server naps before it sleeps ([`NAP`]) and then looks, so a request soon after an answer needs none.
//! - Should either have failed, because one side was held up, or over UC the message was lost, silence makes the client wake the server
//!   again, after 1 ms and then after twice as long each time, [`WAKES_MAX`] times. After that the server looks by itself, a few
//!   times a second.
//! - Each takes one of few RECVs, and what found none would hold up all requests behind it. Hence the limit, and no two are under
//!   way at once ([`Outbox::wake`](crate::outbox::Outbox::wake)).

use super::Inner;
use crate::{Loss, line::Line, server::NAP};
use locus_fabric::Nic;
use locus_runtime::Clock;

/// A server that has answered nothing for so long is woken though it should be awake, in nanoseconds; then after twice as long
/// each time.
const WAKE_NS: u64 = 1_000_000;
/// How often. One that was woken and does not answer is busy, or has stopped: it will look when it can.
pub(crate) const WAKES_MAX: u32 = 4;
/// A server whose answer was seen so long ago still looks for requests without being woken, in nanoseconds: a quarter of what it
/// naps. Half of that this side may have napped itself before it saw the answer, and answer and request take their time to
/// travel.
const AWAKE_NS: u64 = NAP.as_nanos() as u64 / 4;

/// What a client knows of whether its server is awake.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// When the last reply came that none was waited for after.
    heard_ns: Option<u64>,
    /// Since when nothing has come, as far as that was looked at, and the server was not woken.
    since_ns: Option<u64>,
    /// How often the server was woken since something has come.
    wakes: u32,
}

impl Silence {
    /// A reply has come, at a time that is known where the server may have to be woken and no other reply is waited for.
    #[inline]
    pub fn end(&mut self, now_ns: Option<u64>) {
        *self = Self { heard_ns: now_ns, since_ns: None, wakes: 0 };
    }

    /// Whether the server may sleep.
    #[inline]
    fn is_long(&self, now_ns: u64) -> bool {
        self.heard_ns.is_none_or(|heard_ns| now_ns - heard_ns >= AWAKE_NS)
    }

    /// Whether the server is to be woken although it should be awake. To be asked now and then while a reply is waited for.
    pub fn is_too_long(&mut self, now_ns: u64) -> bool {
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        let wakes = self.wakes < WAKES_MAX && now_ns - since_ns >= WAKE_NS << self.wakes;
        if wakes {
            (self.since_ns, self.wakes) = (None, self.wakes + 1);
        }
        wakes
    }
}

impl<N: Nic> Inner<N> {
    /// Whether a reply, or a request about to be sent, is the only one under way, and the server may have to be woken.
    #[inline]
    fn minds_silence(&self) -> bool {
        self.window.is_alone() && self.line.as_ref().is_some_and(Line::wakes)
    }

    /// Notes that a reply has come.
    #[inline]
    pub(super) fn heard(&mut self) {
        let now_ns = self.minds_silence().then(|| self.clock.now_ns());
        self.silence.end(now_ns);
    }

    /// Whether the server is to be woken after a request that is about to be sent. To be asked before it is posted, which takes long
    /// on some NICs.
    #[inline]
    pub(super) fn may_sleep(&self) -> bool {
        self.minds_silence() && self.silence.is_long(self.clock.now_ns())
    }

    /// Wakes the server.
    #[cold]
    pub(super) fn wake(&mut self) {
        let woken = self.line.as_mut().map(|line| line.wake().and_then(|()| line.ring()));
        if let Some(Err(error)) = woken {
            self.lose(Loss::Refused(error));
        }
    }
}
