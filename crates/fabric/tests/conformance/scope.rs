//! Threads that borrow, of the machine or of a simulated world.

use locus_fabric::sim;
use locus_runtime::world;
use std::thread;

/// Where threads are started that end with it.
#[derive(Clone, Copy)]
pub enum Scope<'scope, 'env: 'scope> {
    Real(&'scope thread::Scope<'scope, 'env>),
    Simulated(&'scope sim::Scope<'scope, 'env>),
}

/// A thread of a scope.
pub enum Thread<'scope, T> {
    Real(thread::ScopedJoinHandle<'scope, T>),
    Simulated(sim::ScopedThread<'scope, T>),
}

/// Runs `body`, which may start threads that borrow what outlives the scope, and waits for all of them.
pub fn scope<'env, T>(body: impl for<'scope> FnOnce(Scope<'scope, 'env>) -> T) -> T {
    if world::is_simulated() {
        sim::scope(|scope| body(Scope::Simulated(scope)))
    } else {
        thread::scope(|scope| body(Scope::Real(scope)))
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread.
    pub fn spawn<T: Send + 'scope>(&self, body: impl FnOnce() -> T + Send + 'scope) -> Thread<'scope, T> {
        match self {
            Self::Real(scope) => Thread::Real(scope.spawn(body)),
            Self::Simulated(scope) => Thread::Simulated(scope.spawn(body)),
        }
    }
}

impl<T> Thread<'_, T> {
    /// Waits for the thread's end and gives its output; none if it panicked.
    pub fn join(self) -> Option<T> {
        match self {
            Self::Real(thread) => thread.join().ok(),
            Self::Simulated(thread) => thread.join().ok(),
        }
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        match self {
            Self::Real(thread) => thread.is_finished(),
            Self::Simulated(thread) => thread.is_finished(),
        }
    }
}
