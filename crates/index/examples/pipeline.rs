//! What looking keys up side by side is worth (Kalia §4.1.1), in one process on one core, without any network: gets one by one
//! over the owner's memory, gets in batches of 16 over prefetched memory, and puts, by the code that a server core runs.
//!
//! ```text
//! cargo run --release -p locus-index --example pipeline -- --index lossy --records 1000000 --mib 256
//! cargo run --release -p locus-index --example pipeline -- --index cuckoo --records 30000000 --mib 5120
//! ```

use locus_fabric::{
    Access, Nic, PagePolicy, Pages, Region,
    shm::{ShmNic, ShmRegion},
};
use locus_index::{
    Answer, Found, Key, LANES, LookupError, MutationError, Owner, PartitionId, Shard, Wanted, blocked,
    cuckoo,
    directory::{DIRECTORY_BYTES, Directory},
    hopscotch::{self, INLINE_SLOT_BYTES, NEIGHBOURHOOD, Shape},
    lossy,
};
use locus_memory::{Arena, Local, Purpose, RegionId, testing::ready};
use std::{collections::BTreeMap, hint::black_box, time::Instant};

const SEED: u64 = 0x10C0_5EED;
const KEY_BYTES: usize = 16;
/// How many runs of each measurement there are: the table has their medians.
const RUNS: usize = 5;

struct Options {
    index: String,
    records: u64,
    /// The memory for tables and records together.
    mib: usize,
    value_bytes: usize,
    gets: u64,
}

type Failure = Box<dyn std::error::Error>;

fn options() -> Result<Options, Failure> {
    let mut given = BTreeMap::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        given.insert(name.clone(), arguments.next().ok_or(format!("{name} lacks a value"))?);
    }
    let mut take = |name: &str, default: &str| given.remove(name).unwrap_or_else(|| default.into());
    let options = Options {
        index: take("--index", "lossy"),
        records: take("--records", "1000000").parse()?,
        mib: take("--mib", "256").parse()?,
        value_bytes: take("--value-bytes", "32").parse()?,
        gets: take("--gets", "4000000").parse()?,
    };
    match given.keys().next() {
        Some(name) => {
            Err(format!("{name} is no option: --index, --records, --mib, --value-bytes, --gets are").into())
        }
        None => Ok(options),
    }
}

/// Memory as a server reserves it.
struct Ground {
    nic: ShmNic,
    owner: Owner<ShmRegion>,
    regions: usize,
    pages: String,
}

impl Ground {
    fn new() -> Result<Self, Failure> {
        let owner = Owner::new(Arena::new(), SEED, 0, 1);
        Ok(Self { nic: ShmNic::open()?, owner, regions: 0, pages: String::new() })
    }

    fn region(&mut self, bytes: usize) -> Result<(RegionId, ShmRegion), Failure> {
        let region = self.nic.register(bytes, Access::RemoteRead, PagePolicy::PreferHuge)?;
        self.pages = match region.pages() {
            Pages::Huge => "pages of 2 MiB".into(),
            Pages::Base(reason) => format!("base pages ({reason})"),
        };
        self.regions += 1;
        Ok((RegionId::new(self.regions - 1).ok_or("too many regions")?, region))
    }

    fn add(&mut self, purpose: Purpose, bytes: usize) -> Result<RegionId, Failure> {
        let (id, region) = self.region(bytes)?;
        self.owner.arena.add_region(id, region, purpose)?;
        Ok(id)
    }

    fn add_whole(&mut self, bytes: usize) -> Result<(RegionId, usize), Failure> {
        let (id, region) = self.region(bytes)?;
        self.owner.arena.add_whole_region(id, region)?;
        Ok((id, bytes))
    }

    fn directory(&mut self) -> Result<Directory, Failure> {
        Ok(Directory::new(self.add(Purpose::Directory, DIRECTORY_BYTES)?, 1))
    }
}

/// Marsaglia's xorshift: which record comes next.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(n)) >> 64) as u64
    }
}

fn key_of(record: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'k'; KEY_BYTES];
    key[..8].copy_from_slice(&record.to_le_bytes());
    key
}

/// Nanoseconds per operation: the median of the runs.
fn median_ns(operations: u64, mut run: impl FnMut(u64) -> u64) -> (f64, f64) {
    let mut times = Vec::new();
    let mut hits = 0;
    for number in 0..RUNS as u64 {
        let start = Instant::now();
        hits += run(number + 1);
        times.push(start.elapsed().as_nanos() as f64 / operations as f64);
    }
    times.sort_by(f64::total_cmp);
    (times[RUNS / 2], hits as f64 / (operations * RUNS as u64) as f64)
}

/// A lookup of one key as a core makes it alone.
type Alone<S> =
    for<'m> fn(&S, &Local<'m, ShmRegion>, &Owner<ShmRegion>, &Key<'_>) -> Result<bool, LookupError>;

fn measure<S: Shard<ShmRegion>>(
    options: &Options,
    mut ground: Ground,
    mut shard: S,
    alone: Alone<S>,
) -> Result<(), Failure> {
    let value = vec![7u8; options.value_bytes];
    for record in 0..options.records {
        put(&mut shard, &mut ground, &key_of(record), &value)?;
    }
    // Lookups in a table that moves may have to be done again.
    while shard.grow(&mut ground.owner) {}
    let (records, gets) = (options.records, options.gets);
    let (one, hits) = median_ns(gets, |seed| {
        let (mut random, mut hits) = (Random(seed), 0);
        let local = ground.owner.arena.local();
        for _ in 0..gets {
            let bytes = key_of(random.below(records));
            let found = alone(&shard, &local, &ground.owner, &Key::new(&bytes, SEED));
            hits += u64::from(found.expect("an owner's lookup"));
        }
        hits
    });
    let (batched, batched_hits) = median_ns(gets, |seed| {
        let (mut random, mut hits) = (Random(seed), 0);
        for _ in 0..gets / LANES as u64 {
            let keys: [_; LANES] = std::array::from_fn(|_| key_of(random.below(records)));
            let wanted: [_; LANES] =
                std::array::from_fn(|lane| Some(Wanted { key: Key::new(&keys[lane], SEED), get: true }));
            shard.get_batch(&ground.owner, &wanted, |_, found| hits += u64::from(looked_at(found)));
        }
        hits
    });
    let puts = gets / 4;
    let (put_ns, _) = median_ns(puts, |seed| {
        let mut random = Random(seed);
        for _ in 0..puts / LANES as u64 {
            let keys: [_; LANES] = std::array::from_fn(|_| key_of(random.below(records)));
            let wanted: [_; LANES] =
                std::array::from_fn(|lane| Some(Wanted { key: Key::new(&keys[lane], SEED), get: false }));
            shard.get_batch(&ground.owner, &wanted, |_, _| ());
            for wanted in wanted.iter().flatten() {
                shard.put(&mut ground.owner, &wanted.key, &value).expect("room for an update");
            }
        }
        0
    });
    println!(
        "{}: {} records of {KEY_BYTES} + {} bytes in {} MiB on {}, uniform, medians of {RUNS} runs",
        options.index,
        shard.records(&ground.owner),
        options.value_bytes,
        ground.owner.arena.region_bytes() >> 20,
        ground.pages
    );
    let row =
        |what: &str, ns: f64, rest: String| println!("  {what:26} {ns:7.1} ns  {:6.2} M/s  {rest}", 1e3 / ns);
    row("gets one by one", one, format!("{:.2}% found", hits * 100.0));
    row(
        "gets in batches of 16",
        batched,
        format!("{:.2}% found, {:.1} times", batched_hits * 100.0, one / batched),
    );
    row("puts in batches of 16", put_ns, String::new());
    Ok(())
}

/// Looks at the first byte of a value, as an answer would.
fn looked_at(found: Option<Found<&[u8]>>) -> bool {
    found.is_some_and(|found| black_box(found.value().first()).is_some())
}

fn put<S: Shard<ShmRegion>>(
    shard: &mut S,
    ground: &mut Ground,
    key: &[u8],
    value: &[u8],
) -> Result<(), Failure> {
    loop {
        match shard.put(&mut ground.owner, &Key::new(key, SEED), value) {
            Ok(_) => return Ok(()),
            Err(MutationError::NeedRegion { purpose, bytes }) => {
                let more = ground.owner.arena.usage(purpose).region_bytes.max(bytes + (64 << 20));
                ground.add(purpose, more.min(1 << 30))?;
            }
            Err(error) => return Err(error.into()),
        }
        while shard.grow(&mut ground.owner) {}
    }
}

fn answered<B: std::ops::Deref<Target = [u8]>>(answer: Answer<B>) -> bool {
    match answer {
        Answer::Found(found) => black_box(found.value().first()).is_some(),
        Answer::Absent => false,
    }
}

fn main() -> Result<(), Failure> {
    let options = options()?;
    let mut ground = Ground::new()?;
    let bytes = options.mib << 20;
    let every = |_: PartitionId| true;
    match options.index.as_str() {
        "lossy" => {
            let cache = lossy::Cache::new(ground.add_whole(bytes / 9)?, ground.add_whole(bytes / 9 * 8)?);
            measure(&options, ground, cache, |cache, local, owner, key| {
                ready(lossy::get(local, cache.layout(), key, &owner.counters)).map(answered)
            })
        }
        "blocked" => {
            let buckets = ground.add_whole(bytes / 4)?;
            let directory = ground.directory()?;
            let hash = blocked::Hash::new(&mut ground.owner, buckets, directory, every);
            measure(&options, ground, hash, |hash, local, owner, key| {
                ready(blocked::get(local, hash.table(), key, 0, &owner.counters)).map(answered)
            })
        }
        "cuckoo" => {
            let directory = ground.directory()?;
            let shard = cuckoo::Shard::new(&mut ground.owner, directory, every);
            measure(&options, ground, shard, |shard, local, owner, key| {
                let tables = shard.partition(key.partition()).tables();
                ready(cuckoo::get(local, tables, key, 0, &owner.counters)).map(answered)
            })
        }
        "hopscotch" | "hopscotch-inline" => {
            let directory = ground.directory()?;
            let shape = match options.index.as_str() {
                "hopscotch" => Shape::out_of_table(NEIGHBOURHOOD),
                _ => Shape::inline_slots(NEIGHBOURHOOD, INLINE_SLOT_BYTES),
            };
            let shape = shape.ok_or("a shape of slots")?;
            let shard = hopscotch::Shard::new(&mut ground.owner, shape, directory, every);
            measure(&options, ground, shard, |shard, local, owner, key| {
                let partition = shard.partition(key.partition());
                ready(hopscotch::get(local, partition.shape(), partition.tables(), key, 0, &owner.counters))
                    .map(answered)
            })
        }
        other => {
            Err(format!("there is no index {other}: lossy, blocked, cuckoo, hopscotch, hopscotch-inline")
                .into())
        }
    }
}
