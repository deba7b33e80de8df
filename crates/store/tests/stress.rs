//! Readers against writers with real threads: few hot keys, updated, deleted, kicked out and grown over, and every answer
//! is checked. Over shared memory, or over the providers that the variable `LOCUS_PROVIDERS` names; `verbs` needs an RDMA
//! device, and runs in a virtual machine (`vm/README.md`).
//!
//! Each hot key has one writer, which numbers its changes: change `n` puts a value that names `n`, but every fifth
//! deletes. A get that begins when change `a` was acknowledged and ends when change `b` was the last one begun must see
//! what one of the changes `a..=b` left behind; that is what linearizability means for one writer.

use libtest_mimic::{Arguments, Trial};
use locus_fabric::{
    Nic,
    shm::ShmNic,
    verbs::{VerbsConfig, VerbsNic},
};
use locus_store::{Client, ClientConfig, Design, Index, Locus, Server, ServerConfig};
use std::{
    process::ExitCode,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
};

const HOT: usize = 6;
/// The changes of each hot key in a round, where tables are to grow.
const CHANGES: u64 = 10_000;
/// The same where they are not: the simulator's worlds see to that.
const FEW_CHANGES: u64 = 2_000;
/// How many rounds there are at most.
const ROUNDS_MAX: u64 = 16;

fn main() -> ExitCode {
    let mut trials = Vec::new();
    for provider in std::env::var("LOCUS_PROVIDERS").as_deref().unwrap_or("shm").split(',') {
        match provider {
            "shm" => enlist(&mut trials, provider, || ShmNic::open().unwrap()),
            "verbs" => enlist(&mut trials, provider, || VerbsNic::open(&VerbsConfig::default()).unwrap()),
            other => panic!("LOCUS_PROVIDERS={other}: the providers are shm and verbs"),
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A test of a store over this NIC.
type Test<N> = fn(&N);

fn enlist<N: Nic>(trials: &mut Vec<Trial>, provider: &str, open: fn() -> N) {
    let tests: [(&str, Test<N>); 5] = [
        ("every_answer_is_one_that_the_key_had_meanwhile", |nic| {
            let reached = ["second_passes", "stale_entries", "extents_unverified", "moved_rows", "fallbacks"];
            every_answer(nic, "pilaf", 100, &reached);
        }),
        ("hopscotch_every_answer_is_one_that_the_key_had_meanwhile", |nic| {
            every_answer(nic, "hopscotch-at-client", 0, &["second_passes", "extents_unverified"]);
        }),
        ("hopscotch_inline_every_answer_is_one_that_the_key_had_meanwhile", |nic| {
            every_answer(nic, "hopscotch-inline-at-client", 0, &["second_passes", "rows_unverified"]);
        }),
        ("blocked_every_answer_is_one_that_the_key_had_meanwhile", |nic| {
            every_answer(nic, "blocked-at-client", 0, &["rows_unverified", "extents_unverified"]);
        }),
        ("a_large_value_that_keeps_changing_can_be_read", a_large_value),
    ];
    trials.extend(tests.map(|(name, run)| {
        Trial::test(format!("{provider}::{name}"), move || {
            run(&open());
            Ok(())
        })
    }));
}

/// What is known of a hot key's changes.
#[derive(Default)]
struct Hot {
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

fn deletes(change: u64) -> bool {
    change.is_multiple_of(5)
}

fn key(hot: usize) -> [u8; 4] {
    (hot as u32).to_le_bytes()
}

/// Names the key and the change, in lengths that go up and down so that extents of many sizes are reused.
fn value(hot: usize, change: u64, inline: bool) -> Vec<u8> {
    let longest = match change.is_multiple_of(97) {
        _ if inline => 80,
        true => 9000,
        false => 120,
    };
    let mut value = vec![change as u8; 16 + (change as usize * 31) % longest];
    value[..8].copy_from_slice(&change.to_le_bytes());
    value[8..16].copy_from_slice(&(hot as u64).to_le_bytes());
    value
}

fn check(hot: usize, before: u64, found: Option<&[u8]>, after: u64, inline: bool) {
    match found {
        Some(bytes) => {
            let change = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert_eq!(bytes, value(hot, change, inline), "key {hot}: the bytes are no value that was put");
            assert!(
                (before..=after).contains(&change) && !deletes(change),
                "key {hot}: change {change} was read while {before}..={after} were current"
            );
        }
        None => assert!(
            (before..=after).any(deletes),
            "key {hot} was not found although none of the changes {before}..={after} deleted it"
        ),
    }
}

/// A server and the NIC that its clients use.
struct Served<'a, N: Nic> {
    nic: &'a N,
    server: Server<N>,
    /// Whether values are in slots, and so must be short.
    inline: bool,
    /// How many changes each hot key has in a round.
    changes: u64,
}

fn client<N: Nic>(served: &Served<N>, reads: Option<Locus>, retries: usize) -> Client<N> {
    let config = ClientConfig { reads, window: 4, retries, ..ClientConfig::default() };
    Client::attach(served.nic, served.server.attach().unwrap(), config).unwrap()
}

fn write<N: Nic>(served: &Served<N>, hot: &[Hot], from: usize, round: u64) {
    let client = client(served, None, 32);
    for change in round * served.changes + 1..=(round + 1) * served.changes {
        for number in (from..HOT).step_by(2) {
            hot[number].begun.store(change, SeqCst);
            if deletes(change) {
                client.block_on(client.delete(&key(number))).unwrap();
            } else {
                client.block_on(client.put(&key(number), &value(number, change, served.inline))).unwrap();
            }
            hot[number].acknowledged.store(change, SeqCst);
        }
        // Others, which make tables grow and hot keys move.
        let filler = (from as u64) << 32 | change;
        client.block_on(client.put(&filler.to_le_bytes(), b"filler")).unwrap();
    }
}

#[derive(Debug, Default)]
struct Seen {
    gets: u64,
    hits: u64,
    counters: Vec<(&'static str, u64)>,
}

fn read<N: Nic>(served: &Served<N>, hot: &[Hot], done: &AtomicBool, reads: Locus, retries: usize) -> Seen {
    let client = client(served, Some(reads), retries);
    let mut seen = Seen::default();
    while !done.load(SeqCst) {
        for (number, hot) in hot.iter().enumerate() {
            let before = hot.acknowledged.load(SeqCst);
            let found = client.block_on(client.get(&key(number), <[u8]>::to_vec)).unwrap();
            check(number, before, found.as_deref(), hot.begun.load(SeqCst), served.inline);
            seen.gets += 1;
            seen.hits += u64::from(found.is_some());
        }
        let before: Vec<u64> = hot.iter().map(|hot| hot.acknowledged.load(SeqCst)).collect();
        let keys: Vec<[u8; 4]> = (0..HOT).map(key).collect();
        client.get_batch(&keys, |number, found| {
            check(number, before[number], found.unwrap(), hot[number].begun.load(SeqCst), served.inline);
            seen.gets += 1;
        });
    }
    seen.counters = client.effort().list();
    seen.counters.extend(client.counters().list());
    seen
}

fn every_answer<N: Nic>(nic: &N, design: &str, growths_least: u64, reached: &[&str]) {
    let design = Design::find(design).unwrap();
    let config = ServerConfig {
        design,
        memory_bytes: 256 << 20,
        region_bytes: 4 << 20,
        cores: 2,
        ..ServerConfig::default()
    };
    let inline = design.index == Index::HopscotchInline;
    let changes = if growths_least > 0 { CHANGES } else { FEW_CHANGES };
    let served = &Served { nic, server: Server::start(nic, config).unwrap(), inline, changes };
    let hot = <[Hot; HOT]>::default();
    let mut seen = Vec::new();
    let count = |seen: &[Seen], name: &str| -> u64 {
        seen.iter()
            .flat_map(|seen| &seen.counters)
            .filter(|(other, _)| *other == name)
            .map(|(_, count)| count)
            .sum()
    };
    // Until what the test means to reach was reached: where a READ takes long and a store does not, few of them meet.
    for round in 0..ROUNDS_MAX {
        seen.extend(one_round(served, &hot, round));
        if reached.iter().all(|name| count(&seen, name) > 0) {
            break;
        }
    }
    for seen in &seen {
        assert!(seen.gets > 1000 && seen.hits > 100, "{seen:?}");
    }
    for name in reached {
        assert!(count(&seen, name) > 0, "no {name}: {seen:?}");
    }
    let statistics = served.server.statistics();
    let growths =
        statistics.counters.iter().find(|(name, _)| name == "growths").map_or(0, |(_, count)| *count);
    assert!(growths >= growths_least, "{growths} growths");
    assert_eq!(statistics.clients_dropped, 0);
}

/// All changes of a round, under readers of all kinds.
fn one_round<N: Nic>(served: &Served<'_, N>, hot: &[Hot; HOT], round: u64) -> [Seen; 3] {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers = [0, 1].map(|from| scope.spawn(move || write(served, hot, from, round)));
        // One asks the server as soon as anything fails to verify.
        let loci = [(Locus::Client, 32), (Locus::Client, 0), (Locus::Server, 0)];
        let readers = loci.map(|(reads, retries)| {
            let done = &done;
            scope.spawn(move || read(served, hot, done, reads, retries))
        });
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, SeqCst);
        let seen = readers.map(|reader| reader.join().unwrap());
        written.into_iter().for_each(|result| result.unwrap());
        seen
    })
}

/// A value that takes longer to read than to replace is found all the same, wherever the get runs.
fn a_large_value<N: Nic>(nic: &N) {
    const BYTES: usize = 256 << 10;
    let config = ServerConfig { memory_bytes: 256 << 20, ..ServerConfig::default() };
    let served = &Served { nic, server: Server::start(nic, config).unwrap(), inline: false, changes: 0 };
    let writer = client(served, None, 32);
    writer.block_on(writer.put(b"large", &vec![0; BYTES])).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            let writer = client(served, None, 32);
            let mut values = [1u8, 2, 3].map(|byte| vec![byte; BYTES]).into_iter().cycle();
            while !done.load(SeqCst) {
                writer.block_on(writer.put(b"large", &values.next().unwrap())).unwrap();
            }
        });
        let _end = End(done);
        for reads in [Locus::Client, Locus::Server] {
            let reader = client(served, Some(reads), 32);
            let mut seen = [0; 256];
            let changed = |seen: &[u32; 256]| seen.iter().filter(|count| **count > 10).count() >= 3;
            let mut gets = 0;
            // Longer where the writer hardly gets a turn: that it changes meanwhile is what this is about.
            while gets < 300 || !changed(&seen) {
                gets += 1;
                assert!(gets < 100_000, "{reads:?}: {seen:?}");
                let found = reader.block_on(reader.get(b"large", |value| {
                    assert!(
                        value.len() == BYTES && value.iter().all(|byte| *byte == value[0]),
                        "a torn value"
                    );
                    seen[usize::from(value[0])] += 1;
                }));
                assert_eq!(found.unwrap(), Some(()), "{reads:?}");
            }
        }
    });
}

/// Ends the writer also when a check fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
