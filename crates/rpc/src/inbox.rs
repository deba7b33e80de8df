//! The receiving half of a connection: RECVs that are always posted, and the messages that filled them.

use crate::tag::Tag;
use locus_fabric::{Access, FabricError, LocalSlice, Nic, PagePolicy, PostError, QueuePair, Region};
use std::{cell::RefCell, ops::Deref, rc::Rc};

/// RECVs of one queue pair. What arrives is copied out at once and its RECV posted again.
pub(crate) struct Inbox<N: Nic> {
    region: N::Region,
    slot_bytes: usize,
    slots: usize,
}

impl<N: Nic> Inbox<N> {
    /// RECVs for `slots` messages of up to `bytes`.
    pub fn new(nic: &N, slots: usize, bytes: usize) -> Result<Self, FabricError> {
        let slot_bytes = bytes.next_multiple_of(64);
        let region = nic.register(slots * slot_bytes, Access::Local, PagePolicy::Base)?;
        Ok(Self { region, slot_bytes, slots })
    }

    /// Posts all RECVs to a fresh queue pair.
    pub fn post_all(&self, pair: &mut N::QueuePair, tag: Tag) -> Result<(), PostError> {
        (0..self.slots as u32).try_for_each(|slot| self.post(pair, tag, slot))
    }

    fn post(&self, pair: &mut N::QueuePair, tag: Tag, slot: u32) -> Result<(), PostError> {
        let offset = slot as usize * self.slot_bytes;
        pair.post_receive(
            tag.receive(slot),
            LocalSlice { region: &self.region, offset, bytes: self.slot_bytes },
        )
    }

    /// Copies the message out of a RECV that completed, posts the RECV again, and says how many bytes the message has (no
    /// more than there is room for).
    #[inline]
    pub fn take(
        &self,
        pair: &mut N::QueuePair,
        tag: Tag,
        slot: u32,
        bytes: u32,
        into: &mut [u8],
    ) -> Result<usize, PostError> {
        let bytes = (bytes as usize).min(self.slot_bytes).min(into.len());
        self.region.copy_out(slot as usize * self.slot_bytes, &mut into[..bytes]);
        self.post(pair, tag, slot)?;
        Ok(bytes)
    }
}

/// Buffers for messages that are handed out, used again and again.
#[derive(Clone)]
pub(crate) struct Spare(Rc<RefCell<Vec<Box<[u8]>>>>);

impl Spare {
    pub fn new() -> Self {
        Self(Rc::default())
    }

    /// A buffer for one message; allocates only while more are out than ever before.
    #[inline]
    pub fn message(&self, capacity: usize) -> Message {
        let buffer = self.0.borrow_mut().pop().unwrap_or_else(|| vec![0; capacity].into());
        Message { buffer, bytes: 0, home: self.clone() }
    }
}

/// A message that arrived. Its buffer goes back when this is dropped.
pub(crate) struct Message {
    pub buffer: Box<[u8]>,
    pub bytes: usize,
    home: Spare,
}

impl Deref for Message {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.buffer[..self.bytes]
    }
}

impl Drop for Message {
    #[inline]
    fn drop(&mut self) {
        self.home.0.borrow_mut().push(std::mem::take(&mut self.buffer));
    }
}
