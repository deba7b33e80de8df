//! How requests go out: whole, or with their value placed at the server before.

use super::{Channel, Inner, RETRY_NS, Request};
use crate::{
    INLINE_VALUE_BYTES_MAX, Loss, RequestHeader, STAGED_BYTES_MAX, Staged,
    frame::{Frame, REQUEST_HEADER_BYTES},
    line::Line,
    outbox::Sent,
    pair::Carrier,
    slots::Layout,
    window::Phase,
};
use locus_fabric::{Nic, PostError};

/// The time until it is sent again doubles so often.
const RETRY_DOUBLINGS: u32 = 4;
/// How often it is sent again. With 30% of all messages lost, one call in 10^9 comes to that.
const RETRIES_MAX: u8 = 32;

impl<N: Nic> Inner<N> {
    /// Whether a request does not fit a frame with its value.
    #[inline]
    pub(super) fn is_long(&self, request: &Request<'_>) -> bool {
        let bytes = REQUEST_HEADER_BYTES + request.key.len() + request.value.len();
        request.value.len() > INLINE_VALUE_BYTES_MAX || bytes > self.request_bytes_max
    }

    /// Sends the request of a slot, if there is room; if not, the next poll tries again.
    #[inline]
    pub(super) fn send(&mut self, channel: &Channel<N>, index: u32, request: &Request<'_>) {
        if self.line.as_ref().is_some_and(Line::is_half_full) {
            self.drive(&channel.hub, channel.member);
        }
        let wakes = self.may_sleep();
        let sent = if self.is_long(request) {
            self.post_staged(channel, index, request)
        } else {
            self.post(index, request, false, request.value)
        };
        match sent {
            Ok(()) => {
                let slot = &mut self.window.slots[index as usize];
                self.counters.requests += 1;
                self.counters.resent += u64::from(slot.ever_sent);
                slot.ever_sent = true;
                slot.phase = Phase::Sent;
                // The core must not sleep before the doorbell has rung.
                channel.hub.note_news();
                if wakes {
                    // What woke it the last time is done, perhaps.
                    self.drive(&channel.hub, channel.member);
                    self.wake();
                }
            }
            Err(PostError::SendQueueFull(_)) => {
                self.counters.send_waits += 1;
                self.drive(&channel.hub, channel.member);
            }
            Err(error) => self.lose(Loss::Refused(error)),
        }
    }

    /// Posts a frame. A request alone is started at once; with others under way there may be more to post in this turn, and
    /// the doorbell rings for all of them when the first of them looks for its reply (doorbell batching, Kalia §2.2.2).
    #[inline]
    pub(super) fn post(
        &mut self,
        index: u32,
        request: &Request<'_>,
        staged: bool,
        value: &[u8],
    ) -> Result<(), PostError> {
        let line = self.line.as_mut().ok_or(PostError::NotReady)?;
        let slot = &mut self.window.slots[index as usize];
        let header = RequestHeader {
            opcode: request.opcode,
            mutates: request.mutates,
            staged,
            key_bytes: request.key.len() as u16,
            value_bytes: value.len() as u16,
            incarnation: self.incarnation,
            sequence: slot.sequence,
            partition: request.partition,
            map_epoch: request.map_epoch,
        };
        let frame = Frame { header: header.encode(), key: request.key, value };
        let sent = line.send(slot.sequence, slot.attempts, &frame)?;
        if self.config.pair.is_lossy() {
            slot.copy.resize(frame.bytes(), 0);
            frame.copy_to(&mut slot.copy);
        }
        if sent == Sent::AtOnce {
            return Ok(());
        }
        self.doorbell.posted();
        if !self.window.is_alone() {
            return Ok(());
        }
        self.doorbell.rang();
        line.ring()
    }

    /// Brings the value to a place of the staging region, and posts the frame that says where it is. While all places are
    /// taken, and while the value goes ahead, it is as if the send queue were full.
    #[cold]
    pub(super) fn post_staged(
        &mut self,
        channel: &Channel<N>,
        index: u32,
        request: &Request<'_>,
    ) -> Result<(), PostError> {
        let transfer_bytes = channel.hub.nic().properties().transfer_bytes_max;
        let pieces = request.value.len().div_ceil(transfer_bytes);
        let staged = if self.config.pair.request.is_lossy() {
            self.stage_ahead(index, request.value, pieces)?
        } else {
            // What is polled may be seen before what was WRITten earlier (see [`slots`](crate::slots)).
            let polled = self.config.pair.request.carrier == Carrier::Write;
            let checked = polled && Layout::needs_checksum(channel.hub.nic().properties());
            self.stage_in_order(index, request.value, pieces, checked)?
        };
        self.post(index, request, true, staged.encode(&mut [0; STAGED_BYTES_MAX]))
    }

    /// Posts the WRITEs of a value before the frame of its request: a queue pair carries them out in order.
    pub(super) fn stage_in_order(
        &mut self,
        index: u32,
        value: &[u8],
        pieces: usize,
        checked: bool,
    ) -> Result<Staged, PostError> {
        let full = PostError::SendQueueFull(0);
        // A reconnect took the region away, and the owner gave no other.
        let staging = self.staging.as_ref().ok_or(PostError::LocalRange)?;
        let outbox = self.line.as_mut().and_then(Line::outbox).ok_or(PostError::NotReady)?;
        if !outbox.room(pieces + 1) {
            return Err(full);
        }
        let slot = &mut self.window.slots[index as usize];
        if slot.staged.is_none() {
            slot.staged = staging.put(value, checked);
        }
        let staged = *slot.staged.as_ref().ok_or(full)?.staged();
        for (from, to) in staging.pieces(&staged, pieces) {
            outbox.write(from, to, false)?;
        }
        Ok(staged)
    }

    /// Sends a value ahead of its request, and says where it is once that is acknowledged (see [`ahead`](crate::ahead)).
    pub(super) fn stage_ahead(
        &mut self,
        index: u32,
        value: &[u8],
        pieces: usize,
    ) -> Result<Staged, PostError> {
        let full = PostError::SendQueueFull(0);
        let staging = self.staging.as_ref().ok_or(PostError::LocalRange)?;
        let slot = &mut self.window.slots[index as usize];
        let mut polled = staging.poll();
        if slot.staged.is_none() && polled.is_ok() {
            slot.staged = staging.put_ahead(value, pieces)?;
            // Where WRITEs are over when they are started, it is there by now.
            polled = staging.poll();
        }
        if let Err(status) = polled {
            self.lose(Loss::of(status));
            return Err(full);
        }
        let place = slot.staged.as_ref().filter(|place| staging.is_there(place)).ok_or(full)?;
        Ok(*place.staged())
    }

    /// Starts the requests that were posted.
    #[inline]
    pub(super) fn ring(&mut self) {
        self.doorbell.rang();
        if let Some(Err(error)) = self.line.as_mut().map(Line::ring) {
            self.lose(Loss::Refused(error));
        }
    }

    /// Sends requests again that have been waiting for too long. The server executes none twice
    /// ([`sessions`](crate::sessions)).
    pub(super) fn repeat_requests(&mut self, now_ns: u64) {
        let Some(line) = &mut self.line else { return };
        for slot in self.window.slots.iter_mut().filter(|slot| slot.phase == Phase::Sent) {
            let since_ns = *slot.since_ns.get_or_insert(now_ns);
            if now_ns - since_ns < RETRY_NS << u32::from(slot.attempts).min(RETRY_DOUBLINGS) {
                continue;
            }
            if slot.attempts == RETRIES_MAX {
                return self.lose(Loss::Silent(RETRIES_MAX.into()));
            }
            let Some(frame) = Frame::of(&slot.copy) else { continue };
            match line.send(slot.sequence, slot.attempts + 1, &frame) {
                Ok(_) => {
                    slot.attempts += 1;
                    slot.since_ns = Some(now_ns);
                    self.counters.repeated += 1;
                }
                Err(PostError::SendQueueFull(_)) => break,
                Err(error) => return self.lose(Loss::Refused(error)),
            }
        }
        self.ring();
    }
}
