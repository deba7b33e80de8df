//! The lossy cache (MICA's cache mode, as HERD uses it: Kalia §4.1): an index that forgets, over a circular log.
//!
//! * [`bucket`]: eight tagged entries in a cache line;
//! * [`log`]: the items, the newest over the oldest;
//! * [`lookup`]: over the owner's memory;
//! * [`cache`]: puts and deletes.
//!
//! **What is forgotten.** A key, when one with the same tag is put into its bucket, which may be the same key: a put does not
//! look. The oldest key of a bucket with eight others, by position in the log, when a ninth comes. And any key, when newer
//! items have been written over its item.
//!
//! **How often memory is touched at random.** A put: once, at the bucket's line; the log's tail is where the last put was. A
//! get: at the bucket and at the item, if the tag is there. The entry says how long the item is, so that all its lines are
//! fetched together.
//!
//! **Who may read it.** The owner, and who else shares its memory without tearing. Entries and items carry no checksums, and
//! the log is written over at any moment: a client that READs them could not tell what it has. A value too long for a
//! reply is READ by a client at a pointer that the owner made for it, with a checksum.

mod bucket;
mod cache;
mod log;
mod lookup;

pub use bucket::{BUCKET_BYTES, ENTRIES};
pub use cache::Cache;
pub use lookup::get;

use crate::Key;
use locus_memory::{Pointer, RegionId};
use log::Log;

/// Where a cache's index and log are, and how far the log is.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    index: Pointer,
    buckets: u32,
    log: Log,
}

impl Layout {
    fn new(index: (RegionId, usize), log: (RegionId, usize)) -> Self {
        let buckets = u32::try_from(index.1 / BUCKET_BYTES).expect("an index is below 64 GiB");
        Self { index: Pointer::new(index.0, 0), buckets, log: Log::new(log.0, log.1) }
    }

    /// Where the bucket of a key is.
    #[inline]
    fn bucket_at(&self, key: &Key<'_>) -> Pointer {
        // By the upper bits of the hash.
        let bucket = (u128::from(key.spread) * u128::from(self.buckets)) >> 64;
        self.index.add(bucket as usize * BUCKET_BYTES)
    }
}
