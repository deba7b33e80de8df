//! A server and clients in a simulated world: the same code as everywhere, in virtual time and from a seed.

mod simulation;

use locus_fabric::sim::{Adversary, NicModel, SimNic, SimulationConfig, SimulationCounters, simulate};
use locus_rpc::{Pair, Way};
use locus_runtime::interleave_async;
use locus_store::{Design, Index, Locus, Server, ServerConfig};
use simulation::{connect, serve};
use std::cell::Cell;

fn small(design: &str) -> ServerConfig {
    ServerConfig {
        design: Design::find(design).unwrap(),
        memory_bytes: 64 << 20,
        region_bytes: 4 << 20,
        ..ServerConfig::default()
    }
}

fn put_and_get(design: &'static str, config: SimulationConfig) {
    let seed = config.seed;
    let outcome = simulate(config, move || {
        let _server = serve(small(design));
        let client = connect();
        for number in 0..200u32 {
            let key = number.to_le_bytes();
            client.block_on(client.put(&key, &key.repeat(number as usize % 50))).unwrap();
        }
        for number in 0..200u32 {
            let key = number.to_le_bytes();
            let found = client.block_on(client.get(&key, <[u8]>::to_vec)).unwrap();
            assert_eq!(found, Some(key.repeat(number as usize % 50)));
        }
        assert_eq!(client.block_on(client.get(b"absent", <[u8]>::to_vec)).unwrap(), None);
    });
    let outcome = outcome.unwrap_or_else(|error| panic!("{design}, seed {seed}: {error}"));
    println!("{} ns, {:?}", outcome.virtual_ns, outcome.counters);
}

#[test]
fn what_is_put_is_got() {
    for design in ["pilaf", "pilaf-vo"] {
        put_and_get(design, SimulationConfig::default());
        for seed in 0..5 {
            let adversary = Adversary::of_memory();
            put_and_get(design, SimulationConfig { seed, adversary, ..SimulationConfig::default() });
        }
    }
}

/// However WRITEs become visible, whether or not they wake a sleeping server, and where messages may be lost.
#[test]
fn every_pair_of_verbs_carries_puts_and_gets() {
    for pair in Pair::all() {
        let design = Design::combine(Index::Cuckoo, Locus::Server, pair).unwrap().name;
        let losses: &[f64] = if pair.is_lossy() { &[0.01, 0.3] } else { &[0.0] };
        for (seed, &loses) in (0..).zip(losses.iter().chain(losses)) {
            let scrambles_writes = seed % 2 == 0;
            let nic = NicModel { writes_wake: seed != 1, ..NicModel::default() };
            let adversary = Adversary { loses, scrambles_writes, ..Adversary::of_memory() };
            let config = SimulationConfig { seed, nic, adversary, ..SimulationConfig::default() };
            put_and_get(design, config);
        }
    }
}

/// Two clients put values that no message holds, some of them only no datagram, and get each other's. Each put takes the next
/// version, so none is executed twice.
fn put_and_get_long(design: &'static str, config: SimulationConfig) -> SimulationCounters {
    let seed = config.seed;
    let outcome = simulate(config, move || {
        let _server = serve(small(design));
        let clients = [connect(), connect()];
        let mut last = None;
        for number in 0..40 {
            let [writer, reader] = [&clients[number % 2], &clients[(number + 1) % 2]];
            let value = vec![number as u8; 700 + number * 997];
            let version = writer.block_on(writer.put(b"key", &value)).unwrap();
            assert!(last.is_none_or(|last| version == last + 1), "{version} after {last:?}");
            last = Some(version);
            let found = reader.block_on(reader.get(b"key", <[u8]>::to_vec)).unwrap();
            assert!(found == Some(value), "{design}: another value than number {number}");
        }
    });
    outcome.unwrap_or_else(|error| panic!("{design}, seed {seed}: {error}")).counters
}

/// Where their requests may be lost, and come before them although they are sent after.
#[test]
fn long_values_are_put_once_where_their_requests_may_be_lost() {
    let (mut lost, mut acknowledged_early) = (0, 0);
    for design in ["herd", "herd-ud", "farm-kv-var"] {
        for (seed, loses, datagram_bytes_max) in [(0, 0.01, 4096), (1, 0.3, 1024), (2, 0.3, 256)] {
            let nic = NicModel { datagram_bytes_max, ..NicModel::default() };
            let adversary = Adversary {
                loses,
                acknowledges_early: 0.5,
                scrambles_writes: seed != 1,
                ..Adversary::of_memory()
            };
            let config = SimulationConfig { seed, nic, adversary, ..SimulationConfig::default() };
            let counters = put_and_get_long(design, config);
            lost += counters.lost;
            acknowledged_early += counters.acknowledged_early;
        }
    }
    assert!(lost > 100 && acknowledged_early > 100, "{lost} lost, {acknowledged_early} acknowledged early");
}

/// A record of a circular log that is written over between the reply which points to it and the READ: its get finds a whole
/// value of its key all the same, or none.
#[test]
fn a_record_that_is_overwritten_before_it_is_read_is_asked_for_again() {
    const KEYS: u32 = 60;
    const PUTS: u32 = 120;
    const BYTES: usize = 40_000;
    let mut asked_again = 0;
    for seed in 0..5 {
        let adversary = Adversary { delay_ns: 100_000, ..Adversary::of_memory() };
        let outcome = simulate(SimulationConfig { seed, adversary, ..SimulationConfig::default() }, || {
            // A log of 2 MiB: 52 records.
            let config = ServerConfig {
                memory_bytes: 6 << 20,
                region_bytes: 2 << 20,
                value_bytes_max: 64 << 10,
                ..small("herd")
            };
            let _server = serve(config);
            let client = connect();
            let (put, gets) = (Cell::new(0u32), Cell::new(0u64));
            let lane = |reads: bool| {
                let (client, put, gets) = (&client, &put, &gets);
                async move {
                    let numbers = if reads { 0..0 } else { 0..PUTS };
                    for number in numbers {
                        let value = number.to_le_bytes().repeat(BYTES / 4);
                        client.put(&(number % KEYS).to_le_bytes(), &value).await.unwrap();
                        put.set(number);
                    }
                    while put.get() < PUTS - 1 {
                        // Among the oldest that are there, and the newest that are not.
                        let key = (put.get() + KEYS - 49 - gets.get() as u32 % 4) % KEYS;
                        gets.set(gets.get() + 1);
                        let found = client.get(&key.to_le_bytes(), <[u8]>::to_vec).await.unwrap();
                        let Some(found) = found else { continue };
                        let first = u32::from_le_bytes(found[..4].try_into().unwrap());
                        assert!(first % KEYS == key && found == first.to_le_bytes().repeat(BYTES / 4));
                    }
                }
            };
            client.block_on(interleave_async(2, [true, false].map(lane), |_, ()| ()));
            client.messages().0 - 2 * (u64::from(PUTS) + gets.get())
        });
        asked_again += outcome.unwrap_or_else(|error| panic!("seed {seed}: {error}")).value;
    }
    assert!(asked_again > 10, "{asked_again} messages of gets that were asked again");
}

/// What does not travel in datagrams as short as those of this NIC is refused by the limit, when it can be known.
#[test]
fn what_short_datagrams_do_not_carry_is_refused_by_its_limit() {
    let nic = NicModel { datagram_bytes_max: 1024, ..NicModel::default() };
    let outcome = simulate(SimulationConfig { nic, ..SimulationConfig::default() }, || {
        let pair = Pair { request: Way::UD_SEND, reply: Way::UD_SEND };
        let inline = Design::combine(Index::HopscotchInline, Locus::Server, pair).unwrap();
        let config = ServerConfig { design: inline, slot_bytes: 1024, ..small("herd-ud") };
        let refused = Server::start(&SimNic::open(), config.clone()).err().expect("slots that are too long");
        assert!(refused.to_string().contains("--slot-bytes"), "{refused}");
        drop(Server::start(&SimNic::open(), ServerConfig { slot_bytes: 512, ..config }).unwrap());

        let _server = serve(small("herd-ud"));
        let client = connect();
        // What names a value's place takes 20 bytes beside the key.
        for (bytes, fits) in [(972, true), (973, false), (1024, false)] {
            let put = client.block_on(client.put(&vec![7; bytes], &[1; 100]));
            assert_eq!(put.is_ok(), fits, "a key of {bytes} bytes: {put:?}");
            let refused = put.err().map_or_else(String::new, |error| error.to_string());
            assert_eq!(refused.contains("limit of 972"), !fits, "{refused}");
        }
        assert!(
            client.block_on(client.get(&[7; 972], |value| assert_eq!(value, [1; 100]))).unwrap().is_some()
        );
        assert!(client.block_on(client.get(&[7; 992], |_| ())).unwrap().is_none());
        let refused = client.block_on(client.get(&[7; 993], |_| ())).unwrap_err().to_string();
        assert!(refused.contains("limit of 992"), "{refused}");
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
