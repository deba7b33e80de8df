//! Histories for tests: operations written by hand, and such that come from a random order of effects.
// Each test program uses a part of it.
#![allow(dead_code)]

use locus_history::{Action, History, Limits, Operation, Outcome, Verdict, check, minimise};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

pub fn operation(client: u32, action: Action, (invoked_ns, returned_ns): (u64, u64)) -> Operation {
    let returned_ns = Some(returned_ns);
    Operation { client, key: b"k".to_vec(), action, invoked_ns, returned_ns, outcome: Outcome::Ok }
}

pub fn put(client: u32, value: &str, time: (u64, u64)) -> Operation {
    operation(client, Action::Put(value.into()), time)
}

pub fn get(client: u32, found: Option<&str>, time: (u64, u64)) -> Operation {
    operation(client, Action::Get(found.map(Into::into)), time)
}

pub fn delete(client: u32, found: bool, time: (u64, u64)) -> Operation {
    operation(client, Action::Delete { found }, time)
}

/// Its outcome is unknown.
pub fn unknown(mut operation: Operation) -> Operation {
    operation.outcome = Outcome::Unknown;
    operation
}

/// It never returned.
pub fn endless(mut operation: Operation) -> Operation {
    operation.returned_ns = None;
    unknown(operation)
}

pub fn verdict(operations: Vec<Operation>) -> Verdict {
    check(&History::new(operations).unwrap(), &Limits::default())
}

/// The verdict on the same as the history of a cache.
pub fn verdict_of_cache(operations: Vec<Operation>) -> Verdict {
    check(&History::new(operations).unwrap().of_cache(), &Limits::default())
}

/// What the minimiser leaves of a history of one key.
pub fn minimal(operations: &[Operation]) -> Option<Vec<Operation>> {
    let history = History::new(operations.to_vec()).unwrap();
    minimise(&history, b"k", &Limits::default()).map(|minimal| minimal.operations().to_vec())
}

/// How a random history looks.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub operations: usize,
    pub clients: u32,
    /// Values are `0..values`; 0: every put has a value of its own.
    pub values: u64,
    pub puts_percent: u32,
    pub deletes_percent: u32,
    /// Operations whose outcome is unknown.
    pub unknown_percent: u32,
    /// The longest time of an operation, where one takes effect every 100 ns.
    pub longest_ns: u64,
}

/// Operations on one key by a random order of effects: linearizable by the way it is made.
pub fn linearizable(shape: Shape, seed: u64) -> Vec<Operation> {
    let mut random = SmallRng::seed_from_u64(seed);
    // When each client is at leisure again, and who it is: a client whose operation never returns is replaced.
    let mut clients: Vec<(u64, u32)> = (0..shape.clients).map(|client| (0, client)).collect();
    let (mut next_client, mut now_ns, mut holds) = (shape.clients, 0, None);
    let mut operations = Vec::with_capacity(shape.operations);
    for number in 0..shape.operations {
        now_ns += 100;
        let at = random.random_range(0..clients.len());
        let (idle_ns, client) = clients[at];
        now_ns = now_ns.max(idle_ns + 1);
        let earliest_ns = now_ns.saturating_sub(shape.longest_ns / 2).max(idle_ns + 1);
        let invoked_ns = random.random_range(earliest_ns..=now_ns);
        let returned_ns = now_ns + random.random_range(0..=shape.longest_ns / 2);
        let is_unknown = random.random_range(0..100) < shape.unknown_percent;
        let has_effect = !is_unknown || random.random_bool(0.5);
        let action = match random.random_range(0..100) {
            kind if kind < shape.puts_percent => {
                let value =
                    if shape.values == 0 { number as u64 } else { random.random_range(0..shape.values) };
                let value = value.to_string().into_bytes();
                if has_effect {
                    holds = Some(value.clone());
                }
                Action::Put(value)
            }
            kind if kind < shape.puts_percent + shape.deletes_percent => {
                let found = holds.is_some();
                if has_effect {
                    holds = None;
                }
                Action::Delete { found }
            }
            _ => Action::Get(holds.clone()),
        };
        let mut operation = operation(client, action, (invoked_ns, returned_ns));
        clients[at].0 = returned_ns;
        if is_unknown && random.random_bool(0.5) {
            operation = endless(operation);
            clients[at] = (now_ns, next_client);
            next_client += 1;
        } else if is_unknown {
            // It may return before it takes effect.
            operation.returned_ns = Some(random.random_range(invoked_ns..=returned_ns));
            operation = unknown(operation);
        }
        operations.push(operation);
    }
    operations
}
