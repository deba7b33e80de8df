//! The client: routes each operation to the server and core that owns its key, and runs it where the design says.
//!
//! A client belongs to the thread that made it. Its futures poll the fabric themselves when they are polled, so any
//! executor of that thread can run them; [`Client::block_on`] does so and idles in between.

mod at_once;
mod backoff;
mod config;
mod connection;
mod counters;
mod raw;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use config::ClientConfig;
pub use counters::ClientCounters;
pub use raw::RawReads;
pub use read::Overlap;

use crate::{
    Design, Index, Locus, PartitionMap, StoreError,
    control::{Manifest, Statistics},
};
use backoff::Backoff;
use connection::Connection;
use counters::count;
use locus_fabric::{Address, Nic, Work};
use locus_index::{Counters, Key, PartitionId, hopscotch::Shape};
use locus_rpc::{Call, Hub, RpcError, Step};
use locus_runtime::{Clock, Idle, MonotonicClock, Park, block_on};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::Duration,
};

/// How many new connections one call may go on over.
const RESUMES_MAX: u32 = 8;
/// How many work requests all channels of a client may have outstanding together.
const HUB_DEPTH: usize = 1 << 13;

/// A client of one or more servers.
pub struct Client<N: Nic> {
    /// What this core's channels complete on, and what it sleeps on.
    hub: Hub<N>,
    config: ClientConfig,
    servers: Vec<Server<N>>,
    map: PartitionMap,
    seed: u64,
    index: Index,
    /// What slots are like, where keys are found by a hopscotch table.
    shape: Option<Shape>,
    reads: Locus,
    /// Whether the fabric carries out READs at once.
    reads_at_once: bool,
    scratch: at_once::Scratch,
    clock: MonotonicClock,
    idle: RefCell<Idle>,
    /// How many [`Overlap`]s are alive.
    overlapping: Cell<usize>,
    counters: ClientCounters,
    effort: Counters,
}

/// A server as the client knows it.
struct Server<N: Nic> {
    /// None where the server is in this process.
    address: Option<Address>,
    connection: RefCell<Option<Rc<Connection<N>>>>,
    /// What it said of itself at first. A successor must be alike: the map of partitions rests on it.
    manifest: Manifest,
    /// When to try to connect again.
    backoff: Backoff,
}

impl<N: Nic> Client<N> {
    /// Connects with all servers of a store. The order of the addresses decides which server has which keys: all
    /// clients of the store must give the same.
    pub fn connect(nic: &N, addresses: &[Address], config: ClientConfig) -> Result<Self, StoreError> {
        let links = addresses.iter().map(|address| Ok((nic.connect(address)?, Some(address.clone()))));
        Self::over(nic, links.collect::<Result<_, StoreError>>()?, config)
    }

    /// A client of a server in this process, over a link that the server has taken the other end of.
    pub fn attach(nic: &N, link: N::Link, config: ClientConfig) -> Result<Self, StoreError> {
        Self::over(nic, vec![(link, None)], config)
    }

    fn over(
        nic: &N,
        links: Vec<(N::Link, Option<Address>)>,
        config: ClientConfig,
    ) -> Result<Self, StoreError> {
        if links.is_empty() || links.len() > crate::SERVERS_MAX {
            let limit = crate::SERVERS_MAX;
            return Err(StoreError::Config(format!("a store has 1 to {limit} servers, not {}", links.len())));
        }
        let hub = Hub::new(nic, HUB_DEPTH.min(nic.properties().completions_max))?;
        let mut servers = Vec::with_capacity(links.len());
        let mut manifests = Vec::with_capacity(links.len());
        for (link, address) in links {
            let connection = Connection::open(&hub, link, &config, None)?;
            let manifest = connection.manifest.clone();
            manifests.push(manifest.clone());
            servers.push(Server {
                address,
                manifest,
                connection: RefCell::new(Some(Rc::new(connection))),
                backoff: Backoff::new(crate::random()? as u64),
            });
        }
        let first = &manifests[0];
        let unlike = |other: &&Manifest| {
            other.seed != first.seed || other.design != first.design || other.slots != first.slots
        };
        if let Some(other) = manifests.iter().find(unlike) {
            return Err(StoreError::Config(format!(
                "the servers do not belong together: one serves {} with seed {:x}, another {} with seed {:x}",
                first.design, first.seed, other.design, other.seed
            )));
        }
        let design = Design::find(&first.design)
            .ok_or_else(|| StoreError::Config(format!("this release has no design {:?}", first.design)))?;
        let reads = config.reads.unwrap_or(design.reads);
        if let Some(reason) = design.index.refuses(reads) {
            return Err(StoreError::Config(format!("the servers serve {}, and {reason}", design.name)));
        }
        let cores: Vec<u16> = manifests.iter().map(|manifest| manifest.directories.len() as u16).collect();
        Ok(Self {
            hub,
            map: PartitionMap::even(&cores),
            seed: first.seed,
            index: design.index,
            shape: connection::shape(first),
            reads,
            reads_at_once: nic.properties().reads_at_once,
            scratch: at_once::Scratch::default(),
            servers,
            config,
            clock: MonotonicClock::new(),
            idle: RefCell::default(),
            overlapping: Cell::new(0),
            counters: ClientCounters::default(),
            effort: Counters::default(),
        })
    }

    /// Runs a future of this client to its end on this thread, idling while it waits.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.with_idle(|idle| block_on(future, self, idle))
    }

    #[inline]
    fn with_idle<T>(&self, run: impl FnOnce(&mut Idle) -> T) -> T {
        // A nested call would find the idle state in use, and makes its own.
        match self.idle.try_borrow_mut() {
            Ok(mut idle) => run(&mut idle),
            Err(_) => run(&mut Idle::default()),
        }
    }

    /// The statistics of every server.
    pub fn statistics(&self) -> Result<Vec<Statistics>, StoreError> {
        (0..self.servers.len()).map(|server| self.connection(server)?.statistics()).collect()
    }

    /// What this client's operations have counted.
    pub fn counters(&self) -> &ClientCounters {
        &self.counters
    }

    /// What this client's traversals have counted.
    pub fn effort(&self) -> &Counters {
        &self.effort
    }

    /// How many requests this client's channels have sent, repeated ones included, and replies received; over connections
    /// that are there. The second number is of the requests that were sent again.
    pub fn messages(&self) -> (u64, u64) {
        let mut sum = (0, 0);
        for server in &self.servers {
            let connection = server.connection.borrow();
            for counters in connection.iter().flat_map(|connection| connection.channel_counters()) {
                sum.0 += counters.requests
                    + counters.replies
                    + counters.unclaimed_replies
                    + counters.foreign_replies;
                sum.1 += counters.resent + counters.repeated;
            }
        }
        sum
    }

    /// Where gets run.
    pub fn reads(&self) -> Locus {
        self.reads
    }

    /// The longest value that the servers take, in bytes.
    pub fn value_bytes_max(&self) -> Result<usize, StoreError> {
        Ok(self.connection(0)?.manifest.value_bytes_max as usize)
    }

    #[inline(always)]
    fn key<'k>(&self, key: &'k [u8]) -> Result<Key<'k>, StoreError> {
        if key.is_empty() || key.len() > locus_index::KEY_BYTES_MAX {
            return Err(StoreError::KeyLength(key.len()));
        }
        N::charge(Work::Hash(key.len()));
        Ok(Key::new(key, self.seed))
    }

    /// The connection to the server that has a partition.
    #[inline]
    fn connection_of(&self, partition: PartitionId) -> Result<Rc<Connection<N>>, StoreError> {
        let server = if self.servers.len() == 1 { 0 } else { self.map.owner(partition).server };
        self.connection(server.into())
    }

    /// The connection to a server: the one there is, or, if it was lost, a new one. One attempt, and none within the
    /// pause after a failed one.
    #[inline]
    fn connection(&self, server: usize) -> Result<Rc<Connection<N>>, StoreError> {
        if let Some(connection) = &*self.servers[server].connection.borrow() {
            return Ok(connection.clone());
        }
        self.reconnect(server)
    }

    #[cold]
    fn reconnect(&self, number: usize) -> Result<Rc<Connection<N>>, StoreError> {
        let server = &self.servers[number];
        let peer = || {
            server.address.as_ref().map_or_else(|| "the server in this process".into(), Address::to_string)
        };
        if server.backoff.pauses(self.clock.now_ns()) {
            return Err(StoreError::ServerLost { peer: peer() });
        }
        self.open_again(server, None)
    }

    /// Connects again with a server. A failure begins a pause.
    fn open_again(
        &self,
        server: &Server<N>,
        lost: Option<&Connection<N>>,
    ) -> Result<Rc<Connection<N>>, StoreError> {
        let opened = self.try_again(server, lost);
        match &opened {
            Ok(_) => server.backoff.succeeded(),
            Err(_) => server.backoff.failed(self.clock.now_ns(), self.config.reconnect_pause_max),
        }
        opened
    }

    fn try_again(
        &self,
        server: &Server<N>,
        lost: Option<&Connection<N>>,
    ) -> Result<Rc<Connection<N>>, StoreError> {
        let Some(address) = &server.address else {
            return Err(StoreError::ServerLost { peer: "the server in this process".into() });
        };
        let link = self.hub.nic().connect(address)?;
        let connection = Connection::open(&self.hub, link, &self.config, lost)?;
        let (was, is) = (&server.manifest, &connection.manifest);
        if was.seed != is.seed
            || was.directories.len() != is.directories.len()
            || was.design != is.design
            || was.slots != is.slots
        {
            return Err(StoreError::Config(format!(
                "{address} came back as another store ({} with {} cores and seed {:x}, before {} with {} and {:x}): connect anew",
                is.design,
                is.directories.len(),
                is.seed,
                was.design,
                was.directories.len(),
                was.seed
            )));
        }
        count(&self.counters.reconnects);
        let connection = Rc::new(connection);
        *server.connection.borrow_mut() = Some(connection.clone());
        Ok(connection)
    }

    /// Takes a step of a call over a channel. If the server is lost meanwhile but can be reached again at once, the call
    /// goes on there, executed at most once; otherwise it ends, as all calls over the channel do.
    #[inline(always)]
    fn step(
        &self,
        server: u16,
        connection: &Rc<Connection<N>>,
        call: &mut Call<'_, N>,
        resumes: &mut u32,
    ) -> Poll<Result<(), Box<StoreError>>> {
        let mut step = call.step();
        if let Step::Lost = step {
            self.resume_call(server, connection, resumes);
            step = call.step();
        }
        match step {
            Step::Waits | Step::Lost => Poll::Pending,
            Step::Answered => Poll::Ready(Ok(())),
            Step::Ended(error) => Poll::Ready(Err(ended(connection, error))),
        }
    }

    /// Takes steps of a call until it is answered, idling in between: what [`Client::block_on`] does with the future of a
    /// call, where there is no future to be made and moved.
    #[inline]
    fn wait_for(
        &self,
        server: u16,
        connection: &Rc<Connection<N>>,
        call: &mut Call<'_, N>,
    ) -> Result<(), Box<StoreError>> {
        self.with_idle(|idle| {
            let mut resumes = 0;
            idle.reset();
            loop {
                match self.step(server, connection, call, &mut resumes) {
                    Poll::Ready(result) => return result,
                    Poll::Pending => drop(idle.step(self)),
                }
            }
        })
    }

    #[cold]
    fn resume_call(&self, server: u16, connection: &Rc<Connection<N>>, resumes: &mut u32) {
        if *resumes < RESUMES_MAX {
            *resumes += 1;
            self.resume(server.into(), connection);
        } else {
            connection.close_channels();
        }
    }

    #[cold]
    fn resume(&self, server: usize, lost: &Rc<Connection<N>>) {
        self.lose(server, lost);
        if self.open_again(&self.servers[server], Some(lost)).is_err() {
            lost.close_channels();
        }
    }

    /// Forgets a connection that was lost, unless there is a newer one.
    fn lose(&self, server: usize, lost: &Rc<Connection<N>>) {
        let mut connection = self.servers[server].connection.borrow_mut();
        if connection.as_ref().is_some_and(|current| Rc::ptr_eq(current, lost)) {
            *connection = None;
        }
    }
}

/// Sleeps until an answer or a READ of this client arrives, whichever server it is from.
impl<N: Nic> Park for Client<N> {
    fn prepare(&self) -> bool {
        for server in &self.servers {
            if let Some(connection) = &*server.connection.borrow() {
                connection.remote.ring();
            }
        }
        self.hub.prepare()
    }

    fn park(&self, timeout: Duration) {
        self.hub.park(timeout);
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.hub.waker()
    }
}

/// The error that a call ended with. In a box: results as large as an error would be moved whole at every step of a call.
#[cold]
fn ended<N: Nic>(connection: &Connection<N>, error: RpcError) -> Box<StoreError> {
    Box::new(read::rpc_error(connection, error))
}

/// The error for a status that does not answer the request.
#[cold]
fn bad_reply(status: u8) -> StoreError {
    StoreError::Protocol { peer: "the server".into(), what: format!("it answered with status {status}") }
}
