//! The one store writer: all bytes of registered memory are stored through it, word by word.
//!
//! A remote reader may sample memory between any two words, so the order of the stores is the protocol: an extent
//! completely, then [`Writer::release`], then the row that points to it. Single words are relaxed atomic stores, which
//! the provider sees one by one, so that a simulated one can let a READ in between.

use crate::{Arena, Pointer};
use locus_fabric::Region;

/// Stores into the regions of an arena.
pub struct Writer<'a, R> {
    arena: &'a mut Arena<R>,
}

impl<'a, R: Region> Writer<'a, R> {
    #[inline]
    pub(crate) fn new(arena: &'a mut Arena<R>) -> Self {
        Self { arena }
    }

    /// The region and the index of the first word, after checking that so many words are there.
    #[inline]
    fn target(&self, at: Pointer, words: usize) -> (&R, usize) {
        let region = self.arena.region(at.region()).expect("a region of this arena");
        let first = at.offset() / 8;
        assert!(first + words <= region.bytes() / 8, "{words} words at {at:?} are outside their region");
        (region, first)
    }

    /// Stores words one after the other.
    ///
    /// # Panics
    /// When they are outside the arena, as all stores do: a bug of the caller.
    #[inline]
    pub fn store_words(&mut self, at: Pointer, words: &[u64]) {
        let (region, first) = self.target(at, words.len());
        for (index, word) in words.iter().enumerate() {
            region.store(first + index, *word);
        }
    }

    /// Stores one word, the `index`-th from `at`.
    #[inline]
    pub fn store_word(&mut self, at: Pointer, index: usize, word: u64) {
        let (region, first) = self.target(at, index + 1);
        region.store(first + index, word);
    }

    /// Stores the parts one behind the other without gaps, then zeroes up to the next multiple of 16 bytes.
    #[inline]
    pub fn store_bytes(&mut self, at: Pointer, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let words = bytes.next_multiple_of(Pointer::UNIT) / 8;
        let (region, first) = self.target(at, words);
        let mut packer = Packer { pending: 0, bits: 0, next: first };
        for part in parts {
            packer.push(region, part);
        }
        packer.finish(region, first + words);
    }

    /// Stores the same word all over a range of whole words.
    pub fn fill(&mut self, at: Pointer, bytes: usize, word: u64) {
        assert!(bytes.is_multiple_of(8), "{bytes} bytes are no whole words");
        let (region, first) = self.target(at, bytes / 8);
        for index in first..first + bytes / 8 {
            region.store(index, word);
        }
    }

    /// Orders all earlier stores before all later ones, for every reader and over all regions: a reader that sees a
    /// later store (the row) sees all earlier ones (the extent that it points to).
    #[inline]
    pub fn release(&mut self) {
        if let Some(region) = self.arena.any_region() {
            region.release();
        }
    }
}

/// Joins parts of any length into words.
struct Packer {
    /// The bytes that do not fill a word yet, the first in the lowest bits.
    pending: u64,
    /// How many bits of them, below 64.
    bits: u32,
    /// The index of the word that they will go to.
    next: usize,
}

impl Packer {
    #[inline]
    fn push(&mut self, region: &impl Region, part: &[u8]) {
        let (words, rest) = part.as_chunks::<8>();
        if self.bits == 0 {
            for word in words {
                region.store(self.next, u64::from_le_bytes(*word));
                self.next += 1;
            }
        } else {
            for word in words {
                let word = u64::from_le_bytes(*word);
                region.store(self.next, self.pending | word << self.bits);
                self.pending = word >> (64 - self.bits);
                self.next += 1;
            }
        }
        for byte in rest {
            self.pending |= u64::from(*byte) << self.bits;
            self.bits += 8;
            if self.bits == 64 {
                region.store(self.next, self.pending);
                *self = Self { pending: 0, bits: 0, next: self.next + 1 };
            }
        }
    }

    #[inline]
    fn finish(self, region: &impl Region, end: usize) {
        let mut word = self.pending;
        for index in self.next..end {
            region.store(index, word);
            word = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::HeapRegion;
    use crate::{Arena, Purpose, RegionId};
    use locus_fabric::Region;

    proptest::proptest! {
        #[test]
        fn parts_lie_behind_each_other_and_the_rest_is_zero(
            parts in proptest::collection::vec(proptest::collection::vec(proptest::num::u8::ANY, 0..40), 0..5),
        ) {
            let region = HeapRegion::new(1 << 16);
            let mut arena = Arena::new();
            arena.add_region(RegionId::new(0).unwrap(), region.clone(), Purpose::Extents).unwrap();
            let at = arena.allocate(Purpose::Extents, 256).unwrap();
            arena.writer().fill(at, 256, u64::MAX);
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            arena.writer().store_bytes(at, &parts);
            let mut expected = parts.concat();
            expected.resize(expected.len().next_multiple_of(16), 0);
            expected.resize(256, 0xff);
            let mut found = [0; 256];
            region.copy_out(at.offset(), &mut found);
            proptest::prop_assert_eq!(&found[..], &expected[..]);
        }
    }

    #[test]
    fn words_and_single_words() {
        let mut arena = Arena::new();
        arena.add_region(RegionId::new(0).unwrap(), HeapRegion::new(1 << 16), Purpose::Tables).unwrap();
        let at = arena.allocate(Purpose::Tables, 64).unwrap();
        arena.writer().store_words(at, &[1, 2, 3, 4]);
        arena.writer().store_word(at, 2, 9);
        arena.writer().release();
        let words = arena.region(at.region()).unwrap().words();
        let found: Vec<u64> = words[at.offset() / 8..][..4]
            .iter()
            .map(|word| word.load(std::sync::atomic::Ordering::Relaxed))
            .collect();
        assert_eq!(found, [1, 2, 9, 4]);
    }

    #[test]
    #[should_panic = "outside their region"]
    fn a_store_outside_is_a_bug() {
        let mut arena = Arena::new();
        arena.add_region(RegionId::new(0).unwrap(), HeapRegion::new(4096), Purpose::Tables).unwrap();
        arena.writer().store_words(crate::Pointer::new(RegionId::new(0).unwrap(), 4080), &[1, 2, 3]);
    }
}
