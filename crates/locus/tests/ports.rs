//! A store under load whose RDMA port goes down and comes up again, or whose RDMA device is taken away and given back. Needs a device of its own, whose IPv4 address the
//! variable `LOCUS_RDMA` gives; without it there are no tests. `scripts/test` runs them in a virtual machine.
//!
//! Each client puts versions of keys of its own and gets them again. What it knows of a key is which version was
//! acknowledged last and which was begun last: whatever is found lies between the two, during the faults and after them.

#[path = "../../fabric/tests/shared/device.rs"]
mod device;

use device::{Interface, OBJECTS, Removal, held, is_active};
use libtest_mimic::{Arguments, Trial};
use locus::{Error, Server, ServerConfig, Table, connect};
use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

const CLIENTS: usize = 4;
const KEYS: u32 = 16;
const ROUNDS: usize = 3;
/// A port that is down, or a device that is gone, shows within this time.
const SOON: Duration = Duration::from_secs(2);
/// No operation takes longer, whatever happens: a link is given up after a second, and one attempt to connect again is
/// bounded by five seconds each for the connection and for the server's answers.
const OPERATION_MAX: Duration = Duration::from_secs(15);
/// Only a failing test ever waits that long.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let Ok(device) = std::env::var("LOCUS_RDMA") else {
        println!("no tests: LOCUS_RDMA names no RDMA device; scripts/test runs these in virtual machines");
        return ExitCode::SUCCESS;
    };
    let faults = [("a_port_that_goes_down", Fault::Port), ("a_device_that_is_taken_away", Fault::Device)];
    let mut tests = Vec::new();
    for (name, fault) in faults {
        for design in ["pilaf", "pilaf-vo"] {
            let device = device.clone();
            tests.push(Trial::test(format!("{design}_outlives_{name}"), move || {
                outlives(fault, design, &device);
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// What befalls the store.
#[derive(Clone, Copy)]
enum Fault {
    Port,
    Device,
}

/// Tries again until it is so.
#[track_caller]
fn wait(what: &str, mut event: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !event() {
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain for {what}");
        std::thread::yield_now();
    }
    start.elapsed()
}

/// What the test sees of a client.
#[derive(Default)]
struct Seen {
    puts: AtomicU64,
    gets: AtomicU64,
    failures: AtomicU64,
    /// The longest operation, in nanoseconds.
    longest_ns: AtomicU64,
}

/// What a client knows of a key.
#[derive(Clone, Copy, Default)]
struct Known {
    acknowledged: u64,
    begun: u64,
}

fn key(client: usize, key: u32) -> [u8; 8] {
    (u64::from(key) << 32 | client as u64).to_le_bytes()
}

/// Names its key and version, in lengths that take messages of several kinds.
fn value(key: [u8; 8], version: u64) -> Vec<u8> {
    let longest = if version.is_multiple_of(31) { 9000 } else { 300 };
    let piece = [key, version.to_le_bytes()].concat();
    piece.into_iter().cycle().take(16 + (version as usize * 37) % longest).collect()
}

#[track_caller]
fn check(key: [u8; 8], found: Option<&[u8]>, known: Known) {
    let version = found.map_or(0, |found| {
        let version = u64::from_le_bytes(found[8..16].try_into().unwrap());
        assert!(found == value(key, version), "the bytes are no value that was put");
        version
    });
    let Known { acknowledged, begun } = known;
    assert!((acknowledged..=begun).contains(&version), "{version} is not of {acknowledged}..={begun}");
}

/// Puts and gets until it is told to stop. Gives what it knows then.
fn work(
    number: usize,
    address: &str,
    seen: &Seen,
    stop: &AtomicBool,
    texts: &Mutex<BTreeMap<String, u64>>,
) -> Vec<Known> {
    let table = connect(address).unwrap();
    let mut known = vec![Known::default(); KEYS as usize];
    let timed = |operation: &mut dyn FnMut() -> locus::Result<()>| {
        let start = Instant::now();
        let result = operation();
        seen.longest_ns.fetch_max(start.elapsed().as_nanos() as u64, SeqCst);
        if let Err(error) = &result {
            let expected = matches!(
                error,
                Error::ServerLost { .. }
                    | Error::OutcomeUnknown { .. }
                    | Error::Refused { .. }
                    | Error::Fabric(_)
            );
            assert!(expected, "{error:?}");
            seen.failures.fetch_add(1, SeqCst);
            *texts.lock().unwrap().entry(error.to_string()).or_default() += 1;
        }
        result.is_ok()
    };
    while !stop.load(SeqCst) {
        for place in 0..KEYS {
            let (key, known) = (key(number, place), &mut known[place as usize]);
            known.begun += 1;
            if timed(&mut || table.put(key, value(key, known.begun))) {
                known.acknowledged = known.begun;
                seen.puts.fetch_add(1, SeqCst);
            }
            let mut found = None;
            if timed(&mut || table.get(key).map(|value| found = value)) {
                check(key, found.as_deref(), *known);
                seen.gets.fetch_add(1, SeqCst);
            }
        }
    }
    known
}

fn outlives(fault: Fault, design: &str, device: &str) {
    let interface = Interface::of(device);
    let design = locus::DESIGNS.iter().find(|known| known.name == design).expect("a design");
    let config = ServerConfig { design, memory_bytes: 512 << 20, ..ServerConfig::default() };
    let server = Server::start(config, &[format!("rdma://{device}:0")]).unwrap();
    let address = server.addresses()[0].clone();
    // The first client starts threads that stay.
    connect(&address).unwrap().put("first", "value").unwrap();
    wait("the first client to be gone", || server.stats().clients == 0);
    let before = held();
    let (seen, stop, texts) = (<[Seen; CLIENTS]>::default(), AtomicBool::new(false), Mutex::default());
    let known: Vec<_> = std::thread::scope(|scope| {
        let clients: Vec<_> = seen
            .iter()
            .enumerate()
            .map(|(number, seen)| {
                let (address, stop, texts) = (&address, &stop, &texts);
                scope.spawn(move || work(number, address, seen, stop, texts))
            })
            .collect();
        // Clients end also when a check here fails.
        let end = End(&stop);
        let alive = || assert!(clients.iter().all(|client| !client.is_finished()), "a client failed");
        for round in 0..ROUNDS {
            befall(fault, round, &interface, &seen, alive);
        }
        drop(end);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let texts = texts.into_inner().unwrap();
    for (text, count) in &texts {
        println!("{count} times: {text}");
    }
    if matches!(fault, Fault::Device) {
        let named = |text: &String| text.contains("the RDMA device rxe0 was taken away");
        assert!(texts.keys().any(named), "no error names the device");
    }
    for seen in &seen {
        let longest = Duration::from_nanos(seen.longest_ns.load(SeqCst));
        println!(
            "{} puts, {} gets, the longest took {longest:?}",
            seen.puts.load(SeqCst),
            seen.gets.load(SeqCst)
        );
        assert!(longest < OPERATION_MAX, "{longest:?}");
    }
    everything_is_there(&connect(&address).unwrap(), &known);
    wait("all clients to be gone", || server.stats().clients == 0);
    wait("everything to be given back", || {
        let now = held();
        OBJECTS.iter().all(|kind| now[*kind] == before[*kind])
            && now.iter().all(|(kind, count)| *count <= before[kind])
    });
}

fn befall(fault: Fault, round: usize, interface: &Interface, seen: &[Seen], alive: impl Fn()) {
    let counts =
        |of: fn(&Seen) -> &AtomicU64| -> Vec<u64> { seen.iter().map(|seen| of(seen).load(SeqCst)).collect() };
    let more = |of: fn(&Seen) -> &AtomicU64, than: &[u64], by: u64| {
        alive();
        counts(of).iter().zip(than).all(|(now, before)| *now >= before + by)
    };
    let puts = counts(|seen| &seen.puts);
    wait("all clients to be at work", || more(|seen| &seen.puts, &puts, 50));
    let failures = counts(|seen| &seen.failures);
    let mut removal = None;
    match fault {
        Fault::Port => interface.set("down"),
        Fault::Device => removal = Some(Removal::begin()),
    }
    let noticed = wait("all clients to notice", || more(|seen| &seen.failures, &failures, 1));
    // Further attempts fail for a while.
    wait("failures to follow", || more(|seen| &seen.failures, &failures, 100));
    match removal {
        None => interface.set("up"),
        Some(mut removal) => {
            wait("all to let go of the device", || removal.is_done());
            removal.undo(interface);
        }
    }
    wait("the port to be active again", is_active);
    let (puts, gets) = (counts(|seen| &seen.puts), counts(|seen| &seen.gets));
    let back = wait("all clients to be back", || {
        more(|seen| &seen.puts, &puts, 10) && more(|seen| &seen.gets, &gets, 10)
    });
    println!("round {round}: noticed after {} ms, back after {} ms", noticed.as_millis(), back.as_millis());
    assert!(noticed < SOON, "it took {noticed:?}");
}

/// What was acknowledged is there, and nothing that was not begun.
fn everything_is_there(table: &Table, known: &[Vec<Known>]) {
    for (client, known) in known.iter().enumerate() {
        for (place, known) in known.iter().enumerate() {
            let key = key(client, place as u32);
            check(key, table.get(key).unwrap().as_deref(), *known);
        }
    }
}

/// Tells the clients to stop.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
