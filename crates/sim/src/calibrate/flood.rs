//! Posts one verb over and over: with windows, to find out what a NIC does at most, or one at a time, for the latency.

use super::{
    cluster::{Course, Worker, now_ns, sleep_until},
    experiment::{Transport, Verb},
};
use locus_fabric::{Completion, LocalSlice, Payload, QueuePair, RemoteSlice, SendRequest, Verb as Posted};
use locus_runtime::world;
use std::collections::VecDeque;

/// The longest payload that is inlined.
pub(super) const INLINE_BYTES_MAX: usize = 1024;
pub(super) static ZEROS: [u8; INLINE_BYTES_MAX] = [0; INLINE_BYTES_MAX];

/// What a worker posts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flood {
    pub(super) verb: Verb,
    pub(super) transport: Transport,
    pub(super) bytes: usize,
    pub(super) inlined: bool,
    /// How many are under way to each peer.
    pub(super) depth: u64,
    /// Every which one is signaled.
    pub(super) signaled: u64,
    /// How long a worker waits between two, where nothing else holds it back; 0 if something does.
    pub(super) pace_ns: u64,
}

/// What is under way to a peer.
#[derive(Debug, Default)]
struct UnderWay {
    posted: u64,
    done: u64,
    /// When the signaled ones were posted.
    since_ns: VecDeque<u64>,
}

impl Flood {
    /// Posts until the world ends.
    pub(super) fn post(self, mut worker: Worker, course: &Course) {
        let mut peers: Vec<UnderWay> = worker.peers.iter().map(|_| UnderWay::default()).collect();
        let mut next_ns = course.wait();
        loop {
            let peer = Self::pick(peers.len());
            if peers[peer].posted - peers[peer].done >= self.depth {
                self.drain(&mut worker, &mut peers, course);
                continue;
            }
            let under_way = &mut peers[peer];
            under_way.posted += 1;
            let signaled = under_way.posted.is_multiple_of(self.signaled);
            if signaled {
                under_way.since_ns.push_back(now_ns());
            }
            self.post_one(&mut worker, peer, signaled);
            if self.pace_ns > 0 {
                next_ns += self.pace_ns;
                sleep_until(next_ns);
            }
        }
    }

    /// One of the peers.
    fn pick(peers: usize) -> usize {
        if peers == 1 {
            return 0;
        }
        world::current().map_or(0, |world| (world.random() >> 33) as usize % peers)
    }

    /// Takes completions, and waits for some if there are none.
    fn drain(self, worker: &mut Worker, peers: &mut [UnderWay], course: &Course) {
        let mut completions = [Completion::EMPTY; 16];
        let count = worker.completions(&mut completions, true);
        for completion in &completions[..count] {
            let under_way = &mut peers[completion.id as usize];
            under_way.done += self.signaled;
            if let Some(since_ns) = under_way.since_ns.pop_front() {
                course.done(since_ns);
            }
        }
    }

    fn post_one(self, worker: &mut Worker, peer: usize, signaled: bool) {
        let region = worker.region.clone();
        let Self { verb, transport, bytes, inlined, .. } = self;
        let local = || LocalSlice { region: &region, offset: 0, bytes };
        let pieces: [&[u8]; 1] = [&ZEROS[..bytes.min(INLINE_BYTES_MAX)]];
        let payload = if inlined { Payload::Inline(&pieces) } else { Payload::Slice(local()) };
        let memory = worker.peers[peer].memory.clone();
        let remote = RemoteSlice { region: &memory, offset: 0 };
        let address = worker.peers[peer].address;
        let to = address.as_ref().filter(|_| transport == Transport::Ud);
        let verb = match verb {
            Verb::Read => Posted::Read { into: local(), from: remote },
            Verb::Write => Posted::Write { payload, to: remote, immediate: None },
            Verb::Send => Posted::Send { payload, immediate: None, to },
        };
        let pair = worker.pair(peer, transport);
        pair.post_send(&SendRequest { id: peer as u64, verb, signaled }).expect("there is room");
        pair.ring().expect("it is connected");
    }
}

/// Lets itself be written to and read from, and posts RECVs again.
pub(super) fn suffer(mut worker: Worker, course: &Course) {
    course.wait();
    let mut completions = [Completion::EMPTY; 16];
    loop {
        let count = worker.completions(&mut completions, true);
        for completion in &completions[..count] {
            worker.receive_again(completion);
        }
    }
}
