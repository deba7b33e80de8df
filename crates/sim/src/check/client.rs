//! A client of a world: lanes of operations that go on side by side, each recorded as it begins and as it ends.

use super::{
    scenario::{Circumstances, Scenario},
    world::{Shared, address},
};
use locus_fabric::sim::{Chance, SimNic};
use locus_history::{Capacity, Recorder, Ticket};
use locus_runtime::{interleave_async, thread};
use locus_store::{Client, ClientConfig, Locus, StoreError};
use std::{cell::RefCell, rc::Rc, time::Duration};

/// How often a client tries to reach a server that is being replaced.
const CONNECTS_MAX: usize = 1000;

/// What one lane is, and does.
struct Lane {
    recorder: Rc<RefCell<Recorder>>,
    chance: Chance,
    /// Makes the values of this lane differ from all others.
    number: u64,
}

/// What an operation is to be.
enum Step {
    Get(usize),
    Put(usize, Vec<u8>),
    Delete(usize),
    /// A put of a key that nobody gets.
    Fill(usize),
    /// A delete of such a key.
    Empty(usize),
}

/// Connects, however long it takes the server to be there.
pub(super) fn connect(
    circumstances: &Circumstances,
    reads: Option<Locus>,
) -> Result<Client<SimNic>, StoreError> {
    let usual = ClientConfig::default();
    let timeout = circumstances.timeout.unwrap_or(usual.timeout);
    let config = ClientConfig { reads, retries: circumstances.retries, window: 4, timeout, ..usual };
    let mut tries = 0;
    loop {
        match Client::connect(&SimNic::open(), &[address()], config.clone()) {
            Err(_) if tries < CONNECTS_MAX && circumstances.has_faults() => {
                tries += 1;
                thread::sleep(Duration::from_micros(20));
            }
            connected => return connected,
        }
    }
}

/// The main function of a client process.
pub(super) fn main(scenario: &Scenario, number: usize, shared: &Shared) {
    let circumstances = scenario.circumstances();
    let mut chance = Chance::new(scenario.seed ^ ((number as u64 + 1) << 32));
    let reads = (circumstances.mixes_reads && chance.up_to(1) == 0).then_some(Locus::Server);
    let client = match connect(&circumstances, reads) {
        Ok(client) => client,
        Err(error) => return shared.unexpected(&circumstances, "connecting", &error),
    };
    let lanes = (0..scenario.lanes).map(|lane| {
        let number = number * scenario.lanes + lane;
        let capacity =
            Capacity { operations_max: scenario.operations, bytes_max: scenario.operations * (16 << 10) };
        let recorder = Recorder::new(number as u32, capacity).expect("memory for a few operations");
        let recorder = Rc::new(RefCell::new(recorder));
        shared.recorders.borrow_mut().push(recorder.clone());
        Lane { recorder, chance: Chance::new(chance.number()), number: number as u64 }
    });
    let lanes: Vec<Lane> = lanes.collect();
    let count = lanes.len();
    let all = lanes.into_iter().map(|lane| run_lane(lane, &client, scenario, &circumstances, shared));
    client.block_on(interleave_async(count, all, |_, ()| ()));
    shared.tally(&client);
}

async fn run_lane(
    mut lane: Lane,
    client: &Client<SimNic>,
    scenario: &Scenario,
    circumstances: &Circumstances,
    shared: &Shared,
) {
    for number in 0..scenario.operations {
        let step = lane.choose(number, scenario, circumstances);
        let result = lane.take(step, client, circumstances, shared).await;
        if let Err(error) = result {
            shared.unexpected(circumstances, "an operation", &error);
            // Whoever lost its server does not ask for the next one without a pause.
            thread::sleep(Duration::from_micros(20));
        }
    }
}

impl Lane {
    fn choose(&mut self, number: usize, scenario: &Scenario, circumstances: &Circumstances) -> Step {
        let chance = &mut self.chance;
        if chance.up_to(circumstances.fills - 1) == 0 {
            let other = scenario.keys + chance.up_to(circumstances.others as u64 - 1) as usize;
            return if chance.up_to(2) == 0 { Step::Empty(other) } else { Step::Fill(other) };
        }
        // The first key is the hottest.
        let key =
            (chance.up_to(scenario.keys as u64 - 1).min(chance.up_to(scenario.keys as u64 - 1))) as usize;
        match chance.up_to(9) {
            0..5 => Step::Get(key),
            5..8 => {
                let longest = if chance.up_to(7) == 0 { circumstances.value_bytes } else { 40 };
                let name = format!("{}.{number}", self.number);
                // Longer ones than the name repeat it, so that a mixture of two values shows.
                let bytes = chance.up_to(longest as u64) as usize;
                let value = name.bytes().chain(*b" ").cycle().take(bytes.max(name.len())).collect();
                Step::Put(key, value)
            }
            _ => Step::Delete(key),
        }
    }

    async fn take(
        &self,
        step: Step,
        client: &Client<SimNic>,
        circumstances: &Circumstances,
        shared: &Shared,
    ) -> Result<(), StoreError> {
        let key = |number| circumstances.key(number);
        match step {
            Step::Get(number) => {
                let ticket = self.begin(|recorder, now_ns| recorder.get(key(number), now_ns), shared);
                let found = client.get(key(number), <[u8]>::to_vec).await?;
                let ended = self.recorder.borrow_mut().got(ticket, found.as_deref(), shared.stamp());
                ended.expect("room for every value");
            }
            Step::Put(number, value) => {
                let ticket = self.begin(|recorder, now_ns| recorder.put(key(number), &value, now_ns), shared);
                match client.put(key(number), &value).await {
                    Ok(_) => self.recorder.borrow_mut().acknowledged(ticket, shared.stamp()),
                    Err(error) => return self.failed(ticket, error, shared),
                }
            }
            Step::Delete(number) => {
                let ticket = self.begin(|recorder, now_ns| recorder.delete(key(number), now_ns), shared);
                match client.delete(key(number)).await {
                    Ok(found) => self.recorder.borrow_mut().deleted(ticket, found, shared.stamp()),
                    Err(error) => return self.failed(ticket, error, shared),
                }
            }
            Step::Fill(number) => {
                client.put(key(number), b"filler").await?;
            }
            Step::Empty(number) => {
                client.delete(key(number)).await?;
            }
        }
        Ok(())
    }

    fn begin<E: std::fmt::Debug>(
        &self,
        begin: impl FnOnce(&mut Recorder, u64) -> Result<Ticket, E>,
        shared: &Shared,
    ) -> Ticket {
        begin(&mut self.recorder.borrow_mut(), shared.stamp()).expect("room for every operation")
    }

    /// A mutation failed: whatever the error says, it may have been made.
    fn failed(&self, ticket: Ticket, error: StoreError, shared: &Shared) -> Result<(), StoreError> {
        self.recorder.borrow_mut().unknown(ticket, shared.stamp());
        shared.tally.borrow_mut().add("unknown_outcomes", 1);
        Err(error)
    }
}
