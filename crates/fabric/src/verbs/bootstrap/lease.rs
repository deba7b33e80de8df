//! How long a peer may be silent. A clock's reading alone never ends a connection: the watch looks for bytes first.

use std::time::{Duration, Instant};

/// How often each side says that it lives.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(200);
/// How long a peer may be silent: four heartbeats may be late or lost.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// The watch looks at every peer once per heartbeat. With twice that between two looks it was held up itself (stopped,
/// or on a crowded machine), and so were others perhaps: the silence in between proves nothing.
pub(super) const HELD_UP: Duration = Duration::from_millis(400);

/// When a peer was heard last.
#[derive(Debug)]
pub(super) struct Lease {
    heard: Instant,
    /// Whether it was extended since. It is extended only once, or a machine that is always late would never notice
    /// a death.
    extended: bool,
}

impl Lease {
    pub(super) fn new(now: Instant) -> Self {
        Self { heard: now, extended: false }
    }

    /// The peer lives.
    pub(super) fn renew(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// Nobody was listening for a while.
    pub(super) fn extend(&mut self, now: Instant) {
        if !self.extended {
            *self = Self { heard: now, extended: true };
        }
    }

    pub(super) fn ends(&self) -> Instant {
        self.heard + LEASE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_extended_once_until_the_peer_is_heard_again() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut lease = Lease::new(start);
        assert_eq!(lease.ends(), at(1000));
        lease.extend(at(3000));
        assert_eq!(lease.ends(), at(4000));
        lease.extend(at(3900));
        assert_eq!(lease.ends(), at(4000), "not a second time");
        lease.renew(at(3950));
        lease.extend(at(9000));
        assert_eq!(lease.ends(), at(10_000));
    }
}
