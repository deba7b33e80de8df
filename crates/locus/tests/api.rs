//! The public API as an application uses it.

use futures_executor::{ThreadPool, block_on};
use locus::{AsyncTable, ClientConfig, Error, Index, Server, ServerConfig};

fn small() -> ServerConfig {
    ServerConfig { memory_bytes: 256 << 20, region_bytes: 8 << 20, ..ServerConfig::default() }
}

struct Place {
    _directory: tempfile::TempDir,
    address: String,
}

fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("shm:{}", directory.path().join("locus.sock").display());
    Place { _directory: directory, address }
}

fn assert_send_sync_clone<T: Send + Sync + Clone + 'static>(_: &T) {}

#[test]
fn values_of_all_sizes_come_back_as_they_were() {
    for design in locus::DESIGNS {
        let store = locus::open(ServerConfig { design, ..small() }).unwrap();
        let table = store.table().unwrap();
        assert_eq!(table.reads(), design.reads);
        for bytes in [0, 1, 7, 8, 63, 4000, 4096, 4097, 65_536, 1 << 20] {
            let value: Vec<u8> = (0..bytes).map(|at| (at * 31 + bytes) as u8).collect();
            let key = format!("a value of {bytes}");
            match table.put(&key, &value) {
                Ok(_) => {}
                // Values in slots have a limit of their own.
                Err(Error::SlotLength { limit, .. }) if design.index == Index::HopscotchInline => {
                    assert!(key.len() + value.len() > limit);
                    continue;
                }
                Err(error) => panic!("{bytes} bytes, {}: {error}", design.name),
            }
            assert_eq!(table.get(&key).unwrap(), Some(value), "{} bytes, {}", bytes, design.name);
        }
        assert!(table.delete("a value of 7").unwrap());
        assert!(!table.delete("a value of 7").unwrap());
        assert_eq!(table.get("a value of 7").unwrap(), None);
        assert!(matches!(table.put("k", vec![0; (1 << 20) + 1]), Err(Error::ValueLength { .. })));
        assert!(matches!(table.get(""), Err(Error::KeyLength(0))));
        assert!(matches!(table.put([7; 1025], ""), Err(Error::KeyLength(1025))));
        if design.index == Index::HopscotchInline {
            continue;
        }
        table.put([7; 1024], "the longest key").unwrap();
        assert_eq!(table.get([7; 1024]).unwrap().as_deref(), Some(&b"the longest key"[..]));
    }
}

#[test]
fn many_gets_give_a_result_each_in_their_order() {
    let store = locus::open(small()).unwrap();
    let table = store.table().unwrap();
    let records = (0..5000u32).map(|number| (number.to_le_bytes(), number.to_string()));
    table
        .put_many_with(records, |(key, _), result| result.unwrap_or_else(|error| panic!("{key:?}: {error}")));
    let mut keys: Vec<Vec<u8>> = (0..6000u32).map(|number| number.to_le_bytes().to_vec()).collect();
    keys.push(Vec::new());
    let values = table.get_many(&keys);
    for (number, value) in values.iter().enumerate().take(6000) {
        let expected = (number < 5000).then(|| number.to_string().into_bytes());
        assert_eq!(*value.as_ref().unwrap(), expected, "{number}");
    }
    assert!(matches!(values[6000], Err(Error::KeyLength(0))));
    let gets = table.counters().iter().find(|(name, _)| *name == "gets").unwrap().1;
    assert!(gets >= 6000, "{gets}");
}

#[test]
fn the_last_of_many_puts_to_a_key_stays() {
    let store = locus::open(small()).unwrap();
    let table = store.table().unwrap();
    // Large and small values take different ways to the server.
    let value = |number: usize| vec![number as u8; if number.is_multiple_of(3) { 20_000 } else { 10 }];
    let records = (0..3001).map(|number| (format!("key {}", number % 3), value(number)));
    table.put_many_with(records, |_, result| result.unwrap());
    for number in 2998..3001 {
        assert_eq!(table.get(format!("key {}", number % 3)).unwrap(), Some(value(number)));
    }
}

#[test]
fn an_async_table_serves_many_tasks_on_any_executor() {
    let place = place();
    let server = Server::start(small(), &[&place.address]).unwrap();
    let table = block_on(AsyncTable::connect(&place.address)).unwrap();
    assert_send_sync_clone(&table);
    let pool = ThreadPool::builder().pool_size(3).create().unwrap();
    let (done, finished) = std::sync::mpsc::channel();
    for task in 0..50u32 {
        let (table, done) = (table.clone(), done.clone());
        pool.spawn_ok(async move {
            for round in 0..40u32 {
                let (key, value) = (format!("{task}/{round}"), format!("value {round}"));
                table.put(key.clone(), value.clone()).await.unwrap();
                assert_eq!(table.get(key).await.unwrap(), Some(value.into_bytes()));
            }
            let keys = (0..41).map(|round| format!("{task}/{round}"));
            let values = table.get_many(keys).await.unwrap();
            assert_eq!(values.iter().filter(|value| matches!(value, Ok(Some(_)))).count(), 40);
            done.send(task).unwrap();
        });
    }
    drop(done);
    assert_eq!(finished.iter().count(), 50, "a task failed");
    assert_eq!(block_on(table.stats()).unwrap()[0].records, 2000);
    drop(table);
    // The thread ends with the last handle, and its connection with it.
    while server.stats().clients > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_dropped_operation_harms_nobody() {
    let store = locus::open(small()).unwrap();
    let table = block_on(store.async_table()).unwrap();
    for number in 0..200u32 {
        let mut put = Box::pin(table.put(number.to_le_bytes(), "a value"));
        // Polled once, then dropped.
        let _ = std::future::Future::poll(
            put.as_mut(),
            &mut std::task::Context::from_waker(std::task::Waker::noop()),
        );
    }
    block_on(table.put("last", "value")).unwrap();
    assert_eq!(block_on(table.get("last")).unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn the_store_lives_as_long_as_its_tables() {
    let store = locus::open(small()).unwrap();
    let table = store.table().unwrap();
    drop(store);
    table.put("key", "value").unwrap();
    assert_eq!(table.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_table_is_told_of_a_lost_server_and_finds_its_successor() {
    let place = place();
    let server = Server::start(small(), &[&place.address]).unwrap();
    let table = locus::connect(&place.address).unwrap();
    table.put("key", "old").unwrap();
    drop(server);
    assert!(table.get("key").is_err());
    let successor = Server::start(small(), &[&place.address]).unwrap();
    let found = loop {
        match table.get("key") {
            Ok(found) => break found,
            Err(Error::ServerLost { .. } | Error::Fabric(_)) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(found, None);
    table.put("key", "new").unwrap();
    assert_eq!(table.get("key").unwrap().as_deref(), Some(&b"new"[..]));
    drop(successor);
}

#[test]
fn what_is_wrong_is_said() {
    let place = place();
    let said = |error: Option<Error>| error.expect("an error").to_string();
    assert!(said(locus::connect("tmp/locus.sock").err()).contains("shm:"));
    assert!(said(locus::connect("sim:apt").err()).contains("simulated world"));
    assert!(said(locus::connect(&place.address).err()).contains("start a server there"));
    let token = Some(b"secret".to_vec());
    let server = Server::start(ServerConfig { token, ..small() }, &[&place.address]).unwrap();
    assert!(said(locus::connect(&place.address).err()).contains("token"));
    let config = |token: &str| ClientConfig { token: token.into(), ..ClientConfig::default() };
    assert!(locus::connect_with(&[&place.address], config("secreT")).is_err());
    assert!(locus::connect_with(&[&place.address], config("secret")).is_ok());
    assert!(said(Server::start(small(), &[&place.address]).err()).contains("taken"));
    assert!(block_on(AsyncTable::connect(&place.address)).is_err());
    drop(server);
}
