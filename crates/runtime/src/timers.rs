//! A bounded queue of deadlines, each with something to do.

use std::{cmp::Ordering, collections::BinaryHeap};

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} deadlines are waiting, which is the limit")]
pub struct TimersFull(pub usize);

/// Deadlines in nanoseconds of some clock, in order; equal ones in the order in which they were added.
#[derive(Debug)]
pub struct Timers<T> {
    heap: BinaryHeap<Entry<T>>,
    limit: usize,
    added: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at_ns: u64,
    sequence: u64,
    what: T,
}

impl<T> Timers<T> {
    /// An empty queue that takes at most `limit` deadlines.
    pub fn new(limit: usize) -> Self {
        Self { heap: BinaryHeap::new(), limit, added: 0 }
    }

    /// Adds a deadline.
    pub fn add(&mut self, at_ns: u64, what: T) -> Result<(), TimersFull> {
        if self.heap.len() >= self.limit {
            return Err(TimersFull(self.limit));
        }
        self.heap.push(Entry { at_ns, sequence: self.added, what });
        self.added += 1;
        Ok(())
    }

    /// Takes the earliest deadline if it has come.
    pub fn due(&mut self, now_ns: u64) -> Option<T> {
        if self.next()? > now_ns {
            return None;
        }
        self.heap.pop().map(|entry| entry.what)
    }

    /// When the earliest deadline is.
    pub fn next(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.at_ns)
    }

    /// How many deadlines wait.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

// BinaryHeap gives the greatest first, so the earliest is the greatest.
impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ns, other.sequence).cmp(&(self.at_ns, self.sequence))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_in_order_and_not_early() {
        let mut timers = Timers::new(4);
        for (at_ns, what) in [(30, 'c'), (10, 'a'), (30, 'd'), (20, 'b')] {
            timers.add(at_ns, what).unwrap();
        }
        assert_eq!(timers.add(1, 'x'), Err(TimersFull(4)));
        assert_eq!(timers.due(9), None);
        assert_eq!(timers.due(10), Some('a'));
        assert_eq!(timers.due(10), None);
        assert_eq!(timers.next(), Some(20));
        let rest: String = std::iter::from_fn(|| timers.due(100)).collect();
        assert_eq!(rest, "bcd");
        assert!(timers.is_empty());
    }
}
