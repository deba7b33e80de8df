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
//! the caller's limit; beyond it the lookup is [`LookupError::Contended`] and the client asks the owner.

use super::{Row, State, Table, Tables, WAYS};
use crate::{Answer, Counters, Found, Key, LookupError, counters::count, record::Record};
use locus_memory::{Memory, Pointer, checksum};
use locus_runtime::mistakes::{Mistake, planted};

/// How many times in a row one row may fail to verify before the directory entry is suspected to be stale.
const ROW_READS_MAX: usize = 4;

/// Finds a key in its partition's tables, as the directory entry in use has them.
///
/// Reads: 1 row and 1 extent at best; a miss without writers reads 5 rows. After `retries` verifications that failed it is
/// [`LookupError::Contended`] with the next.
#[inline]
pub async fn get<'m, M: Memory>(
    memory: &'m M,
    tables: &Tables,
    key: &Key<'_>,
    retries: usize,
    counters: &Counters,
) -> Result<Answer<M::Bytes<'m>>, LookupError> {
    count(&counters.lookups);
    let Some(current) = tables.current else { return Err(LookupError::Stale) };
    let mut search = Search { memory, key, counters, retries_left: retries };
    loop {
        let mut pass = Pass { tables: [current; 2], seen: [Seen::default(); 2], length: 0 };
        loop {
            // One call for both tables, so that the compiler makes one piece of it.
            match search.probe(&pass.tables[pass.length], &mut pass.seen[pass.length]).await? {
                Probe::Found(found) => {
                    memory.current()?;
                    return Ok(Answer::Found(found));
                }
                Probe::Absent => break,
                Probe::Moved => {
                    pass.length += 1;
                    match tables.next {
                        Some(next) if pass.length == 1 => pass.tables[1] = next,
                        _ => return Err(LookupError::Stale),
                    }
                }
            }
        }
        if !M::INTERLEAVES || planted(Mistake::NoSecondPass) || search.unchanged(&pass).await? {
            memory.current()?;
            return Ok(Answer::Absent);
        }
        search.fail()?;
    }
}

/// The rows of a table in the first pass, none of which held the key.
#[derive(Clone, Copy, Default)]
struct Seen {
    versions: [u32; WAYS],
    /// Which of them were marked MOVED. They stay so.
    moved: [bool; WAYS],
}

/// The tables that a first pass went through: all but the last have MOVED rows.
struct Pass {
    tables: [Table; 2],
    seen: [Seen; 2],
    /// How many lie before the last.
    length: usize,
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
    retries_left: usize,
}

impl<'m, M: Memory> Search<'m, '_, M> {
    /// Looks at the three rows of one table.
    #[inline]
    async fn probe(&mut self, table: &Table, seen: &mut Seen) -> Result<Probe<M::Bytes<'m>>, LookupError> {
        let places = table.positions(self.key).map(|row| table.row_at(row));
        for at in places {
            self.memory.prefetch(at, super::ROW_BYTES);
        }
        for (way, at) in places.into_iter().enumerate() {
            let mut unverified = 0;
            // The row as it was when its extent did not verify.
            let mut unverified_row = None;
            let row = loop {
                let bytes = self.memory.read(at, super::ROW_BYTES).await?;
                let Some((row, sum)) = Row::unverified(&bytes) else { return Err(LookupError::Stale) };
                let candidate = row.may_hold(self.key);
                if M::TEARS {
                    if candidate {
                        // Fetched while the row is verified; a wrong guess costs a line or two.
                        self.memory.prefetch(row.extent().at, row.extent().bytes);
                    }
                    if !row.verifies(sum, at, table.epoch) && !planted(Mistake::NoRowChecksum) {
                        count(&self.counters.rows_unverified);
                        unverified += 1;
                        if unverified == ROW_READS_MAX {
                            return Err(LookupError::Stale);
                        }
                        continue;
                    }
                }
                drop(bytes);
                count(&self.counters.rows_read);
                if !candidate {
                    break row;
                }
                let extent = row.extent();
                count(&self.counters.extents_read);
                let bytes = self.memory.read(extent.at, extent.bytes).await?;
                let record: &[u8] = &bytes;
                if M::TEARS && checksum(record) != extent.checksum && !planted(Mistake::NoExtentChecksum) {
                    // The extent was freed since: the row must have changed.
                    count(&self.counters.extents_unverified);
                    if unverified_row == Some(row) {
                        count(&self.counters.extents_lost);
                    }
                    unverified_row = Some(row);
                    self.fail()?;
                    continue;
                }
                match Record::parse(record) {
                    Some(Record { key, value, version }) if key == self.key.bytes() => {
                        return Ok(Probe::Found(Found { extent, value, version, bytes }));
                    }
                    _ => count(&self.counters.fingerprint_collisions),
                }
                break row;
            };
            seen.versions[way] = row.version();
            seen.moved[way] = row.state() == State::Moved;
        }
        let moved = seen.moved.iter().filter(|moved| **moved).count();
        self.counters.moved_rows.set(self.counters.moved_rows.get() + moved as u64);
        Ok(if moved > 0 { Probe::Moved } else { Probe::Absent })
    }

    /// The second pass: whether all rows but the last are as they were (Algorithm 1, lines 12 to 14).
    async fn unchanged(&mut self, pass: &Pass) -> Result<bool, LookupError> {
        count(&self.counters.second_passes);
        for number in 0..=pass.length {
            let (table, seen) = (&pass.tables[number], &pass.seen[number]);
            let again = if number == pass.length { WAYS - 1 } else { WAYS };
            let places = table.positions(self.key).map(|row| table.row_at(row));
            for way in (0..again).filter(|&way| !seen.moved[way]) {
                if self.row_again(places[way], table.epoch).await?.version() != seen.versions[way] {
                    count(&self.counters.second_passes_failed);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Reads a row until it verifies.
    async fn row_again(&self, at: Pointer, epoch: u64) -> Result<Row, LookupError> {
        for _ in 0..ROW_READS_MAX {
            count(&self.counters.rows_read_again);
            let bytes = self.memory.read(at, super::ROW_BYTES).await?;
            if let Some((row, sum)) = Row::unverified(&bytes)
                && (!M::TEARS || row.verifies(sum, at, epoch) || planted(Mistake::NoRowChecksum))
            {
                return Ok(row);
            }
            count(&self.counters.rows_unverified);
        }
        Err(LookupError::Stale)
    }

    fn fail(&mut self) -> Result<(), LookupError> {
        self.retries_left = self.retries_left.checked_sub(1).ok_or(LookupError::Contended)?;
        Ok(())
    }
}
