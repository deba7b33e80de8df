//! Places for the values of mutations that do not fit a frame: a WRITE puts the value into the client's staging region
//! at the server, and the request that follows on the same queue pair says where it is.

use locus_fabric::{FabricError, LocalSlice, Nic, Region, RemoteRegion, RemoteSlice};

/// A client's staging region at one server, and its image here, from which the WRITEs are sent.
pub struct Staging<N: Nic> {
    local: N::Region,
    remote: N::RemoteRegion,
    place_bytes: usize,
    free: Vec<u32>,
}

impl<N: Nic> Staging<N> {
    /// Divides both regions into places of `place_bytes`, the longest value; `local` may be a larger region. The remote
    /// region belongs to this client alone.
    pub fn new(local: N::Region, remote: N::RemoteRegion, place_bytes: usize) -> Result<Self, FabricError> {
        let bytes = local.bytes().min(remote.bytes());
        if place_bytes == 0 || place_bytes > bytes {
            return Err(FabricError::Limit {
                what: "a place of a staging region",
                asked: place_bytes,
                limit: bytes,
            });
        }
        let free = (0..(bytes / place_bytes) as u32).rev().collect();
        Ok(Self { local, remote, place_bytes, free })
    }

    /// The longest value.
    pub fn place_bytes(&self) -> usize {
        self.place_bytes
    }

    /// Copies a value to a free place.
    pub(crate) fn put(&mut self, value: &[u8]) -> Option<u32> {
        let place = self.free.pop()?;
        self.local.copy_in(self.offset(place), value);
        Some(place)
    }

    pub(crate) fn give_back(&mut self, place: u32) {
        // A place of a staging region that was replaced meanwhile may not exist in this one.
        let count = self.local.bytes().min(self.remote.bytes()) / self.place_bytes;
        if (place as usize) < count && !self.free.contains(&place) {
            self.free.push(place);
        }
    }

    /// Where a place is, in both regions.
    pub(crate) fn offset(&self, place: u32) -> usize {
        place as usize * self.place_bytes
    }

    /// The operands of the WRITE of a piece of a place.
    pub(crate) fn piece(
        &self,
        place: u32,
        at: usize,
        bytes: usize,
    ) -> (LocalSlice<'_, N>, RemoteSlice<'_, N>) {
        let offset = self.offset(place) + at;
        (LocalSlice { region: &self.local, offset, bytes }, RemoteSlice { region: &self.remote, offset })
    }
}
