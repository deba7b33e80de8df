//! How long the store's own steps take on this machine, in nanoseconds: what [`locus_fabric::sim::Steps`] is filled with.
//!
//! Medians of many rounds; a table of 100,000 records, which is in the last-level cache for the most part. The way of a
//! request through frames, sessions and slots is not measured here: it is what remains of a core's time per get
//! (`locus bench --design pilaf-vo --window 16`) beside the lookup and the messages.
#![allow(missing_docs)]

use locus_index::{
    Counters, Key, Owner, PartitionId, cuckoo,
    cuckoo::Partition,
    directory::{DIRECTORY_BYTES, Directory},
};
use locus_memory::{Arena, Purpose, RegionId, checksum, testing::HeapRegion};
use locus_runtime::interleave;
use std::{hint::black_box, time::Instant};

const RECORDS: u32 = 100_000;
const ROUNDS: usize = 301;
const BATCH: usize = 16;
const SEED: u64 = 3;

/// The median time of one of `count` things that a round does.
fn median_ns(count: usize, mut round: impl FnMut(usize)) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|number| {
            let start = Instant::now();
            round(number);
            start.elapsed().as_nanos() as f64 / count as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

struct Store {
    owner: Owner<HeapRegion>,
    directory: Directory,
    partition: Partition,
}

static VALUE: [u8; 1024] = [7; 1024];

impl Store {
    fn new() -> Self {
        let mut arena = Arena::new();
        let sizes = [
            (Purpose::Directory, DIRECTORY_BYTES),
            (Purpose::Tables, 64 << 20),
            (Purpose::Extents, 512 << 20),
        ];
        for (id, (purpose, bytes)) in sizes.into_iter().enumerate() {
            arena.add_region(RegionId::new(id).expect("few"), HeapRegion::new(bytes), purpose).expect("room");
        }
        let mut store = Self {
            owner: Owner::new(arena, SEED, 0, 1),
            directory: Directory::new(RegionId::new(0).expect("zero"), 1),
            partition: Partition::new(PartitionId::new(0).expect("zero")),
        };
        (0..RECORDS).for_each(|number| store.put(number, 32));
        store
    }

    fn put(&mut self, number: u32, bytes: usize) {
        let key = key_of(number);
        let key = Key::new(&key, SEED);
        self.partition.put(&mut self.owner, &self.directory, &key, &VALUE[..bytes]).expect("room");
    }
}

fn key_of(number: u32) -> [u8; 16] {
    let mut key = *b"user000000000000";
    key[12..].copy_from_slice(&number.to_le_bytes());
    key
}

/// Spreads numbers over the records.
fn spread(number: usize) -> u32 {
    (number as u32).wrapping_mul(0x9E37_79B1) % RECORDS
}

fn hash_ns(bytes: usize) -> f64 {
    let keys: Vec<Vec<u8>> = (0..256u32).map(|number| number.to_le_bytes().repeat(bytes / 4)).collect();
    median_ns(256, |_| {
        for key in &keys {
            black_box(Key::new(key, SEED));
        }
    })
}

fn checksum_ns(bytes: usize) -> f64 {
    let objects = vec![7u8; 256 * bytes];
    median_ns(256, |_| {
        for object in objects.chunks(bytes) {
            black_box(checksum(object));
        }
    })
}

fn copy_ns(bytes: usize) -> f64 {
    let (from, mut to) = (vec![7u8; 256 * bytes], vec![0u8; 256 * bytes]);
    median_ns(256, |_| {
        for (from, to) in from.chunks(bytes).zip(to.chunks_mut(bytes)) {
            black_box(&mut *to).copy_from_slice(black_box(from));
        }
    })
}

fn lookup_ns(store: &Store) -> f64 {
    let counters = Counters::default();
    median_ns(256, |round| {
        let keys: Vec<[u8; 16]> = (0..256).map(|number| key_of(spread(round * 256 + number))).collect();
        let memory = store.owner.arena.prefetched();
        for batch in keys.chunks(BATCH) {
            let keys: Vec<Key<'_>> = batch.iter().map(|key| Key::new(key, SEED)).collect();
            let lookups =
                keys.iter().map(|key| cuckoo::get(&memory, store.partition.tables(), key, 0, &counters));
            interleave(BATCH, lookups, |_, found| assert!(found.is_ok()));
        }
    })
}

fn change_ns(store: &mut Store, bytes: usize) -> f64 {
    median_ns(64, |round| (0..64).for_each(|number| store.put(spread(round * 64 + number), bytes)))
}

fn main() {
    let slope = |short: f64, long: f64, bytes: usize| (long - short) / bytes as f64;
    let (short, long) = (hash_ns(16), hash_ns(256));
    println!("hash_ns = {short:.1}\nhash_byte_ns = {:.3}", slope(short, long, 240));
    let (short, long) = (checksum_ns(64), checksum_ns(4096));
    println!("verify_ns = {short:.1}\nchecksum_byte_ns = {:.3}", slope(short, long, 4032));
    let (short, long) = (copy_ns(64), copy_ns(4096));
    println!("copy_byte_ns = {:.3}", slope(short, long, 4032));
    let mut store = Store::new();
    println!("lookup_ns = {:.1}", lookup_ns(&store));
    let (short, long) = (change_ns(&mut store, 32), change_ns(&mut store, 1024));
    println!("change_ns = {short:.1}, and {:.3} for each byte of a value", slope(short, long, 992));
}
