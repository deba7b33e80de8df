//! Queue pairs as a simulated process uses them.

use super::{
    SimLink, SimNic,
    completion_queue::{Handle, SimCompletionQueue},
    facts::Record,
    region::Target,
    state::{State, try_with, with},
    threads,
    transport::{Kind, Pair, Posted, Receive},
};
use crate::Link;
use crate::{
    FabricError, Facts, LocalSlice, Payload, PostError, QueuePair, QueuePairConfig, QueuePairState,
    RemoteSlice, SendRequest, Status, Transport, Verb,
    checks::{self, Limits},
};
use std::rc::Rc;

/// A queue pair of a simulated NIC.
#[derive(Debug)]
pub struct SimQueuePair {
    number: u32,
    config: QueuePairConfig,
    limits: Limits,
    /// Kept so that it stays on the simulated thread that made it.
    _queues: [Rc<Handle>; 2],
}

/// Names a UD queue pair of a simulated peer.
#[derive(Clone, Copy, Debug)]
pub struct SimAddress {
    number: u32,
    secret: u64,
    message_bytes: usize,
}

impl SimQueuePair {
    pub(crate) fn create(
        nic: &SimNic,
        link: &SimLink,
        config: &QueuePairConfig,
        send: &SimCompletionQueue,
        receive: &SimCompletionQueue,
    ) -> Result<Self, FabricError> {
        if !link.alive() {
            return Err(FabricError::PeerLost { peer: link.name() });
        }
        let queues = [send.handle.clone(), receive.handle.clone()];
        let number = with(|state| {
            let number = state.pairs.len() as u32;
            let secret = state.chance.number();
            let numbers = (queues[0].number, queues[1].number);
            state.pairs.push(Some(Pair::new(
                (number, state.threads.process(), link.number),
                config,
                secret,
                numbers,
            )));
            for queue in [numbers.0, numbers.1] {
                if let Some(queue) = &mut state.queues[queue]
                    && queue.pairs.last() != Some(&number)
                {
                    queue.pairs.push(number);
                }
            }
            number
        });
        let properties = &nic.properties;
        let limits = Limits {
            message: properties.message_bytes_max,
            datagram: properties.datagram_bytes_max,
            transfer: properties.transfer_bytes_max,
        };
        Ok(Self { number, config: config.clone(), limits, _queues: queues })
    }

    fn with<R>(&self, action: impl FnOnce(&mut Pair) -> R) -> R {
        with(|state| action(state.pair(self.number).expect("it lives as long as its handle")))
    }

    /// What a verb asks for, and where what comes back goes.
    fn kind(&self, verb: &Verb<'_, SimNic>) -> Kind {
        match verb {
            Verb::Read { into, from } => Kind::Read { target: target(from), bytes: into.bytes },
            Verb::Write { payload, to, immediate } => Kind::Write {
                target: target(to),
                bytes: bytes_of(payload),
                immediate: *immediate,
                left: None,
            },
            Verb::Send { payload, immediate, .. } => {
                Kind::Send { bytes: bytes_of(payload), immediate: *immediate }
            }
            Verb::CompareSwap { at, expected, desired, .. } => {
                Kind::CompareSwap { target: target(at), expected: *expected, desired: *desired }
            }
            Verb::FetchAdd { at, add, .. } => Kind::FetchAdd { target: target(at), add: *add },
        }
    }

    /// Makes the queue pair ready and takes up what has arrived.
    fn become_ready(state: &mut State, number: u32, peer: Option<u32>) {
        if let Some(pair) = state.pair(number) {
            pair.peer = peer;
            pair.state = QueuePairState::Ready;
        }
        state.carry_out(number);
    }
}

fn target(remote: &RemoteSlice<'_, SimNic>) -> Target {
    Target { secret: remote.region.secret, link: remote.region.link, offset: remote.offset }
}

/// The bytes of a payload, as they are when it is posted.
fn bytes_of(payload: &Payload<'_, SimNic>) -> Box<[u8]> {
    match payload {
        Payload::Inline(pieces) => pieces.concat().into(),
        Payload::Slice(slice) => {
            let mut bytes = vec![0; slice.bytes];
            crate::Region::copy_out(slice.region, slice.offset, &mut bytes);
            bytes.into()
        }
    }
}

impl QueuePair for SimQueuePair {
    type Nic = SimNic;

    fn number(&self) -> u32 {
        self.number
    }

    fn state(&self) -> QueuePairState {
        try_with(|state| state.pair(self.number).map_or(QueuePairState::Error, |pair| pair.state))
            .unwrap_or(QueuePairState::Error)
    }

    fn facts(&self, link: &SimLink) -> Result<Facts, FabricError> {
        let transport = self.config.transport;
        self.with(|pair| {
            if transport != Transport::Ud && pair.link != link.number {
                return Err(FabricError::State("a connected queue pair belongs to the link it was made for"));
            }
            let words = [pair.number.into(), pair.secret, transport as u64, pair.config.message_bytes as u64];
            Ok(Record::QueuePair.encode(&words))
        })
    }

    fn connect(&mut self, facts: Facts) -> Result<(), FabricError> {
        if self.config.transport == Transport::Ud {
            return Err(FabricError::Unsupported(
                "UD queue pairs do not connect: activate, and address each message",
            ));
        }
        let peer = Peer::understand(&facts, self.config.transport)?;
        let limit = with(|state| {
            let link = state.pair(self.number).map(|pair| (pair.state, pair.link));
            if link.is_none_or(|(state, _)| state != QueuePairState::Init) {
                return Err(FabricError::State("the queue pair was connected before, or is in error"));
            }
            if state.pair(peer.number).map(|pair| pair.link) != link.map(|(_, link)| link) {
                return Err(Peer::bad("the queue pair is of another link"));
            }
            Self::become_ready(state, self.number, Some(peer.number));
            Ok(peer.message_bytes)
        })?;
        self.limits.message = self.limits.message.min(limit);
        Ok(())
    }

    fn activate(&mut self) -> Result<(), FabricError> {
        if self.config.transport != Transport::Ud {
            return Err(FabricError::Unsupported("RC and UC queue pairs become ready by connecting"));
        }
        with(|state| {
            if state.pair(self.number).is_none_or(|pair| pair.state != QueuePairState::Init) {
                return Err(FabricError::State("the queue pair was activated before, or is in error"));
            }
            Self::become_ready(state, self.number, None);
            Ok(())
        })
    }

    fn address(&self, _: &SimLink, facts: Facts) -> Result<SimAddress, FabricError> {
        if self.config.transport != Transport::Ud {
            return Err(FabricError::Unsupported("only UD queue pairs have addresses"));
        }
        let Peer { number, secret, message_bytes } = Peer::understand(&facts, Transport::Ud)?;
        Ok(SimAddress { number, secret, message_bytes })
    }

    fn post_send(&mut self, request: &SendRequest<'_, SimNic>) -> Result<(), PostError> {
        if threads::is_ending() {
            return Ok(());
        }
        let opcode = checks::legal(&request.verb, self.config.transport)?;
        checks::operands(&request.verb, self.config.inline_bytes, &self.limits)?;
        let to = match &request.verb {
            Verb::Send { payload, to: Some(to), .. } => {
                let bytes = match payload {
                    Payload::Inline(pieces) => checks::gathered_bytes(pieces),
                    Payload::Slice(slice) => slice.bytes,
                };
                if bytes > to.message_bytes {
                    return Err(PostError::TooLong(bytes, to.message_bytes));
                }
                Some((to.number, to.secret))
            }
            _ => None,
        };
        let depth = self.config.send_depth;
        self.with(|pair| match pair.state {
            QueuePairState::Init => Err(PostError::NotReady),
            _ if pair.send_places >= depth => Err(PostError::SendQueueFull(depth)),
            _ => Ok(()),
        })?;
        let into = match &request.verb {
            Verb::Read { into, .. } | Verb::CompareSwap { into, .. } | Verb::FetchAdd { into, .. } => {
                Some((into.region.memory(), into.offset))
            }
            _ => None,
        };
        let kind = Some(self.kind(&request.verb));
        let inlined = matches!(
            request.verb,
            Verb::Write { payload: Payload::Inline(_), .. } | Verb::Send { payload: Payload::Inline(_), .. }
        );
        let (id, signaled) = (request.id, request.signaled);
        let posted = Posted { id, opcode, signaled, inlined, kind, into, to, ended: None };
        with(|state| {
            if let Some(nic) = state.nic_of(self.number) {
                let post_ns = nic.machine.processor.post_ns.whole_ns();
                state.charge(post_ns);
            }
            let pair = state.pair(self.number).expect("it lives as long as its handle");
            pair.send_places += 1;
            pair.sends.push_back(posted);
            if pair.state == QueuePairState::Error {
                state.flush(self.number);
            }
        });
        Ok(())
    }

    fn ring(&mut self) -> Result<(), PostError> {
        if threads::is_ending() {
            return Ok(());
        }
        let has_news = with(|state| {
            // Where costs are modelled, posting has paid for it.
            let doorbell_ns = if state.is_modelled(self.number) { 0 } else { state.config.times.doorbell_ns };
            let pair = state.pair(self.number).expect("it lives as long as its handle");
            let has_news = pair.rung < pair.posted();
            if has_news {
                state.charge(doorbell_ns);
            }
            has_news
        });
        if has_news {
            // What was done before the doorbell took its time.
            threads::work(0);
            with(|state| {
                if let Some(pair) = state.pair(self.number) {
                    pair.rung = pair.posted();
                }
                state.depart(self.number);
            });
        }
        Ok(())
    }

    fn post_receive(&mut self, id: u64, buffer: LocalSlice<'_, SimNic>) -> Result<(), PostError> {
        if threads::is_ending() {
            return Ok(());
        }
        checks::range(&buffer)?;
        let receive =
            Receive { id, memory: buffer.region.memory(), offset: buffer.offset, bytes: buffer.bytes };
        let depth = self.config.receive_depth;
        with(|state| {
            if let Some(nic) = state.nic_of(self.number) {
                let post_ns = nic.machine.processor.post_receive_ns.whole_ns();
                state.charge(post_ns);
            }
            let pair = state.pair(self.number).expect("it lives as long as its handle");
            if pair.receive_places >= depth {
                return Err(PostError::ReceiveQueueFull(depth));
            }
            pair.receive_places += 1;
            pair.receives.push_back(receive);
            if pair.state == QueuePairState::Error {
                state.flush(self.number);
            } else {
                state.carry_out(self.number);
            }
            Ok(())
        })
    }

    fn fail(&mut self) {
        try_with(|state| state.break_pair(self.number, Status::Flushed));
    }
}

impl Drop for SimQueuePair {
    fn drop(&mut self) {
        try_with(|state| {
            let process = state.pair(self.number).map(|pair| pair.process);
            if !process.is_some_and(|process| state.processes[process].lingers) {
                state.drop_pair(self.number);
            }
        });
    }
}

impl State {
    /// Destroys a queue pair.
    pub(crate) fn drop_pair(&mut self, number: u32) {
        self.break_pair(number, Status::Flushed);
        let pair = self.pairs[number as usize].take();
        for queue in pair.iter().flat_map(|pair| [pair.send_queue, pair.receive_queue]) {
            if let Some(queue) = &mut self.queues[queue] {
                queue.pairs.retain(|other| *other != number);
            }
        }
    }
}

/// A peer's queue pair, as its facts tell of it.
struct Peer {
    number: u32,
    secret: u64,
    message_bytes: usize,
}

impl Peer {
    fn understand(facts: &Facts, transport: Transport) -> Result<Self, FabricError> {
        let [number, secret, theirs, message_bytes] = Record::QueuePair.decode(facts).map_err(Self::bad)?;
        let number = u32::try_from(number).map_err(|_| Self::bad("there is no such queue pair"))?;
        if theirs != transport as u64 {
            return Err(Self::bad("the queue pair is of another transport"));
        }
        let known = with(|state| {
            // A UD queue pair that is gone is an address that leads nowhere.
            state.pair(number).map_or(transport == Transport::Ud, |pair| {
                pair.secret == secret && pair.config.message_bytes as u64 == message_bytes
            })
        });
        if !known {
            return Err(Self::bad("there is no such queue pair"));
        }
        Ok(Self { number, secret, message_bytes: message_bytes as usize })
    }

    fn bad(what: &'static str) -> FabricError {
        FabricError::Protocol { peer: "the simulated peer".into(), what: what.into() }
    }
}
