//! Growth of a partition's table under readers and writers, as in `cuckoo/growth.rs`.
//!
//! A small table is rebuilt at once when a key finds no room: the larger one is filled while nobody knows of it, published in
//! the directory, and then every slot of the old one is marked MOVED. Until the first is marked, both say the same.
//!
//! A large table moves slot by slot, a few with every mutation, and begins to when it is nearly full: the larger table is
//! prepared in slices, then published beside the old one; before a key is changed, all slots of its two neighbourhoods are moved
//! and marked MOVED, and a key is changed in the larger table only. So at any instant a key is present, if at all, in one of its old
//! slots that are not marked, or in the larger table. A slot is copied before it is marked, and keeps its count of keys that
//! are away.
//!
//! MOVED is final for a table: a reader that meets it looks in the next table if its directory entry has one, else it reads the
//! entry again. The old table's memory is free once the entry no longer names it: a reader that still does cannot verify what it
//! finds there later, by the epoch in each slot's checksum.

use super::{Partition, place::Slots, slot::State};
use crate::{
    Key, MutationError, Owner,
    counters::count,
    cuckoo::{Table, Tables},
    directory::Directory,
};
use locus_fabric::Region;
use locus_memory::{Memory, Purpose};
use locus_runtime::mistakes::{Mistake, planted};

/// A table that moves slot by slot begins to when it is this full, in thousandths, so that it has moved before a key finds no
/// room in it: with neighbourhoods of 6 that is at 92%.
const FILL_MAX_PERMILLE: u64 = 880;
/// Tables up to this many slots are rebuilt at once, in some tens of microseconds.
const REBUILT_SLOTS_MAX: u32 = 256;
/// How many slots of the larger table are prepared with each mutation.
const PREPARED_PER_STEP: u32 = 256;
/// How many slots are moved with each mutation: growth is long done before the larger table is full.
const MOVED_PER_STEP: u32 = 16;
/// No table is made with more slots per record than this to separate keys that collide.
const SLOTS_PER_RECORD_MAX: usize = 64;
/// How many slots ahead the keys of records are fetched.
const AHEAD: u32 = 16;

/// A growth under way.
pub(super) struct Growth {
    next: Table,
    /// Slots of the next table that are ready, from the first.
    prepared: u32,
    /// Slots of the current table that have moved, from the first; some behind these may have, too.
    moved: u32,
}

impl Partition {
    /// Makes the first table.
    fn create<R: Region>(
        &mut self,
        owner: &mut Owner<R>,
        directory: &Directory,
    ) -> Result<Table, MutationError> {
        let table = self.allocate(owner, self.shape.slots_min() as usize)?;
        self.prepare(owner, &table, 0..table.rows);
        self.publish(owner, directory, Tables { current: Some(table), next: None });
        Ok(table)
    }

    /// The table in which a key is to be changed: while growing, the next one, once the key's slots have moved there.
    pub(super) fn table_for<R: Region>(
        &mut self,
        owner: &mut Owner<R>,
        directory: &Directory,
        key: &Key<'_>,
    ) -> Result<Table, MutationError> {
        let Some(current) = self.tables.current else { return self.create(owner, directory) };
        if self.growth.is_none() {
            return Ok(current);
        }
        self.grow(owner, directory)?;
        let (Some(current), Some(next)) = (self.tables.current, self.tables.next) else {
            return Ok(self.tables.current.unwrap_or(current));
        };
        for home in self.shape.homes(&current, key) {
            for slot in home..home + self.shape.neighbourhood() {
                if !self.move_slot(owner, &current, slot, &next) {
                    return self.rebuild(owner, directory);
                }
            }
        }
        Ok(next)
    }

    /// Starts to grow once the table is full enough. Where there is no room yet, a later put tries again.
    pub(super) fn grow_if_full<R: Region>(&mut self, owner: &mut Owner<R>) {
        let Some(current) = self.tables.current else { return };
        let full = self.records() * 1000 > u64::from(current.rows) * FILL_MAX_PERMILLE;
        let slots = current.rows as usize * 2;
        if !full
            || current.rows <= REBUILT_SLOTS_MAX
            || self.growth.is_some()
            || slots > self.shape.slots_max()
        {
            return;
        }
        if let Ok(next) = self.allocate(owner, slots) {
            count(&owner.counters.growths);
            self.growth = Some(Growth { next, prepared: 0, moved: 0 });
        }
    }

    /// Whether there is growth to carry on with in idle time.
    pub fn growing(&self) -> bool {
        self.growth.is_some()
    }

    /// Carries a growth on by one step.
    pub fn grow<R: Region>(
        &mut self,
        owner: &mut Owner<R>,
        directory: &Directory,
    ) -> Result<(), MutationError> {
        let (Some(growth), Some(current)) = (&self.growth, self.tables.current) else { return Ok(()) };
        let Growth { next, prepared, moved } = *growth;
        if prepared < next.rows {
            let end = next.rows.min(prepared + PREPARED_PER_STEP);
            self.prepare(owner, &next, prepared..end);
            if end == next.rows {
                self.publish(owner, directory, Tables { current: Some(current), next: Some(next) });
            }
            self.growth = Some(Growth { next, prepared: end, moved });
            return Ok(());
        }
        let end = current.rows.min(moved + MOVED_PER_STEP);
        for slot in moved..end {
            self.prefetch_key(owner, &current, slot);
        }
        for slot in moved..end {
            if !self.move_slot(owner, &current, slot, &next) {
                // If that fails the step is taken again; what has moved stays so.
                self.rebuild(owner, directory)?;
                return Ok(());
            }
        }
        self.growth = Some(Growth { next, prepared, moved: end });
        if end == current.rows {
            self.growth = None;
            self.publish(owner, directory, Tables { current: Some(next), next: None });
            self.free(owner, &current);
        }
        Ok(())
    }

    /// Moves all keys to a new table at once, twice as large or as large as it takes. Gives that table.
    pub(super) fn rebuild<R: Region>(
        &mut self,
        owner: &mut Owner<R>,
        directory: &Directory,
    ) -> Result<Table, MutationError> {
        count(&owner.counters.growths);
        let prepared = self.growth.as_ref().map(|growth| growth.next);
        // A next table that is not published yet holds nothing.
        let old = [self.tables.current, self.tables.next];
        let largest = old.iter().flatten().map(|table| table.rows).max().unwrap_or(0) as usize;
        // Tables much larger than their records are a sign of keys made to collide: more slots would not help.
        let wide = SLOTS_PER_RECORD_MAX * (self.records() as usize + 2);
        let limit = self.shape.slots_max().min(wide).max(largest);
        let mut slots = largest * 2;
        let table = loop {
            if slots > limit {
                return Err(MutationError::Collisions(limit));
            }
            let table = self.allocate(owner, slots)?;
            self.prepare(owner, &table, 0..table.rows);
            if old.iter().flatten().all(|from| self.copy_slots(owner, from, &table)) {
                break table;
            }
            self.free(owner, &table);
            slots *= 2;
        };
        self.growth = None;
        self.publish(owner, directory, Tables { current: Some(table), next: None });
        for from in old.iter().flatten() {
            self.mark_moved(owner, from);
        }
        for from in [old[0], old[1].or(prepared)].iter().flatten() {
            self.free(owner, from);
        }
        Ok(table)
    }

    /// Moves one slot to the next table and marks it; false if the next table has no room for it.
    fn move_slot<R: Region>(&self, owner: &mut Owner<R>, from: &Table, slot: u32, to: &Table) -> bool {
        let (from, to) = (Slots { shape: &self.shape, table: from }, Slots { shape: &self.shape, table: to });
        let meta = from.slot(owner, slot).meta();
        match meta.state() {
            State::Moved => return true,
            State::Full if !self.copy_slot(owner, from, slot, to) => return false,
            State::Full | State::Empty => {}
        }
        count(&owner.counters.rows_moved);
        from.store_meta(owner, slot, meta.moved().after(meta, meta.away()));
        true
    }

    fn copy_slot<R: Region>(&self, owner: &mut Owner<R>, from: Slots<'_>, slot: u32, to: Slots<'_>) -> bool {
        let homes = self.shape.homes(to.table, &from.key(owner, slot));
        let Some(place) = to.make_room(owner, homes) else { return false };
        from.copy(owner, slot, to, place);
        true
    }

    /// Copies all keys of a table into another that readers do not know yet; false if one found no room.
    fn copy_slots<R: Region>(&self, owner: &mut Owner<R>, from: &Table, to: &Table) -> bool {
        let (source, target) =
            (Slots { shape: &self.shape, table: from }, Slots { shape: &self.shape, table: to });
        for slot in 0..from.rows + AHEAD {
            if slot < from.rows {
                self.prefetch_key(owner, from, slot);
            }
            let Some(behind) = slot.checked_sub(AHEAD) else { continue };
            let full = source.slot(owner, behind).meta().state() == State::Full;
            if full && !self.copy_slot(owner, source, behind, target) {
                return false;
            }
        }
        true
    }

    fn mark_moved<R: Region>(&self, owner: &mut Owner<R>, table: &Table) {
        let slots = Slots { shape: &self.shape, table };
        for slot in 0..table.rows {
            let meta = slots.slot(owner, slot).meta();
            let forgotten = planted(Mistake::GrowthLeavesRowUnmarked) && meta.state() == State::Full;
            if meta.state() != State::Moved && !forgotten {
                count(&owner.counters.rows_moved);
                slots.store_meta(owner, slot, meta.moved().after(meta, meta.away()));
            }
        }
    }

    /// Starts to fetch what moving a slot will need: the key, for its hash.
    fn prefetch_key<R: Region>(&self, owner: &Owner<R>, table: &Table, slot: u32) {
        let content = Slots { shape: &self.shape, table }.slot(owner, slot);
        if !self.shape.inline() && content.meta().state() == State::Full {
            owner.arena.local().prefetch(content.extent().at, crate::HEADER_BYTES + 40);
        }
    }

    /// Memory for a table, whose slots are a power of two, so that it lies at a multiple of a slot's length.
    fn allocate<R: Region>(&self, owner: &mut Owner<R>, slots: usize) -> Result<Table, MutationError> {
        let at = owner.allocate(Purpose::Tables, slots * self.shape.slot_bytes())?;
        debug_assert!(at.offset().is_multiple_of(self.shape.slot_bytes()), "a table at {at:?}");
        Ok(Table { at, rows: slots as u32, epoch: owner.next_epoch() })
    }

    /// Makes slots empty: an empty slot has to verify, and must not look like one of another table.
    fn prepare<R: Region>(&self, owner: &mut Owner<R>, table: &Table, slots: std::ops::Range<u32>) {
        for slot in slots {
            Slots { shape: &self.shape, table }.prepare(owner, slot);
        }
    }

    fn free<R: Region>(&self, owner: &mut Owner<R>, table: &Table) {
        owner.arena.free(Purpose::Tables, table.at, table.rows as usize * self.shape.slot_bytes());
    }

    fn publish<R: Region>(&mut self, owner: &mut Owner<R>, directory: &Directory, tables: Tables) {
        directory.publish(owner, self.id, &tables);
        self.tables = tables;
    }
}
