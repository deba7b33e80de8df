//! Time, behind a trait, so that a simulated clock can stand in for the machine's.

use crate::world;
use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

/// A clock that never goes back.
pub trait Clock {
    /// Nanoseconds since some moment that stays the same while the clock lives.
    fn now_ns(&self) -> u64;
}

impl<C: Clock + ?Sized> Clock for &C {
    fn now_ns(&self) -> u64 {
        (**self).now_ns()
    }
}

/// The machine's monotonic clock, which takes no system call (vDSO) and about 25 ns; in a simulated world, that world's.
#[derive(Clone, Debug)]
pub struct MonotonicClock {
    start: Instant,
    /// When it started in a simulated world.
    simulated: Option<u64>,
}

impl MonotonicClock {
    /// A clock that starts at zero now.
    pub fn new() -> Self {
        Self { start: Instant::now(), simulated: world::current().map(|world| world.now_ns()) }
    }
}

impl MonotonicClock {
    /// The time since it started.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now_ns())
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MonotonicClock {
    fn now_ns(&self) -> u64 {
        if let Some(start) = self.simulated {
            return world::current().map_or(0, |world| world.now_ns() - start);
        }
        // 2^64 ns are 584 years.
        self.start.elapsed().as_nanos() as u64
    }
}

/// A clock that goes when it is told to: for tests and simulation. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    now_ns: Rc<Cell<u64>>,
}

impl ManualClock {
    /// A clock that shows zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves on by so many nanoseconds.
    pub fn advance(&self, ns: u64) {
        self.now_ns.set(self.now_ns.get() + ns);
    }

    /// Moves on to a moment; an earlier one changes nothing.
    pub fn advance_to(&self, ns: u64) {
        self.now_ns.set(self.now_ns.get().max(ns));
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_goes_when_told_and_never_back() {
        let clock = ManualClock::new();
        let same = clock.clone();
        clock.advance(5);
        clock.advance_to(3);
        assert_eq!(same.now_ns(), 5);
        clock.advance_to(9);
        assert_eq!(same.now_ns(), 9);
    }

    #[test]
    fn the_monotonic_clock_does_not_go_back() {
        let clock = MonotonicClock::new();
        let mut last = clock.now_ns();
        for _ in 0..1000 {
            let now = clock.now_ns();
            assert!(now >= last);
            last = now;
        }
    }
}
