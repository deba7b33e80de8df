//! What a mutation needs of the core that runs it.

use crate::{
    Counters,
    cuckoo::kick_out::{NODES_MAX, Node},
    limbo::Limbo,
};
use locus_fabric::Region;
use locus_memory::{Arena, Purpose};

/// The state of an owner core that its tables share. The core is the only writer of its partitions and its regions.
pub struct Owner<R> {
    /// The core's regions.
    pub arena: Arena<R>,
    /// The hash seed of the store.
    pub seed: u64,
    /// The epoch of the last table made. No two tables of a server share one: cores start `cores` apart and step by it.
    pub epoch: u64,
    /// The distance between this core's epochs.
    pub epoch_step: u64,
    /// What the core has counted.
    pub counters: Counters,
    /// Room for searches, kept so that they allocate nothing.
    pub(crate) scratch: Vec<Node>,
    /// Extents that are free, but not to be overwritten yet.
    pub(crate) limbo: Limbo,
}

impl<R: Region> Owner<R> {
    /// The owner of one core of `cores`.
    pub fn new(arena: Arena<R>, seed: u64, core: usize, cores: usize) -> Self {
        Self {
            arena,
            seed,
            epoch: core as u64,
            epoch_step: cores as u64,
            counters: Counters::default(),
            scratch: Vec::with_capacity(NODES_MAX),
            limbo: Limbo::default(),
        }
    }

    /// An epoch that no table has had.
    pub(crate) fn next_epoch(&mut self) -> u64 {
        self.epoch += self.epoch_step;
        self.epoch
    }
}

/// Why a mutation was not made. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MutationError {
    /// No region of this purpose has room: add one and try again.
    #[error("no room for {bytes} bytes in the regions for {purpose:?}")]
    NeedRegion {
        /// What the region is for.
        purpose: Purpose,
        /// How large the object is that found no room.
        bytes: usize,
    },
    /// The key is empty or too long.
    #[error("a key of {0} bytes; keys take 1 to {KEY_BYTES_MAX}", KEY_BYTES_MAX = crate::KEY_BYTES_MAX)]
    KeyLength(usize),
    /// The value is too long.
    #[error("a value of {0} bytes is over the limit of {1}")]
    ValueLength(usize, usize),
    /// More keys share their rows than a table of any permitted size can hold: their hashes collide.
    #[error("too many keys collide with this one: no table of up to {0} rows holds them")]
    Collisions(usize),
}
