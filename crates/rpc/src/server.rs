//! The server's end of all channels to one core: takes requests in batches, answers them, and drops clients that break
//! the rules without anyone else noticing.

use crate::{
    Greeting, Loss, Pair, ReplyHeader, RequestHeader, RpcError, ServerCounters, SessionId, SessionLimits,
    Staged,
    doorbell::Doorbell,
    end::{Datagrams, End, Received, promise},
    frame::{REQUEST_BUFFER_BYTES, REQUEST_HEADER_BYTES},
    inbox::{Message, Spare},
    outbox::Sent,
    sessions::{Kept, Slots, Verdict},
    slots::{Layout, Look},
    tag::{self, Kind, Tag},
};
use locus_fabric::{Completion, CompletionQueue, FabricError, Facts, Nic, PostError, Status, Work};
use locus_runtime::Park;
use std::{cell::Cell, collections::VecDeque, sync::Arc, time::Duration};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// A request that arrived, checked; its bytes stay where they are until it is dropped.
pub struct Incoming {
    message: Message,
    header: RequestHeader,
    channel: ChannelId,
    session: SessionId,
}

impl Incoming {
    /// What to do.
    pub fn opcode(&self) -> u8 {
        self.header.opcode
    }

    /// Whether it is executed at most once.
    pub fn mutates(&self) -> bool {
        self.header.mutates
    }

    /// The partition of the key, as the client says.
    pub fn partition(&self) -> u16 {
        self.header.partition
    }

    /// The epoch of the partition map that the client uses.
    pub fn map_epoch(&self) -> u32 {
        self.header.map_epoch
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.message[REQUEST_HEADER_BYTES..][..usize::from(self.header.key_bytes)]
    }

    /// The value, if it is in the frame; empty if it is staged.
    #[inline]
    pub fn value(&self) -> &[u8] {
        if self.header.staged { &[] } else { self.body() }
    }

    /// Where the value is in the client's staging region, if it is there. What it says is yet to be checked against that
    /// region.
    pub fn staged(&self) -> Option<Staged> {
        if self.header.staged { Staged::parse(self.body()).ok() } else { None }
    }

    /// Where it came from.
    pub fn channel(&self) -> ChannelId {
        self.channel
    }

    /// Whose it is.
    pub fn session(&self) -> SessionId {
        self.session
    }

    fn body(&self) -> &[u8] {
        &self.message[REQUEST_HEADER_BYTES + usize::from(self.header.key_bytes)..]
    }
}

/// The answer to a request; the value is given in parts beside it.
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
    look_around: Cell<bool>,
    /// How often one client's slots were all looked at, and one in how many polls without requests does so.
    around: usize,
    around_every: u32,
    /// Whether the next poll looks at the completion queue in any case: the core has slept, or a send queue is half full.
    sweeps: Cell<bool>,
    /// Places of connections with posts that were not rung.
    touched: Vec<u16>,
    doorbell: Doorbell,
    /// Places of connections with a backlog.
    backlogged: Vec<u16>,
    dropped: VecDeque<Dropped>,
    /// Room for a poll's completions.
    completions: Vec<Completion>,
    spare: Spare,
    counters: ServerCounters,
    now_ns: u64,
}

/// The most requests that one poll gives.
pub const BATCH_MAX: usize = 32;
/// How many clients' slots one poll looks at. A look is one load, of a line that is cached until its client writes.
const LOOKS_MAX: usize = 256;
/// Among polls for WRITten requests, one in so many looks at the completion queue, too.
const QUEUE_EVERY: u32 = 16;
/// Among polls that find no WRITten request, one in at most so many looks for some behind a gap.
const AROUND_EVERY_MAX: u32 = 16;

/// The most parts of a reply's value.
pub const PARTS_MAX: usize = 7;

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
            look_around: Cell::new(false),
            around: 0,
            around_every: 1,
            sweeps: Cell::new(false),
            touched: Vec::with_capacity(config.channels_max),
            doorbell: Doorbell::new(nic.properties().dear_doorbells, config.window_max.div_ceil(2)),
            backlogged: Vec::new(),
            dropped: VecDeque::new(),
            completions: vec![Completion::EMPTY; BATCH_MAX],
            spare: Spare::new(),
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
    pub fn poll(&mut self, into: &mut Vec<Incoming>) -> usize {
        if self.doorbell.is_ripe() {
            self.flush();
        }
        if !self.backlogged.is_empty() {
            self.retry_backlogs();
        }
        let before = into.len();
        let mut found = !self.silent.is_empty() && self.look(into);
        // Where requests raise no completion, others are seldom there and never urgent.
        if self.silent.is_empty() || self.sweeps.take() || self.looks.is_multiple_of(QUEUE_EVERY) {
            found |= self.sweep(into);
        }
        self.counters.empty_polls += u64::from(!found);
        if self.doorbell.is_due(found) {
            self.flush();
        }
        into.len() - before
    }

    /// Handles what has completed, and says whether there was anything.
    #[inline]
    fn sweep(&mut self, into: &mut Vec<Incoming>) -> bool {
        let count = self.queue.poll(&mut self.completions);
        if count > 0 {
            let completions = std::mem::take(&mut self.completions);
            completions[..count].iter().for_each(|completion| self.complete(completion, into));
            self.completions = completions;
        }
        count > 0
    }

    /// Looks for requests that were WRITten: of each client in turn at the slot where the next one is expected (Kalia
    /// §4.2). A poll takes a batch at most and looks at [`LOOKS_MAX`] clients, and the next poll goes on there; so a client
    /// waits for its turn no longer than the others take for a batch. Now and then, when there is nothing, one client's
    /// slots are all looked at: requests that were lost or given up leave a gap, and repeated ones come behind.
    #[inline]
    fn look(&mut self, into: &mut Vec<Incoming>) -> bool {
        let before = into.len();
        self.looks = self.looks.wrapping_add(1);
        if self.look_around.take() {
            for index in 0..self.silent.len() {
                self.look_at(index, true, into);
            }
        }
        for _ in 0..self.silent.len().min(LOOKS_MAX) {
            if self.cursor >= self.silent.len() {
                self.cursor = 0;
            }
            self.look_at(self.cursor, false, into);
            self.cursor += 1;
            if into.len() - before >= BATCH_MAX {
                return true;
            }
        }
        if self.looks.is_multiple_of(if into.len() == before { self.around_every } else { QUEUE_EVERY }) {
            self.look_around_one(into);
        }
        into.len() > before
    }

    /// Looks at all slots of the next client in turn. As long as there is something behind a gap, gaps are looked for more
    /// often.
    fn look_around_one(&mut self, into: &mut Vec<Incoming>) {
        if self.silent.is_empty() {
            return;
        }
        let before = into.len();
        self.around = self.around.wrapping_add(1);
        self.look_at(self.around % self.silent.len(), true, into);
        self.around_every =
            if into.len() > before { 1 } else { (2 * self.around_every).min(AROUND_EVERY_MAX) };
    }

    /// Takes requests of one client whose requests raise no completion, as many as there are and fit a batch.
    #[inline]
    fn look_at(&mut self, index: usize, around: bool, into: &mut Vec<Incoming>) {
        let Some(&place) = self.silent.get(index) else { return };
        let place = usize::from(place);
        for _ in 0..BATCH_MAX {
            let Some(Some(connection)) = self.connections.get(place) else { return };
            let Some(arrivals) = &connection.end.arrivals else { return };
            if !(if around { arrivals.has_any() } else { arrivals.expects() }) {
                return;
            }
            let mut message = self.spare.message(REQUEST_BUFFER_BYTES);
            let look = if around {
                arrivals.look_around(&mut message.buffer)
            } else {
                arrivals.look_ahead(&mut message.buffer)
            };
            let taken = match look {
                Look::Nothing => return,
                Look::Frame(bytes) => {
                    message.bytes = bytes;
                    self.take_in(place, message, into)
                }
                Look::Broken(error) => Err(Loss::Malformed(error)),
            };
            if let Err(cause) = taken {
                return self.drop_connection(place as u16, cause);
            }
            if into.len() >= BATCH_MAX {
                return;
            }
        }
    }

    /// Answers a request. `parts` (at most [`PARTS_MAX`], together at most [`Server::reply_value_bytes_max`]) are the
    /// value. Nothing is sent before [`Server::flush`] or the next poll. A mutation's outcome is remembered even if its
    /// client is gone.
    ///
    /// # Panics
    /// When the parts are too many or too long: a bug of the caller.
    #[inline]
    pub fn reply(&mut self, request: &Incoming, answer: &Answer, parts: &[&[u8]]) {
        let place = usize::from(request.channel.place);
        let connection = match self.connections.get_mut(place) {
            Some(Some(connection)) if connection.id == request.channel => connection,
            _ => match self.settle(request, answer) {
                Some(connection) => connection,
                None => return,
            },
        };
        if request.mutates() {
            connection.slots.executed(request.header.sequence, answer.status, answer.version);
        }
        let place = connection.id.place;
        N::charge(Work::Reply(parts.iter().map(|part| part.len()).sum()));
        self.post(place, request.header.sequence, answer, parts);
    }

    /// Starts all replies that were posted: one doorbell per channel and batch.
    #[inline]
    pub fn flush(&mut self) {
        self.doorbell.rang();
        if let Some(Err(error)) = self.datagrams.as_mut().map(|datagrams| datagrams.outbox.ring()) {
            self.lose_datagrams(Loss::Refused(error));
        }
        while let Some(place) = self.touched.pop() {
            let Some(connection) = &mut self.connections[usize::from(place)] else { continue };
            connection.touched = false;
            if let Err(error) = connection.end.ring() {
                self.drop_connection(place, Loss::Refused(error));
            }
        }
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

    #[inline]
    fn complete(&mut self, completion: &Completion, into: &mut Vec<Incoming>) {
        let place = tag::owner(completion.id);
        let Some(Some(connection)) = self.connections.get_mut(place) else {
            return self.complete_datagram(completion, into);
        };
        // Of a queue pair that is gone.
        if !connection.tag.owns(completion.id) {
            return;
        }
        if completion.status != Status::Success {
            return self.drop_connection(place as u16, Loss::of(completion.status));
        }
        match (tag::kind(completion.id), &mut connection.end.connected) {
            (Kind::Send(number), Some(outbox)) => outbox.completed(number),
            (Kind::Receive(slot), _) => {
                if let Err(cause) = self.receive(place, slot, completion, into) {
                    self.drop_connection(place as u16, cause);
                }
            }
            _ => {}
        }
    }

    /// Takes what a RECV of a client's queue pair was consumed for.
    #[inline]
    fn receive(
        &mut self,
        place: usize,
        slot: u32,
        completion: &Completion,
        into: &mut Vec<Incoming>,
    ) -> Result<(), Loss> {
        let Some(connection) = &mut self.connections[place] else { return Ok(()) };
        let mut message = self.spare.message(REQUEST_BUFFER_BYTES);
        match connection.end.receive(slot, completion, &mut message.buffer)? {
            Received::Frame(bytes) => message.bytes = bytes,
            Received::Woken => {
                self.counters.woken += 1;
                return Ok(());
            }
        }
        self.take_in(place, message, into)
    }

    /// A completion of the UD queue pair, or of a channel that is gone. Nobody is dropped for a datagram that makes no sense,
    /// unless its token says who sent it.
    #[cold]
    fn complete_datagram(&mut self, completion: &Completion, into: &mut Vec<Incoming>) {
        let Some(datagrams) = &mut self.datagrams else { return };
        if tag::owner(completion.id) != usize::from(Datagrams::<N>::PLACE) {
            return;
        }
        if completion.status != Status::Success {
            return self.lose_datagrams(Loss::of(completion.status));
        }
        let slot = match tag::kind(completion.id) {
            Kind::Send(number) => return datagrams.outbox.completed(number),
            Kind::Receive(slot) => slot,
        };
        let mut message = self.spare.message(REQUEST_BUFFER_BYTES);
        let (token, bytes) = match datagrams.receive(slot, completion.bytes, &mut message.buffer) {
            Ok(received) => received,
            Err(error) => return self.lose_datagrams(Loss::Refused(error)),
        };
        message.bytes = bytes;
        let place = token as u16;
        match self.connections.get(usize::from(place)) {
            Some(Some(connection)) if connection.token == token => {}
            _ => return self.counters.stray += 1,
        }
        if let Err(cause) = self.take_in(place.into(), message, into) {
            self.drop_connection(place, cause);
        }
    }

    /// The UD queue pair broke: all channels end, and the next one that is accepted makes another.
    #[cold]
    fn lose_datagrams(&mut self, cause: Loss) {
        self.datagrams = None;
        for place in 0..self.connections.len() {
            self.drop_connection(place as u16, cause);
        }
    }

    /// Takes one request in, or answers it if it was executed before.
    #[inline]
    fn take_in(&mut self, place: usize, message: Message, into: &mut Vec<Incoming>) -> Result<(), Loss> {
        let Some(connection) = &mut self.connections[place] else { return Ok(()) };
        N::charge(Work::Request);
        let header = RequestHeader::parse(&message).map_err(Loss::Malformed)?;
        if header.incarnation != self.folded {
            return Err(Loss::WrongIncarnation);
        }
        match connection.slots.arrived(header.sequence, header.mutates) {
            Verdict::Execute => {
                self.counters.requests += 1;
                let (channel, session) = (connection.id, connection.session);
                into.push(Incoming { message, header, channel, session });
                Ok(())
            }
            Verdict::Repeat { status, version } => {
                self.counters.duplicates += 1;
                let answer = Answer { status, version };
                self.post(place as u16, header.sequence, &answer, &[]);
                Ok(())
            }
            Verdict::UnderWay => {
                self.counters.duplicates_under_way += 1;
                Ok(())
            }
            // A request that was sent again, and overtaken by the next one in its slot.
            Verdict::Violation if self.config.pair.is_lossy() => {
                self.counters.stray += 1;
                Ok(())
            }
            Verdict::Violation => Err(Loss::Sequence),
        }
    }

    /// The channel of a request is gone: notes the outcome in the session, and finds the channel over which it came back.
    #[cold]
    fn settle(&mut self, request: &Incoming, answer: &Answer) -> Option<&mut Connection<N>> {
        self.counters.undelivered += 1;
        if request.mutates()
            && let Some(slots) = self.kept.get_mut(request.session)
        {
            slots.executed(request.header.sequence, answer.status, answer.version);
        }
        self.connection_of(request.session)
    }

    /// Posts a reply, or puts it into the backlog if the send queue is full.
    #[inline]
    fn post(&mut self, place: u16, sequence: u64, answer: &Answer, parts: &[&[u8]]) {
        let Some(connection) = &mut self.connections[usize::from(place)] else { return };
        self.counters.replies += 1;
        let mut pieces: [&[u8]; PARTS_MAX + 1] = [&[]; PARTS_MAX + 1];
        let mut value_bytes = 0;
        let mut count = 1;
        for part in parts {
            pieces[count] = part;
            value_bytes += part.len();
            count += 1;
        }
        assert!(value_bytes <= self.reply_value_bytes_max, "a reply's value of {value_bytes} bytes");
        let header = ReplyHeader {
            status: answer.status,
            value_bytes: value_bytes as u16,
            incarnation: self.folded,
            sequence,
            version: answer.version,
        }
        .encode();
        pieces[0] = &header;
        let full = PostError::SendQueueFull(0);
        let posted = if connection.backlog.is_empty() {
            connection.end.send(self.datagrams.as_mut(), sequence, &pieces[..count])
        } else {
            Err(full)
        };
        match posted {
            Ok(Sent::AtOnce) => {}
            Ok(Sent::Posted) => {
                self.doorbell.posted();
                if connection.end.is_half_full(self.datagrams.as_ref()) {
                    self.sweeps.set(true);
                }
                if !connection.touched {
                    connection.touched = true;
                    self.touched.push(place);
                }
            }
            Err(PostError::SendQueueFull(_)) => self.hold_back(place, sequence, pieces[..count].concat()),
            Err(error) => self.drop_connection(place, Loss::Refused(error)),
        }
    }

    /// Keeps a reply until the client's send queue has room. An honest client never has more replies to come than its
    /// window has slots.
    #[cold]
    fn hold_back(&mut self, place: u16, sequence: u64, frame: Vec<u8>) {
        let Some(connection) = &mut self.connections[usize::from(place)] else { return };
        self.counters.backpressure += 1;
        if connection.end.is_asked_again() {
            // As if the request or its reply had been lost on its way: it comes again.
            return;
        }
        if connection.backlog.is_empty() {
            self.backlogged.push(place);
        }
        connection.backlog.push_back((sequence, frame));
        if connection.backlog.len() > connection.slots.window() {
            self.drop_connection(place, Loss::Stalled);
        }
    }

    #[cold]
    fn retry_backlogs(&mut self) {
        for place in std::mem::take(&mut self.backlogged) {
            let Some(connection) = &mut self.connections[usize::from(place)] else { continue };
            let mut outcome = Ok(());
            while outcome.is_ok()
                && let Some((sequence, frame)) = connection.backlog.front()
            {
                outcome = connection.end.send(self.datagrams.as_mut(), *sequence, &[frame]).map(drop);
                if outcome.is_ok() {
                    connection.backlog.pop_front();
                }
            }
            match connection.end.ring().and(outcome) {
                Ok(()) | Err(PostError::SendQueueFull(_)) if connection.backlog.is_empty() => {}
                Ok(()) | Err(PostError::SendQueueFull(_)) => self.backlogged.push(place),
                Err(error) => self.drop_connection(place, Loss::Refused(error)),
            }
        }
    }
}

/// What a server core sleeps on. WRITten requests raise no completion: where a WRITE wakes who sleeps
/// ([`writes_wake`](locus_fabric::Properties::writes_wake)), they are looked for once more after the sleep was announced,
/// so that none is missed; elsewhere the client of an unanswered request wakes the core by an immediate.
impl<N: Nic> Park for Server<N> {
    fn prepare(&self) -> bool {
        if !self.queue.prepare() {
            self.sweeps.set(true);
            return false;
        }
        let mut news = false;
        for &place in &self.silent {
            let connection = self.connections[usize::from(place)].as_ref();
            news |= connection
                .and_then(|connection| connection.end.arrivals.as_ref())
                .is_some_and(|arrivals| arrivals.has_news());
        }
        if news {
            self.look_around.set(true);
            self.queue.park(Duration::ZERO);
        }
        !news
    }

    fn park(&self, timeout: Duration) {
        self.sweeps.set(true);
        self.queue.park(timeout);
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.queue.waker()
    }
}
