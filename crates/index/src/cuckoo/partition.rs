//! One partition's keys, changed by their owner: Algorithm 2 of Mitchell §3.4, updates, and deletes.
//!
//! The order of stores is what readers rely on. A put writes the extent, then the row that points to it, and only then
//! frees the extent that the row pointed to before; a delete empties the row, then frees the extent. A reader that holds
//! an old row finds the old record (and its lookup is ordered before the change, in the middle of which it was), or
//! bytes that fail the row's checksum, and reads the row again. All rows of a key are looked at before an empty one is
//! taken: otherwise a delete would bring an older value back.

use super::{Row, Table, Tables, growth::Growth, kick_out::Chain};
use crate::{
    Extent, Key, MutationError, Owner, PartitionId, PutOutcome, check_lengths, counters::count,
    directory::Directory,
};
use locus_fabric::Region;
use locus_memory::Memory;
use locus_runtime::mistakes::{Mistake, planted};

/// A partition, as its owner has it.
pub struct Partition {
    pub(super) id: PartitionId,
    pub(super) tables: Tables,
    pub(super) growth: Option<Growth>,
    records: u64,
    version: u64,
}

impl Partition {
    /// A partition without keys, and without a table until the first put.
    pub fn new(id: PartitionId) -> Self {
        Self { id, tables: Tables::default(), growth: None, records: 0, version: 0 }
    }

    /// How many keys are present.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Where a lookup begins; the same as in the directory.
    #[inline]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// How many rows the newest table has.
    pub fn rows(&self) -> u64 {
        self.tables.next.or(self.tables.current).map_or(0, |table| table.rows.into())
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
        let mut table = self.table_for(owner, directory, key)?;
        if let Some((row, old)) = owner.find(&table, key) {
            if planted(Mistake::ExtentFreedEarly) {
                owner.free_extent(old.extent());
            }
            let row_of = |extent| Row::full(extent, old.way(), key.fingerprint, old.next_version());
            let extent = if planted(Mistake::PublishedEarly) {
                self.publish_record_early(owner, key, value, |owner, extent| {
                    owner.store_row(&table, row, row_of(extent));
                })?
            } else {
                self.write_record(owner, key, value)?
            };
            owner.store_row(&table, row, row_of(extent));
            if !planted(Mistake::ExtentFreedEarly) {
                owner.free_extent(old.extent());
            }
            return Ok(PutOutcome { version: self.version, replaced: true });
        }
        let chain = loop {
            match Chain::find(owner, &table, table.positions(key)) {
                Some(chain) => break chain,
                None => table = self.rebuild(owner, directory)?,
            }
        };
        let extent = self.write_record(owner, key, value)?;
        let (row, way) = chain.carry_out(owner, &table);
        let version = owner.row(&table, row).next_version();
        owner.store_row(&table, row, Row::full(extent, way, key.fingerprint, version));
        self.records += 1;
        self.grow_if_full(owner);
        Ok(PutOutcome { version: self.version, replaced: false })
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
        let Some((row, old)) = owner.find(&table, key) else { return Ok(None) };
        owner.store_row(&table, row, Row::empty(old.next_version()));
        owner.free_extent(old.extent());
        self.records -= 1;
        self.version += 1;
        Ok(Some(self.version))
    }

    /// The table in which a key is to be changed: while growing, the next one, once the key's rows have moved there.
    fn table_for<R: Region>(
        &mut self,
        owner: &mut Owner<R>,
        directory: &Directory,
        key: &Key<'_>,
    ) -> Result<Table, MutationError> {
        match self.tables.current {
            None => self.create(owner, directory),
            Some(_) if self.growth.is_some() => self.table_while_growing(owner, directory, key),
            Some(table) => Ok(table),
        }
    }

    /// Writes a record into a fresh extent, which no row points to yet.
    fn write_record<R: Region>(
        &mut self,
        owner: &mut Owner<R>,
        key: &Key<'_>,
        value: &[u8],
    ) -> Result<Extent, MutationError> {
        let extent = owner.write_record(self.version + 1, key, value)?;
        self.version += 1;
        Ok(extent)
    }
}

/// What the mistake [`Mistake::PublishedEarly`] does.
impl Partition {
    #[cold]
    fn publish_record_early<R: Region>(
        &mut self,
        owner: &mut Owner<R>,
        key: &Key<'_>,
        value: &[u8],
        publish: impl FnOnce(&mut Owner<R>, Extent),
    ) -> Result<Extent, MutationError> {
        let extent = self.write_record(owner, key, value)?;
        // As the memory was before anything was written there.
        let record = owner.bytes(extent.at, extent.bytes).to_vec();
        owner.arena.writer().fill(extent.at, extent.bytes, 0);
        publish(owner, extent);
        owner.arena.writer().store_bytes(extent.at, &[&record]);
        Ok(extent)
    }
}

/// How the owner reads and writes its own tables. Nobody else writes them, so nothing is verified here.
impl<R: Region> Owner<R> {
    pub(super) fn row(&self, table: &Table, row: u32) -> Row {
        let at = table.row_at(row);
        Row::unverified(self.bytes(at, super::ROW_BYTES)).expect("32 bytes").0
    }

    /// Stores a row after everything stored before, for readers too.
    pub(super) fn store_row(&mut self, table: &Table, row: u32, content: Row) {
        let at = table.row_at(row);
        if content.version() == 0 {
            count(&self.counters.row_versions_wrapped);
        }
        let mut writer = self.arena.writer();
        writer.release();
        writer.store_words(at, &content.encode(at, table.epoch));
    }

    /// The row that holds a key.
    fn find(&self, table: &Table, key: &Key<'_>) -> Option<(u32, Row)> {
        let positions = table.positions(key);
        for row in positions {
            self.arena.local().prefetch(table.row_at(row), super::ROW_BYTES);
        }
        positions.into_iter().find_map(|position| {
            let row = self.row(table, position);
            (row.may_hold(key) && self.holds(row.extent(), key.bytes())).then_some((position, row))
        })
    }
}
