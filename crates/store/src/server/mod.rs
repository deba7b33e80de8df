//! The server: cores that own the data, threads that attend to clients' links, and one that reserves memory.

mod attend;
mod config;
mod core;
mod regions;
mod shards;
mod snapshots;
mod wishes;

pub use config::ServerConfig;

use crate::{
    Index, StoreError,
    control::{Manifest, Statistics},
};
use attend::Attendant;
use core::{Core, CoreJob, CoreSetup, JobSender};
use locus_fabric::{Address, FabricError, Link, Listener, Nic};
use locus_index::{blocked, cuckoo, hopscotch, lossy};
use locus_memory::RegionId;
use locus_runtime::{
    channel,
    thread::{self, JoinHandle},
};
use regions::Regions;
use shards::Start;
use snapshots::Snapshots;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// The seed of the key hash. All servers of a store have the same, since clients route keys by the hash.
pub const KEY_HASH_SEED: u64 = 0x10C0_5EED;
/// How long a thread waits before it looks whether the server is to stop.
const LOOK_AROUND: Duration = Duration::from_millis(200);

/// A running server. Stops when dropped.
pub struct Server<N: Nic> {
    shared: Arc<Shared<N>>,
    threads: Vec<JoinHandle>,
    listeners: Mutex<Vec<JoinHandle>>,
}

/// Links by number, each with the thread that attends to it.
type Links<N> = BTreeMap<u64, (<N as Nic>::Link, JoinHandle)>;

/// All that have a link. Whoever has not shown what a client must show takes no client's place.
struct Crowd<N: Nic> {
    clients: Links<N>,
    /// Those who have not said hello yet: as many as there may be clients, since all may come at once. A further one takes the
    /// place of the oldest.
    strangers: Links<N>,
}

impl<N: Nic> Crowd<N> {
    /// Makes a stranger a client. An error says why not.
    fn welcome(&mut self, number: u64, clients_max: usize) -> Result<(), String> {
        if self.clients.len() >= clients_max {
            return Err(format!("the limit of {clients_max} clients is reached"));
        }
        let stranger = self.strangers.remove(&number).ok_or(CROWDED_OUT)?;
        self.clients.insert(number, stranger);
        Ok(())
    }

    fn remove(&mut self, number: u64) {
        self.clients.remove(&number);
        self.strangers.remove(&number);
    }
}

/// What a stranger is told whose place another one took.
const CROWDED_OUT: &str = "more came at once than may be clients, and it had not said hello: try again";

/// What the threads of a server share.
struct Shared<N: Nic> {
    nic: N,
    config: ServerConfig,
    manifest: Manifest,
    regions: Arc<Regions<N>>,
    cores: Vec<JobSender<N>>,
    stopping: AtomicBool,
    crowd: Mutex<Crowd<N>>,
    next_client: AtomicU64,
    /// Clients that were dropped because of what they sent over the link.
    dropped: AtomicU64,
    /// What clients who ask for statistics are told.
    snapshots: Snapshots<Statistics>,
}

impl<N: Nic> Shared<N> {
    fn crowd(&self) -> MutexGuard<'_, Crowd<N>> {
        self.crowd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn statistics(&self) -> Statistics {
        let (region_bytes, pages) = self.regions.summary();
        let mut statistics = Statistics {
            design: self.manifest.design.clone(),
            clients: self.crowd().clients.len() as u64,
            clients_dropped: self.dropped.load(Ordering::Relaxed),
            region_bytes: region_bytes as u64,
            memory_limit_bytes: self.config.memory_bytes as u64,
            pages,
            cpu_ns: cpu_time::ProcessTime::try_now().map_or(0, |time| time.as_duration().as_nanos() as u64),
            process: std::process::id(),
            ..Statistics::default()
        };
        for core in &self.cores {
            let (answer, answered) = channel::channel();
            core.send(CoreJob::Statistics { statistics: statistics.clone(), answer });
            // A core that is stopping adds nothing.
            statistics = answered.receive().unwrap_or(statistics);
        }
        statistics
    }
}

impl<N: Nic> Server<N> {
    /// Reserves the first memory and starts the cores. Nobody can reach the server yet: see [`Server::listen`].
    pub fn start(nic: &N, config: ServerConfig) -> Result<Self, StoreError> {
        config.check()?;
        let regions = Arc::new(Regions::new(nic.clone(), config.pages, config.memory_bytes));
        let (wishes, wished) = channel::channel();
        let incarnation = crate::random()? as u64;
        let mut threads = Vec::new();
        let mut cores = Vec::new();
        let mut directories = Vec::new();
        for core in 0..config.cores {
            let setup = CoreSetup {
                nic: nic.clone(),
                config: config.clone(),
                core,
                seed: KEY_HASH_SEED,
                incarnation,
                regions: regions.clone(),
                wishes: wishes.clone(),
            };
            let (thread, sender, directory) = start_core(setup)?;
            threads.push(thread);
            cores.push(sender);
            directories.push(directory.index() as u16);
        }
        let provisioned = regions.clone();
        threads.push(spawn("locus-memory", move || regions::provision(&provisioned, &wished))?);
        let manifest = Manifest {
            incarnation,
            design: config.design.name.to_owned(),
            request: config.design.request.name(),
            reply: config.design.reply.name(),
            seed: KEY_HASH_SEED,
            map_epoch: 1,
            value_bytes_max: config.value_bytes_max as u32,
            slots: config.shape().map(|shape| (shape.slot_bytes() as u16, shape.neighbourhood() as u8)),
            window: config.window as u16,
            directories,
        };
        let shared = Shared {
            nic: nic.clone(),
            config,
            manifest,
            regions,
            cores,
            stopping: AtomicBool::new(false),
            crowd: Mutex::new(Crowd { clients: BTreeMap::new(), strangers: BTreeMap::new() }),
            next_client: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            snapshots: Snapshots::default(),
        };
        Ok(Self { shared: Arc::new(shared), threads, listeners: Mutex::default() })
    }

    /// Starts to take clients at an address. Gives the address as clients write it.
    pub fn listen(&self, address: &Address) -> Result<Address, StoreError> {
        let listener = self.shared.nic.listen(address)?;
        let address = listener.address();
        let shared = self.shared.clone();
        let thread = spawn("locus-listen", move || {
            while !shared.stopping.load(Ordering::Relaxed) {
                match listener.accept(LOOK_AROUND) {
                    Ok(Some(link)) => attend(&shared, link),
                    Ok(None) => {}
                    // One stranger's failure, or a passing one such as a full descriptor table.
                    Err(_) => {
                        shared.dropped.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_millis(1));
                    }
                }
            }
        })?;
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(address)
    }

    /// A link for a client in this process.
    pub fn attach(&self) -> Result<N::Link, StoreError> {
        let (ours, theirs) = self.shared.nic.pair()?;
        attend(&self.shared, ours);
        Ok(theirs)
    }

    /// Why clients are refused, if the device that they come over is gone.
    pub fn trouble(&self) -> Option<String> {
        self.shared.nic.trouble()
    }

    /// What the server has counted.
    pub fn statistics(&self) -> Statistics {
        self.shared.statistics()
    }
}

impl<N: Nic> Drop for Server<N> {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        // The cores first: the address is free for a successor with the last listener and link, and from then on nothing
        // may be acknowledged here.
        for core in &self.shared.cores {
            core.send(CoreJob::Stop);
        }
        // The provisioner ends with the last core.
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        for listener in self.listeners.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = listener.join();
        }
        let mut crowd = self.shared.crowd();
        let (clients, strangers) = (std::mem::take(&mut crowd.clients), std::mem::take(&mut crowd.strangers));
        drop(crowd);
        for (link, thread) in clients.into_values().chain(strangers.into_values()) {
            link.close();
            let _ = thread.join();
        }
    }
}

/// Starts the thread that attends to a client, who is a stranger yet.
fn attend<N: Nic>(shared: &Arc<Shared<N>>, link: N::Link) {
    let client = shared.next_client.fetch_add(1, Ordering::Relaxed);
    // The table is locked until the entry is complete, so that the thread finds it when it ends.
    let mut crowd = shared.crowd();
    let crowded = crowd.strangers.len() >= shared.config.clients_max;
    let oldest = if crowded { crowd.strangers.pop_first() } else { None };
    let attendant = Attendant::new(shared.clone(), link.clone(), client);
    match spawn("locus-client", move || attendant.run()) {
        Ok(thread) => drop(crowd.strangers.insert(client, (link, thread))),
        Err(error) => attend::refuse(&link, &error.to_string()),
    }
    drop(crowd);
    if let Some((_, (link, _))) = oldest {
        shared.dropped.fetch_add(1, Ordering::Relaxed);
        attend::refuse(&link, CROWDED_OUT);
    }
}

type Started<N> = (JoinHandle, JobSender<N>, RegionId);

/// Starts a core on a thread of its own, for the index of the design.
fn start_core<N: Nic>(setup: CoreSetup<N>) -> Result<Started<N>, StoreError> {
    match setup.config.design.index {
        Index::Cuckoo => start_core_of::<N, cuckoo::Shard>(setup),
        Index::Lossy => start_core_of::<N, lossy::Cache>(setup),
        Index::Blocked => start_core_of::<N, blocked::Hash>(setup),
        Index::Hopscotch | Index::HopscotchInline => start_core_of::<N, hopscotch::Shard>(setup),
    }
}

/// The same for one kind of shard. Everything that a core uses is made on its thread.
fn start_core_of<N: Nic, S: Start<N>>(setup: CoreSetup<N>) -> Result<Started<N>, StoreError> {
    let (ready, started) = channel::channel();
    let thread = spawn("locus-core", move || match Core::<N, S>::new(setup) {
        Ok((core, sender, directory)) => {
            // The starter waits for this.
            let _ = ready.send(Ok((sender, directory)));
            core.run();
        }
        Err(error) => drop(ready.send(Err(error))),
    })?;
    let (sender, directory) = started
        .receive()
        .unwrap_or_else(|_| Err(StoreError::Fabric(FabricError::State("a core ended while it started"))))?;
    Ok((thread, sender, directory))
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle, StoreError> {
    thread::spawn(name, body).map_err(|source| StoreError::System { what: "starting a thread", source })
}
