//! What can be measured of a machine's raw verbs, as a preset asks for it.

use crate::measure::Point;
use serde::Deserialize;

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// A verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// WRITE.
    Write,
    /// SEND.
    Send,
    /// READ.
    Read,
}

/// What a probe does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeTask {
    /// READs.
    Read,
    /// WRITEs, inlined where that is possible.
    Write,
    /// SENDs there and back, both as long.
    Echo,
}

/// Who posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Many machines, to one.
    Inbound,
    /// One machine, to many.
    Outbound,
}

fn one() -> usize {
    1
}

/// A program to run on a cluster of one kind of machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields, tag = "program")]
pub enum Experiment {
    /// One verb, as many as the NIC does (Kalia figures 3, 4 and 6).
    Flood {
        /// Which way.
        direction: Direction,
        /// Which verb.
        verb: Verb,
        /// Over which transport.
        transport: Transport,
        /// How many bytes each.
        bytes: usize,
        /// Whether the bytes are part of the work request.
        #[serde(default)]
        inlined: bool,
        /// How many machines are on the other side of the one that is measured.
        peers: usize,
        /// How many processes each of them has.
        #[serde(default = "one")]
        processes_per_peer: usize,
        /// How many processes the measured machine has.
        processes: usize,
        /// Whether each process has a queue pair with each of the other side, and picks one by chance.
        #[serde(default)]
        all_to_all: bool,
    },
    /// One verb, one at a time (Kalia figure 2).
    Latency {
        /// Which verb.
        verb: Verb,
        /// Over which transport.
        transport: Transport,
        /// How many bytes.
        bytes: usize,
        /// Whether the bytes are part of the work request.
        #[serde(default)]
        inlined: bool,
    },
    /// Messages there and back (Kalia figure 5, Mitchell tables 2.2 and 2.3).
    Echo {
        /// WRITE or SEND, there.
        request: Verb,
        /// Over which transport.
        request_transport: Transport,
        /// WRITE or SEND, back.
        reply: Verb,
        /// Over which transport.
        reply_transport: Transport,
        /// How many bytes there.
        bytes: usize,
        /// How many bytes back.
        reply_bytes: usize,
        /// How many machines ask.
        peers: usize,
        /// How many processes each of them has.
        #[serde(default = "one")]
        processes_per_peer: usize,
        /// How many processes answer.
        processes: usize,
        /// How many echoes each asking process has under way.
        window: usize,
    },
    /// What one client with some queue pairs and one server of echoes can do, over RC: the very program that
    /// `locus sim measure` runs on a real fabric.
    Probe {
        /// What is done over and over.
        task: ProbeTask,
        /// How many bytes, there and back.
        bytes: usize,
        /// How many are under way over each queue pair.
        window: usize,
        /// How many queue pairs.
        queue_pairs: usize,
    },
    /// READs, and echoes over RC SENDs, from clients that each have some under way, to several servers (Mitchell
    /// table 2.3).
    ScaleOut {
        /// How many machines serve.
        servers: usize,
        /// How many machines ask.
        peers: usize,
        /// How many READs are under way in all.
        reads: usize,
        /// How many bytes each.
        #[serde(default)]
        read_bytes: usize,
        /// How many echoes are under way in all.
        echoes: usize,
        /// How many bytes each, there and back.
        #[serde(default)]
        echo_bytes: usize,
    },
}

impl From<Point> for Experiment {
    fn from(Point { task, bytes, window, queue_pairs }: Point) -> Self {
        Self::Probe { task, bytes, window, queue_pairs }
    }
}

/// What an experiment gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Result {
    /// Million operations per second.
    pub mops: f64,
    /// How long one takes on average, in microseconds.
    pub latency_us: f64,
}
