//! Servers and clients that die, and memory that runs out.

use crate::harness::{Place, command, locus};
use rustix::process::Signal;
use std::{io::Write, process::Stdio};

#[test]
fn no_server_is_said() {
    let place = Place::new();
    for name in ["get", "del", "stats"] {
        let key = (name != "stats").then_some("key");
        let address = place.address();
        let arguments: Vec<&str> = [name, "--connect", &address].into_iter().chain(key).collect();
        locus(&arguments).said(3, &[&address, "start a server there"]);
    }
    let file = place.file("r.tsv", "a\tb\n");
    locus(&["load", "--connect", &place.address(), file.to_str().unwrap()])
        .said(3, &["start a server there"]);
}

#[test]
fn clients_of_a_killed_server_are_told_and_find_its_successor() {
    let place = Place::new();
    let server = place.serve(&[]);
    let table = server.table();
    table.put("key", "old").unwrap();
    server.end(Signal::KILL);
    assert!(table.get("key").is_err());
    assert!(place.socket().exists(), "a killed server leaves its socket file behind");
    locus(&["get", "--connect", &place.address(), "key"]).said(3, &["start it again"]);
    // The file that was left behind is no obstacle.
    let server = place.serve(&[]);
    server.locus("put", &["key", "new"]).done();
    let found = loop {
        match table.get("key") {
            Ok(found) => break found,
            Err(locus::Error::ServerLost { .. } | locus::Error::Fabric(_)) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(found.as_deref(), Some(&b"new"[..]), "never the memory of the dead server");
    table.put("key", "newer").unwrap();
    assert_eq!(server.value("key"), b"newer");
    let reconnects = table.counters().iter().find(|(name, _)| *name == "reconnects").unwrap().1;
    assert_eq!(reconnects, 1);
}

#[test]
fn a_load_says_how_far_it_came_when_the_server_dies() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mut load =
        command(&server.line("load", &["--format", "tsv", "-"])).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = load.stdin.take().unwrap();
    let table = server.table();
    write_records(&mut stdin, 0..100_000);
    while table.get("key 0").unwrap().is_none() {
        std::thread::yield_now();
    }
    server.end(Signal::KILL);
    // It may have ended by now, and reads no more.
    let records: String = (0..100_000).map(|number| format!("key {number}\tvalue\n")).collect();
    let _ = stdin.write_all(records.as_bytes());
    drop(stdin);
    let output = load.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("records stored") && said.contains("storing line") && said.contains("run again"),
        "{said}"
    );
}

fn write_records(into: &mut impl Write, numbers: std::ops::Range<usize>) {
    let records: String = numbers.map(|number| format!("key {number}\tvalue {number}\n")).collect();
    into.write_all(records.as_bytes()).unwrap();
}

#[test]
fn a_client_killed_in_the_middle_harms_nobody() {
    let place = Place::new();
    let server = place.serve(&[]);
    let table = server.table();
    for round in 0..3 {
        let mut load =
            command(&server.line("load", &["--format", "tsv", "-"])).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = load.stdin.take().unwrap();
        // Large values too, so that it dies with some on their way.
        let large = "x".repeat(200_000);
        writeln!(stdin, "begun {round}\t{large}").unwrap();
        write_records(&mut stdin, 0..20_000);
        while table.get(format!("begun {round}")).unwrap().is_none() {
            std::thread::yield_now();
        }
        load.kill().unwrap();
        load.wait().unwrap();
        table.put("key", round.to_string()).unwrap();
        assert_eq!(table.get("key").unwrap(), Some(round.to_string().into_bytes()));
    }
    // All that were killed are noticed.
    while table.stats().unwrap()[0].clients > 1 {
        std::thread::yield_now();
    }
    assert_eq!(table.stats().unwrap()[0].clients_dropped, 0, "to die is no offence");
    for number in 0..20_000 {
        if let Some(value) = table.get(format!("key {number}")).unwrap() {
            assert_eq!(value, format!("value {number}").into_bytes());
        }
    }
}

#[test]
fn at_the_memory_limit_puts_fail_and_gets_go_on() {
    let place = Place::new();
    let server = place.serve(&["--memory", "24MiB"]);
    let value = "v".repeat(10_000);
    let file = place.file(
        "r.tsv",
        (0..4000).map(|number| format!("key {number}\t{number} {value}\n")).collect::<String>(),
    );
    let ran = server.load(&file, &[]).said(3, &["memory limit is reached", "--memory", "records stored"]);
    let stored: usize =
        ran.stderr.split("stopped early (").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(stored > 500, "{}", ran.stderr);
    let table = server.table();
    let there = |number: usize| table.get(format!("key {number}")).unwrap();
    assert_eq!((0..4000).filter(|&number| there(number).is_some()).count(), stored);
    for number in (0..stored - 100).step_by(37) {
        assert_eq!(there(number), Some(format!("{number} {value}").into_bytes()), "key {number}");
    }
    server.locus_reading("put", &["another", "-"], &vec![7; 1_000_000]).said(3, &["memory limit is reached"]);
    server.locus("get", &["another"]).said(1, &["no key"]);
    // What is deleted makes room.
    for number in 0..400 {
        assert!(table.delete(format!("key {number}")).unwrap());
    }
    for number in 0..300 {
        table.put(format!("new {number}"), &value).unwrap();
    }
    assert_eq!(server.value("new 299"), value.as_bytes());
}

#[test]
fn two_clients_at_once_lose_nothing() {
    let place = Place::new();
    let server = place.serve(&["--cores", "2"]);
    let files = ["a", "b"].map(|name| {
        let records = (0..20_000).map(|number| format!("{name} {number}\t{number} of {name}\n"));
        place.file(&format!("{name}.tsv"), records.collect::<String>())
    });
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| server.load(file, &[]).done());
        }
    });
    let table = server.table();
    for name in ["a", "b"] {
        let keys: Vec<String> = (0..20_000).map(|number| format!("{name} {number}")).collect();
        table.get_many_with(&keys, |number, value| {
            assert_eq!(value.unwrap(), Some(format!("{number} of {name}").as_bytes()), "{name} {number}");
        });
    }
}
