//! Which verbs over which transports a get and a put take, counted where they leave in a simulated world: no pair can
//! secretly be another.

mod simulation;

use locus_fabric::{
    Transport,
    sim::{SentVerb, SimulationConfig, SimulationCounters, simulate},
};
use locus_rpc::{Carrier, Pair, Way};
use locus_store::{DESIGNS, Design, Index, Locus, ServerConfig};
use simulation::{connect, serve};

/// A value that fits a message, and one that does not.
const SHORT: usize = 5;
const LONG: usize = 100_000;

/// Runs a world of so many gets and puts of a value of this length, one after the other.
fn world(design: &'static Design, gets: usize, puts: usize, bytes: usize) -> SimulationCounters {
    let outcome = simulate(SimulationConfig::default(), move || {
        let _server = serve(ServerConfig {
            design,
            memory_bytes: 64 << 20,
            region_bytes: 4 << 20,
            ..ServerConfig::default()
        });
        let client = connect();
        client.block_on(client.put(b"key", &vec![0; bytes])).unwrap();
        for _ in 0..gets {
            assert!(client.block_on(client.get(b"key", |_| ())).unwrap().is_some());
        }
        for number in 0..puts {
            // One that was placed before does not pass for the next.
            client.block_on(client.put(b"key", &vec![number as u8 + 1; bytes])).unwrap();
        }
    });
    outcome.unwrap_or_else(|error| panic!("{}: {error}", design.name)).counters
}

fn verb(way: Way) -> SentVerb {
    match way.carrier {
        Carrier::Send => SentVerb::Send,
        Carrier::Write => SentVerb::Write,
        Carrier::WriteImmediate => SentVerb::WriteImmediate,
        Carrier::Read => SentVerb::Read,
    }
}

/// Takes from `sent` the messages of so many calls over a pair, and asserts that they are there.
fn take_calls(sent: &mut Sent, pair: Pair, count: u64, what: &str) {
    let requests = sent.take(pair.request.transport, verb(pair.request));
    if pair.request == pair.reply {
        assert_eq!(requests, 2 * count, "{what}: messages");
        return;
    }
    assert_eq!(requests, count, "{what}: requests");
    let replies = sent.take(pair.reply.transport, verb(pair.reply));
    // A reply is READ until it is there.
    let right = if pair.reply == Way::RC_READ { replies >= count } else { replies == count };
    assert!(right, "{what}: {replies} replies to {count} requests");
}

/// What was sent more in one world than in another, and not yet taken.
struct Sent {
    before: SimulationCounters,
    after: SimulationCounters,
    left: u64,
    /// The WRITEs of long values that were taken.
    values: u64,
}

impl Sent {
    fn new(before: SimulationCounters, after: SimulationCounters) -> Self {
        let left = after.sent_in_all() - before.sent_in_all();
        Self { before, after, left, values: 0 }
    }

    fn take(&mut self, transport: Transport, verb: SentVerb) -> u64 {
        let mut count = self.after.sent(transport, verb) - self.before.sent(transport, verb);
        if (transport, verb) == (Transport::Rc, SentVerb::Write) {
            count -= std::mem::take(&mut self.values);
        }
        self.left -= count;
        count
    }

    /// Takes the WRITEs of so many long values, whatever other WRITEs there are.
    fn take_values(&mut self, count: u64) {
        self.values = count;
        self.left -= count;
    }
}

/// How many READs a get of the one key of a table takes that nobody changes, where it runs at the client.
fn reads_per_get(design: &Design) -> u64 {
    match design.index {
        // The row and the extent: the first of three rows has the key.
        Index::Cuckoo => 2,
        // The neighbourhood and the extent.
        Index::Hopscotch => 2,
        Index::HopscotchInline => 1,
        Index::Blocked => 2,
        Index::Lossy => unreachable!("nobody READs it"),
    }
}

fn takes_its_verbs(design: &'static Design) {
    const COUNT: usize = 50;
    let (name, pair, count) = (design.name, design.pair(), COUNT as u64);
    let before = || world(design, 0, 0, SHORT);
    let mut puts = Sent::new(before(), world(design, 0, COUNT, SHORT));
    take_calls(&mut puts, pair, count, &format!("{name}, puts"));
    assert_eq!(puts.left, 0, "{name}: puts took other verbs");
    let mut gets = Sent::new(before(), world(design, COUNT, 0, SHORT));
    if design.reads == Locus::Server {
        take_calls(&mut gets, pair, count, &format!("{name}, gets"));
    } else {
        let reads = gets.take(Transport::Rc, SentVerb::Read);
        let directory_entry = 1;
        assert_eq!(reads, reads_per_get(design) * count + directory_entry, "{name}: READs for {count} gets");
    }
    assert_eq!(gets.left, 0, "{name}: gets took other verbs");
}

/// A long value is WRITten over RC before its request, whatever way that goes, and READ where no reply holds it.
fn takes_its_verbs_for_long_values(design: &'static Design) {
    const COUNT: usize = 20;
    let (name, pair, count) = (design.name, design.pair(), COUNT as u64);
    let before = || world(design, 0, 0, LONG);
    let mut puts = Sent::new(before(), world(design, 0, COUNT, LONG));
    puts.take_values(count);
    take_calls(&mut puts, pair, count, &format!("{name}, long puts"));
    assert_eq!(puts.left, 0, "{name}: long puts took other verbs");
    let mut gets = Sent::new(before(), world(design, COUNT, 0, LONG));
    let reads = gets.take(Transport::Rc, SentVerb::Read);
    if design.reads == Locus::Client {
        assert_eq!(reads, reads_per_get(design) * count + 1, "{name}: READs for {count} long gets");
    } else if pair.reply == Way::RC_READ {
        assert!(reads >= 2 * count, "{name}: {reads} READs for {count} long gets and their replies");
        assert_eq!(gets.take(pair.request.transport, verb(pair.request)), count, "{name}: requests");
    } else {
        assert_eq!(reads, count, "{name}: READs for {count} long gets");
        take_calls(&mut gets, pair, count, &format!("{name}, long gets"));
    }
    assert_eq!(gets.left, 0, "{name}: long gets took other verbs");
}

#[test]
fn every_design_that_holds_long_values_takes_the_same_verbs_for_them() {
    let out_of_slots = |design: &&Design| design.index != Index::HopscotchInline;
    DESIGNS.iter().filter(out_of_slots).for_each(takes_its_verbs_for_long_values);
}

#[test]
fn every_pair_takes_the_same_verbs_for_long_values() {
    for pair in Pair::all() {
        takes_its_verbs_for_long_values(Design::combine(Index::Cuckoo, Locus::Server, pair).unwrap());
    }
}

#[test]
fn every_design_takes_the_verbs_that_its_row_says() {
    DESIGNS.iter().for_each(takes_its_verbs);
}

#[test]
fn every_pair_takes_its_verbs() {
    for pair in Pair::all() {
        takes_its_verbs(Design::combine(Index::Cuckoo, Locus::Server, pair).unwrap());
    }
}
