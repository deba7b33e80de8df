//! A cluster of simulated hosts under a load: servers, clients, what they count, and when.

use super::{
    client::{self, Line},
    row::{Bottleneck, ClusterRow},
};
use crate::Preset;
use hdrhistogram::Histogram;
use locus_bench::{Distribution, Kind, Latency, Workload};
use locus_fabric::{
    Address,
    sim::{
        SimHost, SimNic, SimProcess, SimulationConfig, SimulationError, Steps,
        performance::{Machine, NicUsage},
        simulate,
    },
};
use locus_runtime::{
    channel::{Receiver, Sender, channel},
    thread,
};
use locus_store::{Client, Design, Server, ServerConfig};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

/// The longest latency that is told apart: a second.
const LATENCY_NS_MAX: u64 = 1_000_000_000;
/// The limits of a cluster: beyond them a run takes hours.
const HOSTS_MAX: usize = 1024;
const CLIENTS_MAX: usize = 1 << 14;
const WINDOW_MAX: usize = 32;
const LOADED_BYTES_MAX: u64 = 4 << 30;
/// What a core of a cache has however few the records are.
const CACHE_CORE_BYTES: usize = 64 << 20;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct ClusterBench {
    /// What its machines are.
    pub preset: Preset,
    /// How long the store's own steps take on a processor of factor 1.
    pub steps: Steps,
    /// The design.
    pub design: &'static Design,
    /// Servers, each on a host of its own.
    pub servers: usize,
    /// Cores of each server.
    pub server_cores: usize,
    /// Hosts that clients share.
    pub client_hosts: usize,
    /// Clients, each with a thread of its own.
    pub clients: usize,
    /// Operations outstanding per client.
    pub window: usize,
    /// The mix of operations.
    pub workload: Workload,
    /// Which keys.
    pub distribution: Distribution,
    /// Records of all servers together.
    pub records: u64,
    /// Length of keys, in bytes.
    pub key_bytes: usize,
    /// Length of values, in bytes.
    pub value_bytes: usize,
    /// Virtual time before measuring.
    pub warmup: Duration,
    /// Virtual time measured.
    pub measured: Duration,
    /// Seed of the operations drawn.
    pub seed: u64,
}

/// Why a cluster has no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// It cannot be built as asked.
    #[error("{0}")]
    Impossible(String),
    /// Something failed in it.
    #[error("in the simulated cluster: {0}")]
    Failed(String),
    /// Its world ended early.
    #[error(transparent)]
    World(#[from] SimulationError),
}

impl ClusterBench {
    /// Refuses what cannot be built, with the reason.
    pub fn check(&self) -> Result<(), BenchError> {
        let within = |what: &str, number: usize, most: usize| {
            let fits = (1..=most).contains(&number);
            fits.then_some(()).ok_or_else(|| {
                BenchError::Impossible(format!("{what}: 1 to {most} are possible, not {number}"))
            })
        };
        within("--servers", self.servers, HOSTS_MAX)?;
        within("--server-cores", self.server_cores, 64)?;
        let cores = self.preset.machine.processor.cores;
        if self.server_cores > cores {
            return Err(BenchError::Impossible(format!(
                "--server-cores: a machine of {} has {cores}, not {}",
                self.preset.name, self.server_cores
            )));
        }
        within("--client-hosts", self.client_hosts, HOSTS_MAX)?;
        within("--clients", self.clients, CLIENTS_MAX)?;
        within("--window", self.window, WINDOW_MAX)?;
        if self.workload.mix().insert_percent > 0 {
            return Err(BenchError::Impossible(format!(
                "workload {} inserts records, which simulated clients do not (yet): a, b, c and f are possible",
                self.workload
            )));
        }
        if self.records == 0 || self.measured.is_zero() {
            return Err(BenchError::Impossible("--records and the time measured begin above zero".into()));
        }
        let bytes = self.records.saturating_mul((self.key_bytes + self.value_bytes) as u64);
        if bytes > LOADED_BYTES_MAX {
            return Err(BenchError::Impossible(format!(
                "--records: {} of {} bytes each are more than the {} GiB that a simulation loads at most",
                self.records,
                self.key_bytes + self.value_bytes,
                LOADED_BYTES_MAX >> 30
            )));
        }
        Ok(())
    }
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Clients load, look where the tables are, and warm up.
    Beginning,
    Measuring,
    Done,
}

/// What the processes of a cluster share with its judge, who is on no host.
#[derive(Clone)]
pub(super) struct Shared(Rc<Books>);

struct Books {
    phase: Cell<Phase>,
    operations: Cell<u64>,
    gets: Cell<u64>,
    errors: Cell<u64>,
    misses: Cell<u64>,
    histogram: RefCell<Histogram<u64>>,
    /// READs, gets and failed verifications from the time on that is measured.
    reads: Cell<u64>,
    all_gets: Cell<u64>,
    retries: Cell<u64>,
}

fn add(cell: &Cell<u64>, count: u64) {
    cell.set(cell.get() + count);
}

impl Shared {
    fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are constants");
        Self(Rc::new(Books {
            phase: Cell::new(Phase::Beginning),
            operations: Cell::default(),
            gets: Cell::default(),
            errors: Cell::default(),
            misses: Cell::default(),
            histogram: RefCell::new(histogram),
            reads: Cell::default(),
            all_gets: Cell::default(),
            retries: Cell::default(),
        }))
    }

    pub(super) fn phase(&self) -> Phase {
        self.0.phase.get()
    }

    /// An operation has ended.
    pub(super) fn ended(&self, latency_ns: u64, kind: Kind, went_well: bool) {
        if self.phase() != Phase::Measuring {
            return;
        }
        add(&self.0.operations, 1);
        add(&self.0.gets, u64::from(kind != Kind::Put));
        add(&self.0.errors, u64::from(!went_well));
        self.0.histogram.borrow_mut().saturating_record(latency_ns.max(1));
    }

    /// A get found nothing, which only a cache may do.
    pub(super) fn missed(&self) {
        if self.phase() == Phase::Measuring {
            add(&self.0.misses, 1);
        }
    }

    /// Adds what a client has counted since it had counted so much.
    pub(super) fn add_effort(&self, now: &Effort, before: &Effort) {
        add(&self.0.reads, now.reads - before.reads);
        add(&self.0.retries, now.retries - before.retries);
        add(&self.0.all_gets, now.gets - before.gets);
    }
}

/// What a client has counted since it was made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Effort {
    reads: u64,
    retries: u64,
    gets: u64,
}

impl Effort {
    pub(super) fn of(client: &Client<SimNic>) -> Self {
        let effort = client.effort();
        Self {
            reads: effort.rows_read.get()
                + effort.rows_read_again.get()
                + effort.extents_read.get()
                + effort.entries_read.get(),
            retries: effort.rows_unverified.get() + effort.extents_unverified.get(),
            gets: client.counters().gets.get(),
        }
    }
}

/// Where the n-th server listens.
pub(super) fn address(number: usize) -> Address {
    Address::Sim(format!("server-{number}"))
}

/// Runs a cluster.
pub fn run(config: &ClusterBench) -> Result<ClusterRow, BenchError> {
    config.check()?;
    let asked = config.clone();
    let steps = config.steps.scaled(config.preset.machine.processor.factor);
    let longest = PATIENCE + config.warmup + config.measured;
    let virtual_ns_max = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    let world = SimulationConfig { seed: config.seed, steps, virtual_ns_max, ..SimulationConfig::default() };
    let outcome = simulate(world, move || play(&asked))?;
    outcome.value
}

/// Virtual time that servers and clients may take to load, to find the tables and to end.
const PATIENCE: Duration = Duration::from_secs(180);

fn play(config: &ClusterBench) -> Result<ClusterRow, BenchError> {
    let shared = Shared::new();
    let servers: Vec<(SimHost, SimProcess)> =
        (0..config.servers).map(|number| serve(config, number)).collect();
    let machine = &config.preset.machine;
    let hosts: Vec<SimHost> = (0..config.client_hosts)
        .map(|number| SimHost::add_machine(&format!("client {number}"), machine))
        .collect();
    let (report, reports) = channel();
    let (clients, go_on): (Vec<SimProcess>, Vec<Sender<()>>) = (0..config.clients)
        .map(|number| {
            let (config, shared, report) = (config.clone(), shared.clone(), report.clone());
            let (sender, go_on) = channel();
            let line = Line { report, go_on };
            let host = hosts[number % hosts.len()];
            let main = move || client::main(&config, number, &shared, &line);
            (SimProcess::spawn_on(host, "client", main), sender)
        })
        .unzip();
    // Clients have loaded, and then found the tables.
    for _ in 0..2 {
        hear_from_all(config.clients, &reports)?;
        for client in &go_on {
            // It waits for this, unless it panicked, which ends the world.
            let _ = client.send(());
        }
    }
    thread::sleep(config.warmup);
    let before = Usage::of(&servers, &hosts);
    shared.0.phase.set(Phase::Measuring);
    thread::sleep(config.measured);
    shared.0.phase.set(Phase::Done);
    let used = Usage::of(&servers, &hosts).since(&before);
    hear_from_all(config.clients, &reports)?;
    clients.iter().for_each(SimProcess::join);
    Ok(row(config, &shared.0, &used))
}

/// Waits until all clients have reported the end of a phase, or one a failure.
fn hear_from_all(clients: usize, reports: &Receiver<Result<(), String>>) -> Result<(), BenchError> {
    for _ in 0..clients {
        let report = reports.receive().unwrap_or_else(|gone| Err(gone.to_string()));
        report.map_err(BenchError::Failed)?;
    }
    Ok(())
}

/// What a server may reserve. An index that takes all of it at once takes as much as with `locus bench`, in proportion: twice
/// what its records need, and something for each core.
fn memory_bytes(config: &ClusterBench) -> usize {
    let record_bytes = config.key_bytes + config.value_bytes + 24;
    match config.design.index.forgets() {
        true => config.records as usize * (2 * record_bytes + 256) + config.server_cores * CACHE_CORE_BYTES,
        false => 16 << 30,
    }
}

/// Starts the n-th server on a host of its own, and waits until it listens.
fn serve(config: &ClusterBench, number: usize) -> (SimHost, SimProcess) {
    let mut machine = Machine::clone(&config.preset.machine);
    machine.processor.cores = config.server_cores;
    let host = SimHost::add_machine(&format!("server {number}"), &Arc::new(machine));
    let server = ServerConfig {
        design: config.design,
        cores: config.server_cores,
        memory_bytes: memory_bytes(config),
        region_bytes: 4 << 20,
        clients_max: 1 << 16,
        window: config.window.max(ServerConfig::default().window),
        ..ServerConfig::default()
    };
    let process = SimProcess::spawn_keeper(host, "server", move || {
        let server = Server::start(&SimNic::open(), server).expect("a server starts");
        server.listen(&address(number)).expect("its address is free");
        server
    });
    (host, process)
}

/// What the hosts have worked.
struct Usage {
    servers_ns: u64,
    clients_ns: u64,
    /// How long each resource of all servers' NICs was in use, by name.
    nics: Vec<(&'static str, u64)>,
    /// How often the state of a queue pair was at hand in the servers' NICs, and how often not.
    contexts: (u64, u64),
}

impl Usage {
    fn of(servers: &[(SimHost, SimProcess)], clients: &[SimHost]) -> Self {
        let mut usage = Self { servers_ns: 0, clients_ns: 0, nics: Vec::new(), contexts: (0, 0) };
        for (host, _) in servers {
            usage.servers_ns += host.cores_busy_ns().iter().sum::<u64>();
            usage.add_nic(&host.nic_usage().expect("a machine has a NIC"));
        }
        usage.clients_ns = clients.iter().map(|host| host.busy_ns()).sum();
        usage
    }

    fn add_nic(&mut self, nic: &NicUsage) {
        for (name, busy_ns) in &nic.busy_ns {
            match self.nics.iter_mut().find(|(other, _)| other == name) {
                Some((_, sum)) => *sum += busy_ns,
                None => self.nics.push((name, *busy_ns)),
            }
        }
        for (hits, misses) in [nic.requester_contexts, nic.responder_contexts] {
            self.contexts.0 += hits;
            self.contexts.1 += misses;
        }
    }

    fn since(self, before: &Self) -> Self {
        let nics = self.nics.iter().zip(&before.nics).map(|((name, now), (_, then))| (*name, now - then));
        Self {
            servers_ns: self.servers_ns - before.servers_ns,
            clients_ns: self.clients_ns - before.clients_ns,
            nics: nics.collect(),
            contexts: (self.contexts.0 - before.contexts.0, self.contexts.1 - before.contexts.1),
        }
    }
}

fn row(config: &ClusterBench, books: &Books, used: &Usage) -> ClusterRow {
    let seconds = config.measured.as_secs_f64();
    let operations = books.operations.get();
    let each = |count: f64, of: u64| if of == 0 { 0.0 } else { count / of as f64 };
    let machine_ns = config.servers as f64 * config.measured.as_nanos() as f64;
    let mut utilisation =
        vec![("cores".to_owned(), used.servers_ns as f64 / (machine_ns * config.server_cores as f64))];
    utilisation.extend(used.nics.iter().map(|(name, ns)| ((*name).to_owned(), *ns as f64 / machine_ns)));
    let (hits, misses) = used.contexts;
    ClusterRow {
        design: config.design.name.to_owned(),
        fabric: format!("sim:{}", config.preset.name),
        workload: config.workload.to_string(),
        distribution: config.distribution.to_string(),
        records: config.records,
        key_bytes: config.key_bytes,
        value_bytes: config.value_bytes,
        servers: config.servers,
        server_cores: config.server_cores,
        client_hosts: config.client_hosts,
        clients: config.clients,
        window: config.window,
        seconds,
        operations,
        ops_per_second: operations as f64 / seconds,
        latency_ns: Latency::of(&books.histogram.borrow()),
        server_cpu_ns_per_op: each(used.servers_ns as f64, operations),
        client_cpu_ns_per_op: each(used.clients_ns as f64, operations),
        reads_per_get: each(books.reads.get() as f64, books.all_gets.get()),
        retries_per_op: each(books.retries.get() as f64, books.all_gets.get()),
        errors: books.errors.get(),
        misses: books.misses.get(),
        context_misses: each(misses as f64, hits + misses),
        bottleneck: Bottleneck::of(&utilisation),
        utilisation,
    }
}
