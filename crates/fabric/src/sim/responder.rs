//! What becomes of a message where it arrives: the receiver's NIC carries it out, and over RC answers.

use super::{
    completion_queue::Frees,
    events::Event,
    model::Times,
    region::{Memory, Target},
    state::State,
    transport::{Acknowledgement, Answer, Kind, Left, Message, Readiness},
};
use crate::{
    Completion, Opcode, QueuePairState, ReceiverNotReady, Status, Transport,
    copy::{Neighbours, Sink},
};
use std::sync::atomic::Ordering;

impl State {
    /// A message has arrived.
    pub(crate) fn arrive(&mut self, to: u32, message: Message) {
        let retry_ns = self.config.times.retry_ns;
        let reliable = message.transport == Transport::Rc;
        if let Some(nic) = self.nic_of(to) {
            nic.served += 1;
        }
        match self.pair(to) {
            Some(pair)
                if pair.state == QueuePairState::Ready && pair.config.transport == message.transport =>
            {
                let expected = pair.config.transport == Transport::Ud && pair.secret == message.secret
                    || pair.peer == Some(message.from);
                if expected {
                    pair.inbound.push_back(message);
                    return self.carry_out(to);
                }
            }
            // Its NIC is not ready yet: the sender's tries again until it is.
            Some(pair)
                if reliable
                    && pair.state == QueuePairState::Init
                    && pair.config.transport == Transport::Rc =>
            {
                return pair.inbound.push_back(message);
            }
            _ => {}
        }
        if reliable {
            let answer =
                Acknowledgement { sequence: message.sequence, answer: Answer::failure(Status::PeerLost) };
            self.after(retry_ns, Event::Acknowledged { to: message.from, answer });
        }
    }

    /// Carries out what has arrived, as far as it can be.
    pub(crate) fn carry_out(&mut self, number: u32) {
        loop {
            let Some(pair) = self.pair(number) else { return };
            if pair.state != QueuePairState::Ready || pair.writing {
                return;
            }
            let Some(message) = pair.inbound.front() else { return };
            let reads = matches!(message.kind, Kind::Read { .. });
            if !reads && pair.reading > 0 {
                return;
            }
            let (takes, transport) = (message.kind.takes_a_receive(), message.transport);
            if takes && (pair.receives.is_empty() || self.is_late(number, transport)) {
                if transport == Transport::Rc {
                    return self.not_ready(number);
                }
                self.take_next(number);
                self.counters.lost += 1;
                continue;
            }
            let message = self.take_next(number).expect("looked at above");
            self.carry_out_one(number, message);
        }
    }

    /// Takes the message at the head of the line.
    fn take_next(&mut self, number: u32) -> Option<Message> {
        let pair = self.pair(number)?;
        pair.readiness = Readiness::Open;
        pair.inbound.pop_front()
    }

    /// Whether the receiver is late for the message at the head of the line. Chance decides that once per message.
    fn is_late(&mut self, number: u32, transport: Transport) -> bool {
        let known = self.pair(number).map_or(Readiness::Ready, |pair| pair.readiness);
        if known != Readiness::Open {
            return known == Readiness::Late;
        }
        let late = self.chance.happens(self.config.adversary.unready);
        if late {
            self.counters.unready += 1;
        }
        if late && transport == Transport::Rc {
            let late_ns = self.chance.up_to(self.config.adversary.unready_ns);
            self.after(late_ns, Event::Ready { at: number });
        }
        if let Some(pair) = self.pair(number) {
            pair.readiness = if late { Readiness::Late } else { Readiness::Ready };
        }
        late
    }

    /// A receiver that was late has its RECVs now.
    pub(crate) fn becomes_ready(&mut self, number: u32) {
        if let Some(pair) = self.pair(number)
            && pair.readiness == Readiness::Late
        {
            pair.readiness = Readiness::Ready;
            self.carry_out(number);
        }
    }

    /// The message at the head of the line needs a RECV that is not there.
    fn not_ready(&mut self, number: u32) {
        let Some(message) = self.pair(number).and_then(|pair| pair.inbound.front()) else { return };
        let (from, sequence) = (message.from, message.sequence);
        let waits =
            self.pair(from).is_some_and(|pair| pair.config.receiver_not_ready == ReceiverNotReady::Wait);
        if !waits {
            if let Some(pair) = self.pair(number) {
                pair.inbound.clear();
                pair.readiness = Readiness::Open;
            }
            self.answer(number, from, sequence, Answer::failure(Status::ReceiverNotReady));
        }
    }

    fn carry_out_one(&mut self, number: u32, message: Message) {
        let Message { from, sequence, transport, kind, .. } = message;
        let link = self.pair(number).map_or(0, |pair| pair.link);
        let done = match kind {
            Kind::Read { target, bytes } => match self.reach(link, target, bytes, false) {
                Ok(memory) => {
                    self.pair(number).expect("it carries this out").reading += 1;
                    return self.begin_read(number, (from, sequence), memory, (target.offset, bytes));
                }
                Err(status) => Answer::failure(status),
            },
            Kind::Write { target, bytes, immediate, left } => {
                match self.reach(link, target, bytes.len(), true) {
                    Ok(memory) => {
                        let kind = Kind::Write { target, bytes, immediate, left };
                        let message = Message { from, sequence, transport, secret: 0, kind };
                        return self.write(number, &memory, message);
                    }
                    Err(status) => Answer::failure(status),
                }
            }
            Kind::Send { bytes, immediate } => self.deliver(number, &bytes, immediate),
            Kind::CompareSwap { target, expected, desired } => {
                self.atomic(link, target, |word| if word == expected { desired } else { word })
            }
            Kind::FetchAdd { target, add } => self.atomic(link, target, |word| word.wrapping_add(add)),
        };
        self.finish(number, transport, from, sequence, done);
    }

    /// Ends a request at the receiver: answers it, and after a failure over RC breaks the receiver's side, too.
    fn finish(&mut self, number: u32, transport: Transport, from: u32, sequence: u64, answer: Answer) {
        if transport != Transport::Rc {
            return;
        }
        let failed = answer.status != Status::Success;
        self.answer(number, from, sequence, answer);
        if failed {
            self.break_pair(number, Status::Flushed);
        }
    }

    /// Sends an answer back.
    fn answer(&mut self, number: u32, from: u32, sequence: u64, answer: Answer) {
        let modelled_ns = self.answer_leaves(number, from, answer.bytes.len());
        let at_ns = modelled_ns.unwrap_or_else(|| {
            let Times { responder_ns, wire_ns, .. } = self.config.times;
            self.now_ns + responder_ns + wire_ns + self.transfer_ns(answer.bytes.len())
        });
        let at_ns = at_ns + self.delay_ns();
        let Some(pair) = self.pair(number) else { return };
        let at_ns = at_ns.max(pair.last_answer_ns + 1);
        pair.last_answer_ns = at_ns;
        let answer = Acknowledgement { sequence, answer };
        let event = if self.is_modelled(from) {
            Event::AnswerComesIn { to: from, answer, is_in: false }
        } else {
            Event::Acknowledged { to: from, answer }
        };
        self.at(at_ns, event);
    }

    /// A READ has been carried out.
    pub(crate) fn finish_read(&mut self, number: u32, acknowledgement: Acknowledgement, from: u32) {
        let Some(pair) = self.pair(number) else {
            let ns = self.config.times.retry_ns;
            let answer = Answer::failure(Status::PeerLost);
            let answer = Acknowledgement { sequence: acknowledgement.sequence, answer };
            return self.after(ns, Event::Acknowledged { to: from, answer });
        };
        pair.reading -= 1;
        let Acknowledgement { sequence, answer } = acknowledgement;
        self.finish(number, Transport::Rc, from, sequence, answer);
        self.carry_out(number);
    }

    /// Puts a message into the oldest RECV, which is there.
    fn deliver(&mut self, number: u32, bytes: &[u8], immediate: Option<u32>) -> Answer {
        /// The GRH that precedes a UD message in its buffer.
        const GRH_BYTES: usize = 40;
        let pair = self.pair(number).expect("it receives this");
        let front = if pair.config.transport == Transport::Ud { GRH_BYTES } else { 0 };
        let reliable = pair.config.transport == Transport::Rc;
        let room = pair.receives.front().map_or(0, |receive| receive.bytes);
        if front + bytes.len() > room || bytes.len() > pair.config.message_bytes {
            if !reliable {
                // The RECV stays for the next one.
                self.counters.lost += 1;
                return Answer::success();
            }
            let receive = pair.receives.pop_front().expect("there is one");
            let completion = pair.completion(receive.id, Status::LocalLength, Opcode::Receive);
            let queue = pair.receive_queue;
            self.complete(queue, completion, Frees::Receive);
            return Answer::failure(Status::RemoteInvalidRequest);
        }
        let receive = pair.receives.pop_front().expect("there is one");
        self.store(&receive.memory, receive.offset + front, bytes);
        self.announce(number, receive.id, Opcode::Receive, front + bytes.len(), immediate);
        Answer::success()
    }

    /// Completes a RECV.
    fn announce(&mut self, number: u32, id: u64, opcode: Opcode, bytes: usize, immediate: Option<u32>) {
        let Some(pair) = self.pair(number) else { return };
        let completion =
            Completion { bytes: bytes as u32, immediate, ..pair.completion(id, Status::Success, opcode) };
        let queue = pair.receive_queue;
        self.complete(queue, completion, Frees::Receive);
    }

    /// Carries out a part of a WRITE: all of it, unless an adversary spreads it over time.
    fn write(&mut self, number: u32, memory: &Memory, message: Message) {
        const PIECE: usize = 8;
        let Message { from, sequence, transport, secret, kind } = message;
        let Kind::Write { target, bytes, immediate, left } = kind else { return };
        let offset = target.offset;
        let end = offset + bytes.len();
        let adversary = &self.config.adversary;
        let (spreads, scrambles) = (adversary.delay_ns > 0, adversary.scrambles_writes);
        let Left { words: mut left, acknowledged } = left.unwrap_or_else(|| {
            let mut words: Vec<usize> = (offset / PIECE..end.div_ceil(PIECE)).rev().collect();
            if scrambles {
                (1..words.len()).for_each(|last| words.swap(last, self.chance.up_to(last as u64) as usize));
            }
            let plain = transport == Transport::Rc && immediate.is_none();
            let acknowledged = plain && self.chance.happens(self.config.adversary.acknowledges_early);
            if acknowledged {
                self.counters.acknowledged_early += 1;
                self.answer(number, from, sequence, Answer::success());
            }
            Left { words, acknowledged }
        });
        let count = if spreads { 1 + self.chance.up_to(left.len() as u64) as usize } else { left.len() };
        for _ in 0..count.min(left.len()) {
            let Some(word) = left.pop() else { break };
            let (begin, stop) = ((word * PIECE).max(offset), ((word + 1) * PIECE).min(end));
            self.store(memory, begin, &bytes[begin - offset..stop - offset]);
        }
        if self.config.nic.writes_wake
            && let Some(queue) = self.pair(number).map(|pair| pair.receive_queue)
        {
            // Whoever polls this memory may see a part.
            self.ring_bell(queue);
        }
        let pair = self.pair(number).expect("it carries this out");
        if !left.is_empty() {
            pair.writing = true;
            let left = Some(Left { words: left, acknowledged });
            let kind = Kind::Write { target, bytes, immediate, left };
            pair.inbound.push_front(Message { from, sequence, transport, secret, kind });
            let ns = 1 + self.delay_ns();
            return self.after(ns, Event::WriteGoesOn { at: number });
        }
        if let Some(immediate) = immediate
            && let Some(receive) = pair.receives.pop_front()
        {
            self.announce(number, receive.id, Opcode::ReceiveWrite, bytes.len(), Some(immediate));
        }
        if !acknowledged {
            self.finish(number, transport, from, sequence, Answer::success());
        }
    }

    pub(crate) fn write_goes_on(&mut self, number: u32) {
        if let Some(pair) = self.pair(number) {
            pair.writing = false;
            self.carry_out(number);
        }
    }

    fn atomic(&mut self, link: u64, target: Target, change: impl Fn(u64) -> u64) -> Answer {
        let memory = match self.reach(link, target, 8, true) {
            Ok(memory) => memory,
            Err(status) => return Answer::failure(status),
        };
        self.sample_before(memory.region, target.offset, 8);
        let word = &memory.words().all()[target.offset / 8];
        let old = word.load(Ordering::Relaxed);
        word.store(change(old), Ordering::Relaxed);
        Answer { status: Status::Success, bytes: old.to_le_bytes().into() }
    }

    /// A NIC stores bytes into memory.
    pub(super) fn store(&mut self, memory: &Memory, offset: usize, bytes: &[u8]) {
        self.sample_before(memory.region, offset, bytes.len());
        let mut sink = Sink::new(memory.words().all(), offset, Neighbours::Quiet);
        sink.bytes(bytes);
        sink.finish();
    }
}
