//! A client's channel to one server core: calls share a window of slots, and replies find their call by sequence.
//!
//! Calls are futures that poll the fabric themselves; nothing is woken. A future may be dropped at any time: its slot then
//! stays in use until the reply has come. When the server is lost, calls stay pending until the channel is connected again
//! (they are then sent again, with the same sequence) or closed.

use crate::{
    ChannelCounters, FRAME_BYTES_MAX, Greeting, Hub, INLINE_VALUE_BYTES_MAX, KEY_BYTES_MAX, Loss, Pair,
    ReplyHeader, RequestHeader, RpcError, Staged, Staging,
    doorbell::Doorbell,
    frame::{REPLY_BYTES_MAX, REPLY_HEADER_BYTES},
    inbox::Inbox,
    outbox::{Buffers, Outbox},
    tag::{self, Kind, Tag},
    window::{Phase, Window},
};
use locus_fabric::{
    Completion, FabricError, Facts, Link, Nic, PostError, QueuePair, QueuePairConfig, Status, Work,
};
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    task::Poll,
};

/// The limits of a channel. Both sides must agree on the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelConfig {
    /// How requests and replies travel.
    pub pair: Pair,
    /// How many requests may be under way.
    pub window: usize,
    /// How many calls may wait for a slot.
    pub waiting_max: usize,
    /// Whether calls of a lost channel stay pending until it is connected again or closed, in place of ending. For owners
    /// that watch [`Channel::lost`].
    pub hold_calls: bool,
}

impl Default for ChannelConfig {
    fn default() -> Self {
        Self { pair: Pair::default(), window: 16, waiting_max: 1 << 10, hold_calls: false }
    }
}

/// What to ask of the server.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What to do; the numbers belong to the store.
    pub opcode: u8,
    /// Whether it changes something, so that it must be executed at most once.
    pub mutates: bool,
    /// The partition of the key.
    pub partition: u16,
    /// The epoch of the partition map by which this server owns it.
    pub map_epoch: u32,
    /// The key.
    pub key: &'a [u8],
    /// The value. One longer than [`INLINE_VALUE_BYTES_MAX`] goes through the staging region.
    pub value: &'a [u8],
}

/// What the server answered.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// How it went; the numbers belong to the store.
    pub status: u8,
    /// The record's version.
    pub version: u64,
    /// The value.
    pub value: &'a [u8],
}

/// A channel to one server core. Stays on the thread of its hub.
pub struct Channel<N: Nic> {
    hub: Hub<N>,
    member: u16,
    inner: RefCell<Inner<N>>,
    /// Calls that wait for a slot.
    waiting: Cell<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The queue pair waits for the server's facts.
    Connecting,
    Connected,
    Lost(Loss),
    Closed(Loss),
}

struct Inner<N: Nic> {
    config: ChannelConfig,
    link: N::Link,
    state: State,
    tag: Tag,
    /// None between connections.
    outbox: Option<Outbox<N>>,
    buffers: Option<Buffers<N>>,
    inbox: Inbox<N>,
    /// Where a reply is copied to before it is known whose it is; changes places with the slot's frame.
    arrival: Box<[u8]>,
    window: Window,
    doorbell: Doorbell,
    staging: Option<Staging<N>>,
    /// Of the server, folded.
    incarnation: u32,
    counters: ChannelCounters,
}

/// After how many empty polls the server's life is looked at.
const LOOK_EVERY: u64 = 64;
/// The longest piece of a value that one WRITE carries is the NIC's; a value takes at most so many.
const PIECES_MAX: usize = 8;

fn queue_pair_config<N: Nic>(nic: &N, window: usize) -> QueuePairConfig {
    let properties = nic.properties();
    QueuePairConfig {
        // A request each, and as many WRITEs again.
        send_depth: (2 * window).max(2 * PIECES_MAX).min(properties.queue_depth_max),
        receive_depth: window,
        inline_bytes: FRAME_BYTES_MAX.min(properties.inline_bytes_max),
        message_bytes: FRAME_BYTES_MAX,
        ..QueuePairConfig::default()
    }
}

impl<N: Nic> Channel<N> {
    /// A channel over a link; it carries calls once it is connected.
    pub fn new(hub: &Hub<N>, link: &N::Link, config: ChannelConfig) -> Result<Self, RpcError> {
        config.pair.check()?;
        let nic = hub.nic();
        let limit = nic.properties().queue_depth_max / 2;
        if config.window == 0 || config.window > limit {
            return Err(RpcError::Limit { what: "the window", limit });
        }
        let pair_config = queue_pair_config(nic, config.window);
        let inbox = Inbox::new(nic, config.window, REPLY_BYTES_MAX)?;
        let buffers = Buffers::new(nic, config.window, FRAME_BYTES_MAX, pair_config.inline_bytes)?;
        let member = hub.join(pair_config.send_depth + pair_config.receive_depth)?;
        let inner = Inner {
            link: link.clone(),
            state: State::Connecting,
            tag: Tag::new(member, 0),
            outbox: None,
            buffers,
            inbox,
            arrival: vec![0; REPLY_BYTES_MAX].into(),
            window: Window::new(config.window),
            doorbell: Doorbell::new(nic.properties().dear_doorbells, config.window.div_ceil(2)),
            staging: None,
            incarnation: 0,
            counters: ChannelCounters::default(),
            config,
        };
        let channel = Self { hub: hub.clone(), member, inner: RefCell::new(inner), waiting: Cell::new(0) };
        channel.inner.borrow_mut().open(hub, member)?;
        Ok(channel)
    }

    /// What the server must know of this channel's queue pair.
    pub fn facts(&self) -> Result<Facts, RpcError> {
        let inner = self.inner.borrow();
        let outbox =
            inner.outbox.as_ref().ok_or(FabricError::State("the channel has no queue pair: reconnect"))?;
        Ok(outbox.pair.facts(&inner.link)?)
    }

    /// Connects with the server core that sent these. Requests without a reply are sent again if the server knows the
    /// session; if not, mutations among them end as [`RpcError::OutcomeUnknown`], and reads are sent as new ones.
    pub fn connect(&self, facts: Facts, greeting: &Greeting) -> Result<(), RpcError> {
        let inner = &mut *self.inner.borrow_mut();
        let outbox =
            inner.outbox.as_mut().ok_or(FabricError::State("the channel has no queue pair: reconnect"))?;
        outbox.pair.connect(facts)?;
        inner.state = State::Connected;
        inner.incarnation = crate::fold(greeting.incarnation);
        if !greeting.resumed {
            inner.forget_mutations();
        }
        Ok(())
    }

    /// Begins a new connection in place of one that was lost: makes a queue pair over the link and gives its facts, for
    /// the server to accept under the same session. [`Channel::connect`] completes it.
    pub fn reconnect(&self, link: &N::Link) -> Result<Facts, RpcError> {
        {
            let inner = &mut *self.inner.borrow_mut();
            inner.disconnect();
            // What was sent counts as unsent: the futures that hold the slots send it again.
            inner.unsend();
            inner.link = link.clone();
            inner.state = State::Connecting;
            inner.staging = None;
            inner.open(&self.hub, self.member)?;
        }
        self.facts()
    }

    /// Gives the channel a staging region, for values that do not fit a frame. After a reconnect, before connecting, it needs a
    /// new one.
    pub fn set_staging(&self, staging: Staging<N>) {
        self.inner.borrow_mut().staging = Some(staging);
    }

    /// How the server was lost, if it was.
    pub fn lost(&self) -> Option<Loss> {
        match self.inner.borrow().state {
            State::Lost(cause) | State::Closed(cause) => Some(cause),
            State::Connecting | State::Connected => None,
        }
    }

    /// Ends all calls, those to come included: reads with [`RpcError::ServerLost`], mutations that were sent with
    /// [`RpcError::OutcomeUnknown`]. A reconnect opens the channel again.
    pub fn close(&self) {
        let inner = &mut *self.inner.borrow_mut();
        inner.disconnect();
        let cause = match inner.state {
            State::Lost(cause) | State::Closed(cause) => cause,
            State::Connecting | State::Connected => Loss::Closed,
        };
        inner.state = State::Closed(cause);
    }

    /// What the channel did so far.
    pub fn counters(&self) -> ChannelCounters {
        self.inner.borrow().counters
    }

    /// The hub that the channel's core sleeps on.
    pub fn hub(&self) -> &Hub<N> {
        &self.hub
    }

    /// Handles what has arrived, also when no call is under way: so that a loss shows. Says whether there was anything.
    pub fn poll(&self) -> bool {
        self.inner.borrow_mut().drive(&self.hub, self.member)
    }

    /// Whether the channel has a staging region.
    pub fn has_staging(&self) -> bool {
        self.inner.borrow().staging.is_some()
    }

    /// Sends a request and waits for its reply, which `on_reply` sees in place. When the window is full, waits for a slot;
    /// those who wait get one in the order in which they are polled. A value that does not fit the frame is written to
    /// the staging region first.
    pub async fn call<T>(
        &self,
        request: &Request<'_>,
        on_reply: impl FnOnce(&Reply<'_>) -> T,
    ) -> Result<T, RpcError> {
        check_size("key", request.key.len(), KEY_BYTES_MAX)?;
        if request.value.len() > INLINE_VALUE_BYTES_MAX {
            self.check_staged(request.value.len())?;
        }
        N::charge(Work::Request);
        let mut hold = Hold { channel: self, held: Held::Nothing };
        let index = poll_fn(|_| hold.advance(request)).await?;
        // The frame leaves its slot for the moment and the slot is free, so that `on_reply` may use the channel, however
        // narrow its window.
        hold.held = Held::Nothing;
        let (status, version, frame, bytes) = {
            let window = &mut self.inner.borrow_mut().window;
            let lent = window.lend(index);
            window.release(index);
            lent
        };
        let value = frame.get(REPLY_HEADER_BYTES..bytes).unwrap_or_default();
        N::charge(Work::Reply(value.len()));
        let output = on_reply(&Reply { status, version, value });
        let slot = &mut self.inner.borrow_mut().window.slots[index as usize];
        if slot.frame.is_empty() {
            slot.frame = frame;
        }
        Ok(output)
    }

    #[cold]
    fn check_staged(&self, bytes: usize) -> Result<(), RpcError> {
        let inner = self.inner.borrow();
        let place_bytes = inner.staging.as_ref().ok_or(RpcError::NoStaging)?.place_bytes();
        let transfer_bytes = self.hub.nic().properties().transfer_bytes_max;
        check_size("value", bytes, place_bytes.min(PIECES_MAX.saturating_mul(transfer_bytes)))
    }
}

impl<N: Nic> Drop for Channel<N> {
    fn drop(&mut self) {
        self.inner.get_mut().disconnect();
        self.hub.leave(self.member);
    }
}

/// What a call holds of its channel; dropping it gives that back, or leaves the slot to its reply.
struct Hold<'a, N: Nic> {
    channel: &'a Channel<N>,
    held: Held,
}

#[derive(Clone, Copy)]
enum Held {
    Nothing,
    /// A place among those who wait for a slot.
    Wait,
    Slot(u32),
}

impl<N: Nic> Hold<'_, N> {
    /// One step of a call: gets a slot, sends, or looks for the reply.
    #[inline]
    fn advance(&mut self, request: &Request<'_>) -> Poll<Result<u32, RpcError>> {
        let channel = self.channel;
        let inner = &mut *channel.inner.borrow_mut();
        let index = match self.held {
            Held::Slot(index) => index,
            Held::Nothing | Held::Wait => match self.acquire(inner, request.mutates) {
                Ok(Some(index)) => index,
                Ok(None) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            },
        };
        if matches!(inner.window.slots[index as usize].phase, Phase::Sent) && inner.state == State::Connected
        {
            inner.drive(&channel.hub, channel.member);
        }
        let slot = &mut inner.window.slots[index as usize];
        match slot.phase {
            Phase::Answered => Poll::Ready(Ok(index)),
            Phase::Unknown => {
                self.held = Held::Nothing;
                inner.window.release(index);
                Poll::Ready(Err(RpcError::OutcomeUnknown))
            }
            _ if matches!(inner.state, State::Closed(_)) => {
                let unknown = slot.mutation && slot.ever_sent;
                self.held = Held::Nothing;
                inner.window.release(index);
                Poll::Ready(Err(if unknown { RpcError::OutcomeUnknown } else { inner.lost_error() }))
            }
            Phase::Unsent if inner.state == State::Connected => {
                inner.send(channel, index, request);
                Poll::Pending
            }
            _ => Poll::Pending,
        }
    }

    /// Takes a slot if there is one, or a place among those who wait.
    #[inline]
    fn acquire(&mut self, inner: &mut Inner<N>, mutation: bool) -> Result<Option<u32>, RpcError> {
        let channel = self.channel;
        if matches!(inner.state, State::Closed(_)) {
            return Err(inner.lost_error());
        }
        if let Some(index) = inner.window.acquire(mutation) {
            self.stop_waiting();
            self.held = Held::Slot(index);
            return Ok(Some(index));
        }
        if let Held::Nothing = self.held {
            if channel.waiting.get() >= inner.config.waiting_max {
                return Err(RpcError::WindowFull(inner.config.waiting_max));
            }
            channel.waiting.set(channel.waiting.get() + 1);
            self.held = Held::Wait;
            inner.counters.slot_waits += 1;
        }
        // All slots may be held by futures that are gone or not polled: their replies are handled here.
        inner.drive(&channel.hub, channel.member);
        Ok(None)
    }

    fn stop_waiting(&mut self) {
        if let Held::Wait = self.held {
            self.channel.waiting.set(self.channel.waiting.get() - 1);
            self.held = Held::Nothing;
        }
    }
}

impl<N: Nic> Drop for Hold<'_, N> {
    fn drop(&mut self) {
        self.stop_waiting();
        let Held::Slot(index) = self.held else { return };
        let inner = &mut *self.channel.inner.borrow_mut();
        match inner.window.slots[index as usize].phase {
            Phase::Sent => {
                inner.window.slots[index as usize].abandoned = true;
                // Perhaps nobody polls the channel any more, and a mutation that is carried out much later would surprise.
                if inner.doorbell.waits() {
                    inner.ring();
                }
            }
            _ => inner.window.release(index),
        }
    }
}

impl<N: Nic> Inner<N> {
    /// Makes a queue pair over the link and posts its RECVs.
    fn open(&mut self, hub: &Hub<N>, member: u16) -> Result<(), RpcError> {
        let nic = hub.nic();
        let config = queue_pair_config(nic, self.config.window);
        let mut pair = hub.with_queue(|queue| nic.create_queue_pair(&self.link, &config, queue, queue))?;
        self.tag = Tag::new(member, hub.connection());
        self.inbox.post_all(&mut pair, self.tag).map_err(|_| FabricError::State("RECVs were refused"))?;
        let buffers = self.buffers.take();
        self.outbox = Some(Outbox::new(pair, self.tag, config.send_depth, config.inline_bytes, buffers));
        Ok(())
    }

    fn disconnect(&mut self) {
        if let Some(outbox) = self.outbox.take() {
            self.buffers = outbox.close();
        }
    }

    fn lose(&mut self, cause: Loss) {
        if matches!(self.state, State::Connecting | State::Connected) {
            self.state = if self.config.hold_calls { State::Lost(cause) } else { State::Closed(cause) };
            self.counters.losses += 1;
        }
    }

    #[cold]
    fn lost_error(&self) -> RpcError {
        let cause = match self.state {
            State::Lost(cause) | State::Closed(cause) => cause,
            State::Connecting | State::Connected => Loss::Closed,
        };
        RpcError::ServerLost { peer: self.link.peer(), cause }
    }

    /// After a queue pair is gone: what was sent over it is to be sent again, unless nobody waits for it.
    fn unsend(&mut self) {
        for index in 0..self.window.slots.len() {
            let slot = &mut self.window.slots[index];
            // The staging region goes with the link.
            slot.staged = None;
            if slot.phase != Phase::Sent {
                continue;
            }
            if slot.abandoned {
                self.window.release(index as u32);
            } else {
                slot.phase = Phase::Unsent;
            }
        }
    }

    /// The server does not know our session: what was sent of mutations may have been executed or not.
    fn forget_mutations(&mut self) {
        for slot in &mut self.window.slots {
            if slot.phase == Phase::Unsent && slot.ever_sent && slot.mutation {
                slot.phase = Phase::Unknown;
            }
        }
    }

    /// Sends the request of a slot, if there is room; if not, the next poll tries again.
    #[inline]
    fn send(&mut self, channel: &Channel<N>, index: u32, request: &Request<'_>) {
        let sent = if request.value.len() <= INLINE_VALUE_BYTES_MAX {
            self.post(index, request, false, request.value)
        } else {
            self.post_staged(channel, index, request)
        };
        match sent {
            Ok(()) => {
                let slot = &mut self.window.slots[index as usize];
                self.counters.requests += 1;
                self.counters.resent += u64::from(slot.ever_sent);
                slot.ever_sent = true;
                slot.phase = Phase::Sent;
                // The core must not sleep before the doorbell has rung.
                channel.hub.note_news();
            }
            Err(PostError::SendQueueFull(_)) => {
                self.counters.send_waits += 1;
                self.drive(&channel.hub, channel.member);
            }
            Err(error) => self.lose(Loss::Refused(error)),
        }
    }

    /// Posts a frame. A request alone is started at once; with others under way there may be more to post in this turn, and
    /// the doorbell rings for all of them when the first of them looks for its reply (doorbell batching, Kalia §2.2.2).
    #[inline]
    fn post(
        &mut self,
        index: u32,
        request: &Request<'_>,
        staged: bool,
        value: &[u8],
    ) -> Result<(), PostError> {
        let outbox = self.outbox.as_mut().ok_or(PostError::NotReady)?;
        if !outbox.room(1) {
            return Err(PostError::SendQueueFull(0));
        }
        let header = RequestHeader {
            opcode: request.opcode,
            mutates: request.mutates,
            staged,
            key_bytes: request.key.len() as u16,
            value_bytes: value.len() as u16,
            incarnation: self.incarnation,
            sequence: self.window.slots[index as usize].sequence,
            partition: request.partition,
            map_epoch: request.map_epoch,
        };
        outbox.send(&[&header.encode(), request.key, value])?;
        self.doorbell.posted();
        if !self.window.is_alone() {
            return Ok(());
        }
        self.doorbell.rang();
        outbox.ring()
    }

    /// Brings the value to a place of the staging region, and posts the WRITEs and then the frame: a queue pair carries
    /// them out in order. While all places are taken it is as if the send queue were full.
    #[cold]
    fn post_staged(
        &mut self,
        channel: &Channel<N>,
        index: u32,
        request: &Request<'_>,
    ) -> Result<(), PostError> {
        let full = PostError::SendQueueFull(0);
        let bytes = request.value.len();
        let pieces = bytes.div_ceil(channel.hub.nic().properties().transfer_bytes_max);
        // A reconnect took the region away, and the owner gave no other.
        let staging = self.staging.as_ref().ok_or(PostError::LocalRange)?;
        let outbox = self.outbox.as_mut().ok_or(PostError::NotReady)?;
        if !outbox.room(pieces + 1) {
            return Err(full);
        }
        let slot = &mut self.window.slots[index as usize];
        if slot.staged.is_none() {
            slot.staged = staging.put(request.value);
        }
        let place = slot.staged.as_ref().ok_or(full)?;
        let piece_bytes = bytes.div_ceil(pieces);
        for at in (0..bytes).step_by(piece_bytes) {
            let (from, to) = staging.piece(place, at, piece_bytes.min(bytes - at));
            outbox.write(from, to)?;
        }
        let staged = Staged { offset: staging.offset(place) as u64, bytes: bytes as u32 };
        self.post(index, request, true, &staged.encode())
    }

    /// Handles what has arrived, and says whether there was anything.
    #[inline]
    fn drive(&mut self, hub: &Hub<N>, member: u16) -> bool {
        if self.doorbell.is_ripe() {
            self.ring();
        }
        let any = hub.drain(member, |completion| self.complete(completion));
        if self.doorbell.is_due(any) {
            self.ring();
        }
        if !any {
            self.counters.empty_polls += 1;
            let look = self.counters.empty_polls.is_multiple_of(LOOK_EVERY);
            if look && self.state == State::Connected && !self.link.alive() {
                self.lose(Loss::PeerGone);
            }
        }
        any
    }

    /// Starts the requests that were posted.
    #[inline]
    fn ring(&mut self) {
        self.doorbell.rang();
        if let Some(Err(error)) = self.outbox.as_mut().map(Outbox::ring) {
            self.lose(Loss::Refused(error));
        }
    }

    #[inline]
    fn complete(&mut self, completion: &Completion) {
        // Of a queue pair that is gone.
        if !self.tag.owns(completion.id) {
            return;
        }
        if completion.status != Status::Success {
            self.lose(Loss::of(completion.status));
            return;
        }
        let Some(outbox) = &mut self.outbox else { return };
        match tag::kind(completion.id) {
            Kind::Send(number) => outbox.completed(number),
            Kind::Receive(slot) => {
                match self.inbox.take(&mut outbox.pair, self.tag, slot, completion.bytes, &mut self.arrival) {
                    Ok(bytes) => self.arrived(bytes),
                    Err(error) => self.lose(Loss::Refused(error)),
                }
            }
        }
    }

    /// Matches the reply in the arrival buffer with its call.
    #[inline]
    fn arrived(&mut self, bytes: usize) {
        let header = match ReplyHeader::parse(&self.arrival[..bytes]) {
            Ok(header) if header.incarnation == self.incarnation => header,
            Ok(_) => return self.lose(Loss::WrongIncarnation),
            Err(error) => return self.lose(Loss::Malformed(error)),
        };
        let Some(index) = self.window.answered_by(header.sequence) else {
            self.counters.foreign_replies += 1;
            return;
        };
        let slot = &mut self.window.slots[index as usize];
        if slot.abandoned {
            self.counters.unclaimed_replies += 1;
            self.window.release(index);
            return;
        }
        self.counters.replies += 1;
        slot.phase = Phase::Answered;
        slot.status = header.status;
        slot.version = header.version;
        slot.frame_bytes = bytes;
        std::mem::swap(&mut slot.frame, &mut self.arrival);
        if self.arrival.is_empty() {
            // The slot's frame is lent to an `on_reply`, or was lost in one that panicked.
            self.arrival = vec![0; REPLY_BYTES_MAX].into();
        }
    }
}

#[inline]
fn check_size(what: &'static str, bytes: usize, limit: usize) -> Result<(), RpcError> {
    if bytes > limit {
        return Err(RpcError::TooLarge { what, bytes, limit });
    }
    Ok(())
}
