//! Growth of a partition's table under readers and writers.
//!
//! A small table is rebuilt at once: the larger one is filled while nobody knows of it, published in the directory, and
//! then every row of the old one is marked MOVED. Until the first row is marked, both tables say the same.
//!
//! A large table moves row by row, a few with every mutation: the larger table is prepared in slices, then published
//! beside the old one; before a key is changed the three rows that may hold it are moved and marked MOVED, and a key is
//! changed in the larger table only. So at any instant a key is present, if at all, in one of its old rows that are not
//! marked, or in the larger table. A row is copied to the larger table before it is marked.
//!
//! MOVED is final for a table. A reader that meets it looks in the next table if its directory entry has one, else it
//! reads the entry again. The old table's memory is free once the entry no longer names it: a reader that still does
//! cannot verify what it finds there later, by the epoch in each row's checksum.

use super::{Partition, ROWS_MAX, ROWS_MIN, Row, State, Table, Tables, kick_out::Chain, row::FIRST_VERSION};
use crate::{Key, MutationError, Owner, counters::count, directory::Directory};
use locus_fabric::Region;
use locus_memory::{Memory, Purpose};
use locus_runtime::mistakes::{Mistake, planted};

/// A table that moves row by row begins to when it is this full, in thousandths, so that it never runs out of chains
/// before it has moved: the threshold of 3-way cuckoo hashing is 91.8%. Smaller ones are rebuilt when they do run out.
const FILL_MAX_PERMILLE: u64 = 884;
/// Tables up to this many rows are rebuilt at once, in some tens of microseconds.
const REBUILT_ROWS_MAX: u32 = 512;
/// No table is made with more rows per record than this to separate keys that collide.
const ROWS_PER_RECORD_MAX: usize = 32;
/// How many rows of the larger table are prepared with each mutation.
const PREPARED_PER_STEP: u32 = 512;
/// How many rows are moved with each mutation. Two of them free one row net, so that growth is long done before the
/// larger table is full.
const MOVED_PER_STEP: u32 = 16;

/// A growth under way.
pub(super) struct Growth {
    next: Table,
    /// Rows of the next table that are ready, from the first.
    prepared: u32,
    /// Rows of the current table that have moved, from the first; some behind these may have, too.
    moved: u32,
}

impl Partition {
    /// Makes the first table.
    pub(super) fn create<R: Region>(
        &mut self,
        owner: &mut Owner<R>,
        directory: &Directory,
    ) -> Result<Table, MutationError> {
        let table = owner.allocate_table(ROWS_MIN)?;
        owner.prepare_rows(&table, 0..table.rows);
        self.publish(owner, directory, Tables { current: Some(table), next: None });
        Ok(table)
    }

    /// Starts to grow once the table is full enough. Where there is no room yet, a later put tries again.
    pub(super) fn grow_if_full<R: Region>(&mut self, owner: &mut Owner<R>) {
        let Some(current) = self.tables.current else { return };
        let full = self.records() * 1000 > u64::from(current.rows) * FILL_MAX_PERMILLE;
        let at_once = current.rows <= REBUILT_ROWS_MAX;
        if !full || at_once || self.growth.is_some() || current.rows as usize * 2 > ROWS_MAX {
            return;
        }
        if let Ok(next) = owner.allocate_table(current.rows as usize * 2) {
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
        let (Some(growth), Some(current)) = (&mut self.growth, self.tables.current) else { return Ok(()) };
        let next = growth.next;
        if growth.prepared < next.rows {
            let end = next.rows.min(growth.prepared + PREPARED_PER_STEP);
            owner.prepare_rows(&next, growth.prepared..end);
            growth.prepared = end;
            if end == next.rows {
                self.publish(owner, directory, Tables { current: Some(current), next: Some(next) });
            }
            return Ok(());
        }
        let begin = growth.moved;
        let end = current.rows.min(begin + MOVED_PER_STEP);
        for row in begin..end {
            owner.prefetch_key(&current, row);
        }
        for row in begin..end {
            if !owner.move_row(&current, row, &next) {
                // If that fails the step is taken again; what has moved stays so.
                self.rebuild(owner, directory)?;
                return Ok(());
            }
        }
        growth.moved = end;
        if end == current.rows {
            self.growth = None;
            self.publish(owner, directory, Tables { current: Some(next), next: None });
            owner.arena.free(Purpose::Tables, current.at, current.bytes());
        }
        Ok(())
    }

    /// Carries the growth on, moves the rows of one key, and gives the table in which to change it.
    pub(super) fn table_while_growing<R: Region>(
        &mut self,
        owner: &mut Owner<R>,
        directory: &Directory,
        key: &Key<'_>,
    ) -> Result<Table, MutationError> {
        self.grow(owner, directory)?;
        let Some(current) = self.tables.current else { unreachable!("a growing partition has a table") };
        let Some(next) = self.tables.next else { return Ok(current) };
        for row in current.positions(key) {
            if !owner.move_row(&current, row, &next) {
                return self.rebuild(owner, directory);
            }
        }
        Ok(next)
    }

    /// Moves all keys to a new table at once, twice as large or as large as it takes. Gives that table.
    pub(super) fn rebuild<R: Region>(
        &mut self,
        owner: &mut Owner<R>,
        directory: &Directory,
    ) -> Result<Table, MutationError> {
        count(&owner.counters.growths);
        let growing = self.growth.as_ref().map(|growth| growth.next);
        // A next table that is not published yet holds nothing.
        let old = [self.tables.current, self.tables.next];
        let mut rows = old.iter().flatten().map(|table| table.rows as usize).max().unwrap_or(ROWS_MIN) * 2;
        // Tables much larger than their records are a sign of keys made to collide: more rows would not help.
        let limit = ROWS_MAX.min(ROWS_PER_RECORD_MAX * (self.records() as usize + 2)).max(rows);
        let table = loop {
            if rows > limit.min(ROWS_MAX) {
                return Err(MutationError::Collisions(limit.min(ROWS_MAX)));
            }
            let table = owner.allocate_table(rows)?;
            owner.prepare_rows(&table, 0..table.rows);
            if old.iter().flatten().all(|from| owner.copy_rows(from, &table)) {
                break table;
            }
            owner.arena.free(Purpose::Tables, table.at, table.bytes());
            rows *= 2;
        };
        self.growth = None;
        self.publish(owner, directory, Tables { current: Some(table), next: None });
        for from in old.iter().flatten() {
            owner.mark_moved(from);
        }
        for from in [old[0], old[1].or(growing)].into_iter().flatten() {
            owner.arena.free(Purpose::Tables, from.at, from.bytes());
        }
        Ok(table)
    }

    fn publish<R: Region>(&mut self, owner: &mut Owner<R>, directory: &Directory, tables: Tables) {
        self.tables = tables;
        directory.publish(owner, self.id, &tables);
    }
}

impl<R: Region> Owner<R> {
    fn allocate_table(&mut self, rows: usize) -> Result<Table, MutationError> {
        let at = self.allocate(Purpose::Tables, rows * super::ROW_BYTES)?;
        Ok(Table { at, rows: rows as u32, epoch: self.next_epoch() })
    }

    /// Makes rows empty: an empty row has to verify, and must not look like one of another table.
    fn prepare_rows(&mut self, table: &Table, rows: std::ops::Range<u32>) {
        for row in rows {
            let at = table.row_at(row);
            self.arena.writer().store_words(at, &Row::empty(FIRST_VERSION).encode(at, table.epoch));
        }
    }

    /// Starts to fetch what moving a row will need: the key, for its hash.
    fn prefetch_key(&self, table: &Table, row: u32) {
        let row = self.row(table, row);
        if row.state() == State::Full {
            self.arena.local().prefetch(row.extent().at, crate::HEADER_BYTES + 40);
        }
    }

    /// Puts a record's row into a table that does not have it; false if it found no place.
    fn insert_row(&mut self, table: &Table, row: Row) -> bool {
        let positions = table.positions(&self.key_at(row.extent()));
        let Some(chain) = Chain::find(self, table, positions) else { return false };
        let (place, way) = chain.carry_out(self, table);
        let version = self.row(table, place).next_version();
        self.store_row(table, place, row.by_way(way, version));
        true
    }

    /// Moves one row to the next table and marks it; false if the next table has no place for it.
    fn move_row(&mut self, from: &Table, row: u32, to: &Table) -> bool {
        let content = self.row(from, row);
        match content.state() {
            State::Moved => return true,
            State::Full if !self.insert_row(to, content) => return false,
            State::Full | State::Empty => {}
        }
        count(&self.counters.rows_moved);
        self.store_row(from, row, Row::moved(content.next_version()));
        true
    }

    /// Copies all records of a table into another that readers do not know yet.
    fn copy_rows(&mut self, from: &Table, to: &Table) -> bool {
        const AHEAD: u32 = 16;
        for row in 0..from.rows + AHEAD {
            if row < from.rows {
                self.prefetch_key(from, row);
            }
            let Some(behind) = row.checked_sub(AHEAD) else { continue };
            let content = self.row(from, behind);
            if content.state() == State::Full && !self.insert_row(to, content) {
                return false;
            }
        }
        true
    }

    fn mark_moved(&mut self, table: &Table) {
        for row in 0..table.rows {
            let content = self.row(table, row);
            let forgotten = planted(Mistake::GrowthLeavesRowUnmarked) && content.state() == State::Full;
            if content.state() != State::Moved && !forgotten {
                count(&self.counters.rows_moved);
                self.store_row(table, row, Row::moved(content.next_version()));
            }
        }
    }
}
