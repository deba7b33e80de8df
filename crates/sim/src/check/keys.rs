//! Keys that share a partition, so that they compete for the rows of one small table; and one that shares its tag with another.

use locus_index::Key;
use std::sync::OnceLock;

/// How many there are: enough for a table that moves row by row.
pub(super) const KEYS_MAX: usize = 700;

/// The n-th key of the partition that all of them share.
pub(super) fn key(number: usize) -> &'static [u8] {
    static KEYS: OnceLock<Vec<String>> = OnceLock::new();
    let keys = KEYS.get_or_init(|| {
        let partition = |key: &str| Key::new(key.as_bytes(), locus_store::KEY_HASH_SEED).partition();
        let wanted = partition("key 0");
        (0..)
            .map(|number| format!("key {number}"))
            .filter(|key| partition(key) == wanted)
            .take(KEYS_MAX)
            .collect()
    });
    keys[number].as_bytes()
}

/// A key with the core, the bucket and the tag of the first one in a lossy index of up to 16 buckets, a power of two, and four cores:
/// which of the two an entry is of, the log alone says. Found by trying; that it is one shows in `fingerprint_collisions`.
pub(super) const TWIN: &[u8] = b"twin 4584133";
