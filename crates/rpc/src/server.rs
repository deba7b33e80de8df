//! The server's end of all channels to one core: takes requests in batches, answers them, and drops clients that break
//! the rules without anyone else noticing.

mod arriving;
mod incoming;
mod replying;

use crate::{
    Greeting, Loss, Pair, RpcError, ServerCounters, SessionId, SessionLimits,
    doorbell::Doorbell,
    end::{Datagrams, End, promise},
    sessions::{Kept, Slots},
    slots::Layout,
    tag::Tag,
};
pub use incoming::{Batch, Incoming};
use locus_fabric::{Completion, FabricError, Facts, Nic};
use locus_runtime::MonotonicClock;
use std::{cell::Cell, collections::VecDeque, time::Duration};

/// The limits of a server core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// How requests and replies travel.
    pub pair: Pair,
    /// How many channels there may be at once.
    pub channels_max: usize,
    /// The largest window that a channel may have.
    pub window_max: usize,
    /// What is remembered of clients that are not connected.
    pub sessions: SessionLimits,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self { pair: Pair::default(), channels_max: 256, window_max: 64, sessions: SessionLimits::default() }
    }
}

/// Names a channel of a server core; never another one while the server lives, short of 2^15 reuses of its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChannelId {
    place: u16,
    connection: u16,
}

/// What the client must be told of a channel that was accepted.
#[derive(Debug)]
pub struct Accepted {
    /// The channel.
    pub channel: ChannelId,
    /// For [`Channel::connect`](crate::Channel::connect).
    pub facts: Vec<Facts>,
    /// The same.
    pub greeting: Greeting,
}

/// A channel that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Which.
    pub channel: ChannelId,
    /// Its session, which is kept for a while.
    pub session: SessionId,
    /// Why.
    pub cause: Loss,
}

/// The answer to a request; the value is given beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// How it went.
    pub status: u8,
    /// The record's version.
    pub version: u64,
}

struct Connection<N: Nic> {
    end: End<N>,
    tag: Tag,
    /// What datagrams begin with, both ways. Its low bits are the channel's place.
    token: u64,
    id: ChannelId,
    session: SessionId,
    slots: Slots,
    /// Replies that found the send queue full, by the sequences that they answer.
    backlog: VecDeque<(u64, Vec<u8>)>,
    /// Whether it is on the list of those to ring.
    touched: bool,
    /// The completions it may cause.
    promised: usize,
}

/// All channels of one server core. Stays on the thread that made it.
pub struct Server<N: Nic> {
    nic: N,
    queue: N::CompletionQueue,
    config: ServerConfig,
    incarnation: u64,
    folded: u32,
    connections: Vec<Option<Connection<N>>>,
    connection_count: u16,
    /// How many completions the queue holds, and how many channels may cause.
    depth: usize,
    promised: usize,
    reply_value_bytes_max: usize,
    kept: Kept,
    /// The UD queue pair, from the first client on.
    datagrams: Option<Datagrams<N>>,
    /// Places of connections whose requests raise no completion, and which of them is looked at next.
    silent: Vec<u16>,
    cursor: usize,
    /// How often requests were looked for there, and whether to look into all slots.
    looks: u32,
    /// How many looks in a row found nothing.
    empty_looks: u32,
    look_around: Cell<bool>,
    /// How often one client's slots were all looked at, and one in how many polls without requests does so.
    around: usize,
    around_every: u32,
    /// Whether the next poll looks at the completion queue in any case, and whether the core has slept before it.
    sweeps: Cell<bool>,
    slept: Cell<bool>,
    /// How many requests there had been when the core slept last, and until when it only naps.
    requests_slept: Cell<u64>,
    naps_until_ns: Cell<u64>,
    clock: MonotonicClock,
    /// Places of connections with posts that were not rung.
    touched: Vec<u16>,
    doorbell: Doorbell,
    /// Places of connections with a backlog.
    backlogged: Vec<u16>,
    dropped: VecDeque<Dropped>,
    /// Room for a poll's completions.
    completions: Vec<Completion>,
    counters: ServerCounters,
    now_ns: u64,
}

/// The most requests that one poll gives.
pub const BATCH_MAX: usize = 32;
/// For so long after the last request a core sleeps no longer where WRITEs wake nobody, and then looks: only after that a client
/// has to wake it.
pub(crate) const NAP: Duration = Duration::from_micros(100);
/// Among polls for WRITten requests, one in so many looks at the completion queue, too.
const QUEUE_EVERY: u32 = 16;
/// After so many looks without a request every poll looks at the completion queue.
const DROWSY_LOOKS: u32 = 64;

impl<N: Nic> Server<N> {
    /// A server core without channels, for the calling thread. `incarnation` is of this life of the server.
    pub fn new(nic: &N, incarnation: u64, config: ServerConfig) -> Result<Self, RpcError> {
        config.pair.check()?;
        let datagrams =
            if config.pair.has_datagrams() { Datagrams::<N>::promise(config.channels_max) } else { 0 };
        let wanted = config.channels_max.saturating_mul(promise(&config.pair, config.window_max));
        let wanted = wanted.saturating_add(datagrams);
        let depth = wanted.min(nic.properties().completions_max);
        Ok(Self {
            nic: nic.clone(),
            queue: nic.create_completion_queue(depth)?,
            incarnation,
            folded: crate::fold(incarnation),
            connections: Vec::new(),
            connection_count: 0,
            depth,
            reply_value_bytes_max: config.pair.reply_value_bytes_max(nic.properties()),
            promised: datagrams.min(depth),
            kept: Kept::new(config.sessions.clone()),
            datagrams: None,
            silent: Vec::new(),
            cursor: 0,
            looks: 0,
            empty_looks: 0,
            look_around: Cell::new(false),
            around: 0,
            around_every: 1,
            sweeps: Cell::new(false),
            slept: Cell::new(false),
            requests_slept: Cell::new(0),
            naps_until_ns: Cell::new(0),
            clock: MonotonicClock::new(),
            touched: Vec::with_capacity(config.channels_max),
            doorbell: Doorbell::new(nic.properties().dear_doorbells, config.window_max.div_ceil(2)),
            backlogged: Vec::new(),
            dropped: VecDeque::new(),
            completions: vec![Completion::EMPTY; BATCH_MAX],
            counters: ServerCounters::default(),
            now_ns: 0,
            config,
        })
    }

    /// What the core sleeps on.
    pub fn park(&self) -> &Self {
        self
    }

    /// The longest value that a reply carries, in bytes.
    pub fn reply_value_bytes_max(&self) -> usize {
        self.reply_value_bytes_max
    }

    /// What the core did so far.
    pub fn counters(&self) -> ServerCounters {
        self.counters
    }

    /// How many channels there are.
    pub fn channels(&self) -> usize {
        self.connections.iter().flatten().count()
    }

    /// How many sessions of lost clients are kept.
    pub fn sessions_kept(&self) -> usize {
        self.kept.len()
    }

    /// Takes the next of the channels that ended since the last call.
    pub fn take_dropped(&mut self) -> Option<Dropped> {
        self.dropped.pop_front()
    }

    /// Tells the time, by whatever clock, and forgets sessions whose time is over. A few times a second is enough.
    pub fn housekeep(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.counters.forgotten += self.kept.expire(now_ns) as u64;
    }

    /// Accepts a client's channel over a link. If its session is known, it goes on; a living channel of the same session
    /// is dropped.
    pub fn accept(
        &mut self,
        link: &N::Link,
        facts: Vec<Facts>,
        session: SessionId,
        window: usize,
    ) -> Result<Accepted, RpcError> {
        let limit = self.config.window_max.min(self.nic.properties().queue_depth_max / 4);
        if window == 0 || window > limit {
            return Err(RpcError::Limit { what: "the window", limit });
        }
        self.end_session_channel(session);
        let place = self.place(promise(&self.config.pair, window))?;
        self.connection_count = self.connection_count.wrapping_add(1) & 0x7fff;
        let id = ChannelId { place, connection: self.connection_count };
        if self.config.pair.has_datagrams() && self.datagrams.is_none() {
            let (pair, channels_max) = (&self.config.pair, self.config.channels_max);
            self.datagrams = Some(Datagrams::open(&self.nic, &self.queue, link, pair, channels_max)?);
        }
        let greeting = self.greeting(place)?;
        let (mut connection, own_facts) = self.connect(link, facts, id, session, window, &greeting)?;
        let resumed = match self.kept.resume(session) {
            Some(slots) if slots.window() == window => {
                connection.slots = slots;
                true
            }
            // A session with another window is not the one we knew.
            Some(_) | None => false,
        };
        self.promised += connection.promised;
        self.counters.accepted += 1;
        self.counters.resumed += u64::from(resumed);
        if connection.end.comes_silently() {
            self.silent.push(place);
        }
        self.connections[usize::from(place)] = Some(connection);
        let greeting = Greeting { resumed, ..greeting };
        Ok(Accepted { channel: id, facts: own_facts, greeting })
    }

    /// Ends a channel, whose session is kept: for instance when the link to its client is gone.
    pub fn end(&mut self, channel: ChannelId, cause: Loss) {
        if self.connection(channel).is_some() {
            self.drop_connection(channel.place, cause);
        }
    }

    /// Whether replies are posted that wait for others: poll again before idling.
    #[inline]
    pub fn waits(&self) -> bool {
        self.doorbell.waits()
    }

    /// Adds requests that arrived to `into`, up to [`BATCH_MAX`] at a time, and says how many. Also starts whatever
    /// replies were posted, where doorbells are dear after a moment. Requests may be answered later and in any order.
    #[inline]
    pub fn poll(&mut self, into: &mut Batch) -> usize {
        if self.doorbell.is_ripe() {
            self.flush();
        }
        if !self.backlogged.is_empty() {
            self.retry_backlogs();
        }
        if self.slept.take() {
            // Whatever woke it, wherever it is.
            self.around_every = 1;
            self.sweeps.set(true);
        }
        let before = into.len();
        let mut found = !self.silent.is_empty() && self.look(into);
        self.empty_looks = if found { 0 } else { self.empty_looks.saturating_add(1) };
        // Where requests raise no completion, others are seldom there and never urgent; but who is about to sleep must have
        // seen them all, since only those to come wake it.
        let drowsy = self.empty_looks > DROWSY_LOOKS;
        if self.silent.is_empty() || drowsy || self.sweeps.take() || self.looks.is_multiple_of(QUEUE_EVERY) {
            found |= self.sweep(into);
        }
        self.counters.empty_polls += u64::from(!found);
        if self.doorbell.is_due(found) {
            self.flush();
        }
        into.len() - before
    }

    /// The free place that a new connection takes, if the limits allow one.
    fn place(&mut self, promise: usize) -> Result<u16, RpcError> {
        let limit = self.config.channels_max.min(usize::from(u16::MAX));
        if self.promised + promise > self.depth {
            return Err(RpcError::Limit {
                what: "work requests of all channels of a server core",
                limit: self.depth,
            });
        }
        if let Some(place) = self.connections.iter().position(Option::is_none) {
            return Ok(place as u16);
        }
        if self.connections.len() >= limit {
            return Err(RpcError::Limit { what: "channels of a server core", limit });
        }
        self.connections.push(None);
        Ok((self.connections.len() - 1) as u16)
    }

    /// What to tell the client of a place, but for whether its session goes on.
    fn greeting(&self, place: u16) -> Result<Greeting, RpcError> {
        let random = locus_runtime::random()
            .map_err(|source| FabricError::System { what: "random bits", source })?
            as u64;
        let checked = self.config.pair.is_lossy() || Layout::needs_checksum(self.nic.properties());
        let token = random << 16 | u64::from(place);
        Ok(Greeting { incarnation: self.incarnation, resumed: false, checked, token })
    }

    /// Makes and connects the server's end of a channel.
    fn connect(
        &self,
        link: &N::Link,
        facts: Vec<Facts>,
        id: ChannelId,
        session: SessionId,
        window: usize,
        greeting: &Greeting,
    ) -> Result<(Connection<N>, Vec<Facts>), RpcError> {
        let pair = self.config.pair;
        let tag = Tag::new(id.place, id.connection);
        let datagrams = self.datagrams.as_ref();
        let (end, own_facts) =
            End::open(&self.nic, &self.queue, datagrams, link, facts, (pair, window), (tag, greeting))?;
        let connection = Connection {
            end,
            tag,
            token: greeting.token,
            id,
            session,
            slots: Slots::new(window),
            backlog: VecDeque::new(),
            touched: false,
            promised: promise(&pair, window),
        };
        Ok((connection, own_facts))
    }

    fn connection(&mut self, channel: ChannelId) -> Option<&mut Connection<N>> {
        let connection = self.connections.get_mut(usize::from(channel.place))?.as_mut()?;
        (connection.id == channel).then_some(connection)
    }

    fn connection_of(&mut self, session: SessionId) -> Option<&mut Connection<N>> {
        self.connections.iter_mut().flatten().find(|connection| connection.session == session)
    }

    fn end_session_channel(&mut self, session: SessionId) {
        if let Some(connection) = self.connection_of(session) {
            let place = connection.id.place;
            self.drop_connection(place, Loss::Replaced);
        }
    }

    /// Ends a channel and keeps its session.
    #[cold]
    fn drop_connection(&mut self, place: u16, cause: Loss) {
        let Some(connection) = self.connections[usize::from(place)].take() else { return };
        self.promised -= connection.promised;
        self.counters.dropped[cause.kind()] += 1;
        self.dropped.push_back(Dropped { channel: connection.id, session: connection.session, cause });
        let Connection { end, session, slots, .. } = connection;
        drop(end);
        self.silent.retain(|other| *other != place);
        let forgot = self.kept.keep(session, slots, self.now_ns);
        self.counters.forgotten += u64::from(forgot);
        self.backlogged.retain(|other| *other != place);
        self.touched.retain(|other| *other != place);
    }

    /// The UD queue pair broke: all channels end, and the next one that is accepted makes another.
    #[cold]
    fn lose_datagrams(&mut self, cause: Loss) {
        self.datagrams = None;
        for place in 0..self.connections.len() {
            self.drop_connection(place as u16, cause);
        }
    }
}
