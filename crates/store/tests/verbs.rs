//! Which verbs over which transports a get and a put take, counted where they leave in a simulated world: no pair can
//! secretly be another.

use locus_fabric::{
    Address, Transport,
    sim::{SentVerb, SimNic, SimProcess, SimulationConfig, SimulationCounters, simulate},
};
use locus_rpc::{Carrier, Pair, Way};
use locus_runtime::{channel, thread};
use locus_store::{Client, ClientConfig, Design, Server, ServerConfig};
use std::time::Duration;

fn address() -> Address {
    Address::Sim("server".into())
}

/// Runs a world of so many gets and puts, one after the other.
fn world(pair: Pair, gets: usize, puts: usize) -> SimulationCounters {
    let outcome = simulate(SimulationConfig::default(), move || {
        let (ready, is_ready) = channel::channel();
        let _server = SimProcess::spawn("server", move || {
            let config = ServerConfig {
                design: Design::find("pilaf-vo").unwrap(),
                pair: Some(pair),
                memory_bytes: 64 << 20,
                region_bytes: 4 << 20,
                ..ServerConfig::default()
            };
            let server = Server::start(&SimNic::open(), config).unwrap();
            server.listen(&address()).unwrap();
            ready.send(()).unwrap();
            thread::sleep(Duration::from_secs(1 << 30));
        });
        is_ready.receive().unwrap();
        let client = Client::connect(&SimNic::open(), &[address()], ClientConfig::default()).unwrap();
        client.block_on(client.put(b"key", b"value")).unwrap();
        for _ in 0..gets {
            assert!(client.block_on(client.get(b"key", |_| ())).unwrap().is_some());
        }
        for _ in 0..puts {
            client.block_on(client.put(b"key", b"value")).unwrap();
        }
    });
    outcome.unwrap_or_else(|error| panic!("{pair}: {error}")).counters
}

fn verb(way: Way) -> SentVerb {
    match way.carrier {
        Carrier::Send => SentVerb::Send,
        Carrier::Write => SentVerb::Write,
        Carrier::WriteImmediate => SentVerb::WriteImmediate,
        Carrier::Read => SentVerb::Read,
    }
}

#[test]
fn a_get_and_a_put_take_one_request_and_one_reply_of_the_verbs_of_their_pair() {
    const COUNT: usize = 50;
    for pair in Pair::all() {
        let before = world(pair, 0, 0);
        for (what, after) in [("gets", world(pair, COUNT, 0)), ("puts", world(pair, 0, COUNT))] {
            let mut others = after.sent_in_all() - before.sent_in_all();
            let mut sent = |transport: Transport, verb| {
                let count = after.sent(transport, verb) - before.sent(transport, verb);
                others -= count;
                count
            };
            let count = COUNT as u64;
            let requests = sent(pair.request.transport, verb(pair.request));
            if pair.request == pair.reply {
                assert_eq!(requests, 2 * count, "{pair}: {what}");
            } else {
                assert_eq!(requests, count, "{pair}: requests of {what}");
                let replies = sent(pair.reply.transport, verb(pair.reply));
                // A reply is READ until it is there.
                let right = if pair.reply == Way::RC_READ { replies >= count } else { replies == count };
                assert!(right, "{pair}: {replies} replies to {count} {what}");
            }
            assert_eq!(others, 0, "{pair}: {what} took other verbs");
        }
    }
}
