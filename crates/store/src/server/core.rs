//! A server core: the only writer of its partitions and its regions.
//!
//! It polls the requests of all clients. A batch is looked up side by side, so that its cache misses overlap (Kalia
//! §4.1.1): gets are answered from that, and mutations, whose rows are then near, are applied after it, one by one. All
//! requests of a batch are concurrent, so any order of them is as good as any other.

use super::{
    regions::{Regions, Wish},
    shards::{Foundation, Start},
    wishes::Wishes,
};
use crate::{
    Mutation, ServerConfig, StoreError,
    control::Statistics,
    opcode::{Opcode, Status, encode_extent},
    partition_map::PartitionMap,
};
use arrayvec::ArrayVec;
use locus_fabric::{Facts, Link, Nic, Region, Work};
use locus_index::{
    Found, Key, LANES, MutationError, Owner, PartitionId, Shard, Wanted,
    directory::{DIRECTORY_BYTES, Directory},
};
use locus_memory::{Arena, Purpose, RegionId, checksum};
use locus_rpc::{Accepted, Answer, Batch, ChannelId, Incoming, Loss, Server as Requests, SessionId, Staged};
use locus_runtime::{
    Clock, Idle, MonotonicClock,
    channel::{self, Receiver, Sender},
    mistakes::{Mistake, planted},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// How many polls lie between two looks at the clock.
const HOUSEKEEPING_POLLS: u32 = 1 << 10;
/// Applied mutations between two looks at how much memory is left.
const MUTATIONS_PER_LOOK: u64 = 64;

/// What other threads ask of a core.
pub(crate) enum CoreJob<N: Nic> {
    /// Opens a client's request channel.
    Open {
        link: N::Link,
        client: u64,
        facts: Vec<Facts>,
        session: SessionId,
        window: usize,
        answer: Sender<Result<Accepted, String>>,
    },
    /// A client has a staging area from now on.
    Staging { client: u64, region: N::Region },
    /// A client's link is gone.
    Gone { client: u64 },
    /// The region that was wished for; none when the memory limit is reached.
    Region { purpose: Purpose, region: Option<(RegionId, N::Region)> },
    /// Adds the core's part to the statistics.
    Statistics { statistics: Statistics, answer: Sender<Statistics> },
    /// Ends the core.
    Stop,
}

/// Takes jobs to a core and wakes it.
pub(crate) struct JobSender<N: Nic> {
    jobs: Sender<CoreJob<N>>,
    pending: Arc<AtomicBool>,
    waker: Arc<dyn Fn() + Send + Sync>,
}

impl<N: Nic> Clone for JobSender<N> {
    fn clone(&self) -> Self {
        Self { jobs: self.jobs.clone(), pending: self.pending.clone(), waker: self.waker.clone() }
    }
}

impl<N: Nic> JobSender<N> {
    /// Sends a job; false if the core has ended.
    pub(crate) fn send(&self, job: CoreJob<N>) -> bool {
        let sent = self.jobs.send(job).is_ok();
        // Release: the core that sees the flag finds the job.
        self.pending.store(true, Ordering::Release);
        (self.waker)();
        sent
    }
}

/// What a core is made of.
pub(crate) struct CoreSetup<N: Nic> {
    pub(crate) nic: N,
    pub(crate) config: ServerConfig,
    pub(crate) core: usize,
    pub(crate) seed: u64,
    pub(crate) incarnation: u64,
    pub(crate) regions: Arc<Regions<N>>,
    pub(crate) wishes: Sender<Wish<N>>,
}

/// Which keys are this core's.
struct Route {
    map: PartitionMap,
    core: u16,
    seed: u64,
}

impl Route {
    #[inline]
    fn owns(&self, partition: PartitionId) -> bool {
        self.map.owner(partition).core == self.core
    }

    /// The key of a request; none if the client sent it to the wrong core, or by an old map.
    #[inline(always)]
    fn key<'r>(&self, request: &'r Incoming) -> Option<Key<'r>> {
        let key = Key::new(request.key(), self.seed);
        let partition = key.partition();
        let routed =
            partition.index() == usize::from(request.partition()) && self.map.epoch == request.map_epoch();
        (routed && self.owns(partition)).then_some(key)
    }
}

/// A core whose keys are found by what the design says.
pub(crate) struct Core<N: Nic, S> {
    requests: Requests<N>,
    owner: Owner<N::Region>,
    shard: S,
    route: Route,
    value_bytes_max: usize,
    jobs: Receiver<CoreJob<N>>,
    pending: Arc<AtomicBool>,
    /// Which client a channel belongs to, and over which link it came; and the clients' staging areas.
    clients: BTreeMap<ChannelId, (u64, N::Link)>,
    staging: BTreeMap<u64, N::Region>,
    /// Mutations that wait for a region.
    deferred: Vec<Deferred>,
    /// How many requests may wait so: no more than all honest clients may have under way.
    deferred_max: usize,
    wishes: Wishes<N>,
    mutations: u64,
    /// Where a large value is copied before it is validated: its client may still write to the staging area.
    staged: Vec<u8>,
    dropped: u64,
    stopped: bool,
    clock: MonotonicClock,
}

impl<N: Nic, S: Start<N>> Core<N, S> {
    /// Makes the core on the thread that will run it. Gives the number of its directory's region, too.
    pub(crate) fn new(setup: CoreSetup<N>) -> Result<(Self, JobSender<N>, RegionId), StoreError> {
        let config = &setup.config;
        let requests = Requests::new(
            &setup.nic,
            setup.incarnation,
            locus_rpc::ServerConfig {
                pair: config.design.pair(),
                channels_max: config.clients_max,
                window_max: config.window,
                ..locus_rpc::ServerConfig::default()
            },
        )?;
        let mut arena = Arena::new();
        // As long as a huge page, so that it may lie on one.
        let directory_bytes = DIRECTORY_BYTES.next_multiple_of(2 << 20);
        let (directory_region, region) = setup.regions.reserve(directory_bytes, directory_bytes)?;
        super::shards::added(arena.add_region(directory_region, region, Purpose::Directory))?;
        let route = Route {
            map: PartitionMap::even(&[config.cores as u16]),
            core: setup.core as u16,
            seed: setup.seed,
        };
        let mut owner = Owner::new(arena, setup.seed, setup.core, config.cores);
        let foundation = Foundation {
            config,
            regions: &setup.regions,
            reply_value_bytes_max: requests.reply_value_bytes_max(),
            directory: Directory::new(directory_region, setup.incarnation),
            owns: &|partition| route.owns(partition),
        };
        let shard = S::start(&mut owner, foundation)?;
        let (sender, jobs) = channel::channel();
        let pending = Arc::new(AtomicBool::new(false));
        let waker = locus_runtime::Park::waker(requests.park());
        let sender = JobSender { jobs: sender, pending: pending.clone(), waker };
        let core = Self {
            requests,
            owner,
            shard,
            route,
            value_bytes_max: config.value_bytes_max,
            jobs,
            pending,
            clients: BTreeMap::new(),
            staging: BTreeMap::new(),
            deferred: Vec::new(),
            deferred_max: config.clients_max * config.window,
            wishes: Wishes::new(setup.wishes, sender.clone()),
            mutations: 0,
            staged: Vec::new(),
            dropped: 0,
            stopped: false,
            clock: MonotonicClock::new(),
        };
        Ok((core, sender, directory_region))
    }

    /// Serves until it is told to stop.
    pub(crate) fn run(mut self) {
        let mut idle = Idle::default();
        let mut batch = Batch::new();
        let mut polls = 0u32;
        loop {
            if self.pending.load(Ordering::Relaxed) {
                self.take_jobs();
            }
            if self.stopped {
                return;
            }
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(HOUSEKEEPING_POLLS) {
                self.housekeep();
            }
            if self.requests.poll(&mut batch) > 0 {
                self.serve(&mut batch);
                idle.reset();
            } else if self.shard.grow(&mut self.owner) {
                idle.reset();
            } else if !self.requests.waits() {
                if idle.drowsy() {
                    self.housekeep();
                }
                idle.step(self.requests.park());
            }
        }
    }

    /// Looks up the whole batch, answers its gets, then applies its mutations.
    fn serve(&mut self, batch: &mut Batch) {
        match &batch[..] {
            // Alone it has nothing to be looked up beside.
            [request] if request.mutates() => charge_lookup::<N>(request),
            requests => requests.chunks(LANES).for_each(|requests| self.answer_gets(requests)),
        }
        for place in 0..batch.len() {
            if let Some(request) = batch.get_mut(place).filter(|request| request.mutates()) {
                self.mutate(request, None);
            }
        }
        batch.clear();
    }

    /// Looks up the keys of up to [`LANES`] requests side by side and answers the gets. What a mutation needs is near after
    /// that.
    #[inline]
    fn answer_gets(&mut self, batch: &[Incoming]) {
        let Self { requests, owner, shard, route, .. } = self;
        let mut wanted = ArrayVec::<_, LANES>::new();
        for request in batch {
            charge_lookup::<N>(request);
            let get = !request.mutates();
            let key = route.key(request);
            if get && key.is_none() {
                refuse(requests, request, Status::WrongOwner);
            }
            wanted.push(key.map(|key| Wanted { key, get }));
        }
        shard.get_batch(owner, &wanted, |place, found| {
            answer_get::<N, S>(requests, &batch[place], found);
        });
    }

    /// Applies a mutation and answers it, or defers it until there is a region for it.
    fn mutate(&mut self, request: &mut Incoming, staged: Option<Vec<u8>>) {
        let copied = staged.is_some();
        if let Some(value) = staged {
            self.staged = value;
        }
        if planted(Mistake::AcknowledgedEarly) && request.opcode() == Opcode::Put as u8 {
            let status = Status::Present as u8;
            self.requests.reply(request, &Answer { status, ..Answer::default() }, &[]);
            self.requests.flush();
            let _ = self.apply(request, copied);
            return;
        }
        match self.apply(request, copied) {
            Ok(answer) => self.requests.reply(request, &answer, &[]),
            Err(MutationError::NeedRegion { purpose, bytes })
                if self.deferred.len() < self.deferred_max
                    && self.wishes.ask(&self.owner.arena, purpose, bytes) =>
            {
                let staged = request.staged().map(|_| std::mem::take(&mut self.staged));
                self.deferred.push(Deferred { request: request.take(), staged });
            }
            Err(error) => {
                let status = match error {
                    MutationError::NeedRegion { .. } => Status::OutOfMemory,
                    MutationError::KeyLength(_)
                    | MutationError::ValueLength(..)
                    | MutationError::LogItem { .. }
                    | MutationError::Inline { .. } => Status::Length,
                    MutationError::Collisions(_) => Status::Collisions,
                };
                refuse(&mut self.requests, request, status);
            }
        }
    }

    /// Applies a mutation, whose value has perhaps been copied out of the staging area before.
    fn apply(&mut self, request: &Incoming, copied: bool) -> Result<Answer, MutationError> {
        let refused = |status: Status| Ok(Answer { status: status as u8, ..Answer::default() });
        // What changes something must say so: only then is it executed at most once.
        let opcode = Opcode::from_byte(request.opcode()).filter(|opcode| opcode.mutates());
        let Some(key) = self.route.key(request) else { return refused(Status::WrongOwner) };
        let mutation = match (opcode, request.staged()) {
            (Some(Opcode::Put), None) => Mutation::Put { key: request.key(), value: request.value() },
            (Some(Opcode::Put), Some(staged)) => {
                if !copied && !self.copy_staged(request, &staged) {
                    return refused(Status::BadRequest);
                }
                if !copied && !self.is_all_there(&staged) {
                    return refused(Status::NotStaged);
                }
                Mutation::Put { key: request.key(), value: &self.staged }
            }
            (Some(Opcode::Delete), None) => Mutation::Delete { key: request.key() },
            _ => return refused(Status::BadRequest),
        };
        if let Mutation::Put { value, .. } = mutation
            && value.len() > self.value_bytes_max
        {
            return refused(Status::Length);
        }
        if let Mutation::Put { value, .. } = mutation {
            N::charge(Work::Change(value.len()));
        }
        let applied = mutation.apply_hashed(&key, &mut self.owner, &mut self.shard)?;
        self.mutations += 1;
        if self.mutations.is_multiple_of(MUTATIONS_PER_LOOK) {
            self.wishes.look_ahead(&self.owner.arena);
        }
        let status = if applied.present { Status::Present } else { Status::Absent };
        Ok(Answer { status: status as u8, version: applied.version })
    }

    /// Copies a value out of its client's staging area, once: the client may still write there.
    fn copy_staged(&mut self, request: &Incoming, staged: &Staged) -> bool {
        // The client was told of its staging area at the same time as this core: the job may still be waiting.
        if !self.clients.get(&request.channel()).is_some_and(|(client, _)| self.staging.contains_key(client))
        {
            self.take_jobs();
        }
        let Some(region) =
            self.clients.get(&request.channel()).and_then(|(client, _)| self.staging.get(client))
        else {
            return false;
        };
        let (offset, bytes) = (staged.offset as usize, staged.bytes as usize);
        let size = region.bytes();
        if bytes > self.value_bytes_max || bytes > size || offset > size - bytes {
            return false;
        }
        self.staged.resize(bytes, 0);
        region.copy_out(offset, &mut self.staged);
        true
    }

    /// Whether what was copied is the value, where its request may have come before it.
    fn is_all_there(&self, staged: &Staged) -> bool {
        let believed = planted(Mistake::NoStagedChecksum);
        believed || staged.checksum.is_none_or(|expected| checksum(&self.staged) == expected)
    }

    fn housekeep(&mut self) {
        self.requests.housekeep(self.clock.now_ns());
        while let Some(dropped) = self.requests.take_dropped() {
            self.dropped +=
                u64::from(!matches!(dropped.cause, Loss::PeerGone | Loss::Closed | Loss::Replaced));
            let client = self.clients.remove(&dropped.channel);
            // Nobody tells a client that the queue pair which its replies come over is gone: the end of its link does, and
            // its calls go on over a new one.
            if let Some((_, link)) =
                client.filter(|_| !matches!(dropped.cause, Loss::Closed | Loss::Replaced))
            {
                link.close();
            }
        }
        self.wishes.look_ahead(&self.owner.arena);
    }

    /// Does what other threads ask.
    fn take_jobs(&mut self) {
        // Acquire: pairs with the sender's release. Cleared before the jobs are taken, so that none is missed.
        self.pending.swap(false, Ordering::Acquire);
        while let Some(job) = self.jobs.try_receive() {
            match job {
                CoreJob::Open { link, client, facts, session, window, answer } => {
                    let accepted = self.requests.accept(&link, facts, session, window);
                    if let Ok(accepted) = &accepted {
                        self.clients.insert(accepted.channel, (client, link));
                    }
                    // A client that is gone by now needs no answer.
                    let _ = answer.send(accepted.map_err(|error| error.to_string()));
                }
                CoreJob::Staging { client, region } => drop(self.staging.insert(client, region)),
                CoreJob::Gone { client } => self.forget(client),
                CoreJob::Region { purpose, region } => self.take_region(purpose, region),
                CoreJob::Statistics { statistics, answer } => {
                    let _ = answer.send(self.statistics(statistics));
                }
                CoreJob::Stop => self.stopped = true,
            }
        }
    }

    fn forget(&mut self, client: u64) {
        let channels: Vec<ChannelId> = self
            .clients
            .iter()
            .filter(|(_, (owner, _))| *owner == client)
            .map(|(channel, _)| *channel)
            .collect();
        for channel in channels {
            self.requests.end(channel, Loss::PeerGone);
            self.clients.remove(&channel);
        }
        self.staging.remove(&client);
    }

    /// Adds a region and tries again what waited for one.
    fn take_region(&mut self, purpose: Purpose, region: Option<(RegionId, N::Region)>) {
        let added =
            region.is_some_and(|(id, region)| self.owner.arena.add_region(id, region, purpose).is_ok());
        self.wishes.answered(purpose, added);
        for Deferred { mut request, staged } in std::mem::take(&mut self.deferred) {
            self.mutate(&mut request, staged);
        }
    }

    fn statistics(&self, mut statistics: Statistics) -> Statistics {
        let extents = self.owner.arena.usage(Purpose::Extents);
        statistics.records += self.shard.records(&self.owner);
        statistics.rows += self.shard.rows();
        statistics.extent_bytes += extents.requested_bytes as u64;
        statistics.extent_bytes_reserved += extents.reserved_bytes as u64;
        statistics.table_bytes += self.owner.arena.usage(Purpose::Tables).reserved_bytes as u64;
        statistics.table_bytes += self.shard.fixed_bytes();
        statistics.clients_dropped += self.dropped;
        let mut add =
            |name: &str, count: u64| match statistics.counters.iter_mut().find(|(other, _)| other == name) {
                Some((_, sum)) => *sum += count,
                None => statistics.counters.push((name.to_owned(), count)),
            };
        self.owner.counters.list().into_iter().for_each(|(name, count)| add(name, count));
        add("mutations", self.mutations);
        add("deferred", self.deferred.len() as u64);
        statistics
    }
}

/// A mutation that waits for a region, with its value if that was staged: the staging area may be gone by then.
struct Deferred {
    request: Incoming,
    staged: Option<Vec<u8>>,
}

fn charge_lookup<N: Nic>(request: &Incoming) {
    N::charge(Work::Hash(request.key().len()));
    N::charge(Work::Lookup);
}

fn refuse<N: Nic>(requests: &mut Requests<N>, request: &Incoming, status: Status) {
    requests.reply(request, &Answer { status: status as u8, ..Answer::default() }, &[]);
}

fn answer_get<N: Nic, S: Shard<N::Region>>(
    requests: &mut Requests<N>,
    request: &Incoming,
    found: Option<Found<&[u8]>>,
) {
    match found {
        _ if request.opcode() != Opcode::Get as u8 => refuse(requests, request, Status::BadRequest),
        None => refuse(requests, request, Status::Absent),
        Some(record) => {
            let answer = |status: Status| Answer { status: status as u8, version: record.version };
            if record.value().len() <= requests.reply_value_bytes_max() {
                return requests.reply(request, &answer(Status::Present), record.value());
            }
            // For the client to READ, who finds by the checksum that it was overwritten meanwhile.
            let mut extent = record.extent;
            if !S::CHECKSUMS {
                extent.checksum = checksum(&record.bytes[..extent.bytes]);
            }
            requests.reply(request, &answer(Status::Pointer), &encode_extent(&extent));
        }
    }
}
