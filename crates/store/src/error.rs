//! What can go wrong with an operation, as values that say what to do.

use locus_fabric::FabricError;
use locus_memory::MemoryError;
use std::time::Duration;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The server is gone. An operation in flight that changes nothing may simply be tried again.
    #[error("{peer} is gone; the next operation tries to connect again")]
    ServerLost {
        /// Which.
        peer: String,
    },
    /// The server was lost with a mutation in flight: it may have been made or not.
    #[error(
        "{peer} was lost with the change in flight: it may have been made or not; read the key to find out"
    )]
    OutcomeUnknown {
        /// Which.
        peer: String,
    },
    /// The server is there and did not answer in time. What runs at the client alone goes on.
    #[error(
        "{peer} did not answer within {limit:?}, which is the limit: it is stopped or overloaded{}",
        if *change_pending { locus_rpc::CHANGE_PENDING } else { "" }
    )]
    Unanswered {
        /// Which.
        peer: String,
        /// How long it had.
        limit: Duration,
        /// Whether a change was sent to it, which may have been made, or be made yet.
        change_pending: bool,
    },
    /// The server refused the client.
    #[error("{peer} refused: {reason}")]
    Refused {
        /// Which.
        peer: String,
        /// Its words.
        reason: String,
    },
    /// The peer runs another version of Locus.
    #[error(
        "{peer} speaks version {theirs} of the protocol and we speak {ours}: run the same release on both sides"
    )]
    Version {
        /// Which.
        peer: String,
        /// Its version.
        theirs: u16,
        /// Ours.
        ours: u16,
    },
    /// The peer sent something that it must not.
    #[error("{peer} broke the protocol: {what}")]
    Protocol {
        /// Which.
        peer: String,
        /// What it did.
        what: String,
    },
    /// The key is empty or too long.
    #[error("a key of {0} bytes: keys take 1 to {max}", max = locus_index::KEY_BYTES_MAX)]
    KeyLength(usize),
    /// The value is too long.
    #[error(
        "a value of {bytes} bytes is over the server's limit of {limit}: see --value-bytes-max of locus serve"
    )]
    ValueLength {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Key and value are too long for a slot of the server's table.
    #[error(
        "key and value of {bytes} bytes together are over the {limit} that a slot of the server's table holds: \
         see --slot-bytes of locus serve, or serve a design that keeps values out of the table"
    )]
    SlotLength {
        /// Their length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The server's memory is used up.
    #[error(
        "the server's memory limit is reached, so nothing was stored: delete records, or serve with a larger --memory"
    )]
    OutOfMemory,
    /// Too many keys have colliding hashes.
    #[error("too many keys collide with this one, so nothing was stored")]
    Collisions,
    /// The server saw a request before the value that had gone ahead of it, over and over.
    #[error(
        "the value was not at the server when its request came, {0} times, which is the limit: nothing was stored; \
         try again, or serve with requests over RC"
    )]
    NotStaged(usize),
    /// Writers changed a large value as fast as it was read, over and over.
    #[error("the value changed {0} times while it was read: try again")]
    Contended(usize),
    /// Reading failed in a way that it should not.
    #[error("a read failed: {0}")]
    Memory(#[from] MemoryError),
    /// The request channel failed in a way that it should not.
    #[error("a request failed: {0}")]
    Rpc(#[source] locus_rpc::RpcError),
    /// A number given by the user makes no sense.
    #[error("{0}")]
    Config(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// The system's words.
        source: std::io::Error,
    },
}

impl From<locus_rpc::RpcError> for StoreError {
    fn from(error: locus_rpc::RpcError) -> Self {
        match error {
            // Which layer met it makes no difference.
            locus_rpc::RpcError::Fabric(error) => Self::Fabric(error),
            error => Self::Rpc(error),
        }
    }
}

impl From<Box<StoreError>> for StoreError {
    fn from(error: Box<StoreError>) -> Self {
        *error
    }
}
