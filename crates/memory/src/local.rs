//! Memory as its owner reads it: borrowed slices, at once.

use crate::{Arena, Memory, MemoryError, Pointer};
use locus_fabric::{Prefetch, Region};

/// The owner's memory. Borrows the arena, so that nothing is stored while it or anything read from it lives.
pub struct Local<'a, R> {
    arena: &'a Arena<R>,
}

impl<R> Clone for Local<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Local<'_, R> {}

impl<'a, R: Region> Local<'a, R> {
    #[inline]
    pub(crate) fn new(arena: &'a Arena<R>) -> Self {
        Self { arena }
    }

    /// The region of a range, which is checked: it may come from a damaged row.
    #[inline]
    pub(crate) fn checked(self, at: Pointer, bytes: usize) -> Result<&'a R, MemoryError> {
        let region = self.arena.region(at.region()).ok_or(MemoryError::UnknownRegion(at.region()))?;
        // The offset is below 64 GiB, so that subtracting cannot wrap where adding a wild length could.
        if bytes > region.bytes() || at.offset() > region.bytes() - bytes {
            return Err(MemoryError::OutOfRange(at, bytes));
        }
        Ok(region)
    }

    /// Borrows bytes, without the ceremony of a future.
    #[inline]
    pub fn slice(self, at: Pointer, bytes: usize) -> Result<&'a [u8], MemoryError> {
        let region = self.checked(at, bytes)?;
        // SAFETY: the arena refuses regions that peers may write to, and is the only writer in this process: all its
        // stores go through `Writer`, which borrows it mutably and so cannot exist while `'a` lasts. Arenas register
        // their regions as targets of no verb.
        Ok(unsafe { region.slice(at.offset(), bytes) })
    }
}

impl<'m, R: Region> Memory for Local<'m, R> {
    type Bytes<'a>
        = &'a [u8]
    where
        Self: 'a;
    const TEARS: bool = false;
    const INTERLEAVES: bool = false;

    #[inline]
    async fn read(&self, at: Pointer, bytes: usize) -> Result<&[u8], MemoryError> {
        self.slice(at, bytes)
    }

    #[inline]
    fn read_at_once(&self, at: Pointer, into: &mut [u8]) -> bool {
        self.slice(at, into.len()).map(|bytes| into.copy_from_slice(bytes)).is_ok()
    }

    /// Starts to fetch the cache lines: what a mutation does, which must not yield, before it needs them.
    #[inline]
    fn ahead(&self, at: Pointer, bytes: usize) -> Prefetch {
        match self.checked(at, bytes) {
            Ok(region) => Prefetch::of(region.words().as_ptr().cast(), at.offset(), bytes),
            Err(_) => Prefetch::NONE,
        }
    }

    /// The owner's memory is its own.
    #[inline]
    fn current(&self) -> Result<(), MemoryError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{HeapRegion, ready};
    use crate::{Purpose, RegionId};

    #[test]
    fn reads_what_was_written_and_checks_every_range() {
        let mut arena = Arena::new();
        arena.add_region(RegionId::new(5).unwrap(), HeapRegion::new(1 << 16), Purpose::Tables).unwrap();
        let at = arena.allocate(Purpose::Tables, 64).unwrap();
        arena.writer().store_bytes(at, &[b"to be ", b"read"]);
        let local = arena.local();
        assert_eq!(ready(local.read(at, 10)).unwrap(), b"to be read");
        let region = RegionId::new(5).unwrap();
        assert_eq!(local.slice(Pointer::new(region, 0), 1 << 16).unwrap().len(), 1 << 16);
        for (offset, bytes) in
            [(0, 65_537), (16, 65_521), (65_536, 1), (1 << 35, 1), (0, usize::MAX), (65_520, usize::MAX - 8)]
        {
            let at = Pointer::new(region, offset);
            assert_eq!(local.slice(at, bytes), Err(MemoryError::OutOfRange(at, bytes)));
        }
        let unknown = RegionId::new(6).unwrap();
        assert_eq!(local.slice(Pointer::new(unknown, 0), 1), Err(MemoryError::UnknownRegion(unknown)));
    }
}
