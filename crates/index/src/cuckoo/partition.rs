//! One partition's keys, changed by their owner: Algorithm 2 of Mitchell §3.4, updates, and deletes.
//!
//! The order of stores is what readers rely on. A put writes the extent, then the row that points to it, and only then
//! frees the extent that the row pointed to before; a delete empties the row, then frees the extent. A reader that holds
//! an old row finds the old record (and its lookup is ordered before the change, in the middle of which it was), or
//! bytes that fail the row's checksum, and reads the row again. All rows of a key are looked at before an empty one is
//! taken: otherwise a delete would bring an older value back.

use super::{Row, Table, Tables, growth::Growth, kick_out::Chain};
use crate::{
    Extent, KEY_BYTES_MAX, Key, MutationError, Owner, PartitionId, VALUE_BYTES_MAX,
    counters::count,
    directory::Directory,
    record::{self, Record, record_bytes},
};
use locus_fabric::Region;
use locus_memory::{AllocateError, Memory, Pointer, Purpose, checksum};
use locus_runtime::mistakes::{Mistake, planted};

/// A partition, as its owner has it.
pub struct Partition {
    pub(super) id: PartitionId,
    pub(super) tables: Tables,
    pub(super) growth: Option<Growth>,
    records: u64,
    version: u64,
}

/// What a put did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutOutcome {
    /// The record's version.
    pub version: u64,
    /// Whether the key was present before.
    pub replaced: bool,
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
        let bytes = record_bytes(key.bytes().len(), value.len());
        let at = owner.allocate(Purpose::Extents, bytes)?;
        self.version += 1;
        let header = record::header(self.version, key.bytes().len(), value.len());
        owner.arena.writer().store_bytes(at, &[&header, key.bytes(), value]);
        let checksum = checksum(owner.bytes(at, bytes));
        Ok(Extent { at, bytes, checksum })
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

fn check_lengths(key: &[u8], value: &[u8]) -> Result<(), MutationError> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(MutationError::KeyLength(key.len()));
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(MutationError::ValueLength(value.len(), VALUE_BYTES_MAX));
    }
    Ok(())
}

/// How the owner reads and writes its own tables. Nobody else writes them, so nothing is verified here.
impl<R: Region> Owner<R> {
    pub(super) fn bytes(&self, at: Pointer, bytes: usize) -> &[u8] {
        self.arena.local().slice(at, bytes).expect("the owner's own pointers are good")
    }

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

    /// The key in an extent of our own.
    pub(super) fn key_at(&self, extent: Extent) -> Key<'_> {
        let record =
            Record::parse(self.bytes(extent.at, extent.bytes)).expect("the owner's own records are whole");
        Key::new(record.key, self.seed)
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

    fn holds(&self, extent: Extent, key: &[u8]) -> bool {
        let record =
            Record::parse(self.bytes(extent.at, extent.bytes)).expect("the owner's own records are whole");
        record.key == key
    }

    pub(super) fn allocate(&mut self, purpose: Purpose, bytes: usize) -> Result<Pointer, MutationError> {
        let allocated = self.arena.allocate(purpose, bytes).or_else(|error| {
            self.empty_limbo();
            self.arena.allocate(purpose, bytes).map_err(|_| error)
        });
        allocated.map_err(|error| match error {
            AllocateError::NeedRegion { .. } => MutationError::NeedRegion { purpose, bytes },
            AllocateError::TooLarge { .. } => unreachable!("lengths were checked against the arena's limits"),
        })
    }

    fn free_extent(&mut self, extent: Extent) {
        if !self.limbo.keep(extent) {
            self.arena.free(Purpose::Extents, extent.at, extent.bytes);
        }
        while let Some(extent) = self.limbo.overdue() {
            self.arena.free(Purpose::Extents, extent.at, extent.bytes);
        }
    }

    /// Frees what large records were in until lately: memory is short.
    #[cold]
    fn empty_limbo(&mut self) {
        while let Some(extent) = self.limbo.release() {
            self.arena.free(Purpose::Extents, extent.at, extent.bytes);
        }
    }
}
