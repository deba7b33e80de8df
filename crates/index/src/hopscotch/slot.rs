//! A slot of the hopscotch table: 32 bytes with a pointer (out of table), or a power of two of more with key and value
//! (inline).
//!
//! | word | bits | what |
//! |---|---|---|
//! | 0 | 0..32 | version of the slot |
//! | 0 | 32..34 | state |
//! | 0 | 34..38 | how far the occupant is from the home by which it is here |
//! | 0 | 38..42 | how many keys whose first home is this slot are at their second |
//! | 0 | 42..64 | out of table: part of the fingerprint of the key; inline: the lengths of key and value, 11 bits each |
//! | 1 | 0..64 | out of table: pointer (42 bits) and length in units of 16 bytes (18 bits) of the extent; inline: version of the record |
//! | 2.. | | out of table: the checksum over the extent; inline: the key, then the value, then zeroes |
//! | last | | checksum over the words before, the slot's location and the table's epoch |
//!
//! **What can tear, what detects it**: the same as in a row of the cuckoo table (`cuckoo/row.rs`). The versions of any two states
//! differ, so the checksum of a mixture fails, but for one in 2^64; and what verifies is one state that the slot had at some
//! instant of the READ. It fails in any other place, and in any other table: slots of all tables of a server lie at multiples
//! of their length, so that what users put into one is never taken for another.

use super::Shape;
use crate::{Extent, Key};
use locus_memory::{Pointer, checksum_row, checksum_slot};
use std::ops::Range;

/// The length of a slot that points to a record.
pub(super) const POINTER_SLOT_BYTES: usize = 32;
/// What precedes key and value in a slot.
pub(super) const HEADER_BYTES: usize = 16;
/// What follows them.
pub(super) const CHECKSUM_BYTES: usize = 8;

const STATE_SHIFT: u32 = 32;
const DISTANCE_SHIFT: u32 = 34;
const AWAY_SHIFT: u32 = 38;
const KIND_SHIFT: u32 = 42;
/// How many keys a slot can count that are at their second home.
pub(super) const AWAY_MAX: u32 = 15;
const LENGTH_BITS: u32 = 11;
const FINGERPRINT_BITS: u32 = 22;

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Empty,
    /// A key.
    Full,
    /// Nothing any more, for good: what may have been here is to be sought in the next table.
    Moved,
}

/// The first word of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta(pub(super) u64);

impl Meta {
    pub(super) const EMPTY: Self = Self(0);

    pub(super) fn inline(distance: u32, key: usize, value: usize) -> Self {
        debug_assert!(key >> LENGTH_BITS == 0 && value >> LENGTH_BITS == 0);
        let lengths = (key | value << LENGTH_BITS) as u64;
        Self(1 << STATE_SHIFT | u64::from(distance) << DISTANCE_SHIFT | lengths << KIND_SHIFT)
    }

    pub(super) fn pointing(distance: u32, key: &Key<'_>) -> Self {
        let fingerprint = u64::from(key.fingerprint) >> (32 - FINGERPRINT_BITS);
        Self(1 << STATE_SHIFT | u64::from(distance) << DISTANCE_SHIFT | fingerprint << KIND_SHIFT)
    }

    pub(super) fn state(self) -> State {
        match (self.0 >> STATE_SHIFT) & 3 {
            0 => State::Empty,
            1 => State::Full,
            _ => State::Moved,
        }
    }

    pub(super) fn moved(self) -> Self {
        Self(self.0 & (0xf << AWAY_SHIFT | u64::from(u32::MAX)) | 2 << STATE_SHIFT)
    }

    pub(super) fn version(self) -> u32 {
        self.0 as u32
    }

    pub(super) fn distance(self) -> u32 {
        (self.0 >> DISTANCE_SHIFT) as u32 & 15
    }

    pub(super) fn with_distance(self, distance: u32) -> Self {
        Self(self.0 & !(15 << DISTANCE_SHIFT) | u64::from(distance) << DISTANCE_SHIFT)
    }

    /// How many keys whose first home this is are at their second.
    pub(super) fn away(self) -> u32 {
        (self.0 >> AWAY_SHIFT) as u32 & AWAY_MAX
    }

    /// The next state of a slot: this content in the place of `old`. The count stays with the place.
    pub(super) fn after(self, old: Self, away: u32) -> Self {
        let content = self.0 & !(u64::from(AWAY_MAX) << AWAY_SHIFT) & !u64::from(u32::MAX);
        Self(content | u64::from(away) << AWAY_SHIFT | u64::from(old.version().wrapping_add(1)))
    }

    /// Where in a slot of this length key and value are, if the lengths fit.
    fn ranges(self, slot_bytes: usize) -> Option<(Range<usize>, Range<usize>)> {
        let mask = (1 << LENGTH_BITS) - 1;
        let (key, value) = ((self.0 >> KIND_SHIFT) & mask, (self.0 >> (KIND_SHIFT + LENGTH_BITS)) & mask);
        let key_end = HEADER_BYTES + key as usize;
        let value_end = key_end + value as usize;
        (value_end <= slot_bytes - CHECKSUM_BYTES).then_some((HEADER_BYTES..key_end, key_end..value_end))
    }

    fn may_point_to(self, key: &Key<'_>) -> bool {
        self.0 >> KIND_SHIFT == u64::from(key.fingerprint) >> (32 - FINGERPRINT_BITS)
    }
}

/// The bytes of a slot, as they were read.
#[derive(Clone, Copy)]
pub(super) struct Slot<'b>(pub(super) &'b [u8]);

impl<'b> Slot<'b> {
    pub(super) fn word(self, index: usize) -> u64 {
        u64::from_le_bytes(self.0.as_chunks::<8>().0[index])
    }

    pub(super) fn meta(self) -> Meta {
        Meta(self.word(0))
    }

    /// Whether the slot is one state that it had at this location.
    pub(super) fn verifies(self, at: Pointer, epoch: u64) -> bool {
        let Some((body, sum)) = self.0.split_last_chunk::<8>() else { return false };
        u64::from_le_bytes(*sum) == sum_of(body, at, epoch)
    }

    /// Key, place of the value, and version of the record that is in the slot, if it is inline.
    pub(super) fn record(self) -> Option<(&'b [u8], Range<usize>, u64)> {
        let (key, value) = self.meta().ranges(self.0.len())?;
        Some((&self.0[key], value, self.word(1)))
    }

    /// The extent that the slot points to.
    pub(super) fn extent(self) -> Extent {
        let word = self.word(1);
        Extent {
            at: Pointer::from_bits(word),
            bytes: ((word >> Pointer::BITS) & ((1 << 18) - 1)) as usize * Pointer::UNIT,
            checksum: self.word(2),
        }
    }

    /// Whether the slot may hold a key: for inline slots, whether it does.
    pub(super) fn may_hold(self, shape: &Shape, key: &Key<'_>) -> bool {
        if self.meta().state() != State::Full {
            return false;
        }
        if shape.inline() {
            self.record().is_some_and(|(its, ..)| its == key.bytes())
        } else {
            self.meta().may_point_to(key)
        }
    }
}

/// The second word of a slot that points to an extent.
pub(super) fn pointer_word(extent: Extent) -> u64 {
    extent.at.bits() | ((extent.bytes / Pointer::UNIT) as u64) << Pointer::BITS
}

/// The checksum of a slot's words but the last.
#[inline]
pub(super) fn sum_of(body: &[u8], at: Pointer, epoch: u64) -> u64 {
    match body.as_chunks::<8>() {
        ([a, b, c], []) => checksum_row([*a, *b, *c].map(u64::from_le_bytes), at, epoch),
        _ => checksum_slot(body, at, epoch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_word_tells_what_it_was_made_of() {
        let key = Key::new(b"key", 3);
        for meta in [Meta::inline(5, 3, 2000), Meta::pointing(5, &key)] {
            assert_eq!((meta.state(), meta.distance(), meta.away(), meta.version()), (State::Full, 5, 0, 0));
            let next = meta.with_distance(2).after(Meta(u64::from(u32::MAX)), 15);
            assert_eq!((next.state(), next.distance(), next.away(), next.version()), (State::Full, 2, 15, 0));
            let moved = next.moved().after(next, next.away());
            assert_eq!((moved.state(), moved.away(), moved.version()), (State::Moved, 15, 1));
            assert_eq!(next.0 >> KIND_SHIFT, meta.0 >> KIND_SHIFT);
        }
        assert_eq!(Meta::inline(0, 3, 5).ranges(128), Some((16..19, 19..24)));
        assert_eq!(Meta::inline(0, 50, 54).ranges(128), Some((16..66, 66..120)));
        assert_eq!(Meta::inline(0, 50, 55).ranges(128), None);
        assert!(Meta::pointing(0, &key).may_point_to(&key));
    }
}
