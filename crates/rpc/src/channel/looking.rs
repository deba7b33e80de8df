//! How replies are looked for, and find their calls.

use super::{Inner, State};
use crate::{
    Hub, Loss, ReplyHeader,
    frame::reply_buffer,
    line::{Line, Replies},
    slots::Look,
    tag::{self, Kind},
    window::Phase,
};
use locus_fabric::{Completion, Link, Nic, Status};
use locus_runtime::Clock;

/// After how many empty polls the server's life is looked at.
const LOOK_EVERY: u64 = 64;
/// Where replies come without a completion, the completion queue is looked at after so many looks at a slot.
const QUEUE_EVERY: u64 = 16;

impl<N: Nic> Inner<N> {
    /// Handles what has arrived, and says whether there was anything.
    #[inline]
    pub(super) fn drive(&mut self, hub: &Hub<N>, member: u16) -> bool {
        if self.doorbell.is_ripe() {
            self.ring();
        }
        let any = hub.drain(member, |completion| self.complete(completion));
        if self.doorbell.is_due(any) {
            self.ring();
        }
        if !any {
            self.nothing();
        }
        any
    }

    /// The same until nothing more comes: one poll may have taken as many messages into RECVs as the window is wide, and the
    /// next one is not due soon.
    fn drive_all(&mut self, hub: &Hub<N>, member: u16) {
        for _ in 0..=self.window.slots.len() {
            if !self.drive(hub, member) {
                return;
            }
        }
    }

    /// Nothing has come.
    #[inline]
    pub(super) fn nothing(&mut self) {
        self.counters.empty_polls += 1;
        if self.counters.empty_polls.is_multiple_of(LOOK_EVERY) || self.has_slept() {
            self.sleeps = self.slept.get();
            self.look_after();
        }
    }

    /// Whether the core has slept since it was last looked whether something is overdue.
    #[inline(always)]
    pub(super) fn has_slept(&self) -> bool {
        self.sleeps != self.slept.get()
    }

    /// Whether nothing is to be done for a call that holds this slot but to count an empty poll, which this does: its
    /// request was sent, its reply is not there, and it is not yet time for anything else. What most polls come to, in as
    /// few instructions as possible.
    #[inline(always)]
    pub(super) fn waits_in_vain(&mut self, index: usize) -> bool {
        let Some(Line { replies: Replies::Written(arrivals), .. }) = &self.line else { return false };
        let waits = self.window.slots[index].phase == Phase::Sent
            && self.state == State::Connected
            && !arrivals.is_there(index)
            && !self.doorbell.waits()
            && !(self.counters.empty_polls + 1).is_multiple_of(QUEUE_EVERY)
            && !self.has_slept();
        self.counters.empty_polls += u64::from(waits);
        waits
    }

    /// Looks for the reply of a slot whose request was sent.
    #[inline]
    pub(super) fn look_for(&mut self, hub: &Hub<N>, member: u16, index: usize) {
        let Some(line) = &mut self.line else { return };
        match &line.replies {
            Replies::Received(_) if !line.takes_at_once() => drop(self.drive(hub, member)),
            replies @ (Replies::Received(_) | Replies::Written(_)) => {
                let written = matches!(replies, Replies::Written(_));
                if self.doorbell.is_ripe() || self.doorbell.is_due(false) {
                    self.ring();
                }
                let found = if written { self.look_at(index) } else { self.take_at_once() };
                if found {
                    return;
                }
                // A core that has slept may have been woken by a completion.
                let due = (self.counters.empty_polls + 1).is_multiple_of(QUEUE_EVERY) || self.has_slept();
                if due || hub.has_mail(member) {
                    self.drive_all(hub, member);
                } else {
                    self.nothing();
                }
            }
            Replies::Fetched(_) => {
                let any = self.drive(hub, member);
                if self.window.slots[index].phase != Phase::Sent {
                    return;
                }
                if any {
                    // A READ that brought no reply.
                    self.nothing();
                }
                if let Some(Err(error)) = self.line.as_mut().map(|line| line.fetch(index)) {
                    self.lose(Loss::Refused(error));
                }
            }
        }
    }

    /// Looks for the replies of all slots, and says whether anything has come.
    pub(super) fn look_for_all(&mut self, hub: &Hub<N>, member: u16) -> bool {
        let mut any = self.drive(hub, member);
        for index in 0..self.window.slots.len() {
            if self.window.slots[index].phase != Phase::Sent || self.state != State::Connected {
                continue;
            }
            match self.line.as_mut().map(|line| &line.replies) {
                Some(Replies::Written(_)) => any |= self.look_at(index),
                Some(Replies::Fetched(_)) => self.look_for(hub, member, index),
                _ => return any,
            }
        }
        any
    }

    /// Takes the replies that have come at once, whoever waits for them, and says whether there was any.
    #[inline]
    fn take_at_once(&mut self) -> bool {
        let mut any = false;
        for _ in 0..self.window.slots.len() {
            let Some(line) = &mut self.line else { return any };
            let Some(bytes) = line.take_at_once(&mut self.arrival[..]) else { return any };
            self.arrived(bytes);
            any = true;
        }
        any
    }

    /// Looks whether a slot's reply was WRITten.
    #[inline]
    pub(super) fn look_at(&mut self, index: usize) -> bool {
        let Some(Replies::Written(arrivals)) = self.line.as_ref().map(|line| &line.replies) else {
            return false;
        };
        match arrivals.look(index, &mut self.arrival[..]) {
            Look::Nothing => return false,
            Look::Frame(bytes) => self.arrived(bytes),
            Look::Broken(error) => self.lose(Loss::Malformed(error)),
        }
        true
    }

    /// Now and then, when nothing comes: looks whether the server lives, sleeps, or perhaps never got a request, and whether calls
    /// have waited too long.
    #[cold]
    pub(super) fn look_after(&mut self) {
        if self.state != State::Connected {
            return;
        }
        if !self.link.alive() {
            return self.lose(Loss::PeerGone);
        }
        if self.window.busy.get() == 0 {
            return;
        }
        let now_ns = self.clock.now_ns();
        if self.config.pair.is_lossy() {
            self.repeat_requests(now_ns);
        }
        self.tick(now_ns);
        if self.silence.is_too_long(now_ns) {
            self.wake();
        }
    }

    #[inline]
    pub(super) fn complete(&mut self, completion: &Completion) {
        let Some(line) = &mut self.line else { return };
        // Of a queue pair that is gone.
        let Some(outbox) = line.of(completion.id) else { return };
        if completion.status != Status::Success {
            self.lose(Loss::of(completion.status));
            return;
        }
        match tag::kind(completion.id) {
            Kind::Send(number) => {
                outbox.completed(number);
                self.fetched(number);
            }
            Kind::Receive(slot) => {
                match line.receive(slot, completion.bytes, self.token, &mut self.arrival[..]) {
                    Ok(Some(bytes)) => self.arrived(bytes),
                    // A datagram of a stranger, or of an earlier connection.
                    Ok(None) => self.counters.foreign_replies += 1,
                    Err(error) => self.lose(Loss::Refused(error)),
                }
            }
        }
    }

    /// Takes what READs up to this work request have brought.
    #[inline]
    pub(super) fn fetched(&mut self, number: u32) {
        while let Some(Replies::Fetched(fetcher)) = self.line.as_mut().map(|line| &mut line.replies)
            && let Some(found) = fetcher.take(number, &mut self.arrival[..])
        {
            if let Some((start, bytes)) = found {
                self.arrival.copy_within(start..start + bytes, 0);
                self.arrived(bytes);
            }
        }
    }

    /// Matches the reply in the arrival buffer with its call.
    #[inline]
    pub(super) fn arrived(&mut self, bytes: usize) {
        self.heard();
        let header = match ReplyHeader::parse(&self.arrival[..bytes]) {
            Ok(header) if header.incarnation == self.incarnation => header,
            Ok(_) => return self.lose(Loss::WrongIncarnation),
            Err(error) => return self.lose(Loss::Malformed(error)),
        };
        let Some(index) = self.window.answered_by(header.sequence) else {
            self.counters.foreign_replies += 1;
            return;
        };
        let slot = &mut self.window.slots[index as usize];
        if slot.abandoned {
            self.counters.unclaimed_replies += 1;
            self.window.release(index);
            return;
        }
        self.counters.replies += 1;
        slot.phase = Phase::Answered;
        slot.status = header.status;
        slot.version = header.version;
        slot.frame_bytes = bytes;
        // If there is none, the slot's frame is lent to an `on_reply`, or was lost in one that panicked.
        let room = slot.frame.take().unwrap_or_else(reply_buffer);
        slot.frame = Some(std::mem::replace(&mut self.arrival, room));
    }
}
