//! Bare echoes, the limit under a request: one message there and one back, over one RC queue pair, and nothing else. The
//! messages are SENDs into posted RECVs, or WRITEs into memory that the receiver polls (Kalia §3.2.1).
//!
//! A message begins with a word that holds its number (counted from 1), its own length and that of the answer, and ends
//! with a word that holds its number again: a WRITE has arrived when both are there, in whatever order they came. Number
//! `n` uses slot `n % SLOTS` on both sides, so the receiver of WRITEs knows where to look.

mod probe;

pub use probe::{Probe, Task};

use crate::{
    Access, Completion, CompletionQueue, FabricError, Facts, Link, LocalSlice, Nic, PagePolicy, Payload,
    QueuePair, QueuePairConfig, Region, RemoteSlice, SendRequest, Status, Verb,
};
use std::{cell::RefCell, future::poll_fn, sync::atomic::Ordering, task::Poll, time::Duration};

/// How long either side sleeps at most while messages may come that wake nobody ([`EchoServer::comes_silently`]).
pub const NAP: Duration = Duration::from_micros(50);
/// The longest message, in bytes.
pub const ECHO_BYTES_MAX: usize = 8 << 10;
/// The shortest message, in bytes: its first word and its last.
const BYTES_MIN: usize = 16;
/// How many messages may be under way.
pub const ECHO_WINDOW: usize = 32;
/// RECVs, twice as many as messages: those of one window may be spent while the next is under way.
const RECEIVES: usize = 2 * ECHO_WINDOW;
/// One request in so many is signaled, so that their places come back.
const SIGNAL_EVERY: u32 = 16;
/// While WRITEs are waited for, the peer's life is looked at after so many looks at memory.
const LOOKS_PER_CHECK: u32 = 256;
/// The send queue: as many requests as there are messages, and those of which no completion was polled.
const SENDS: usize = 2 * ECHO_WINDOW;
/// READs of a queue pair that are under way at once, where the NIC allows it.
pub const READS_OUTSTANDING: usize = 16;

/// How the messages of an echo travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchoVerb {
    /// By SEND and RECV.
    Send,
    /// By WRITE into memory that is polled.
    Write,
}

/// One side of an echo. Stays on the thread that made it.
pub struct EchoEnd<N: Nic> {
    verb: EchoVerb,
    link: N::Link,
    pair: N::QueuePair,
    queue: N::CompletionQueue,
    /// Where our own requests complete.
    sent: N::CompletionQueue,
    inline_bytes: usize,
    /// Messages of ours that are not inlined.
    outgoing: N::Region,
    /// Messages of the peer.
    incoming: N::Region,
    /// Where our WRITEs go.
    theirs: Option<N::RemoteRegion>,
    /// How many requests were posted, and how many of these are known to be done.
    posted: u32,
    done: u32,
    /// How often memory was looked at for a WRITE.
    looks: u32,
    unrung: bool,
    /// Completions that were polled, of which so many are handled.
    completions: [Completion; 16],
    taken: usize,
    count: usize,
    /// The slots of RECVs that are to be posted again: once the doorbell was rung, when nobody waits.
    spent: Vec<usize>,
}

/// What the first word of a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    number: u32,
    bytes: usize,
    reply_bytes: usize,
}

impl Head {
    fn encode(self) -> u64 {
        u64::from(self.number) | (self.bytes as u64) << 32 | (self.reply_bytes as u64) << 48
    }

    /// None if the lengths make no sense.
    fn decode(word: u64) -> Option<Self> {
        let (number, bytes, reply_bytes) = (word as u32, (word >> 32) as u16, (word >> 48) as u16);
        let head = Self { number, bytes: bytes.into(), reply_bytes: reply_bytes.into() };
        let fits = |bytes| (BYTES_MIN..=ECHO_BYTES_MAX).contains(&bytes) && bytes % 8 == 0;
        (fits(head.bytes) && fits(head.reply_bytes)).then_some(head)
    }
}

/// The length of a message as it travels: whole words, and within the limits.
fn message_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(8).clamp(BYTES_MIN, ECHO_BYTES_MAX)
}

impl<N: Nic> EchoEnd<N> {
    /// An end that completes on `queue`, which must have room for [`EchoEnd::COMPLETIONS`] of its own.
    pub fn new(
        nic: &N,
        link: &N::Link,
        queue: N::CompletionQueue,
        verb: EchoVerb,
    ) -> Result<Self, FabricError> {
        let inline_bytes = nic.properties().inline_bytes_max.min(256);
        let config = QueuePairConfig {
            send_depth: SENDS,
            receive_depth: RECEIVES,
            inline_bytes,
            message_bytes: ECHO_BYTES_MAX,
            reads_outstanding: READS_OUTSTANDING.min(nic.properties().reads_outstanding_max),
            ..QueuePairConfig::default()
        };
        let sent = nic.create_completion_queue_beside(&queue, SENDS)?;
        let mut pair = nic.create_queue_pair(link, &config, &sent, &queue)?;
        let access = if verb == EchoVerb::Write { Access::RemoteWrite } else { Access::Local };
        let region = |access| nic.register(RECEIVES * ECHO_BYTES_MAX, access, PagePolicy::Base);
        let (incoming, outgoing) = (region(access)?, region(Access::Local)?);
        if verb == EchoVerb::Send {
            for slot in 0..RECEIVES {
                expect::<N>(&mut pair, &incoming, slot)?;
            }
        }
        let (link, theirs) = (link.clone(), None);
        Ok(Self {
            verb,
            link,
            pair,
            queue,
            sent,
            inline_bytes,
            outgoing,
            incoming,
            theirs,
            posted: 0,
            done: 0,
            looks: 0,
            unrung: false,
            completions: [Completion::EMPTY; 16],
            taken: 0,
            count: 0,
            spent: Vec::with_capacity(RECEIVES),
        })
    }

    /// How many completions it may cause there.
    pub const COMPLETIONS: usize = RECEIVES;

    /// What the peer must know: for [`EchoEnd::connect`].
    pub fn facts(&self) -> Result<Vec<Facts>, FabricError> {
        let pair = self.pair.facts(&self.link)?;
        Ok(match self.verb {
            EchoVerb::Send => vec![pair],
            EchoVerb::Write => vec![pair, self.link.grant(&self.incoming)?],
        })
    }

    /// Connects with the end that sent these facts.
    pub fn connect(&mut self, facts: Vec<Facts>) -> Result<(), FabricError> {
        let mut facts = facts.into_iter();
        let absent =
            || FabricError::Protocol { peer: self.link.peer(), what: "an echo without facts".into() };
        let pair = facts.next().ok_or_else(absent)?;
        if self.verb == EchoVerb::Write {
            self.theirs = Some(self.link.import(facts.next().ok_or_else(absent)?)?);
        }
        self.pair.connect(pair)
    }

    /// The queue that it completes on.
    pub fn queue(&self) -> &N::CompletionQueue {
        &self.queue
    }

    fn broken(&self) -> FabricError {
        FabricError::PeerLost { peer: self.link.peer() }
    }

    /// Whether there is room to post a message.
    #[inline]
    fn room(&mut self) -> Result<bool, FabricError> {
        if self.posted.wrapping_sub(self.done) >= SIGNAL_EVERY {
            let mut completions = [Completion::EMPTY; 4];
            let count = self.sent.poll(&mut completions);
            for completion in &completions[..count] {
                if completion.status != Status::Success {
                    return Err(self.broken());
                }
                self.done = completion.id as u32;
            }
        }
        Ok((self.posted.wrapping_sub(self.done) as usize) < SENDS)
    }

    /// Posts a message; [`EchoEnd::ring`] starts it.
    #[inline]
    fn post(&mut self, head: Head) -> Result<(), FabricError> {
        const ZEROS: [u8; 256] = [0; 256];
        let (first, last) = (head.encode(), u64::from(head.number));
        let offset = head.number as usize % ECHO_WINDOW * ECHO_BYTES_MAX;
        let (first_bytes, last_bytes) = (first.to_le_bytes(), last.to_le_bytes());
        let parts: [&[u8]; 3] =
            [&first_bytes, &ZEROS[..head.bytes.saturating_sub(BYTES_MIN).min(256)], &last_bytes];
        let payload = if head.bytes <= self.inline_bytes {
            Payload::Inline(&parts)
        } else {
            self.outgoing.store(offset / 8, first);
            self.outgoing.store((offset + head.bytes) / 8 - 1, last);
            Payload::Slice(LocalSlice { region: &self.outgoing, offset, bytes: head.bytes })
        };
        let verb = match &self.theirs {
            Some(region) => Verb::Write { payload, to: RemoteSlice { region, offset }, immediate: None },
            None => Verb::Send { payload, immediate: None, to: None },
        };
        self.posted = self.posted.wrapping_add(1);
        let signaled = self.posted.is_multiple_of(SIGNAL_EVERY);
        self.unrung = true;
        self.pair
            .post_send(&SendRequest { id: self.posted.into(), verb, signaled })
            .map_err(|_| self.broken())
    }

    #[inline]
    fn ring(&mut self) -> Result<(), FabricError> {
        if std::mem::take(&mut self.unrung) {
            self.pair.ring().map_err(|_| self.broken())?;
        }
        while let Some(slot) = self.spent.pop() {
            expect::<N>(&mut self.pair, &self.incoming, slot)?;
        }
        Ok(())
    }

    /// The message of a number, if its WRITE is there.
    #[inline]
    fn written(&self, number: u32) -> Option<Head> {
        let words = &self.incoming.words()[number as usize % ECHO_WINDOW * ECHO_BYTES_MAX / 8..];
        // Acquire: the last word is looked at after the first, which says where it is.
        let head = Head::decode(words[0].load(Ordering::Acquire)).filter(|head| head.number == number)?;
        let last = words[head.bytes / 8 - 1].load(Ordering::Acquire);
        (last == u64::from(number)).then_some(head)
    }

    /// The message of a number, if it is there.
    #[inline]
    fn arrived(&mut self, number: u32) -> Result<Option<Head>, FabricError> {
        if self.verb == EchoVerb::Write {
            if let Some(head) = self.written(number) {
                return Ok(Some(head));
            }
            self.looks = self.looks.wrapping_add(1);
            let look = self.looks.is_multiple_of(LOOKS_PER_CHECK);
            return if look && !self.link.alive() { Err(self.broken()) } else { Ok(None) };
        }
        if self.taken == self.count {
            (self.taken, self.count) = (0, self.queue.poll(&mut self.completions));
        }
        if self.taken < self.count {
            let completion = self.completions[self.taken];
            self.taken += 1;
            if completion.status != Status::Success {
                return Err(self.broken());
            }
            let slot = completion.id as usize;
            let word = self.incoming.words()[slot * ECHO_BYTES_MAX / 8].load(Ordering::Relaxed);
            self.spent.push(slot);
            let head = Head::decode(word).filter(|head| head.number == number);
            return head.map(Some).ok_or_else(|| self.broken());
        }
        Ok(None)
    }
}

/// Posts the RECV of a slot.
fn expect<N: Nic>(pair: &mut N::QueuePair, incoming: &N::Region, slot: usize) -> Result<(), FabricError> {
    let into = LocalSlice { region: incoming, offset: slot * ECHO_BYTES_MAX, bytes: ECHO_BYTES_MAX };
    pair.post_receive(slot as u64, into).map_err(|_| FabricError::State("a RECV of an echo was refused"))
}

/// The side that answers.
pub struct EchoServer<N: Nic> {
    end: EchoEnd<N>,
    next: u32,
    /// There was no room to answer when a turn was last taken: the client takes no answers.
    full: bool,
}

impl<N: Nic> EchoServer<N> {
    /// Answers over a connected end.
    pub fn new(end: EchoEnd<N>) -> Self {
        Self { end, next: 1, full: false }
    }

    /// Answers what has arrived, and says how many messages that were.
    #[inline]
    pub fn turn(&mut self) -> Result<u32, FabricError> {
        let Self { end, next, full } = self;
        let before = *next;
        // As many as an honest peer may have under way; then the answers must be on their way.
        while next.wrapping_sub(before) < ECHO_WINDOW as u32 {
            *full = !end.room()?;
            if *full {
                break;
            }
            let Some(Head { number, reply_bytes, .. }) = end.arrived(*next)? else { break };
            *next = next.wrapping_add(1);
            end.post(Head { number, bytes: reply_bytes, reply_bytes })?;
        }
        end.ring()?;
        Ok(next.wrapping_sub(before))
    }

    /// What to sleep on: where there is no room to answer, messages that wait must not keep the server awake.
    pub fn queue(&self) -> &N::CompletionQueue {
        if self.full { &self.end.sent } else { self.end.queue() }
    }

    /// Whether messages come without a completion, so that a sleeper would not hear of them.
    pub fn comes_silently(&self) -> bool {
        self.end.verb == EchoVerb::Write
    }
}

/// The side that asks.
pub struct EchoClient<N: Nic>(RefCell<Calls<N>>);

struct Calls<N: Nic> {
    end: EchoEnd<N>,
    /// The numbers of the next call, and of the next answer.
    next: u32,
    answer: u32,
}

impl<N: Nic> EchoClient<N> {
    /// Calls over a connected end.
    pub fn new(end: EchoEnd<N>) -> Self {
        Self(RefCell::new(Calls { end, next: 1, answer: 1 }))
    }

    /// Sends a message of about so many bytes and waits for one of about so many: whole words, at least two, at most
    /// [`ECHO_BYTES_MAX`] bytes. At most [`ECHO_WINDOW`] calls may be under way; further ones wait.
    pub async fn call(&self, request_bytes: usize, reply_bytes: usize) -> Result<(), FabricError> {
        let mut number = None;
        poll_fn(|context| {
            let calls = &mut *self.0.borrow_mut();
            let Some(number) = number else {
                let under_way = calls.next.wrapping_sub(calls.answer);
                if under_way as usize == ECHO_WINDOW || !calls.end.room()? {
                    calls.look()?;
                    return Poll::Pending;
                }
                let alone = under_way == 0;
                number = Some(calls.next);
                let (bytes, reply_bytes) = (message_bytes(request_bytes), message_bytes(reply_bytes));
                let posted = calls.end.post(Head { number: calls.next, bytes, reply_bytes });
                calls.next = calls.next.wrapping_add(1);
                // Others may want to post, too: the doorbell rings when the first of them asks for its answer.
                context.waker().wake_by_ref();
                let rung = if alone { calls.end.ring() } else { Ok(()) };
                return posted.and(rung).map_or_else(|error| Poll::Ready(Err(error)), |()| Poll::Pending);
            };
            if calls.is_open(number) {
                calls.look()?;
            }
            if calls.is_open(number) { Poll::Pending } else { Poll::Ready(Ok(())) }
        })
        .await
    }
}

impl<N: Nic> Calls<N> {
    /// Starts what was posted, and takes the answers that have come, also those to calls that were given up.
    fn look(&mut self) -> Result<(), FabricError> {
        self.end.ring()?;
        while self.answer != self.next && self.end.arrived(self.answer)?.is_some() {
            self.answer = self.answer.wrapping_add(1);
        }
        Ok(())
    }

    fn is_open(&self, number: u32) -> bool {
        number.wrapping_sub(self.answer) < u32::MAX / 2
    }
}
