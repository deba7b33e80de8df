//! The directory: where the tables of each partition are, in registered memory for anyone to READ.
//!
//! One entry of 64 bytes, a cache line, per partition, at `partition * 64` of a region of its own. Its last word is a
//! checksum over the rest, the entry's location and the server's incarnation (Mitchell §3.3: a root object). A
//! reader caches entries. It reads one again when a row says MOVED or cannot be verified, so growth reaches clients
//! in band: no message, and no connection reset as in Mitchell §3.4.

use crate::{
    Counters, LookupError, Owner, PARTITIONS, PartitionId,
    counters::count,
    cuckoo::{ROWS_MIN, Table, Tables},
};
use locus_fabric::Region;
use locus_memory::{Memory, Pointer, RegionId, checksum_entry};

/// The length of an entry in bytes.
pub const ENTRY_BYTES: usize = 64;
/// The length of a directory in bytes.
pub const DIRECTORY_BYTES: usize = PARTITIONS * ENTRY_BYTES;
/// How often an entry is read before it counts as contended: an owner rewrites one twice per growth.
const READS_MAX: usize = 16;

/// Where a directory is, and of which server.
#[derive(Clone, Copy, Debug)]
pub struct Directory {
    region: RegionId,
    incarnation: u64,
}

impl Directory {
    /// The directory in this region.
    pub fn new(region: RegionId, incarnation: u64) -> Self {
        Self { region, incarnation }
    }

    fn at(&self, partition: PartitionId) -> Pointer {
        Pointer::new(self.region, partition.index() * ENTRY_BYTES)
    }

    /// Writes a partition's entry. Readers of a half-written entry notice by the checksum and read it again.
    pub fn publish<R: Region>(&self, owner: &mut Owner<R>, partition: PartitionId, tables: &Tables) {
        let at = self.at(partition);
        let body = encode(tables);
        let [a, b, c, d, e, f, g] = body;
        let words = [a, b, c, d, e, f, g, checksum_entry(body, at, self.incarnation)];
        let mut writer = owner.arena.writer();
        // The tables must be complete before an entry names them.
        writer.release();
        writer.store_words(at, &words);
        // What follows (MOVED rows, reuse of the old table) must not be seen before the entry.
        writer.release();
    }

    /// Reads a partition's entry.
    pub async fn read<M: Memory>(
        &self,
        memory: &M,
        partition: PartitionId,
        counters: &Counters,
    ) -> Result<Tables, LookupError> {
        let at = self.at(partition);
        for _ in 0..READS_MAX {
            count(&counters.entries_read);
            let bytes = memory.read(at, ENTRY_BYTES).await?;
            let mut words = [0; 8];
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            let [body @ .., sum] = words;
            if sum == checksum_entry(body, at, self.incarnation)
                && let Some(tables) = decode(&body)
            {
                return Ok(tables);
            }
            count(&counters.entries_unverified);
        }
        Err(LookupError::Contended)
    }
}

fn encode(tables: &Tables) -> [u64; 7] {
    let mut words = [0; 7];
    for (slot, table) in words.chunks_exact_mut(3).zip([tables.current, tables.next]) {
        if let Some(table) = table {
            slot.copy_from_slice(&[table.at.bits(), table.rows.into(), table.epoch]);
        }
    }
    words
}

/// None where the numbers of rows are such as no table has: whoever wrote that is not to be followed.
fn decode(words: &[u64; 7]) -> Option<Tables> {
    let table = |at: u64, rows: u64, epoch| match rows {
        0 => Some(None),
        rows if (ROWS_MIN as u64..=u32::MAX.into()).contains(&rows) => {
            Some(Some(Table { at: Pointer::from_bits(at), rows: rows as u32, epoch }))
        }
        _ => None,
    };
    Some(Tables { current: table(words[0], words[1], words[2])?, next: table(words[3], words[4], words[5])? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_impossible_length_is_not_followed() {
        for (rows, fine) in [(0, true), (1, false), (2, false), (ROWS_MIN as u64, true), (1 << 40, false)] {
            assert_eq!(decode(&[0, rows, 1, 0, 0, 0, 0]).is_some(), fine, "{rows} rows");
            assert_eq!(
                decode(&[0, ROWS_MIN as u64, 1, 0, rows, 2, 0]).is_some(),
                fine,
                "{rows} rows of the next"
            );
        }
    }
}
