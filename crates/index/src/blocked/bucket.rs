//! A bucket: two places for pairs, the newer pair first (Onkenhout §3.4), in one cache line with a checksum over it.
//!
//! | words | what |
//! |---|---|
//! | 0..3 | the first place: bits 0..42 of word 0 the pointer to the extent, 42..60 its length in units of 16 bytes, 60 set if there is a pair; word 1 the checksum over the extent; word 2 the fingerprint of the key |
//! | 3..6 | the second place |
//! | 6 | the version of the bucket |
//! | 7 | checksum over words 0 to 6, the bucket's location and the table's epoch |
//!
//! **What can tear, what detects it.** A READ may sample the words of a bucket around and between stores of the owner. The
//! versions of any two states differ, so a mixture of two differs from both and its checksum fails but for one in 2^64. What
//! verifies is one state that the whole bucket had at some instant of the READ: so both places are seen at that instant,
//! and a pair that moves from one to the other cannot be missed, without a second pass.
//!
//! **A bucket of zeros was never written**, and is empty: so a new table need not be filled. No checksum is zero, so a READ that
//! found the checksum word zero sampled it before the first put to the bucket was done: at that instant the bucket was empty.

use crate::{Extent, Key};
use locus_memory::{Pointer, checksum_entry};

/// The length of a bucket in bytes: a cache line.
pub const BUCKET_BYTES: usize = 64;
/// How many pairs a bucket holds.
pub const PLACES: usize = 2;

const LENGTH_SHIFT: u32 = Pointer::BITS;
const LENGTH_BITS: u32 = 18;
const FULL: u64 = 1 << (LENGTH_SHIFT + LENGTH_BITS);

/// A place of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place([u64; 3]);

impl Place {
    pub(super) fn of(extent: Extent, key: &Key<'_>) -> Self {
        let units = (extent.bytes / Pointer::UNIT) as u64;
        debug_assert!(units >> LENGTH_BITS == 0);
        Self([extent.at.bits() | units << LENGTH_SHIFT | FULL, extent.checksum, key.fingerprint.into()])
    }

    /// The extent of the pair, if there is one.
    pub(super) fn extent(self) -> Option<Extent> {
        let [word, checksum, _] = self.0;
        let bytes = ((word >> LENGTH_SHIFT) & ((1 << LENGTH_BITS) - 1)) as usize * Pointer::UNIT;
        (word & FULL != 0).then(|| Extent { at: Pointer::from_bits(word), bytes, checksum })
    }

    /// The extent that may be this key's, by its fingerprint.
    pub(super) fn extent_of(self, key: &Key<'_>) -> Option<Extent> {
        self.extent().filter(|_| self.0[2] == u64::from(key.fingerprint))
    }
}

/// A bucket, decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) places: [Place; PLACES],
    pub(super) version: u64,
}

impl Bucket {
    fn words(&self) -> [u64; 7] {
        let [Place([a, b, c]), Place([d, e, f])] = self.places;
        [a, b, c, d, e, f, self.version]
    }

    /// The eight words to store at a location.
    pub(super) fn encode(&self, at: Pointer, epoch: u64) -> [u64; 8] {
        let words = self.words();
        let [a, b, c, d, e, f, g] = words;
        [a, b, c, d, e, f, g, checksum_entry(words, at, epoch)]
    }

    /// The bucket in these 64 bytes, and its checksum, which may not hold.
    pub(super) fn unverified(bytes: &[u8]) -> Option<(Self, u64)> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let words: &[[u8; 8]; 8] = words.try_into().ok()?;
        let [a, b, c, d, e, f, version, sum] = words.map(u64::from_le_bytes);
        Some((Self { places: [Place([a, b, c]), Place([d, e, f])], version }, sum))
    }

    pub(super) fn verifies(&self, sum: u64, at: Pointer, epoch: u64) -> bool {
        sum == checksum_entry(self.words(), at, epoch) || sum == 0 && *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use locus_memory::RegionId;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_of_zeros_verifies_anywhere_and_with_no_flipped_bit(offset in 0usize..1 << 32, epoch: u64, flip in 0usize..512) {
            let at = Pointer::new(RegionId::new(9).unwrap(), offset * BUCKET_BYTES % (1 << 32));
            let mut bytes = [0; BUCKET_BYTES];
            let (read, sum) = Bucket::unverified(&bytes).unwrap();
            prop_assert!(read == Bucket::default() && read.verifies(sum, at, epoch));
            bytes[flip / 8] ^= 1 << (flip % 8);
            let (read, sum) = Bucket::unverified(&bytes).unwrap();
            prop_assert!(!read.verifies(sum, at, epoch));
        }

        #[test]
        fn a_bucket_survives_encoding_and_no_flipped_bit_does(
            units in 1usize..1 << 18, offset in 0usize..1 << 32, sum: u64, version: u64, epoch: u64, flip in 0usize..512,
        ) {
            let region = RegionId::new(9).unwrap();
            let at = Pointer::new(region, 640);
            let key = Key::new(b"key", 1);
            let extent = Extent { at: Pointer::new(region, offset * 16), bytes: units * 16, checksum: sum };
            let bucket = Bucket { places: [Place::default(), Place::of(extent, &key)], version };
            let mut bytes: Vec<u8> = bucket.encode(at, epoch).iter().flat_map(|word| word.to_le_bytes()).collect();
            let (read, sum) = Bucket::unverified(&bytes).unwrap();
            prop_assert_eq!(read, bucket);
            prop_assert!(read.verifies(sum, at, epoch));
            prop_assert!(!read.verifies(sum, at.add(64), epoch) && !read.verifies(sum, at, epoch.wrapping_add(1)));
            prop_assert_eq!((read.places[0].extent(), read.places[1].extent_of(&key)), (None, Some(extent)));
            prop_assert_eq!(read.places[1].extent_of(&Key::new(b"other", 1)), None);
            bytes[flip / 8] ^= 1 << (flip % 8);
            let (read, sum) = Bucket::unverified(&bytes).unwrap();
            prop_assert!(!read.verifies(sum, at, epoch));
        }
    }
}
