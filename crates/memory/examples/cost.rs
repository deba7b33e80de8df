//! What the parts of a get and a put cost on this machine: checksums, the allocator, stores, and look-ups in 1 GiB.
//!
//! `cargo run --release -p locus-memory --example cost`

use locus_fabric::shm::{ShmNic, ShmRegion};
use locus_fabric::{Access, FabricError, Link, Nic, PagePolicy, QueuePair, QueuePairConfig, Region};
use locus_memory::testing::{block_on, ready};
use locus_memory::{Arena, Memory, Pointer, Purpose, RegionId, Remote, RemoteConfig, checksum, checksum_row};
use locus_runtime::interleave;
use std::hint::black_box;
use std::time::Instant;

/// Nanoseconds per call, the best of five runs.
fn nanoseconds(calls: u64, mut call: impl FnMut(u64)) -> f64 {
    let mut run = || {
        let begin = Instant::now();
        (0..calls).for_each(&mut call);
        begin.elapsed().as_nanos() as f64 / calls as f64
    };
    (0..5).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// A number that looks random.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn region(number: usize) -> RegionId {
    RegionId::new(number).expect("a small number")
}

fn checksums() {
    println!("checksum, each call waiting for the one before it:");
    for bytes in [16, 24, 32, 48, 64, 104, 112, 120, 128, 256, 512, 600, 640, 768, 1024, 4096, 65536] {
        let data = vec![7; bytes + 1];
        let mut last = 0;
        let time = nanoseconds(2_000_000 / (bytes as u64 / 64 + 1), |_| {
            // Where the next one starts depends on this one's result, which the compiler cannot see through.
            last = checksum(black_box(&data[(last & black_box(0)) as usize..][..bytes]));
        });
        let apart = nanoseconds(2_000_000 / (bytes as u64 / 64 + 1), |_| {
            black_box(checksum(black_box(&data[..bytes])));
        });
        println!("  {bytes:>6} bytes {time:8.1} ns; {apart:8.1} ns when they need not wait");
    }
    let (at, mut last) = (Pointer::new(region(1), 64), 0);
    let time = nanoseconds(5_000_000, |_| last = checksum_row(black_box([last, 2, 3]), at, 5));
    println!("  row    32 bytes {time:8.1} ns");
    let time = nanoseconds(5_000_000, |number| {
        black_box(checksum_row([number, 2, 3], at, 5));
    });
    println!("  row    32 bytes {time:8.1} ns, calls independent of each other");
}

fn stores(arena: &mut Arena<ShmRegion>) {
    println!("stores:");
    for value in [8usize, 64, 256, 1024] {
        let (header, key, value) = ([1; 16], [2; 20], vec![3; value]);
        let bytes = header.len() + key.len() + value.len();
        let at = arena.allocate(Purpose::Extents, bytes).expect("room");
        let mut writer = arena.writer();
        let time = nanoseconds(1_000_000, |_| writer.store_bytes(at, black_box(&[&header, &key, &value])));
        println!("  {bytes:>6} bytes of three parts {time:8.1} ns");
        arena.free(Purpose::Extents, at, bytes);
    }
}

fn allocations(arena: &mut Arena<ShmRegion>, objects: usize) {
    println!("allocate and free among {objects} objects of 80 to 143 bytes:");
    let size = |number: u64| 80 + (mix(number) % 64) as usize;
    let begin = Instant::now();
    let mut places: Vec<(Pointer, usize)> = (0..objects as u64)
        .map(|number| (arena.allocate(Purpose::Extents, size(number)).expect("room"), size(number)))
        .collect();
    println!("  first allocation of each {:8.1} ns", begin.elapsed().as_nanos() as f64 / objects as f64);
    let mut number = 0;
    let time = nanoseconds(2_000_000, |_| {
        number += 1;
        let place = &mut places[mix(number) as usize % objects];
        let bytes = size(number + 1_000_000_000);
        let at = arena.allocate(Purpose::Extents, bytes).expect("room");
        let (old, old_bytes) = std::mem::replace(place, (at, bytes));
        arena.free(Purpose::Extents, old, old_bytes);
    });
    println!("  replaced at random, other size {time:8.1} ns a pair, a miss in the list of places included");
    let mut last = arena.allocate(Purpose::Extents, 100).expect("room");
    let time = nanoseconds(5_000_000, |_| {
        let at = arena.allocate(Purpose::Extents, 100).expect("room");
        arena.free(Purpose::Extents, last, 100);
        last = at;
    });
    println!("  one size, replaced           {time:8.1} ns a pair");
    arena.free(Purpose::Extents, last, 100);
    let usage = arena.usage(Purpose::Extents);
    println!(
        "  {:.1}% of the slabs requested",
        usage.requested_bytes as f64 * 100.0 / usage.slab_bytes as f64
    );
    for (at, bytes) in places {
        arena.free(Purpose::Extents, at, bytes);
    }
}

/// Two dependent reads of 32 and 112 bytes at random places, as a get makes them.
async fn look_up<M: Memory>(memory: &M, number: u64) -> u64 {
    let place = |number: u64| Pointer::new(region(1), (mix(number) % (1 << 23)) as usize * 128);
    let row = memory.read(place(number), 32).await.expect("a place of the arena");
    let next = number ^ u64::from(row[0]) ^ 1 << 40;
    drop(row);
    let extent = memory.read(place(next), 112).await.expect("a place of the arena");
    u64::from(extent[0])
}

fn look_ups(arena: &Arena<ShmRegion>, remote: &Remote<ShmNic>) {
    println!("two dependent reads in 1 GiB, {:?}:", arena.region(region(1)).map(Region::pages));
    let local = arena.local();
    let time = nanoseconds(200_000, |number| {
        black_box(ready(look_up(&local, number)));
    });
    println!("  Local                     {time:8.1} ns");
    let time = nanoseconds(200_000, |number| {
        black_box(block_on(look_up(remote, number)));
    });
    println!("  Remote                    {time:8.1} ns");
    let memory = arena.prefetched();
    let overlap = remote.overlap();
    for lanes in [1, 4, 8, 16, 32] {
        let prefetched = batches(lanes, &memory);
        let remote = batches(lanes, remote);
        println!("  batches of {lanes:>2}: Prefetched {prefetched:8.1} ns, Remote {remote:8.1} ns");
    }
    drop(overlap);
    println!("  {:?}", remote.counters());
    println!("reads of the same place, each call waiting for the one before it:");
    for bytes in [32, 112, 1024, 4096] {
        let at = Pointer::new(region(1), 1 << 20);
        let near = nanoseconds(1_000_000, |_| _ = black_box(ready(local.read(black_box(at), bytes))));
        let far = nanoseconds(1_000_000, |_| drop(black_box(block_on(remote.read(black_box(at), bytes)))));
        println!("  {bytes:>6} bytes: Local {near:8.1} ns, Remote {far:8.1} ns");
    }
}

/// Nanoseconds per look-up in batches.
fn batches<M: Memory>(lanes: usize, memory: &M) -> f64 {
    let calls = 400_000;
    let run = |round: u64| {
        let begin = Instant::now();
        interleave(lanes, (0..calls).map(|number| look_up(memory, mix(number ^ round << 32))), |_, value| {
            black_box(value);
        });
        begin.elapsed().as_nanos() as f64 / calls as f64
    };
    (0..3).map(run).fold(f64::INFINITY, f64::min)
}

/// A reader connected to memory of this process, as an embedded client is.
fn connect(nic: &ShmNic, granted: &ShmRegion) -> Result<(Remote<ShmNic>, impl Sized + use<>), FabricError> {
    let (ours, theirs) = nic.pair()?;
    let queue = nic.create_completion_queue(16)?;
    let mut pair = nic.create_queue_pair(&ours, &QueuePairConfig::default(), &queue, &queue)?;
    let mut remote = Remote::new(nic, &theirs, RemoteConfig::default())?;
    let facts = pair.facts(&ours)?;
    pair.connect(remote.facts(&theirs)?)?;
    remote.connect(facts)?;
    remote.add_region(region(1), theirs.import(ours.grant(granted)?)?);
    Ok((remote, (pair, queue, ours)))
}

fn main() -> Result<(), FabricError> {
    checksums();
    let nic = ShmNic::open()?;
    let mut arena = Arena::new();
    let register = || nic.register(1 << 30, Access::RemoteRead, PagePolicy::PreferHuge);
    arena.add_region(region(0), register()?, Purpose::Extents).expect("a free number");
    let table = register()?;
    let (remote, _owner) = connect(&nic, &table)?;
    arena.add_region(region(1), table, Purpose::Tables).expect("a free number");
    stores(&mut arena);
    allocations(&mut arena, 5_000_000);
    look_ups(&arena, &remote);
    Ok(())
}
