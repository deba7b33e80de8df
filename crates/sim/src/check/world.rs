//! One world: a server, clients, what befalls them, and the judgement of what the clients saw.

use super::{
    client,
    scenario::{Circumstances, SMALL_VALUE_BYTES_MAX, Scenario},
    tally::Tally,
};
use locus_fabric::{
    Address,
    sim::{SimHost, SimNic, SimProcess, SimulationError, simulate},
};
use locus_history::{Action, History, Limits, Operation, Outcome, Recorder, Verdict, check, minimise};
use locus_runtime::{thread, world};
use locus_store::{Client, Design, Index, Server, ServerConfig, StoreError};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// What a world that was found good has to tell.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it went through.
    pub tally: Tally,
    /// What its clients saw.
    pub history: History,
    /// How much virtual time passed, in nanoseconds.
    pub virtual_ns: u64,
}

/// What is wrong with a world.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// What its clients saw is not linearizable, or no cache gives such answers.
    #[error("not linearizable\n{report}")]
    NotLinearizable {
        /// Which operations contradict each other.
        report: String,
        /// All that the clients saw.
        history: History,
    },
    /// The search for an order gave up.
    #[error("nobody knows whether it is linearizable: {reason}")]
    Undecided {
        /// Which limit was reached.
        reason: String,
        /// All that the clients saw.
        history: History,
    },
    /// Something happened that never does where owners keep to the protocol.
    #[error("{count} {name}: {meaning}")]
    Invariant {
        /// What was counted.
        name: &'static str,
        /// How often.
        count: u64,
        /// What is wrong with that.
        meaning: &'static str,
    },
    /// An operation failed although nothing befell it.
    #[error("{0}")]
    Unexpected(String),
    /// The world ended early.
    #[error(transparent)]
    World(#[from] SimulationError),
}

/// Where the server listens.
pub(super) fn address() -> Address {
    Address::Sim("server".into())
}

/// What the processes of a world leave behind for its judge. It is on no host, and outlives them all.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) recorders: Rc<RefCell<Vec<Rc<RefCell<Recorder>>>>>,
    pub(super) tally: Rc<RefCell<Tally>>,
    extra: Rc<RefCell<Vec<Operation>>>,
    unexpected: Rc<RefCell<Option<String>>>,
    last_stamp: Rc<Cell<u64>>,
}

impl Circumstances {
    /// Whether operations may fail.
    pub(super) fn has_faults(&self) -> bool {
        self.kills_server.is_some() || self.simulation.adversary.breaks > 0.0
    }
}

impl Shared {
    fn new() -> Self {
        Self {
            recorders: Rc::default(),
            tally: Rc::default(),
            extra: Rc::default(),
            unexpected: Rc::default(),
            last_stamp: Rc::default(),
        }
    }

    /// The time, a little later each time it is asked for: whatever happens after something else shows so.
    pub(super) fn stamp(&self) -> u64 {
        let now_ns = world::current().map_or(0, |world| world.now_ns());
        self.last_stamp.set(now_ns.max(self.last_stamp.get() + 1));
        self.last_stamp.get()
    }

    /// Takes note of an error, which is one of ours unless something befell the world.
    pub(super) fn unexpected(&self, circumstances: &Circumstances, what: &str, error: &StoreError) {
        self.tally.borrow_mut().add("failed_operations", 1);
        let expected = match error {
            StoreError::ServerLost { .. } | StoreError::OutcomeUnknown { .. } | StoreError::Fabric(_) => {
                circumstances.has_faults()
            }
            StoreError::Unanswered { .. } => {
                self.tally.borrow_mut().add("unanswered_operations", 1);
                circumstances.timeout.is_some()
            }
            _ => false,
        };
        if !expected {
            self.unexpected.borrow_mut().get_or_insert_with(|| format!("{what} failed: {error}"));
        }
    }

    /// Adds what a client has counted.
    pub(super) fn tally(&self, client: &Client<SimNic>) {
        let mut tally = self.tally.borrow_mut();
        for (name, count) in client.effort().list().into_iter().chain(client.counters().list()) {
            tally.add(name, count);
        }
    }

    /// All values are gone, and nobody could change anything since: what a server's successor begins with.
    fn forgotten(&self, scenario: &Scenario, circumstances: &Circumstances, killed_ns: u64) {
        let now_ns = self.stamp();
        let mut extra = self.extra.borrow_mut();
        for number in 0..scenario.keys {
            let of_nobody = |action, invoked_ns, outcome| Operation {
                client: u32::MAX,
                key: circumstances.key(number).to_vec(),
                action,
                invoked_ns,
                returned_ns: Some(now_ns),
                outcome,
            };
            // A delete of which it does not matter what it found, and a look that it was made.
            extra.push(of_nobody(Action::Delete { found: true }, killed_ns, Outcome::Unknown));
            extra.push(of_nobody(Action::Get(None), now_ns, Outcome::Ok));
        }
    }

    fn history(&self) -> History {
        let recorders = self.recorders.borrow_mut().drain(..).collect::<Vec<_>>();
        // Clients that were killed dropped theirs with their stacks, so each is the last.
        let recorders = recorders.into_iter().filter_map(Rc::into_inner).map(RefCell::into_inner);
        let mut operations: Vec<Operation> = recorders.flat_map(Recorder::into_operations).collect();
        operations.append(&mut self.extra.borrow_mut());
        History::new(operations).expect("stamps only grow")
    }
}

/// Runs the world of a scenario and judges it.
pub fn run(scenario: &Scenario) -> Result<Run, Failure> {
    let circumstances = scenario.circumstances();
    let outcome = {
        let scenario = scenario.clone();
        simulate(circumstances.simulation.clone(), move || play(&scenario))?
    };
    let (history, mut tally, unexpected) = outcome.value;
    if let Some(unexpected) = unexpected {
        return Err(Failure::Unexpected(unexpected));
    }
    let count = tally.get("extents_lost");
    if count > 0 {
        let meaning = "a row pointed to a record that was not whole, although the row did not change";
        return Err(Failure::Invariant { name: "extents_lost", count, meaning });
    }
    let evicted = tally.get("bucket_evictions") + tally.get("log_overwrites") > 0;
    tally.add("worlds_with_evictions", evicted.into());
    // What a server that was killed evicted, nobody counted.
    let forgets = evicted || circumstances.cache_bytes.is_some();
    let history = if forgets { history.of_cache() } else { history };
    match check(&history, &Limits::default()) {
        Verdict::Linearizable => {}
        Verdict::Violation(violation) => {
            let report = match minimise(&history, &violation.key, &Limits::default()) {
                Some(few) => {
                    format!("{violation}\nThe fewest operations found that contradict each other:\n{few}")
                }
                None => violation.to_string(),
            };
            return Err(Failure::NotLinearizable { report, history });
        }
        Verdict::Undecided(undecided) => {
            return Err(Failure::Undecided { reason: undecided.to_string(), history });
        }
    }
    let counters = outcome.counters;
    tally.add("worlds", 1);
    tally.add("operations", history.operations().len() as u64);
    tally.add("events", counters.events);
    tally.add("reads", counters.reads);
    tally.add("sampled_before_stores", counters.sampled_before_stores);
    tally.add("preemptions", counters.preemptions);
    tally.add("broken_queue_pairs", counters.broken);
    tally.add("receivers_not_ready", counters.unready);
    tally.add("lost_messages", counters.lost);
    tally.add("messages_that_overtook", counters.overtook);
    tally.add("writes_acknowledged_early", counters.acknowledged_early);
    Ok(Run { tally, history, virtual_ns: outcome.virtual_ns })
}

/// The first process of a world.
fn play(scenario: &Scenario) -> (History, Tally, Option<String>) {
    let circumstances = scenario.circumstances();
    let shared = Shared::new();
    let mut server = serve(scenario.row(), &circumstances);
    preload(scenario, &circumstances, &shared);
    let clients: Vec<SimProcess> = (0..scenario.clients)
        .map(|number| {
            let (scenario, shared) = (scenario.clone(), shared.clone());
            SimProcess::spawn("client", move || client::main(&scenario, number, &shared))
        })
        .collect();
    if let Some(after) = circumstances.kills_client {
        thread::sleep(after);
        clients[0].kill();
        shared.tally.borrow_mut().add("killed_clients", 1);
    }
    if let Some(after) = circumstances.kills_server {
        thread::sleep(after);
        let killed_ns = shared.stamp();
        server.kill();
        shared.forgotten(scenario, &circumstances, killed_ns);
        shared.tally.borrow_mut().add("killed_servers", 1);
        server = serve(scenario.row(), &circumstances);
    }
    clients.iter().for_each(SimProcess::join);
    let statistics = client::connect(&circumstances, None).and_then(|client| client.statistics());
    if let Ok(statistics) = statistics {
        let mut tally = shared.tally.borrow_mut();
        let names = [
            "kick_outs",
            "displacements",
            "growths",
            "rows_moved",
            "row_versions_wrapped",
            "bucket_evictions",
            "log_overwrites",
            "fingerprint_collisions",
        ];
        for name in names {
            let counters = statistics.iter().flat_map(|server| &server.counters);
            let count = counters.filter(|(other, _)| other == name).map(|(_, count)| *count).sum();
            tally.add(name, count);
        }
    }
    drop(server);
    let unexpected = shared.unexpected.borrow_mut().take();
    let tally = shared.tally.borrow().clone();
    (shared.history(), tally, unexpected)
}

/// Starts a server in a process of its own, and waits until it listens.
fn serve(design: &'static Design, circumstances: &Circumstances) -> SimProcess {
    let (cores, cache_bytes) = (circumstances.cores, circumstances.cache_bytes);
    SimProcess::spawn_keeper(SimHost::add("server", 0), "server", move || {
        let config = ServerConfig {
            design,
            cores,
            // A cache takes all that it may take, or its table, at once.
            memory_bytes: match design.index {
                Index::Lossy => cores * (8 << 20),
                Index::Blocked => cores * (5 << 20),
                _ => 64 << 20,
            },
            region_bytes: 1 << 20,
            cache_bytes,
            value_bytes_max: cache_bytes.map_or(1 << 20, |_| SMALL_VALUE_BYTES_MAX),
            ..ServerConfig::default()
        };
        let server = Server::start(&SimNic::open(), config).expect("a small server starts");
        server.listen(&address()).expect("its address is free");
        server
    })
}

/// Puts the other keys that there are at first.
fn preload(scenario: &Scenario, circumstances: &Circumstances, shared: &Shared) {
    let loaded = client::connect(circumstances, None).and_then(|client| {
        for number in scenario.keys..scenario.keys + circumstances.preloaded {
            client.block_on(client.put(circumstances.key(number), b"filler"))?;
        }
        Ok(())
    });
    if let Err(error) = loaded {
        shared.unexpected(circumstances, "preloading", &error);
    }
}
