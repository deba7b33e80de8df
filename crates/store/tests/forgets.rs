//! Caches that are so small that they forget, through the whole store: they hit, miss and evict exactly as their index does by
//! itself, which `locus-index` compares with plain models.

mod simulation;

use locus_fabric::{
    shm::ShmNic,
    sim::{SimulationConfig, simulate},
};
use locus_index::{
    Found, Key, Owner, Shard, Wanted,
    blocked::{self, Hash},
    directory::{DIRECTORY_BYTES, Directory},
    lossy::{self, Cache},
};
use locus_memory::{Arena, Purpose, RegionId, testing::HeapRegion};
use locus_store::{DESIGNS, Design, Index, KEY_HASH_SEED, Locus, Server, ServerConfig, StoreError};
use simulation::{connect, serve};

const CACHE_BYTES: usize = 4 << 10;
/// What the index of a lossy cache of so many bytes takes: a ninth, in whole buckets.
const INDEX_BYTES: usize = 512;
const OPERATIONS: u64 = 10_000;
const KEYS: u64 = 200;

/// An index on its own.
struct Alone<S> {
    owner: Owner<HeapRegion>,
    shard: S,
}

fn regions<const N: usize>() -> [RegionId; N] {
    std::array::from_fn(|number| RegionId::new(number).unwrap())
}

fn lossy() -> Alone<Cache> {
    let mut arena = Arena::new();
    let [index, log] = regions();
    let log_bytes = CACHE_BYTES - INDEX_BYTES;
    arena.add_whole_region(index, HeapRegion::new(INDEX_BYTES)).unwrap();
    arena.add_whole_region(log, HeapRegion::new(log_bytes)).unwrap();
    assert_eq!(INDEX_BYTES, (CACHE_BYTES / 9).next_multiple_of(lossy::BUCKET_BYTES));
    let shard = Cache::new((index, INDEX_BYTES), (log, log_bytes));
    Alone { owner: Owner::new(arena, KEY_HASH_SEED, 0, 1), shard }
}

fn blocked() -> Alone<Hash> {
    let mut arena = Arena::new();
    let [entries, buckets, extents] = regions();
    arena.add_region(entries, HeapRegion::new(DIRECTORY_BYTES), Purpose::Directory).unwrap();
    arena.add_whole_region(buckets, HeapRegion::new(CACHE_BYTES)).unwrap();
    arena.add_region(extents, HeapRegion::new(1 << 20), Purpose::Extents).unwrap();
    assert_eq!(CACHE_BYTES % blocked::BUCKET_BYTES, 0);
    let mut owner = Owner::new(arena, KEY_HASH_SEED, 0, 1);
    let directory = Directory::new(entries, 77);
    let shard = Hash::new(&mut owner, (buckets, CACHE_BYTES), directory, |_| true);
    Alone { owner, shard }
}

impl<S: Shard<HeapRegion>> Alone<S> {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let wanted = [Some(Wanted { key: Key::new(key, KEY_HASH_SEED), get: true })];
        let mut value = None;
        self.shard.get_batch(&self.owner, &wanted, |_, found| {
            value = found.map(|found: Found<&[u8]>| found.value().to_vec());
        });
        value
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.shard.put(&mut self.owner, &Key::new(key, KEY_HASH_SEED), value).unwrap();
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        self.shard.delete(&mut self.owner, &Key::new(key, KEY_HASH_SEED)).unwrap().is_some()
    }
}

fn small(design: &'static Design) -> ServerConfig {
    ServerConfig {
        design,
        memory_bytes: 32 << 20,
        region_bytes: 4 << 20,
        value_bytes_max: 300,
        cache_bytes: Some(CACHE_BYTES),
        ..ServerConfig::default()
    }
}

/// The same operations by a client and by the index alone, in a world without faults.
fn forgets_as<S: Shard<HeapRegion> + 'static>(design: &'static Design, alone: Alone<S>) {
    let result = simulate(SimulationConfig::default(), move || forgets_in_a_world_as(design, alone));
    result.unwrap_or_else(|error| panic!("{}: {error}", design.name));
}

fn forgets_in_a_world_as<S: Shard<HeapRegion>>(design: &'static Design, mut alone: Alone<S>) {
    let _server = serve(small(design));
    let client = connect();
    let (mut random, mut hits, mut misses) = (1u64, 0, 0);
    let mut below = |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % limit
    };
    for number in 0..OPERATIONS {
        let key = below(KEYS).min(below(KEYS)).to_le_bytes();
        match below(20) {
            0..11 => {
                let found = client.block_on(client.get(&key, <[u8]>::to_vec)).unwrap();
                assert_eq!(found, alone.get(&key), "{}: operation {number}", design.name);
                hits += u64::from(found.is_some());
                misses += u64::from(found.is_none());
            }
            11..19 => {
                let longest = if below(10) == 0 { 300 } else { 30 };
                let value = vec![number as u8; below(longest) as usize];
                client.block_on(client.put(&key, &value)).unwrap();
                alone.put(&key, &value);
            }
            _ => {
                let found = client.block_on(client.delete(&key)).unwrap();
                assert_eq!(found, alone.delete(&key), "{}: operation {number}", design.name);
            }
        }
    }
    assert!(
        hits > OPERATIONS / 10 && misses > OPERATIONS / 10,
        "{}: {hits} hits, {misses} misses",
        design.name
    );
    let of_server = client.statistics().unwrap().swap_remove(0).counters;
    let of_index = alone.owner.counters.list();
    let evictions = ["bucket_evictions", "log_overwrites"].map(|name| {
        let (_, theirs) = of_server.iter().find(|(other, _)| other == name).unwrap();
        let (_, count) = of_index.iter().find(|(other, _)| *other == name).unwrap();
        assert_eq!(theirs, count, "{}: {name}", design.name);
        *count
    });
    assert!(evictions[0] > 100, "{}: {evictions:?}", design.name);
    assert_eq!(evictions[1] > 100, design.index == Index::Lossy, "{}: {evictions:?}", design.name);
}

#[test]
fn caches_hit_miss_and_evict_exactly_as_their_index_does() {
    let at_client = Design::combine(Index::Blocked, Locus::Client, DESIGNS[0].pair()).unwrap();
    for design in DESIGNS.iter().chain([at_client]) {
        match design.index {
            Index::Lossy => forgets_as(design, lossy()),
            Index::Blocked => forgets_as(design, blocked()),
            Index::Cuckoo | Index::Hopscotch | Index::HopscotchInline => {}
        }
    }
}

#[test]
fn a_cache_too_small_for_its_values_is_refused_with_the_reason() {
    let design = Design::find("herd").unwrap();
    let nic = ShmNic::open().unwrap();
    let refused = |config: ServerConfig| match Server::start(&nic, config) {
        Err(StoreError::Config(reason)) => reason,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was taken"),
    };
    let reason = refused(ServerConfig { cache_bytes: Some(100), ..small(design) });
    assert!(reason.contains("1024") && reason.contains("not 100"), "{reason}");
    let reason = refused(ServerConfig { value_bytes_max: 3000, ..small(design) });
    assert!(reason.contains("3000 bytes do not fit twice"), "{reason}");
}
