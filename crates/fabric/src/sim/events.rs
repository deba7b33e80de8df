//! What is going to happen, in order of virtual time.

use super::transport::{Acknowledgement, Message};
use locus_runtime::world::ThreadNumber;
use std::{cmp::Ordering, collections::BinaryHeap};

/// Something that happens.
#[derive(Debug)]
pub(crate) enum Event {
    /// A thread goes on, unless it went on since.
    Resume { thread: ThreadNumber, turn: u64 },
    /// A message reaches a queue pair.
    Arrive { to: u32, message: Message },
    /// The packets of a request leave, on a host whose costs are modelled.
    Launch { to: u32, message: Message },
    /// The packets of a request come in at such a host, or are in.
    ComesIn { to: u32, message: Message, is_in: bool },
    /// Those of an answer.
    AnswerComesIn { to: u32, answer: Acknowledgement, is_in: bool },
    /// The memory of a READ has been sampled long enough.
    ReadEnds { number: u64 },
    /// A WRITE that is under way goes on.
    WriteGoesOn { at: u32 },
    /// A receiver that was late is ready for what waits at it.
    Ready { at: u32 },
    /// A request over UC or UD has left.
    Departed { from: u32, sequence: u64 },
    /// The answer to a request over RC is back.
    Acknowledged { to: u32, answer: Acknowledgement },
    /// Nothing is left of a process that was killed.
    Buried { process: usize },
    /// A message of a link reaches an end.
    LinkMessage { link: u64, side: usize },
}

/// The events to come. Those of one moment come in an order that chance decides, or in that in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Entry>,
    /// Where the events are: a heap moves what it holds about, and events are long.
    places: Vec<Option<Event>>,
    free: Vec<usize>,
    added: u64,
}

#[derive(Debug)]
struct Entry {
    at_ns: u64,
    order: u64,
    place: usize,
}

impl Events {
    /// Adds one. `order` decides among those of one moment, and then the order of adding.
    pub(crate) fn add(&mut self, at_ns: u64, order: u64, event: Event) {
        self.added += 1;
        let order = order << 40 | self.added & ((1 << 40) - 1);
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(event);
        self.heap.push(Entry { at_ns, order, place });
    }

    /// Takes the next one, and when it happens.
    pub(crate) fn next(&mut self) -> Option<(u64, Event)> {
        let Entry { at_ns, place, .. } = self.heap.pop()?;
        self.free.push(place);
        Some((at_ns, self.places[place].take()?))
    }
}

// BinaryHeap gives the greatest first, so the earliest is the greatest.
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ns, other.order).cmp(&(self.at_ns, self.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}
