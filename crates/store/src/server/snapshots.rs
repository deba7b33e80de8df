//! Statistics for whoever asks over a link. Each takes every core the time of some requests, so however many clients ask
//! and how often, they are gathered once in a while, and those who asked before that share what was gathered.

use locus_runtime::{Clock, MonotonicClock, thread};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The shortest time between two gatherings, which take less than a hundredth of it, about.
const PAUSE: Duration = Duration::from_millis(2);

/// What was gathered last.
pub(super) struct Snapshots<T> {
    clock: MonotonicClock,
    last: Mutex<Last<T>>,
}

struct Last<T> {
    /// When the last gathering began, and what came of it.
    gathered: Option<(u64, T)>,
    /// When the next one may begin.
    next_ns: u64,
    /// Whether one is under way.
    under_way: bool,
}

impl<T> Default for Snapshots<T> {
    fn default() -> Self {
        let last = Last { gathered: None, next_ns: 0, under_way: false };
        Self { clock: MonotonicClock::new(), last: Mutex::new(last) }
    }
}

impl<T: Clone> Snapshots<T> {
    /// What is gathered after this call began: by this thread, or by another that waited with it.
    pub(super) fn take(&self, gather: impl FnOnce() -> T) -> T {
        let asked = self.clock.now_ns();
        let begun = loop {
            let mut last = self.lock();
            if let Some((begun, gathered)) = &last.gathered
                && *begun > asked
            {
                return gathered.clone();
            }
            let now = self.clock.now_ns();
            if !last.under_way && now >= last.next_ns {
                (last.under_way, last.next_ns) = (true, now + PAUSE.as_nanos() as u64);
                break now;
            }
            drop(last);
            thread::sleep(PAUSE / 4);
        };
        let _end = UnderWay(self);
        let gathered = gather();
        self.lock().gathered = Some((begun, gathered.clone()));
        gathered
    }
}

impl<T> Snapshots<T> {
    fn lock(&self) -> MutexGuard<'_, Last<T>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the next gathering begin, however this one ends.
struct UnderWay<'a, T>(&'a Snapshots<T>);

impl<T> Drop for UnderWay<'_, T> {
    fn drop(&mut self) {
        self.0.lock().under_way = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicU32, Ordering::SeqCst},
        time::Instant,
    };

    #[test]
    fn however_many_ask_they_are_gathered_now_and_then_and_never_stale() {
        let (snapshots, gathered) = (Snapshots::default(), AtomicU32::new(0));
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let before = gathered.load(SeqCst);
                        let got = snapshots.take(|| gathered.fetch_add(1, SeqCst) + 1);
                        assert!(got > before, "{got} was gathered before it was asked for");
                    }
                });
            }
        });
        let at_most = start.elapsed().as_nanos() / PAUSE.as_nanos() + 1;
        let gathered = u128::from(gathered.into_inner());
        assert!(gathered <= at_most, "gathered {gathered} times, of at most {at_most}");
        assert!(gathered < 160, "nobody shared");
    }
}
