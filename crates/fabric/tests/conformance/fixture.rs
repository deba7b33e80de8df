//! What a case is given: a NIC, two linked ends in this process, and helpers that post, poll and wait with a bound.

use locus_fabric::{
    Access, Completion, CompletionQueue, Link, LocalSlice, Nic, Opcode, PagePolicy, Payload, PostError,
    QueuePair, QueuePairConfig, QueuePairState, Region, RemoteSlice, SendRequest, Status, Transport, Verb,
};
use std::collections::VecDeque;

pub use crate::wait::{PATIENCE, wait};

/// The GRH that precedes each UD message in its buffer, in bytes.
pub const GRH_BYTES: usize = 40;

/// A NIC with a fresh pair of linked ends.
pub struct Fixture<N: Nic> {
    /// The NIC.
    pub nic: N,
    /// The end that asks, in most cases.
    pub near: N::Link,
    /// The end that is asked.
    pub far: N::Link,
}

impl<N: Nic> Fixture<N> {
    /// Links two ends.
    pub fn new(nic: N) -> Self {
        let (near, far) = nic.pair().expect("a pair of links");
        Self { nic, near, far }
    }

    /// The same NIC with another pair of links.
    pub fn another(&self) -> Self {
        Self::new(self.nic.clone())
    }

    /// The default configuration, within the limits of this NIC.
    pub fn config(&self, transport: Transport) -> QueuePairConfig {
        let properties = self.nic.properties();
        let default = QueuePairConfig::default();
        let message_bytes_max = match transport {
            Transport::Ud => properties.datagram_bytes_max,
            _ => properties.message_bytes_max,
        };
        QueuePairConfig {
            transport,
            send_depth: default.send_depth.min(properties.queue_depth_max),
            receive_depth: default.receive_depth.min(properties.queue_depth_max),
            inline_bytes: default.inline_bytes.min(properties.inline_bytes_max),
            reads_outstanding: default.reads_outstanding.min(properties.reads_outstanding_max),
            message_bytes: default.message_bytes.min(message_bytes_max),
            ..default
        }
    }

    /// Memory of this process.
    pub fn region(&self, bytes: usize, access: Access) -> N::Region {
        self.nic.register(bytes, access, PagePolicy::Base).expect("memory")
    }

    /// Lets the near end use a region of the far end.
    pub fn share(&self, region: &N::Region) -> N::RemoteRegion {
        let facts = self.far.grant(region).expect("the owner grants the region");
        self.near.import(facts).expect("the peer imports the region")
    }

    /// Two connected queue pairs with the default configuration.
    pub fn duo(&self, transport: Transport) -> Duo<N> {
        self.duo_with(&self.config(transport))
    }

    /// Two connected queue pairs.
    pub fn duo_with(&self, config: &QueuePairConfig) -> Duo<N> {
        self.duo_of(config, config)
    }

    /// Two connected queue pairs, each with a configuration of its own.
    pub fn duo_of(&self, near: &QueuePairConfig, far: &QueuePairConfig) -> Duo<N> {
        let mut near = End::new(&self.nic, &self.near, near);
        let mut far = End::new(&self.nic, &self.far, far);
        let near_facts = near.queue_pair.facts(&near.link).expect("facts of the near end");
        let far_facts = far.queue_pair.facts(&far.link).expect("facts of the far end");
        let mut address = None;
        if near.config.transport == Transport::Ud {
            near.queue_pair.activate().expect("the near end becomes ready");
            far.queue_pair.activate().expect("the far end becomes ready");
            address = Some(near.queue_pair.address(&near.link, far_facts).expect("the far end's address"));
        } else {
            near.queue_pair.connect(far_facts).expect("the near end connects");
            far.queue_pair.connect(near_facts).expect("the far end connects");
        }
        assert_eq!(near.queue_pair.state(), QueuePairState::Ready);
        assert_eq!(far.queue_pair.state(), QueuePairState::Ready);
        Duo { near, far, address }
    }
}

/// A queue pair with a completion queue for each of its queues, one beside the other, and what was polled but not yet looked at.
pub struct End<N: Nic> {
    pub nic: N,
    pub link: N::Link,
    pub config: QueuePairConfig,
    pub queue_pair: N::QueuePair,
    pub sends: N::CompletionQueue,
    pub receives: N::CompletionQueue,
    sent: VecDeque<Completion>,
    received: VecDeque<Completion>,
}

impl<N: Nic> End<N> {
    /// A queue pair that is not connected.
    pub fn new(nic: &N, link: &N::Link, config: &QueuePairConfig) -> Self {
        // One completion more than there can be work, so that nothing overflows here.
        let sends = nic.create_completion_queue(config.send_depth + 1).expect("a completion queue for sends");
        let receives = nic
            .create_completion_queue_beside(&sends, config.receive_depth + 1)
            .expect("a completion queue for receives");
        let queue_pair = nic.create_queue_pair(link, config, &sends, &receives).expect("a queue pair");
        Self {
            nic: nic.clone(),
            link: link.clone(),
            config: config.clone(),
            queue_pair,
            sends,
            receives,
            sent: VecDeque::new(),
            received: VecDeque::new(),
        }
    }

    /// A queue pair that is connected with one that the peer makes in the same way at the other end of the link, on
    /// a thread of its own. RC and UC.
    pub fn connected(nic: &N, link: &N::Link, config: &QueuePairConfig) -> Self {
        let mut end = Self::new(nic, link, config);
        let facts = end.queue_pair.facts(link).expect("facts");
        link.send(b"queue pair", vec![facts]).expect("the facts are sent");
        let (message, mut facts) = link.receive(PATIENCE).expect("the link lives").expect("the peer's facts");
        assert_eq!(message, b"queue pair");
        end.queue_pair.connect(facts.pop().expect("facts travel along")).expect("the queue pair connects");
        // Nobody sends before both are connected: over UC a message would be lost.
        link.send(b"connected", Vec::new()).expect("the word is sent");
        let (message, _) = link.receive(PATIENCE).expect("the link lives").expect("the peer's word");
        assert_eq!(message, b"connected");
        end
    }

    /// Posts to the send queue and rings.
    pub fn post(&mut self, request: &SendRequest<'_, N>) {
        self.queue_pair.post_send(request).expect("the request is taken");
        self.queue_pair.ring().expect("the doorbell rings");
    }

    /// Posts to the send queue without ringing.
    pub fn queue(&mut self, request: &SendRequest<'_, N>) {
        self.queue_pair.post_send(request).expect("the request is taken");
    }

    /// Posts something that must not be taken.
    pub fn refused(&mut self, request: &SendRequest<'_, N>) -> PostError {
        self.queue_pair.post_send(request).expect_err("the request is refused")
    }

    /// Posts a RECV.
    pub fn receive(&mut self, id: u64, region: &N::Region, offset: usize, bytes: usize) {
        self.queue_pair.post_receive(id, local(region, offset, bytes)).expect("the RECV is taken");
    }

    /// Posts a RECV that must not be taken.
    pub fn receive_refused(&mut self, id: u64, region: &N::Region, offset: usize, bytes: usize) -> PostError {
        self.queue_pair.post_receive(id, local(region, offset, bytes)).expect_err("the RECV is refused")
    }

    /// Polls both completion queues once.
    pub fn poll(&mut self) {
        drain::<N>(&mut self.sends, &mut self.sent);
        drain::<N>(&mut self.receives, &mut self.received);
    }

    /// The next completion of a send, if it was polled.
    pub fn take_sent(&mut self) -> Option<Completion> {
        self.sent.pop_front()
    }

    /// The next completion of a RECV, if it was polled.
    pub fn take_received(&mut self) -> Option<Completion> {
        self.received.pop_front()
    }

    /// Waits for the next completion of a send, polling this end alone.
    pub fn sent(&mut self) -> Completion {
        wait("the completion of a send", || {
            self.poll();
            self.take_sent()
        })
    }

    /// Waits for the next completion of a RECV, polling this end alone.
    pub fn received(&mut self) -> Completion {
        wait("the completion of a RECV", || {
            self.poll();
            self.take_received()
        })
    }

    /// Whether nothing that was polled is left.
    pub fn is_quiet(&self) -> bool {
        self.sent.is_empty() && self.received.is_empty()
    }
}

fn drain<N: Nic>(queue: &mut N::CompletionQueue, into: &mut VecDeque<Completion>) {
    let mut room = [Completion::EMPTY; 16];
    loop {
        let count = queue.poll(&mut room);
        assert!(count <= room.len(), "more completions than there was room for");
        into.extend(&room[..count]);
        if count < room.len() {
            return;
        }
    }
}

/// Two connected ends on this thread.
pub struct Duo<N: Nic> {
    pub near: End<N>,
    pub far: End<N>,
    /// UD: how the near end names the far end.
    pub address: Option<N::AddressHandle>,
}

impl<N: Nic> Duo<N> {
    /// Polls both ends once, which also drives a software NIC.
    pub fn pump(&mut self) {
        self.near.poll();
        self.far.poll();
    }

    /// Gives everything that was started the time to arrive, so that a case may say that something did not.
    pub fn settle(&mut self) {
        for round in 0..300 {
            self.pump();
            if round % 10 == 0 {
                locus_runtime::thread::yield_now();
            }
        }
    }

    /// The next completion of the near end's send queue.
    pub fn sent(&mut self) -> Completion {
        wait("the completion of a send", || {
            self.pump();
            self.near.take_sent()
        })
    }

    /// The next completion of the far end's receive queue.
    pub fn received(&mut self) -> Completion {
        wait("the completion of a RECV", || {
            self.pump();
            self.far.take_received()
        })
    }

    /// Waits for a success of the near end's send queue.
    pub fn sent_well(&mut self, id: u64, opcode: Opcode) {
        let completion = self.sent();
        assert_eq!(
            (completion.id, completion.status, completion.opcode, completion.queue_pair),
            (id, Status::Success, opcode, self.near.queue_pair.number())
        );
    }

    /// Waits for a failure of the near end's send queue.
    pub fn sent_badly(&mut self, id: u64, status: Status) {
        let completion = self.sent();
        assert_eq!(
            (completion.id, completion.status, completion.queue_pair),
            (id, status, self.near.queue_pair.number())
        );
    }

    /// Waits for a message at the far end; `bytes` without the GRH.
    pub fn received_well(&mut self, id: u64, bytes: usize, immediate: Option<u32>) {
        let completion = self.received();
        let expected = Completion {
            id,
            queue_pair: self.far.queue_pair.number(),
            status: Status::Success,
            opcode: Opcode::Receive,
            bytes: (bytes + self.grh()) as u32,
            immediate,
        };
        assert_eq!(completion, expected);
    }

    /// Posts a SEND from the near end to the far end, signaled.
    pub fn send(&mut self, id: u64, payload: Payload<'_, N>, immediate: Option<u32>) {
        self.try_send(id, payload, immediate).expect("the SEND is taken");
        self.near.queue_pair.ring().expect("the doorbell rings");
    }

    /// Tries to post a SEND from the near end to the far end, signaled; does not ring.
    pub fn try_send(
        &mut self,
        id: u64,
        payload: Payload<'_, N>,
        immediate: Option<u32>,
    ) -> Result<(), PostError> {
        let verb = Verb::Send { payload, immediate, to: self.address.as_ref() };
        self.near.queue_pair.post_send(&SendRequest { id, verb, signaled: true })
    }

    /// Posts a SEND of a few bytes from the near end to the far end, inline and signaled.
    pub fn send_inline(&mut self, id: u64, bytes: &[u8]) {
        self.send(id, Payload::Inline(&[bytes]), None);
    }

    /// How many bytes precede a message in its buffer.
    pub fn grh(&self) -> usize {
        if self.near.config.transport == Transport::Ud { GRH_BYTES } else { 0 }
    }

    /// Asserts that nothing completed unexpectedly and that both ends still work.
    pub fn is_well(&mut self) {
        self.settle();
        assert!(self.near.is_quiet() && self.far.is_quiet(), "an unexpected completion");
        assert_eq!(self.near.queue_pair.state(), QueuePairState::Ready);
        assert_eq!(self.far.queue_pair.state(), QueuePairState::Ready);
    }
}

/// A range of a region of this process.
pub fn local<N: Nic>(region: &N::Region, offset: usize, bytes: usize) -> LocalSlice<'_, N> {
    LocalSlice { region, offset, bytes }
}

/// A place in a region of the peer.
pub fn remote<N: Nic>(region: &N::RemoteRegion, offset: usize) -> RemoteSlice<'_, N> {
    RemoteSlice { region, offset }
}

/// A payload from a region.
pub fn slice<N: Nic>(region: &N::Region, offset: usize, bytes: usize) -> Payload<'_, N> {
    Payload::Slice(local(region, offset, bytes))
}

/// A signaled READ.
pub fn read<'a, N: Nic>(id: u64, into: LocalSlice<'a, N>, from: RemoteSlice<'a, N>) -> SendRequest<'a, N> {
    SendRequest { id, verb: Verb::Read { into, from }, signaled: true }
}

/// A signaled WRITE.
pub fn write<'a, N: Nic>(id: u64, payload: Payload<'a, N>, to: RemoteSlice<'a, N>) -> SendRequest<'a, N> {
    SendRequest { id, verb: Verb::Write { payload, to, immediate: None }, signaled: true }
}

/// A signaled WRITE with immediate.
pub fn write_immediate<'a, N: Nic>(
    id: u64,
    payload: Payload<'a, N>,
    to: RemoteSlice<'a, N>,
    immediate: u32,
) -> SendRequest<'a, N> {
    SendRequest { id, verb: Verb::Write { payload, to, immediate: Some(immediate) }, signaled: true }
}

/// A signaled compare-and-swap.
pub fn compare_swap<'a, N: Nic>(
    id: u64,
    into: LocalSlice<'a, N>,
    at: RemoteSlice<'a, N>,
    expected: u64,
    desired: u64,
) -> SendRequest<'a, N> {
    SendRequest { id, verb: Verb::CompareSwap { into, at, expected, desired }, signaled: true }
}

/// A signaled fetch-and-add.
pub fn fetch_add<'a, N: Nic>(
    id: u64,
    into: LocalSlice<'a, N>,
    at: RemoteSlice<'a, N>,
    add: u64,
) -> SendRequest<'a, N> {
    SendRequest { id, verb: Verb::FetchAdd { into, at, add }, signaled: true }
}

/// The same request without a completion on success.
pub fn unsignaled<N: Nic>(request: SendRequest<'_, N>) -> SendRequest<'_, N> {
    SendRequest { signaled: false, ..request }
}

/// Bytes that differ from place to place and from seed to seed (SplitMix64).
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut pattern: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect();
    pattern.truncate(bytes);
    pattern
}

/// Copies bytes of a region out.
pub fn bytes_of<R: Region>(region: &R, offset: usize, bytes: usize) -> Vec<u8> {
    let mut copy = vec![0; bytes];
    region.copy_out(offset, &mut copy);
    copy
}

/// SplitMix64: the same numbers on every run.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
