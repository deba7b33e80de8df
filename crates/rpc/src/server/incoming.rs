//! A request as the core that executes it sees it, and the batches that requests come in.

use super::ChannelId;
use crate::{
    RequestHeader, SessionId, Staged,
    frame::{REQUEST_BUFFER_BYTES, REQUEST_HEADER_BYTES},
};
use std::ops::Deref;

/// A request that arrived, checked.
pub struct Incoming {
    /// Empty before the first request, and after one was taken.
    pub(super) buffer: Box<[u8]>,
    /// How much of the buffer is the request's frame.
    pub(super) bytes: usize,
    pub(super) header: RequestHeader,
    pub(super) channel: ChannelId,
    pub(super) session: SessionId,
}

/// Requests that polls brought. Their room is used again and again, and each is put together where it stays: what was just
/// stored in pieces is not loaded as a whole, which would wait until it, and with it all that was stored before, has left the
/// core's store queue. There that may be a reply on its way to a client's cache.
#[derive(Default)]
pub struct Batch {
    requests: Vec<Incoming>,
    count: usize,
}

impl Deref for Batch {
    type Target = [Incoming];

    #[inline]
    fn deref(&self) -> &[Incoming] {
        &self.requests[..self.count]
    }
}

impl Batch {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The request at this place, which may be taken.
    #[inline]
    pub fn get_mut(&mut self, place: usize) -> Option<&mut Incoming> {
        self.requests[..self.count].get_mut(place)
    }

    /// Forgets all requests.
    #[inline]
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Takes all requests out. Unlike [`Batch::clear`] this takes their room as well.
    pub fn drain(&mut self) -> impl Iterator<Item = Incoming> {
        let count = std::mem::take(&mut self.count);
        self.requests.drain(..count)
    }

    /// Room for one more, with a buffer that holds every frame.
    #[inline(always)]
    pub(super) fn next(&mut self) -> &mut Incoming {
        if self.requests.get(self.count).is_none_or(|next| next.buffer.is_empty()) {
            self.make_room();
        }
        &mut self.requests[self.count]
    }

    #[cold]
    fn make_room(&mut self) {
        if self.requests.len() == self.count {
            self.requests.push(Incoming::empty());
        }
        self.requests[self.count].buffer = vec![0; REQUEST_BUFFER_BYTES].into();
    }

    /// Adds the next one, which has been filled.
    #[inline(always)]
    pub(super) fn keep_next(&mut self) {
        self.count += 1;
    }
}

impl Incoming {
    fn empty() -> Self {
        let (header, channel, session) = Default::default();
        Self { buffer: Box::default(), bytes: 0, header, channel, session }
    }

    /// Takes the request out of its batch, if it is to outlive that. What is left is none: it has neither key nor value, and
    /// asking for them panics.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::empty())
    }

    /// What to do.
    pub fn opcode(&self) -> u8 {
        self.header.opcode
    }

    /// Whether it is executed at most once.
    pub fn mutates(&self) -> bool {
        self.header.mutates
    }

    /// The partition of the key, as the client says.
    pub fn partition(&self) -> u16 {
        self.header.partition
    }

    /// The epoch of the partition map that the client uses.
    pub fn map_epoch(&self) -> u32 {
        self.header.map_epoch
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.frame()[REQUEST_HEADER_BYTES..][..usize::from(self.header.key_bytes)]
    }

    /// The value, if it is in the frame; empty if it is staged.
    #[inline]
    pub fn value(&self) -> &[u8] {
        if self.header.staged { &[] } else { self.body() }
    }

    /// Where the value is in the client's staging region, if it is there. What it says is yet to be checked against that
    /// region.
    pub fn staged(&self) -> Option<Staged> {
        if self.header.staged { Staged::parse(self.body()).ok() } else { None }
    }

    /// Where it came from.
    pub fn channel(&self) -> ChannelId {
        self.channel
    }

    /// Whose it is.
    pub fn session(&self) -> SessionId {
        self.session
    }

    #[inline]
    pub(super) fn frame(&self) -> &[u8] {
        &self.buffer[..self.bytes]
    }

    #[inline]
    fn body(&self) -> &[u8] {
        &self.frame()[REQUEST_HEADER_BYTES + usize::from(self.header.key_bytes)..]
    }
}
