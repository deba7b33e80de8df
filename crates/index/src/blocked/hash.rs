//! Puts and deletes of a blocked hash table, by its owner.
//!
//! A put writes the extent, then the bucket that points to it, and only then frees the extents that the bucket pointed to
//! before. A reader that holds an old bucket finds the old record, or bytes that fail its checksum, and reads the bucket again.

use super::{
    BUCKET_BYTES, PLACES,
    bucket::{Bucket, Place},
    bucket_at,
    lookup::batch,
};
use crate::{
    Found, Key, MutationError, Owner, PARTITIONS, PartitionId, PutOutcome, Shard, Wanted, check_lengths,
    counters::count,
    cuckoo::{Table, Tables},
    directory::Directory,
};
use locus_fabric::Region;
use locus_memory::{Pointer, RegionId};
use locus_runtime::mistakes::{Mistake, planted};

/// A table of buckets: all of a core's keys.
pub struct Hash {
    table: Table,
    version: u64,
    records: u64,
}

impl Hash {
    /// Over a new region, given with its length in bytes, which is the table's alone and holds zeros. Publishes it as the table of each
    /// partition that the core owns.
    ///
    /// # Panics
    /// When it holds no bucket.
    pub fn new<R: Region>(
        owner: &mut Owner<R>,
        region: (RegionId, usize),
        directory: Directory,
        owns: impl Fn(PartitionId) -> bool,
    ) -> Self {
        let rows = u32::try_from(region.1 / BUCKET_BYTES).expect("a table is below 64 GiB");
        assert!(rows as usize >= crate::cuckoo::ROWS_MIN, "a table of {} bytes", region.1);
        let table = Table { at: Pointer::new(region.0, 0), rows, epoch: owner.next_epoch() };
        for partition in (0..PARTITIONS).filter_map(PartitionId::new).filter(|&id| owns(id)) {
            directory.publish(owner, partition, &Tables { current: Some(table), next: None });
        }
        Self { table, version: 0, records: 0 }
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// A key's bucket, and its place there if it is present.
    fn find<R: Region>(&self, owner: &Owner<R>, key: &Key<'_>) -> (Bucket, Option<usize>) {
        let bytes = owner.bytes(bucket_at(&self.table, key), BUCKET_BYTES);
        let (bucket, _) = Bucket::unverified(bytes).expect("64 bytes");
        let holds =
            |place: &Place| place.extent_of(key).is_some_and(|extent| owner.holds(extent, key.bytes()));
        (bucket, bucket.places.iter().position(holds))
    }
}

fn store<R: Region>(owner: &mut Owner<R>, at: Pointer, epoch: u64, bucket: &Bucket) {
    let mut writer = owner.arena.writer();
    writer.release();
    writer.store_words(at, &bucket.encode(at, epoch));
}

impl<R: Region> Shard<R> for Hash {
    fn get_batch<'m>(
        &'m self,
        owner: &'m Owner<R>,
        wanted: &[Option<Wanted<'_>>],
        found: impl FnMut(usize, Option<Found<&'m [u8]>>),
    ) {
        batch(owner, &self.table, wanted, found);
    }

    fn put(
        &mut self,
        owner: &mut Owner<R>,
        key: &Key<'_>,
        value: &[u8],
    ) -> Result<PutOutcome, MutationError> {
        check_lengths(key.bytes(), value)?;
        let (mut bucket, present) = self.find(owner, key);
        let place = Place::of(owner.write_record(self.version + 1, key, value)?, key);
        self.version += 1;
        let gone = match present {
            Some(number) => std::mem::replace(&mut bucket.places[number], place),
            // An empty first place is free; otherwise the places shift, and the last one falls out.
            None if bucket.places[0].extent().is_none() => std::mem::replace(&mut bucket.places[0], place),
            None => {
                let last = bucket.places[PLACES - 1];
                bucket.places.copy_within(..PLACES - 1, 1);
                bucket.places[0] = place;
                if last.extent().is_some() {
                    count(&owner.counters.bucket_evictions);
                    self.records -= 1;
                }
                last
            }
        };
        if planted(Mistake::ExtentFreedEarly)
            && let Some(extent) = gone.extent()
        {
            owner.free_extent(extent);
        }
        bucket.version += 1;
        store(owner, bucket_at(&self.table, key), self.table.epoch, &bucket);
        if let Some(extent) = gone.extent()
            && !planted(Mistake::ExtentFreedEarly)
        {
            owner.free_extent(extent);
        }
        self.records += u64::from(present.is_none());
        Ok(PutOutcome { version: self.version, replaced: present.is_some() })
    }

    fn delete(&mut self, owner: &mut Owner<R>, key: &Key<'_>) -> Result<Option<u64>, MutationError> {
        check_lengths(key.bytes(), &[])?;
        let (mut bucket, Some(number)) = self.find(owner, key) else { return Ok(None) };
        let gone = std::mem::take(&mut bucket.places[number]);
        bucket.version += 1;
        store(owner, bucket_at(&self.table, key), self.table.epoch, &bucket);
        if let Some(extent) = gone.extent() {
            owner.free_extent(extent);
        }
        self.records -= 1;
        self.version += 1;
        Ok(Some(self.version))
    }

    fn grow(&mut self, _: &mut Owner<R>) -> bool {
        false
    }

    fn records(&self, _: &Owner<R>) -> u64 {
        self.records
    }

    fn rows(&self) -> u64 {
        u64::from(self.table.rows) * PLACES as u64
    }

    fn fixed_bytes(&self) -> u64 {
        u64::from(self.table.rows) * BUCKET_BYTES as u64
    }
}
