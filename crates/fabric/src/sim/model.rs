//! What a simulation is made of: the NIC that it models, the time that things take, and how hostile its world is.

use super::Steps;
use crate::{Atomicity, Properties, ReadOrder};

/// How a world goes. Everything in it follows from this.
#[derive(Clone, Debug)]
pub struct SimulationConfig {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// The NIC of all hosts.
    pub nic: NicModel,
    /// How long things take.
    pub times: Times,
    /// How long the store's own steps take.
    pub steps: Steps,
    /// What else may happen.
    pub adversary: Adversary,
    /// A world that has seen so many events is ended with an error.
    pub events_max: u64,
    /// A world that lasts longer is ended with an error: most likely somebody waits for what will never be.
    pub virtual_ns_max: u64,
}

impl Default for SimulationConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            nic: NicModel::default(),
            times: Times::default(),
            steps: Steps::default(),
            adversary: Adversary::none(),
            events_max: 1 << 32,
            virtual_ns_max: u64::MAX,
        }
    }
}

/// What the NIC promises about memory.
#[derive(Clone, Debug)]
pub struct NicModel {
    /// In which order a READ samples memory.
    pub read_order: ReadOrder,
    /// Aligned pieces of this many bytes are sampled at once: 8 as software NICs do, or 64 as those on PCIe.
    pub read_atomicity_bytes: usize,
    /// Whether a WRITE wakes who sleeps. A simulated core that polls memory does not: it sleeps until it is woken.
    pub writes_wake: bool,
    /// The largest SEND over UD, in bytes: the MTU, from 256 to 4096.
    pub datagram_bytes_max: usize,
}

impl Default for NicModel {
    fn default() -> Self {
        Self {
            read_order: ReadOrder::Unordered,
            read_atomicity_bytes: 8,
            writes_wake: true,
            datagram_bytes_max: 4096,
        }
    }
}

impl NicModel {
    /// What the NIC declares of itself.
    pub(crate) fn properties(&self, adversary: &Adversary) -> Properties {
        Properties {
            provider: "sim",
            read_order: self.read_order,
            read_atomicity_bytes: self.read_atomicity_bytes,
            write_in_order: !adversary.scrambles_writes,
            writes_wake: self.writes_wake,
            atomics: Atomicity::Global,
            inline_bytes_max: 1024,
            message_bytes_max: 1 << 20,
            datagram_bytes_max: self.datagram_bytes_max,
            transfer_bytes_max: 1 << 30,
            queue_depth_max: 16 << 10,
            completions_max: 64 << 10,
            reads_outstanding_max: 16,
            loses_messages: adversary.loses > 0.0,
            dear_doorbells: false,
            prefetches: false,
            reads_at_once: false,
            writes_at_once: false,
            messages_at_once: false,
        }
    }
}

/// How long things take, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Times {
    /// The processor looks at a completion queue.
    pub poll_ns: u64,
    /// The processor hands a chain of requests to the NIC.
    pub doorbell_ns: u64,
    /// A NIC starts a request.
    pub requester_ns: u64,
    /// A NIC carries a request of its peer out.
    pub responder_ns: u64,
    /// A message travels from NIC to NIC.
    pub wire_ns: u64,
    /// A kilobyte passes a link.
    pub kilobyte_ns: u64,
    /// A requester gives a silent peer up.
    pub retry_ns: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            poll_ns: 50,
            doorbell_ns: 50,
            requester_ns: 50,
            responder_ns: 100,
            wire_ns: 500,
            kilobyte_ns: 150,
            retry_ns: 1_000_000,
        }
    }
}

/// What chance may do, with which probability. All zero: nothing.
#[derive(Clone, Debug)]
pub struct Adversary {
    /// A store into registered memory is the last one of its thread for a while.
    pub preempts: f64,
    /// How long such a while is at most, in nanoseconds.
    pub pause_ns: u64,
    /// A store lets a READ that is under way sample the piece first that is about to change.
    pub samples: f64,
    /// How much longer a READ or WRITE takes at most, and a message travels, in nanoseconds.
    pub delay_ns: u64,
    /// Messages over UD overtake each other.
    pub reorders: bool,
    /// A message over UC or UD is lost.
    pub loses: f64,
    /// The receiver of a message is late with the RECV for it, even if it was posted: over RC the message waits, or fails
    /// if the sender's queue pair is set to that; over UC and UD it is lost.
    pub unready: f64,
    /// How late at most, in nanoseconds.
    pub unready_ns: u64,
    /// A request breaks its queue pair.
    pub breaks: f64,
    /// The pieces of a WRITE become visible in any order.
    pub scrambles_writes: bool,
    /// A WRITE over RC is acknowledged before its pieces are visible; what follows on its queue pair still comes after them.
    pub acknowledges_early: f64,
    /// How long peers still reach the memory of a process that was killed, in nanoseconds.
    pub outlives_ns: u64,
}

impl Adversary {
    /// None.
    pub fn none() -> Self {
        Self {
            preempts: 0.0,
            pause_ns: 0,
            samples: 0.0,
            delay_ns: 0,
            reorders: false,
            loses: 0.0,
            unready: 0.0,
            unready_ns: 0,
            breaks: 0.0,
            scrambles_writes: false,
            acknowledges_early: 0.0,
            outlives_ns: 0,
        }
    }

    /// One that interleaves readers and writers in every way, but breaks and loses nothing.
    pub fn of_memory() -> Self {
        Self { preempts: 0.05, pause_ns: 4000, samples: 0.5, delay_ns: 3000, ..Self::none() }
    }
}
