//! The hopscotch table (FaRM-KV, as Kalia §5.1.2 describes it): a key lies in a small neighbourhood behind its home, so that
//! one READ fetches all the places where it can be.
//!
//! * [`slot`]: what a slot holds, and its checksum;
//! * [`lookup`]: over any memory; [`mod@attempt`]: its first try, for memory that is read at once;
//! * [`place`]: the search for a free slot, and the displacements that bring it near;
//! * [`partition`]: puts and deletes; [`growth`]: to a larger table;
//! * [`shard`]: all partitions of a core.
//!
//! **Two homes.** With neighbourhoods of 6, the paper's, a table of one home per key cannot be filled beyond some 60%: where
//! by chance many homes lie close together, no displacement helps. FaRM chains blocks to such buckets, so that a key is in its
//! neighbourhood "with high probability" (§2.3). Here such a key goes to the neighbourhood of its second home, in the same table,
//! and the slot of its first home counts those that are away, so that nobody else looks there. When both neighbourhoods are
//! full, an occupant whose other neighbourhood has room goes there. Tables fill to more than 92%, and at 90% one key in twenty
//! is at its second home: 1.05 READs per get.

mod attempt;
mod growth;
mod lookup;
mod partition;
mod place;
mod shard;
mod slot;

pub use attempt::{Glance, attempt, glance};
pub use lookup::get;
pub use partition::Partition;
pub use shard::Shard;

use crate::{Key, cuckoo::Table};
use locus_memory::{Pointer, Purpose};
use slot::{CHECKSUM_BYTES, HEADER_BYTES, POINTER_SLOT_BYTES};

/// How many slots a neighbourhood has where nobody says otherwise (Kalia §5.1.2).
pub const NEIGHBOURHOOD: u32 = 6;
/// The largest neighbourhood: its distances take 4 bits.
pub const NEIGHBOURHOOD_MAX: u32 = 16;
/// The length of a slot with key and value where nobody says otherwise, in bytes: the paper means items below 128 bytes.
pub const INLINE_SLOT_BYTES: usize = 128;
/// The longest slot in bytes.
pub const INLINE_SLOT_BYTES_MAX: usize = 1024;
/// The fewest slots of a table with small neighbourhoods. The number is a power of two in all tables.
const SLOTS_MIN: u32 = 16;

/// What the slots of a store's hopscotch tables are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    slot_bytes: u32,
    neighbourhood: u32,
}

impl Shape {
    /// Slots that point to records, and so many of them to a neighbourhood; none where that is not possible.
    pub fn out_of_table(neighbourhood: u32) -> Option<Self> {
        let possible = (2..=NEIGHBOURHOOD_MAX).contains(&neighbourhood);
        possible.then_some(Self { slot_bytes: POINTER_SLOT_BYTES as u32, neighbourhood })
    }

    /// Slots of so many bytes with key and value in them: a power of two from 64 to [`INLINE_SLOT_BYTES_MAX`].
    pub fn inline_slots(neighbourhood: u32, slot_bytes: usize) -> Option<Self> {
        let possible = slot_bytes.is_power_of_two() && (64..=INLINE_SLOT_BYTES_MAX).contains(&slot_bytes);
        let shape = Self::out_of_table(neighbourhood).filter(|_| possible)?;
        Some(Self { slot_bytes: slot_bytes as u32, ..shape })
    }

    /// The length of a slot in bytes.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes as usize
    }

    /// How many slots a neighbourhood has.
    pub fn neighbourhood(&self) -> u32 {
        self.neighbourhood
    }

    /// Whether slots hold keys and values.
    #[inline]
    pub fn inline(&self) -> bool {
        self.slot_bytes as usize != POINTER_SLOT_BYTES
    }

    /// How long key and value of a slot may be together, in bytes.
    pub fn pair_bytes_max(&self) -> usize {
        self.slot_bytes() - HEADER_BYTES - CHECKSUM_BYTES
    }

    /// The length of a neighbourhood in bytes: that of a READ.
    #[inline]
    pub fn read_bytes(&self) -> usize {
        (self.slot_bytes * self.neighbourhood) as usize
    }

    /// The fewest slots of a table: neighbourhoods of different homes fit.
    fn slots_min(&self) -> u32 {
        (2 * self.neighbourhood).next_power_of_two().max(SLOTS_MIN)
    }

    /// The most slots of a table.
    fn slots_max(&self) -> usize {
        Purpose::Tables.bytes_max() / self.slot_bytes()
    }

    /// Where a slot is.
    #[inline]
    fn slot_at(&self, table: &Table, slot: u32) -> Pointer {
        table.at.add(slot as usize * self.slot_bytes())
    }

    /// Where the neighbourhood of a key's first home is.
    #[inline]
    pub fn first_at(&self, table: &Table, key: &Key<'_>) -> Pointer {
        self.slot_at(table, self.homes(table, key)[0])
    }

    /// The first slot of the neighbourhoods of a key's two homes, which differ. The last slots of a table are nobody's home.
    #[inline]
    fn homes(&self, table: &Table, key: &Key<'_>) -> [u32; 2] {
        let homes = table.rows.saturating_sub(self.neighbourhood - 1).max(2);
        let scale = |hash: u64, n: u32| ((u128::from(hash) * u128::from(n)) >> 64) as u32;
        let first = scale(key.spread, homes);
        // Other bits of the hash, mixed: the partition's are among them.
        let mixed =
            key.spread.rotate_left(32) ^ u64::from(key.fingerprint).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let second = first + 1 + scale(mixed.wrapping_mul(0xD6E8_FEB8_6659_FD93), homes - 1);
        [first, if second >= homes { second - homes } else { second }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_differ_and_neighbourhoods_end_with_the_table() {
        let shape = Shape::out_of_table(NEIGHBOURHOOD).unwrap();
        for rows in [shape.slots_min(), 64, 1 << 20] {
            let table = Table { at: Pointer::from_bits(0), rows, epoch: 1 };
            for number in 0u32..10_000 {
                let [first, second] = shape.homes(&table, &Key::new(&number.to_le_bytes(), 1));
                assert!(first != second && first.max(second) + NEIGHBOURHOOD <= rows);
            }
        }
    }

    #[test]
    fn impossible_shapes_are_none() {
        assert_eq!(Shape::out_of_table(1), None);
        assert_eq!(Shape::out_of_table(17), None);
        for bytes in [0, 32, 96, 2048] {
            assert_eq!(Shape::inline_slots(6, bytes), None, "{bytes}");
        }
        let shape = Shape::inline_slots(6, 128).unwrap();
        assert_eq!((shape.pair_bytes_max(), shape.read_bytes(), shape.inline()), (104, 768, true));
    }
}
