//! The partitions of a core, each with its own table. A batch is looked up interleaved over prefetched memory.

use super::{Partition, Shape, get};
use crate::{
    Answer, Found, Key, LANES, MutationError, Owner, PARTITIONS, PartitionId, PutOutcome, Wanted,
    directory::Directory,
};
use locus_fabric::Region;
use locus_runtime::interleave;

/// All partitions by number; those of other cores stay empty.
pub struct Shard {
    directory: Directory,
    shape: Shape,
    partitions: Vec<Partition>,
    /// Partitions that may be growing, by number.
    growing: Vec<usize>,
}

impl Shard {
    /// Without keys. Publishes the entries of the partitions that it owns.
    pub fn new<R: Region>(
        owner: &mut Owner<R>,
        shape: Shape,
        directory: Directory,
        owns: impl Fn(PartitionId) -> bool,
    ) -> Self {
        let all = || (0..PARTITIONS).filter_map(PartitionId::new);
        let partitions: Vec<_> = all().map(|id| Partition::new(id, shape)).collect();
        for partition in all().filter(|&id| owns(id)) {
            directory.publish(owner, partition, partitions[partition.index()].tables());
        }
        Self { directory, shape, partitions, growing: Vec::new() }
    }

    /// A partition.
    pub fn partition(&self, id: PartitionId) -> &Partition {
        &self.partitions[id.index()]
    }
}

impl<R: Region> crate::Shard<R> for Shard {
    fn get_batch<'m>(
        &'m self,
        owner: &'m Owner<R>,
        wanted: &[Option<Wanted<'_>>],
        mut found: impl FnMut(usize, Option<Found<&'m [u8]>>),
    ) {
        let memory = &owner.arena.prefetched();
        let lookups = wanted.iter().map(|wanted| async move {
            let key = &wanted.as_ref()?.key;
            let tables = self.partitions[key.partition().index()].tables();
            // Nothing that the owner reads is half-written: there is nothing to try again, but for two keys of one fingerprint.
            match tables.current {
                Some(_) => Some(get(memory, &self.shape, tables, key, 1, &owner.counters).await),
                None => Some(Ok(Answer::Absent)),
            }
        });
        interleave(LANES, lookups, |place, answer| match answer {
            _ if !wanted[place].is_some_and(|wanted| wanted.get) => {}
            Some(Ok(Answer::Found(Found { extent, value, version, .. }))) => {
                let bytes = owner.arena.local().slice(extent.at, extent.bytes).expect("what was just read");
                found(place, Some(Found { bytes, extent, value, version }));
            }
            Some(Ok(Answer::Absent)) | None => found(place, None),
            Some(Err(error)) => unreachable!("a lookup of the owner failed: {error}"),
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
        put
    }

    fn delete(&mut self, owner: &mut Owner<R>, key: &Key<'_>) -> Result<Option<u64>, MutationError> {
        self.partitions[key.partition().index()].delete(owner, &self.directory, key)
    }

    fn grow(&mut self, owner: &mut Owner<R>) -> bool {
        let Some(&number) = self.growing.last() else { return false };
        let partition = &mut self.partitions[number];
        // Without room it waits for the next mutation.
        if !partition.growing() || partition.grow(owner, &self.directory).is_err() {
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
