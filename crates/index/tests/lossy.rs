//! The lossy cache against a plain model of its index and its log, which predicts each hit and each miss.

use locus_index::{
    Answer, Found, Key, MutationError, Owner, Shard, Wanted,
    lossy::{BUCKET_BYTES, Cache, ENTRIES, get},
    record_bytes,
};
use locus_memory::{
    Arena, RegionId,
    testing::{HeapRegion, block_on, ready},
};
use proptest::prelude::*;
use std::collections::VecDeque;
use xxhash_rust::xxh3::xxh3_128_with_seed;

const SEED: u64 = 5;

struct Table {
    owner: Owner<HeapRegion>,
    cache: Cache,
}

impl Table {
    fn new(buckets: usize, log_bytes: usize) -> Self {
        let mut arena = Arena::new();
        let [index, log] = [0, 1].map(|id| RegionId::new(id).unwrap());
        let sizes = [buckets * BUCKET_BYTES, log_bytes];
        for (id, bytes) in [index, log].into_iter().zip(sizes) {
            arena.add_whole_region(id, HeapRegion::new(bytes)).unwrap();
        }
        let cache = Cache::new((index, sizes[0]), (log, sizes[1]));
        Self { owner: Owner::new(arena, SEED, 0, 1), cache }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), MutationError> {
        self.cache.put(&mut self.owner, &Key::new(key, SEED), value).map(drop)
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        self.cache.delete(&mut self.owner, &Key::new(key, SEED)).unwrap().is_some()
    }

    /// By all three ways, which must agree.
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let (local, prefetched) = (self.owner.arena.local(), self.owner.arena.prefetched());
        let key = Key::new(key, SEED);
        let (layout, counters) = (self.cache.layout(), &self.owner.counters);
        let value = |answer: Answer<&[u8]>| match answer {
            Answer::Found(found) => Some(found.value().to_vec()),
            Answer::Absent => None,
        };
        let one = value(ready(get(&local, layout, &key, counters)).unwrap());
        assert_eq!(value(block_on(get(&prefetched, layout, &key, counters)).unwrap()), one);
        let mut batched = None;
        self.cache.get_batch(&self.owner, &[None, Some(Wanted { key, get: true })], |place, found| {
            assert_eq!(place, 1);
            batched = Some(found.map(|found: Found<&[u8]>| found.value().to_vec()));
        });
        assert_eq!(batched, Some(one.clone()));
        one
    }

    fn count(&self, name: &str) -> u64 {
        self.owner.counters.list().iter().find(|(other, _)| *other == name).unwrap().1
    }
}

/// An item of the model's log.
struct Item {
    position: u64,
    /// None is the room that was skipped before the log's end.
    pair: Option<(Vec<u8>, Vec<u8>)>,
}

/// What MICA's index and log would hold, in plain collections.
struct Model {
    buckets: Vec<[Option<(u16, u64)>; ENTRIES]>,
    log: VecDeque<Item>,
    units: u64,
    tail: u64,
    evictions: u64,
    overwrites: u64,
}

impl Model {
    fn new(buckets: usize, log_bytes: usize) -> Self {
        let units = log_bytes as u64 / 16;
        Self {
            buckets: vec![[None; ENTRIES]; buckets],
            log: VecDeque::new(),
            units,
            tail: units,
            evictions: 0,
            overwrites: 0,
        }
    }

    fn place(&self, key: &[u8]) -> (usize, u16) {
        let hash = xxh3_128_with_seed(key, SEED);
        let bucket = (u128::from(hash as u64) * self.buckets.len() as u128) >> 64;
        (bucket as usize, ((hash >> 64) as u16).max(1))
    }

    fn item(&self, position: u64) -> Option<&(Vec<u8>, Vec<u8>)> {
        self.log.iter().find(|item| item.position == position)?.pair.as_ref()
    }

    fn push(&mut self, units: u64, pair: Option<(Vec<u8>, Vec<u8>)>) {
        self.log.push_back(Item { position: self.tail, pair });
        self.tail += units;
        while self.tail - self.log[0].position > self.units {
            self.overwrites += u64::from(self.log.pop_front().unwrap().pair.is_some());
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        let units = record_bytes(key.len(), value.len()) as u64 / 16;
        let rest = self.units - self.tail % self.units;
        if rest < units {
            self.push(rest, None);
        }
        let position = self.tail;
        self.push(units, Some((key.to_vec(), value.to_vec())));
        let (bucket, tag) = self.place(key);
        let entries = self.buckets[bucket];
        let same = entries.iter().position(|entry| entry.is_some_and(|(other, _)| other == tag));
        let free = entries.iter().position(|entry| entry.is_none_or(|(_, old)| self.item(old).is_none()));
        let oldest = (0..ENTRIES).min_by_key(|&place| entries[place].map(|(_, old)| old)).unwrap();
        self.evictions += u64::from(same.is_none() && free.is_none());
        self.buckets[bucket][same.or(free).unwrap_or(oldest)] = Some((tag, position));
    }

    fn find(&self, key: &[u8]) -> Option<(usize, usize, &[u8])> {
        let (bucket, tag) = self.place(key);
        let place =
            self.buckets[bucket].iter().position(|entry| entry.is_some_and(|(other, _)| other == tag))?;
        let (its, value) = self.item(self.buckets[bucket][place]?.1)?;
        (its == key).then_some((bucket, place, value))
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.find(key).map(|(_, _, value)| value.to_vec())
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        let Some((bucket, place, _)) = self.find(key) else { return false };
        self.buckets[bucket][place] = None;
        true
    }

    fn records(&self) -> u64 {
        let present = |(_, position): &(u16, u64)| self.item(*position).is_some();
        self.buckets.iter().flatten().flatten().filter(|entry| present(entry)).count() as u64
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u16, usize),
    Get(u16),
    Delete(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let lengths = prop_oneof![8 => 0usize..100, 1 => 800usize..1200];
    let step = prop_oneof![
        5 => (0u16..300, lengths).prop_map(|(key, bytes)| Step::Put(key, bytes)),
        4 => (0u16..300).prop_map(Step::Get),
        1 => (0u16..300).prop_map(Step::Delete),
    ];
    prop::collection::vec(step, 0..1500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn each_hit_and_each_miss_is_the_models(
        steps in steps(), buckets in 1usize..40, log_units in 160usize..2000,
    ) {
        let log_bytes = log_units * 16;
        let (mut table, mut model) = (Table::new(buckets, log_bytes), Model::new(buckets, log_bytes));
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put(key, bytes) => {
                    let value = vec![number as u8; bytes];
                    table.put(&key.to_le_bytes(), &value).unwrap();
                    model.put(&key.to_le_bytes(), &value);
                }
                Step::Get(key) => {
                    prop_assert_eq!(table.get(&key.to_le_bytes()), model.get(&key.to_le_bytes()), "key {}", key);
                }
                Step::Delete(key) => {
                    prop_assert_eq!(table.delete(&key.to_le_bytes()), model.delete(&key.to_le_bytes()));
                }
            }
        }
        for key in 0u16..300 {
            prop_assert_eq!(table.get(&key.to_le_bytes()), model.get(&key.to_le_bytes()), "key {}", key);
        }
        prop_assert_eq!(table.cache.records(&table.owner), model.records());
        prop_assert_eq!(table.count("bucket_evictions"), model.evictions);
        prop_assert_eq!(table.count("log_overwrites"), model.overwrites);
    }
}

#[test]
fn tags_that_collide_evict_each_other_and_nothing_wrong_is_found() {
    // With 65,535 tags in one bucket, some of these share one.
    let (mut table, mut model) = (Table::new(1, 64 << 10), Model::new(1, 64 << 10));
    let mut collisions = 0;
    for number in 0u32..20_000 {
        let (key, earlier) = (number.to_le_bytes(), number.saturating_sub(1 + number % 7).to_le_bytes());
        let before = model.get(&earlier);
        table.put(&key, &key).unwrap();
        model.put(&key, &key);
        assert_eq!(table.get(&earlier), model.get(&earlier), "key {number}");
        collisions += u64::from(
            before.is_some() && model.get(&earlier).is_none() && model.place(&key) == model.place(&earlier),
        );
    }
    assert_eq!(table.count("bucket_evictions"), model.evictions);
    assert!(table.count("bucket_evictions") > 19_000 && collisions > 0, "{collisions} collisions");
}

#[test]
fn lengths_at_and_over_the_limits() {
    let mut table = Table::new(4, 8 << 10);
    assert_eq!(table.cache.item_bytes_max(), 4 << 10);
    let longest = (4 << 10) - 24 - 3;
    table.put(b"key", &vec![1; longest]).unwrap();
    assert_eq!(table.get(b"key").map(|value| value.len()), Some(longest));
    let error = table.put(b"key", &vec![1; longest + 1]).unwrap_err();
    assert_eq!(error, MutationError::LogItem { bytes: (4 << 10) + 16, limit: 4 << 10 });
    assert!(table.get(b"key").is_some(), "a put that fails changes nothing");
    assert_eq!(table.put(b"", b""), Err(MutationError::KeyLength(0)));
    assert_eq!(table.put(&[1; 1025], b""), Err(MutationError::KeyLength(1025)));
}

#[test]
fn a_put_touches_one_line_of_the_index_and_a_get_that_and_an_item() {
    let mut table = Table::new(1 << 10, 1 << 20);
    for number in 0u32..4000 {
        table.put(&number.to_le_bytes(), &[7; 32]).unwrap();
    }
    assert_eq!((table.count("rows_read"), table.count("extents_read")), (0, 0), "a put looks nothing up");
    let (counters, local) = (&table.owner.counters, table.owner.arena.local());
    for number in 0u32..8000 {
        let before = (counters.rows_read.get(), counters.extents_read.get());
        let bytes = number.to_le_bytes();
        let answer = ready(get(&local, table.cache.layout(), &Key::new(&bytes, SEED), counters));
        let read = (counters.rows_read.get() - before.0, counters.extents_read.get() - before.1);
        assert!(read.0 == 1 && read.1 <= 1, "{read:?}");
        assert!(read.1 == 1 || matches!(answer, Ok(Answer::Absent)));
    }
}
