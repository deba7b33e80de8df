//! The first try of a lookup, over memory that is read at once: a row, an extent, and done. It has no buffers and no
//! turns, so it takes about a third of the instructions of [`super::get`], and its steps can be taken for many keys side
//! by side, each step prefetching for the next (Kalia §4.1.1, the request pipeline of HERD).
//!
//! **Only a hit counts.** It is linearizable as it is in `lookup.rs`: the row verified and the extent is the one that it
//! points to. Whatever else is seen (no row with the fingerprint, a row that does not verify, a MOVED one, an extent that
//! was freed, another key of the same fingerprint) is no answer: [`super::get`] begins anew and decides. A row with
//! another fingerprint is therefore not even verified.
//!
//! Batches prefetch one row at a time, since the second and third are seldom needed and every prefetch of a place that
//! the TLB does not know costs a page walk; a lone lookup, with nothing to do meanwhile, prefetches all three.

use super::{ROW_BYTES, Row, Table, WAYS};
use crate::{Counters, Extent, Found, Key, counters::count, record::Record};
use locus_fabric::{Prefetch, Region};
use locus_memory::{Local, Memory, Pointer};
use std::ops::Range;

/// A key, and the rows in which it may be.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'k> {
    key: Key<'k>,
    rows: [Pointer; WAYS],
    epoch: u64,
    state: State,
}

/// Where an attempt is.
#[derive(Clone, Copy, Debug)]
enum State {
    /// At a row.
    Row,
    /// At an extent, which may be the key's.
    Extent(Extent),
    /// Given up.
    Over,
}

impl<'k> Attempt<'k> {
    /// Begins.
    #[inline(always)]
    pub fn begin(table: &Table, key: Key<'k>) -> Self {
        let rows = table.positions(&key).map(|row| table.row_at(row));
        Self { key, rows, epoch: table.epoch, state: State::Row }
    }

    /// What to prefetch before the row of a way is looked at.
    #[inline(always)]
    pub fn ahead<M: Memory>(&self, memory: &M, way: usize) -> Prefetch {
        memory.ahead(self.rows[way], ROW_BYTES)
    }

    /// Looks at the row of a way, unless the extent is known, and gives what to prefetch for what is read next. For ways
    /// 0, 1 and 2 in turn.
    #[inline(always)]
    pub fn step<M: Memory>(&mut self, memory: &M, way: usize, counters: &Counters) -> Prefetch {
        if !matches!(self.state, State::Row) {
            return Prefetch::NONE;
        }
        self.state = match self.glance(memory, way, counters) {
            State::Row if way + 1 == WAYS => State::Over,
            state => state,
        };
        match &self.state {
            State::Row => self.ahead(memory, way + 1),
            State::Extent(extent) => memory.ahead(extent.at, extent.bytes),
            State::Over => Prefetch::NONE,
        }
    }

    /// Looks at rows up to the first that may hold the key, without prefetching.
    #[inline(always)]
    pub fn find_extent<M: Memory>(&mut self, memory: &M, counters: &Counters) {
        for way in 0..WAYS {
            self.state = self.glance(memory, way, counters);
            if !matches!(self.state, State::Row) {
                return;
            }
        }
    }

    /// Reads a row.
    #[inline(always)]
    fn glance<M: Memory>(&self, memory: &M, way: usize, counters: &Counters) -> State {
        let at = self.rows[way];
        let mut bytes = [0; ROW_BYTES];
        if !memory.read_at_once(at, &mut bytes) {
            return State::Over;
        }
        count(&counters.rows_read);
        match Row::unverified(&bytes) {
            Some((row, _)) if !row.may_hold(&self.key) => State::Row,
            Some((row, sum)) if !M::TEARS || row.verifies(sum, at, self.epoch) => State::Extent(row.extent()),
            _ => {
                count(&counters.rows_unverified);
                State::Over
            }
        }
    }

    /// The extent, if it is known: to be prefetched before [`Attempt::value`].
    #[inline(always)]
    pub fn extent(&self) -> Option<&Extent> {
        match &self.state {
            State::Extent(extent) => Some(extent),
            State::Row | State::Over => None,
        }
    }

    /// Reads the extent into `into`, and says where in it the value is, if it is this key's.
    #[inline(always)]
    pub fn value<M: Memory>(&self, memory: &M, into: &mut [u8], counters: &Counters) -> Option<Range<usize>> {
        self.extent()?.read_at_once(memory, &self.key, into, counters)
    }

    /// The record, if it is this key's, where it lies in the owner's own memory.
    #[inline(always)]
    pub fn record<'m, R: Region>(&self, local: Local<'m, R>, counters: &Counters) -> Option<Found<&'m [u8]>> {
        let extent = *self.extent()?;
        let bytes = local.slice(extent.at, extent.bytes).ok()?;
        count(&counters.extents_read);
        let Record { key, value, version } = Record::parse(bytes)?;
        if key != self.key.bytes() {
            return None;
        }
        count(&counters.lookups);
        Some(Found { bytes, extent, value, version })
    }
}
