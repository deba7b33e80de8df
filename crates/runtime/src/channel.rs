//! Queues between threads, of the machine or of a simulated world: those of the standard library, of which only the
//! waiting is another in simulation. For control paths.

use crate::world;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
    mpsc,
};

/// Nobody will ever send, or receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other end of the channel is gone")]
pub struct Gone;

/// A queue without a limit: whoever sends sees to it that there is one.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel();
    let waiting = Arc::new(AtomicU64::new(NOBODY));
    (Sender { sender: Some(sender), waiting: waiting.clone() }, Receiver { receiver, waiting })
}

/// No simulated thread has this number.
const NOBODY: u64 = u64::MAX;

/// Sends. Clones send into the same queue.
#[derive(Debug)]
pub struct Sender<T> {
    /// None while this is being dropped.
    sender: Option<mpsc::Sender<T>>,
    /// The simulated thread that waits for something to receive.
    waiting: Arc<AtomicU64>,
}

impl<T> Sender<T> {
    /// Sends, if there is still somebody to receive.
    pub fn send(&self, value: T) -> Result<(), Gone> {
        let sent = self.sender.as_ref().ok_or(Gone)?.send(value).map_err(|_| Gone);
        wake(&self.waiting);
        sent
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), waiting: self.waiting.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.sender = None;
        wake(&self.waiting);
    }
}

/// Simulated threads take turns on one thread of the machine, so the order of these operations is that of the program.
fn wake(waiting: &AtomicU64) {
    let thread = waiting.load(Ordering::Relaxed);
    if thread != NOBODY
        && let Some(world) = world::current()
    {
        waiting.store(NOBODY, Ordering::Relaxed);
        world.unpark(thread);
    }
}

/// Receives.
#[derive(Debug)]
pub struct Receiver<T> {
    receiver: mpsc::Receiver<T>,
    waiting: Arc<AtomicU64>,
}

impl<T> Receiver<T> {
    /// Waits for the next value. An error when there is none and nobody is left to send one.
    pub fn receive(&self) -> Result<T, Gone> {
        let Some(world) = world::current() else { return self.receiver.recv().map_err(|_| Gone) };
        loop {
            match self.receiver.try_recv() {
                Ok(value) => return Ok(value),
                Err(mpsc::TryRecvError::Empty) if !world.is_ending() => {}
                Err(_) => return Err(Gone),
            }
            self.waiting.store(world.thread(), Ordering::Relaxed);
            world.park(None);
        }
    }

    /// The next value, if there is one now.
    pub fn try_receive(&self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}
