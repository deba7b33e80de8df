//! Places for the values of mutations that do not fit a frame: a WRITE puts the value into the client's staging region
//! at the server, and the request that follows on the same queue pair says where it is.

use locus_fabric::{Access, FabricError, LocalSlice, Nic, PagePolicy, Region, RemoteRegion, RemoteSlice};
use std::{cell::RefCell, rc::Rc};

/// A client's staging region at one server, and its image here, from which the WRITEs are sent. Clones share the places:
/// all channels over one link use the same.
pub struct Staging<N: Nic> {
    local: N::Region,
    remote: N::RemoteRegion,
    place_bytes: usize,
    free: Rc<RefCell<Vec<u32>>>,
}

impl<N: Nic> Clone for Staging<N> {
    fn clone(&self) -> Self {
        Self {
            local: self.local.clone(),
            remote: self.remote.clone(),
            place_bytes: self.place_bytes,
            free: self.free.clone(),
        }
    }
}

/// A place that holds a value; free again when dropped, which must not be before the request that names it is answered.
pub(crate) struct Place {
    number: u32,
    home: Rc<RefCell<Vec<u32>>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.home.borrow_mut().push(self.number);
    }
}

impl<N: Nic> Staging<N> {
    /// Divides a remote region that belongs to this client alone into places of `place_bytes`, the longest value, and
    /// registers its image.
    pub fn new(nic: &N, remote: N::RemoteRegion, place_bytes: usize) -> Result<Self, FabricError> {
        let bytes = remote.bytes();
        if place_bytes == 0 || place_bytes > bytes {
            return Err(FabricError::Limit {
                what: "a place of a staging region",
                asked: place_bytes,
                limit: bytes,
            });
        }
        let local = nic.register(bytes, Access::Local, PagePolicy::Base)?;
        let free = (0..(bytes / place_bytes) as u32).rev().collect();
        Ok(Self { local, remote, place_bytes, free: Rc::new(RefCell::new(free)) })
    }

    /// The longest value.
    pub fn place_bytes(&self) -> usize {
        self.place_bytes
    }

    /// Copies a value to a free place.
    pub(crate) fn put(&self, value: &[u8]) -> Option<Place> {
        let number = self.free.borrow_mut().pop()?;
        let place = Place { number, home: self.free.clone() };
        self.local.copy_in(self.offset(&place), value);
        Some(place)
    }

    /// Where a place is, in both regions.
    pub(crate) fn offset(&self, place: &Place) -> usize {
        place.number as usize * self.place_bytes
    }

    /// The operands of the WRITE of a piece of a place.
    pub(crate) fn piece(
        &self,
        place: &Place,
        at: usize,
        bytes: usize,
    ) -> (LocalSlice<'_, N>, RemoteSlice<'_, N>) {
        let offset = self.offset(place) + at;
        (LocalSlice { region: &self.local, offset, bytes }, RemoteSlice { region: &self.remote, offset })
    }
}
