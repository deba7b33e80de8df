//! How a core comes by its shard: the memory that each kind takes at the start, and what of it.

use super::regions::Regions;
use crate::{ServerConfig, StoreError};
use locus_fabric::Nic;
use locus_index::{
    Owner, PartitionId, Shard,
    blocked::{self, BUCKET_BYTES},
    cuckoo,
    directory::Directory,
    hopscotch, lossy,
};
use locus_memory::{AddRegionError, Purpose, RegionId};

/// The index of a lossy cache has one part in so many of the cache's memory: HERD's has 64 Mi entries of 8 bytes to a log of
/// 4 GiB (Kalia §4.1).
const INDEX_PART: usize = 9;
/// The buckets of a blocked hash have one part in so many of the memory. Records as short as HERD's benchmarks have them
/// then fill the rest when there is about one to a bucket.
const BUCKETS_PART: usize = 4;
/// What a core reserves besides: its directory.
const DIRECTORY_BYTES: usize = 2 << 20;

/// What a shard is built on.
pub(crate) struct Foundation<'a, N: Nic> {
    pub(crate) config: &'a ServerConfig,
    pub(crate) regions: &'a Regions<N>,
    /// The longest value that a reply carries on this NIC, in bytes.
    pub(crate) reply_value_bytes_max: usize,
    pub(crate) directory: Directory,
    /// Which partitions are the core's.
    pub(crate) owns: &'a dyn Fn(PartitionId) -> bool,
}

/// A kind of shard that a core can start with.
pub(crate) trait Start<N: Nic>: Shard<N::Region> + 'static {
    /// Reserves the first memory and makes the shard.
    fn start(owner: &mut Owner<N::Region>, foundation: Foundation<'_, N>) -> Result<Self, StoreError>
    where
        Self: Sized;
}

impl<N: Nic> Foundation<'_, N> {
    /// Reserves a region that the arena hands out in pieces.
    fn add(&self, owner: &mut Owner<N::Region>, purpose: Purpose, bytes: usize) -> Result<(), StoreError> {
        let (id, region) = self.regions.reserve(bytes, bytes)?;
        added(owner.arena.add_region(id, region, purpose))
    }

    /// Reserves a region that is one object. Gives its number and its length.
    fn add_whole(&self, owner: &mut Owner<N::Region>, bytes: usize) -> Result<(RegionId, usize), StoreError> {
        let (id, region) = self.regions.reserve(bytes, bytes)?;
        added(owner.arena.add_whole_region(id, region))?;
        Ok((id, bytes))
    }

    /// The core's share of the memory limit, in bytes, without its directory.
    fn share(&self) -> usize {
        (self.config.memory_bytes / self.config.cores).saturating_sub(DIRECTORY_BYTES)
    }
}

/// A region that a core adds to its own arena is one that it may add.
pub(crate) fn added(result: Result<(), AddRegionError>) -> Result<(), StoreError> {
    result.map_err(|error| StoreError::Config(error.to_string()))
}

impl<N: Nic> Start<N> for cuckoo::Shard {
    fn start(owner: &mut Owner<N::Region>, foundation: Foundation<'_, N>) -> Result<Self, StoreError> {
        foundation.add(owner, Purpose::Tables, foundation.config.region_bytes / 4)?;
        foundation.add(owner, Purpose::Extents, foundation.config.region_bytes)?;
        Ok(Self::new(owner, foundation.directory, foundation.owns))
    }
}

/// All of the core's share at once: a cache is as large as it may be, and what does not fit any more is evicted.
impl<N: Nic> Start<N> for lossy::Cache {
    fn start(owner: &mut Owner<N::Region>, foundation: Foundation<'_, N>) -> Result<Self, StoreError> {
        // Whole pages on both sides of the cut, or whole buckets of a small one.
        let (share, whole) = match foundation.config.cache_bytes {
            Some(bytes) => (bytes, lossy::BUCKET_BYTES),
            None => (foundation.share(), 2 << 20),
        };
        let share = share & !(whole - 1);
        let index_bytes = (share / INDEX_PART).next_multiple_of(whole);
        let index = foundation.add_whole(owner, index_bytes)?;
        let log = foundation.add_whole(owner, share.saturating_sub(index_bytes))?;
        let cache = Self::new(index, log);
        let longest =
            locus_index::record_bytes(locus_index::KEY_BYTES_MAX, foundation.config.value_bytes_max);
        if longest > cache.item_bytes_max() {
            return Err(StoreError::Config(format!(
                "values to {} bytes do not fit twice into a circular log of {} bytes: raise --memory or lower --value-bytes-max",
                foundation.config.value_bytes_max, log.1
            )));
        }
        Ok(cache)
    }
}

/// The buckets at once, since their number never changes; records as they come.
impl<N: Nic> Start<N> for blocked::Hash {
    fn start(owner: &mut Owner<N::Region>, foundation: Foundation<'_, N>) -> Result<Self, StoreError> {
        let bytes = foundation.config.cache_bytes.unwrap_or(foundation.share() / BUCKETS_PART);
        let bytes = bytes & !(BUCKET_BYTES - 1);
        let buckets = foundation.add_whole(owner, bytes)?;
        let rest = foundation.share().saturating_sub(bytes);
        foundation.add(owner, Purpose::Extents, foundation.config.region_bytes.min(rest))?;
        Ok(Self::new(owner, buckets, foundation.directory, foundation.owns))
    }
}

impl<N: Nic> Start<N> for hopscotch::Shard {
    fn start(owner: &mut Owner<N::Region>, foundation: Foundation<'_, N>) -> Result<Self, StoreError> {
        let shape = foundation.config.shape().expect("the configuration was checked");
        let bytes = foundation.config.region_bytes;
        if shape.inline() {
            // What lies in a slot has no pointer of its own, by which a client could READ it.
            let (longest, limit) = (shape.pair_bytes_max() - 1, foundation.reply_value_bytes_max);
            if longest > limit {
                return Err(StoreError::Config(format!(
                    "slots of {} bytes hold values to {longest} bytes, and a reply by {} carries {limit} on this NIC: \
                     lower --slot-bytes, or let replies travel otherwise",
                    shape.slot_bytes(),
                    foundation.config.design.pair().reply,
                )));
            }
            foundation.add(owner, Purpose::Tables, bytes)?;
        } else {
            foundation.add(owner, Purpose::Tables, bytes / 4)?;
            foundation.add(owner, Purpose::Extents, bytes)?;
        }
        Ok(Self::new(owner, shape, foundation.directory, foundation.owns))
    }
}
