//! A server and clients in one process, over shared memory: what is put is got, by all designs.

use locus_fabric::shm::ShmNic;
use locus_rpc::{Pair, Way};
use locus_store::{Client, ClientConfig, DESIGNS, Design, Index, Locus, Server, ServerConfig, StoreError};

fn small(design: &str) -> ServerConfig {
    ServerConfig {
        design: Design::find(design).unwrap(),
        memory_bytes: 256 << 20,
        region_bytes: 8 << 20,
        ..ServerConfig::default()
    }
}

fn start(config: ServerConfig) -> (Server<ShmNic>, Client<ShmNic>) {
    let nic = ShmNic::open().unwrap();
    let server = Server::start(&nic, config).unwrap();
    let client = attach(&server);
    (server, client)
}

fn attach(server: &Server<ShmNic>) -> Client<ShmNic> {
    let nic = ShmNic::open().unwrap();
    Client::attach(&nic, server.attach().unwrap(), ClientConfig::default()).unwrap()
}

fn get(client: &Client<ShmNic>, key: &[u8]) -> Option<Vec<u8>> {
    client.block_on(client.get(key, <[u8]>::to_vec)).unwrap()
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    number.to_be_bytes().repeat(number as usize % 30)
}

fn puts_gets_and_deletes(name: &str, cores: usize) {
    puts_gets_and_deletes_of(name, cores, usize::MAX);
}

fn puts_gets_and_deletes_of(name: &str, cores: usize, longest: usize) {
    let value = |number| {
        let mut value = value(number);
        value.truncate(longest);
        value
    };
    let (server, client) = start(ServerConfig { cores, ..small(name) });
    let design = Design::find(name).unwrap();
    assert_eq!(client.reads(), design.reads);
    assert_eq!(get(&client, b"absent"), None);
    for number in 0..5000 {
        client.block_on(client.put(&key(number), &value(number))).unwrap();
    }
    let other = attach(&server);
    for number in 0..5000 {
        assert_eq!(get(&other, &key(number)), Some(value(number)), "key {number}");
    }
    assert_eq!(get(&other, b"absent"), None);
    for number in (0..5000).step_by(2) {
        assert!(client.block_on(client.delete(&key(number))).unwrap());
        assert!(!client.block_on(client.delete(&key(number))).unwrap());
    }
    let keys: Vec<Vec<u8>> = (0..5000).map(key).collect();
    let mut found = 0;
    other.block_on(other.get_many(&keys, |place, result| {
        let expected = (place % 2 == 1).then(|| value(place as u32));
        assert_eq!(result.unwrap(), expected.as_deref(), "key {place}");
        found += 1;
    }));
    assert_eq!(found, 5000);
    let statistics = server.statistics();
    // Those of a large cache are estimated.
    let records = if design.index == Index::Lossy { 1500..3500 } else { 2500..2501 };
    assert!(records.contains(&statistics.records), "{} records", statistics.records);
    assert_eq!(statistics.clients, 2);
    let at_client = other.effort().lookups.get();
    assert_eq!(at_client > 0, design.reads == Locus::Client, "{at_client} lookups at the client");
}

#[test]
fn pilaf_puts_gets_and_deletes() {
    puts_gets_and_deletes("pilaf", 1);
}

#[test]
fn pilaf_vo_puts_gets_and_deletes() {
    puts_gets_and_deletes("pilaf-vo", 1);
}

/// The design with a cuckoo table whose operations all go over this pair.
fn over(pair: Pair) -> &'static str {
    Design::combine(Index::Cuckoo, Locus::Server, pair).unwrap().name
}

#[test]
fn every_pair_of_verbs_carries_all_operations_to_every_core() {
    for pair in Pair::all() {
        println!("{pair}");
        let (server, client) = start(ServerConfig { cores: 2, ..small(over(pair)) });
        for number in 0..300 {
            client.block_on(client.put(&key(number), &value(number))).unwrap();
        }
        let other = attach(&server);
        for number in 0..300 {
            assert_eq!(get(&other, &key(number)), Some(value(number)), "{pair}: key {number}");
        }
        let keys: Vec<Vec<u8>> = (0..300).map(key).collect();
        let mut found = 0;
        other.block_on(other.get_many(&keys, |place, result| {
            assert_eq!(result.unwrap(), Some(&value(place as u32)[..]), "{pair}: key {place}");
            found += 1;
        }));
        assert_eq!(found, 300);
        assert!(client.block_on(client.delete(&key(7))).unwrap());
        assert_eq!(get(&other, &key(7)), None);
        // Of all lengths: one that the request has no room for is placed by WRITE, and one that the reply has none for is READ.
        for length in [1000, 2900, 4096, 100_000, 1 << 20] {
            let long: Vec<u8> = (0..length).map(|byte| (byte * 7 + 3) as u8).collect();
            client.block_on(client.put(b"long", &long)).unwrap();
            assert_eq!(get(&other, b"long"), Some(long), "{pair}: {length} bytes");
        }
        assert_eq!(server.statistics().clients_dropped, 0);
    }
}

#[test]
fn a_lossy_cache_with_room_for_all_puts_gets_and_deletes() {
    puts_gets_and_deletes("lossy-at-server", 1);
    puts_gets_and_deletes("lossy-at-server", 3);
}

#[test]
fn a_blocked_hash_with_room_for_all_puts_gets_and_deletes() {
    puts_gets_and_deletes("perk-sd-sd", 1);
    puts_gets_and_deletes("blocked-at-client", 1);
    puts_gets_and_deletes("blocked-at-client", 3);
}

#[test]
fn hopscotch_tables_put_get_and_delete() {
    for design in ["hopscotch-at-client", "hopscotch-at-server"] {
        puts_gets_and_deletes(design, 1);
        puts_gets_and_deletes(design, 3);
    }
    for design in ["hopscotch-inline-at-client", "hopscotch-inline-at-server"] {
        puts_gets_and_deletes_of(design, 1, 90);
        puts_gets_and_deletes_of(design, 3, 90);
    }
}

#[test]
fn pairs_that_make_no_sense_are_refused_by_reason() {
    static SENSELESS: Design = Design { request: Way::UC_WRITE, reply: Way::RC_READ, ..DESIGNS[1] };
    let refused =
        Server::start(&ShmNic::open().unwrap(), ServerConfig { design: &SENSELESS, ..small("pilaf-vo") });
    let Err(StoreError::Config(reason)) = refused.map(drop) else { panic!("it was not refused") };
    assert!(reason.contains("UC WRITE → RC READ") && reason.contains("two queue pairs"), "{reason}");
}

#[test]
fn a_pair_too_long_for_a_slot_is_refused_by_name() {
    let (_server, client) = start(ServerConfig { slot_bytes: 256, ..small("hopscotch-inline-at-client") });
    client.block_on(client.put(b"four", &[1; 228])).unwrap();
    assert_eq!(get(&client, b"four"), Some(vec![1; 228]));
    let error = client.block_on(client.put(b"four", &[1; 229])).unwrap_err();
    assert!(matches!(error, StoreError::SlotLength { bytes: 233, limit: 232 }), "{error}");
    assert!(error.to_string().contains("--slot-bytes"), "{error}");
    assert_eq!(get(&client, b"four"), Some(vec![1; 228]));
    for slot_bytes in [0, 32, 100, 2048] {
        let config = ServerConfig { slot_bytes, ..small("hopscotch-inline-at-client") };
        assert!(matches!(config.check(), Err(StoreError::Config(_))), "{slot_bytes}");
    }
}

#[test]
fn more_server_cores_than_this_machine_may_have() {
    puts_gets_and_deletes("pilaf", 5);
    puts_gets_and_deletes("pilaf-vo", 5);
}

#[test]
fn values_of_all_lengths_by_all_designs() {
    for design in [
        "pilaf",
        "pilaf-vo",
        "lossy-at-server",
        "perk-sd-sd",
        "blocked-at-client",
        "hopscotch-at-client",
        "hopscotch-at-server",
        "herd",
        "herd-ud",
        "farm-kv-var",
    ] {
        let (_server, client) = start(small(design));
        for length in [0, 1, 63, 64, 4095, 4096, 4097, 65_536, (1 << 20) - 1, 1 << 20] {
            let value: Vec<u8> = (0..length as u32).map(|byte| (byte * 7 + 3) as u8).collect();
            let key = vec![9; 1 + length % 1024];
            client.block_on(client.put(&key, &value)).unwrap();
            assert_eq!(get(&client, &key).as_ref(), Some(&value), "{length} bytes by {design}");
        }
        let long = vec![0; (1 << 20) + 1];
        let error = client.block_on(client.put(b"key", &long)).unwrap_err();
        assert!(matches!(error, StoreError::ValueLength { limit: 1_048_576, .. }), "{error}");
        let error = client.block_on(client.put(&[0; 1025], b"value")).unwrap_err();
        assert!(matches!(error, StoreError::KeyLength(1025)), "{error}");
        assert!(client.block_on(client.get(b"", <[u8]>::to_vec)).is_err());
    }
}

#[test]
fn the_memory_limit_fails_puts_and_nothing_else() {
    let (_server, client) = start(ServerConfig { memory_bytes: 24 << 20, ..small("pilaf") });
    let mut stored = 0;
    let error = loop {
        match client.block_on(client.put(&key(stored), &[7; 10_000])) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 3000, "24 MiB hold no 30 MB");
    };
    assert!(matches!(error, StoreError::OutOfMemory), "{error}");
    assert!(stored > 500, "only {stored} records of 10 kB fit into 24 MiB");
    for number in 0..stored {
        assert_eq!(get(&client, &key(number)), Some(vec![7; 10_000]));
    }
    // What was deleted makes room again.
    for number in 0..10 {
        assert!(client.block_on(client.delete(&key(number))).unwrap());
    }
    client.block_on(client.put(b"again", &[8; 10_000])).unwrap();
    assert_eq!(get(&client, b"again"), Some(vec![8; 10_000]));
}

#[test]
fn a_cache_that_is_full_forgets_the_oldest_and_takes_every_put() {
    for (design, counter) in
        [("lossy-at-server", "log_overwrites"), ("blocked-at-client", "bucket_evictions")]
    {
        let (server, client) = start(ServerConfig { memory_bytes: 24 << 20, ..small(design) });
        let last = 400_000u32;
        for number in 0..=last {
            client.block_on(client.put(&key(number), &[number as u8; 32])).unwrap();
        }
        assert_eq!(get(&client, &key(last)), Some(vec![last as u8; 32]), "{design}");
        let keys: Vec<Vec<u8>> = (0..=last).map(key).collect();
        let mut present = 0;
        client.get_batch(&keys, |number, found| {
            let Some(value) = found.unwrap() else { return };
            assert_eq!(value, [number as u8; 32], "{design}: key {number}");
            present += 1;
        });
        assert!((50_000..last).contains(&present), "{design}: {present} of {last} are present");
        let counters = server.statistics().counters;
        let count = counters.iter().find(|(name, _)| name == counter).map_or(0, |(_, count)| *count);
        assert!(count > 10_000, "{design}: {count} {counter}");
        if design.starts_with("blocked") {
            assert_eq!(count, u64::from(last + 1 - present), "each key that is gone was counted");
        }
    }
}

#[test]
fn reads_of_a_lossy_cache_at_the_client_are_refused_with_the_reason() {
    let nic = ShmNic::open().unwrap();
    let server = Server::start(&nic, small("lossy-at-server")).unwrap();
    let config = ClientConfig { reads: Some(Locus::Client), ..ClientConfig::default() };
    let Err(error) = Client::attach(&nic, server.attach().unwrap(), config) else { panic!("it was let in") };
    assert!(error.to_string().contains("carry no checksums"), "{error}");
}

#[test]
fn memory_grows_by_regions_that_clients_learn_of_as_they_meet_them() {
    let (server, client) = start(small("pilaf"));
    for number in 0..20_000 {
        client.block_on(client.put(&key(number), &[number as u8; 2000])).unwrap();
    }
    assert!(server.statistics().region_bytes > 48 << 20);
    for number in 0..20_000 {
        assert_eq!(get(&client, &key(number)), Some(vec![number as u8; 2000]), "key {number}");
    }
    assert!(client.counters().region_updates.get() > 0);
}

#[test]
fn a_client_is_told_why_it_may_not_come_in() {
    let nic = ShmNic::open().unwrap();
    let server = Server::start(
        &nic,
        ServerConfig { token: Some(b"secret".to_vec()), clients_max: 2, ..small("pilaf") },
    )
    .unwrap();
    let come = |config: ClientConfig| Client::attach(&nic, server.attach().unwrap(), config);
    let right = ClientConfig { token: b"secret".to_vec(), ..ClientConfig::default() };
    let refusal = |result: Result<Client<ShmNic>, StoreError>| match result {
        Err(StoreError::Refused { reason, .. }) => reason,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was let in"),
    };
    assert!(refusal(come(ClientConfig::default())).contains("token"));
    assert!(refusal(come(ClientConfig { design: Some("herd".into()), ..right.clone() })).contains("pilaf"));
    let _first = come(right.clone()).unwrap();
    let _second = come(right.clone()).unwrap();
    assert!(refusal(come(right)).contains("limit of 2"));
}

#[test]
fn strangers_take_no_clients_place_and_only_each_others() {
    use locus_fabric::Link;
    let nic = ShmNic::open().unwrap();
    let limits = ServerConfig { token: Some(b"secret".to_vec()), clients_max: 2, ..small("pilaf") };
    let server = Server::start(&nic, limits).unwrap();
    let right = ClientConfig { token: b"secret".to_vec(), ..ClientConfig::default() };
    let silent = [server.attach().unwrap(), server.attach().unwrap()];
    let client =
        Client::attach(&nic, server.attach().unwrap(), right.clone()).expect("there is room for two");
    let (answer, _) =
        silent[0].receive(std::time::Duration::from_secs(10)).unwrap().expect("its place is taken");
    assert!(String::from_utf8_lossy(&answer).contains("had not said hello"), "{answer:?}");
    assert_eq!(server.statistics().clients, 1);
    client.block_on(client.put(b"key", b"value")).unwrap();
    let _more = [server.attach().unwrap(), server.attach().unwrap(), server.attach().unwrap()];
    let second =
        Client::attach(&nic, server.attach().unwrap(), right.clone()).expect("there is room for one");
    assert_eq!(get(&second, b"key").unwrap(), b"value");
    let third = Client::attach(&nic, server.attach().unwrap(), right).err().expect("there is no room");
    assert!(third.to_string().contains("limit of 2 clients"), "{third}");
    assert_eq!(get(&client, b"key").unwrap(), b"value");
}

#[test]
fn what_a_stranger_sends_over_the_link_harms_the_stranger_alone() {
    use locus_fabric::Link;
    let (server, client) = start(small("pilaf"));
    client.block_on(client.put(b"key", b"value")).unwrap();
    let mut version = b"LOCS".to_vec();
    version.extend_from_slice(&(locus_store::VERSION + 1).to_le_bytes());
    let long = vec![0xA5; 100_000];
    for (message, reason) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "does not speak Locus"),
        (&version, "version"),
        (&b"LOCS"[..], "cut short"),
        (&long, "does not speak Locus"),
        (&b""[..], "does not speak Locus"),
    ] {
        let stranger = server.attach().unwrap();
        stranger.send(message, Vec::new()).unwrap();
        let (answer, _) = stranger.receive(std::time::Duration::from_secs(10)).unwrap().expect("an answer");
        assert!(String::from_utf8_lossy(&answer).contains(reason), "{answer:?} for {message:?}");
        assert!(stranger.receive(std::time::Duration::from_secs(10)).is_err(), "the link stays open");
    }
    assert_eq!(server.statistics().clients_dropped, 5);
    assert_eq!(get(&client, b"key").unwrap(), b"value");
}
