//! How far apart two cores are: the time that a cache line takes to another core and back.
//!
//! It is the unit that a call over shared memory is paid in, and no constant of a machine: a scheduler puts threads on
//! neighbours or strangers, and a virtual machine's host moves its cores while it runs. So every report says what it
//! was between the measurements.

use serde::{Deserialize, Serialize};
use std::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Instant,
};

/// Round trips timed together, some 0.05 to 0.3 ms.
const ROUND_TRIPS: u32 = 1000;

/// Timings of which the best counts: others may have had a core taken from them.
const TIMINGS: u32 = 8;

/// The round trips measured in a run, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct RoundTrips {
    pub least: f64,
    pub median: f64,
    pub most: f64,
}

impl RoundTrips {
    /// Of what was measured; `None` of nothing.
    pub fn of(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let (least, most) = (*samples.first()?, *samples.last()?);
        Some(Self { least, median: samples[samples.len() / 2], most })
    }
}

/// A line that two threads write in turn, alone in the pair of lines that processors fetch together.
#[repr(align(128))]
struct Ball(AtomicU32);

/// What a cache line takes to another core and back now, in nanoseconds. `None` where this process has one core.
pub fn round_trip_ns() -> Option<f64> {
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        return None;
    }
    let ball = Ball(AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| (0..ROUND_TRIPS * TIMINGS).for_each(|turn| pass(&ball, 2 * turn + 1)));
        let timings = (0..TIMINGS).map(|timing| {
            let start = Instant::now();
            (0..ROUND_TRIPS).for_each(|turn| pass(&ball, 2 * (timing * ROUND_TRIPS + turn)));
            start.elapsed().as_nanos() as f64 / f64::from(ROUND_TRIPS)
        });
        timings.min_by(f64::total_cmp)
    })
}

/// Waits for `turn` and ends it. Nothing but the counter itself is handed over, so relaxed orderings do.
fn pass(ball: &Ball, turn: u32) {
    let mut looks = 0_u32;
    while ball.0.load(Ordering::Relaxed) != turn {
        std::hint::spin_loop();
        looks += 1;
        if looks.is_multiple_of(1 << 12) {
            // The other may wait for this very core.
            thread::yield_now();
        }
    }
    ball.0.store(turn + 1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_takes_some_time_where_there_are_two_cores() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        match round_trip_ns() {
            None => assert_eq!(cores, 1),
            Some(ns) => assert!(cores > 1 && ns > 1.0, "{ns} ns on {cores} cores"),
        }
    }

    #[test]
    fn a_run_has_the_spread_of_its_round_trips() {
        assert_eq!(RoundTrips::of(vec![]), None);
        let spread = RoundTrips::of(vec![330.0, 55.0, 60.0]);
        assert_eq!(spread, Some(RoundTrips { least: 55.0, median: 60.0, most: 330.0 }));
    }
}
