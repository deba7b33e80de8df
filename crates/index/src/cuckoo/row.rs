//! A row of the cuckoo table: 32 bytes, two to a cache line (Mitchell §3.3, Figure 3.3).
//!
//! | word | bits | what |
//! |---|---|---|
//! | 0 | 0..42 | pointer to the extent |
//! | 0 | 42..60 | length of the extent in units of 16 bytes |
//! | 0 | 60..62 | the way by which the occupant is here |
//! | 0 | 62..64 | state |
//! | 1 | 0..64 | checksum over the extent |
//! | 2 | 0..32 | version of the row |
//! | 2 | 32..64 | fingerprint of the key |
//! | 3 | 0..64 | checksum over words 0 to 2, the row's location and the table's epoch |
//!
//! **What can tear, what detects it.** A READ may sample the words of a row at different moments, around and between
//! stores of the owner. The versions differ between any two states of a row, so a mixture of two states differs from
//! both, and its checksum fails but for one in 2^64 (Mitchell Theorem 3.1). That they wrap does no harm: no READ lasts for 2^32 changes. A mixture that verifies is therefore one
//! state, and since the owner goes through states one after the other, that state was the row's at some instant of the READ.

use crate::{Extent, Key};
use locus_memory::{Pointer, checksum_row};
use locus_runtime::mistakes::{Mistake, planted};

/// The length of a row in bytes.
pub const ROW_BYTES: usize = 32;

/// The version that a row begins with: it goes on from zero after a few changes, where every test sees that, and not
/// after 2^32 of them, where none would.
pub(super) const FIRST_VERSION: u32 = u32::MAX - 2;

/// What a row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Empty,
    /// A record's extent.
    Full,
    /// Nothing any more, for good: what may have been here is to be sought in the next table.
    Moved,
}

/// A row, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row([u64; 3]);

const LENGTH_SHIFT: u32 = Pointer::BITS;
const LENGTH_BITS: u32 = 18;
const WAY_SHIFT: u32 = LENGTH_SHIFT + LENGTH_BITS;
const STATE_SHIFT: u32 = WAY_SHIFT + 2;

impl Row {
    /// A row that holds nothing.
    pub fn empty(version: u32) -> Self {
        Self([0, 0, version.into()])
    }

    /// A row whose content has gone to the next table.
    pub fn moved(version: u32) -> Self {
        Self([2 << STATE_SHIFT, 0, version.into()])
    }

    /// A row that holds a record.
    pub fn full(extent: Extent, way: usize, fingerprint: u32, version: u32) -> Self {
        let units = (extent.bytes / Pointer::UNIT) as u64;
        debug_assert!(units >> LENGTH_BITS == 0 && way < super::WAYS);
        Self([
            extent.at.bits() | units << LENGTH_SHIFT | (way as u64) << WAY_SHIFT | 1 << STATE_SHIFT,
            extent.checksum,
            u64::from(version) | u64::from(fingerprint) << 32,
        ])
    }

    /// The same occupant, here by another way.
    pub fn by_way(self, way: usize, version: u32) -> Self {
        Self::full(self.extent(), way, self.fingerprint(), version)
    }

    /// What it holds.
    #[inline]
    pub fn state(self) -> State {
        match self.0[0] >> STATE_SHIFT {
            0 => State::Empty,
            1 => State::Full,
            _ => State::Moved,
        }
    }

    /// The extent of a full row.
    #[inline]
    pub fn extent(self) -> Extent {
        Extent {
            at: Pointer::from_bits(self.0[0]),
            bytes: ((self.0[0] >> LENGTH_SHIFT) & ((1 << LENGTH_BITS) - 1)) as usize * Pointer::UNIT,
            checksum: self.0[1],
        }
    }

    /// By which way the occupant is here. A verified row has one of the three; any other bits count as the first.
    #[inline]
    pub fn way(self) -> usize {
        match (self.0[0] >> WAY_SHIFT) as usize & 3 {
            way if way < super::WAYS => way,
            _ => 0,
        }
    }

    /// How often the row has changed, modulo 2^32.
    #[inline]
    pub fn version(self) -> u32 {
        self.0[2] as u32
    }

    /// The version that its next state has.
    pub fn next_version(self) -> u32 {
        let next = self.version().wrapping_add(1);
        if planted(Mistake::NarrowRowVersion) { next & 1 } else { next }
    }

    /// The fingerprint of the occupant's key.
    #[inline]
    pub fn fingerprint(self) -> u32 {
        (self.0[2] >> 32) as u32
    }

    /// Whether the occupant may be this key, by its fingerprint.
    #[inline]
    pub fn may_hold(self, key: &Key<'_>) -> bool {
        self.state() == State::Full && self.fingerprint() == key.fingerprint
    }

    /// The four words to store at a location in a table.
    #[inline]
    pub fn encode(self, at: Pointer, epoch: u64) -> [u64; 4] {
        let [a, b, c] = self.0;
        [a, b, c, checksum_row(self.0, at, epoch)]
    }

    /// The row in these bytes, which must be 32, if it verifies.
    #[inline]
    pub fn decode(bytes: &[u8], at: Pointer, epoch: u64) -> Option<Self> {
        let (row, sum) = Self::unverified(bytes)?;
        row.verifies(sum, at, epoch).then_some(row)
    }

    /// The row in these 32 bytes and its checksum, which may not hold.
    #[inline]
    pub fn unverified(bytes: &[u8]) -> Option<(Self, u64)> {
        let ([a, b, c, sum], []) = bytes.as_chunks::<8>() else { return None };
        let [a, b, c, sum] = [a, b, c, sum].map(|bytes| u64::from_le_bytes(*bytes));
        Some((Self([a, b, c]), sum))
    }

    /// Whether this is the checksum of the row at a location of a table.
    #[inline]
    pub fn verifies(self, sum: u64, at: Pointer, epoch: u64) -> bool {
        sum == checksum_row(self.0, at, epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use locus_memory::RegionId;
    use proptest::prelude::*;

    fn bytes(words: [u64; 4]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    proptest! {
        #[test]
        fn a_row_survives_encoding_and_no_flipped_bit_does(
            offset in 0u64..1 << 32, units in 1usize..1 << 18, sum: u64, way in 0usize..3, fingerprint: u32, version: u32,
            epoch: u64, flip in 0usize..256,
        ) {
            let region = RegionId::new(1023).unwrap();
            let at = Pointer::new(region, 64);
            let extent = Extent { at: Pointer::new(region, offset as usize * 16), bytes: units * 16, checksum: sum };
            let row = Row::full(extent, way, fingerprint, version);
            let mut stored = bytes(row.encode(at, epoch));
            let read = Row::decode(&stored, at, epoch).unwrap();
            prop_assert_eq!(read, row);
            prop_assert_eq!((read.extent(), read.way(), read.fingerprint(), read.version(), read.state()),
                (extent, way, fingerprint, version, State::Full));
            prop_assert_eq!(Row::decode(&stored, at.add(32), epoch), None);
            prop_assert_eq!(Row::decode(&stored, at, epoch.wrapping_add(1)), None);
            stored[flip / 8] ^= 1 << (flip % 8);
            prop_assert_eq!(Row::decode(&stored, at, epoch), None);
        }
    }
}
