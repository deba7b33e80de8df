//! Algorithm 1 of Mitchell §3.4: find a key, over any memory.
//!
//! **A hit is linearizable.** The row verified, so it was in the table at some instant of the lookup (see `row.rs`), and
//! the extent is the one that it points to, by the checksum in the row. The value was the key's at that instant.
//!
//! **A miss is linearizable** by the second pass (line 13, which must read "differs"). Let t be the instant at which the
//! last row of the first pass was sampled. Every other row is read again after t and must have the version that it had
//! before t; then it did not change in between, and at t no row held the key. A kick-out cannot slip by: it writes the
//! key's new place before it overwrites the old one, so at t the key is in one row at least, if it is present at all.
//! While the partition grows, the rows of both tables count: one marked MOVED stays so, and needs no second look.
//!
//! **Retries are bounded**: rows and extents that do not verify, and second passes that fail, count against
//! [`RETRIES_MAX`]; beyond it the lookup is [`LookupError::Contended`] and the client asks the owner.

use super::{Row, State, Table, Tables, WAYS};
use crate::{Answer, Counters, Found, Key, LookupError, counters::count, record::Record};
use locus_memory::{Memory, Pointer, checksum};

/// How many verifications may fail in one lookup before it counts as contended.
pub const RETRIES_MAX: usize = 32;
/// How many times in a row one row may fail to verify before the directory entry is suspected to be stale.
const ROW_READS_MAX: usize = 4;

/// Finds a key in its partition's tables, as the directory entry in use has them.
///
/// Reads: 1 row and 1 extent at best; a miss without writers reads 5 rows.
#[inline]
pub async fn get<'m, M: Memory>(
    memory: &'m M,
    tables: &Tables,
    key: &Key<'_>,
    counters: &Counters,
) -> Result<Answer<M::Bytes<'m>>, LookupError> {
    count(&counters.lookups);
    let Some(current) = tables.current else { return Err(LookupError::Stale) };
    let mut search =
        Search { memory, key, counters, seen: [Seen::NONE; 2 * WAYS], seen_count: 0, failures: 0 };
    loop {
        search.seen_count = 0;
        if let Some(answer) = search.pass(&current, tables.next.as_ref()).await? {
            memory.current()?;
            return Ok(answer);
        }
        search.fail()?;
    }
}

/// A row of the first pass that did not hold the key.
#[derive(Clone, Copy)]
struct Seen {
    at: Pointer,
    epoch: u64,
    version: u32,
}

impl Seen {
    const NONE: Self = Self { at: Pointer::from_bits(0), epoch: 0, version: 0 };
}

/// What one table had to say.
enum Probe<B> {
    Found(Found<B>),
    Absent,
    Moved,
}

struct Search<'m, 'k, M: Memory> {
    memory: &'m M,
    key: &'k Key<'k>,
    counters: &'k Counters,
    seen: [Seen; 2 * WAYS],
    seen_count: usize,
    failures: usize,
}

impl<'m, M: Memory> Search<'m, '_, M> {
    /// Both passes; none if the second shows that the first must be repeated.
    #[inline]
    async fn pass(
        &mut self,
        current: &Table,
        next: Option<&Table>,
    ) -> Result<Option<Answer<M::Bytes<'m>>>, LookupError> {
        match self.probe(current).await? {
            Probe::Found(found) => return Ok(Some(Answer::Found(found))),
            Probe::Absent => {}
            Probe::Moved => match self.probe(next.ok_or(LookupError::Stale)?).await? {
                Probe::Found(found) => return Ok(Some(Answer::Found(found))),
                Probe::Absent => {}
                Probe::Moved => return Err(LookupError::Stale),
            },
        }
        if M::INTERLEAVES && !self.unchanged().await? {
            return Ok(None);
        }
        Ok(Some(Answer::Absent))
    }

    /// Looks at the three rows of one table.
    #[inline]
    async fn probe(&mut self, table: &Table) -> Result<Probe<M::Bytes<'m>>, LookupError> {
        let positions = table.positions(self.key).map(|row| table.row_at(row));
        for at in positions {
            self.memory.prefetch(at, super::ROW_BYTES);
        }
        let mut moved = false;
        for at in positions {
            let row = loop {
                let row = self.row(at, table.epoch).await?;
                count(&self.counters.rows_read);
                if row.state() != State::Full || row.fingerprint() != self.key.fingerprint {
                    break row;
                }
                match self.extent(row).await? {
                    Ok(Some(found)) => return Ok(Probe::Found(found)),
                    Ok(None) => break row,
                    // The extent was freed since: the row must have changed.
                    Err(Unverified) => self.fail()?,
                }
            };
            if row.state() == State::Moved {
                count(&self.counters.moved_rows);
                moved = true;
            } else {
                self.seen[self.seen_count] = Seen { at, epoch: table.epoch, version: row.version() };
                self.seen_count += 1;
            }
        }
        Ok(if moved { Probe::Moved } else { Probe::Absent })
    }

    /// The second pass: whether all rows but the last are as they were (Algorithm 1, lines 12 to 14).
    async fn unchanged(&mut self) -> Result<bool, LookupError> {
        count(&self.counters.second_passes);
        for index in 0..self.seen_count.saturating_sub(1) {
            let Seen { at, epoch, version } = self.seen[index];
            count(&self.counters.rows_read_again);
            if self.row(at, epoch).await?.version() != version {
                count(&self.counters.second_passes_failed);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads a row until it verifies.
    #[inline]
    async fn row(&mut self, at: Pointer, epoch: u64) -> Result<Row, LookupError> {
        for _ in 0..ROW_READS_MAX {
            let bytes = self.memory.read(at, super::ROW_BYTES).await?;
            if let Some(row) = Row::decode(&bytes, at, epoch, M::TEARS) {
                return Ok(row);
            }
            count(&self.counters.rows_unverified);
        }
        Err(LookupError::Stale)
    }

    /// Reads the extent of a row and compares the key: none if the extent is of another key.
    #[inline]
    async fn extent(&self, row: Row) -> Result<Result<Option<Found<M::Bytes<'m>>>, Unverified>, LookupError> {
        let extent = row.extent();
        count(&self.counters.extents_read);
        let bytes = self.memory.read(extent.at, extent.bytes).await?;
        if M::TEARS && checksum(&bytes) != extent.checksum {
            count(&self.counters.extents_unverified);
            return Ok(Err(Unverified));
        }
        let Some(Record { key, value, version }) = Record::parse(&bytes) else { return Ok(Err(Unverified)) };
        if key != self.key.bytes() {
            count(&self.counters.fingerprint_collisions);
            return Ok(Ok(None));
        }
        Ok(Ok(Some(Found { extent, value, version, bytes })))
    }

    fn fail(&mut self) -> Result<(), LookupError> {
        self.failures += 1;
        if self.failures < RETRIES_MAX { Ok(()) } else { Err(LookupError::Contended) }
    }
}

/// The bytes read are not what their checksum says.
struct Unverified;
