//! How replies go out, and what becomes of those that find no room or no client.

use super::{Answer, Connection, Incoming, Server};
use crate::{Loss, ReplyHeader, frame::Frame, outbox::Sent};
use locus_fabric::{Nic, PostError, Work};

impl<N: Nic> Server<N> {
    /// Answers a request, with a value of at most [`Server::reply_value_bytes_max`]. Nothing is sent before
    /// [`Server::flush`] or the next poll. A mutation's outcome is remembered even if its client is gone.
    ///
    /// # Panics
    /// When the value is too long: a bug of the caller.
    #[inline]
    pub fn reply(&mut self, request: &Incoming, answer: &Answer, value: &[u8]) {
        let place = usize::from(request.channel.place);
        let connection = match self.connections.get_mut(place) {
            Some(Some(connection)) if connection.id == request.channel => connection,
            _ => match self.settle(request, answer) {
                Some(connection) => connection,
                None => return,
            },
        };
        if request.mutates() {
            connection.slots.executed(request.header.sequence, answer.status, answer.version);
        }
        let place = connection.id.place;
        N::charge(Work::Reply(value.len()));
        self.post(place, request.header.sequence, answer, value);
    }

    /// Starts all replies that were posted: one doorbell per channel and batch.
    #[inline]
    pub fn flush(&mut self) {
        self.doorbell.rang();
        if let Some(Err(error)) = self.datagrams.as_mut().map(|datagrams| datagrams.outbox.ring()) {
            self.lose_datagrams(Loss::Refused(error));
        }
        while let Some(place) = self.touched.pop() {
            let Some(connection) = &mut self.connections[usize::from(place)] else { continue };
            connection.touched = false;
            if let Err(error) = connection.end.ring() {
                self.drop_connection(place, Loss::Refused(error));
            }
        }
    }

    /// The channel of a request is gone: notes the outcome in the session, and finds the channel over which it came back.
    #[cold]
    pub(super) fn settle(&mut self, request: &Incoming, answer: &Answer) -> Option<&mut Connection<N>> {
        self.counters.undelivered += 1;
        if request.mutates()
            && let Some(slots) = self.kept.get_mut(request.session)
        {
            slots.executed(request.header.sequence, answer.status, answer.version);
        }
        self.connection_of(request.session)
    }

    /// Posts a reply, or puts it into the backlog if the send queue is full.
    #[inline]
    pub(super) fn post(&mut self, place: u16, sequence: u64, answer: &Answer, value: &[u8]) {
        let Some(connection) = &mut self.connections[usize::from(place)] else { return };
        self.counters.replies += 1;
        assert!(value.len() <= self.reply_value_bytes_max, "a reply's value of {} bytes", value.len());
        let header = ReplyHeader {
            status: answer.status,
            value_bytes: value.len() as u16,
            incarnation: self.folded,
            sequence,
            version: answer.version,
        };
        let frame = Frame { header: header.encode(), key: &[], value };
        let posted = if connection.backlog.is_empty() {
            connection.end.send(self.datagrams.as_mut(), sequence, &frame)
        } else {
            Err(PostError::SendQueueFull(0))
        };
        match posted {
            Ok(Sent::AtOnce) => {}
            Ok(Sent::Posted) => {
                self.doorbell.posted();
                if connection.end.is_half_full(self.datagrams.as_ref()) {
                    self.sweeps.set(true);
                }
                if !connection.touched {
                    connection.touched = true;
                    self.touched.push(place);
                }
            }
            Err(PostError::SendQueueFull(_)) => self.hold_back(place, sequence, &frame),
            Err(error) => self.drop_connection(place, Loss::Refused(error)),
        }
    }

    /// Keeps a reply until the client's send queue has room. An honest client never has more replies to come than its
    /// window has slots.
    #[cold]
    pub(super) fn hold_back(&mut self, place: u16, sequence: u64, frame: &Frame<'_>) {
        let Some(connection) = &mut self.connections[usize::from(place)] else { return };
        self.counters.backpressure += 1;
        if connection.end.is_asked_again() {
            // As if the request or its reply had been lost on its way: it comes again.
            return;
        }
        if connection.backlog.is_empty() {
            self.backlogged.push(place);
        }
        connection.backlog.push_back((sequence, frame.pieces().concat()));
        if connection.backlog.len() > connection.slots.window() {
            self.drop_connection(place, Loss::Stalled);
        }
    }

    #[cold]
    pub(super) fn retry_backlogs(&mut self) {
        for place in std::mem::take(&mut self.backlogged) {
            let Some(connection) = &mut self.connections[usize::from(place)] else { continue };
            let mut outcome = Ok(());
            while outcome.is_ok()
                && let Some((sequence, frame)) = connection.backlog.front()
                && let Some(frame) = Frame::of(frame)
            {
                outcome = connection.end.send(self.datagrams.as_mut(), *sequence, &frame).map(drop);
                if outcome.is_ok() {
                    connection.backlog.pop_front();
                }
            }
            match connection.end.ring().and(outcome) {
                Ok(()) | Err(PostError::SendQueueFull(_)) if connection.backlog.is_empty() => {}
                Ok(()) | Err(PostError::SendQueueFull(_)) => self.backlogged.push(place),
                Err(error) => self.drop_connection(place, Loss::Refused(error)),
            }
        }
    }
}
