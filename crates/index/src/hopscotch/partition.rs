//! One partition's keys, changed by their owner.
//!
//! The order of stores is what readers rely on. A put writes the record's extent, if there is one, then the slot, and only then
//! frees the extent that the slot pointed to before; a delete empties the slot, then frees the extent. A key at its second home
//! is counted at its first before it is stored there, and until it is deleted there.

use super::{
    Shape,
    growth::Growth,
    place::{Place, Slots},
    slot::{Meta, pointer_word},
};
use crate::{
    Extent, Key, MutationError, Owner, PartitionId, PutOutcome, check_lengths,
    cuckoo::{Table, Tables},
    directory::Directory,
};
use locus_fabric::Region;
use locus_runtime::mistakes::{Mistake, planted};

/// A partition, as its owner has it.
pub struct Partition {
    pub(super) id: PartitionId,
    pub(super) shape: Shape,
    pub(super) tables: Tables,
    pub(super) growth: Option<Growth>,
    records: u64,
    version: u64,
}

/// What is to be stored in a slot: a record, or where it is.
#[derive(Clone, Copy)]
enum Content<'c> {
    Inline(&'c Key<'c>, &'c [u8], u64),
    Pointer(&'c Key<'c>, Extent),
}

impl Content<'_> {
    fn store<R: Region>(self, owner: &mut Owner<R>, slots: Slots<'_>, place: Place) {
        match self {
            Self::Inline(key, value, version) => {
                let meta = Meta::inline(place.distance, key.bytes().len(), value.len());
                slots.store(owner, place.slot, meta, [&version.to_le_bytes(), key.bytes(), value]);
            }
            Self::Pointer(key, extent) => {
                let meta = Meta::pointing(place.distance, key);
                let (at, sum) = (pointer_word(extent).to_le_bytes(), extent.checksum.to_le_bytes());
                slots.store(owner, place.slot, meta, [&at, &sum, &[]]);
            }
        }
    }
}

impl Partition {
    /// A partition without keys, and without a table until the first put.
    pub fn new(id: PartitionId, shape: Shape) -> Self {
        Self { id, shape, tables: Tables::default(), growth: None, records: 0, version: 0 }
    }

    /// How many keys are present.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Where a lookup begins; the same as in the directory.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// How many slots the newest table has.
    pub fn rows(&self) -> u64 {
        self.tables.next.or(self.tables.current).map_or(0, |table| table.rows.into())
    }

    /// What slots are like.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Stores a value under a key. On an error the key is as it was.
    pub fn put<R: Region>(
        &mut self,
        owner: &mut Owner<R>,
        directory: &Directory,
        key: &Key<'_>,
        value: &[u8],
    ) -> Result<PutOutcome, MutationError> {
        check_lengths(key.bytes(), value)?;
        let (bytes, limit) = (key.bytes().len() + value.len(), self.shape.pair_bytes_max());
        if self.shape.inline() && bytes > limit {
            return Err(MutationError::Inline { bytes, limit });
        }
        let table = self.table_for(owner, directory, key)?;
        let content = match self.shape.inline() {
            true => Content::Inline(key, value, self.version + 1),
            false => Content::Pointer(key, owner.write_record(self.version + 1, key, value)?),
        };
        let shape = self.shape;
        let slots = Slots { shape: &shape, table: &table };
        let present = find(slots, owner, key);
        match present {
            Some((place, _)) => {
                let old = (!shape.inline()).then(|| slots.slot(owner, place.slot).extent());
                if let Some(old) = old.filter(|_| planted(Mistake::ExtentFreedEarly)) {
                    owner.free_extent(old);
                }
                content.store(owner, slots, place);
                if let Some(old) = old.filter(|_| !planted(Mistake::ExtentFreedEarly)) {
                    owner.free_extent(old);
                }
            }
            None => {
                self.insert(owner, directory, table, key, content).inspect_err(|_| {
                    if let Content::Pointer(_, extent) = content {
                        owner.free_extent(extent);
                    }
                })?;
                self.records += 1;
                self.grow_if_full(owner);
            }
        }
        self.version += 1;
        Ok(PutOutcome { version: self.version, replaced: present.is_some() })
    }

    fn insert<R: Region>(
        &mut self,
        owner: &mut Owner<R>,
        directory: &Directory,
        mut table: Table,
        key: &Key<'_>,
        content: Content<'_>,
    ) -> Result<(), MutationError> {
        let shape = self.shape;
        loop {
            let slots = Slots { shape: &shape, table: &table };
            let homes = shape.homes(&table, key);
            if let Some(place) = slots.make_room(owner, homes) {
                content.store(owner, slots, place);
                return Ok(());
            }
            table = self.rebuild(owner, directory)?;
        }
    }

    /// Removes a key. Gives the version of the change, or none if the key was absent.
    pub fn delete<R: Region>(
        &mut self,
        owner: &mut Owner<R>,
        directory: &Directory,
        key: &Key<'_>,
    ) -> Result<Option<u64>, MutationError> {
        check_lengths(key.bytes(), &[])?;
        if self.tables.current.is_none() {
            return Ok(None);
        }
        let table = self.table_for(owner, directory, key)?;
        let slots = Slots { shape: &self.shape, table: &table };
        let Some((place, away)) = find(slots, owner, key) else { return Ok(None) };
        let extent = (!self.shape.inline()).then(|| slots.slot(owner, place.slot).extent());
        slots.clear(owner, place.slot);
        if away {
            slots.count_away(owner, self.shape.homes(&table, key)[0], false);
        }
        if let Some(extent) = extent {
            owner.free_extent(extent);
        }
        self.records -= 1;
        self.version += 1;
        Ok(Some(self.version))
    }
}

/// Where a key is, and whether that is its second home.
fn find<R: Region>(slots: Slots<'_>, owner: &Owner<R>, key: &Key<'_>) -> Option<(Place, bool)> {
    let homes = slots.shape.homes(slots.table, key);
    for (way, home) in homes.into_iter().enumerate() {
        for slot in home..home + slots.shape.neighbourhood() {
            let content = slots.slot(owner, slot);
            let holds = content.may_hold(slots.shape, key)
                && (slots.shape.inline() || owner.holds(content.extent(), key.bytes()));
            if holds {
                let distance = content.meta().distance();
                // Neighbourhoods may overlap: whose it is the distance tells.
                return Some((Place { slot, distance }, slot - distance != homes[0]));
            }
        }
        if way == 0 && slots.slot(owner, home).meta().away() == 0 {
            return None;
        }
    }
    None
}
