//! A server and clients in a simulated world: the same code as everywhere, in virtual time and from a seed.

use locus_fabric::{
    Address,
    sim::{Adversary, SimNic, SimProcess, SimulationConfig, simulate},
};
use locus_runtime::{channel, thread};
use locus_store::{Client, ClientConfig, Design, Server, ServerConfig};
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
    let outcome = outcome.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
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
