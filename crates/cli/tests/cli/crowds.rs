//! Many client processes at once: some stop, some die, and what the others read is checked byte for byte.

use crate::harness::{Place, Served, command, signal};
use locus::{ClientConfig, Error};
use rustix::process::Signal;
use std::{
    process::{Child, Stdio},
    time::{Duration, Instant},
};

const RECORDS: &str = "500";

/// A process that reads and changes a few hot records for so long, and checks every byte that it reads.
fn crowd(server: &Served, design: &str, seed: usize, seconds: &str) -> Child {
    let (address, seed) = (server.address.clone(), seed.to_string());
    let fixed = ["bench", "--fabric", &address, "--design", design, "--workload", "a", "--verify"];
    let sizes = ["--records", RECORDS, "--value-bytes", "900", "--window", "8", "--warmup-seconds", "0.1"];
    let mut all: Vec<&str> = [fixed, sizes].concat();
    all.extend(["--seconds", seconds, "--seed", &seed]);
    command(&all).stdout(Stdio::piped()).spawn().expect("the command runs")
}

/// Waits for so many puts and deletes.
fn until_changed(server: &Served, changes: u64) {
    let table = server.table();
    let mutations = || {
        let counters = &table.stats().unwrap()[0].counters;
        counters.iter().find(|(name, _)| name == "mutations").map_or(0, |(_, count)| *count)
    };
    let before = mutations();
    until("the records to change", || mutations() >= before + changes);
}

fn until(what: &str, event: impl Fn() -> bool) {
    let begun = Instant::now();
    while !event() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} took a minute");
        std::thread::yield_now();
    }
}

/// It ran to its end, and every row of its table is free of errors, or the command would say so.
#[track_caller]
fn ended_well(child: Child) {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn processes_that_die_leave_the_others_whole_records() {
    let place = Place::new();
    let server = place.serve(&["--cores", "2"]);
    ended_well(crowd(&server, "pilaf", 0, "0.2"));
    let crowds = ["pilaf", "pilaf-vo", "pilaf"].map(|design| crowd(&server, design, design.len(), "3"));
    // Meanwhile others die in the middle of it.
    for round in 0..6 {
        let before = server.table().stats().unwrap()[0].clients;
        let mut victim = crowd(&server, "pilaf", round, "30");
        until("the victim to be there", || server.table().stats().unwrap()[0].clients > before);
        until_changed(&server, 5000);
        victim.kill().unwrap();
        victim.wait().unwrap();
    }
    crowds.into_iter().for_each(ended_well);
    let statistics = server.table().stats().unwrap();
    assert_eq!(statistics[0].clients_dropped, 0, "to die is no offence");
    assert_eq!(statistics[0].records, RECORDS.parse::<u64>().unwrap());
}

#[test]
fn a_client_that_stops_reading_holds_up_nobody() {
    let place = Place::new();
    let server = place.serve(&[]);
    ended_well(crowd(&server, "pilaf", 0, "0.2"));
    // It stops with a window of requests under way, whose replies it does not take.
    let stopped = crowd(&server, "pilaf-vo", 1, "5");
    until_changed(&server, 1000);
    signal(&stopped, Signal::STOP);
    let table = server.table();
    for round in 0..1000u32 {
        table.put("another", round.to_le_bytes()).unwrap();
        assert_eq!(table.get("another").unwrap(), Some(round.to_le_bytes().to_vec()));
    }
    ended_well(crowd(&server, "pilaf-vo", 2, "1"));
    // And it finds everything as it left it.
    signal(&stopped, Signal::CONT);
    ended_well(stopped);
    assert_eq!(table.stats().unwrap()[0].clients_dropped, 0, "to be slow is no offence");
}

/// Gets that the client does alone go on meanwhile; what needs the server ends when it has waited for the timeout.
#[test]
fn a_server_that_is_stopped_holds_up_nobody_for_ever() {
    for (design, needs_server) in [("pilaf", false), ("pilaf-vo", true), ("perk-wr-wr", true)] {
        let place = Place::new();
        let server = place.serve(&["--design", design, "--memory", "256MiB"]);
        let timeout = Duration::from_millis(400);
        let table = server.table_with(ClientConfig { timeout, ..ClientConfig::default() });
        table.put("before", "value").unwrap();
        server.stop();
        let begun = Instant::now();
        match table.put("meanwhile", "value") {
            Err(Error::Unanswered { limit, change_pending: true, .. }) => assert_eq!(limit, timeout),
            other => panic!("{design}: {other:?}"),
        }
        assert!(begun.elapsed() >= timeout && begun.elapsed() < Duration::from_secs(30));
        match table.get("before") {
            Ok(found) => assert!(!needs_server && found.as_deref() == Some(b"value"), "{design}: {found:?}"),
            Err(Error::Unanswered { change_pending: false, .. }) => assert!(needs_server, "{design}"),
            Err(other) => panic!("{design}: {other}"),
        }
        // It goes on where it stood, also with the change that nobody waits for.
        server.go_on();
        table.put("after", "value").unwrap();
        for key in ["before", "meanwhile", "after"] {
            assert_eq!(table.get(key).unwrap().as_deref(), Some(&b"value"[..]), "{design}: {key}");
        }
        assert_eq!(table.stats().unwrap()[0].clients_dropped, 0, "{design}");
    }
}
