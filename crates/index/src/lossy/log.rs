//! The circular log: items one behind the other, the newest over the oldest (MICA as in Kalia §4.1: FIFO).
//!
//! Positions count units of 16 bytes since the beginning and never go back; where an item lies is its position modulo the
//! log's length. An item lies in one piece: where the rest of the log before its end is too short, that is skipped, under a
//! mark that says so. The items that are there are those from `head` to `tail`.

use crate::{
    KEY_BYTES_MAX, Key, Owner,
    counters::count,
    record::{self, HEADER_BYTES, record_bytes},
};
use locus_fabric::Region;
use locus_memory::{Pointer, RegionId};

/// How many bits of a position an entry of the index has.
pub(super) const POSITION_BITS: u32 = 44;
const UNIT: usize = Pointer::UNIT;

/// A log, which is a region of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log {
    at: Pointer,
    /// Its length, in units.
    units: u64,
    /// The position of the oldest item, or of a mark before it.
    head: u64,
    /// The position that the next item gets, if it fits there.
    tail: u64,
}

impl Log {
    /// All of a region. Positions begin one round late, so that none is in a round before the first.
    pub(super) fn new(region: RegionId, bytes: usize) -> Self {
        let units = (bytes / UNIT) as u64;
        Self { at: Pointer::new(region, 0), units, head: units, tail: units }
    }

    /// How long an item may be, in bytes. Half of the log, so that skipping its end never costs the rest.
    pub(super) fn item_bytes_max(&self) -> usize {
        self.units as usize / 2 * UNIT
    }

    pub(super) fn bytes(&self) -> u64 {
        self.units * UNIT as u64
    }

    fn offset(&self, position: u64) -> usize {
        (position % self.units) as usize * UNIT
    }

    /// Where an item is, if it was not overwritten, and how many bytes the log has from there on; by the lower bits of its
    /// position.
    #[inline]
    pub(super) fn find(&self, position: u64) -> Option<(Pointer, usize)> {
        let age = self.age(position);
        // The newest item is one unit old at least.
        if age == 0 || age > self.tail - self.head {
            return None;
        }
        let offset = self.offset(self.tail - age);
        Some((self.at.add(offset), self.units as usize * UNIT - offset))
    }

    /// How many units lie between a position, by its lower bits, and the tail.
    #[inline]
    pub(super) fn age(&self, position: u64) -> u64 {
        self.tail.wrapping_sub(position) & ((1 << POSITION_BITS) - 1)
    }

    /// Appends an item, over the oldest ones. Gives its position. Its length was checked.
    pub(super) fn append<R: Region>(
        &mut self,
        owner: &mut Owner<R>,
        version: u64,
        key: &Key<'_>,
        value: &[u8],
    ) -> u64 {
        let bytes = record_bytes(key.bytes().len(), value.len());
        let units = (bytes / UNIT) as u64;
        let rest = self.units - self.tail % self.units;
        if rest < units {
            self.make_room(owner, rest);
            let mark = self.at.add(self.offset(self.tail));
            owner.arena.writer().store_words(mark, &[0, 0]);
            self.tail += rest;
        }
        self.make_room(owner, units);
        let position = self.tail;
        let header = record::header(version, key.bytes().len(), value.len());
        let at = self.at.add(self.offset(position));
        owner.arena.writer().store_bytes(at, &[&header, key.bytes(), value]);
        self.tail += units;
        position
    }

    /// Gives up the oldest items until so many units behind the tail are free.
    fn make_room<R: Region>(&mut self, owner: &Owner<R>, units: u64) {
        while self.tail + units - self.head > self.units {
            let rest = self.units - self.head % self.units;
            let at = self.at.add(self.offset(self.head));
            match item_units(owner.bytes(at, UNIT)) {
                Some(units) => {
                    count(&owner.counters.log_overwrites);
                    self.head += units;
                }
                None => self.head += rest,
            }
        }
    }
}

/// How long the item with this beginning is; none for the mark before the log's end.
fn item_units(beginning: &[u8]) -> Option<u64> {
    const _: () = assert!(HEADER_BYTES >= UNIT && KEY_BYTES_MAX <= u16::MAX as usize);
    let value = u32::from_le_bytes(beginning[8..12].try_into().expect("4 bytes")) as usize;
    let key = usize::from(u16::from_le_bytes([beginning[12], beginning[13]]));
    (key > 0).then(|| (record_bytes(key, value) / UNIT) as u64)
}
