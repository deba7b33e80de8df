//! The requests of a queue: what was posted and has not completed, found by the number that the completion carries.

use super::handle::{Destination, Registration};
use crate::Opcode;
use std::sync::Arc;

/// A posted request.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) id: u64,
    pub(super) opcode: Option<Opcode>,
    /// Keeps the memory registered until the request has completed, and what a datagram is addressed with.
    pub(super) memory: Option<Arc<Registration>>,
    pub(super) destination: Option<Arc<Destination>>,
}

/// A queue of requests: those numbered `head..tail` are posted and have not completed.
pub(super) struct Requests {
    pub(super) slots: Box<[Slot]>,
    depth: usize,
    head: u32,
    pub(super) tail: u32,
    /// The device refused a request, and nothing that was posted after it was handed over.
    pub(super) refused: bool,
}

impl Requests {
    pub(super) fn new(depth: usize) -> Self {
        let places = depth.max(1).next_power_of_two();
        Self {
            slots: (0..places).map(|_| Slot::default()).collect(),
            depth,
            head: 0,
            tail: 0,
            refused: false,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.tail.wrapping_sub(self.head) as usize >= self.depth
    }

    pub(super) fn place(&self, number: u32) -> usize {
        number as usize & (self.slots.len() - 1)
    }

    /// Takes the oldest request out, whatever became of it.
    pub(super) fn abandon(&mut self) -> Option<(u64, Option<Opcode>)> {
        (self.head != self.tail).then(|| self.complete(self.head)).flatten()
    }

    /// Takes a request out, and all before it: they are complete.
    pub(super) fn complete(&mut self, number: u32) -> Option<(u64, Option<Opcode>)> {
        if number.wrapping_sub(self.head) >= self.tail.wrapping_sub(self.head) {
            return None;
        }
        loop {
            let place = self.place(self.head);
            let Slot { id, opcode, .. } = std::mem::take(&mut self.slots[place]);
            let last = self.head == number;
            self.head = self.head.wrapping_add(1);
            if last {
                return Some((id, opcode));
            }
        }
    }
}
