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

/// What a row had to say.
#[derive(Clone, Copy, Debug)]
pub enum Glance {
    /// The key's record may be here.
    Candidate(Extent),
    /// Something else is in it.
    Other,
    /// The attempt is over.
    Unclear,
}

impl Attempt {
    /// Begins.
    #[inline(always)]
    pub fn begin(table: &Table, key: &Key<'_>) -> Self {
        Self { rows: table.positions(key).map(|row| table.row_at(row)), epoch: table.epoch }
    }

    /// Prefetches the row of a way.
    #[inline(always)]
    pub fn prefetch<M: Memory>(&self, memory: &M, way: usize) {
        memory.prefetch(self.rows[way], ROW_BYTES);
    }

    /// Reads the row of a way.
    #[inline(always)]
    pub fn glance<M: Memory>(&self, memory: &M, way: usize, key: &Key<'_>, counters: &Counters) -> Glance {
        let at = self.rows[way];
        let mut bytes = [0; ROW_BYTES];
        if !memory.read_at_once(at, &mut bytes) {
            return Glance::Unclear;
        }
        count(&counters.rows_read);
        match Row::unverified(&bytes) {
            Some((row, _)) if !row.may_hold(key) => Glance::Other,
            Some((row, sum)) if row.verifies(sum, at, self.epoch) => Glance::Candidate(row.extent()),
            _ => {
                count(&counters.rows_unverified);
                Glance::Unclear
            }
        }
    }

    /// Reads rows up to the first that may hold the key, and gives its extent.
    #[inline(always)]
    pub fn extent<M: Memory>(&self, memory: &M, key: &Key<'_>, counters: &Counters) -> Option<Extent> {
        for way in 0..WAYS {
            match self.glance(memory, way, key, counters) {
                Glance::Candidate(extent) => return Some(extent),
                Glance::Other => {}
                Glance::Unclear => return None,
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
