//! A client's channel to one server core: calls share a window of slots, and replies find their call by sequence.
//!
//! Calls are futures that poll the fabric themselves; nothing is woken. A future may be dropped at any time: its slot then
//! stays in use until the reply has come. When the server is lost, calls stay pending until the channel is connected again
//! (they are then sent again, with the same sequence) or closed.

mod hold;

use crate::{
    ChannelCounters, Greeting, Hub, INLINE_VALUE_BYTES_MAX, KEY_BYTES_MAX, Loss, Pair, ReplyHeader,
    RequestHeader, RpcError, STAGED_BYTES_MAX, Staged, Staging,
    doorbell::Doorbell,
    frame::{REPLY_BUFFER_BYTES, REQUEST_HEADER_BYTES},
    line::{self, Line, PIECES_MAX, Replies},
    outbox::Sent,
    pair::Carrier,
    slots::{Layout, Look},
    tag::{self, Kind},
    window::{Phase, Window},
};
pub use hold::{Call, Step};
use locus_fabric::{Completion, FabricError, Facts, Link, Nic, PostError, Status, Work};
use locus_runtime::{Clock, MonotonicClock};
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
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
    /// The value. One that does not fit a frame goes through the staging region.
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
    /// None between connections.
    line: Option<Line<N>>,
    /// The longest frame of a request.
    request_bytes_max: usize,
    /// Where a reply is copied to before it is known whose it is; changes places with the slot's frame.
    arrival: Box<[u8]>,
    window: Window,
    doorbell: Doorbell,
    staging: Option<Staging<N>>,
    /// Of the server, folded.
    incarnation: u32,
    /// What datagrams of the present connection begin with.
    token: u64,
    counters: ChannelCounters,
    clock: MonotonicClock,
    /// How often the core has slept, and had when it was last looked whether something is overdue.
    slept: Rc<Cell<u64>>,
    sleeps: u64,
    /// Since when nothing has come, as far as that was looked at, and whether the server was woken since.
    silent_since_ns: Option<u64>,
}

/// After how many empty polls the server's life is looked at.
const LOOK_EVERY: u64 = 64;
/// Where replies come without a completion, the completion queue is looked at after so many looks at a slot.
const QUEUE_EVERY: u64 = 16;
/// A request that may be lost is sent again after so long, in nanoseconds, and then after twice as long each time, at most
/// 2^[`RETRY_DOUBLINGS`] times as long: longer than an answer takes where many wait.
pub(crate) const RETRY_NS: u64 = 4_000_000;
const RETRY_DOUBLINGS: u32 = 4;
/// How often it is sent again. With 30% of all messages lost, one call in 10^9 comes to that.
const RETRIES_MAX: u8 = 32;
/// A server that has answered nothing for so long may sleep, in nanoseconds: after the time for which one stays awake.
const WAKE_NS: u64 = 100_000;

impl<N: Nic> Channel<N> {
    /// A channel over a link; it carries calls once it is connected.
    pub fn new(hub: &Hub<N>, link: &N::Link, config: ChannelConfig) -> Result<Self, RpcError> {
        config.pair.check()?;
        let nic = hub.nic();
        let properties = nic.properties();
        let limit = properties.queue_depth_max / 4;
        if config.window == 0 || config.window > limit {
            return Err(RpcError::Limit { what: "the window", limit });
        }
        let request_bytes_max = config.pair.request_bytes_max(properties);
        if request_bytes_max < REQUEST_HEADER_BYTES + STAGED_BYTES_MAX {
            return Err(RpcError::Limit { what: "bytes of a datagram", limit: request_bytes_max });
        }
        let member = hub.join(line::promise(nic, &config.pair, config.window))?;
        let in_turn = matches!(config.pair.request.carrier, Carrier::Write | Carrier::WriteImmediate);
        let inner = Inner {
            link: link.clone(),
            state: State::Connecting,
            line: None,
            request_bytes_max,
            arrival: vec![0; REPLY_BUFFER_BYTES].into(),
            window: Window::new(config.window, in_turn),
            doorbell: Doorbell::new(properties.dear_doorbells, config.window.div_ceil(2)),
            staging: None,
            incarnation: 0,
            token: 0,
            counters: ChannelCounters::default(),
            clock: MonotonicClock::new(),
            slept: hub.slept(),
            sleeps: 0,
            silent_since_ns: None,
            config,
        };
        let channel = Self { hub: hub.clone(), member, inner: RefCell::new(inner), waiting: Cell::new(0) };
        channel.inner.borrow_mut().open(hub, member)?;
        Ok(channel)
    }

    /// What the server must know of this channel's end.
    pub fn facts(&self) -> Result<Vec<Facts>, RpcError> {
        let inner = self.inner.borrow();
        let line = inner.line.as_ref().ok_or(NO_LINE)?;
        Ok(line.facts(&inner.link)?)
    }

    /// Connects with the server core that sent these. Requests without a reply are sent again if the server knows the
    /// session; if not, mutations among them end as [`RpcError::OutcomeUnknown`], and reads are sent as new ones.
    pub fn connect(&self, facts: Vec<Facts>, greeting: &Greeting) -> Result<(), RpcError> {
        let inner = &mut *self.inner.borrow_mut();
        let line = inner.line.as_mut().ok_or(NO_LINE)?;
        if !greeting.checked
            && inner.config.pair.is_lossy() | Layout::needs_checksum(self.hub.nic().properties())
        {
            let what = "it wants no checksums where they are needed";
            return Err(RpcError::Protocol { peer: inner.link.peer(), what });
        }
        line.connect(&inner.link, facts, greeting, inner.config.window)?;
        inner.state = State::Connected;
        inner.token = greeting.token;
        inner.incarnation = crate::fold(greeting.incarnation);
        if !greeting.resumed {
            inner.forget_mutations();
        }
        Ok(())
    }

    /// Begins a new connection in place of one that was lost: makes a queue pair over the link and gives its facts, for
    /// the server to accept under the same session. [`Channel::connect`] completes it.
    pub fn reconnect(&self, link: &N::Link) -> Result<Vec<Facts>, RpcError> {
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
        self.inner.borrow_mut().look_for_all(&self.hub, self.member)
    }

    /// Whether a request needs the staging region, since it does not fit a frame with its value.
    #[inline]
    pub fn stages(&self, request: &Request<'_>) -> bool {
        self.inner.borrow().is_long(request)
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
        let mut call = self.begin(request)?;
        poll_fn(|_| match call.step() {
            Step::Waits | Step::Lost => Poll::Pending,
            Step::Answered => Poll::Ready(Ok(())),
            Step::Ended(error) => Poll::Ready(Err(error)),
        })
        .await?;
        Ok(call.take(on_reply))
    }

    /// The same for who takes the steps himself, which spares a future.
    #[inline]
    pub fn begin<'c>(&'c self, request: &'c Request<'c>) -> Result<Call<'c, N>, RpcError> {
        check_size("key", request.key.len(), KEY_BYTES_MAX)?;
        if self.stages(request) {
            self.check_staged(request)?;
        }
        N::charge(Work::Request);
        Ok(Call::new(self, request))
    }

    #[cold]
    fn check_staged(&self, request: &Request<'_>) -> Result<(), RpcError> {
        let inner = self.inner.borrow();
        // In a short datagram a long key alone may be too much.
        let staged_bytes = if request.value.is_empty() { 0 } else { STAGED_BYTES_MAX };
        let limit = inner.request_bytes_max - REQUEST_HEADER_BYTES - staged_bytes;
        check_size("key", request.key.len(), limit)?;
        let staging = inner.staging.as_ref().ok_or(RpcError::NoStaging)?;
        if inner.config.pair.request.is_lossy() && !staging.goes_ahead() {
            return Err(RpcError::NoStaging);
        }
        let place_bytes = staging.place_bytes();
        let transfer_bytes = self.hub.nic().properties().transfer_bytes_max;
        check_size("value", request.value.len(), place_bytes.min(PIECES_MAX.saturating_mul(transfer_bytes)))
    }
}

impl<N: Nic> Drop for Channel<N> {
    fn drop(&mut self) {
        self.inner.get_mut().disconnect();
        self.hub.leave(self.member);
    }
}

impl<N: Nic> Inner<N> {
    /// Makes queue pairs over the link, and posts their RECVs.
    fn open(&mut self, hub: &Hub<N>, member: u16) -> Result<(), RpcError> {
        let line = Line::open(hub, &self.link, self.config.pair, self.config.window, member)?;
        hub.watch(member, line.watch(hub.nic(), &self.window.busy));
        self.line = Some(line);
        Ok(())
    }

    fn disconnect(&mut self) {
        self.line = None;
    }

    /// Whether a request does not fit a frame with its value.
    #[inline]
    fn is_long(&self, request: &Request<'_>) -> bool {
        let bytes = REQUEST_HEADER_BYTES + request.key.len() + request.value.len();
        request.value.len() > INLINE_VALUE_BYTES_MAX || bytes > self.request_bytes_max
    }

    fn lose(&mut self, cause: Loss) {
        if matches!(self.state, State::Connecting | State::Connected) {
            self.state = if self.config.hold_calls { State::Lost(cause) } else { State::Closed(cause) };
            self.counters.losses += 1;
        }
    }

    /// What a call that has no reply yet does.
    #[inline]
    fn waits(&self) -> Step {
        match self.state {
            State::Connecting | State::Connected => Step::Waits,
            State::Lost(_) | State::Closed(_) => Step::Lost,
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
                (slot.attempts, slot.since_ns) = (0, None);
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
        if self.line.as_ref().is_some_and(Line::is_half_full) {
            self.drive(&channel.hub, channel.member);
        }
        let sent = if self.is_long(request) {
            self.post_staged(channel, index, request)
        } else {
            self.post(index, request, false, request.value)
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
        let line = self.line.as_mut().ok_or(PostError::NotReady)?;
        let slot = &mut self.window.slots[index as usize];
        let header = RequestHeader {
            opcode: request.opcode,
            mutates: request.mutates,
            staged,
            key_bytes: request.key.len() as u16,
            value_bytes: value.len() as u16,
            incarnation: self.incarnation,
            sequence: slot.sequence,
            partition: request.partition,
            map_epoch: request.map_epoch,
        };
        let header = header.encode();
        let parts = [&header[..], request.key, value];
        let sent = line.send(slot.sequence, slot.attempts, &parts)?;
        if self.config.pair.is_lossy() {
            slot.copy.clear();
            parts.iter().for_each(|part| slot.copy.extend_from_slice(part));
        }
        if sent == Sent::AtOnce {
            return Ok(());
        }
        self.doorbell.posted();
        if !self.window.is_alone() {
            return Ok(());
        }
        self.doorbell.rang();
        line.ring()
    }

    /// Brings the value to a place of the staging region, and posts the frame that says where it is. While all places are
    /// taken, and while the value goes ahead, it is as if the send queue were full.
    #[cold]
    fn post_staged(
        &mut self,
        channel: &Channel<N>,
        index: u32,
        request: &Request<'_>,
    ) -> Result<(), PostError> {
        let transfer_bytes = channel.hub.nic().properties().transfer_bytes_max;
        let pieces = request.value.len().div_ceil(transfer_bytes);
        let staged = if self.config.pair.request.is_lossy() {
            self.stage_ahead(index, request.value, pieces)?
        } else {
            // What is polled may be seen before what was WRITten earlier (see [`slots`](crate::slots)).
            let polled = self.config.pair.request.carrier == Carrier::Write;
            let checked = polled && Layout::needs_checksum(channel.hub.nic().properties());
            self.stage_in_order(index, request.value, pieces, checked)?
        };
        self.post(index, request, true, staged.encode(&mut [0; STAGED_BYTES_MAX]))
    }

    /// Posts the WRITEs of a value before the frame of its request: a queue pair carries them out in order.
    fn stage_in_order(
        &mut self,
        index: u32,
        value: &[u8],
        pieces: usize,
        checked: bool,
    ) -> Result<Staged, PostError> {
        let full = PostError::SendQueueFull(0);
        // A reconnect took the region away, and the owner gave no other.
        let staging = self.staging.as_ref().ok_or(PostError::LocalRange)?;
        let outbox = self.line.as_mut().and_then(Line::outbox).ok_or(PostError::NotReady)?;
        if !outbox.room(pieces + 1) {
            return Err(full);
        }
        let slot = &mut self.window.slots[index as usize];
        if slot.staged.is_none() {
            slot.staged = staging.put(value, checked);
        }
        let staged = *slot.staged.as_ref().ok_or(full)?.staged();
        for (from, to) in staging.pieces(&staged, pieces) {
            outbox.write(from, to, false)?;
        }
        Ok(staged)
    }

    /// Sends a value ahead of its request, and says where it is once that is acknowledged (see [`ahead`](crate::ahead)).
    fn stage_ahead(&mut self, index: u32, value: &[u8], pieces: usize) -> Result<Staged, PostError> {
        let full = PostError::SendQueueFull(0);
        let staging = self.staging.as_ref().ok_or(PostError::LocalRange)?;
        let slot = &mut self.window.slots[index as usize];
        let mut polled = staging.poll();
        if slot.staged.is_none() && polled.is_ok() {
            slot.staged = staging.put_ahead(value, pieces)?;
            // Where WRITEs are over when they are started, it is there by now.
            polled = staging.poll();
        }
        if let Err(status) = polled {
            self.lose(Loss::of(status));
            return Err(full);
        }
        let place = slot.staged.as_ref().filter(|place| staging.is_there(place)).ok_or(full)?;
        Ok(*place.staged())
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
            self.nothing();
        }
        any
    }

    /// Nothing has come.
    #[inline]
    fn nothing(&mut self) {
        self.counters.empty_polls += 1;
        if self.counters.empty_polls.is_multiple_of(LOOK_EVERY) || self.has_slept() {
            self.sleeps = self.slept.get();
            self.look_after();
        }
    }

    /// Whether the core has slept since it was last looked whether something is overdue.
    #[inline(always)]
    fn has_slept(&self) -> bool {
        self.sleeps != self.slept.get()
    }

    /// Whether nothing is to be done for a call that holds this slot but to count an empty poll, which this does: its
    /// request was sent, its reply is not there, and it is not yet time for anything else. What most polls come to, in as
    /// few instructions as possible.
    #[inline(always)]
    fn waits_in_vain(&mut self, index: usize) -> bool {
        let Some(Line { replies: Replies::Written(arrivals), .. }) = &self.line else { return false };
        let waits = self.window.slots[index].phase == Phase::Sent
            && self.state == State::Connected
            && !arrivals.is_there(index)
            && !self.doorbell.waits()
            && !(self.counters.empty_polls + 1).is_multiple_of(QUEUE_EVERY)
            && !self.has_slept();
        self.counters.empty_polls += u64::from(waits);
        waits
    }

    /// Looks for the reply of a slot whose request was sent.
    #[inline]
    fn look_for(&mut self, hub: &Hub<N>, member: u16, index: usize) {
        let Some(line) = &mut self.line else { return };
        match &line.replies {
            Replies::Received(_) => drop(self.drive(hub, member)),
            Replies::Written(_) => {
                if self.doorbell.is_ripe() || self.doorbell.is_due(false) {
                    self.ring();
                }
                if self.look_at(index) {
                    return;
                }
                // A core that has slept may have been woken by a completion.
                if (self.counters.empty_polls + 1).is_multiple_of(QUEUE_EVERY) || self.has_slept() {
                    self.drive(hub, member);
                } else {
                    self.nothing();
                }
            }
            Replies::Fetched(_) => {
                let any = self.drive(hub, member);
                if self.window.slots[index].phase != Phase::Sent {
                    return;
                }
                if any {
                    // A READ that brought no reply.
                    self.nothing();
                }
                if let Some(Err(error)) = self.line.as_mut().map(|line| line.fetch(index)) {
                    self.lose(Loss::Refused(error));
                }
            }
        }
    }

    /// Looks for the replies of all slots, and says whether anything has come.
    fn look_for_all(&mut self, hub: &Hub<N>, member: u16) -> bool {
        let mut any = self.drive(hub, member);
        for index in 0..self.window.slots.len() {
            if self.window.slots[index].phase != Phase::Sent || self.state != State::Connected {
                continue;
            }
            match self.line.as_mut().map(|line| &line.replies) {
                Some(Replies::Written(_)) => any |= self.look_at(index),
                Some(Replies::Fetched(_)) => self.look_for(hub, member, index),
                _ => return any,
            }
        }
        any
    }

    /// Looks whether a slot's reply was WRITten.
    #[inline]
    fn look_at(&mut self, index: usize) -> bool {
        let Some(Replies::Written(arrivals)) = self.line.as_ref().map(|line| &line.replies) else {
            return false;
        };
        match arrivals.look(index, &mut self.arrival) {
            Look::Nothing => return false,
            Look::Frame(bytes) => self.arrived(bytes),
            Look::Broken(error) => self.lose(Loss::Malformed(error)),
        }
        true
    }

    /// Now and then, when nothing comes: looks whether the server lives, sleeps, or perhaps never got a request.
    #[cold]
    fn look_after(&mut self) {
        if self.state != State::Connected {
            return;
        }
        if !self.link.alive() {
            return self.lose(Loss::PeerGone);
        }
        if self.window.busy.get() == 0 {
            return;
        }
        let now_ns = self.clock.now_ns();
        if self.config.pair.is_lossy() {
            self.repeat_requests(now_ns);
        }
        // Once for each so long: the server stays awake meanwhile, or is busy.
        let since_ns = *self.silent_since_ns.get_or_insert(now_ns);
        if now_ns - since_ns >= WAKE_NS {
            self.silent_since_ns = None;
            if let Some(Err(error)) = self.line.as_mut().map(Line::wake) {
                self.lose(Loss::Refused(error));
            }
        }
    }

    /// Sends requests again that have been waiting for too long. The server executes none twice
    /// ([`sessions`](crate::sessions)).
    fn repeat_requests(&mut self, now_ns: u64) {
        let Some(line) = &mut self.line else { return };
        for slot in self.window.slots.iter_mut().filter(|slot| slot.phase == Phase::Sent) {
            let since_ns = *slot.since_ns.get_or_insert(now_ns);
            if now_ns - since_ns < RETRY_NS << u32::from(slot.attempts).min(RETRY_DOUBLINGS) {
                continue;
            }
            if slot.attempts == RETRIES_MAX {
                return self.lose(Loss::Silent(RETRIES_MAX.into()));
            }
            match line.send(slot.sequence, slot.attempts + 1, &[&slot.copy]) {
                Ok(_) => {
                    slot.attempts += 1;
                    slot.since_ns = Some(now_ns);
                    self.counters.repeated += 1;
                }
                Err(PostError::SendQueueFull(_)) => break,
                Err(error) => return self.lose(Loss::Refused(error)),
            }
        }
        self.ring();
    }

    /// Starts the requests that were posted.
    #[inline]
    fn ring(&mut self) {
        self.doorbell.rang();
        if let Some(Err(error)) = self.line.as_mut().map(Line::ring) {
            self.lose(Loss::Refused(error));
        }
    }

    #[inline]
    fn complete(&mut self, completion: &Completion) {
        let Some(line) = &mut self.line else { return };
        // Of a queue pair that is gone.
        let Some(outbox) = line.of(completion.id) else { return };
        if completion.status != Status::Success {
            self.lose(Loss::of(completion.status));
            return;
        }
        match tag::kind(completion.id) {
            Kind::Send(number) => {
                outbox.completed(number);
                self.fetched(number);
            }
            Kind::Receive(slot) => {
                match line.receive(slot, completion.bytes, self.token, &mut self.arrival) {
                    Ok(Some(bytes)) => self.arrived(bytes),
                    // A datagram of a stranger, or of an earlier connection.
                    Ok(None) => self.counters.foreign_replies += 1,
                    Err(error) => self.lose(Loss::Refused(error)),
                }
            }
        }
    }

    /// Takes what READs up to this work request have brought.
    #[inline]
    fn fetched(&mut self, number: u32) {
        while let Some(Replies::Fetched(fetcher)) = self.line.as_mut().map(|line| &mut line.replies)
            && let Some(found) = fetcher.take(number, &mut self.arrival)
        {
            if let Some((start, bytes)) = found {
                self.arrival.copy_within(start..start + bytes, 0);
                self.arrived(bytes);
            }
        }
    }

    /// Matches the reply in the arrival buffer with its call.
    #[inline]
    fn arrived(&mut self, bytes: usize) {
        self.silent_since_ns = None;
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
            self.arrival = vec![0; REPLY_BUFFER_BYTES].into();
        }
    }
}

const NO_LINE: FabricError = FabricError::State("the channel has no queue pair: reconnect");

#[inline]
fn check_size(what: &'static str, bytes: usize, limit: usize) -> Result<(), RpcError> {
    if bytes > limit {
        return Err(RpcError::TooLarge { what, bytes, limit });
    }
    Ok(())
}
