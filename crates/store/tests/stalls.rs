//! A server core that stalls does not stall the others: in simulated worlds one core's thread has no turn for a while, wherever
//! it is, and who does not need it goes on.

mod simulation;

use locus_fabric::sim::{Adversary, SimNic, SimProcess, SimulationConfig, simulate};
use locus_index::Key;
use locus_runtime::{
    channel::{Receiver, Sender, channel},
    interleave_async, thread, world,
};
use locus_store::{Client, DESIGNS, Design, Index, KEY_HASH_SEED, Locus, PartitionMap, ServerConfig};
use simulation::{connect, serve};
use std::{cell::Cell, rc::Rc, time::Duration};

const CORES: u16 = 3;
/// Which of them stalls.
const STALLED: u16 = 1;
/// How many keys of each core there are at first.
const KEYS: usize = 20;
/// Puts of new keys to the other cores while one stalls: more than the memory that they begin with.
const FRESH: usize = 3000;
/// What a put takes, about.
const PUT_NS: u64 = 10_000;
/// How long what the core sent before it stalled may be on its way.
const ON_ITS_WAY: Duration = Duration::from_millis(1);

/// So many keys, all of the core that stalls or none.
fn keys(of_the_stalled: bool, count: usize) -> Vec<Vec<u8>> {
    let map = PartitionMap::even(&[CORES]);
    let all = (0u32..).map(|number| number.to_le_bytes().to_vec());
    let wanted = |key: &Vec<u8>| {
        let core = map.owner(Key::new(key, KEY_HASH_SEED).partition()).core;
        (core == STALLED) == of_the_stalled
    };
    all.filter(wanted).take(count).collect()
}

/// Fits a slot where values lie in slots.
fn value(design: &Design) -> Vec<u8> {
    vec![7; if design.index == Index::HopscotchInline { 90 } else { 1000 }]
}

/// What the operations of a client have come to.
struct Ended {
    /// Those that go to the core that is to stall.
    puts: Cell<u64>,
    gets: Cell<u64>,
    /// Those that go to the others while it stalls.
    beside: Cell<u64>,
    is_stalled: Cell<bool>,
    /// Nobody is to begin another one.
    enough: Cell<bool>,
    /// A word for each put and get that was counted.
    tell: Sender<()>,
    told: Receiver<()>,
}

impl Ended {
    fn new() -> Rc<Self> {
        let (puts, gets, beside, is_stalled, enough) = Default::default();
        let (tell, told) = channel();
        Rc::new(Self { puts, gets, beside, is_stalled, enough, tell, told })
    }

    fn count(&self, cell: &Cell<u64>) {
        cell.set(cell.get() + 1);
        self.tell.send(()).unwrap();
    }

    /// Waits until there were so many.
    fn wait_for(&self, puts: u64, gets: u64) {
        while self.puts.get() < puts || self.gets.get() < gets {
            self.told.receive().unwrap();
        }
    }
}

/// A client that puts to the core that is to stall and gets from it, and in lanes beside these does the same with the others.
fn mixed(design: &'static Design, ended: &Ended) {
    let client = connect();
    let (stalled, others) = (keys(true, KEYS), keys(false, KEYS));
    let lane = |lane: usize| {
        let (client, stalled, others) = (&client, &stalled, &others);
        async move {
            for round in (0..KEYS).cycle() {
                if ended.enough.get() {
                    break;
                }
                match lane {
                    0 => {
                        client.put(&stalled[round], &value(design)).await.unwrap();
                        ended.count(&ended.puts);
                    }
                    1 => {
                        assert_eq!(
                            client.get(&stalled[round], <[u8]>::len).await.unwrap(),
                            Some(value(design).len())
                        );
                        ended.count(&ended.gets);
                    }
                    _ => {
                        client.put(&others[round], &value(design)).await.unwrap();
                        assert_eq!(
                            client.get(&others[round], <[u8]>::len).await.unwrap(),
                            Some(value(design).len())
                        );
                        ended.beside.set(ended.beside.get() + u64::from(ended.is_stalled.get()));
                    }
                }
            }
        }
    };
    client.block_on(interleave_async(3, (0..3).map(lane), |_, ()| ()));
}

/// A client that only needs the other cores, and there puts so much that they need more memory.
fn elsewhere(design: &'static Design, client: &Client<SimNic>) {
    let keys = keys(false, FRESH);
    for key in &keys {
        client.block_on(client.put(key, &value(design))).unwrap();
        assert_eq!(client.block_on(client.get(key, <[u8]>::to_vec)).unwrap(), Some(value(design)));
    }
    // Others get the first ones meanwhile.
    let few = &keys[FRESH - KEYS..];
    for key in few {
        assert!(client.block_on(client.delete(key)).unwrap());
        client.block_on(client.put(key, &value(design))).unwrap();
    }
    let mut found = 0;
    client.block_on(client.get_many(few, |_, result| found += usize::from(result.unwrap().is_some())));
    assert_eq!(found, KEYS);
}

/// Says whether no get of the stalled core's keys ended while it stalled.
fn world(design: &'static Design, config: SimulationConfig) -> bool {
    let quiet = config.adversary.preempts == 0.0;
    let result = simulate(config, move || {
        let server = serve(ServerConfig {
            design,
            cores: CORES.into(),
            // So much that no bucket of a hash that evicts overflows with these keys.
            memory_bytes: 256 << 20,
            region_bytes: 1 << 20,
            ..ServerConfig::default()
        });
        // Whoever connects needs every core once.
        let client = connect();
        for key in keys(true, KEYS).iter().chain(&keys(false, KEYS)) {
            client.block_on(client.put(key, &value(design))).unwrap();
        }
        let reserved = client.statistics().unwrap()[0].region_bytes;
        let ended = Ended::new();
        let user = SimProcess::spawn("mixed", {
            let ended = ended.clone();
            move || mixed(design, &ended)
        });
        ended.wait_for(10, 0);
        if !quiet {
            // Into the next put.
            thread::sleep(Duration::from_nanos(world::random().unwrap() as u64 % PUT_NS));
        }
        let stalled = server.stall("locus-core", STALLED.into());
        thread::sleep(ON_ITS_WAY);
        ended.is_stalled.set(true);
        let (puts, gets) = (ended.puts.get(), ended.gets.get());

        elsewhere(design, &client);
        let beside = ended.beside.get();
        assert!(beside > 100, "{beside} beside those that wait");
        assert_eq!(ended.puts.get(), puts, "nobody but the stalled core makes puts of its keys");
        // It stalls between two changes where nothing else holds it up.
        if design.reads == Locus::Server {
            assert_eq!(ended.gets.get(), gets, "nobody but the stalled core looks its keys up");
        } else if quiet {
            assert!(ended.gets.get() > gets + 100, "gets by READ do not need it");
        }
        let gets_waited = ended.gets.get() == gets;

        ended.is_stalled.set(false);
        drop(stalled);
        ended.wait_for(puts + 10, gets + 10);
        ended.enough.set(true);
        user.join();
        for key in keys(true, KEYS) {
            assert_eq!(client.block_on(client.get(&key, <[u8]>::to_vec)).unwrap(), Some(value(design)));
        }
        let grew = client.statistics().unwrap()[0].region_bytes > reserved;
        // A cache with a log reserved all of it at first.
        assert_eq!(grew, design.index != Index::Lossy, "the others got more memory meanwhile");
        gets_waited
    });
    result.unwrap_or_else(|error| panic!("{}: {error}", design.name)).value
}

#[test]
fn a_core_that_stalls_at_rest_holds_nobody_else_up() {
    for design in DESIGNS {
        world(design, SimulationConfig { virtual_ns_max: 10_000_000_000, ..SimulationConfig::default() });
    }
}

/// Perhaps with a record half written, or a request half answered.
#[test]
fn a_core_that_stalls_in_the_midst_holds_nobody_else_up() {
    // What takes it longest to write: a record in a slot.
    let inline = Design::find("farm-kv").unwrap();
    let mut half_written = 0;
    for (seed, design) in (1..).zip(DESIGNS.iter().chain([inline; 4])) {
        let adversary = Adversary { preempts: 0.3, ..Adversary::of_memory() };
        let virtual_ns_max = 10_000_000_000;
        let config = SimulationConfig { seed, adversary, virtual_ns_max, ..SimulationConfig::default() };
        let gets_waited = world(design, config);
        half_written += u64::from(gets_waited && design.reads == Locus::Client);
    }
    assert!(half_written > 0, "gets by READ wait only where a record is half written");
}
