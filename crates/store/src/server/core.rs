//! A server core: the only writer of its partitions and its regions.
//!
//! It polls the requests of all clients. A batch is looked up side by side, so that its cache misses overlap (Kalia
//! §4.1.1): gets are answered from that, and mutations, whose rows are then near, are applied after it, one by one. All
//! requests of a batch are concurrent, so any order of them is as good as any other.

use super::{
    regions::{Regions, Wish},
    wishes::Wishes,
};
use crate::{
    Mutation, ServerConfig, StoreError,
    control::Statistics,
    opcode::{Opcode, Status, encode_extent},
    partition_map::PartitionMap,
};
use locus_fabric::{Facts, Link, Nic, Prefetches, Region, Work};
use locus_index::{
    Answer as Found, Counters, Key, LookupError, MutationError, Owner, PARTITIONS, PartitionId,
    cuckoo::{self, Attempt, Partition, Table, WAYS},
    directory::{DIRECTORY_BYTES, Directory},
};
use locus_memory::{Arena, Memory, Purpose, RegionId};
use locus_rpc::{
    Accepted, Answer, BATCH_MAX, ChannelId, Incoming, Loss, Server as Requests, SessionId, Staged,
};
use locus_runtime::{
    Clock, Idle, MonotonicClock,
    channel::{self, Receiver, Sender},
    interleave,
    mistakes::{Mistake, planted},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// How many lookups of a batch go side by side.
const LANES: usize = 16;
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
    fn owns(&self, partition: PartitionId) -> bool {
        self.map.owner(partition).core == self.core
    }

    /// The key of a request; none if the client sent it to the wrong core, or by an old map.
    #[inline]
    fn key<'r>(&self, request: &'r Incoming) -> Option<Key<'r>> {
        let key = Key::new(request.key(), self.seed);
        let partition = key.partition();
        let routed =
            partition.index() == usize::from(request.partition()) && self.map.epoch == request.map_epoch();
        (routed && self.owns(partition)).then_some(key)
    }
}

pub(crate) struct Core<N: Nic> {
    requests: Requests<N>,
    owner: Owner<N::Region>,
    directory: Directory,
    /// All partitions by number; those of other cores stay empty.
    partitions: Vec<Partition>,
    /// Their tables once more, closer together, since most lookups need no more; renewed with every change of a partition.
    /// One without a table has one without rows.
    tables: Vec<Table>,
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
    /// Partitions that may be growing, by number.
    growing: Vec<usize>,
    mutations: u64,
    /// Where a large value is copied before it is validated: its client may still write to the staging area.
    staged: Vec<u8>,
    dropped: u64,
    stopped: bool,
    clock: MonotonicClock,
}

impl<N: Nic> Core<N> {
    /// Makes the core on the thread that will run it. Gives the number of its directory's region, too.
    pub(crate) fn new(setup: CoreSetup<N>) -> Result<(Self, JobSender<N>, RegionId), StoreError> {
        let config = &setup.config;
        let requests = Requests::new(
            &setup.nic,
            setup.incarnation,
            locus_rpc::ServerConfig {
                pair: config.pair(),
                channels_max: config.clients_max,
                window_max: config.window,
                ..locus_rpc::ServerConfig::default()
            },
        )?;
        let mut arena = Arena::new();
        let mut add = |purpose, bytes| {
            let (id, region) = setup.regions.reserve(bytes, bytes)?;
            arena.add_region(id, region, purpose).map_err(|error| StoreError::Config(error.to_string()))?;
            Ok::<_, StoreError>(id)
        };
        // As long as a huge page, so that it may lie on one.
        let directory_region = add(Purpose::Directory, DIRECTORY_BYTES.next_multiple_of(2 << 20))?;
        add(Purpose::Tables, config.region_bytes / 4)?;
        add(Purpose::Extents, config.region_bytes)?;
        let (sender, jobs) = channel::channel();
        let pending = Arc::new(AtomicBool::new(false));
        let waker = locus_runtime::Park::waker(requests.park());
        let sender = JobSender { jobs: sender, pending: pending.clone(), waker };
        let mut core = Self {
            requests,
            owner: Owner::new(arena, setup.seed, setup.core, config.cores),
            directory: Directory::new(directory_region, setup.incarnation),
            partitions: (0..PARTITIONS).filter_map(PartitionId::new).map(Partition::new).collect(),
            tables: vec![Table::NONE; PARTITIONS],
            route: Route {
                map: PartitionMap::even(&[config.cores as u16]),
                core: setup.core as u16,
                seed: setup.seed,
            },
            value_bytes_max: config.value_bytes_max,
            jobs,
            pending,
            clients: BTreeMap::new(),
            staging: BTreeMap::new(),
            deferred: Vec::new(),
            deferred_max: config.clients_max * config.window,
            wishes: Wishes::new(setup.wishes, sender.clone()),
            growing: Vec::new(),
            mutations: 0,
            staged: Vec::new(),
            dropped: 0,
            stopped: false,
            clock: MonotonicClock::new(),
        };
        core.publish_directory();
        Ok((core, sender, directory_region))
    }

    /// An entry that says that there is no table is an entry, too.
    fn publish_directory(&mut self) {
        for partition in (0..PARTITIONS).filter_map(PartitionId::new) {
            if self.route.owns(partition) {
                let tables = *self.partitions[partition.index()].tables();
                self.directory.publish(&mut self.owner, partition, &tables);
            }
        }
    }

    /// Serves until it is told to stop.
    pub(crate) fn run(mut self) {
        let mut idle = Idle::default();
        let mut batch = Vec::with_capacity(BATCH_MAX);
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
            } else if self.grow() {
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
    fn serve(&mut self, batch: &mut Vec<Incoming>) {
        for requests in batch.chunks(LANES) {
            self.answer_gets(requests);
        }
        for request in batch.drain(..) {
            if request.mutates() {
                self.mutate(request, None);
            }
        }
    }

    /// Looks up the keys of up to [`LANES`] requests side by side and answers the gets. The first try finds nearly all that
    /// are there; the others are looked up interleaved. What a mutation needs is near after that.
    #[inline]
    fn answer_gets(&mut self, batch: &[Incoming]) {
        let Self { requests, owner, partitions, tables, route, .. } = self;
        let (arena, counters) = (&owner.arena, &owner.counters);
        let local = arena.local();
        let mut attempts = [const { None }; LANES];
        let mut ahead = Prefetches::within(arena.region_bytes());
        for (attempt, request) in attempts.iter_mut().zip(batch) {
            N::charge(Work::Hash(request.key().len()));
            N::charge(Work::Lookup);
            *attempt = route.key(request).and_then(|key| {
                let table = &tables[key.partition().index()];
                let attempt = (table.rows > 0).then(|| Attempt::begin(table, key))?;
                ahead.push(attempt.ahead(&local, 0));
                Some(attempt)
            });
        }
        ahead.start();
        let attempts = &mut attempts[..batch.len()];
        for way in 0..WAYS {
            for attempt in attempts.iter_mut().flatten() {
                ahead.push(attempt.step(&local, way, counters));
            }
            ahead.start();
        }
        let mut left = [const { None }; LANES];
        let mut count = 0;
        for (attempt, request) in attempts.iter().zip(batch).filter(|(_, request)| !request.mutates()) {
            match attempt.as_ref().and_then(|attempt| attempt.record(local, counters)) {
                Some(record) => answer_get(requests, request, Some(Ok(Found::Found(record)))),
                None => {
                    left[count] = Some(request);
                    count += 1;
                }
            }
        }
        let prefetched = arena.prefetched();
        let begin = |request| route.key(request).map(|key| (&partitions[key.partition().index()], key));
        let left = &left[..count];
        let lookups = left.iter().flatten().map(|request| look_up(&prefetched, begin(request), counters));
        interleave(LANES, lookups, |number, found| {
            if let Some(request) = left[number] {
                answer_get(requests, request, found);
            }
        });
    }

    /// Applies a mutation and answers it, or defers it until there is a region for it.
    fn mutate(&mut self, request: Incoming, staged: Option<Vec<u8>>) {
        let copied = staged.is_some();
        if let Some(value) = staged {
            self.staged = value;
        }
        if planted(Mistake::AcknowledgedEarly) && request.opcode() == Opcode::Put as u8 {
            let status = Status::Present as u8;
            self.requests.reply(&request, &Answer { status, ..Answer::default() }, &[]);
            self.requests.flush();
            let _ = self.apply(&request, copied);
            return;
        }
        match self.apply(&request, copied) {
            Ok(answer) => self.requests.reply(&request, &answer, &[]),
            Err(MutationError::NeedRegion { purpose, bytes })
                if self.deferred.len() < self.deferred_max
                    && self.wishes.ask(&self.owner.arena, purpose, bytes) =>
            {
                let staged = request.staged().map(|_| std::mem::take(&mut self.staged));
                self.deferred.push(Deferred { request, staged });
            }
            Err(error) => {
                let status = match error {
                    MutationError::NeedRegion { .. } => Status::OutOfMemory,
                    MutationError::KeyLength(_) | MutationError::ValueLength(..) => Status::Length,
                    MutationError::Collisions(_) => Status::Collisions,
                };
                self.refuse(&request, status);
            }
        }
    }

    /// Applies a mutation, whose value has perhaps been copied out of the staging area before.
    fn apply(&mut self, request: &Incoming, copied: bool) -> Result<Answer, MutationError> {
        let refused = |status: Status| Ok(Answer { status: status as u8, ..Answer::default() });
        // What changes something must say so: only then is it executed at most once.
        let opcode = Opcode::from_byte(request.opcode()).filter(|opcode| opcode.mutates());
        let Some(key) = self.route.key(request) else { return refused(Status::WrongOwner) };
        let number = key.partition().index();
        let mutation = match (opcode, request.staged()) {
            (Some(Opcode::Put), None) => Mutation::Put { key: request.key(), value: request.value() },
            (Some(Opcode::Put), Some(staged)) => {
                if !copied && !self.copy_staged(request, &staged) {
                    return refused(Status::BadRequest);
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
        let partition = &mut self.partitions[number];
        let was_growing = partition.growing();
        let applied = mutation.apply(&mut self.owner, &self.directory, partition);
        self.tables[number] = partition.tables().current.unwrap_or(Table::NONE);
        let applied = applied?;
        if partition.growing() && !was_growing {
            self.growing.push(number);
        }
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

    fn refuse(&mut self, request: &Incoming, status: Status) {
        self.requests.reply(request, &Answer { status: status as u8, ..Answer::default() }, &[]);
    }

    /// Carries on with tables that grow, when there is nothing else to do. Says whether there was any.
    fn grow(&mut self) -> bool {
        let Some(&number) = self.growing.last() else { return false };
        let partition = &mut self.partitions[number];
        // Without room it waits for the next mutation.
        let goes_on = partition.growing() && partition.grow(&mut self.owner, &self.directory).is_ok();
        self.tables[number] = partition.tables().current.unwrap_or(Table::NONE);
        if !goes_on {
            self.growing.pop();
        }
        true
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
        for Deferred { request, staged } in std::mem::take(&mut self.deferred) {
            self.mutate(request, staged);
        }
    }

    fn statistics(&self, mut statistics: Statistics) -> Statistics {
        let extents = self.owner.arena.usage(Purpose::Extents);
        statistics.records += self.partitions.iter().map(Partition::records).sum::<u64>();
        statistics.rows += self.partitions.iter().map(Partition::rows).sum::<u64>();
        statistics.extent_bytes += extents.requested_bytes as u64;
        statistics.extent_bytes_reserved += extents.reserved_bytes as u64;
        statistics.table_bytes += self.owner.arena.usage(Purpose::Tables).reserved_bytes as u64;
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

/// What a lookup for a request came to; none for a request that this core must not answer.
type Lookup<B> = Option<Result<Found<B>, LookupError>>;

async fn look_up<'m, M: Memory>(
    memory: &'m M,
    begin: Option<(&Partition, Key<'_>)>,
    counters: &Counters,
) -> Lookup<M::Bytes<'m>> {
    let (partition, key) = begin?;
    if partition.tables().current.is_none() {
        return Some(Ok(Found::Absent));
    }
    // Nothing that the owner reads is half-written: there is nothing to try again.
    Some(cuckoo::get(memory, partition.tables(), &key, 0, counters).await)
}

fn answer_get<N: Nic, B: std::ops::Deref<Target = [u8]>>(
    requests: &mut Requests<N>,
    request: &Incoming,
    found: Lookup<B>,
) {
    let status = |status: Status| Answer { status: status as u8, ..Answer::default() };
    match found {
        _ if request.opcode() != Opcode::Get as u8 => {
            requests.reply(request, &status(Status::BadRequest), &[])
        }
        None => requests.reply(request, &status(Status::WrongOwner), &[]),
        Some(Ok(Found::Absent)) => requests.reply(request, &status(Status::Absent), &[]),
        Some(Ok(Found::Found(record))) => {
            let answer = Answer { version: record.version, ..status(Status::Present) };
            if record.value().len() <= requests.reply_value_bytes_max() {
                requests.reply(request, &answer, &[record.value()]);
            } else {
                // For the client to READ.
                let answer = Answer { version: record.version, ..status(Status::Pointer) };
                requests.reply(request, &answer, &[&encode_extent(&record.extent)]);
            }
        }
        // The owner's own tables are always as it knows them.
        Some(Err(error)) => unreachable!("a lookup of the owner failed: {error}"),
    }
}
