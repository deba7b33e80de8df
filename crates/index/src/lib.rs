//! Index structures over any memory: layout, traversal and mutation.
//!
//! A traversal is an `async fn` generic over [`locus_memory::Memory`]: the same code is a client's one-sided search and
//! a server's local one. Mutations run at the owner alone, through the arena's writer.
#![forbid(unsafe_code)]

pub mod blocked;
mod counters;
pub mod cuckoo;
pub mod directory;
pub mod hopscotch;
mod key;
mod limbo;
pub mod lossy;
mod owner;
mod record;
mod shard;

pub use counters::Counters;
pub use key::{Key, PARTITIONS, PartitionId};
pub(crate) use owner::check_lengths;
pub use owner::{MutationError, Owner};
pub use record::{Extent, HEADER_BYTES, KEY_BYTES_MAX, Record, VALUE_BYTES_MAX, record_bytes};
pub use shard::{LANES, PutOutcome, Shard, Wanted};

use std::ops::Range;

/// What a lookup found.
#[derive(Debug)]
pub enum Answer<B> {
    /// The key is present.
    Found(Found<B>),
    /// The key was absent at some instant during the lookup.
    Absent,
}

/// A record that was found, in the bytes that were read.
#[derive(Debug)]
pub struct Found<B> {
    /// The record's bytes.
    pub bytes: B,
    /// The record's extent, as the index points to it; without meaning where the record is in a table.
    pub extent: Extent,
    /// Where among the bytes the value is.
    pub value: Range<usize>,
    /// The record's version: it grows with every change of any key of the partition.
    pub version: u64,
}

impl<B: std::ops::Deref<Target = [u8]>> Found<B> {
    /// The value.
    pub fn value(&self) -> &[u8] {
        &self.bytes[self.value.clone()]
    }
}

/// Why a lookup has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The tables are not where the directory entry in use says: read the entry again, then look up again.
    #[error("the directory entry is stale")]
    Stale,
    /// Writers kept changing what was being read until the retries ran out: ask the owner instead.
    #[error("contended: no verified read within the retry limit")]
    Contended,
    /// A read failed.
    #[error(transparent)]
    Memory(#[from] locus_memory::MemoryError),
}
