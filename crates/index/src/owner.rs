//! What a mutation needs of the core that runs it.

use crate::{
    Counters, Extent, KEY_BYTES_MAX, Key, VALUE_BYTES_MAX,
    cuckoo::kick_out::{NODES_MAX, Node},
    limbo::Limbo,
    record::{self, Record, record_bytes},
};
use locus_fabric::Region;
use locus_memory::{AllocateError, Arena, Pointer, Purpose, checksum};

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

    /// Bytes of our own. Nobody else writes them, so nothing is verified.
    #[inline]
    pub(crate) fn bytes(&self, at: Pointer, bytes: usize) -> &[u8] {
        self.arena.local().slice(at, bytes).expect("the owner's own pointers are good")
    }

    /// The key in an extent of our own.
    pub(crate) fn key_at(&self, extent: Extent) -> Key<'_> {
        Key::new(self.record_at(extent).key, self.seed)
    }

    /// Whether an extent of our own holds this key.
    pub(crate) fn holds(&self, extent: Extent, key: &[u8]) -> bool {
        self.record_at(extent).key == key
    }

    fn record_at(&self, extent: Extent) -> Record<'_> {
        Record::parse(self.bytes(extent.at, extent.bytes)).expect("the owner's own records are whole")
    }

    /// Writes a record into a fresh extent, which nothing points to yet.
    pub(crate) fn write_record(
        &mut self,
        version: u64,
        key: &Key<'_>,
        value: &[u8],
    ) -> Result<Extent, MutationError> {
        let bytes = record_bytes(key.bytes().len(), value.len());
        let at = self.allocate(Purpose::Extents, bytes)?;
        let header = record::header(version, key.bytes().len(), value.len());
        self.arena.writer().store_bytes(at, &[&header, key.bytes(), value]);
        let checksum = checksum(self.bytes(at, bytes));
        Ok(Extent { at, bytes, checksum })
    }

    /// Frees an extent that nothing points to any more.
    pub(crate) fn free_extent(&mut self, extent: Extent) {
        if !self.limbo.keep(extent) {
            self.arena.free(Purpose::Extents, extent.at, extent.bytes);
        }
        while let Some(extent) = self.limbo.overdue() {
            self.arena.free(Purpose::Extents, extent.at, extent.bytes);
        }
    }

    pub(crate) fn allocate(&mut self, purpose: Purpose, bytes: usize) -> Result<Pointer, MutationError> {
        let allocated = self.arena.allocate(purpose, bytes).or_else(|error| {
            self.empty_limbo();
            self.arena.allocate(purpose, bytes).map_err(|_| error)
        });
        allocated.map_err(|error| match error {
            AllocateError::NeedRegion { .. } => MutationError::NeedRegion { purpose, bytes },
            AllocateError::TooLarge { .. } => unreachable!("lengths were checked against the arena's limits"),
        })
    }

    /// Frees what large records were in until lately: memory is short.
    #[cold]
    fn empty_limbo(&mut self) {
        while let Some(extent) = self.limbo.release() {
            self.arena.free(Purpose::Extents, extent.at, extent.bytes);
        }
    }
}

/// Refuses what no design takes.
pub(crate) fn check_lengths(key: &[u8], value: &[u8]) -> Result<(), MutationError> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(MutationError::KeyLength(key.len()));
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(MutationError::ValueLength(value.len(), VALUE_BYTES_MAX));
    }
    Ok(())
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
    /// The record is too long for half of the circular log.
    #[error("a record of {bytes} bytes; the circular log takes {limit}: serve with a larger --memory")]
    LogItem {
        /// Its length with its header.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Key and value are too long for a place in the table.
    #[error("key and value of {bytes} bytes; places in the table take {limit}")]
    Inline {
        /// Their length together.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}
