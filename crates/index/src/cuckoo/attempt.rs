//! The first try of a lookup, over memory that is read at once: a row, an extent, and done. It has no buffers and no
//! turns, so it takes about a third of the instructions of [`super::get`], and its steps can be taken for many keys side
//! by side, each step prefetching for the next.
//!
//! **Only a hit counts.** It is linearizable as it is in `lookup.rs`: the row verified and the extent is the one that it
//! points to. Whatever else is seen (no row with the fingerprint, a row that does not verify, a MOVED one, an extent that
//! was freed, another key of the same fingerprint) is no answer: [`super::get`] begins anew and decides. A row with
//! another fingerprint is therefore not even verified.

use super::{ROW_BYTES, Row, Table, WAYS};
use crate::{Counters, Extent, Key, counters::count, record::Record};
use locus_memory::{Memory, Pointer, checksum};
use std::ops::Range;

/// The rows of a table in which a key may be.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    rows: [Pointer; WAYS],
    epoch: u64,
}

impl Attempt {
    /// Begins, and prefetches the rows.
    #[inline(always)]
    pub fn begin<M: Memory>(memory: &M, table: &Table, key: &Key<'_>) -> Self {
        let rows = table.positions(key).map(|row| table.row_at(row));
        for at in rows {
            memory.prefetch(at, ROW_BYTES);
        }
        Self { rows, epoch: table.epoch }
    }

    /// Reads rows up to the first that may hold the key, and gives its extent.
    #[inline(always)]
    pub fn extent<M: Memory>(&self, memory: &M, key: &Key<'_>, counters: &Counters) -> Option<Extent> {
        for at in self.rows {
            let mut bytes = [0; ROW_BYTES];
            if !memory.read_at_once(at, &mut bytes) {
                return None;
            }
            count(&counters.rows_read);
            let (row, sum) = Row::unverified(&bytes)?;
            if row.may_hold(key) {
                if row.verifies(sum, at, self.epoch) {
                    return Some(row.extent());
                }
                count(&counters.rows_unverified);
                return None;
            }
        }
        None
    }

    /// Reads the extent into `into`, and says where in it the value is, if it is this key's.
    #[inline(always)]
    pub fn value<M: Memory>(
        memory: &M,
        extent: &Extent,
        key: &Key<'_>,
        into: &mut [u8],
        counters: &Counters,
    ) -> Option<Range<usize>> {
        let bytes = into.get_mut(..extent.bytes)?;
        if !memory.read_at_once(extent.at, bytes) {
            return None;
        }
        count(&counters.extents_read);
        if checksum(bytes) != extent.checksum {
            count(&counters.extents_unverified);
            return None;
        }
        let record = Record::parse(bytes)?;
        (record.key == key.bytes()).then_some(record.value)
    }
}
