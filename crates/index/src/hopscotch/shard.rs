//! The partitions of a core, each with its own table.
//!
//! A batch is looked up in stages; what these leave (keys at their second home, growth, misses) goes through the whole lookup,
//! interleaved.

use super::{Partition, Shape, get, slot::Slot};
use crate::shard::find_left;
use crate::{
    Answer, Extent, Found, Key, LANES, MutationError, Owner, PARTITIONS, PartitionId, PutOutcome, Wanted,
    counters::count, directory::Directory, record::Record,
};
use arrayvec::ArrayVec;
use locus_fabric::{Prefetch, Prefetches, Region};
use locus_memory::{Memory, Pointer};

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

    /// The record of a slot of our own that may hold a key, if it does.
    #[inline]
    fn record<'m, R: Region>(
        &self,
        owner: &'m Owner<R>,
        slot: Slot<'m>,
        key: &Key<'_>,
    ) -> Option<Found<&'m [u8]>> {
        let found = if self.shape.inline() {
            let (_, value, version) = slot.record()?;
            let extent = Extent { at: Pointer::from_bits(0), bytes: slot.0.len(), checksum: 0 };
            Found { bytes: slot.0, extent, value, version }
        } else {
            let extent = slot.extent();
            count(&owner.counters.extents_read);
            let bytes = owner.bytes(extent.at, extent.bytes);
            let Record { key: its, value, version } = Record::parse(bytes)?;
            (its == key.bytes()).then_some(Found { bytes, extent, value, version })?
        };
        count(&owner.counters.lookups);
        Some(found)
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
        let (local, counters) = (owner.arena.local(), &owner.counters);
        let mut ahead = Prefetches::within(owner.arena.region_bytes());
        let mut homes = ArrayVec::<_, LANES>::new();
        for wanted in wanted {
            let table =
                wanted.as_ref().and_then(|wanted| self.partition(wanted.key.partition()).tables().current);
            let home =
                table.zip(wanted.as_ref()).map(|(table, wanted)| self.shape.first_at(&table, &wanted.key));
            ahead.push(home.map_or(Prefetch::NONE, |home| local.ahead(home, self.shape.read_bytes())));
            homes.push(home);
        }
        ahead.start();
        // What the slot with the key, or with its fingerprint, says.
        let mut hits = ArrayVec::<_, LANES>::new();
        for (home, wanted) in homes.iter().zip(wanted) {
            let hit = home.zip(wanted.as_ref()).and_then(|(home, Wanted { key, .. })| {
                count(&counters.rows_read);
                let slots = owner.bytes(home, self.shape.read_bytes()).chunks_exact(self.shape.slot_bytes());
                slots.map(Slot).find(|slot| slot.may_hold(&self.shape, key))
            });
            if let Some(slot) = hit.filter(|_| !self.shape.inline()) {
                ahead.push(local.ahead(slot.extent().at, slot.extent().bytes));
            }
            hits.push(hit);
        }
        ahead.start();
        let mut left = ArrayVec::<_, LANES>::new();
        for (place, (hit, wanted)) in hits.into_iter().zip(wanted).enumerate() {
            let Some(Wanted { key, get: true }) = wanted else { continue };
            match hit.and_then(|slot| self.record(owner, slot, key)) {
                Some(record) => found(place, Some(record)),
                None => left.push((place, key)),
            }
        }
        if left.is_empty() {
            return;
        }
        let memory = &owner.arena.prefetched();
        let lookups = left.iter().map(|(_, key)| async move {
            let tables = self.partition(key.partition()).tables();
            // Nothing that the owner reads is half-written: there is nothing to try again, but for two keys of one fingerprint.
            match tables.current {
                Some(_) => get(memory, &self.shape, tables, key, 1, counters).await,
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
