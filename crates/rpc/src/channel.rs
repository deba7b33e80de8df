//! A client's channel to one server core: calls share a window of slots, and replies find their call by sequence.
//!
//! Calls are futures that poll the fabric themselves; nothing is woken. A future may be dropped at any time: its slot then
//! stays in use until the reply has come. So it does when a call ends because the server did not answer in time. When the
//! server is lost, calls stay pending until the channel is connected again (they are then sent again, with the same
//! sequence) or closed.

mod call;
mod looking;
mod overdue;
mod sending;
mod waking;

use crate::{
    ChannelCounters, Greeting, Hub, KEY_BYTES_MAX, Loss, Pair, RpcError, STAGED_BYTES_MAX, Staging,
    doorbell::Doorbell,
    frame::{REQUEST_HEADER_BYTES, ReplyBuffer, reply_buffer},
    line::{self, Line, PIECES_MAX},
    pair::Carrier,
    slots::Layout,
    window::{Phase, Window},
};
pub use call::{Call, Step};
use locus_fabric::{FabricError, Facts, Link, Nic, Work};
use locus_runtime::{Clock, MonotonicClock};
use overdue::Ticks;
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::Poll,
    time::Duration,
};
use waking::Silence;
pub(crate) use waking::WAKES_MAX;

/// The limits of a channel. Both sides must agree on the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelConfig {
    /// How requests and replies travel.
    pub pair: Pair,
    /// How many requests may be under way.
    pub window: usize,
    /// How many calls may wait for a slot.
    pub waiting_max: usize,
    /// How long a call waits for a server that is connected and does not answer, before it ends as [`RpcError::Unanswered`]. It
    /// takes up to a quarter longer, and half a second where the core sleeps. A call that waits for a slot first may wait so long for
    /// that, too.
    pub timeout: Duration,
    /// Whether calls of a lost channel stay pending until it is connected again or closed, in place of ending. For owners
    /// that watch [`Channel::lost`].
    pub hold_calls: bool,
}

impl Default for ChannelConfig {
    fn default() -> Self {
        Self {
            pair: Pair::default(),
            window: 16,
            waiting_max: 1 << 10,
            timeout: Duration::from_secs(10),
            hold_calls: false,
        }
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
    arrival: Box<ReplyBuffer>,
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
    silence: Silence,
    ticks: Ticks,
}

/// A request that may be lost is sent again after so long, in nanoseconds, and then after twice as long each time, at most
/// 2^`RETRY_DOUBLINGS` times as long: longer than an answer takes where many wait.
pub(crate) const RETRY_NS: u64 = 4_000_000;

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
            arrival: reply_buffer(),
            window: Window::new(config.window, in_turn),
            doorbell: Doorbell::new(properties.dear_doorbells, config.window.div_ceil(2)),
            staging: None,
            incarnation: 0,
            token: 0,
            counters: ChannelCounters::default(),
            clock: MonotonicClock::new(),
            slept: hub.slept(),
            sleeps: 0,
            silence: Silence::default(),
            ticks: Ticks::new(config.timeout),
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
        inner.silence = Silence::default();
        inner.ticks.connected(inner.clock.now_ns());
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
    /// those who wait get one in the order in which they are polled, before those who come later. A value that does not fit
    /// the frame is written to the staging region first.
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
            slot.ticks = 0;
            if !matches!(slot.phase, Phase::Sent | Phase::Overdue) {
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
}

const NO_LINE: FabricError = FabricError::State("the channel has no queue pair: reconnect");

#[inline]
fn check_size(what: &'static str, bytes: usize, limit: usize) -> Result<(), RpcError> {
    if bytes > limit {
        return Err(RpcError::TooLarge { what, bytes, limit });
    }
    Ok(())
}
