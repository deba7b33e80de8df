//! What can go wrong with a history, and what to do about it.

use std::io;

/// Why operations could not be recorded, merged, written or read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// A recorder has no room for another operation.
    #[error(
        "client {client} has recorded {limit} operations, the most that its recorder takes: \
         record fewer, or raise Capacity::operations_max"
    )]
    OperationsOfClient {
        /// Whose recorder.
        client: u32,
        /// `Capacity::operations_max`.
        limit: usize,
    },
    /// A recorder has no room for a key or a value.
    #[error(
        "client {client} has recorded nearly {limit} bytes of keys and values, the most that its recorder takes: \
         record less, or raise Capacity::bytes_max"
    )]
    BytesOfClient {
        /// Whose recorder.
        client: u32,
        /// `Capacity::bytes_max`.
        limit: usize,
    },
    /// There is not enough memory for a recorder.
    #[error(
        "no memory to record {operations} operations with {bytes} bytes of keys and values: lower Capacity"
    )]
    Memory {
        /// `Capacity::operations_max`.
        operations: usize,
        /// `Capacity::bytes_max`.
        bytes: usize,
    },
    /// A history has more operations than it can have.
    #[error("a history takes {limit} operations: split it, by keys if it is to be checked")]
    Operations {
        /// `OPERATIONS_MAX`.
        limit: usize,
    },
    /// An operation returns before it was invoked: its clock goes back, or two clocks were used.
    #[error(
        "client {client}: an operation on {key} invoked at {invoked_ns} ns returned at {returned_ns} ns, \
         before that: one clock that never goes back is needed"
    )]
    Backwards {
        /// Whose operation.
        client: u32,
        /// Its key.
        key: String,
        /// When it began.
        invoked_ns: u64,
        /// When it ended.
        returned_ns: u64,
    },
    /// A line is not an operation.
    #[error("line {line}: {reason}")]
    Line {
        /// Its number from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A field of a line is missing or wrong.
    #[error("line {line}, field {field:?}: {reason}")]
    Field {
        /// The line's number from 1.
        line: u64,
        /// The field's name.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A history could not be read any further.
    #[error("reading a history, line {line}: {source}")]
    Read {
        /// The line's number from 1.
        line: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A history could not be written.
    #[error("writing a history: {0}")]
    Write(#[source] io::Error),
}
