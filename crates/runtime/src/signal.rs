//! The waker of this crate's executors: notes that a future wants to be polled again, and wakes the core if it sleeps.

use crate::{Idle, Park};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};

const QUIET: u8 = 0;
const WOKEN: u8 = 1;
const ASLEEP: u8 = 2;

type Unpark = Arc<dyn Fn() + Send + Sync>;

/// Notes wake-ups. Waking a core that is awake is one atomic exchange; any thread may wake.
#[derive(Default)]
pub(crate) struct Signal {
    state: AtomicU8,
    unpark: Mutex<Option<Unpark>>,
}

impl Signal {
    /// A signal and the waker that raises it.
    pub fn new() -> (Arc<Self>, Waker) {
        let signal = Arc::new(Self::default());
        (signal.clone(), Waker::from(signal))
    }

    /// Whether it was raised since the last call.
    #[inline]
    pub fn take(&self) -> bool {
        // Acquire: pairs with the waker's release, so that the poll that follows sees what the waker saw. The load
        // first keeps the common case free of an atomic exchange.
        self.state.load(Ordering::Relaxed) == WOKEN && self.state.swap(QUIET, Ordering::Acquire) == WOKEN
    }

    /// One idle step, in which a wake-up by another thread ends the sleep.
    pub fn rest(&self, idle: &mut Idle, park: &(impl Park + ?Sized), longest: Duration) {
        if !idle.drowsy() {
            idle.step(park);
            return;
        }
        *self.unpark.lock().unwrap_or_else(PoisonError::into_inner) = Some(park.waker());
        // Either a waker sees ASLEEP and calls `unpark`, after which `park` returns at once, or we see WOKEN here.
        if self.state.compare_exchange(QUIET, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            idle.step_at_most(park, longest);
            let _ = self.state.compare_exchange(ASLEEP, QUIET, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Release: what this thread did is seen by the poll that follows.
        if self.state.swap(WOKEN, Ordering::AcqRel) == ASLEEP {
            let unpark = self.unpark.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(unpark) = unpark {
                unpark();
            }
        }
    }
}
