//! What a preset says of a machine: what each step of a verb costs. All machines of a cluster are alike; a world may hold
//! several kinds.

use super::units::{GigabytesPerSecond, Nanoseconds};
use serde::Deserialize;

/// The costs of one kind of machine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its NIC.
    pub nic: NicCosts,
    /// The link between its NIC and the switch.
    pub link: LinkCosts,
    /// Its cores.
    pub processor: ProcessorCosts,
}

/// What a NIC is busy with, by step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicCosts {
    /// The largest payload that fits into a work request, in bytes.
    pub inline_bytes_max: usize,
    /// How many READs and atomics of one queue pair may be outstanding.
    pub reads_outstanding: usize,
    /// The processor writes a work request to the NIC, per write-combining line of 64 bytes.
    pub pio_line_ns: Nanoseconds,
    /// A packet passes the unit that all packets share, whichever way they go.
    pub packet_ns: Nanoseconds,
    /// An acknowledgement passes that unit.
    pub acknowledgement_packet_ns: Nanoseconds,
    /// That unit looks up the work request that a message is for: the READ that a response answers, the RECV that a SEND
    /// fills.
    pub match_ns: Nanoseconds,
    /// How much longer a packet takes through a NIC than it keeps anything busy.
    pub pipeline_ns: Nanoseconds,
    /// The engine that works for its own host's requests.
    pub requester: Requester,
    /// The engines that work for requests of peers.
    pub responder: Responder,
    /// The slot.
    pub pcie: Pcie,
    /// The cache of queue-pair contexts.
    pub contexts: Contexts,
}

/// How long the engine that sends requests is busy.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requester {
    /// With a WRITE.
    pub write_ns: Nanoseconds,
    /// With a SEND.
    pub send_ns: Nanoseconds,
    /// With a READ or an atomic.
    pub read_ns: Nanoseconds,
    /// With the response to a READ or an atomic.
    pub response_ns: Nanoseconds,
    /// With an acknowledgement that has come.
    pub acknowledgement_ns: Nanoseconds,
}

/// How long the engines that serve peers are busy: one that takes WRITEs and SENDs, and one that answers READs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Responder {
    /// With a WRITE.
    pub write_ns: Nanoseconds,
    /// With a SEND, and the RECV that it consumes.
    pub send_ns: Nanoseconds,
    /// With an acknowledgement to be sent.
    pub acknowledgement_ns: Nanoseconds,
    /// With a READ.
    pub read_ns: Nanoseconds,
    /// And per KiB of it.
    pub read_kib_ns: Nanoseconds,
    /// With an atomic.
    pub atomic_ns: Nanoseconds,
}

/// How a NIC reaches the memory of its host.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pcie {
    /// Until what a DMA read asked for is there.
    pub read_ns: Nanoseconds,
    /// Until what a DMA write or PIO has written is there.
    pub write_ns: Nanoseconds,
    /// How fast bytes go, each way.
    pub gigabytes_per_second: GigabytesPerSecond,
    /// How many bytes of payload a packet of PCIe holds.
    pub payload_bytes: u64,
    /// And how many besides.
    pub header_bytes: u64,
    /// How long a completion is.
    pub completion_bytes: u64,
}

/// How many queue pairs a NIC has the state of at hand.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// Those that it sends requests for.
    pub requester_entries: usize,
    /// Those that it serves peers for.
    pub responder_entries: usize,
    /// How long the engine waits for one that is not at hand.
    pub miss_ns: Nanoseconds,
}

/// A link to the switch, and the switch.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkCosts {
    /// How fast bytes go, each way.
    pub gigabytes_per_second: GigabytesPerSecond,
    /// From NIC to NIC, without the switch.
    pub propagation_ns: Nanoseconds,
    /// Through the switch.
    pub switch_ns: Nanoseconds,
    /// How many bytes of payload a packet holds.
    pub mtu_bytes: usize,
    /// How many bytes a packet over RC or UC has besides, each.
    pub header_bytes: usize,
    /// How many more one over UD has.
    pub datagram_header_bytes: usize,
    /// How many more the first packet of a WRITE and a READ request have.
    pub remote_header_bytes: usize,
    /// How many more a response and an acknowledgement have.
    pub acknowledgement_header_bytes: usize,
}

/// What verbs cost a core, and how fast it is.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessorCosts {
    /// How many cores a machine has.
    pub cores: usize,
    /// How much longer a core of it takes for a store's own steps than one of the machine on which these were measured.
    pub factor: f64,
    /// To post a request.
    pub post_ns: Nanoseconds,
    /// To post a RECV.
    pub post_receive_ns: Nanoseconds,
    /// To poll a completion queue that holds something.
    pub poll_hit_ns: Nanoseconds,
    /// To poll one that is empty.
    pub poll_miss_ns: Nanoseconds,
}

impl Machine {
    /// Says what makes no sense, by the name of the field.
    pub fn check(&self) -> Result<(), String> {
        let Self { nic, link, processor } = self;
        let within = |name: &str, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!("{name} is {value}, and must be between {least} and {most}"))
            }
        };
        within("nic.inline_bytes_max", nic.inline_bytes_max, 0, 1024)?;
        within("nic.reads_outstanding", nic.reads_outstanding, 1, 128)?;
        within("nic.contexts.requester_entries", nic.contexts.requester_entries, 0, 1 << 24)?;
        within("nic.contexts.responder_entries", nic.contexts.responder_entries, 0, 1 << 24)?;
        within("nic.pcie.payload_bytes", nic.pcie.payload_bytes as usize, 64, 4096)?;
        within("nic.pcie.header_bytes", nic.pcie.header_bytes as usize, 0, 256)?;
        within("nic.pcie.completion_bytes", nic.pcie.completion_bytes as usize, 0, 256)?;
        within("link.mtu_bytes", link.mtu_bytes, 256, 1 << 16)?;
        for (name, bytes) in [
            ("link.header_bytes", link.header_bytes),
            ("link.datagram_header_bytes", link.datagram_header_bytes),
            ("link.remote_header_bytes", link.remote_header_bytes),
            ("link.acknowledgement_header_bytes", link.acknowledgement_header_bytes),
        ] {
            within(name, bytes, 0, 1024)?;
        }
        within("processor.cores", processor.cores, 1, 1024)?;
        if !(0.01..=100.0).contains(&processor.factor) {
            return Err(format!(
                "processor.factor is {}, and must be between 0.01 and 100",
                processor.factor
            ));
        }
        Ok(())
    }
}
