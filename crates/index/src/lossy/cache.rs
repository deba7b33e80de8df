//! Puts and deletes of a lossy cache, by its owner.

use super::{
    BUCKET_BYTES, Layout,
    bucket::{Entry, entries, tag},
    lookup::batch,
};
use crate::{
    Found, Key, MutationError, Owner, PutOutcome, Shard, Wanted, check_lengths,
    counters::count,
    record::{Record, record_bytes},
};
use locus_fabric::Region;
use locus_memory::{Local, RegionId};

/// An entry whose item was overwritten long ago must be gone before positions come round again, 2^44 units later: one bucket
/// is looked at with every so many puts, so that each is within 2^38 puts, of two units at least.
const PUTS_PER_SWEPT_BUCKET: u64 = 64;
/// How many buckets are looked at to count what is present, at most.
const COUNTED_BUCKETS: u32 = 1 << 14;

/// A cache: a lossy index over a circular log.
pub struct Cache {
    layout: Layout,
    version: u64,
    puts: u64,
    swept: u32,
}

impl Cache {
    /// Over two regions, given with their lengths in bytes, which hold zeroes and are the cache's alone.
    ///
    /// # Panics
    /// When the index holds no bucket.
    pub fn new(index: (RegionId, usize), log: (RegionId, usize)) -> Self {
        let layout = Layout::new(index, log);
        assert!(layout.buckets > 0, "an index of {} bytes", index.1);
        Self { layout, version: 0, puts: 0, swept: 0 }
    }

    /// Where a lookup begins, until the next mutation.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How long an item with its header may be, in bytes.
    pub fn item_bytes_max(&self) -> usize {
        self.layout.log.item_bytes_max()
    }

    /// Points a tag to an item: in the place of the same tag, in a free place, or in that of the oldest.
    fn enter<R: Region>(&self, owner: &mut Owner<R>, key: &Key<'_>, position: u64, bytes: usize) -> bool {
        let (at, tag) = (self.layout.bucket_at(key), tag(key));
        let bucket = entries(owner.bytes(at, BUCKET_BYTES));
        let gone = |entry: Entry| entry == Entry::NONE || self.layout.log.find(entry.position()).is_none();
        let same = bucket.iter().position(|entry| entry.tag() == tag);
        let free = || bucket.iter().position(|entry| gone(*entry));
        let place = same.or_else(free).unwrap_or_else(|| {
            count(&owner.counters.bucket_evictions);
            let ages = bucket.map(|entry| self.layout.log.age(entry.position()));
            (0..ages.len()).max_by_key(|&place| ages[place]).expect("eight of them")
        });
        let entry = Entry::new(tag, position, bytes);
        owner.arena.writer().store_word(at, place, entry.bits());
        same.is_some_and(|same| !gone(bucket[same]))
    }

    /// Clears entries of one bucket whose items were overwritten.
    fn sweep<R: Region>(&mut self, owner: &mut Owner<R>) {
        let at = self.layout.index.add(self.swept as usize * BUCKET_BYTES);
        self.swept = (self.swept + 1) % self.layout.buckets;
        for (place, entry) in entries(owner.bytes(at, BUCKET_BYTES)).into_iter().enumerate() {
            if entry != Entry::NONE && self.layout.log.find(entry.position()).is_none() {
                owner.arena.writer().store_word(at, place, 0);
            }
        }
    }

    /// The place of a key in its bucket.
    fn find<R: Region>(&self, local: Local<'_, R>, key: &Key<'_>) -> Option<usize> {
        let bucket = local.slice(self.layout.bucket_at(key), BUCKET_BYTES).expect("a bucket of the index");
        let tag = tag(key);
        let (place, entry) = entries(bucket).into_iter().enumerate().find(|(_, entry)| entry.tag() == tag)?;
        let (at, rest) = self.layout.log.find(entry.position())?;
        let item = local.slice(at, rest).expect("the rest of the log");
        Record::parse(item).is_some_and(|record| record.key == key.bytes()).then_some(place)
    }
}

impl<R: Region> Shard<R> for Cache {
    const CHECKSUMS: bool = false;

    fn get_batch<'m>(
        &'m self,
        owner: &'m Owner<R>,
        wanted: &[Option<Wanted<'_>>],
        found: impl FnMut(usize, Option<Found<&'m [u8]>>),
    ) {
        batch(owner, &self.layout, wanted, found);
    }

    fn put(
        &mut self,
        owner: &mut Owner<R>,
        key: &Key<'_>,
        value: &[u8],
    ) -> Result<PutOutcome, MutationError> {
        check_lengths(key.bytes(), value)?;
        let bytes = record_bytes(key.bytes().len(), value.len());
        if bytes > self.item_bytes_max() {
            return Err(MutationError::LogItem { bytes, limit: self.item_bytes_max() });
        }
        self.version += 1;
        let position = self.layout.log.append(owner, self.version, key, value);
        let replaced = self.enter(owner, key, position, bytes);
        self.puts += 1;
        if self.puts.is_multiple_of(PUTS_PER_SWEPT_BUCKET) {
            self.sweep(owner);
        }
        Ok(PutOutcome { version: self.version, replaced })
    }

    fn delete(&mut self, owner: &mut Owner<R>, key: &Key<'_>) -> Result<Option<u64>, MutationError> {
        check_lengths(key.bytes(), &[])?;
        let Some(place) = self.find(owner.arena.local(), key) else { return Ok(None) };
        owner.arena.writer().store_word(self.layout.bucket_at(key), place, 0);
        self.version += 1;
        Ok(Some(self.version))
    }

    fn grow(&mut self, _: &mut Owner<R>) -> bool {
        false
    }

    /// Counted in the index, and in a large one estimated from a part of it: a put does not look whether it overwrites the
    /// item of a key that is present, since that would be another random access.
    fn records(&self, owner: &Owner<R>) -> u64 {
        let counted = self.layout.buckets.min(COUNTED_BUCKETS);
        let present = |bucket: u32| {
            let at = self.layout.index.add(bucket as usize * BUCKET_BYTES);
            let entries = entries(owner.bytes(at, BUCKET_BYTES));
            let present =
                |entry: &&Entry| **entry != Entry::NONE && self.layout.log.find(entry.position()).is_some();
            entries.iter().filter(present).count() as u64
        };
        let sum: u64 = (0..counted).map(present).sum();
        sum * u64::from(self.layout.buckets) / u64::from(counted)
    }

    fn rows(&self) -> u64 {
        u64::from(self.layout.buckets) * super::ENTRIES as u64
    }

    fn fixed_bytes(&self) -> u64 {
        u64::from(self.layout.buckets) * BUCKET_BYTES as u64 + self.layout.log.bytes()
    }
}
