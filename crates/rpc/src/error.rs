//! What can go wrong in a call, and what it means for the caller.

use crate::FrameError;
use locus_fabric::{FabricError, PostError, Status};
use std::time::Duration;

/// What errors say of a change whose request waits at a server that does not answer.
pub const CHANGE_PENDING: &str = "; the change may have been made, or be made yet: read the key to find out";

/// Why a call or a channel failed.
#[derive(Debug, thiserror::Error)]
pub enum RpcError {
    /// The server is lost. Nothing that this call would have changed was changed.
    #[error("the server {peer} is lost: {cause}")]
    ServerLost {
        /// Who it was.
        peer: String,
        /// How that showed.
        cause: Loss,
    },
    /// The server was lost while the mutation was under way: it may have been executed or not.
    #[error(
        "the server was lost during the change, which may have been made or not: read the key to find out"
    )]
    OutcomeUnknown,
    /// The server is connected and did not answer in time.
    #[error(
        "{peer} did not answer within {limit:?}, which is the limit: it is stopped or overloaded{}",
        if *change_pending { CHANGE_PENDING } else { "" }
    )]
    Unanswered {
        /// Who.
        peer: String,
        /// How long it had.
        limit: Duration,
        /// Whether the call would change something and was sent: it may have been executed, or be executed yet.
        change_pending: bool,
    },
    /// More calls wait for a slot than may.
    #[error("{0} calls wait for a slot of the channel, which is the limit: await some first")]
    WindowFull(usize),
    /// A key or value is over its limit.
    #[error("a {what} of {bytes} bytes is over the limit of {limit}")]
    TooLarge {
        /// Key or value.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A limit of the server or the channel was reached.
    #[error("{what}: the limit is {limit}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The server granted no staging region for values that travel outside the frame.
    #[error("the channel has no staging region for values that do not fit a frame")]
    NoStaging,
    /// The peer broke the protocol of this crate.
    #[error("{peer} broke the protocol: {what}")]
    Protocol {
        /// Who.
        peer: String,
        /// What it did.
        what: &'static str,
    },
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// How it showed that the peer of a channel is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// It closed its queue pair or the link, or its process is gone.
    #[error("it closed the connection, or its process is gone")]
    PeerGone,
    /// A work request failed.
    #[error("the queue pair broke: {0:?}")]
    Broken(Status),
    /// A work request was refused.
    #[error("the queue pair refused a request: {0}")]
    Refused(PostError),
    /// What arrived is no frame.
    #[error("it sent what is no frame: {0}")]
    Malformed(FrameError),
    /// Frames name another incarnation of the server.
    #[error("frames name another incarnation of the server")]
    WrongIncarnation,
    /// A sequence that no honest client sends.
    #[error("a sequence number is older than its slot allows")]
    Sequence,
    /// More replies wait for a peer than its window has requests.
    #[error("it does not take its replies")]
    Stalled,
    /// The same session came back over another channel.
    #[error("its session came back over another channel")]
    Replaced,
    /// Requests over a transport that may lose them stay unanswered.
    #[error("a request stays unanswered after {0} repetitions, which is the limit")]
    Silent(u32),
    /// This side closed the channel.
    #[error("the channel was closed on this side")]
    Closed,
}

impl Loss {
    /// What a failed completion says of the peer.
    pub(crate) fn of(status: Status) -> Self {
        match status {
            // A peer that goes, or that closes its queue pair, leaves ours to be flushed.
            Status::PeerLost | Status::Flushed => Self::PeerGone,
            status => Self::Broken(status),
        }
    }

    /// How many kinds there are, for counters.
    pub const KINDS: usize = 10;

    /// The kind's number, for counters.
    pub fn kind(&self) -> usize {
        match self {
            Self::PeerGone => 0,
            Self::Broken(_) => 1,
            Self::Refused(_) => 2,
            Self::Malformed(_) => 3,
            Self::WrongIncarnation => 4,
            Self::Sequence => 5,
            Self::Stalled => 6,
            Self::Replaced => 7,
            Self::Closed => 8,
            Self::Silent(_) => 9,
        }
    }

    /// The kinds' names, in the order of [`Loss::kind`].
    pub const NAMES: [&'static str; Self::KINDS] = [
        "peer gone",
        "queue pair broken",
        "request refused",
        "malformed frame",
        "wrong incarnation",
        "sequence violation",
        "stalled",
        "replaced",
        "closed",
        "silent",
    ];
}
