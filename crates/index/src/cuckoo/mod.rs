//! The self-verifying cuckoo table (Mitchell chapter 3): three possible rows for every key, one key in every row.
//!
//! * [`row`]: a row of 32 bytes, verified by a checksum over its content, its location and its table's epoch;
//! * [`lookup`]: Algorithm 1, over any memory; [`attempt`]: its first try, for memory that is read at once;
//! * [`partition`]: Algorithm 2 and deletes, by the owner;
//! * [`kick_out`]: the search for a free row and the chain of moves that makes it usable;
//! * [`growth`]: to a larger table, row by row, under readers;
//! * [`shard`]: all partitions of a core.

mod attempt;
mod growth;
pub(crate) mod kick_out;
mod lookup;
mod partition;
mod row;
mod shard;

pub use attempt::Attempt;
pub use lookup::get;
pub use partition::Partition;
pub use row::{ROW_BYTES, Row, State};
pub use shard::Shard;

use crate::Key;
use locus_memory::Pointer;

/// How many rows a key may be in (Mitchell §3.4: 3 gives the best fill for few probes).
pub const WAYS: usize = 3;
/// The smallest table in rows.
pub const ROWS_MIN: usize = 8;
/// The largest table in rows: 256 MiB.
pub const ROWS_MAX: usize = 1 << 23;

/// A table: rows side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its first row.
    pub at: Pointer,
    /// How many rows it has.
    pub rows: u32,
    /// Part of every row's checksum; no other table of the server ever has the same.
    pub epoch: u64,
}

/// The tables of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// The table; none before the first put.
    pub current: Option<Table>,
    /// While the partition grows: where the rows marked MOVED have gone.
    pub next: Option<Table>,
}

impl Table {
    /// No table: it has no rows.
    pub const NONE: Self = Self { at: Pointer::from_bits(0), rows: 0, epoch: 0 };

    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.rows as usize * ROW_BYTES
    }

    /// Where a row is.
    #[inline]
    pub fn row_at(&self, row: u32) -> Pointer {
        self.at.add(row as usize * ROW_BYTES)
    }

    /// The rows that a key may be in, by way.
    #[inline]
    pub fn positions(&self, key: &Key<'_>) -> [u32; WAYS] {
        let first = scale(key.spread, self.rows);
        let [second, third] = offsets(key.fingerprint, self.rows);
        [first, wrapped(first, second, self.rows), wrapped(first, third, self.rows)]
    }

    /// The rows that the occupant of `row` may be in, from its fingerprint and the way by which it is there: a kick-out
    /// need not look at the occupant's key.
    fn positions_of(&self, row: u32, way: usize, fingerprint: u32) -> [u32; WAYS] {
        let [second, third] = offsets(fingerprint, self.rows);
        let back = [0, second, third][way];
        let first = if row >= back { row - back } else { row + self.rows - back };
        [first, wrapped(first, second, self.rows), wrapped(first, third, self.rows)]
    }
}

/// Spreads a hash over `0..n` by its upper bits.
#[inline]
fn scale(hash: u64, n: u32) -> u32 {
    ((u128::from(hash) * u128::from(n)) >> 64) as u32
}

#[inline]
fn wrapped(row: u32, offset: u32, rows: u32) -> u32 {
    let sum = row + offset;
    if sum >= rows { sum - rows } else { sum }
}

/// How far the second and third row are from the first: different from zero and from each other, so that a key has three
/// rows in the smallest table too. Rows at offsets chosen by a hash are as good as rows chosen by independent hashes.
#[inline]
fn offsets(fingerprint: u32, rows: u32) -> [u32; 2] {
    let mixed = u64::from(fingerprint).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (high, low) = (mixed >> 32, mixed.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32);
    let second = 1 + ((high * u64::from(rows - 1)) >> 32) as u32;
    let third = 1 + ((low * u64::from(rows - 2)) >> 32) as u32;
    [second, third + u32::from(third >= second)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use locus_memory::RegionId;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn positions_are_three_and_any_of_them_gives_all(
            key in prop::collection::vec(any::<u8>(), 1..40), rows in ROWS_MIN as u32..100_000,
        ) {
            let table = Table { at: Pointer::new(RegionId::new(0).unwrap(), 0), rows, epoch: 1 };
            let key = Key::new(&key, 5);
            let positions = table.positions(&key);
            prop_assert!(positions.iter().all(|&row| row < rows));
            prop_assert!(positions[0] != positions[1] && positions[1] != positions[2] && positions[0] != positions[2]);
            for way in 0..WAYS {
                prop_assert_eq!(table.positions_of(positions[way], way, key.fingerprint), positions);
            }
        }
    }
}
