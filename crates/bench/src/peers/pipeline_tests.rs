//! Tests of the pipelined connection against a server of the test's own, which can misbehave.

use super::super::memcached::Memcached;
use super::*;
use crate::clock::Clock;
use crate::keys::Shape;
use crate::load::{LoadSettings, Pace};
use crate::trace::Trace;
use crate::workload::Workload;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::Arc;
use std::thread::JoinHandle;

const RECORDS: u64 = 100;

fn load(workload: Workload, window: usize, value_bytes: usize) -> Load {
    let shape = Shape::new(16, value_bytes, RECORDS).unwrap();
    let settings = LoadSettings {
        shape,
        records: RECORDS,
        client: 0,
        clients: 1,
        window,
        verify: true,
        timed_every: 1,
        number: 0,
        inserted: 0,
    };
    let trace = Trace::draw(workload, workload.distribution(), RECORDS, 1, 0).unwrap();
    let load = Load::of_trace(&settings, Clock::new(), Arc::new(trace), Pace::Closed);
    load.start(Duration::from_millis(100));
    load
}

/// A memcached of the test's own, filled, that answers in pieces of `piece` bytes, whatever they cut in two. It returns
/// the most requests that lay before it at once.
fn serve(mut stream: UnixStream, value_bytes: usize, piece: usize) -> JoinHandle<usize> {
    let shape = Shape::new(16, value_bytes, RECORDS).unwrap();
    let mut records: HashMap<Vec<u8>, Vec<u8>> = (0..RECORDS)
        .map(|index| {
            let (mut key, mut value) = (shape.new_key(), vec![0; value_bytes]);
            shape.write_key(&mut key, index);
            shape.write_value(&mut value, index, 1);
            (key, value)
        })
        .collect();
    std::thread::spawn(move || {
        let (mut input, mut most) = (Vec::new(), 0);
        let mut buffer = vec![0; 1 << 20];
        loop {
            let Ok(bytes @ 1..) = stream.read(&mut buffer) else { return most };
            input.extend_from_slice(&buffer[..bytes]);
            let (answers, requests) = answer(&mut input, &mut records);
            most = most.max(requests);
            for part in answers.chunks(piece) {
                if stream.write_all(part).is_err() {
                    return most;
                }
            }
        }
    })
}

fn answer(input: &mut Vec<u8>, records: &mut HashMap<Vec<u8>, Vec<u8>>) -> (Vec<u8>, usize) {
    let (mut answers, mut requests) = (Vec::new(), 0);
    while let Ok(Some((request, length))) = line(input) {
        let mut words = request.split(|byte| *byte == b' ');
        let (command, key) = (words.next().unwrap(), words.next().unwrap().to_vec());
        let mut handled = length;
        if command == b"mg" {
            let value = &records[&key];
            answers.extend_from_slice(format!("VA {}\r\n", value.len()).as_bytes());
            answers.extend_from_slice(value);
            answers.extend_from_slice(b"\r\n");
        } else {
            let value_bytes = decimal(words.next().unwrap()).unwrap();
            let Some(value) = input.get(length..length + value_bytes + 2) else { break };
            records.insert(key, value[..value_bytes].to_vec());
            answers.extend_from_slice(b"HD\r\n");
            handled += value_bytes + 2;
        }
        requests += 1;
        input.drain(..handled);
    }
    (answers, requests)
}

fn drive(load: &Load, stream: UnixStream) -> Result<(), BenchError> {
    Connection::<_, Memcached>::new(stream, "the test's server").drive(load)
}

#[test]
fn every_mix_goes_through_in_pieces_of_any_size_and_fills_the_window() {
    for (workload, window, value_bytes, piece) in [
        (Workload::A, 1, 64, 7),
        (Workload::F, 16, 64, 1000),
        (Workload::C, 16, 64, 1 << 20),
        (Workload::A, 8, 100_000, 1 << 20),
        (Workload::B, 4, 0, 3),
    ] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server = serve(theirs, value_bytes, piece);
        let load = load(workload, window, value_bytes);
        drive(&load, ours).unwrap();
        let finished = load.finished();
        assert!(finished.operations > window as u64);
        assert_eq!((finished.errors, finished.missing), (0, 0), "{:?}", finished.first_error);
        let most = server.join().unwrap();
        assert!(most <= window, "{most} requests at once in a window of {window}");
        if value_bytes <= 64 && window > 1 {
            assert!(most > 1, "nothing was pipelined");
        }
    }
}

#[test]
fn an_open_loop_is_served_and_ends() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = serve(theirs, 64, 1 << 20);
    let clock = Clock::new();
    let shape = Shape::new(16, 64, RECORDS).unwrap();
    let settings = LoadSettings {
        shape,
        records: RECORDS,
        client: 0,
        clients: 1,
        window: 4,
        verify: true,
        timed_every: 1,
        number: 0,
        inserted: 0,
    };
    let trace = Trace::draw(Workload::A, Workload::A.distribution(), RECORDS, 1, 0).unwrap();
    let interval = clock.ticks(Duration::from_millis(1));
    let load = Load::of_trace(&settings, clock, Arc::new(trace), Pace::Open { interval });
    load.start(Duration::from_millis(100));
    drive(&load, ours).unwrap();
    // As many as became due, however fast the server is; fewer only if this thread did not get to run at the end.
    let operations = load.finished().operations;
    assert!((1..=100).contains(&operations), "{operations}");
    server.join().unwrap();
}

fn against(answers: &'static [u8]) -> (Result<(), BenchError>, crate::load::Finished) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        let _ = theirs.read(&mut buffer);
        let _ = theirs.write_all(answers);
    });
    let load = load(Workload::C, 1, 64);
    let result = drive(&load, ours);
    server.join().unwrap();
    (result, load.finished())
}

#[test]
fn a_server_that_hangs_up_or_talks_nonsense_is_an_error_with_its_name() {
    for answers in [b"".as_slice(), b"VA 64\r\nabc", b"VA 99999999999999\r\n"] {
        let error = against(answers).0.unwrap_err().to_string();
        assert!(error.contains("the test's server"), "{error}");
    }
}

#[test]
fn a_refusal_or_a_wrong_answer_is_counted_and_not_taken_for_a_value() {
    for (answer, said) in [
        (b"SERVER_ERROR busy\r\n".as_slice(), "busy"),
        (b"HD\r\n", "Stored"),
        (b"VA 3\r\nabc\r\n", "never written"),
    ] {
        let (_, finished) = against(answer);
        assert_eq!((finished.operations, finished.errors), (1, 1));
        let error = finished.first_error.unwrap();
        assert!(error.contains(said), "{error}");
    }
    let (_, finished) = against(b"EN\r\n");
    assert_eq!((finished.operations, finished.errors, finished.missing), (1, 0, 1));
}
