//! The NIC of one host: its resources, and how each step of a verb uses them. Times are in picoseconds since the world
//! began.
//!
//! A request is written to the NIC line by line (PIO) and taken up by the requester's engine, which fetches a payload that
//! is not inlined. Each packet passes the unit that both directions share, and the link. At the peer, WRITEs and SENDs
//! are taken by one engine, READs answered by another: hybrid runs reach nearly the sum of the two (Mitchell Table 2.3).
//!
//! Where a step needs two resources at once, as an engine and PCIe, both are taken when it begins and the slower one
//! counts: taking the second for the moment at which the first is done would keep it from others in between.

use super::{
    contexts::ContextCache,
    machine::{LinkCosts, Machine},
    resource::Resource,
};
use crate::Transport;
use std::sync::Arc;

/// A write-combining line of the processor, and what a NIC fetches at least: a RECV that a message fills.
const LINE_BYTES: usize = 64;

/// What a request asks for, as far as its costs go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Write,
    Send,
    Read,
    Atomic,
}

/// A request, as far as its costs go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) operation: Operation,
    pub(crate) transport: Transport,
    /// How many bytes it carries.
    pub(crate) bytes: usize,
    /// How many a READ asks for.
    pub(crate) wanted_bytes: usize,
    pub(crate) inlined: bool,
}

impl Request {
    /// How many lines of 64 bytes its work request takes, in the layout of mlx4: a WRITE of 28 bytes just fits into one
    /// (Kalia §3.2.2).
    fn lines(self) -> u64 {
        const CONTROL_BYTES: usize = 16;
        const REMOTE_ADDRESS_BYTES: usize = 16;
        const OPERANDS_BYTES: usize = 16;
        const DATAGRAM_BYTES: usize = 48;
        const SCATTER_BYTES: usize = 16;
        const INLINE_BYTES: usize = 4;
        let addressing = match (self.operation, self.transport) {
            (Operation::Send, Transport::Ud) => DATAGRAM_BYTES,
            (Operation::Send, _) => 0,
            (Operation::Write | Operation::Read, _) => REMOTE_ADDRESS_BYTES,
            (Operation::Atomic, _) => REMOTE_ADDRESS_BYTES + OPERANDS_BYTES,
        };
        let payload = if self.inlined { INLINE_BYTES + self.bytes } else { SCATTER_BYTES };
        (CONTROL_BYTES + addressing + payload).div_ceil(LINE_BYTES) as u64
    }

    fn message(self, link: &LinkCosts) -> OnWire {
        let extra = if self.operation == Operation::Send { 0 } else { link.remote_header_bytes };
        let per_packet = if self.transport == Transport::Ud { link.datagram_header_bytes } else { 0 };
        OnWire::of(link, self.bytes, per_packet, extra)
    }
}

/// Packets on a wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnWire {
    packets: u64,
    bytes: u64,
}

impl OnWire {
    fn of(link: &LinkCosts, bytes: usize, per_packet: usize, extra: usize) -> Self {
        let packets = bytes.div_ceil(link.mtu_bytes).max(1);
        let headers = packets * (link.header_bytes + per_packet) + extra;
        Self { packets: packets as u64, bytes: (bytes + headers) as u64 }
    }

    /// An answer: the response to a READ, or an acknowledgement.
    fn answer(link: &LinkCosts, bytes: usize) -> Self {
        let packets = bytes.div_ceil(link.mtu_bytes).max(1);
        Self::of(link, bytes, 0, packets * link.acknowledgement_header_bytes)
    }
}

/// How busy the NIC of a host was so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicUsage {
    /// How long each resource was in use, by name, in nanoseconds.
    pub busy_ns: Vec<(&'static str, u64)>,
    /// How often the state of a queue pair that requests was at hand, and how often not.
    pub requester_contexts: (u64, u64),
    /// The same for queue pairs that serve peers.
    pub responder_contexts: (u64, u64),
    /// Requests of peers that were carried out.
    pub served: u64,
}

/// The NIC of a host.
#[derive(Debug)]
pub(crate) struct NicState {
    pub(crate) machine: Arc<Machine>,
    pio: Resource,
    requester: Resource,
    /// Takes WRITEs and SENDs of peers.
    taker: Resource,
    /// Answers READs of peers.
    reader: Resource,
    /// What all packets pass.
    packets: Resource,
    from_memory: Resource,
    to_memory: Resource,
    egress: Resource,
    ingress: Resource,
    requester_contexts: ContextCache,
    responder_contexts: ContextCache,
    pub(crate) served: u64,
}

impl NicState {
    pub(crate) fn new(machine: Arc<Machine>) -> Self {
        let free = Resource::default();
        let contexts = &machine.nic.contexts;
        Self {
            requester_contexts: ContextCache::new(contexts.requester_entries),
            responder_contexts: ContextCache::new(contexts.responder_entries),
            machine,
            pio: free,
            requester: free,
            taker: free,
            reader: free,
            packets: free,
            from_memory: free,
            to_memory: free,
            egress: free,
            ingress: free,
            served: 0,
        }
    }

    pub(crate) fn usage(&self) -> NicUsage {
        let resources = [
            ("PIO", self.pio),
            ("requester", self.requester),
            ("WRITE and SEND responder", self.taker),
            ("READ responder", self.reader),
            ("packets", self.packets),
            ("PCIe from memory", self.from_memory),
            ("PCIe to memory", self.to_memory),
            ("link out", self.egress),
            ("link in", self.ingress),
        ];
        NicUsage {
            busy_ns: resources.iter().map(|(name, resource)| (*name, resource.busy_ns())).collect(),
            requester_contexts: (self.requester_contexts.hits, self.requester_contexts.misses),
            responder_contexts: (self.responder_contexts.hits, self.responder_contexts.misses),
            served: self.served,
        }
    }

    /// How long bytes occupy PCIe.
    fn dma_ps(&self, bytes: usize) -> u64 {
        let pcie = &self.machine.nic.pcie;
        let bytes = bytes as u64;
        let packets = bytes.div_ceil(pcie.payload_bytes);
        pcie.gigabytes_per_second.transfer_ps(bytes + packets * pcie.header_bytes)
    }

    /// A request is posted: gives when its packets are ready to leave.
    pub(crate) fn post(&mut self, from_ps: u64, pair: u32, request: Request) -> u64 {
        let machine = self.machine.clone();
        let costs = &machine.nic;
        let written_ps = self.pio.occupy(from_ps, request.lines() * costs.pio_line_ns.ps());
        // What the processor writes goes over the lanes of what the NIC fetches.
        let lines_ps = request.lines() * self.dma_ps(LINE_BYTES);
        let crossed_ps = self.from_memory.occupy(from_ps, lines_ps);
        let engine_ns = match request.operation {
            Operation::Write => costs.requester.write_ns,
            Operation::Send => costs.requester.send_ns,
            Operation::Read | Operation::Atomic => costs.requester.read_ns,
        };
        let miss_ps = if self.requester_contexts.touch(pair) { 0 } else { costs.contexts.miss_ns.ps() };
        let taken_ps =
            self.requester.occupy(from_ps, engine_ns.ps() + miss_ps).max(written_ps).max(crossed_ps);
        let fetched_ps = if request.inlined || request.bytes == 0 {
            taken_ps
        } else {
            self.fetch(from_ps, request.bytes).max(taken_ps + costs.pcie.read_ns.ps())
        };
        fetched_ps + costs.pcie.write_ns.ps()
    }

    /// Fetches bytes from the host's memory: gives when the last one is there.
    pub(crate) fn fetch(&mut self, from_ps: u64, bytes: usize) -> u64 {
        let ps = self.dma_ps(bytes);
        self.from_memory.occupy(from_ps, ps) + self.machine.nic.pcie.read_ns.ps()
    }

    /// The packets of a request leave, over the link or to this host itself: gives when the last one has.
    pub(crate) fn send_request(&mut self, from_ps: u64, request: Request, leaves: bool) -> u64 {
        let on_wire = request.message(&self.machine.link);
        let ps = on_wire.packets * self.machine.nic.packet_ns.ps();
        self.send(from_ps, ps, on_wire, leaves)
    }

    /// The packets of an answer leave.
    pub(crate) fn send_answer(&mut self, from_ps: u64, bytes: usize, leaves: bool) -> u64 {
        let on_wire = OnWire::answer(&self.machine.link, bytes);
        let nic = &self.machine.nic;
        let packets_ps =
            if bytes > 0 { on_wire.packets * nic.packet_ns.ps() } else { nic.acknowledgement_packet_ns.ps() };
        self.send(from_ps, packets_ps, on_wire, leaves)
    }

    fn send(&mut self, from_ps: u64, packets_ps: u64, on_wire: OnWire, leaves: bool) -> u64 {
        let passed_ps = self.packets.occupy(from_ps, packets_ps);
        if !leaves {
            return passed_ps;
        }
        let ps = self.machine.link.gigabytes_per_second.transfer_ps(on_wire.bytes);
        self.egress.occupy(passed_ps, ps)
    }

    /// How long packets take to the NIC of a peer once they have left, or through this one.
    pub(crate) fn flight_ps(&self, leaves: bool) -> u64 {
        let Machine { nic, link, .. } = &*self.machine;
        let way_ps = if leaves { link.propagation_ns.ps() + link.switch_ns.ps() } else { 0 };
        nic.pipeline_ns.ps() + way_ps
    }

    /// The last bit of a request would be here at a moment if it were alone on the link: gives when it is.
    pub(crate) fn request_comes_in(&mut self, at_ps: u64, request: Request) -> u64 {
        self.come_in(at_ps, request.message(&self.machine.link))
    }

    /// The same for an answer.
    pub(crate) fn answer_comes_in(&mut self, at_ps: u64, bytes: usize) -> u64 {
        self.come_in(at_ps, OnWire::answer(&self.machine.link, bytes))
    }

    fn come_in(&mut self, at_ps: u64, on_wire: OnWire) -> u64 {
        let ps = self.machine.link.gigabytes_per_second.transfer_ps(on_wire.bytes);
        // The switch passes packets on as they come, so the two links are in use at the same time.
        self.ingress.occupy(at_ps.saturating_sub(ps), ps).max(at_ps)
    }

    /// A request of a peer is here: gives when it is carried out, or, for a READ, when that begins.
    pub(crate) fn take(&mut self, at_ps: u64, pair: u32, request: Request) -> u64 {
        let machine = self.machine.clone();
        let costs = &machine.nic;
        let on_wire = request.message(&machine.link);
        let match_ps = if request.operation == Operation::Send { costs.match_ns.ps() } else { 0 };
        let passed_ps = self.packets.occupy(at_ps, on_wire.packets * costs.packet_ns.ps() + match_ps);
        let miss_ps = if self.responder_contexts.touch(pair) { 0 } else { costs.contexts.miss_ns.ps() };
        if request.operation == Operation::Send {
            // The RECV was fetched ahead, which takes a share of the lanes and no time of the message's own.
            let ps = self.dma_ps(LINE_BYTES);
            self.from_memory.occupy(at_ps, ps);
        }
        let (engine, ns) = match request.operation {
            Operation::Write => (&mut self.taker, costs.responder.write_ns),
            Operation::Send => (&mut self.taker, costs.responder.send_ns),
            Operation::Read => (&mut self.reader, costs.responder.read_ns),
            Operation::Atomic => (&mut self.reader, costs.responder.atomic_ns),
        };
        let engine_ps = ns.ps() + miss_ps;
        match request.operation {
            Operation::Read => {
                let kib_ps = (costs.responder.read_kib_ns.ps() * request.wanted_bytes as u64) >> 10;
                engine.occupy(passed_ps, engine_ps + kib_ps) + costs.pipeline_ns.ps()
            }
            Operation::Atomic => {
                engine.occupy(passed_ps, engine_ps) + costs.pipeline_ns.ps() + costs.pcie.read_ns.ps()
            }
            Operation::Write | Operation::Send => {
                // The engine sees to the acknowledgement, too, once the bytes are on their way.
                let reliable = request.transport == Transport::Rc;
                let answer_ps = if reliable { costs.responder.acknowledgement_ns.ps() } else { 0 };
                let taken_ps = engine.occupy(passed_ps, engine_ps + answer_ps) - answer_ps;
                let completes =
                    if request.operation == Operation::Send { costs.pcie.completion_bytes } else { 0 };
                let ps = self.dma_ps(request.bytes) + self.dma_ps(completes as usize);
                let written_ps = self.to_memory.occupy(at_ps, ps).max(taken_ps);
                written_ps + costs.pipeline_ns.ps() + costs.pcie.write_ns.ps()
            }
        }
    }

    /// An answer is here: gives when its bytes are in memory, and its completion if there is one.
    pub(crate) fn take_answer(&mut self, at_ps: u64, pair: u32, bytes: usize, signaled: bool) -> u64 {
        let machine = self.machine.clone();
        let costs = &machine.nic;
        let (packets_ps, engine_ps) = if bytes > 0 {
            let packets = OnWire::answer(&machine.link, bytes).packets;
            // What a READ brings passes this NIC as it passed that of the responder.
            let kib_ps = (costs.responder.read_kib_ns.ps() * bytes as u64) >> 10;
            let packets_ps = packets * costs.packet_ns.ps() + costs.match_ns.ps();
            (packets_ps, costs.requester.response_ns.ps() + kib_ps)
        } else {
            (costs.acknowledgement_packet_ns.ps(), costs.requester.acknowledgement_ns.ps())
        };
        let passed_ps = self.packets.occupy(at_ps, packets_ps);
        let miss_ps = if self.requester_contexts.touch(pair) { 0 } else { costs.contexts.miss_ns.ps() };
        let taken_ps = self.requester.occupy(passed_ps, engine_ps + miss_ps);
        self.write_back(at_ps, bytes, signaled).max(taken_ps) + costs.pipeline_ns.ps()
    }

    /// Writes bytes and perhaps a completion into the host's memory: gives when they are there.
    pub(crate) fn write_back(&mut self, at_ps: u64, bytes: usize, signaled: bool) -> u64 {
        if bytes == 0 && !signaled {
            return at_ps;
        }
        let pcie = &self.machine.nic.pcie;
        let (completion_bytes, write_ps) = (pcie.completion_bytes as usize, pcie.write_ns.ps());
        let completion_ps = if signaled { self.dma_ps(completion_bytes) } else { 0 };
        let ps = self.dma_ps(bytes) + completion_ps;
        self.to_memory.occupy(at_ps, ps) + write_ps
    }
}
