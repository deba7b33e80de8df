//! A key with its hash: which partition it belongs to, where its rows may be, and its fingerprint.

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// How many partitions the keys of a store are spread over, for good: moving one is a change of the partition map.
pub const PARTITIONS: usize = 1 << 12;

/// One of the [`PARTITIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionId(u16);

impl PartitionId {
    /// The partition of this number, if it is one.
    pub fn new(number: usize) -> Option<Self> {
        (number < PARTITIONS).then_some(Self(number as u16))
    }

    /// Its number.
    #[inline]
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// A key and what its hash says.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    bytes: &'a [u8],
    /// Spreads keys over the rows of a table.
    pub(crate) spread: u64,
    /// Tells keys of one table apart without a look at the extent, and chooses the second and third row.
    pub(crate) fingerprint: u32,
    partition: PartitionId,
}

impl<'a> Key<'a> {
    /// Hashes a key with the store's seed: XXH3 of 128 bits, whose parts serve as independent hashes.
    #[inline(always)]
    pub fn new(bytes: &'a [u8], seed: u64) -> Self {
        let hash = xxh3_128_with_seed(bytes, seed);
        let high = (hash >> 64) as u64;
        Self {
            bytes,
            spread: hash as u64,
            fingerprint: high as u32,
            partition: PartitionId((high >> 52) as u16),
        }
    }

    /// The key itself.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The partition it belongs to.
    #[inline]
    pub fn partition(&self) -> PartitionId {
        self.partition
    }
}
