//! How a core sleeps until there is work for it: announce, look again, sleep (Dekker's pattern, so no wake-up is lost).

use crate::world;
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
pub struct ThreadPark(Sleeper);

#[derive(Clone, Debug)]
enum Sleeper {
    Real(std::thread::Thread),
    Simulated(world::ThreadNumber),
}

impl ThreadPark {
    /// For the calling thread.
    pub fn new() -> Self {
        Self(match world::current() {
            Some(world) => Sleeper::Simulated(world.thread()),
            None => Sleeper::Real(std::thread::current()),
        })
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
        match world::current() {
            Some(world) => world.park(Some(deadline_ns(&*world, timeout))),
            None => std::thread::park_timeout(timeout),
        }
    }
    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        match self.0.clone() {
            Sleeper::Real(thread) => Arc::new(move || thread.unpark()),
            Sleeper::Simulated(thread) => Arc::new(move || {
                if let Some(world) = world::current() {
                    world.unpark(thread);
                }
            }),
        }
    }
}

/// The moment at which a time will have passed.
fn deadline_ns(world: &dyn world::World, timeout: Duration) -> u64 {
    world.now_ns().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}
