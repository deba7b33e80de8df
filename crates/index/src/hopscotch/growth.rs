//! Growth of a partition's table: when a key finds no room, all keys move to a table twice as large.
//!
//! The larger table is filled while nobody knows of it, published in the directory, and then every slot of the old one is
//! marked MOVED. Until the first is marked, both say the same, and nothing changes meanwhile. MOVED is final for a table: a
//! reader that meets it reads the directory entry again. The old table's memory is free after that: a reader that still
//! has its entry cannot verify what it finds there later, by the epoch in each slot's checksum.

use super::{Partition, SLOTS_MIN, place::Slots, slot::State};
use crate::{
    MutationError, Owner,
    counters::count,
    cuckoo::{Table, Tables},
    directory::Directory,
};
use locus_fabric::Region;
use locus_memory::{Memory, Purpose};
use locus_runtime::mistakes::{Mistake, planted};

/// No table is made with more slots per record than this to separate keys that collide.
const SLOTS_PER_RECORD_MAX: usize = 64;
/// How many slots ahead the keys of records are fetched.
const AHEAD: u32 = 16;

impl Partition {
    /// Makes the first table.
    pub(super) fn create<R: Region>(
        &mut self,
        owner: &mut Owner<R>,
        directory: &Directory,
    ) -> Result<Table, MutationError> {
        let table = self.allocate(owner, SLOTS_MIN as usize)?;
        self.publish(owner, directory, table);
        Ok(table)
    }

    /// Moves all keys to a new table, twice as large or as large as it takes. Gives that table.
    pub(super) fn rebuild<R: Region>(
        &mut self,
        owner: &mut Owner<R>,
        directory: &Directory,
    ) -> Result<Table, MutationError> {
        let Some(old) = self.table else { return self.create(owner, directory) };
        count(&owner.counters.growths);
        let slots_max = self.shape.slots_max();
        // Tables much larger than their records are a sign of keys made to collide: more slots would not help.
        let limit =
            slots_max.min(SLOTS_PER_RECORD_MAX * (self.records() as usize + 2)).max(old.rows as usize);
        let mut slots = old.rows as usize * 2;
        let table = loop {
            if slots > limit {
                return Err(MutationError::Collisions(limit));
            }
            let table = self.allocate(owner, slots)?;
            if self.copy_slots(owner, &old, &table) {
                break table;
            }
            self.free(owner, &table);
            slots *= 2;
        };
        self.publish(owner, directory, table);
        let from = Slots { shape: &self.shape, table: &old };
        for slot in 0..old.rows {
            let meta = from.slot(owner, slot).meta();
            if !(planted(Mistake::GrowthLeavesRowUnmarked) && meta.state() == State::Full) {
                from.store_meta(owner, slot, meta.moved().after(meta, meta.away()));
                count(&owner.counters.rows_moved);
            }
        }
        self.free(owner, &old);
        Ok(table)
    }

    /// Copies all keys of a table into another that readers do not know yet; false if one found no room.
    fn copy_slots<R: Region>(&self, owner: &mut Owner<R>, from: &Table, to: &Table) -> bool {
        let (from, to) = (Slots { shape: &self.shape, table: from }, Slots { shape: &self.shape, table: to });
        for slot in 0..from.table.rows + AHEAD {
            if !self.shape.inline() && slot < from.table.rows {
                let content = from.slot(owner, slot);
                if content.meta().state() == State::Full {
                    owner.arena.local().prefetch(content.extent().at, crate::HEADER_BYTES + 40);
                }
            }
            let Some(behind) = slot.checked_sub(AHEAD) else { continue };
            if from.slot(owner, behind).meta().state() != State::Full {
                continue;
            }
            let homes = self.shape.homes(to.table, &from.key(owner, behind));
            let Some(place) = to.make_room(owner, homes) else { return false };
            from.copy(owner, behind, to, place);
        }
        true
    }

    /// Memory for a table of empty slots, which are a power of two, so that it lies at a multiple of a slot's length.
    fn allocate<R: Region>(&self, owner: &mut Owner<R>, slots: usize) -> Result<Table, MutationError> {
        let at = owner.allocate(Purpose::Tables, slots * self.shape.slot_bytes())?;
        debug_assert!(at.offset().is_multiple_of(self.shape.slot_bytes()), "a table at {at:?}");
        let table = Table { at, rows: slots as u32, epoch: owner.next_epoch() };
        for slot in 0..table.rows {
            Slots { shape: &self.shape, table: &table }.prepare(owner, slot);
        }
        Ok(table)
    }

    fn free<R: Region>(&self, owner: &mut Owner<R>, table: &Table) {
        owner.arena.free(Purpose::Tables, table.at, table.rows as usize * self.shape.slot_bytes());
    }

    fn publish<R: Region>(&mut self, owner: &mut Owner<R>, directory: &Directory, table: Table) {
        directory.publish(owner, self.id, &Tables { current: Some(table), next: None });
        self.table = Some(table);
    }
}
