//! Tests of the load.

use super::*;
use crate::workload::{Distribution, Workload};

fn settings(records: u64, window: usize) -> LoadSettings {
    let shape = Shape::new(16, 32, 1 << 33).unwrap();
    LoadSettings {
        shape,
        records,
        client: 0,
        clients: 1,
        window,
        verify: true,
        timed_every: 1,
        number: 0,
        inserted: 0,
    }
}

fn workload(settings: &LoadSettings, workload: Workload, pace: Pace) -> Load {
    let trace = Trace::draw(workload, workload.distribution(), settings.records, 1, 0).unwrap();
    let load = Load::of_trace(settings, Clock::new(), Arc::new(trace), pace);
    load.start(Duration::from_secs(3600));
    load
}

fn good_value(load: &Load, operation: &Operation) -> Vec<u8> {
    let mut value = vec![0; load.value_bytes()];
    load.shape.write_value(&mut value, operation.index(), 77);
    value
}

#[test]
fn filling_covers_every_record_once_whoever_fills() {
    let mut seen = vec![0; 1000];
    for client in 0..3 {
        let settings = LoadSettings { client, clients: 3, ..settings(1000, 1) };
        let load = Load::of_all_records(&settings, Clock::new(), ProgressBar::hidden());
        let mut operation = load.operation();
        while load.next(&mut operation) == Next::Ready {
            assert_eq!(operation.kind(), Kind::Put);
            assert_eq!(operation.key(), format!("user{:012}", operation.index()).as_bytes());
            assert!(load.shape.is_value_of(operation.value(), operation.index()));
            seen[operation.index() as usize] += 1;
            load.stored(&operation);
        }
    }
    assert!(seen.iter().all(|times| *times == 1));
}

#[test]
fn no_value_is_written_twice() {
    let mut seen = std::collections::HashSet::new();
    let mut write = |load: &Load, writes: usize| {
        let mut operation = load.operation();
        for _ in 0..writes {
            while load.next(&mut operation) == Next::Ready && operation.kind() == Kind::Get {
                load.missing(&operation);
            }
            assert!(load.shape.is_value_of(operation.value(), operation.index()));
            assert!(seen.insert(operation.value().to_vec()), "record {}", operation.index());
            load.stored(&operation);
        }
    };
    for client in 0..2 {
        let settings = LoadSettings { client, clients: 2, ..settings(4, 1) };
        write(&Load::of_all_records(&settings, Clock::new(), ProgressBar::hidden()), 2);
        for number in 1..4 {
            // The same operations each time.
            let settings = LoadSettings { number, ..settings.clone() };
            write(&workload(&settings, Workload::A, Pace::Closed), 1000);
        }
    }
}

#[test]
fn every_outcome_is_counted_and_the_first_error_is_kept() {
    let load = workload(&settings(1000, 1), Workload::C, Pace::Closed);
    let mut operation = load.operation();
    for step in 0..5 {
        assert_eq!(load.next(&mut operation), Next::Ready);
        let mut value = good_value(&load, &operation);
        match step {
            0 => load.found(&operation, &value),
            1 => load.missing(&operation),
            2 => load.failed(&operation, "refused"),
            3 => {
                value[20] ^= 1;
                load.found(&operation, &value);
            }
            _ => load.found(&operation, &value[1..]),
        }
    }
    let finished = load.finished();
    assert_eq!((finished.operations, finished.gets, finished.missing, finished.errors), (5, 5, 1, 3));
    assert_eq!(finished.first_error.as_deref(), Some("refused"));
    assert_eq!(finished.histogram.len(), 5);
    load.start(Duration::ZERO);
    assert_eq!(load.finished().operations, 0);
    assert_eq!(load.next(&mut operation), Next::Finished);
}

#[test]
fn without_verification_the_length_of_a_value_counts_still() {
    let load = workload(&LoadSettings { verify: false, ..settings(1000, 1) }, Workload::C, Pace::Closed);
    let mut operation = load.operation();
    for value in [[0; 32].as_slice(), &[0; 31]] {
        assert_eq!(load.next(&mut operation), Next::Ready);
        load.found(&operation, value);
    }
    assert_eq!(load.finished().errors, 1);
}

#[test]
fn one_operation_in_so_many_is_timed() {
    let load = workload(&LoadSettings { timed_every: 10, ..settings(1000, 1) }, Workload::C, Pace::Closed);
    let mut operation = load.operation();
    for _ in 0..95 {
        assert_eq!(load.next(&mut operation), Next::Ready);
        load.missing(&operation);
    }
    let finished = load.finished();
    assert_eq!((finished.operations, finished.histogram.len()), (95, 10));
}

#[test]
fn an_open_loop_counts_from_the_intended_start() {
    let clock = Clock::new();
    let interval = clock.ticks(Duration::from_millis(1));
    let load = workload(&settings(1000, 1), Workload::C, Pace::Open { interval });
    let mut operation = load.operation();
    assert_eq!(load.next(&mut operation), Next::Ready);
    let Next::Later(due) = load.next(&mut operation) else { panic!("the next one is due in a millisecond") };
    // The first operation took until the fourth was due, so the three after it start late, and that counts.
    let late = due + 2 * interval;
    load.wait_until(late);
    load.missing(&operation);
    for _ in 0..3 {
        assert_eq!(load.next(&mut operation), Next::Ready);
        load.missing(&operation);
    }
    let histogram = load.finished().histogram;
    assert_eq!(histogram.len(), 4);
    assert!(histogram.max() >= 2_990_000, "{}", histogram.max());
    assert!(histogram.mean() >= 1_490_000.0, "{}", histogram.mean());
}

#[test]
fn inserts_are_new_and_the_latest_gets_find_only_acknowledged_ones() {
    let records = 1000;
    let load =
        workload(&LoadSettings { clients: 2, client: 1, ..settings(records, 4) }, Workload::D, Pace::Closed);
    let mut stored = std::collections::HashSet::new();
    let mut newest_read = 0;
    // Four at a time, finished in the opposite order.
    for _ in 0..2000 {
        let mut operations: Vec<_> = (0..4).map(|_| load.operation()).collect();
        for operation in &mut operations {
            assert_eq!(load.next(operation), Next::Ready);
            if operation.kind() == Kind::Get && operation.index() >= records {
                assert!(stored.contains(&operation.index()), "{} is not stored yet", operation.index());
                newest_read = newest_read.max(operation.index());
            }
        }
        for operation in operations.iter().rev() {
            if operation.kind() == Kind::Insert {
                assert_eq!(
                    (operation.index() - records) % 2,
                    1,
                    "the numbers between are the other client's"
                );
                assert!(stored.insert(operation.index()), "{} is inserted twice", operation.index());
                load.stored(operation);
            } else {
                load.missing(operation);
            }
        }
    }
    assert_eq!(load.finished().inserted, stored.len() as u64);
    assert!(newest_read > records + 500, "gets follow the inserts: {newest_read}");
}

#[test]
fn a_distribution_other_than_the_workloads_own_can_be_drawn() {
    let trace = Trace::draw(Workload::C, Distribution::Uniform, 10, 1, 0).unwrap();
    let load = Load::of_trace(&settings(10, 1), Clock::new(), Arc::new(trace), Pace::Closed);
    load.start(Duration::from_secs(3600));
    let mut operation = load.operation();
    let mut seen = [0; 10];
    for _ in 0..10_000 {
        assert_eq!(load.next(&mut operation), Next::Ready);
        seen[operation.index() as usize] += 1;
        load.missing(&operation);
    }
    assert!(seen.iter().all(|times| (800..1200).contains(times)), "{seen:?}");
}
