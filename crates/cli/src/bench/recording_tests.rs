//! Tests of what a run records.

use super::*;
use crate::bench::system::{Gets, LocusStarter, Place};
use locus_bench::{Report, Starter, Workload, process::PrivateDirectory};
use locus_fabric::{Address, shm::ShmNic};
use locus_history::{Action, Limits, Operation, Verdict, check};
use locus_store::{Design, Server, ServerConfig};
use std::{collections::HashMap, sync::Arc};

fn options() -> BenchOptions {
    BenchOptions {
        workloads: vec![Workload::A],
        records: 50,
        clients: 2,
        windows: vec![4],
        seconds: 0.05,
        warmup_seconds: 0.01,
        ..BenchOptions::default()
    }
}

/// Records a run on a server of this process.
fn record(options: &BenchOptions, gets: Gets, room: Capacity) -> (Report, History, Option<String>) {
    let directory = PrivateDirectory::new().unwrap();
    let address = Address::Shm(directory.path().join("locus.sock"));
    let config = ServerConfig { memory_bytes: 256 << 20, ..ServerConfig::default() };
    let server = Server::start(&ShmNic::open().unwrap(), config).unwrap();
    server.listen(&address).unwrap();
    let recording = Arc::new(Recording::new(options, room).unwrap());
    let starters: [Box<dyn Starter>; 1] = [Box::new(LocusStarter {
        design: Design::find("pilaf").unwrap(),
        gets,
        place: Place::Running(address),
        recording: Some(recording.clone()),
    })];
    let report = locus_bench::run(options, &starters).unwrap();
    drop(starters);
    let (history, full) = Arc::into_inner(recording).unwrap().end().unwrap();
    (report, history, full)
}

fn assert_linearizable(history: &History) {
    assert_eq!(check(history, &Limits::default()), Verdict::Linearizable);
}

fn by_client(history: &History) -> HashMap<u32, Vec<&Operation>> {
    let mut clients: HashMap<u32, Vec<_>> = HashMap::new();
    history.operations().iter().for_each(|o| clients.entry(o.client).or_default().push(o));
    clients
}

#[test]
fn loading_warm_up_and_every_measurement_are_recorded_in_one_history() {
    let options = BenchOptions { workloads: Workload::ALL.to_vec(), windows: vec![1, 4], ..options() };
    let (report, history, full) = record(&options, Gets::Single, ROOM);
    assert!(report.is_complete() && full.is_none(), "{report}");
    assert_linearizable(&history);
    let clients = by_client(&history);
    assert_eq!(clients.len(), 4);
    let loaded = clients[&2].iter().chain(&clients[&3]);
    assert_eq!(loaded.filter(|o| matches!(o.action, Action::Put(_))).count(), 50);
    assert!(history.operations().iter().all(Operation::is_certain));
    // What is measured is not all: the warm-up counts as well. A read-modify-write is two.
    let measured: f64 = report.rows.iter().map(|row| row.operations).sum();
    assert!(
        history.operations().len() as f64 > measured + 50.0,
        "{measured} of {}",
        history.operations().len()
    );
    let mut values: Vec<_> = history.operations().iter().filter_map(put_of).collect();
    let puts = values.len();
    values.sort();
    values.dedup();
    assert_eq!(values.len(), puts, "no value is put twice");
    let found = history.operations().iter().filter(|o| matches!(o.action, Action::Get(Some(_)))).count();
    assert!(found > 10 && puts > 60, "{found} {puts}");
}

fn put_of(operation: &Operation) -> Option<&[u8]> {
    match &operation.action {
        Action::Put(value) => Some(value),
        _ => None,
    }
}

#[test]
fn operations_of_a_window_overlap_and_those_of_none_do_not() {
    let overlapping = |window, gets| {
        // As many operations as there is room for, however long they take.
        let options = BenchOptions { windows: vec![window], clients: 1, seconds: 60.0, ..options() };
        let room = Capacity { operations_max: 50 + 1000, ..ROOM };
        let (_, history, _) = record(&options, gets, room);
        assert_linearizable(&history);
        let clients = by_client(&history);
        assert_eq!(clients[&0].len(), 1000);
        // Sorted by invocation: the next begins before this one has returned.
        clients[&0].windows(2).filter(|two| Some(two[1].invoked_ns) < two[0].returned_ns).count()
    };
    assert_eq!(overlapping(1, Gets::Single), 0);
    assert!(overlapping(8, Gets::Single) > 100);
    assert!(overlapping(8, Gets::Many) > 100);
}

#[test]
fn a_full_history_ends_the_run_and_is_good_as_far_as_it_goes() {
    for (gets, seconds) in [(Gets::Single, 30.0), (Gets::Many, 30.0)] {
        let room = Capacity { operations_max: 1050, bytes_max: 1 << 20 };
        let (report, history, full) = record(&BenchOptions { seconds, ..options() }, gets, room);
        let full = full.expect("it is full");
        for words in ["500 operations", "--seconds", "--rate"] {
            assert!(full.contains(words), "no {words:?} in {full}");
        }
        assert!(report.to_string().contains(&full) && !report.is_complete(), "{report}");
        assert_eq!(history.operations().len(), 1050);
        assert_linearizable(&history);
    }
    // As many bytes as operations would be of 80 bytes each, and a get takes some only when it finds its value.
    let room = Capacity { operations_max: 1 << 20, bytes_max: 50 * 80 + 2 * 40_000 };
    let (_, history, full) = record(&BenchOptions { seconds: 30.0, ..options() }, Gets::Single, room);
    assert!(full.is_some_and(|full| full.contains("of keys and values")));
    assert!(history.operations().len() > 500);
    assert_linearizable(&history);
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    let refused = |options: BenchOptions, words: &[&str]| {
        let error = Recording::new(&options, ROOM).err().expect("a refusal").to_string();
        words.iter().for_each(|word| assert!(error.contains(word), "no {word:?} in {error}"));
    };
    refused(BenchOptions { value_bytes: 15, ..options() }, &["15 bytes", "--value-bytes"]);
    refused(BenchOptions { records: 2_000_000, ..options() }, &["2000000", "2097152", "--records"]);
    refused(
        BenchOptions { records: 1000, value_bytes: 1 << 20, ..options() },
        &["512.0 MiB", "--value-bytes"],
    );
    refused(BenchOptions { clients: 0, ..options() }, &["--clients"]);
}
