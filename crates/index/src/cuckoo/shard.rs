//! The partitions of a core, each with its own tables.
//!
//! A batch is looked up by attempts whose steps are taken side by side; what these leave (growth, two keys of one
//! fingerprint, misses) goes through the whole lookup, interleaved.

use super::{Attempt, Partition, Table, WAYS, get};
use crate::{
    Answer, Found, Key, LANES, MutationError, Owner, PARTITIONS, PartitionId, PutOutcome, Wanted,
    directory::Directory,
};
use locus_fabric::{Prefetches, Region};
use locus_runtime::interleave;

/// All partitions by number; those of other cores stay empty.
pub struct Shard {
    directory: Directory,
    partitions: Vec<Partition>,
    /// Their tables once more, closer together, since most lookups need no more; renewed with every change of a partition.
    /// One without a table has one without rows.
    tables: Vec<Table>,
    /// Partitions that may be growing, by number.
    growing: Vec<usize>,
}

impl Shard {
    /// Without keys. Publishes the entries of the partitions that it owns: one that says that there is no table is an
    /// entry, too.
    pub fn new<R: Region>(
        owner: &mut Owner<R>,
        directory: Directory,
        owns: impl Fn(PartitionId) -> bool,
    ) -> Self {
        let partitions: Vec<_> = (0..PARTITIONS).filter_map(PartitionId::new).map(Partition::new).collect();
        for partition in (0..PARTITIONS).filter_map(PartitionId::new).filter(|&id| owns(id)) {
            directory.publish(owner, partition, partitions[partition.index()].tables());
        }
        Self { directory, partitions, tables: vec![Table::NONE; PARTITIONS], growing: Vec::new() }
    }

    /// A partition.
    pub fn partition(&self, id: PartitionId) -> &Partition {
        &self.partitions[id.index()]
    }

    fn renew(&mut self, number: usize) {
        self.tables[number] = self.partitions[number].tables().current.unwrap_or(Table::NONE);
    }
}

impl<R: Region> crate::Shard<R> for Shard {
    #[inline]
    fn get_batch<'m>(
        &'m self,
        owner: &'m Owner<R>,
        wanted: &[Option<Wanted<'_>>],
        mut found: impl FnMut(usize, Option<Found<&'m [u8]>>),
    ) {
        let (arena, counters) = (&owner.arena, &owner.counters);
        let local = arena.local();
        let mut attempts = [const { None }; LANES];
        let mut ahead = Prefetches::within(arena.region_bytes());
        for (attempt, wanted) in attempts.iter_mut().zip(wanted) {
            let Some(Wanted { key, .. }) = wanted else { continue };
            let table = &self.tables[key.partition().index()];
            if table.rows > 0 {
                let begun = Attempt::begin(table, *key);
                ahead.push(begun.ahead(&local, 0));
                *attempt = Some(begun);
            }
        }
        ahead.start();
        let attempts = &mut attempts[..wanted.len()];
        for way in 0..WAYS {
            for attempt in attempts.iter_mut().flatten() {
                ahead.push(attempt.step(&local, way, counters));
            }
            ahead.start();
        }
        let mut left = [const { None }; LANES];
        let mut count = 0;
        for (place, (attempt, wanted)) in attempts.iter().zip(wanted).enumerate() {
            let Some(Wanted { key, get: true }) = wanted else { continue };
            match attempt.as_ref().and_then(|attempt| attempt.record(local, counters)) {
                Some(record) => found(place, Some(record)),
                None => {
                    left[count] = Some((place, key));
                    count += 1;
                }
            }
        }
        let memory = &arena.prefetched();
        let left = &left[..count];
        let lookups = left.iter().flatten().map(|(_, key)| async move {
            let tables = self.partitions[key.partition().index()].tables();
            // Nothing that the owner reads is half-written: there is nothing to try again.
            match tables.current {
                Some(_) => get(memory, tables, key, 0, counters).await,
                None => Ok(Answer::Absent),
            }
        });
        interleave(LANES, lookups, |number, answer| {
            let Some((place, _)) = left[number] else { return };
            match answer {
                Ok(Answer::Found(Found { extent, value, version, .. })) => {
                    let bytes = local.slice(extent.at, extent.bytes).expect("what was just read");
                    found(place, Some(Found { bytes, extent, value, version }));
                }
                Ok(Answer::Absent) => found(place, None),
                // The owner's own tables are always as it knows them.
                Err(error) => unreachable!("a lookup of the owner failed: {error}"),
            }
        });
    }

    fn put(
        &mut self,
        owner: &mut Owner<R>,
        key: &Key<'_>,
        value: &[u8],
    ) -> Result<PutOutcome, MutationError> {
        let number = key.partition().index();
        let partition = &mut self.partitions[number];
        let was_growing = partition.growing();
        let put = partition.put(owner, &self.directory, key, value);
        if partition.growing() && !was_growing {
            self.growing.push(number);
        }
        self.renew(number);
        put
    }

    fn delete(&mut self, owner: &mut Owner<R>, key: &Key<'_>) -> Result<Option<u64>, MutationError> {
        let number = key.partition().index();
        let deleted = self.partitions[number].delete(owner, &self.directory, key);
        self.renew(number);
        deleted
    }

    fn grow(&mut self, owner: &mut Owner<R>) -> bool {
        let Some(&number) = self.growing.last() else { return false };
        let partition = &mut self.partitions[number];
        // Without room it waits for the next mutation.
        let goes_on = partition.growing() && partition.grow(owner, &self.directory).is_ok();
        self.renew(number);
        if !goes_on {
            self.growing.pop();
        }
        true
    }

    fn records(&self, _: &Owner<R>) -> u64 {
        self.partitions.iter().map(Partition::records).sum()
    }

    fn rows(&self) -> u64 {
        self.partitions.iter().map(Partition::rows).sum()
    }
}
