//! What can go wrong on the fabric, as values that say what to do.

use std::{io, time::Duration};

/// A failure on the control path.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// The address could not be understood.
    #[error("address {address:?}: {reason}")]
    BadAddress {
        /// As given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody serves the address.
    #[error("nobody serves {address}: {reason}")]
    NotServed {
        /// The address.
        address: String,
        /// What was found there, and what to do.
        reason: String,
    },
    /// Too many threads of this process are connecting with the address.
    #[error(
        "no connection to {address} within {waited:?}: this process is at its limit of {limit} that are being set up \
         there; see why those get no answer, or connect fewer clients at a time"
    )]
    Crowded {
        /// The address.
        address: String,
        /// How many may be about to be set up.
        limit: usize,
        /// How long was waited.
        waited: Duration,
    },
    /// Another process serves the address.
    #[error("{address} is taken: {reason}")]
    Taken {
        /// The address.
        address: String,
        /// By whom, and what to do.
        reason: String,
    },
    /// There is no NIC of the kind that was asked for, or it cannot be used.
    #[error("{what}: {reason}; {advice}")]
    NoDevice {
        /// What is missing or wrong.
        what: String,
        /// How that was found.
        reason: String,
        /// What to do.
        advice: String,
    },
    /// The system refused memory.
    #[error("cannot reserve {bytes} bytes of {what}: {source}; {advice}")]
    OutOfMemory {
        /// How much was asked for.
        bytes: usize,
        /// For what.
        what: &'static str,
        /// The system's words.
        source: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// A limit of this NIC was passed.
    #[error("{what} of {asked} is over the limit of {limit}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// How much was asked for.
        asked: usize,
        /// The limit.
        limit: usize,
    },
    /// The peer is gone.
    #[error("{peer} is gone")]
    PeerLost {
        /// Who.
        peer: String,
    },
    /// The peer sent something that it must not.
    #[error("{peer} broke the protocol: {what}")]
    Protocol {
        /// Who.
        peer: String,
        /// What it did.
        what: String,
    },
    /// This transport or NIC cannot do that.
    #[error("{0}")]
    Unsupported(&'static str),
    /// A call that does not fit the state of the object.
    #[error("{0}")]
    State(&'static str),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// The system's words.
        source: io::Error,
    },
}

/// Why a work request was not taken. The queue pair is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The send queue is full: poll, then try again.
    #[error("the send queue is full ({0} requests)")]
    SendQueueFull(usize),
    /// The receive queue is full.
    #[error("the receive queue is full ({0} requests)")]
    ReceiveQueueFull(usize),
    /// The verb is not legal on this transport.
    #[error("{0} is not legal on this transport")]
    Illegal(&'static str),
    /// The payload is over the queue pair's inline limit.
    #[error("inline payload of {0} bytes is over the limit of {1}")]
    InlineTooLong(usize, usize),
    /// The message or transfer is over the NIC's limit.
    #[error("message of {0} bytes is over the limit of {1}")]
    TooLong(usize, usize),
    /// The local range is outside its region.
    #[error("the local range is outside its region")]
    LocalRange,
    /// An atomic's word is not aligned to 8 bytes, or its buffer is not 8 bytes long.
    #[error("atomics take aligned words of 8 bytes")]
    Misaligned,
    /// The local memory could not be registered with the device, most likely for the limit on locked memory.
    #[error("the memory cannot be registered: raise the limit on locked memory (ulimit -l)")]
    Unregistered,
    /// The queue pair is not connected yet.
    #[error("the queue pair is not connected")]
    NotReady,
}
