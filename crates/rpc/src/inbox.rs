//! The receiving half of a connection: RECVs that are always posted, and the messages that filled them.

use crate::tag::Tag;
use locus_fabric::{Access, FabricError, LocalSlice, Nic, PagePolicy, PostError, QueuePair, Region};
use std::{cell::RefCell, ops::Deref, rc::Rc};

/// RECVs of one queue pair. What arrives is copied out at once and its RECV posted again.
pub(crate) struct Inbox<N: Nic> {
    region: N::Region,
    slot_bytes: usize,
    slots: usize,
    spare: Rc<RefCell<Vec<Box<[u8]>>>>,
}

/// A message that arrived. Its buffer goes back when this is dropped.
pub struct Message {
    buffer: Box<[u8]>,
    bytes: usize,
    home: Rc<RefCell<Vec<Box<[u8]>>>>,
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[..self.bytes]
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.home.borrow_mut().push(std::mem::take(&mut self.buffer));
    }
}

impl<N: Nic> Inbox<N> {
    /// RECVs for `slots` messages of up to `bytes`.
    pub fn new(nic: &N, slots: usize, bytes: usize) -> Result<Self, FabricError> {
        let slot_bytes = bytes.next_multiple_of(64);
        let region = nic.register(slots * slot_bytes, Access::Local, PagePolicy::Base)?;
        let spare = (0..2 * slots).map(|_| vec![0; slot_bytes].into()).collect();
        Ok(Self { region, slot_bytes, slots, spare: Rc::new(RefCell::new(spare)) })
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

    /// Takes the message out of a RECV that completed, and posts the RECV again.
    #[inline]
    pub fn take(
        &mut self,
        pair: &mut N::QueuePair,
        tag: Tag,
        slot: u32,
        bytes: u32,
    ) -> Result<Message, PostError> {
        let bytes = (bytes as usize).min(self.slot_bytes);
        let mut buffer =
            self.spare.borrow_mut().pop().unwrap_or_else(|| vec![0; self.slot_bytes].into_boxed_slice());
        self.region.copy_out(slot as usize * self.slot_bytes, &mut buffer[..bytes]);
        self.post(pair, tag, slot)?;
        Ok(Message { buffer, bytes, home: self.spare.clone() })
    }
}
