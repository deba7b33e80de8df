//! Turns at connecting. When a server is lost, all its clients find out at the same moment and try to reach it again;
//! those of one process go to any one address a few at a time, and the others wait. Each address has turns of its own, so
//! that one that never answers holds up nobody on the way to another.

use super::{
    address,
    hello::HELLO_TIMEOUT,
    socket::{self, lock},
};
use crate::FabricError;
use std::{
    collections::HashMap,
    sync::{Condvar, Mutex},
    time::{Duration, Instant},
};

/// How many connections of this process to one address may be about to be set up.
pub(super) const CONNECTS_MAX: usize = 16;

/// The right to set up a connection, given back when dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    place: String,
}

/// Who is connecting where.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// By place, without those that nobody is connecting with.
    queues: Mutex<HashMap<String, Queue>>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    connecting: usize,
    waiting: usize,
}

/// Waits for a turn at connecting with a host and port.
pub(super) fn take(host: &str, port: u16) -> Result<Turn<'static>, FabricError> {
    static TURNS: std::sync::LazyLock<Turns> = std::sync::LazyLock::new(Turns::default);
    TURNS.take(address::write(host, port), HELLO_TIMEOUT)
}

impl Turns {
    fn take(&self, place: String, patience: Duration) -> Result<Turn<'_>, FabricError> {
        let deadline = socket::deadline(patience);
        let mut queues = lock(&self.queues);
        let queue = queues.entry(place.clone()).or_default();
        queue.waiting += 1;
        loop {
            let queue = queues.get_mut(&place).expect("it stays while somebody waits in it");
            let left = deadline.saturating_duration_since(Instant::now());
            let free = queue.connecting < CONNECTS_MAX;
            if free || left.is_zero() {
                queue.waiting -= 1;
            }
            if free {
                queue.connecting += 1;
                return Ok(Turn { turns: self, place });
            }
            if left.is_zero() {
                return Err(FabricError::Crowded { address: place, limit: CONNECTS_MAX, waited: patience });
            }
            let waited = self.ended.wait_timeout(queues, left);
            queues = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queues = lock(&self.turns.queues);
        if let Some(queue) = queues.get_mut(&self.place) {
            queue.connecting -= 1;
            if queue.connecting + queue.waiting == 0 {
                queues.remove(&self.place);
            }
        }
        drop(queues);
        // All, since those who wait do so for turns at several places.
        self.turns.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn a_place_has_so_many_turns_and_other_places_have_their_own() {
        let turns = Turns::default();
        let mut here: Vec<_> = (0..CONNECTS_MAX).map(|_| turns.take("here".into(), LONG).unwrap()).collect();
        let error = turns.take("here".into(), Duration::from_millis(1)).unwrap_err().to_string();
        assert!(error.contains("here") && error.contains(&format!("limit of {CONNECTS_MAX}")), "{error}");
        drop(turns.take("there".into(), Duration::ZERO).unwrap());
        here.pop();
        here.push(turns.take("here".into(), Duration::ZERO).unwrap());
        here.clear();
        assert!(lock(&turns.queues).is_empty(), "nothing is left of places that nobody connects with");
    }

    #[test]
    fn whoever_waits_has_the_turn_that_is_given_back() {
        let turns = Turns::default();
        let waiting = |place: &str| lock(&turns.queues).get(place).map_or(0, |queue| queue.waiting);
        let held: Vec<_> = (0..CONNECTS_MAX).map(|_| turns.take("here".into(), LONG).unwrap()).collect();
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..3 * CONNECTS_MAX)
                .map(|_| scope.spawn(|| turns.take("here".into(), LONG).map(drop)))
                .collect();
            let start = Instant::now();
            while waiting("here") < 3 * CONNECTS_MAX {
                assert!(start.elapsed() < LONG);
                std::thread::yield_now();
            }
            drop(held);
            waiters.into_iter().for_each(|waiter| waiter.join().unwrap().unwrap());
        });
    }
}
