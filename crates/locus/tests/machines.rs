//! A store on one machine and its clients on another, over RDMA: both designs, every operation, a server that is gone, and
//! one whose RDMA device is taken away and given back; over IPv4 and over IPv6. Runs in two virtual machines (`vm/softroce --machines 2`), of which the first serves; elsewhere there are no
//! tests.

#[path = "../../fabric/tests/shared/device.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod device;

use device::{Interface, Removal};
use libtest_mimic::{Arguments, Trial};
use locus::{Server, ServerConfig, connect};
use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Each design with where the server listens and which GID of the client goes with that.
const STORES: [(&str, &str, &str); 3] = [
    ("pilaf", "rdma://10.99.100.1:0", ""),
    ("pilaf-vo", "rdma://10.99.100.1:0", ""),
    ("pilaf", "rdma://[fd99::1]:0?gid=fd99::1", "?gid=fd99::2"),
];
/// Only a failing test ever waits that long.
const PATIENCE: Duration = Duration::from_secs(120);
const RECORDS: u32 = 2000;
/// A device that is gone shows at the other machine within this time.
const SOON: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let test = |name: &str, run: fn()| {
        Trial::test(name, move || {
            run();
            Ok(())
        })
    };
    let tests = match std::env::var("SOFTROCE_MACHINE").as_deref() {
        Ok("0") => vec![
            test("a_machine_serves", serve),
            test("its_device_is_taken_away_and_given_back", serve_without_device),
        ],
        Ok(_) => vec![
            test("another_machine_uses_what_it_serves", call),
            test("another_machine_hears_of_the_device_and_comes_back", call_without_device),
        ],
        Err(_) => {
            println!("no tests: these run in two virtual machines, which scripts/test starts");
            return ExitCode::SUCCESS;
        }
    };
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// A file in the folder that the machines share.
fn shared(name: &str) -> PathBuf {
    PathBuf::from(std::env::var("SOFTROCE_OUT").expect("SOFTROCE_OUT")).join(name)
}

fn tell(name: &str, text: &str) {
    let half = shared(&format!("{name}.half"));
    std::fs::write(&half, text).unwrap();
    std::fs::rename(half, shared(name)).unwrap();
}

fn hear(name: &str) -> String {
    let start = Instant::now();
    loop {
        if let Ok(text) = std::fs::read_to_string(shared(name)) {
            return text;
        }
        assert!(start.elapsed() < PATIENCE, "nothing heard of {name}");
        // A folder that machines share raises no event.
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn serve() {
    for (number, (name, address, _)) in STORES.into_iter().enumerate() {
        let design = locus::DESIGNS.iter().find(|design| design.name == name).expect("a design");
        let config = ServerConfig { design, memory_bytes: 256 << 20, ..ServerConfig::default() };
        let server = Server::start(config, &[address]).unwrap();
        tell(&format!("{number}.address"), &server.addresses()[0].to_string());
        hear(&format!("{number}.used"));
        assert_eq!(server.stats().records, u64::from(RECORDS));
        assert_eq!(server.stats().clients_dropped, 0);
        drop(server);
        tell(&format!("{number}.gone"), "");
    }
    hear("done");
}

fn call() {
    for (number, (name, _, options)) in STORES.into_iter().enumerate() {
        let table = connect(&(hear(&format!("{number}.address")) + options)).unwrap();
        assert_eq!(table.get("absent").unwrap(), None);
        let value = |key: u32| vec![key as u8; key as usize % 300];
        for key in 0..RECORDS {
            table.put(key.to_le_bytes(), value(key)).unwrap();
        }
        let keys: Vec<_> = (0..RECORDS + 10).map(u32::to_le_bytes).collect();
        for (key, found) in table.get_many(&keys).into_iter().enumerate() {
            let key = key as u32;
            assert_eq!(found.unwrap(), (key < RECORDS).then(|| value(key)), "{key}");
        }
        // By rendezvous.
        table.put("large", vec![7; 300_000]).unwrap();
        assert_eq!(table.get("large").unwrap(), Some(vec![7; 300_000]));
        assert!(table.delete("large").unwrap());
        tell(&format!("{number}.used"), "");
        hear(&format!("{number}.gone"));
        let error = table.get(keys[0]).expect_err("the server is gone");
        println!("{name}{options}: {error}");
    }
    tell("done", "");
}

fn serve_without_device() {
    let config = ServerConfig { memory_bytes: 256 << 20, ..ServerConfig::default() };
    let server = Server::start(config, &["rdma://10.99.100.1:0"]).unwrap();
    let interface = Interface::of("10.99.100.1");
    tell("device.address", &server.addresses()[0]);
    hear("device.used");
    let start = Instant::now();
    let mut removal = Removal::begin();
    println!("the other machine: {}", hear("device.lost"));
    let took = start.elapsed();
    println!("after {} ms", took.as_millis());
    while !removal.is_done() {
        assert!(start.elapsed() < PATIENCE, "the device is held on to");
        std::thread::yield_now();
    }
    assert!(server.trouble().expect("its device is gone").contains("rxe0"), "{:?}", server.trouble());
    tell("device.gone", "");
    println!("the other machine: {}", hear("device.refused"));
    removal.undo(&interface);
    hear("device.back");
    assert_eq!((server.trouble(), server.stats().records), (None, 2));
    assert!(took < SOON, "it took {took:?}");
}

fn call_without_device() {
    let table = connect(&hear("device.address")).unwrap();
    table.put("key", "before").unwrap();
    tell("device.used", "");
    let wait = |what: &str, event: &mut dyn FnMut() -> Option<String>| {
        let start = Instant::now();
        loop {
            if let Some(found) = event() {
                return found;
            }
            assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        }
    };
    let error = || table.get("key").err().map(|error| error.to_string());
    tell("device.lost", &wait("a failure", &mut || error()));
    hear("device.gone");
    let refused = |error: &String| error.contains("refused: the RDMA device rxe0 was taken away");
    tell("device.refused", &wait("a refusal that names the device", &mut || error().filter(refused)));
    let found = wait("the server", &mut || table.get("key").ok().map(|found| format!("{found:?}")));
    assert_eq!(found, format!("{:?}", Some(b"before".to_vec())));
    table.put("another", "after").unwrap();
    tell("device.back", "");
}
