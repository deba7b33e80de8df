//! Servers whose memory is WRITten sleep although nothing tells them of a WRITE: a client wakes them when they may sleep, and
//! no more often than they have RECVs for what wakes them.

mod simulation;

use locus_fabric::{
    Transport,
    sim::{NicModel, SentVerb, SimNic, SimProcess, SimulationConfig, SimulationCounters, simulate},
};
use locus_runtime::{Clock, MonotonicClock, thread};
use locus_store::{Client, Design, ServerConfig};
use std::time::Duration;

/// Longer than a server waits before it sleeps until it is woken, or looks by itself.
const PAUSE: Duration = Duration::from_millis(10);
/// What a get takes at most that waits for nothing but messages and a core that is woken.
const WOKEN_NS: u64 = 20_000;
/// How long a server naps before it sleeps.
const NAP_NS: u64 = 100_000;

/// Runs a world in which WRITEs wake nobody, with a client that has put a record.
fn world(play: impl FnOnce(&SimProcess, &Client<SimNic>) + Send + 'static) -> SimulationCounters {
    let nic = NicModel { writes_wake: false, ..NicModel::default() };
    let outcome = simulate(SimulationConfig { nic, ..SimulationConfig::default() }, move || {
        let config = ServerConfig {
            design: Design::find("perk-wr-wr").unwrap(),
            memory_bytes: 64 << 20,
            region_bytes: 4 << 20,
            ..ServerConfig::default()
        };
        let server = simulation::serve(config);
        let client = simulation::connect();
        client.block_on(client.put(b"key", b"value")).unwrap();
        play(&server, &client);
    });
    outcome.unwrap_or_else(|error| panic!("{error}")).counters
}

/// Gets the record, and says how long that took.
fn get(client: &Client<SimNic>) -> u64 {
    let clock = MonotonicClock::new();
    assert!(client.block_on(client.get(b"key", |value| assert_eq!(value, b"value"))).unwrap().is_some());
    clock.now_ns()
}

/// How many messages woke somebody in one world more than in another.
fn woke(more: &SimulationCounters, less: &SimulationCounters) -> u64 {
    let count = |counters: &SimulationCounters| counters.sent(Transport::Rc, SentVerb::WriteImmediate);
    count(more) - count(less)
}

#[test]
fn a_request_after_a_pause_wakes_the_server_once_and_waits_for_nothing_else() {
    const GETS: u64 = 20;
    let woken = world(|_, client| {
        for _ in 0..GETS {
            thread::sleep(PAUSE);
            let took_ns = get(client);
            assert!(took_ns < WOKEN_NS, "{took_ns} ns");
        }
    });
    assert_eq!(woke(&woken, &world(|_, _| ())), GETS);
}

/// A simulated server sleeps as soon as it has nothing to do, but at first it only naps.
#[test]
fn a_request_soon_after_another_waits_for_a_nap_at_most() {
    const GETS: u64 = 100;
    let counters = world(|_, client| {
        for _ in 0..GETS {
            let took_ns = get(client);
            assert!(took_ns < NAP_NS + WOKEN_NS, "{took_ns} ns");
        }
    });
    let count = woke(&counters, &world(|_, _| ()));
    assert!(count < GETS, "{count} wake-ups");
}

/// However long it stalls: wake-ups that it has no RECVs for would hold up the requests behind.
#[test]
fn a_server_that_stalls_is_woken_a_few_times_and_goes_on() {
    for stall in [2, 10, 100, 1000].map(Duration::from_millis) {
        let counters = world(move |server, client| {
            let stalled = server.stall("locus-core", 0);
            let keeper = SimProcess::spawn("keeper", move || {
                thread::sleep(stall);
                drop(stalled);
            });
            let took = Duration::from_nanos(get(client));
            keeper.join();
            assert!(took >= stall && took < stall + Duration::from_millis(1), "{took:?} of {stall:?}");
        });
        let count = woke(&counters, &world(|_, _| ()));
        assert!((1..=4).contains(&count), "woken {count} times in {stall:?}");
    }
}
