//! The search for a place for a key (Herlihy, Shavit, Tzafrir, "Hopscotch Hashing", DISC 2008), and how slots are stored.
//!
//! The first free slot behind the home is brought near: an occupant between, whose own neighbourhood reaches that far, goes
//! there, and leaves a free slot that is nearer, until it is in the neighbourhood. If that fails for both homes, an occupant of
//! one of the neighbourhoods goes to its own other home, if there is room.
//!
//! Each occupant is written to its new place before its old one is overwritten, so every key is in one or two slots at any
//! time, never in none. All moves are known to be possible before the first is made, and with the last of them the key is
//! stored over the place that became free: nothing may come in between, since that still holds a copy of who was there.

use super::{
    INLINE_SLOT_BYTES_MAX, Shape,
    slot::{AWAY_MAX, CHECKSUM_BYTES, Meta, Slot, State, sum_of},
};
use crate::{Key, Owner, counters::count, cuckoo::Table};
use locus_fabric::Region;
use locus_runtime::mistakes::{Mistake, planted};

/// How far behind a home a free slot is looked for.
const PROBES_MAX: u32 = 256;

/// A slot that may be overwritten, and the home under which the key goes there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) slot: u32,
    pub(super) distance: u32,
}

/// A table with what its slots are like.
#[derive(Clone, Copy)]
pub(super) struct Slots<'t> {
    pub(super) shape: &'t Shape,
    pub(super) table: &'t Table,
}

impl Slots<'_> {
    pub(super) fn slot<R: Region>(self, owner: &Owner<R>, slot: u32) -> Slot<'_> {
        Slot(owner.bytes(self.shape.slot_at(self.table, slot), self.shape.slot_bytes()))
    }

    fn meta<R: Region>(self, owner: &Owner<R>, slot: u32) -> Meta {
        self.slot(owner, slot).meta()
    }

    /// Stores a slot after everything stored before, for readers too; its version grows, and its count stays.
    pub(super) fn store<R: Region>(self, owner: &mut Owner<R>, slot: u32, content: Meta, parts: [&[u8]; 3]) {
        let old = self.meta(owner, slot);
        self.store_state(owner, slot, content.after(old, old.away()), parts);
    }

    fn store_state<R: Region>(self, owner: &mut Owner<R>, slot: u32, state: Meta, parts: [&[u8]; 3]) {
        let at = self.shape.slot_at(self.table, slot);
        let [first, second, third] = parts;
        let mut writer = owner.arena.writer();
        writer.release();
        writer.store_bytes(at, &[&state.0.to_le_bytes(), first, second, third]);
        self.sign(owner, slot);
    }

    /// Stores the checksum over what a slot holds.
    fn sign<R: Region>(self, owner: &mut Owner<R>, slot: u32) {
        let at = self.shape.slot_at(self.table, slot);
        let body = self.shape.slot_bytes() - CHECKSUM_BYTES;
        let sum = sum_of(owner.bytes(at, body), at, self.table.epoch);
        owner.arena.writer().store_word(at, body / 8, sum);
    }

    /// Changes the first word of a slot only.
    pub(super) fn store_meta<R: Region>(self, owner: &mut Owner<R>, slot: u32, state: Meta) {
        let at = self.shape.slot_at(self.table, slot);
        let mut writer = owner.arena.writer();
        writer.release();
        writer.store_word(at, 0, state.0);
        self.sign(owner, slot);
    }

    /// Makes a slot empty.
    pub(super) fn clear<R: Region>(self, owner: &mut Owner<R>, slot: u32) {
        let old = self.meta(owner, slot);
        self.store_meta(owner, slot, Meta::EMPTY.after(old, old.away()));
    }

    /// Counts one key more, or less, that is at its second home.
    pub(super) fn count_away<R: Region>(self, owner: &mut Owner<R>, home: u32, more: bool) {
        let old = self.meta(owner, home);
        let away = if more { old.away() + 1 } else { old.away() - 1 };
        self.store_meta(owner, home, old.after(old, away));
    }

    /// Makes an empty slot out of any bytes.
    pub(super) fn prepare<R: Region>(self, owner: &mut Owner<R>, slot: u32) {
        let at = self.shape.slot_at(self.table, slot);
        owner.arena.writer().fill(at, self.shape.slot_bytes(), 0);
        self.sign(owner, slot);
    }

    /// Copies an occupant to another slot of this or another table.
    pub(super) fn copy<R: Region>(self, owner: &mut Owner<R>, slot: u32, to: Slots<'_>, place: Place) {
        let mut body = [0; INLINE_SLOT_BYTES_MAX];
        let bytes = self.shape.slot_bytes();
        let body = &mut body[..bytes - 8 - CHECKSUM_BYTES];
        let from = self.slot(owner, slot);
        let meta = from.meta().with_distance(place.distance);
        body.copy_from_slice(&from.0[8..bytes - CHECKSUM_BYTES]);
        to.store(owner, place.slot, meta, [body, &[], &[]]);
    }

    /// Looks for a free slot near enough, and whether displacements bring it into the neighbourhood; makes them if told to.
    /// Leaves one slot where it is.
    fn hop<R: Region>(self, owner: &mut Owner<R>, home: u32, avoid: Option<u32>, make: bool) -> Option<u32> {
        let (reach, end) = (self.shape.neighbourhood, self.table.rows.min(home + PROBES_MAX));
        let mut free = (home..end).find(|&slot| self.meta(owner, slot).state() == State::Empty)?;
        while free - home >= reach {
            let near = free + 1 - reach..free;
            let fits = |&slot: &u32| {
                let from = slot - self.meta(owner, slot).distance();
                free - from < reach && Some(slot) != avoid
            };
            let slot = near.into_iter().find(fits)?;
            if make {
                let distance = free - (slot - self.meta(owner, slot).distance());
                count(&owner.counters.displacements);
                self.relocate(owner, slot, Place { slot: free, distance });
            }
            free = slot;
        }
        Some(free)
    }

    /// Moves an occupant. What it leaves is to be overwritten.
    fn relocate<R: Region>(self, owner: &mut Owner<R>, slot: u32, place: Place) {
        if planted(Mistake::DisplacementClearsFirst) {
            let mut bytes = [0; INLINE_SLOT_BYTES_MAX];
            let from = self.slot(owner, slot);
            let (meta, length) = (from.meta().with_distance(place.distance), from.0.len());
            bytes[..length].copy_from_slice(from.0);
            self.clear(owner, slot);
            self.store(owner, place.slot, meta, [&bytes[8..length - CHECKSUM_BYTES], &[], &[]]);
            return;
        }
        self.copy(owner, slot, self, place);
    }

    /// Makes room for a key with these homes and counts it where it must be. None if there is no room. What the place
    /// holds is to be overwritten at once.
    pub(super) fn make_room<R: Region>(self, owner: &mut Owner<R>, homes: [u32; 2]) -> Option<Place> {
        let at = |home: u32, slot: u32| Place { slot, distance: slot - home };
        if self.hop(owner, homes[0], None, false).is_some() {
            return self.hop(owner, homes[0], None, true).map(|slot| at(homes[0], slot));
        }
        // One of those that go away for it may have the same home.
        let may_be_away = self.meta(owner, homes[0]).away() + 1 < AWAY_MAX;
        if may_be_away && self.hop(owner, homes[1], None, false).is_some() {
            self.count_away(owner, homes[0], true);
            return self.hop(owner, homes[1], None, true).map(|slot| at(homes[1], slot));
        }
        let ways = if may_be_away { 2 } else { 1 };
        for (way, home) in homes.into_iter().take(ways).enumerate() {
            for slot in home..home + self.shape.neighbourhood {
                if self.send_away(owner, slot) {
                    if way == 1 {
                        self.count_away(owner, homes[0], true);
                    }
                    return Some(at(home, slot));
                }
            }
        }
        None
    }

    /// Moves an occupant to its other home, if there is room.
    fn send_away<R: Region>(self, owner: &mut Owner<R>, slot: u32) -> bool {
        let meta = self.meta(owner, slot);
        let homes = self.shape.homes(self.table, &self.key(owner, slot));
        let to_second = slot - meta.distance() == homes[0];
        let to = homes[usize::from(to_second)];
        let counted = !to_second || self.meta(owner, homes[0]).away() < AWAY_MAX;
        if !counted || self.hop(owner, to, Some(slot), false).is_none() {
            return false;
        }
        if to_second {
            self.count_away(owner, homes[0], true);
        }
        let Some(free) = self.hop(owner, to, Some(slot), true) else { unreachable!("there was one") };
        self.relocate(owner, slot, Place { slot: free, distance: free - to });
        count(&owner.counters.kick_outs);
        if !to_second {
            // Until it is gone from there it must be counted.
            self.clear(owner, slot);
            self.count_away(owner, homes[0], false);
        }
        true
    }

    /// The key of an occupant.
    pub(super) fn key<R: Region>(self, owner: &Owner<R>, slot: u32) -> Key<'_> {
        let slot = self.slot(owner, slot);
        match slot.record().filter(|_| self.shape.inline()) {
            Some((key, ..)) => Key::new(key, owner.seed),
            None => owner.key_at(slot.extent()),
        }
    }
}
