//! Messages there and back: by WRITE into memory that is polled, or by SEND (Kalia §3.2.1).

use super::{
    cluster::{Course, OUTGOING, Worker, now_ns},
    experiment::{Transport, Verb},
    flood::{INLINE_BYTES_MAX, ZEROS},
};
use locus_fabric::sim::SimNic;
use locus_fabric::{
    Completion, LocalSlice, Opcode, Payload, QueuePair, Region, RemoteSlice, SendRequest, Verb as Posted,
};
use std::{collections::VecDeque, sync::atomic::Ordering};

/// Every which message is signaled, so that places of the send queue come back.
const SIGNALED: u32 = 16;
/// After so many messages without a look at the completion queue, there is one.
const LOOK_AFTER: u32 = 64;

/// How the messages of one direction travel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) verb: Verb,
    pub(super) transport: Transport,
    pub(super) bytes: usize,
}

/// An echo.
#[derive(Clone, Copy, Debug)]
pub(super) struct Echo {
    pub(super) request: Way,
    pub(super) reply: Way,
    /// How many each asker has under way.
    pub(super) window: usize,
}

impl Echo {
    /// How far slots of WRITEs are apart.
    fn stride(self) -> usize {
        self.request.bytes.max(self.reply.bytes).next_multiple_of(64)
    }

    fn slot(self, asker: usize, number: u64) -> usize {
        (asker * self.window + number as usize % self.window) * self.stride()
    }

    /// Asks until the world ends.
    pub(super) fn ask(self, mut worker: Worker, course: &Course) {
        let place = worker.peers[0].place;
        let (mut asked, mut answered) = (0u64, 0u64);
        let mut since_ns = VecDeque::new();
        let mut mail = Mail::new();
        course.wait();
        loop {
            while asked - answered < self.window as u64 {
                since_ns.push_back(now_ns());
                let offset = self.slot(place as usize, asked);
                mail.post(&mut worker, 0, self.request, Message { number: asked, offset, sender: place });
                asked += 1;
            }
            let mut found = 0;
            if self.reply.verb == Verb::Write {
                while answered < asked && has_come(&worker.region, self.slot(0, answered), answered) {
                    answered += 1;
                    found += 1;
                    course.done(since_ns.pop_front().expect("one for each that is under way"));
                }
            }
            if self.reply.verb == Verb::Send || found == 0 || mail.is_full() {
                for _ in mail.look(&mut worker, self.reply.verb == Verb::Send) {
                    answered += 1;
                    course.done(since_ns.pop_front().expect("one for each that is under way"));
                }
            }
        }
    }

    /// Answers until the world ends.
    pub(super) fn answer(self, mut worker: Worker, course: &Course) {
        let mut next = vec![0u64; worker.peers.len()];
        let mut mail = Mail::new();
        course.wait();
        loop {
            let mut found = 0;
            if self.request.verb == Verb::Write {
                for (asker, number) in next.iter_mut().enumerate() {
                    while has_come(&worker.region, self.slot(asker, *number), *number) {
                        self.reply(&mut mail, &mut worker, asker, number);
                        found += 1;
                    }
                }
            }
            if self.request.verb == Verb::Send || found == 0 || mail.is_full() {
                for asker in mail.look(&mut worker, self.request.verb == Verb::Send) {
                    self.reply(&mut mail, &mut worker, asker as usize, &mut next[asker as usize]);
                }
            }
        }
    }

    fn reply(self, mail: &mut Mail, worker: &mut Worker, asker: usize, number: &mut u64) {
        let message = Message { number: *number, offset: self.slot(0, *number), sender: 0 };
        mail.post(worker, asker, self.reply, message);
        *number += 1;
    }
}

/// Whether the WRITE of a number is there.
fn has_come<R: Region>(region: &R, offset: usize, number: u64) -> bool {
    region.words()[offset / 8].load(Ordering::Acquire) == number + 1
}

/// One message.
#[derive(Clone, Copy, Debug)]
struct Message {
    number: u64,
    /// Where a WRITE goes.
    offset: usize,
    /// Which peer of the receiver's a SEND comes from.
    sender: u32,
}

/// What a worker sends and receives.
struct Mail {
    posted: u32,
    looked: u32,
    /// Messages over each peer's connected queue pair.
    per_peer: Vec<u32>,
}

impl Mail {
    fn new() -> Self {
        Self { posted: 0, looked: 0, per_peer: Vec::new() }
    }

    fn is_full(&self) -> bool {
        self.posted - self.looked >= LOOK_AFTER
    }

    fn post(&mut self, worker: &mut Worker, peer: usize, way: Way, message: Message) {
        self.posted += 1;
        let head = (message.number + 1).to_le_bytes();
        let inlined = way.bytes <= worker.inline_bytes().min(INLINE_BYTES_MAX);
        let region = worker.region.clone();
        let pieces: [&[u8]; 2] = [&head, &ZEROS[..way.bytes.saturating_sub(8).min(INLINE_BYTES_MAX)]];
        let slice = LocalSlice { region: &region, offset: OUTGOING, bytes: way.bytes };
        let payload = if inlined { Payload::Inline(&pieces) } else { Payload::<'_, SimNic>::Slice(slice) };
        let memory = worker.peers[peer].memory.clone();
        let address = worker.peers[peer].address;
        let verb = match way.verb {
            Verb::Write => {
                let to = RemoteSlice { region: &memory, offset: message.offset };
                Posted::Write { payload, to, immediate: None }
            }
            Verb::Send | Verb::Read => {
                let to = address.as_ref().filter(|_| way.transport == Transport::Ud);
                Posted::Send { payload, immediate: Some(message.sender), to }
            }
        };
        // An unsignaled message's place is free again once a later one of its queue pair has completed.
        let posted = if way.transport == Transport::Ud {
            self.posted
        } else {
            self.per_peer.resize(worker.peers.len(), 0);
            self.per_peer[peer] += 1;
            self.per_peer[peer]
        };
        let signaled = posted.is_multiple_of(SIGNALED);
        let pair = worker.pair(peer, way.transport);
        pair.post_send(&SendRequest { id: 0, verb, signaled }).expect("there is room");
        pair.ring().expect("it is connected");
    }

    /// Looks at the completion queue: gives who sent what has arrived.
    fn look(&mut self, worker: &mut Worker, sleeps: bool) -> Vec<u32> {
        self.looked = self.posted;
        let mut completions = [Completion::EMPTY; 16];
        let count = worker.completions(&mut completions, sleeps);
        let received = completions[..count].iter().filter(|completion| completion.opcode == Opcode::Receive);
        let mut senders = Vec::new();
        for completion in received {
            worker.receive_again(completion);
            senders.push(completion.immediate.unwrap_or(0));
        }
        senders
    }
}
