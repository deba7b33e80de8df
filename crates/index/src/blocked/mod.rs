//! The blocked hash table (PERK: Onkenhout §3.4): one hash function, two places per bucket, and no growth.
//!
//! * [`bucket`]: two places in a cache line;
//! * [`lookup`]: over any memory;
//! * [`hash`]: puts, deletes, and what is evicted.
//!
//! **What is evicted.** A bucket holds its newer pair first. A new key in a full bucket goes first, the pair that was first
//! goes second, and the pair that was second, the last one and the older, is evicted and counted. A put of a key that is there
//! leaves it in its place.
//!
//! **Where values are.** In extents, by self-verifying pointers, as those of the cuckoo table. The paper keeps pairs in two
//! arrays and says what that costs: most of the array stays empty, since a bucket overflows at two. Here 32 bytes stay empty
//! per place, values have any length, and a client may READ the table if it is to (the paper's §7 proposes it, with
//! checksums). It costs a second access to memory per get.
//!
//! **Locks.** The paper locks buckets, since each client has a thread. Here the owner core is the only writer.

mod bucket;
mod hash;
mod lookup;

pub use bucket::{BUCKET_BYTES, PLACES};
pub use hash::Hash;
pub use lookup::get;

use crate::{Key, cuckoo::Table};
use locus_memory::Pointer;

/// Where the bucket of a key is, in a table whose rows are buckets.
#[inline]
fn bucket_at(table: &Table, key: &Key<'_>) -> Pointer {
    let bucket = (u128::from(key.spread) * u128::from(table.rows)) >> 64;
    table.at.add(bucket as usize * BUCKET_BYTES)
}
