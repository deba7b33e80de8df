//! The first try of a lookup, over memory that is read at once: a neighbourhood, out of table a record, and done. Only a hit
//! counts, and is linearizable as in `lookup.rs`; whatever else is seen, [`super::get`] begins anew and decides.
//!
//! A get alone takes both steps at once ([`attempt`]); those of a batch take them side by side, so that each can prefetch for the
//! next.

use super::{Shape, slot::Slot};
use crate::{Counters, Extent, Key, counters::count, cuckoo::Table};
use locus_memory::Memory;
use std::ops::Range;

/// What the slot of a key says, where its neighbourhood was read.
#[derive(Clone, Debug)]
pub enum Glance {
    /// The value is in the neighbourhood, here.
    Value(Range<usize>),
    /// The record is there, if the key is its: see [`Extent::read_at_once`].
    Record(Extent),
}

/// Both steps: reads into `into`, which must hold a neighbourhood, and says where in it the value is, if the key was found.
#[inline]
pub fn attempt<M: Memory>(
    memory: &M,
    shape: &Shape,
    table: &Table,
    key: &Key<'_>,
    into: &mut [u8],
    counters: &Counters,
) -> Option<Range<usize>> {
    memory.prefetch(shape.first_at(table, key), shape.read_bytes());
    match glance(memory, shape, table, key, into, counters)? {
        Glance::Value(value) => Some(value),
        Glance::Record(extent) => extent.read_at_once(memory, key, into, counters),
    }
}

/// Reads the neighbourhood of a key, and that of its second home if keys are there, into `into`, which must hold one.
#[inline]
pub fn glance<M: Memory>(
    memory: &M,
    shape: &Shape,
    table: &Table,
    key: &Key<'_>,
    into: &mut [u8],
    counters: &Counters,
) -> Option<Glance> {
    for home in shape.homes(table, key) {
        let bytes = into.get_mut(..shape.read_bytes())?;
        if !memory.read_at_once(shape.slot_at(table, home), bytes) {
            return None;
        }
        count(&counters.rows_read);
        let bytes = &*bytes;
        let mut slots = bytes.chunks_exact(shape.slot_bytes()).map(Slot).enumerate();
        if let Some((index, slot)) = slots.find(|(_, slot)| slot.may_hold(shape, key)) {
            if M::TEARS && !slot.verifies(shape.slot_at(table, home + index as u32), table.epoch) {
                count(&counters.rows_unverified);
                return None;
            }
            if !shape.inline() {
                return Some(Glance::Record(slot.extent()));
            }
            count(&counters.lookups);
            let (_, value, _) = slot.record()?;
            let start = index * shape.slot_bytes();
            return Some(Glance::Value(start + value.start..start + value.end));
        }
        if Slot(bytes).meta().away() == 0 {
            return None;
        }
    }
    None
}
