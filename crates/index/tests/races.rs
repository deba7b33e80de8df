//! Lookups of a remote reader while the owner changes the table between any two words that the reader samples.
//!
//! Few hot keys, tiny tables, tiny extents, and growth at any moment; in increasing, decreasing and random order of
//! sampling. An answer must be what the key was at some instant of its lookup. Each run is determined by its seed. The
//! test asserts that what it means to reach was reached.

use locus_index::{
    Answer, Counters, Key, LookupError, Owner, PartitionId,
    cuckoo::{self, Attempt, Partition, Tables, WAYS},
    directory::{DIRECTORY_BYTES, Directory},
};
use locus_memory::{
    Arena, Purpose, RegionId,
    testing::{HeapRegion, Interleaved, SampleOrder, ready},
};
use std::cell::RefCell;

const SEED: u64 = 3;

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

struct World {
    owner: Owner<HeapRegion>,
    directory: Directory,
    partition: Partition,
    random: Random,
    /// What each key is.
    now: Vec<Option<u64>>,
    /// All that the watched key has been since the watch began.
    watched: usize,
    was: Vec<Option<u64>>,
    writes: u64,
    next_filler: u32,
}

const KEYS: usize = 12;

fn key_bytes(number: usize) -> [u8; 4] {
    (number as u32).to_le_bytes()
}

/// A value that names itself, in one of several lengths so that extents of several sizes are reused.
fn value_bytes(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(1 + (value % 3) as usize)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut arena = Arena::new();
        let sizes =
            [(Purpose::Directory, DIRECTORY_BYTES), (Purpose::Tables, 1 << 20), (Purpose::Extents, 1 << 20)];
        for (id, (purpose, bytes)) in sizes.into_iter().enumerate() {
            arena.add_region(RegionId::new(id).unwrap(), HeapRegion::new(bytes), purpose).unwrap();
        }
        let mut world = Self {
            owner: Owner::new(arena, SEED, 0, 1),
            directory: Directory::new(RegionId::new(0).unwrap(), 99),
            partition: Partition::new(PartitionId::new(0).unwrap()),
            random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            now: vec![None; KEYS],
            watched: 0,
            was: Vec::new(),
            writes: 0,
            next_filler: 1000,
        };
        // Some worlds begin beyond the size at which tables move row by row.
        for _ in 0..[0, 6, 440, 1000][seed as usize % 4] {
            world.fill();
        }
        world.put(0);
        world
    }

    /// A key that nobody looks up, to bring growth about.
    fn fill(&mut self) {
        let key = self.next_filler.to_le_bytes();
        self.next_filler += 1;
        let key = Key::new(&key, SEED);
        self.partition.put(&mut self.owner, &self.directory, &key, b"filler").unwrap();
    }

    fn put(&mut self, number: usize) {
        self.writes += 1;
        let bytes = key_bytes(number);
        let key = Key::new(&bytes, SEED);
        self.partition.put(&mut self.owner, &self.directory, &key, &value_bytes(self.writes)).unwrap();
        self.became(number, Some(self.writes));
    }

    fn became(&mut self, number: usize, value: Option<u64>) {
        self.now[number] = value;
        if number == self.watched {
            self.was.push(value);
        }
    }

    fn change(&mut self) {
        // The watched key is hot.
        let number =
            if self.random.below(3) == 0 { self.watched } else { self.random.below(KEYS as u64) as usize };
        match self.random.below(8) {
            0..4 => self.put(number),
            4..6 => {
                let bytes = key_bytes(number);
                let key = Key::new(&bytes, SEED);
                self.partition.delete(&mut self.owner, &self.directory, &key).unwrap();
                self.became(number, None);
            }
            6 => (0..self.random.below(40)).for_each(|_| self.fill()),
            _ => self.partition.grow(&mut self.owner, &self.directory).unwrap(),
        }
    }

    fn watch(&mut self, number: usize) {
        self.watched = number;
        self.was = vec![self.now[number]];
    }
}

#[derive(Default)]
struct Totals {
    lookups: u64,
    attempts: u64,
    contended: u64,
    hits: u64,
    misses: u64,
    counters: Vec<u64>,
    names: Vec<&'static str>,
}

impl Totals {
    fn add(&mut self, counters: &Counters) {
        let list = counters.list();
        self.counters.resize(list.len(), 0);
        self.names = list.iter().map(|(name, _)| *name).collect();
        for (sum, (_, count)) in self.counters.iter_mut().zip(list) {
            *sum += count;
        }
    }

    fn of(&self, name: &str) -> u64 {
        self.counters[self.names.iter().position(|other| *other == name).unwrap()]
    }
}

/// A first try, as clients make it where READs are over at once.
fn attempt(
    memory: &Interleaved<'_, HeapRegion>,
    entry: &Tables,
    key: &Key<'_>,
    steps: bool,
    counters: &Counters,
) -> Option<Vec<u8>> {
    let mut bytes = [0; 256];
    let mut attempt = Attempt::begin(&entry.current?, *key);
    if steps {
        (0..WAYS).for_each(|way| attempt.step(memory, way, counters).start());
    } else {
        attempt.find_extent(memory, counters);
    }
    let value = attempt.value(memory, &mut bytes, counters)?;
    Some(bytes[value].to_vec())
}

/// A client's get: with a cached directory entry, read again when stale.
async fn get(
    memory: &Interleaved<'_, HeapRegion>,
    directory: &Directory,
    entry: &mut Tables,
    key: &Key<'_>,
    counters: &Counters,
) -> Result<Option<Vec<u8>>, LookupError> {
    for _ in 0..8 {
        match cuckoo::get(memory, entry, key, 31, counters).await {
            Ok(Answer::Found(found)) => return Ok(Some(found.value().to_vec())),
            Ok(Answer::Absent) => return Ok(None),
            Err(LookupError::Stale) => {
                *entry = directory.read(memory, PartitionId::new(0).unwrap(), counters).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Err(LookupError::Contended)
}

fn run(seed: u64, totals: &mut Totals) {
    let world = RefCell::new(World::new(seed));
    let directory = world.borrow().directory;
    // How many words are sampled between two changes, on average: from calm to a change at every word.
    let calm = [1, 2, 5, 12, 40][seed as usize % 5];
    let memory = {
        let reader = world.borrow();
        Interleaved::new(&reader.owner.arena, |_| {
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
    let counters = Counters::default();
    let mut entry = Tables::default();
    for _ in 0..40 {
        let number = world.borrow_mut().random.below(KEYS as u64) as usize;
        world.borrow_mut().watch(number);
        let bytes = key_bytes(number);
        let key = Key::new(&bytes, SEED);
        totals.lookups += 1;
        let tried = match seed % 3 {
            0 => None,
            way => attempt(&memory, &entry, &key, way == 1, &counters),
        };
        totals.attempts += u64::from(tried.is_some());
        let result = match tried {
            Some(value) => Ok(Some(value)),
            None => ready(get(&memory, &directory, &mut entry, &key, &counters)),
        };
        match result {
            Err(LookupError::Contended) => totals.contended += 1,
            Err(error) => panic!("seed {seed}: {error}"),
            Ok(value) => {
                if value.is_some() {
                    totals.hits += 1
                } else {
                    totals.misses += 1
                }
                let was = &world.borrow().was;
                let allowed = was.iter().any(|was| was.map(value_bytes) == value);
                assert!(
                    allowed,
                    "seed {seed}: key {number} read as {value:?}, but during the lookup it was {was:?}"
                );
            }
        }
    }
    totals.add(&counters);
    world.borrow().owner.arena.audit();
}

#[test]
fn every_answer_was_true_at_some_instant_of_its_lookup() {
    let mut totals = Totals::default();
    for seed in 0..1000 {
        run(seed, &mut totals);
    }
    println!(
        "{} lookups, {} answered by the first try: {} hits, {} misses, {} contended; {:?}",
        totals.lookups,
        totals.attempts,
        totals.hits,
        totals.misses,
        totals.contended,
        totals.names.iter().zip(&totals.counters).collect::<Vec<_>>()
    );
    let reached = |name: &str, least: u64| {
        assert!(totals.of(name) >= least, "only {} {name}", totals.of(name));
    };
    reached("rows_unverified", 1000);
    reached("extents_unverified", 1000);
    reached("second_passes", 1000);
    reached("second_passes_failed", 1000);
    reached("moved_rows", 1000);
    reached("entries_unverified", 100);
    assert!(totals.attempts > 1000, "only {} first tries were of use", totals.attempts);
    assert!(totals.hits > 1000 && totals.misses > 1000 && totals.contended >= 5);
}
