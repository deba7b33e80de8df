//! A client of a simulated cluster: a window of operations that are drawn from a trace, one after the other.

use super::cluster::{ClusterBench, Effort, Phase, Shared};
use locus_bench::{Kind, keys::Shape, trace::Trace};
use locus_fabric::sim::SimNic;
use locus_index::{Key, PARTITIONS};
use locus_runtime::{
    Clock, MonotonicClock,
    channel::{Gone, Receiver, Sender},
    interleave_async, thread, world,
};
use locus_store::{Client, ClientConfig, KEY_HASH_SEED, Locus, StoreError};
use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

/// How many operations of a client's trace differ.
const TRACE_ENTRIES: usize = 1 << 14;

/// What ties a client to the judge.
pub(super) struct Line {
    /// Tells the judge that the client has loaded, that it knows the tables, that it has ended, or what failed.
    pub report: Sender<Result<(), String>>,
    /// Tells the client, after the first two of these, that all have come so far.
    pub go_on: Receiver<()>,
}

impl Line {
    /// Reports the end of a phase, and waits for the next one.
    fn next_phase(&self) -> Result<(), Gone> {
        self.report.send(Ok(()))?;
        self.go_on.receive()
    }
}

/// Within what clients begin, in nanoseconds.
const APART_NS: u64 = 1000;

/// The main function of a client process.
pub(super) fn main(config: &ClusterBench, number: usize, shared: &Shared, line: &Line) {
    let result = drive(config, number, shared, line).map_err(|error| error.to_string());
    // A judge who has heard of a failure is gone.
    let _ = line.report.send(result);
}

fn drive(
    config: &ClusterBench,
    number: usize,
    shared: &Shared,
    line: &Line,
) -> Result<(), Box<dyn std::error::Error>> {
    let client = connect(config)?;
    let shape = Shape::new(config.key_bytes, config.value_bytes, config.records - 1)?;
    let lanes = config.window.min(locus_runtime::LANES_MAX);
    load(config, number, &client, &shape, lanes)?;
    line.next_phase()?;
    if client.reads() == Locus::Client {
        find_tables(config, &client, &shape, lanes)?;
    }
    line.next_phase()?;
    // Clients of machines do not begin in step, in which they would stay, and meet at the server's NIC every time.
    thread::sleep(Duration::from_nanos(world::random()? as u64 % APART_NS));
    let trace = Trace::draw_entries(
        config.workload,
        config.distribution,
        config.records,
        config.seed,
        number,
        TRACE_ENTRIES,
    )?;
    let before = Cell::new(None);
    let lane = |lane: usize| {
        let (client, shape, trace, before) = (&client, &shape, &trace, &before);
        async move {
            let mut position = lane * (TRACE_ENTRIES / lanes);
            let (mut key, mut value) = (shape.new_key(), vec![0; shape.value_bytes()]);
            let clock = MonotonicClock::new();
            while shared.phase() != Phase::Done {
                if shared.phase() == Phase::Measuring && before.get().is_none() {
                    before.set(Some(Effort::of(client)));
                }
                let (kind, index, following) = trace.entry(position);
                position = following;
                shape.write_key(&mut key, index);
                let start_ns = clock.now_ns();
                let result = operate(client, shape, kind, index, &key, &mut value).await;
                shared.ended(clock.now_ns() - start_ns, kind, result.is_ok());
                if let Ok(false) = result {
                    assert!(config.design.index.forgets(), "record {index} is there");
                    shared.missed();
                }
            }
        }
    };
    client.block_on(interleave_async(lanes, (0..lanes).map(lane), |_, ()| ()));
    // None where no operation began in the time measured.
    let now = Effort::of(&client);
    shared.add_effort(&now, &before.get().unwrap_or(now));
    Ok(())
}

pub(super) fn connect(config: &ClusterBench) -> Result<Client<SimNic>, StoreError> {
    let addresses: Vec<_> = (0..config.servers).map(super::cluster::address).collect();
    let client = ClientConfig { window: config.window, ..ClientConfig::default() };
    Client::connect(&SimNic::open(), &addresses, client)
}

/// Puts this client's share of the records.
fn load(
    config: &ClusterBench,
    number: usize,
    client: &Client<SimNic>,
    shape: &Shape,
    lanes: usize,
) -> Result<(), StoreError> {
    let next = Cell::new(number as u64);
    let failure = RefCell::new(None);
    let lane = |_| async {
        let (mut key, mut value) = (shape.new_key(), vec![0; shape.value_bytes()]);
        while next.get() < config.records && failure.borrow().is_none() {
            let index = next.replace(next.get() + config.clients as u64);
            shape.write_key(&mut key, index);
            shape.write_value(&mut value, index, 0);
            if let Err(error) = client.put(&key, &value).await {
                *failure.borrow_mut() = Some(error);
            }
        }
    };
    client.block_on(interleave_async(lanes, (0..lanes).map(lane), |_, ()| ()));
    failure.into_inner().map_or(Ok(()), Err)
}

/// Gets a record of each partition, so that the client knows where its table is, as one that has been there for a while does.
fn find_tables(
    config: &ClusterBench,
    client: &Client<SimNic>,
    shape: &Shape,
    lanes: usize,
) -> Result<(), StoreError> {
    let mut known = vec![false; PARTITIONS];
    let mut key = shape.new_key();
    let mut one_of_each = Vec::new();
    for index in 0..config.records {
        shape.write_key(&mut key, index);
        let partition = Key::new(&key, KEY_HASH_SEED).partition().index();
        if !std::mem::replace(&mut known[partition], true) {
            one_of_each.push(key.clone());
        }
    }
    let failure = RefCell::new(None);
    let gets = one_of_each.iter().map(|key| async {
        if let Err(error) = client.get(key, |_| ()).await {
            failure.borrow_mut().get_or_insert(error);
        }
    });
    client.block_on(interleave_async(lanes, gets, |_, ()| ()));
    failure.into_inner().map_or(Ok(()), Err)
}

/// Says whether the record was there, if that was asked for.
async fn operate(
    client: &Client<SimNic>,
    shape: &Shape,
    kind: Kind,
    index: u64,
    key: &[u8],
    value: &mut [u8],
) -> Result<bool, StoreError> {
    let mut present = true;
    if matches!(kind, Kind::Get | Kind::ReadModifyWrite) {
        let found = client.get(key, |found| shape.is_value_of(found, index)).await?;
        assert_ne!(found, Some(false), "record {index} holds its own value");
        present = found.is_some();
    }
    if matches!(kind, Kind::Put | Kind::ReadModifyWrite | Kind::Insert) {
        shape.write_value(value, index, 1);
        client.put(key, value).await?;
    }
    Ok(present)
}
