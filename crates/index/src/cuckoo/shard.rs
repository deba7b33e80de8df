//! The partitions of a core, each with its own tables.
//!
//! A batch is looked up by attempts whose steps are taken side by side; what these leave (growth, two keys of one
//! fingerprint, misses) goes through the whole lookup, interleaved.

use super::{Attempt, Partition, Table, WAYS, get};
use crate::{
    Answer, Found, Key, LANES, MutationError, Owner, PARTITIONS, PartitionId, PutOutcome, Wanted,
    directory::Directory, shard::find_left,
};
use arrayvec::ArrayVec;
use locus_fabric::{Prefetch, Prefetches, Region};

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

    #[inline(always)]
    fn begin<'k>(&self, key: &Key<'k>) -> Option<Attempt<'k>> {
        let table = &self.tables[key.partition().index()];
        (table.rows > 0).then(|| Attempt::begin(table, *key))
    }

    /// Tries to find a key with nothing else to do meanwhile, so that all its rows are fetched at once.
    #[inline]
    fn get_alone<'m, R: Region>(&self, owner: &'m Owner<R>, key: &Key<'_>) -> Option<Found<&'m [u8]>> {
        let local = owner.arena.local();
        let mut attempt = self.begin(key)?;
        (0..WAYS).for_each(|way| attempt.ahead(&local, way).start());
        attempt.find_extent(&local, &owner.counters);
        attempt.record(local, &owner.counters)
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
        if let [Some(Wanted { key, get: true })] = wanted
            && let Some(record) = self.get_alone(owner, key)
        {
            return found(0, Some(record));
        }
        let mut attempts = ArrayVec::<_, LANES>::new();
        let mut ahead = Prefetches::within(arena.region_bytes());
        for wanted in wanted {
            let begun = wanted.as_ref().and_then(|wanted| self.begin(&wanted.key));
            ahead.push(begun.as_ref().map_or(Prefetch::NONE, |begun| begun.ahead(&local, 0)));
            attempts.push(begun);
        }
        ahead.start();
        for way in 0..WAYS {
            for attempt in attempts.iter_mut().flatten() {
                ahead.push(attempt.step(&local, way, counters));
            }
            ahead.start();
        }
        let mut left = ArrayVec::<_, LANES>::new();
        for (place, (attempt, wanted)) in attempts.iter().zip(wanted).enumerate() {
            let Some(Wanted { key, get: true }) = wanted else { continue };
            match attempt.as_ref().and_then(|attempt| attempt.record(local, counters)) {
                Some(record) => found(place, Some(record)),
                None => left.push((place, key)),
            }
        }
        if left.is_empty() {
            return;
        }
        let memory = &owner.arena.prefetched();
        let lookups = left.iter().map(|(_, key)| async move {
            let tables = self.partitions[key.partition().index()].tables();
            // Nothing that the owner reads is half-written: there is nothing to try again.
            match tables.current {
                Some(_) => get(memory, tables, key, 0, counters).await,
                None => Ok(Answer::Absent),
            }
        });
        find_left(owner, &left, lookups, found);
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
