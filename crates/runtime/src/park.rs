//! How a core sleeps until there is work for it: announce, look again, sleep (Dekker's pattern, so no wake-up is lost).

use std::{sync::Arc, time::Duration};

/// How a core sleeps until something arrives on its queue pairs. The fences that this needs are on the sleeper's side.
pub trait Park {
    /// Announces that the core is about to sleep, then looks again: false if something arrived meanwhile, in which case
    /// the announcement is withdrawn.
    fn prepare(&self) -> bool;
    /// Sleeps until something arrives or the timeout passes, then withdraws the announcement. A call of the waker since
    /// the last sleep ended, also one before this sleep, makes it return at once.
    fn park(&self, timeout: Duration);
    /// Something that any thread can hold to wake the sleeper.
    fn waker(&self) -> Arc<dyn Fn() + Send + Sync>;
}

impl<P: Park + ?Sized> Park for &P {
    fn prepare(&self) -> bool {
        (**self).prepare()
    }
    fn park(&self, timeout: Duration) {
        (**self).park(timeout);
    }
    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        (**self).waker()
    }
}

/// Parks a thread that has no queue pair: only its waker ends a sleep early.
#[derive(Clone, Debug)]
pub struct ThreadPark {
    thread: std::thread::Thread,
}

impl ThreadPark {
    /// For the calling thread.
    pub fn new() -> Self {
        Self { thread: std::thread::current() }
    }
}

impl Default for ThreadPark {
    fn default() -> Self {
        Self::new()
    }
}

impl Park for ThreadPark {
    fn prepare(&self) -> bool {
        true
    }
    fn park(&self, timeout: Duration) {
        std::thread::park_timeout(timeout);
    }
    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let thread = self.thread.clone();
        Arc::new(move || thread.unpark())
    }
}
