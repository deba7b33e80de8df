//! The waker of this crate's executors: notes that a future wants to be polled again, and wakes the core if it sleeps.

use crate::{Idle, Park, world};
use std::{
    ptr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};

const QUIET: u8 = 0;
const WOKEN: u8 = 1;
const ASLEEP: u8 = 2;

type Unpark = Arc<dyn Fn() + Send + Sync>;

thread_local! {
    static HERE: u8 = const { 0 };
}

/// What no other thread has while this one lives.
#[inline]
fn here() -> usize {
    HERE.with(|here| ptr::from_ref(here).addr())
}

/// Notes wake-ups. Any thread may wake, by an atomic exchange. The core itself wakes itself most often (a future that has
/// more to do), and then it is awake: that is a plain store, since an exchange would wait until everything that the core
/// has stored is visible, which across cores takes as long as a message.
pub(crate) struct Signal {
    /// The thread of the core.
    home: usize,
    /// Raised by that thread; no other one touches it.
    own: AtomicBool,
    /// Raised by others.
    state: AtomicU8,
    unpark: Mutex<Option<Unpark>>,
}

impl Signal {
    /// A signal of the calling thread, and the waker that raises it.
    pub fn new() -> (Arc<Self>, Waker) {
        let (own, state, unpark) = Default::default();
        let signal = Arc::new(Self { home: here(), own, state, unpark });
        (signal.clone(), Waker::from(signal))
    }

    /// Whether it was raised since the last call.
    #[inline]
    pub fn take(&self) -> bool {
        // Relaxed: a thread sees its own stores.
        if self.own.load(Ordering::Relaxed) {
            self.own.store(false, Ordering::Relaxed);
            return true;
        }
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
        // The threads of a simulated world are one, and all but one of them may sleep.
        if self.home == here() && !world::is_simulated() {
            return self.own.store(true, Ordering::Relaxed);
        }
        // Release: what this thread did is seen by the poll that follows.
        if self.state.swap(WOKEN, Ordering::AcqRel) == ASLEEP {
            let unpark = self.unpark.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(unpark) = unpark {
                unpark();
            }
        }
    }
}
