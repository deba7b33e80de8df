//! Places for the values of mutations that do not fit a frame: WRITEs put the value into the client's staging region at the
//! server, and the request says where it is. Over RC the request follows on the same queue pair; elsewhere values go
//! [`ahead`](crate::ahead).

use crate::{Ahead, Staged};
use locus_fabric::{
    Access, FabricError, LocalSlice, Nic, PagePolicy, PostError, Region, RemoteRegion, RemoteSlice, Status,
};
use locus_memory::checksum;
use std::{cell::RefCell, rc::Rc};

/// A client's staging region at one server, and its image here, from which the WRITEs are sent. Clones share the places:
/// all channels over one link use the same.
pub struct Staging<N: Nic>(Rc<Shared<N>>);

struct Shared<N: Nic> {
    local: N::Region,
    remote: N::RemoteRegion,
    place_bytes: usize,
    free: Free,
    /// What carries values that go ahead of their requests.
    ahead: Option<Ahead<N>>,
}

/// The places that are free, each with the last WRITE from it over the queue pair for values that go ahead: of a call that was
/// given up it may still be under way.
type Free = Rc<RefCell<Vec<(u32, Option<u32>)>>>;

impl<N: Nic> Clone for Staging<N> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// A place that holds a value; free again when dropped, which must not be before the request that names it is answered.
pub(crate) struct Place {
    number: u32,
    /// The last WRITE of the value, if it goes ahead.
    last: Option<u32>,
    /// What the request says of the value.
    staged: Staged,
    home: Free,
}

impl Place {
    pub(crate) fn staged(&self) -> &Staged {
        &self.staged
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.home.borrow_mut().push((self.number, self.last));
    }
}

impl<N: Nic> Staging<N> {
    /// Divides a remote region that belongs to this client alone into places of `place_bytes`, the longest value, and
    /// registers its image. Requests over UC and UD need values to go `ahead`.
    pub fn new(
        nic: &N,
        remote: N::RemoteRegion,
        place_bytes: usize,
        ahead: Option<Ahead<N>>,
    ) -> Result<Self, FabricError> {
        let bytes = remote.bytes();
        if place_bytes == 0 || place_bytes > bytes {
            return Err(FabricError::Limit {
                what: "a place of a staging region",
                asked: place_bytes,
                limit: bytes,
            });
        }
        let local = nic.register(bytes, Access::Local, PagePolicy::Base)?;
        let places = (0..(bytes / place_bytes) as u32).rev().map(|number| (number, None));
        let free = Rc::new(RefCell::new(places.collect()));
        Ok(Self(Rc::new(Shared { local, remote, place_bytes, free, ahead })))
    }

    /// The longest value.
    pub fn place_bytes(&self) -> usize {
        self.0.place_bytes
    }

    /// Whether values can go ahead of their requests.
    pub(crate) fn goes_ahead(&self) -> bool {
        self.0.ahead.is_some()
    }

    /// Copies a value to a free place. Where its request may be seen before it, it is to be `checked` by a checksum.
    pub(crate) fn put(&self, value: &[u8], checked: bool) -> Option<Place> {
        let is_done = |last: u32| self.0.ahead.as_ref().is_none_or(|ahead| ahead.is_done(last));
        let number = {
            let mut free = self.0.free.borrow_mut();
            let at = free.iter().rposition(|(_, last)| last.is_none_or(is_done))?;
            free.swap_remove(at).0
        };
        let offset = number as usize * self.0.place_bytes;
        self.0.local.copy_in(offset, value);
        let checksum = checked.then(|| checksum(value));
        let staged = Staged { offset: offset as u64, bytes: value.len() as u32, checksum };
        Some(Place { number, last: None, staged, home: self.0.free.clone() })
    }

    /// The operands of the WRITEs of a place's value, in so many pieces at most.
    pub(crate) fn pieces(
        &self,
        staged: &Staged,
        pieces: usize,
    ) -> impl Iterator<Item = (LocalSlice<'_, N>, RemoteSlice<'_, N>)> {
        let (start, length) = (staged.offset as usize, staged.bytes as usize);
        let piece_bytes = length.div_ceil(pieces);
        let Shared { local, remote, .. } = &*self.0;
        (0..length).step_by(piece_bytes).map(move |at| {
            let (offset, bytes) = (start + at, piece_bytes.min(length - at));
            (LocalSlice { region: local, offset, bytes }, RemoteSlice { region: remote, offset })
        })
    }

    /// Copies a value to a free place and sends it ahead, in so many pieces at most; none while there is no place.
    pub(crate) fn put_ahead(&self, value: &[u8], pieces: usize) -> Result<Option<Place>, PostError> {
        let ahead = self.0.ahead.as_ref().ok_or(PostError::NotReady)?;
        let Some(mut place) = self.put(value, true) else { return Ok(None) };
        let staged = place.staged;
        for (from, to) in self.pieces(&staged, pieces) {
            place.last = Some(ahead.write(from, to)?);
        }
        ahead.ring()?;
        Ok(Some(place))
    }

    /// Takes note of which values have got there.
    pub(crate) fn poll(&self) -> Result<(), Status> {
        self.0.ahead.as_ref().map_or(Ok(()), Ahead::poll)
    }

    /// Whether the server's end has acknowledged all of a value that goes ahead, as of the last poll.
    pub(crate) fn is_there(&self, place: &Place) -> bool {
        let is_done = |ahead: &Ahead<N>| place.last.is_some_and(|last| ahead.is_done(last));
        self.0.ahead.as_ref().is_some_and(is_done)
    }
}
