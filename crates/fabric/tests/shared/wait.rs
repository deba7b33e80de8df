//! How the tests of this crate wait: for an event, with a bound.

use locus_runtime::{MonotonicClock, thread};
use std::time::Duration;

/// How long a test waits for something that must happen. Only a failing test ever waits that long.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Tries again until there is an answer.
pub fn wait<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = MonotonicClock::new();
    loop {
        if let Some(answer) = attempt() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain for {what}");
        thread::yield_now();
    }
}
