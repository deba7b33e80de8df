//! The slots of a client's channel: each carries one request at a time, and its sequence says which.
//!
//! Slot `i` uses the sequences `i + S`, `i + 2S`, and so on (S is the window, or the next power of two), so the server can tell a repeated request
//! from a new one by the slot alone (see [`sessions`](crate::sessions)).

use crate::{
    frame::{ReplyBuffer, reply_buffer},
    sessions::stride,
    staging::Place,
};
use std::{cell::Cell, rc::Rc};

/// Where the request of a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The slot is free.
    Free,
    /// To be sent, by the future that holds the slot, when the channel is connected.
    Unsent,
    /// Sent over the present connection.
    Sent,
    /// The same, and the call has waited for the reply as long as it may.
    Overdue,
    /// Answered: the reply is in the slot.
    Answered,
    /// A mutation that was sent to a server which has forgotten it, or to one before the present one.
    Unknown,
}

/// One slot.
pub(crate) struct Slot {
    pub sequence: u64,
    pub phase: Phase,
    /// Whether the request was ever sent, over whatever connection.
    pub ever_sent: bool,
    /// Once answered: the reply's status and version, and the frame, of which so many bytes are the reply's. The frame is not
    /// there while it is lent to an `on_reply`.
    pub status: u8,
    pub version: u64,
    pub frame: Option<Box<ReplyBuffer>>,
    pub frame_bytes: usize,
    /// Whether it is a mutation.
    pub mutation: bool,
    /// Whether the call that held the slot is gone, or has waited too long; then the reply frees it.
    pub abandoned: bool,
    /// How often it was sent again over this connection, and since when it is waited for, if that was noted.
    pub attempts: u8,
    pub since_ns: Option<u64>,
    /// How old the call is, in ticks of the channel (`channel/overdue.rs`).
    pub ticks: u8,
    /// The frame of the request, where it may have to be sent again.
    pub copy: Vec<u8>,
    /// The staging place that holds the request's value.
    pub staged: Option<Place>,
}

/// The slots of a channel.
pub(crate) struct Window {
    pub slots: Box<[Slot]>,
    free: Vec<u32>,
    /// Whether slots are used in turn, since the server looks for requests in that order; then the next one.
    turn: Option<u32>,
    /// How many slots are in use.
    pub busy: Rc<Cell<usize>>,
    mask: u64,
}

impl Window {
    /// All slots free. They are used `in_turn`, or those soonest that were used last.
    pub fn new(window: usize, in_turn: bool) -> Self {
        let slot = |sequence| Slot {
            sequence,
            phase: Phase::Free,
            status: 0,
            version: 0,
            frame: Some(reply_buffer()),
            frame_bytes: 0,
            ever_sent: false,
            mutation: false,
            abandoned: false,
            attempts: 0,
            since_ns: None,
            ticks: 0,
            copy: Vec::new(),
            staged: None,
        };
        Self {
            slots: (0..window as u64).map(slot).collect(),
            // The lowest on top: a client that uses few slots stays on few cache lines.
            free: if in_turn { Vec::new() } else { (0..window as u32).rev().collect() },
            turn: in_turn.then_some(0),
            busy: Rc::default(),
            mask: stride(window) - 1,
        }
    }

    /// Takes a free slot for a new request.
    #[inline]
    pub fn acquire(&mut self, mutation: bool) -> Option<u32> {
        let index = match self.turn {
            None => self.free.pop()?,
            Some(next) => self.next_in_turn(next)?,
        };
        self.busy.set(self.busy.get() + 1);
        let slot = &mut self.slots[index as usize];
        slot.sequence += self.mask + 1;
        slot.phase = Phase::Unsent;
        slot.ever_sent = false;
        slot.mutation = mutation;
        slot.abandoned = false;
        slot.attempts = 0;
        slot.since_ns = None;
        slot.ticks = 0;
        Some(index)
    }

    /// The next free slot from this one on. One that is not free is passed over.
    #[inline]
    fn next_in_turn(&mut self, next: u32) -> Option<u32> {
        let count = self.slots.len() as u32;
        let is_free = |index: &u32| self.slots[*index as usize].phase == Phase::Free;
        let index = if is_free(&next) { next } else { (next..count).chain(0..next).find(is_free)? };
        self.turn = Some(if index + 1 == count { 0 } else { index + 1 });
        Some(index)
    }

    /// Whether one slot is in use and no other.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.busy.get() == 1
    }

    /// Takes the reply out of a slot, which stays in use: status, version, and the frame with its length.
    #[inline]
    pub fn lend(&mut self, index: u32) -> (u8, u64, Option<Box<ReplyBuffer>>, usize) {
        let slot = &mut self.slots[index as usize];
        (slot.status, slot.version, slot.frame.take(), slot.frame_bytes)
    }

    /// Gives a slot back, and its place in the staging region.
    #[inline]
    pub fn release(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.phase = Phase::Free;
        slot.staged = None;
        self.busy.set(self.busy.get() - 1);
        if self.turn.is_none() {
            self.free.push(index);
        }
    }

    /// The slot whose sent request a reply of this sequence answers.
    #[inline]
    pub fn answered_by(&self, sequence: u64) -> Option<u32> {
        let index = sequence & self.mask;
        // A peer's number: it may name a slot that is not there.
        let slot = self.slots.get(index as usize)?;
        let is_waited_for = matches!(slot.phase, Phase::Sent | Phase::Overdue);
        (slot.sequence == sequence && is_waited_for).then_some(index as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_use_of_a_slot_has_a_sequence_of_its_own() {
        [false, true].into_iter().for_each(every_use_has_a_sequence_of_its_own);
    }

    fn every_use_has_a_sequence_of_its_own(in_turn: bool) {
        let mut window = Window::new(3, in_turn);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..3 {
            let slots = [(); 3].map(|()| window.acquire(true).unwrap());
            assert!(window.acquire(false).is_none());
            for index in slots {
                let sequence = window.slots[index as usize].sequence;
                assert!(seen.insert(sequence));
                assert_eq!(window.answered_by(sequence), None, "not sent yet");
                window.slots[index as usize].phase = Phase::Sent;
                assert_eq!(window.answered_by(sequence), Some(index));
                assert_eq!(window.answered_by(sequence + 4), None);
                window.release(index);
                assert_eq!(window.answered_by(sequence), None);
            }
            assert_eq!(window.busy.get(), 0);
        }
        assert_eq!(window.answered_by(3), None, "a slot that is not there");
        // None below the stride, which the server takes for no request.
        assert!(seen.iter().all(|sequence| *sequence >= 4));
    }

    #[test]
    fn slots_in_turn_pass_over_one_that_is_in_use() {
        let mut window = Window::new(3, true);
        let mut next = || window.acquire(false);
        assert_eq!([next(), next()], [Some(0), Some(1)]);
        window.release(0);
        assert_eq!(window.acquire(false), Some(2));
        assert_eq!(window.acquire(false), Some(0));
        window.release(2);
        // The next one in turn is 1, which is in use.
        assert_eq!(window.acquire(false), Some(2));
        assert_eq!(window.acquire(false), None);
    }
}
