//! Freed extents of large records, kept as they are for a while.
//!
//! A large record takes longer to read than to replace: without this, a READ of one that is put over and over finds the
//! extent overwritten each time, at the client as well as after a reply that points to it, and never ends. So the last
//! few such extents keep their bytes until more have been freed after them; a READ of one still verifies, and gives the
//! value that the key had when its row was read. They are freed at once when memory runs short.

use crate::Extent;
use std::collections::VecDeque;

/// Shorter extents are free at once: they are read in less time than a put takes.
const EXTENT_BYTES_MIN: usize = 4 << 10;
/// How many extents are kept.
const EXTENTS_MAX: usize = 16;
/// How many bytes are kept.
const BYTES_MAX: usize = 16 << 20;

/// The extents that are kept, the one freed first in front.
#[derive(Default)]
pub(crate) struct Limbo {
    extents: VecDeque<Extent>,
    bytes: usize,
}

impl Limbo {
    /// Keeps an extent that is no longer pointed to; false if it is too short for that.
    pub(crate) fn keep(&mut self, extent: Extent) -> bool {
        let keeps = extent.bytes >= EXTENT_BYTES_MIN;
        if keeps {
            self.bytes += extent.bytes;
            self.extents.push_back(extent);
        }
        keeps
    }

    /// An extent that was kept for long enough, if there is one.
    pub(crate) fn overdue(&mut self) -> Option<Extent> {
        if self.extents.len() > EXTENTS_MAX || self.bytes > BYTES_MAX { self.release() } else { None }
    }

    /// The extent that was kept for longest.
    pub(crate) fn release(&mut self) -> Option<Extent> {
        let extent = self.extents.pop_front()?;
        self.bytes -= extent.bytes;
        Some(extent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use locus_memory::Pointer;

    fn extent(number: u64, bytes: usize) -> Extent {
        Extent { at: Pointer::from_bits(number), bytes, checksum: 0 }
    }

    #[test]
    fn keeps_a_bounded_number_of_large_extents_in_order() {
        let mut limbo = Limbo::default();
        assert!(!limbo.keep(extent(0, EXTENT_BYTES_MIN - 16)));
        for number in 0..EXTENTS_MAX as u64 {
            assert!(limbo.keep(extent(number, EXTENT_BYTES_MIN)));
            assert_eq!(limbo.overdue(), None);
        }
        assert!(limbo.keep(extent(99, EXTENT_BYTES_MIN)));
        assert_eq!(limbo.overdue(), Some(extent(0, EXTENT_BYTES_MIN)));
        assert_eq!(limbo.overdue(), None);
        // And a bounded number of bytes.
        assert!(limbo.keep(extent(100, BYTES_MAX)));
        let freed: Vec<_> = std::iter::from_fn(|| limbo.overdue()).collect();
        assert_eq!(freed.len(), EXTENTS_MAX);
        assert_eq!((limbo.release(), limbo.release()), (Some(extent(100, BYTES_MAX)), None));
        assert_eq!(limbo.bytes, 0);
    }
}
