//! What happens to operations when the link to a living server breaks, and what only the client itself can be asked.

use super::{Client, ClientConfig, Server as Known, at_once::LANES};
use crate::{Design, Server, ServerConfig};
use locus_fabric::{Address, Link, shm::ShmNic};
use std::{
    future::Future,
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

fn serve(name: &str) -> (ShmNic, Server<ShmNic>, Client<ShmNic>) {
    serve_with(name, 1, ClientConfig::default())
}

fn start(nic: &ShmNic, name: &str, cores: usize) -> (Server<ShmNic>, Address) {
    let config =
        ServerConfig { memory_bytes: 64 << 20, region_bytes: 4 << 20, cores, ..ServerConfig::default() };
    let server = Server::start(nic, config).unwrap();
    let path = std::env::temp_dir().join(format!("locus-{name}-{}.sock", std::process::id()));
    let address = server.listen(&Address::Shm(path)).unwrap();
    (server, address)
}

fn serve_with(name: &str, cores: usize, config: ClientConfig) -> (ShmNic, Server<ShmNic>, Client<ShmNic>) {
    let nic = ShmNic::open().unwrap();
    let (server, address) = start(&nic, name, cores);
    let client = Client::connect(&nic, &[address], config).unwrap();
    (nic, server, client)
}

/// A key of this core.
fn key_of(client: &Client<ShmNic>, core: u16) -> [u8; 4] {
    let keys = (0u32..).map(u32::to_le_bytes);
    keys.into_iter().find(|key| client.map.owner(client.key(key).unwrap().partition()).core == core).unwrap()
}

#[test]
fn a_session_goes_on_with_all_its_channels_whichever_connection_is_resumed() {
    let (_nic, _server, client) = serve_with("session", 2, ClientConfig::default());
    let keys = [0, 1].map(|core| key_of(&client, core));
    let current = || Rc::clone(client.servers[0].connection.borrow().as_ref().unwrap());
    client.block_on(client.put(&keys[0], b"first")).unwrap();
    let first = current();
    sever(&client.servers[0]);
    client.resume(0, &first);
    // A channel that the first connection never had.
    client.block_on(client.put(&keys[1], b"second")).unwrap();
    sever(&client.servers[0]);
    // A call that began on the first connection finds out late.
    client.resume(0, &first);
    assert!(!Rc::ptr_eq(&first, &current()));
    for (key, value) in [(keys[1], b"third"), (keys[0], b"other")] {
        client.block_on(client.put(&key, value)).unwrap();
        assert_eq!(client.block_on(client.get(&key, <[u8]>::to_vec)).unwrap().unwrap(), value);
    }
}

#[test]
fn a_successor_with_other_cores_is_another_store() {
    let (nic, server, client) = serve_with("cores", 2, ClientConfig::default());
    let keys = [0, 1].map(|core| key_of(&client, core));
    for key in &keys {
        client.block_on(client.put(key, b"value")).unwrap();
    }
    drop(server);
    let (_server, _) = start(&nic, "cores", 1);
    // Between two attempts to connect it pauses, and says that the server is lost.
    let begun = std::time::Instant::now();
    for number in 0.. {
        let error = client.block_on(client.get(&keys[number % 2], <[u8]>::len)).unwrap_err().to_string();
        if error.contains("another store") {
            break;
        }
        assert!(begun.elapsed().as_secs() < 20, "{error}");
    }
}

#[test]
fn a_client_without_operations_sleeps_though_its_server_died() {
    let (_nic, server, client) = serve("sleeps");
    client.block_on(client.put(b"key", b"value")).unwrap();
    drop(server);
    let sleeps = (0..10_000).filter(|_| locus_runtime::Park::prepare(&client.hub)).take(3).count();
    assert_eq!(sleeps, 3);
}

#[test]
fn a_callback_may_use_the_client_however_narrow_its_window() {
    let config = ClientConfig { window: 1, reads: Some(crate::Locus::Server), ..ClientConfig::default() };
    let (_nic, _server, client) = serve_with("nested", 1, config);
    client.block_on(client.put(b"a", b"1")).unwrap();
    client.block_on(client.put(b"b", b"2")).unwrap();
    let get = |key: &[u8]| client.block_on(client.get(key, <[u8]>::to_vec)).unwrap().unwrap();
    for _ in 0..3 {
        let outer = client.block_on(client.get(b"a", |value| {
            assert_eq!(get(b"b"), b"2");
            client.block_on(client.put(b"b", b"2")).unwrap();
            value.to_vec()
        }));
        assert_eq!(outer.unwrap().unwrap(), b"1");
    }
}

fn sever(server: &Known<ShmNic>) {
    server.connection.borrow().as_ref().unwrap().link.close();
}

#[test]
fn the_next_operation_connects_again() {
    let (_nic, _server, client) = serve("again");
    client.block_on(client.put(b"key", b"value")).unwrap();
    let before = Rc::clone(client.servers[0].connection.borrow().as_ref().unwrap());
    sever(&client.servers[0]);
    // The first one may still find out.
    let found = client.block_on(client.get(b"key", <[u8]>::to_vec));
    let found = found.or_else(|_| client.block_on(client.get(b"key", <[u8]>::to_vec)));
    assert_eq!(found.unwrap().unwrap(), b"value");
    assert!(!Rc::ptr_eq(&before, client.servers[0].connection.borrow().as_ref().unwrap()));
    assert_eq!(client.counters().reconnects.get(), 1);
}

#[test]
fn a_put_under_way_goes_on_over_the_new_link_and_is_made_once() {
    let (_nic, _server, client) = serve("once");
    for round in 0..50u64 {
        let before = client.block_on(client.put(b"key", &round.to_le_bytes())).unwrap();
        let after = {
            let mut put = pin!(client.put(b"key", b"under way"));
            let mut context = Context::from_waker(Waker::noop());
            // Sent, and perhaps answered; some rounds sever before, some after the server has seen it.
            let mut first = put.as_mut().poll(&mut context);
            for _ in 0..round * 20 {
                if first.is_pending() {
                    first = put.as_mut().poll(&mut context);
                }
            }
            sever(&client.servers[0]);
            match first {
                Poll::Ready(version) => version.unwrap(),
                Poll::Pending => client.block_on(put).unwrap(),
            }
        };
        // The version grows with every change of the partition: by one, if the put was made once.
        assert_eq!(after, before + 1, "round {round}");
        let next = client.block_on(client.put(b"key", b"next"));
        let next = next.or_else(|_| client.block_on(client.put(b"key", b"next"))).unwrap();
        assert_eq!(next, after + 1, "round {round}");
    }
    // A put that is answered before anybody looks at the severed link leaves the reconnect to the next round.
    assert!(client.counters().reconnects.get() >= 25);
}

#[test]
fn callbacks_may_get_large_values_in_turn() {
    for reads in [crate::Locus::Client, crate::Locus::Server] {
        let config = ClientConfig { reads: Some(reads), ..ClientConfig::default() };
        let (_nic, _server, client) = serve_with("large", 1, config);
        client.block_on(client.put(b"large", &[7; 100_000])).unwrap();
        fn nested(client: &Client<ShmNic>, depth: usize) -> usize {
            let inner = |value: &[u8]| value.len() + if depth > 0 { nested(client, depth - 1) } else { 0 };
            client.block_on(client.get(b"large", inner)).unwrap().unwrap()
        }
        assert_eq!(nested(&client, 5), 600_000);
    }
}

/// Keys of a hopscotch table, some at their second homes: those found, absent ones, and one whose value is not read at once.
#[test]
fn a_batch_in_hopscotch_tables_finds_at_once_what_single_gets_find() {
    // A table of 1024 slots is nearly as full with them as it gets.
    const KEYS: usize = 32 * LANES;
    for (name, longest) in [("hopscotch-at-client", 9000), ("hopscotch-inline-at-client", 80)] {
        let nic = ShmNic::open().unwrap();
        let design = Design::find(name).unwrap();
        let config =
            ServerConfig { design, memory_bytes: 64 << 20, region_bytes: 4 << 20, ..ServerConfig::default() };
        let server = Server::start(&nic, config).unwrap();
        let client = Client::attach(&nic, server.attach().unwrap(), ClientConfig::default()).unwrap();
        // All of one partition, which fills a table.
        let partition = |key: &[u8; 4]| client.key(key).unwrap().partition();
        let keys: Vec<[u8; 4]> = (0u32..)
            .map(u32::to_le_bytes)
            .filter(|key| partition(key) == partition(&[0; 4]))
            .take(KEYS)
            .collect();
        let is_absent = |number: usize| number % 7 == 3;
        let is_long = |number: usize| longest > 4096 && number % 50 == 11;
        for (number, key) in keys.iter().enumerate().filter(|(number, _)| !is_absent(*number)) {
            let length = if is_long(number) { longest } else { number % 81 };
            client.block_on(client.put(key, &vec![number as u8; length])).unwrap();
        }
        let single: Vec<_> =
            keys.iter().map(|key| client.block_on(client.get(key, <[u8]>::to_vec)).unwrap()).collect();
        assert!((0..KEYS).all(|number| single[number].is_none() == is_absent(number)), "{name}");

        let shape = client.hops_at_once().expect("READs are over at once");
        for (chunk, keys) in keys.chunks(LANES).enumerate() {
            let mut found = vec![None; LANES];
            let left = client.hop_many_at_once(shape, keys, |place, value| {
                found[place] = value.unwrap().map(<[u8]>::to_vec);
            });
            for (place, found) in found.into_iter().enumerate() {
                let number = chunk * LANES + place;
                let is_left = is_absent(number) || is_long(number);
                assert_eq!(left >> place & 1 == 1, is_left, "{name}: key {number}");
                assert_eq!(found, single[number].clone().filter(|_| !is_left), "{name}: key {number}");
            }
        }
        let rows = || client.effort().rows_read.get();
        let present: Vec<_> = (0..KEYS)
            .filter(|&number| !is_absent(number) && !is_long(number))
            .map(|number| keys[number])
            .collect();
        let before = rows();
        present.iter().for_each(|key| assert!(client.get_blocking(key, |_| ()).unwrap().is_some()));
        let alone = rows() - before;
        // The rest are found, or are not, by the whole of the traversal.
        let mut batched = vec![None; KEYS];
        client.get_batch(&keys, |place, value| batched[place] = Some(value.unwrap().map(<[u8]>::to_vec)));
        assert_eq!(batched, single.iter().cloned().map(Some).collect::<Vec<_>>(), "{name}");
        let mut batched = vec![None; KEYS];
        client.block_on(client.get_many(&keys, |place, value| {
            batched[place] = Some(value.unwrap().map(<[u8]>::to_vec));
        }));
        assert_eq!(batched, single.into_iter().map(Some).collect::<Vec<_>>(), "{name}");
        // Hits take as many READs in a batch as alone.
        let before = rows();
        client.get_batch(&present, |_, value| assert!(value.unwrap().is_some()));
        assert_eq!(rows() - before, alone, "{name}");
        assert!(alone > present.len() as u64, "{name}: {alone} READs: some were at their second homes");
        // An answer that uses the client takes no bytes of the batch's.
        client.get_batch(&present, |place, value| {
            let value = value.unwrap().unwrap().to_vec();
            let nested = client.block_on(client.get(&present[place], <[u8]>::to_vec)).unwrap();
            assert_eq!(nested, Some(value), "{name}");
        });
    }
}
