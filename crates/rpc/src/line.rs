//! A client's end of one connection: its queue pairs, where requests go, and how replies come. Gone with the connection,
//! and so is every slot: nothing of an earlier connection can be taken for a message of this one.

use crate::{
    Greeting, Hub, Pair, RpcError,
    end::takes_at_once,
    frame::{FRAME_BYTES_MAX, Frame, REPLY_BYTES_MAX},
    hub::Watch,
    inbox::Inbox,
    outbox::{Buffers, Course, Outbox, Sent},
    pair::{Carrier, TOKEN_BYTES},
    slots::{Arrivals, Fetched, Layout, Mark, TAIL_BYTES_MAX},
    tag::Tag,
};
use locus_fabric::{
    Access, FabricError, Facts, Link, LocalSlice, Nic, PagePolicy, PostError, QueuePair, QueuePairConfig,
    Region, RemoteSlice, Transport,
};
use std::{cell::Cell, collections::VecDeque, rc::Rc, time::Duration};

/// How long a client sleeps at most while an answer may come that wakes nobody.
const NAP: Duration = Duration::from_micros(50);
/// The longest piece of a value that one WRITE carries is the NIC's; a value takes at most so many.
pub(crate) const PIECES_MAX: usize = 8;
/// The first READ of a reply brings so many bytes, unless replies are longer.
const FETCH_BYTES: usize = 128;

/// The client's end of a connection.
pub(crate) struct Line<N: Nic> {
    pair: Pair,
    connected: Option<Outbox<N>>,
    datagrams: Option<Outbox<N>>,
    /// Where requests go, once connected.
    course: Option<Course<N>>,
    pub replies: Replies<N>,
    /// Whether a server that sleeps does not notice requests: it is woken by an immediate.
    wakes: bool,
    /// Whether replies are taken at once.
    at_once: bool,
}

/// How replies come.
pub(crate) enum Replies<N: Nic> {
    /// Into RECVs.
    Received(Inbox<N>),
    /// Into slots.
    Written(Rc<Arrivals<N>>),
    /// They are fetched.
    Fetched(Fetcher<N>),
}

/// The queue pair of a client for a transport of its pair.
pub(crate) fn queue_pair_config<N: Nic>(
    nic: &N,
    pair: &Pair,
    transport: Transport,
    window: usize,
) -> QueuePairConfig {
    let properties = nic.properties();
    let longest = if transport == Transport::Ud {
        properties.datagram_bytes_max.min(FRAME_BYTES_MAX + TOKEN_BYTES)
    } else {
        FRAME_BYTES_MAX
    };
    let fetches = if pair.reply.carrier == Carrier::Read { window } else { 0 };
    QueuePairConfig {
        transport,
        // A request each, and as many WRITEs or repetitions again.
        send_depth: (2 * window + fetches).max(2 * PIECES_MAX).min(properties.queue_depth_max),
        // Over UD replies may come twice.
        receive_depth: if transport == Transport::Ud { 2 * window } else { window },
        inline_bytes: (longest + TAIL_BYTES_MAX + 8).min(properties.inline_bytes_max),
        message_bytes: longest,
        reads_outstanding: QueuePairConfig::default().reads_outstanding.min(properties.reads_outstanding_max),
        ..QueuePairConfig::default()
    }
}

/// How many completions a channel may have outstanding.
pub(crate) fn promise<N: Nic>(nic: &N, pair: &Pair, window: usize) -> usize {
    let of = |transport| {
        let config = queue_pair_config(nic, pair, transport, window);
        config.send_depth + config.receive_depth
    };
    pair.connected().map_or(0, of) + if pair.has_datagrams() { of(Transport::Ud) } else { 0 }
}

impl<N: Nic> Line<N> {
    /// Makes queue pairs over the link, and whatever replies need.
    pub fn open(
        hub: &Hub<N>,
        link: &N::Link,
        pair: Pair,
        window: usize,
        member: u16,
    ) -> Result<Self, RpcError> {
        let nic = hub.nic();
        let open = |transport| open_pair(hub, link, &pair, transport, window, member);
        let mut connected = pair.connected().map(open).transpose()?;
        let mut datagrams = pair.has_datagrams().then(|| open(Transport::Ud)).transpose()?;
        let replies = match pair.reply.carrier {
            Carrier::Send => {
                let transport = pair.reply.transport;
                let outbox = if transport == Transport::Ud { &mut datagrams } else { &mut connected };
                let outbox = outbox.as_mut().ok_or(FabricError::State("a pair without its queue pair"))?;
                let count = if transport == Transport::Ud { 2 * window } else { window };
                let inbox = Inbox::new(nic, transport, count, REPLY_BYTES_MAX)?;
                let tag = outbox.tag();
                inbox
                    .post_all(&mut outbox.pair, tag)
                    .map_err(|_| FabricError::State("RECVs were refused"))?;
                Replies::Received(inbox)
            }
            Carrier::Read => Replies::Fetched(Fetcher::new(nic, window)?),
            _ => {
                let checked = pair.is_lossy() || Layout::needs_checksum(nic.properties());
                let layout = Layout::new(window, REPLY_BYTES_MAX, checked);
                Replies::Written(Rc::new(Arrivals::new(nic, layout, window, pair.is_lossy())?))
            }
        };
        if let Some(datagrams) = &mut datagrams {
            datagrams.pair.activate()?;
        }
        let wakes = pair.request.carrier == Carrier::Write && !nic.properties().writes_wake;
        let at_once = takes_at_once(nic, pair.reply);
        Ok(Self { pair, connected, datagrams, course: None, replies, wakes, at_once })
    }

    /// What the hub has to look after while a request is under way.
    pub fn watch(&self, nic: &N, busy: &Rc<Cell<usize>>) -> Option<Watch<N>> {
        let arrivals = match &self.replies {
            Replies::Written(arrivals) => Some(arrivals.clone()),
            _ => None,
        };
        let silent = arrivals.is_some() && !nic.properties().writes_wake;
        let nap = if silent || self.wakes {
            Some(NAP)
        } else if self.pair.is_lossy() {
            Some(Duration::from_nanos(crate::channel::RETRY_NS / 2))
        } else {
            None
        };
        (nap.is_some() || arrivals.is_some()).then(|| Watch { arrivals, nap, busy: busy.clone() })
    }

    /// What the server must know: the queue pairs that it sends to or is connected with, and where replies are WRITten.
    pub fn facts(&self, link: &N::Link) -> Result<Vec<Facts>, FabricError> {
        let mut facts = Vec::with_capacity(3);
        if let Some(connected) = &self.connected {
            facts.push(connected.pair.facts(link)?);
        }
        if self.pair.reply.transport == Transport::Ud
            && let Some(datagrams) = &self.datagrams
        {
            facts.push(datagrams.pair.facts(link)?);
        }
        if let Replies::Written(arrivals) = &self.replies {
            facts.push(link.grant(&arrivals.region)?);
        }
        Ok(facts)
    }

    /// Connects with the server core that sent these.
    pub fn connect(
        &mut self,
        link: &N::Link,
        facts: Vec<Facts>,
        greeting: &Greeting,
        window: usize,
    ) -> Result<(), FabricError> {
        let mut facts = facts.into_iter();
        let absent = || FabricError::Protocol { peer: link.peer(), what: "a channel without facts".into() };
        if let Some(connected) = &mut self.connected {
            connected.pair.connect(facts.next().ok_or_else(absent)?)?;
        }
        self.course = Some(match self.pair.request.carrier {
            Carrier::Send if self.pair.request.transport == Transport::Ud => {
                let datagrams = self.datagrams.as_mut().ok_or_else(absent)?;
                let to = datagrams.pair.address(link, facts.next().ok_or_else(absent)?)?;
                Course::Datagram { to, token: greeting.token }
            }
            Carrier::Send => Course::Send,
            carrier => {
                let region = link.import(facts.next().ok_or_else(absent)?)?;
                let layout = Layout::new(window, FRAME_BYTES_MAX, greeting.checked);
                let immediate = carrier == Carrier::WriteImmediate;
                Course::write(region, layout, immediate).ok_or_else(absent)?
            }
        });
        if let Replies::Fetched(fetcher) = &mut self.replies {
            fetcher.connect(link.import(facts.next().ok_or_else(absent)?)?).ok_or_else(absent)?;
        }
        Ok(())
    }

    /// Whether the tag of a completion is of this line: then of which queue pair.
    #[inline]
    pub fn of(&mut self, id: u64) -> Option<&mut Outbox<N>> {
        let connected = self.connected.as_mut().filter(|outbox| outbox.tag().owns(id));
        connected.or(self.datagrams.as_mut().filter(|outbox| outbox.tag().owns(id)))
    }

    /// What requests go over.
    #[inline]
    pub fn outbox(&mut self) -> Option<&mut Outbox<N>> {
        if self.pair.request.is_connected() { self.connected.as_mut() } else { self.datagrams.as_mut() }
    }

    /// Whether replies are taken at once.
    #[inline(always)]
    pub fn takes_at_once(&self) -> bool {
        self.at_once
    }

    /// Takes a reply at once, and says how long it is.
    #[inline]
    pub fn take_at_once(&mut self, into: &mut [u8]) -> Option<usize> {
        self.connected.as_mut().filter(|_| self.at_once)?.pair.receive_at_once(into)
    }

    /// Takes a reply out of a RECV; none if it is a datagram that does not begin with the token.
    #[inline]
    pub fn receive(
        &mut self,
        slot: u32,
        bytes: u32,
        token: u64,
        into: &mut [u8],
    ) -> Result<Option<usize>, PostError> {
        let Self { replies: Replies::Received(inbox), connected, datagrams, pair, .. } = self else {
            return Ok(None);
        };
        if pair.reply.is_connected() {
            let Some(outbox) = connected else { return Ok(None) };
            let tag = outbox.tag();
            return inbox.take(&mut outbox.pair, tag, slot, bytes, into).map(Some);
        }
        let Some(outbox) = datagrams else { return Ok(None) };
        let (ours, tag) = (inbox.token(slot, bytes) == Some(token), outbox.tag());
        let bytes = inbox.take(&mut outbox.pair, tag, slot, bytes, into)?;
        Ok(ours.then_some(bytes))
    }

    /// Whether more than half of the places for requests are taken, as far as is known.
    #[inline]
    pub fn is_half_full(&self) -> bool {
        let outbox = if self.pair.request.is_connected() { &self.connected } else { &self.datagrams };
        outbox.as_ref().is_some_and(Outbox::is_half_full)
    }

    /// Sends a request at once, or posts it, if there is room.
    #[inline(always)]
    pub fn send(&mut self, sequence: u64, attempt: u8, frame: &Frame<'_>) -> Result<Sent, PostError> {
        let Self { connected, datagrams, course, pair, .. } = self;
        let outbox = if pair.request.is_connected() { connected.as_mut() } else { datagrams.as_mut() };
        let (Some(outbox), Some(course)) = (outbox, course) else { return Err(PostError::NotReady) };
        outbox.send(course, sequence, attempt, frame)
    }

    /// Starts what was posted.
    #[inline]
    pub fn ring(&mut self) -> Result<(), PostError> {
        let connected = self.connected.as_mut().map_or(Ok(()), Outbox::ring);
        connected.and(self.datagrams.as_mut().map_or(Ok(()), Outbox::ring))
    }

    /// Whether a server that sleeps does not notice requests.
    #[inline]
    pub fn wakes(&self) -> bool {
        self.wakes
    }

    /// Wakes a server that may sleep, if it takes that: posts what wakes it.
    #[cold]
    pub fn wake(&mut self) -> Result<(), PostError> {
        match (&mut self.connected, &self.course) {
            (Some(outbox), Some(Course::Write { region, .. })) if self.wakes => outbox.wake(region),
            _ => Ok(()),
        }
    }

    /// Posts the READ of a slot's reply, unless one is under way.
    #[inline]
    pub fn fetch(&mut self, slot: usize) -> Result<(), PostError> {
        match (&mut self.replies, self.connected.as_mut()) {
            (Replies::Fetched(fetcher), Some(outbox)) if outbox.room(1) => fetcher.fetch(outbox, slot),
            _ => Ok(()),
        }
    }
}

impl<N: Nic> Drop for Line<N> {
    fn drop(&mut self) {
        for outbox in [&mut self.connected, &mut self.datagrams].into_iter().flatten() {
            outbox.pair.fail();
        }
    }
}

/// Makes a queue pair of a channel.
fn open_pair<N: Nic>(
    hub: &Hub<N>,
    link: &N::Link,
    pair: &Pair,
    transport: Transport,
    window: usize,
    member: u16,
) -> Result<Outbox<N>, RpcError> {
    let nic = hub.nic();
    let config = queue_pair_config(nic, pair, transport, window);
    let queue_pair = hub.with_queue(|queue| nic.create_queue_pair(link, &config, queue, queue))?;
    let tag = Tag::new(member, hub.connection());
    let longest = FRAME_BYTES_MAX + 8 + TAIL_BYTES_MAX;
    let buffers = Buffers::new(nic, window, longest, config.inline_bytes)?;
    Ok(Outbox::new(queue_pair, tag, config.send_depth, config.inline_bytes, buffers))
}

/// Fetches replies by READs of the server's slots (Onkenhout §3.3, Figure 4c): again and again until each is there.
pub(crate) struct Fetcher<N: Nic> {
    layout: Layout,
    remote: Option<N::RemoteRegion>,
    local: N::Region,
    /// For each slot: the mark taken last, how many bytes to READ, and whether a READ is under way.
    slots: Box<[(Mark, usize, bool)]>,
    /// READs under way, oldest first: the numbers of their work requests, their slots and lengths.
    under_way: VecDeque<(u32, usize, usize)>,
    limit: usize,
}

impl<N: Nic> Fetcher<N> {
    fn new(nic: &N, window: usize) -> Result<Self, FabricError> {
        let layout = Layout::new(window, REPLY_BYTES_MAX, true);
        let local = nic.register(layout.region_bytes(), Access::Local, PagePolicy::Base)?;
        let limit = window.min(nic.properties().reads_outstanding_max);
        let slots = vec![(Mark(0), FETCH_BYTES, false); window].into();
        Ok(Self { layout, remote: None, local, slots, under_way: VecDeque::with_capacity(limit), limit })
    }

    fn connect(&mut self, remote: N::RemoteRegion) -> Option<()> {
        use locus_fabric::RemoteRegion;
        let fits = remote.bytes() >= self.layout.region_bytes();
        self.remote = fits.then_some(remote);
        fits.then_some(())
    }

    fn fetch(&mut self, outbox: &mut Outbox<N>, slot: usize) -> Result<(), PostError> {
        let Some(region) = &self.remote else { return Err(PostError::NotReady) };
        let (_, bytes, busy) = &mut self.slots[slot];
        if *busy || self.under_way.len() >= self.limit {
            return Ok(());
        }
        let offset = self.layout.end(slot) - *bytes;
        let into = LocalSlice { region: &self.local, offset, bytes: *bytes };
        let number = outbox.read(into, RemoteSlice { region, offset })?;
        self.under_way.push_back((number, slot, *bytes));
        *busy = true;
        outbox.ring()
    }

    /// Takes the next READ that is done, up to a work request of this number: copies what it brought, and gives the reply's
    /// place and length in the copy, if it is there.
    pub fn take(&mut self, done: u32, into: &mut [u8]) -> Option<Option<(usize, usize)>> {
        let &(number, slot, bytes) = self.under_way.front()?;
        if done.wrapping_sub(number) > u32::MAX / 2 {
            return None;
        }
        self.under_way.pop_front();
        self.slots[slot].2 = false;
        let copy = &mut into[..bytes];
        self.local.copy_out(self.layout.end(slot) - bytes, copy);
        match self.layout.find(copy, self.slots[slot].0) {
            Fetched::Nothing => Some(None),
            Fetched::Longer(bytes) => {
                self.slots[slot].1 = bytes;
                Some(None)
            }
            Fetched::Frame { start, bytes, mark } => {
                self.slots[slot].0 = mark;
                self.slots[slot].1 = self.layout.bytes_of(bytes).max(FETCH_BYTES);
                Some(Some((start, bytes)))
            }
        }
    }
}
