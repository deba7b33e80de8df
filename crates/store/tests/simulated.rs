//! A server and clients in a simulated world: the same code as everywhere, in virtual time and from a seed.

use locus_fabric::{
    Address,
    sim::{Adversary, NicModel, SimNic, SimProcess, SimulationConfig, SimulationCounters, simulate},
};
use locus_rpc::Pair;
use locus_runtime::{channel, thread};
use locus_store::{Client, ClientConfig, Design, Index, Locus, Server, ServerConfig};
use std::time::Duration;

fn small(design: &str) -> ServerConfig {
    ServerConfig {
        design: Design::find(design).unwrap(),
        memory_bytes: 64 << 20,
        region_bytes: 4 << 20,
        ..ServerConfig::default()
    }
}

fn address() -> Address {
    Address::Sim("server".into())
}

/// Starts a server in a process of its own.
fn serve(design: &'static str) -> SimProcess {
    let (ready, is_ready) = channel::channel();
    let process = SimProcess::spawn("server", move || {
        let server = Server::start(&SimNic::open(), small(design)).unwrap();
        server.listen(&address()).unwrap();
        ready.send(()).unwrap();
        thread::sleep(Duration::from_secs(1 << 30));
    });
    is_ready.receive().unwrap();
    process
}

fn put_and_get(design: &'static str, config: SimulationConfig) {
    let seed = config.seed;
    let outcome = simulate(config, move || {
        let _server = serve(design);
        let client = Client::connect(&SimNic::open(), &[address()], ClientConfig::default()).unwrap();
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
        let _server = serve(design);
        let connect = || Client::connect(&SimNic::open(), &[address()], ClientConfig::default()).unwrap();
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
