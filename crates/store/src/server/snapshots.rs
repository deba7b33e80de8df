//! Statistics for whoever asks over a link. Each takes every core the time of some requests, so however many clients ask
//! and how often, they are gathered once in a while, and those who asked before that share what was gathered.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The shortest time between two gatherings, which take less than a hundredth of it, about.
const PAUSE: Duration = Duration::from_millis(2);

/// What was gathered last, and when that began.
pub(super) struct Snapshots<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for Snapshots<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Snapshots<T> {
    /// What is gathered after this call began: by this thread, or by another that waited with it. Waits for a pause.
    pub(super) fn take(&self, gather: impl FnOnce() -> T) -> T {
        let asked = Instant::now();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((begun, gathered)) = &*last {
            if *begun > asked {
                return gathered.clone();
            }
            // Who comes meanwhile waits for the lock, and shares what comes of it.
            std::thread::sleep((*begun + PAUSE).saturating_duration_since(Instant::now()));
        }
        let begun = Instant::now();
        let gathered = gather();
        *last = Some((begun, gathered.clone()));
        gathered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

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
