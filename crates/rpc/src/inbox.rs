//! The receiving half of a connection: RECVs that are always posted.

use crate::{pair::TOKEN_BYTES, tag::Tag};
use locus_fabric::{
    Access, FabricError, LocalSlice, Nic, PagePolicy, PostError, QueuePair, Region, Transport,
};

/// The GRH that precedes a datagram in its buffer, on every provider.
pub(crate) const GRH_BYTES: usize = 40;

/// RECVs of one queue pair. What arrives is copied out at once and its RECV posted again.
pub(crate) struct Inbox<N: Nic> {
    region: N::Region,
    slot_bytes: usize,
    slots: usize,
    /// What precedes a frame: nothing, or a GRH and a token.
    front: usize,
}

impl<N: Nic> Inbox<N> {
    /// RECVs for `slots` frames of up to `bytes`.
    pub fn new(nic: &N, transport: Transport, slots: usize, bytes: usize) -> Result<Self, FabricError> {
        let front = if transport == Transport::Ud { GRH_BYTES + TOKEN_BYTES } else { 0 };
        let slot_bytes = (bytes + front).next_multiple_of(64);
        let region = nic.register(slots * slot_bytes, Access::Local, PagePolicy::Base)?;
        Ok(Self { region, slot_bytes, slots, front })
    }

    /// Posts all RECVs to a fresh queue pair.
    pub fn post_all(&self, pair: &mut N::QueuePair, tag: Tag) -> Result<(), PostError> {
        (0..self.slots as u32).try_for_each(|slot| self.post(pair, tag, slot))
    }

    /// Posts the RECV of a slot.
    pub fn post(&self, pair: &mut N::QueuePair, tag: Tag, slot: u32) -> Result<(), PostError> {
        let offset = slot as usize * self.slot_bytes;
        pair.post_receive(
            tag.receive(slot),
            LocalSlice { region: &self.region, offset, bytes: self.slot_bytes },
        )
    }

    /// Copies the frame out of a RECV that completed, posts the RECV again, and says how many bytes the frame has (no more
    /// than there is room for).
    #[inline]
    pub fn take(
        &self,
        pair: &mut N::QueuePair,
        tag: Tag,
        slot: u32,
        bytes: u32,
        into: &mut [u8],
    ) -> Result<usize, PostError> {
        let bytes = (bytes as usize).min(self.slot_bytes).saturating_sub(self.front).min(into.len());
        self.region.copy_out(slot as usize * self.slot_bytes + self.front, &mut into[..bytes]);
        self.post(pair, tag, slot)?;
        Ok(bytes)
    }

    /// The token before the frame in a datagram of so many bytes. To be asked for before the frame is taken.
    pub fn token(&self, slot: u32, bytes: u32) -> Option<u64> {
        let is_there = bytes as usize >= GRH_BYTES + TOKEN_BYTES;
        let mut token = [0; TOKEN_BYTES];
        self.region.copy_out(slot as usize * self.slot_bytes + GRH_BYTES, &mut token);
        is_there.then_some(u64::from_le_bytes(token))
    }
}
