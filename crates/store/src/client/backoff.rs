//! When a client tries again to reach a server that it lost: after pauses that double with each failure, each shortened by
//! chance, so that clients which lost the server at the same moment do not come back at the same moments.

use std::{cell::Cell, time::Duration};

/// The shortest pause between two attempts to connect again, before it is shortened, in nanoseconds.
const PAUSE_NS_MIN: u64 = 1_000_000;

pub(super) struct Backoff {
    retry_at_ns: Cell<u64>,
    /// The pause after the last failure, before it was shortened; 0 if there was none.
    pause_ns: Cell<u64>,
    chance: Cell<u64>,
}

impl Backoff {
    /// A server that was never lost. Clients have seeds of their own.
    pub(super) fn new(seed: u64) -> Self {
        Self { retry_at_ns: Cell::new(0), pause_ns: Cell::new(0), chance: Cell::new(seed | 1) }
    }

    /// Whether it is too early to try again.
    pub(super) fn pauses(&self, now_ns: u64) -> bool {
        now_ns < self.retry_at_ns.get()
    }

    /// An attempt failed: the next one is for after a pause of half of it to all of it.
    pub(super) fn failed(&self, now_ns: u64, longest: Duration) {
        let longest = (longest.as_nanos() as u64).max(PAUSE_NS_MIN);
        let pause = (self.pause_ns.get() * 2).clamp(PAUSE_NS_MIN, longest);
        self.pause_ns.set(pause);
        let shortened = pause - self.draw() % (pause / 2 + 1);
        self.retry_at_ns.set(now_ns + shortened);
    }

    /// The server is there again.
    pub(super) fn succeeded(&self) {
        self.pause_ns.set(0);
        self.retry_at_ns.set(0);
    }

    /// Marsaglia's xorshift: enough to keep clients apart.
    fn draw(&self) -> u64 {
        let mut word = self.chance.get();
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        self.chance.set(word);
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_millis(250);

    /// How long a client of this seed pauses after each of its failures.
    fn pauses(seed: u64, failures: usize) -> Vec<u64> {
        let backoff = Backoff::new(seed);
        let mut now = 7;
        let pause = |_| {
            assert!(!backoff.pauses(now));
            backoff.failed(now, LONGEST);
            let begun = now;
            now = backoff.retry_at_ns.get();
            assert!(backoff.pauses(now - 1) && !backoff.pauses(now));
            now - begun
        };
        (0..failures).map(pause).collect()
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_start_anew_with_success() {
        for (failure, pause) in pauses(1, 20).into_iter().enumerate() {
            let whole = (PAUSE_NS_MIN << failure).min(LONGEST.as_nanos() as u64);
            assert!((whole / 2..=whole).contains(&pause), "{failure}: {pause}");
        }
        let backoff = Backoff::new(3);
        (0..10).for_each(|_| backoff.failed(0, LONGEST));
        backoff.succeeded();
        assert!(!backoff.pauses(0));
        backoff.failed(0, LONGEST);
        assert!(!backoff.pauses(PAUSE_NS_MIN));
        // No pause at all is none.
        backoff.failed(0, Duration::ZERO);
        assert!(backoff.pauses(PAUSE_NS_MIN / 2 - 1));
    }

    #[test]
    fn clients_that_fail_together_come_back_apart() {
        let mut all: Vec<u64> = (0..100).map(|seed| pauses(seed * 2 + 1, 8)[7]).collect();
        all.sort_unstable();
        all.dedup();
        assert!(all.len() > 90, "{all:?}");
        // Spread over the whole half.
        assert!(all[all.len() - 1] - all[0] > 128_000_000 / 3, "{all:?}");
    }
}
