//! The blocked hash against a plain model of its buckets, which predicts each hit and each miss; and its readers against
//! its owner.

use locus_index::{
    Answer, Counters, Found, Key, LookupError, MutationError, Owner, Shard, Wanted,
    blocked::{BUCKET_BYTES, Hash, PLACES, get},
    directory::{DIRECTORY_BYTES, Directory},
};
use locus_memory::{
    Arena, Purpose, RegionId,
    testing::{HeapRegion, Interleaved, SampleOrder, ready},
};
use proptest::prelude::*;
use std::cell::RefCell;
use xxhash_rust::xxh3::xxh3_128_with_seed;

const SEED: u64 = 5;

struct Table {
    owner: Owner<HeapRegion>,
    hash: Hash,
}

impl Table {
    fn new(buckets: usize, extent_bytes: usize) -> Self {
        let mut arena = Arena::new();
        let ids = [0, 1, 2].map(|id| RegionId::new(id).unwrap());
        arena.add_region(ids[0], HeapRegion::new(DIRECTORY_BYTES), Purpose::Directory).unwrap();
        arena.add_whole_region(ids[1], HeapRegion::new(buckets * BUCKET_BYTES)).unwrap();
        arena.add_region(ids[2], HeapRegion::new(extent_bytes), Purpose::Extents).unwrap();
        let mut owner = Owner::new(arena, SEED, 0, 1);
        let directory = Directory::new(ids[0], 77);
        let hash = Hash::new(&mut owner, (ids[1], buckets * BUCKET_BYTES), directory, |_| true);
        Self { owner, hash }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool, MutationError> {
        self.hash.put(&mut self.owner, &Key::new(key, SEED), value).map(|put| put.replaced)
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        self.hash.delete(&mut self.owner, &Key::new(key, SEED)).unwrap().is_some()
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let key = Key::new(key, SEED);
        let mut batched = None;
        self.hash.get_batch(&self.owner, &[None, Some(Wanted { key, get: true })], |place, found| {
            assert_eq!(place, 1);
            batched = Some(found.map(|found: Found<&[u8]>| found.value().to_vec()));
        });
        let local = self.owner.arena.local();
        let one = match ready(get(&local, self.hash.table(), &key, 0, &self.owner.counters)).unwrap() {
            Answer::Found(found) => Some(found.value().to_vec()),
            Answer::Absent => None,
        };
        assert_eq!(batched, Some(one.clone()));
        one
    }
}

type Pair = (Vec<u8>, Vec<u8>);

/// Buckets as the paper has them: the newer pair first, the last one evicted.
struct Model {
    buckets: Vec<[Option<Pair>; PLACES]>,
    evictions: u64,
}

impl Model {
    fn bucket(&mut self, key: &[u8]) -> &mut [Option<Pair>; PLACES] {
        let spread = xxh3_128_with_seed(key, SEED) as u64;
        let bucket = (u128::from(spread) * self.buckets.len() as u128) >> 64;
        &mut self.buckets[bucket as usize]
    }

    fn place(&mut self, key: &[u8]) -> Option<&mut Option<Pair>> {
        self.bucket(key).iter_mut().find(|pair| pair.as_ref().is_some_and(|(its, _)| its == key))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> bool {
        let pair = (key.to_vec(), value.to_vec());
        if let Some(place) = self.place(key) {
            *place = Some(pair);
            return true;
        }
        let [first, second] = self.bucket(key);
        let gone = first.take().and_then(|older| second.replace(older));
        *first = Some(pair);
        self.evictions += u64::from(gone.is_some());
        false
    }

    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        self.place(key)?.as_ref().map(|(_, value)| value.clone())
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        self.place(key).map(|place| place.take()).is_some()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u16, Vec<u8>),
    Get(u16),
    Delete(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0u16..200, prop::collection::vec(any::<u8>(), 0..80)).prop_map(|(key, value)| Step::Put(key, value)),
        4 => (0u16..200).prop_map(Step::Get),
        1 => (0u16..200).prop_map(Step::Delete),
    ];
    prop::collection::vec(step, 0..1000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn each_hit_and_each_miss_is_the_models(steps in steps(), buckets in 8usize..200) {
        let mut table = Table::new(buckets, 1 << 20);
        let mut model = Model { buckets: vec![[const { None }; PLACES]; buckets], evictions: 0 };
        for step in steps {
            match step {
                Step::Put(key, value) => {
                    let replaced = model.put(&key.to_le_bytes(), &value);
                    prop_assert_eq!(table.put(&key.to_le_bytes(), &value), Ok(replaced));
                }
                Step::Get(key) => prop_assert_eq!(table.get(&key.to_le_bytes()), model.get(&key.to_le_bytes())),
                Step::Delete(key) => {
                    prop_assert_eq!(table.delete(&key.to_le_bytes()), model.delete(&key.to_le_bytes()));
                }
            }
        }
        let mut present = 0;
        for key in 0u16..200 {
            let value = model.get(&key.to_le_bytes());
            present += u64::from(value.is_some());
            prop_assert_eq!(table.get(&key.to_le_bytes()), value);
        }
        prop_assert_eq!(table.hash.records(&table.owner), present);
        prop_assert_eq!(table.owner.counters.bucket_evictions.get(), model.evictions);
        table.owner.arena.audit();
        for key in 0u16..200 {
            table.delete(&key.to_le_bytes());
        }
        prop_assert_eq!(table.owner.arena.usage(Purpose::Extents).requested_bytes, 0);
    }
}

#[test]
fn without_room_a_put_fails_and_changes_nothing() {
    let mut table = Table::new(64, 256 << 10);
    table.put(b"key", &[1; 1000]).unwrap();
    let error = (0u32..).find_map(|number| table.put(&number.to_le_bytes(), &[2; 9000]).err()).unwrap();
    assert!(matches!(error, MutationError::NeedRegion { purpose: Purpose::Extents, .. }), "{error}");
    let evictions = table.owner.counters.bucket_evictions.get();
    let value = table.get(b"key");
    assert!(table.put(b"key", &[3; 9000]).is_err());
    assert_eq!((table.get(b"key"), table.owner.counters.bucket_evictions.get()), (value, evictions));
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

const KEYS: u64 = 40;

struct World {
    table: Table,
    random: Random,
    puts: u64,
    watched: u64,
    /// All that the watched key has been since the watch began.
    was: Vec<Option<Vec<u8>>>,
}

impl World {
    fn change(&mut self) {
        let number = if self.random.below(3) == 0 { self.watched } else { self.random.below(KEYS) };
        if self.random.below(4) == 0 {
            self.table.delete(&number.to_le_bytes());
        } else {
            self.puts += 1;
            let value = self.puts.to_le_bytes().repeat(1 + (self.puts % 3) as usize);
            self.table.put(&number.to_le_bytes(), &value).unwrap();
        }
        // Any change may have evicted the watched key.
        let now = self.table.get(&self.watched.to_le_bytes());
        self.was.push(now);
    }

    fn watch(&mut self) -> u64 {
        self.watched = self.random.below(KEYS);
        self.was = vec![self.table.get(&self.watched.to_le_bytes())];
        self.watched
    }
}

#[test]
fn every_answer_was_true_at_some_instant_of_its_lookup() {
    let (counters, mut hits, mut misses, mut contended) = (Counters::default(), 0, 0, 0);
    for seed in 0..600u64 {
        let table = Table::new(8, 1 << 20);
        let random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let world = RefCell::new(World { table, random, puts: 0, watched: 0, was: Vec::new() });
        (0..50).for_each(|_| world.borrow_mut().change());
        let calm = [1, 2, 5, 12, 40][seed as usize % 5];
        let at = *world.borrow().table.hash.table();
        let memory = {
            let reader = world.borrow();
            Interleaved::new(&reader.table.owner.arena, |_| {
                let world = &mut *world.borrow_mut();
                if world.random.below(calm) == 0 {
                    world.change();
                }
            })
            .with_order(match seed / 3 % 3 {
                0 => SampleOrder::Increasing,
                1 => SampleOrder::Decreasing,
                _ => SampleOrder::Shuffled(seed),
            })
        };
        for _ in 0..40 {
            let number = world.borrow_mut().watch();
            let bytes = number.to_le_bytes();
            let before = memory.reads();
            let value = match ready(get(&memory, &at, &Key::new(&bytes, SEED), 31, &counters)) {
                Ok(Answer::Found(found)) => Some(found.value().to_vec()),
                Ok(Answer::Absent) => None,
                Err(LookupError::Contended) => {
                    contended += 1;
                    continue;
                }
                Err(error) => panic!("seed {seed}: {error}"),
            };
            assert!(memory.reads() > before);
            let was = &world.borrow().was;
            assert!(was.contains(&value), "seed {seed}: key {number} read as {value:?}, but it was {was:?}");
            hits += u64::from(value.is_some());
            misses += u64::from(value.is_none());
        }
    }
    println!("{hits} hits, {misses} misses, {contended} contended; {counters:?}");
    assert!(hits > 1000 && misses > 1000 && contended > 5);
    assert!(counters.rows_unverified.get() > 1000 && counters.extents_unverified.get() > 1000);
}
