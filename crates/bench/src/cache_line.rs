//! How far apart two cores are: the time that a cache line takes to another core and back.
//!
//! It is the unit that a call over shared memory is paid in, and no constant of a machine: a scheduler puts threads on
//! neighbours or strangers, and a virtual machine's host moves its cores while it runs. So every report says what it
//! was between the measurements.

use serde::{Deserialize, Serialize};
use std::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Round trips timed together.
const ROUND_TRIPS: usize = 64;

/// How long one measurement goes on at least.
const DURATION: Duration = Duration::from_millis(4);

/// How long it goes on at most, while both threads have one core by turns: schedulers take a while to part them.
const DURATION_MAX: Duration = Duration::from_millis(100);

/// No line is under way for so long between cores: the threads had one by turns. In nanoseconds.
const ONE_CORE_NS: f64 = 2_000.0;

/// Ends the game.
const OVER: u32 = u32::MAX;

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

/// What a cache line takes to another core and back now, in nanoseconds. `None` where this process has one core, or was
/// not given a second one.
pub fn round_trip_ns() -> Option<f64> {
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        return None;
    }
    let ball = Ball(AtomicU32::new(0));
    let least = thread::scope(|scope| {
        scope.spawn(|| {
            for turn in (1..OVER).step_by(2).take_while(|turn| wait(&ball, *turn)) {
                ball.0.store(turn + 1, Ordering::Relaxed);
            }
        });
        let (began, mut least, mut turns) = (Instant::now(), f64::INFINITY, (1..OVER).step_by(2));
        while began.elapsed() < if least < ONE_CORE_NS { DURATION } else { DURATION_MAX } {
            let start = Instant::now();
            for turn in turns.by_ref().take(ROUND_TRIPS) {
                ball.0.store(turn, Ordering::Relaxed);
                wait(&ball, turn + 1);
            }
            // The least: in others a thread may have lost its core, and the way is never shorter than it is.
            least = least.min(start.elapsed().as_nanos() as f64 / ROUND_TRIPS as f64);
        }
        // The other has had its last turn, and so cannot overwrite this.
        ball.0.store(OVER, Ordering::Relaxed);
        least
    });
    (least < ONE_CORE_NS).then_some(least)
}

/// Waits until it is `turn`; false when the game is over. Nothing but the counter itself is handed over, so relaxed
/// orderings do.
fn wait(ball: &Ball, turn: u32) -> bool {
    for looks in 1_u64.. {
        match ball.0.load(Ordering::Relaxed) {
            OVER => return false,
            now if now == turn => break,
            // The other may wait for this very core.
            _ if looks.is_multiple_of(1 << 12) => thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_takes_some_time_where_there_are_two_cores() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        match round_trip_ns() {
            // Other tests may have the second core.
            None => {}
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
