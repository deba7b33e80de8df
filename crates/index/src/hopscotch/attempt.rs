//! The first try of a lookup, over memory that is read at once: a neighbourhood, and done. Only a hit counts, and is
//! linearizable as in `lookup.rs`; whatever else is seen, [`super::get`] begins anew and decides.

use super::{Shape, slot::Slot};
use crate::{Counters, Key, counters::count, cuckoo::Table, record::Record};
use locus_memory::{Memory, checksum};
use std::ops::Range;

/// Reads into `into`, which must hold a neighbourhood, and says where in it the value is, if the key was found.
#[inline]
pub fn attempt<M: Memory>(
    memory: &M,
    shape: &Shape,
    table: &Table,
    key: &Key<'_>,
    into: &mut [u8],
    counters: &Counters,
) -> Option<Range<usize>> {
    let homes = shape.homes(table, key);
    memory.prefetch(shape.slot_at(table, homes[0]), shape.read_bytes());
    for home in homes {
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
            if shape.inline() {
                count(&counters.lookups);
                let (_, value, _) = slot.record()?;
                let start = index * shape.slot_bytes();
                return Some(start + value.start..start + value.end);
            }
            let extent = slot.extent();
            let bytes = into.get_mut(..extent.bytes)?;
            if !memory.read_at_once(extent.at, bytes) {
                return None;
            }
            count(&counters.extents_read);
            if M::TEARS && checksum(bytes) != extent.checksum {
                count(&counters.extents_unverified);
                return None;
            }
            let record = Record::parse(bytes).filter(|record| record.key == key.bytes())?;
            count(&counters.lookups);
            return Some(record.value);
        }
        if Slot(bytes).meta().away() == 0 {
            return None;
        }
    }
    None
}
