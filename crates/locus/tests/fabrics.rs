//! A store between a server and clients, over whichever fabric `LOCUS_LISTEN` names: by default shared memory, and in a
//! virtual machine with a software RDMA device `rdma://10.99.0.1:0`.

use locus::{
    ClientConfig, DESIGNS, Design, Error, Index, Locus, Server, ServerConfig, Table, connect, connect_with,
};
use locus_rpc::Pair;
use std::time::{Duration, Instant};

/// Where to listen, and what has to live as long.
fn address() -> (String, Option<tempfile::TempDir>) {
    if let Ok(address) = std::env::var("LOCUS_LISTEN") {
        return (address, None);
    }
    let directory = tempfile::tempdir().unwrap();
    (format!("shm:{}", directory.path().join("locus.sock").display()), Some(directory))
}

/// Where clients find a server. Which NIC they take is theirs to say: here the same as the server's.
fn clients_address(server: &Server) -> String {
    let address = &server.addresses()[0];
    let listened = std::env::var("LOCUS_LISTEN").unwrap_or_default();
    listened.split_once('?').map_or_else(|| address.clone(), |(_, options)| format!("{address}?{options}"))
}

fn serve(design: &str, address: &str) -> Server {
    let design = locus::DESIGNS.iter().find(|known| known.name == design).expect("a design");
    let config = ServerConfig { design, memory_bytes: 512 << 20, ..ServerConfig::default() };
    Server::start(config, &[address]).unwrap()
}

/// A value that tells its key and its version, and shows when it is torn.
fn value(key: u32, version: u32, bytes: usize) -> Vec<u8> {
    let piece = [key.to_le_bytes(), version.to_le_bytes()].concat();
    piece.into_iter().cycle().take(bytes).collect()
}

/// The version of a whole value of a key.
#[track_caller]
fn version(key: u32, found: &[u8]) -> u32 {
    let version = u32::from_le_bytes(found[4..8].try_into().unwrap());
    assert!(found == value(key, version, found.len()), "a torn or strange value of {key}");
    version
}

fn every_operation(design: &str) {
    let (address, _directory) = address();
    let server = serve(design, &address);
    let address = &clients_address(&server);
    let table = connect(address).unwrap();
    assert_eq!(table.reads() == Locus::Client, design == "pilaf");
    assert_eq!(table.get("key").unwrap(), None);
    assert!(!table.delete("key").unwrap());
    // Values that travel inline and by rendezvous.
    for bytes in [0, 1, 64, 4000, 5000, 300_000] {
        let stored = vec![7; bytes];
        table.put("key", &stored).unwrap();
        assert_eq!(table.get("key").unwrap(), Some(stored), "{bytes} bytes");
    }
    assert!(table.delete("key").unwrap());
    assert_eq!(table.get("key").unwrap(), None);
    // The table grows several times on the way.
    const RECORDS: u32 = 5000;
    let mut stored = 0;
    let records = (0..RECORDS).map(|key| (key.to_le_bytes(), value(key, 0, 100)));
    table.put_many_with(records, |_, result| stored += u32::from(result.is_ok()));
    assert_eq!(stored, RECORDS);
    let other = connect(address).unwrap();
    let keys: Vec<_> = (0..RECORDS + 10).map(u32::to_le_bytes).collect();
    for (key, found) in other.get_many(&keys).into_iter().enumerate() {
        let found = found.unwrap().map(|found| version(key as u32, &found));
        assert_eq!(found, ((key as u32) < RECORDS).then_some(0));
    }
    assert_eq!(server.stats().records, u64::from(RECORDS));
    assert_eq!(server.stats().clients_dropped, 0);
}

/// Puts, gets and deletes of values that fit a message and a slot, and of some that fit no message. A cache may have forgotten
/// a few.
fn operations(design: &'static Design) {
    const RECORDS: u32 = 500;
    let (address, _directory) = address();
    let config = ServerConfig { design, memory_bytes: 256 << 20, ..ServerConfig::default() };
    let server = Server::start(config, &[&address]).unwrap();
    let table = connect(&clients_address(&server)).unwrap();
    for version in 0..2 {
        let records = (0..RECORDS).map(|key| (key.to_le_bytes(), value(key, version, 60)));
        table.put_many_with(records, |_, result| result.unwrap());
    }
    let keys: Vec<_> = (0..RECORDS + 10).map(u32::to_le_bytes).collect();
    let mut forgotten = 0;
    for (key, found) in (0..).zip(table.get_many(&keys)) {
        match found.unwrap() {
            Some(found) => assert_eq!(version(key, &found), 1, "{}", design.name),
            None => forgotten += u32::from(key < RECORDS),
        }
    }
    let may_forget = if design.index.forgets() { RECORDS / 10 } else { 0 };
    assert!(forgotten <= may_forget, "{}: {forgotten} forgotten", design.name);
    let (key, stored) = (3u32.to_le_bytes(), value(3, 9, 60));
    table.put(key, &stored).unwrap();
    assert_eq!(table.get(key).unwrap(), Some(stored), "{}", design.name);
    assert!(table.delete(key).unwrap(), "{}", design.name);
    assert_eq!(table.get(key).unwrap(), None, "{}", design.name);
    long_values(design, [&table, &connect(&clients_address(&server)).unwrap()]);
    assert_eq!(server.stats().clients_dropped, 0, "{}", design.name);
}

/// Values about as long as the messages of all transports, and longer than any, up to the server's limit.
fn long_values(design: &'static Design, tables: [&Table; 2]) {
    const LENGTHS: [usize; 7] = [900, 1024, 2048, 4000, 4097, 100_000, 1 << 20];
    let [writer, reader] = tables;
    for (version, bytes) in (1..).zip(LENGTHS) {
        let (key, stored) = (5u32.to_le_bytes(), value(5, version, bytes));
        match writer.put(key, &stored) {
            Ok(()) => assert!(reader.get(key).unwrap() == Some(stored), "{}: {bytes} bytes", design.name),
            Err(Error::SlotLength { limit, .. }) if design.index == Index::HopscotchInline => {
                assert!(key.len() + bytes > limit, "{}: {bytes} bytes", design.name);
            }
            Err(error) => panic!("{}: {bytes} bytes: {error}", design.name),
        }
    }
    if design.index == Index::HopscotchInline {
        return;
    }
    let too_long = writer.put("key", value(5, 0, (1 << 20) + 1));
    assert!(matches!(too_long, Err(Error::ValueLength { limit: 0x10_0000, .. })), "{too_long:?}");
    // More at once than there are places for.
    let keys: Vec<u32> = (0..8).collect();
    let records = keys.iter().map(|&key| (key.to_le_bytes(), value(key, 9, 50_000)));
    writer.put_many_with(records, |_, result| result.unwrap());
    let found = reader.get_many(&keys.iter().map(|key| key.to_le_bytes()).collect::<Vec<_>>());
    for (key, found) in keys.into_iter().zip(found) {
        let found = found.unwrap().expect("it was put last");
        assert_eq!((version(key, &found), found.len()), (9, 50_000), "{}", design.name);
    }
}

#[test]
fn every_design() {
    DESIGNS.iter().for_each(operations);
}

#[test]
fn every_pair_of_verbs() {
    for pair in Pair::all() {
        operations(Design::combine(Index::Cuckoo, Locus::Server, pair).unwrap());
    }
}

#[test]
fn every_operation_of_pilaf() {
    every_operation("pilaf");
}

#[test]
fn every_operation_of_pilaf_vo() {
    every_operation("pilaf-vo");
}

/// Few keys change all the time, in place, by kick-outs and by growth, while others read them: what they see is whole, and
/// never older than what they saw before.
#[test]
fn readers_see_whole_values_that_never_go_back() {
    const KEYS: u32 = 8;
    const CHANGES: u32 = 1500;
    let (address, _directory) = address();
    let server = serve("pilaf", &address);
    let address = clients_address(&server);
    let writer = connect(&address).unwrap();
    (0..KEYS).for_each(|key| writer.put(key.to_le_bytes(), value(key, 0, 200)).unwrap());
    std::thread::scope(|scope| {
        let readers = [0, 1].map(|number| {
            let address = &address;
            scope.spawn(move || {
                let table = connect(address).unwrap();
                let mut seen = [0; KEYS as usize];
                while seen.iter().any(|&version| version < CHANGES) {
                    let keys: Vec<u32> = (0..KEYS).collect();
                    let bytes: Vec<_> = keys.iter().map(|key| key.to_le_bytes()).collect();
                    let found: Vec<_> = if number == 0 {
                        bytes.iter().map(|key| table.get(key)).collect()
                    } else {
                        table.get_many(&bytes)
                    };
                    for (key, found) in keys.into_iter().zip(found) {
                        let found = version(key, &found.unwrap().expect("it is never deleted"));
                        let before = &mut seen[key as usize];
                        assert!(found >= *before, "key {key} went back from {before} to {found}");
                        *before = found;
                    }
                }
            })
        });
        for change in 1..=CHANGES {
            for key in 0..KEYS {
                let bytes = 150 + (change as usize * 37 + key as usize) % 400;
                writer.put(key.to_le_bytes(), value(key, change, bytes)).unwrap();
            }
            // What the table has besides makes it kick out and grow.
            writer.put([b"filler", &change.to_le_bytes()[..]].concat(), "x").unwrap();
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

/// Operations fail soon after the server is gone, and work again, by themselves, once it is back.
#[test]
fn a_lost_server_is_noticed_and_its_successor_found() {
    let (address, _directory) = address();
    let first = serve("pilaf", &address);
    let address = clients_address(&first);
    let table = connect(&address).unwrap();
    table.put("key", "old").unwrap();
    assert_eq!(table.get("key").unwrap().as_deref(), Some(&b"old"[..]));
    drop(first);
    let gone = Instant::now();
    until("the client to notice", || table.get("key").is_err());
    assert!(gone.elapsed() < Duration::from_secs(10), "noticed after {:?}", gone.elapsed());
    let second = serve("pilaf", &address);
    connect(&address).unwrap().put("key", "new").unwrap();
    let mut found = None;
    until("the client to be back", || {
        found = table.get("key").ok();
        found.is_some()
    });
    assert_eq!(found.flatten().as_deref(), Some(&b"new"[..]));
    drop(second);
}

fn until(what: &str, mut event: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !event() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::yield_now();
    }
}

/// A stranger without the token reads nothing.
#[test]
fn a_stranger_is_refused() {
    let (address, _directory) = address();
    let config = ServerConfig { token: Some(b"secret".to_vec()), ..ServerConfig::default() };
    let server = Server::start(config, &[address]).unwrap();
    let address = &clients_address(&server);
    let with = |token: &[u8]| -> locus::Result<Table> {
        connect_with(&[address], ClientConfig { token: token.to_vec(), ..ClientConfig::default() })
    };
    assert!(with(b"").is_err() && with(b"guess").is_err());
    with(b"secret").unwrap().put("key", "value").unwrap();
}
