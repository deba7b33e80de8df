//! Queue pairs as the world knows them, and how messages travel between them: RC, UC and UD.
//!
//! A request leaves when it is rung for, in order; its message arrives later, in order per queue pair, and is carried
//! out by the receiver's NIC, which over RC answers. Over RC a message for which no RECV is posted waits at the head of
//! the receiver's line; over UC and UD it is lost. A READ is carried out over a stretch of time ([`super::sampling`]).

use super::{
    completion_queue::Frees,
    events::Event,
    model::Times,
    performance::{Operation, Request},
    region::{Memory, Target},
    state::{SentVerb, State},
};
use crate::{Completion, Opcode, QueuePairConfig, QueuePairState, Status, Transport};
use std::collections::VecDeque;

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) number: u32,
    pub(crate) process: usize,
    pub(crate) link: u64,
    pub(crate) config: QueuePairConfig,
    pub(crate) state: QueuePairState,
    /// The queue pair it is connected with. RC and UC.
    pub(crate) peer: Option<u32>,
    /// What its facts carry, so that nobody guesses them.
    pub(crate) secret: u64,
    pub(crate) send_queue: usize,
    pub(crate) receive_queue: usize,
    /// Places of the two queues that are taken until a completion was polled.
    pub(crate) send_places: usize,
    pub(crate) receive_places: usize,
    /// Requests that have not completed, the oldest with the sequence `first`.
    pub(crate) sends: VecDeque<Posted>,
    pub(super) first: u64,
    /// The sequence of the next request to leave, and of the first that was not rung for.
    pub(super) next: u64,
    pub(crate) rung: u64,
    /// READs and atomics under way.
    pub(super) outstanding: usize,
    /// Requests that have completed in silence since the last completion.
    pub(super) silent: usize,
    pub(super) last_departure_ns: u64,
    pub(super) last_arrival_ns: u64,
    pub(super) last_answer_ns: u64,
    /// When the last request of the peer was taken by a NIC whose costs are modelled.
    pub(crate) last_taken_ns: u64,
    pub(crate) receives: VecDeque<Receive>,
    /// Messages that have arrived and not been carried out.
    pub(super) inbound: VecDeque<Message>,
    /// READs of the peer that are being carried out here.
    pub(super) reading: usize,
    /// A WRITE of the peer is being carried out here.
    pub(super) writing: bool,
    /// Whether this side is late with the RECV for the message at the head of the line, or was.
    pub(super) readiness: Readiness,
}

/// What chance has decided of the message at the head of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// Nothing yet.
    #[default]
    Open,
    /// The receiver is late.
    Late,
    /// It is ready.
    Ready,
}

/// A request of a send queue.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) id: u64,
    pub(crate) opcode: Opcode,
    pub(crate) signaled: bool,
    /// Its bytes are part of the work request.
    pub(crate) inlined: bool,
    /// Its message, until it leaves.
    pub(crate) kind: Option<Kind>,
    /// Where what comes back goes.
    pub(crate) into: Option<(Memory, usize)>,
    /// The UD queue pair that it is for, by number and secret.
    pub(crate) to: Option<(u32, u64)>,
    pub(crate) ended: Option<Status>,
}

/// A RECV.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) id: u64,
    pub(crate) memory: Memory,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// What travels to a peer.
#[derive(Debug)]
pub(crate) struct Message {
    pub(super) from: u32,
    pub(super) sequence: u64,
    pub(super) transport: Transport,
    /// On UD: the secret of the queue pair that it is for.
    pub(super) secret: u64,
    pub(super) kind: Kind,
}

/// What a message asks for.
#[derive(Debug)]
pub(crate) enum Kind {
    Read { target: Target, bytes: usize },
    Write { target: Target, bytes: Box<[u8]>, immediate: Option<u32>, left: Option<Left> },
    Send { bytes: Box<[u8]>, immediate: Option<u32> },
    CompareSwap { target: Target, expected: u64, desired: u64 },
    FetchAdd { target: Target, add: u64 },
}

/// What is left to do of a WRITE that was begun.
#[derive(Debug)]
pub(crate) struct Left {
    /// Aligned words that are not written yet, the next one last.
    pub(super) words: Vec<usize>,
    /// Whether it was acknowledged.
    pub(super) acknowledged: bool,
}

impl Kind {
    /// How many bytes go there.
    fn bytes(&self) -> usize {
        match self {
            Self::Write { bytes, .. } | Self::Send { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }

    fn verb(&self) -> SentVerb {
        match self {
            Self::Read { .. } => SentVerb::Read,
            Self::Write { immediate: None, .. } => SentVerb::Write,
            Self::Write { .. } => SentVerb::WriteImmediate,
            Self::Send { .. } => SentVerb::Send,
            Self::CompareSwap { .. } | Self::FetchAdd { .. } => SentVerb::Atomic,
        }
    }

    fn operation(&self) -> Operation {
        match self {
            Self::Read { .. } => Operation::Read,
            Self::Write { .. } => Operation::Write,
            Self::Send { .. } => Operation::Send,
            Self::CompareSwap { .. } | Self::FetchAdd { .. } => Operation::Atomic,
        }
    }

    pub(super) fn comes_back(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Whether it takes a RECV of the receiver.
    pub(super) fn takes_a_receive(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Write { immediate: Some(_), .. })
    }
}

impl Message {
    /// Its costs. Whether it was inlined matters only where it is posted.
    pub(crate) fn request(&self) -> Request {
        let (operation, transport) = (self.kind.operation(), self.transport);
        let wanted_bytes = match &self.kind {
            Kind::Read { bytes, .. } => *bytes,
            _ => 0,
        };
        Request { operation, transport, bytes: self.kind.bytes(), wanted_bytes, inlined: true }
    }

    pub(crate) fn is_reliable(&self) -> bool {
        self.transport == Transport::Rc
    }
}

/// What comes back to a requester.
#[derive(Debug)]
pub(crate) struct Acknowledgement {
    pub(crate) sequence: u64,
    pub(crate) answer: Answer,
}

/// How a request ended, and what it brought.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) bytes: Box<[u8]>,
}

impl Answer {
    pub(crate) fn failure(status: Status) -> Self {
        Self { status, bytes: Box::default() }
    }

    pub(super) fn success() -> Self {
        Self::failure(Status::Success)
    }
}

impl Pair {
    pub(crate) fn new(
        (number, process, link): (u32, usize, u64),
        config: &QueuePairConfig,
        secret: u64,
        (send_queue, receive_queue): (usize, usize),
    ) -> Self {
        Self {
            number,
            process,
            link,
            config: config.clone(),
            state: QueuePairState::Init,
            peer: None,
            secret,
            send_queue,
            receive_queue,
            send_places: 0,
            receive_places: 0,
            sends: VecDeque::new(),
            first: 0,
            next: 0,
            rung: 0,
            outstanding: 0,
            silent: 0,
            last_departure_ns: 0,
            last_arrival_ns: 0,
            last_answer_ns: 0,
            last_taken_ns: 0,
            receives: VecDeque::new(),
            inbound: VecDeque::new(),
            reading: 0,
            writing: false,
            readiness: Readiness::default(),
        }
    }

    /// Whether a request of it raises a completion.
    pub(crate) fn is_signaled(&self, sequence: u64) -> bool {
        let index = sequence.checked_sub(self.first);
        index.and_then(|index| self.sends.get(index as usize)).is_some_and(|posted| posted.signaled)
    }

    pub(super) fn completion(&self, id: u64, status: Status, opcode: Opcode) -> Completion {
        Completion { id, queue_pair: self.number, status, opcode, bytes: 0, immediate: None }
    }
}

/// Requests.
impl State {
    /// A queue pair that lives.
    pub(crate) fn pair(&mut self, number: u32) -> Option<&mut Pair> {
        self.pairs.get_mut(number as usize)?.as_mut()
    }

    /// The connected queue pairs of a link.
    pub(crate) fn pairs_of_link(&self, link: u64) -> Vec<u32> {
        let pairs = self.pairs.iter().flatten();
        pairs
            .filter(|pair| pair.link == link && pair.config.transport != Transport::Ud)
            .map(|pair| pair.number)
            .collect()
    }

    /// How long bytes take to pass a link.
    pub(crate) fn transfer_ns(&self, bytes: usize) -> u64 {
        (bytes as u64 * self.config.times.kilobyte_ns) >> 10
    }

    /// Lets requests leave that were rung for, as far as the number of outstanding READs allows.
    pub(crate) fn depart(&mut self, number: u32) {
        loop {
            let delay_ns = self.delay_ns();
            let Some(pair) = self.pair(number) else { return };
            if pair.state != QueuePairState::Ready || pair.next >= pair.rung {
                return;
            }
            let posted = &mut pair.sends[(pair.next - pair.first) as usize];
            let comes_back = posted.kind.as_ref().is_some_and(Kind::comes_back);
            if comes_back && pair.outstanding >= pair.config.reads_outstanding {
                return;
            }
            let kind = posted.kind.take().expect("a request leaves once");
            let (peer, secret) =
                posted.to.or(pair.peer.map(|peer| (peer, 0))).expect("connected, or addressed");
            let (sequence, transport, inlined) = (pair.next, pair.config.transport, posted.inlined);
            pair.outstanding += usize::from(comes_back);
            pair.next += 1;
            self.counters.note_sent(transport, kind.verb());
            let message = Message { from: number, sequence, transport, secret, kind };
            let request = Request { inlined, ..message.request() };
            match self.ready_ns(number, request) {
                Some(ready_ns) => self.launch_at(ready_ns, peer, message),
                None => self.set_out(peer, message, delay_ns),
            }
        }
    }

    /// A request leaves once its packets are ready, and after those before it.
    fn launch_at(&mut self, ready_ns: u64, peer: u32, message: Message) {
        let Some(pair) = self.pair(message.from) else { return };
        let at_ns = ready_ns.max(pair.last_departure_ns);
        pair.last_departure_ns = at_ns;
        self.at(at_ns, Event::Launch { to: peer, message });
    }

    /// A request leaves, where only the plain times of the world count.
    fn set_out(&mut self, peer: u32, message: Message, delay_ns: u64) {
        let now_ns = self.now_ns;
        let Times { requester_ns, wire_ns, .. } = self.config.times;
        let transfer_ns = self.transfer_ns(message.kind.bytes());
        let overtakes = self.config.adversary.reorders && message.transport == Transport::Ud;
        let Some(pair) = self.pair(message.from) else { return };
        pair.last_departure_ns = pair.last_departure_ns.max(now_ns) + requester_ns;
        let departure_ns = pair.last_departure_ns;
        let mut arrival_ns = departure_ns + wire_ns + transfer_ns + delay_ns;
        let overtook = overtakes && arrival_ns < pair.last_arrival_ns;
        if !overtakes {
            arrival_ns = arrival_ns.max(pair.last_arrival_ns + 1);
        }
        pair.last_arrival_ns = pair.last_arrival_ns.max(arrival_ns);
        self.counters.overtook += u64::from(overtook);
        self.travel(peer, message, departure_ns, arrival_ns);
    }

    /// Whether a message's request raises a completion.
    pub(crate) fn is_signaled(&mut self, message: &Message) -> bool {
        self.pair(message.from).is_some_and(|pair| pair.is_signaled(message.sequence))
    }

    /// Sends a message on its way, on which chance may get at it.
    pub(crate) fn travel(&mut self, to: u32, message: Message, departure_ns: u64, arrival_ns: u64) {
        let (from, sequence) = (message.from, message.sequence);
        if self.chance.happens(self.config.adversary.breaks) {
            self.counters.broken += 1;
            return self.break_pair(from, Status::PeerLost);
        }
        if message.transport != Transport::Rc {
            self.at(departure_ns, Event::Departed { from, sequence });
            if self.chance.happens(self.config.adversary.loses) {
                self.counters.lost += 1;
                return;
            }
        }
        let event = if self.is_modelled(to) {
            Event::ComesIn { to, message, is_in: false }
        } else {
            Event::Arrive { to, message }
        };
        self.at(arrival_ns, event);
    }

    /// A request over UC or UD is done when it has left.
    pub(crate) fn departed(&mut self, from: u32, sequence: u64) {
        self.end_request(from, sequence, Status::Success);
    }

    /// The answer to a request over RC.
    pub(crate) fn acknowledged(&mut self, to: u32, Acknowledgement { sequence, answer }: Acknowledgement) {
        let Some(pair) = self.pair(to) else { return };
        let Some(index) = sequence.checked_sub(pair.first).filter(|index| *index < pair.sends.len() as u64)
        else {
            return;
        };
        if let Some((memory, offset)) = pair.sends[index as usize].into.take() {
            pair.outstanding -= 1;
            if answer.status == Status::Success && pair.state == QueuePairState::Ready {
                self.store(&memory, offset, &answer.bytes);
            }
        }
        self.end_request(to, sequence, answer.status);
        self.depart(to);
    }

    fn end_request(&mut self, number: u32, sequence: u64, status: Status) {
        let Some(pair) = self.pair(number) else { return };
        let Some(index) = sequence.checked_sub(pair.first) else { return };
        let Some(posted) = pair.sends.get_mut(index as usize) else { return };
        posted.ended = Some(status);
        // Requests complete in the order in which they were posted.
        while let Some(pair) = self.pair(number)
            && let Some(status) = pair.sends.front().and_then(|posted| posted.ended)
        {
            if status != Status::Success {
                return self.break_pair(number, status);
            }
            let posted = pair.sends.pop_front().expect("looked at above");
            pair.first += 1;
            pair.silent += 1;
            if posted.signaled {
                let places = std::mem::take(&mut pair.silent);
                let completion = pair.completion(posted.id, status, posted.opcode);
                let queue = pair.send_queue;
                self.complete(queue, completion, Frees::Sends(places));
            }
        }
    }

    /// Breaks a queue pair: its oldest request ends so, and whatever else is posted is flushed.
    pub(crate) fn break_pair(&mut self, number: u32, oldest: Status) {
        let retry_ns = self.config.times.retry_ns;
        let Some(pair) = self.pair(number).filter(|pair| pair.state != QueuePairState::Error) else { return };
        pair.state = QueuePairState::Error;
        let inbound = std::mem::take(&mut pair.inbound);
        if let Some(posted) = pair.sends.front_mut() {
            posted.ended = Some(oldest);
        }
        self.flush(number);
        // Whoever waits here is answered by nobody.
        for message in inbound.into_iter().filter(|message| message.transport == Transport::Rc) {
            let answer =
                Acknowledgement { sequence: message.sequence, answer: Answer::failure(Status::PeerLost) };
            self.after(retry_ns, Event::Acknowledged { to: message.from, answer });
        }
    }

    /// Ends whatever is posted to a broken queue pair.
    pub(crate) fn flush(&mut self, number: u32) {
        while let Some(pair) = self.pair(number)
            && let Some(posted) = pair.sends.pop_front()
        {
            pair.first += 1;
            pair.next = pair.next.max(pair.first);
            pair.rung = pair.rung.max(pair.first);
            let places = std::mem::take(&mut pair.silent) + 1;
            let status = posted.ended.filter(|status| *status != Status::Success).unwrap_or(Status::Flushed);
            let completion = pair.completion(posted.id, status, posted.opcode);
            let queue = pair.send_queue;
            self.complete(queue, completion, Frees::Sends(places));
        }
        while let Some(pair) = self.pair(number)
            && let Some(receive) = pair.receives.pop_front()
        {
            let completion = pair.completion(receive.id, Status::Flushed, Opcode::Receive);
            let queue = pair.receive_queue;
            self.complete(queue, completion, Frees::Receive);
        }
    }
}

impl Pair {
    /// The sequence of the next request to be posted.
    pub(crate) fn posted(&self) -> u64 {
        self.first + self.sends.len() as u64
    }
}
