//! Threads, of the machine or of the simulated world that the caller is in.

use crate::world::{self, ThreadNumber};
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Starts a thread.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle> {
    let Some(world) = world::current() else {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
        return Ok(JoinHandle(Thread::Real(thread)));
    };
    let end = Arc::new(Mutex::new(End::default()));
    let at_the_end = AtTheEnd(end.clone());
    world.spawn(
        name,
        Box::new(move || {
            let _at_the_end = at_the_end;
            body();
        }),
    );
    Ok(JoinHandle(Thread::Simulated(end)))
}

/// A thread that was started. Dropping this lets it go on by itself.
#[derive(Debug)]
pub struct JoinHandle(Thread);

#[derive(Debug)]
enum Thread {
    Real(std::thread::JoinHandle<()>),
    Simulated(Arc<Mutex<End>>),
}

/// What is known of the end of a simulated thread.
#[derive(Debug, Default)]
struct End {
    ended: Option<Ended>,
    waiting: Option<ThreadNumber>,
}

/// How a thread ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Returned,
    Panicked,
}

/// A thread did not return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the thread panicked")]
pub struct Panicked;

impl JoinHandle {
    /// Waits for the thread's end.
    pub fn join(self) -> Result<(), Panicked> {
        let end = match self.0 {
            Thread::Real(thread) => return thread.join().map_err(|_| Panicked),
            Thread::Simulated(end) => end,
        };
        loop {
            let Some(world) = world::current() else { return Err(Panicked) };
            let mut end = lock(&end);
            match end.ended {
                Some(Ended::Returned) => return Ok(()),
                Some(Ended::Panicked) => return Err(Panicked),
                None if world.is_ending() => return Err(Panicked),
                None => end.waiting = Some(world.thread()),
            }
            drop(end);
            world.park(None);
        }
    }
}

/// Notes the end of a simulated thread, however it comes.
struct AtTheEnd(Arc<Mutex<End>>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let mut end = lock(&self.0);
        end.ended = Some(if std::thread::panicking() { Ended::Panicked } else { Ended::Returned });
        if let (Some(waiting), Some(world)) = (end.waiting.take(), world::current()) {
            world.unpark(waiting);
        }
    }
}

fn lock(end: &Mutex<End>) -> MutexGuard<'_, End> {
    end.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps.
pub fn sleep(time: Duration) {
    let Some(world) = world::current() else { return std::thread::sleep(time) };
    let until_ns = world.now_ns().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    while world.now_ns() < until_ns && !world.is_ending() {
        world.park(Some(until_ns));
    }
}

/// Offers the processor to other threads. In a simulated world a moment passes.
pub fn yield_now() {
    match world::current() {
        Some(world) => world.park(Some(world.now_ns() + YIELD_NS)),
        None => std::thread::yield_now(),
    }
}

/// How long a simulated thread that yields lets others run, in nanoseconds.
const YIELD_NS: u64 = 100;
