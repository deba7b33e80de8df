//! A record as it lies in an extent: a header of 24 bytes, the key, the value, zeroes up to a multiple of 16.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | version of the record |
//! | 8..12 | length of the value |
//! | 12..14 | length of the key |
//! | 14..16 | flags, zero for now |
//! | 16..24 | expiry, zero (never) for now |
//!
//! The checksum over all of it stands in the row that points to it (Mitchell §3.3: self-verifying pointers).

use crate::{Counters, Key, counters::count};
use locus_memory::{Memory, Pointer, checksum};
use std::ops::Range;

/// The length of a record's header in bytes.
pub const HEADER_BYTES: usize = 24;
/// The longest key in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// The longest value in bytes: with the longest key it makes a record whose length fits a row's 18 bits.
pub const VALUE_BYTES_MAX: usize = (((1 << 18) - 1) * Pointer::UNIT) - HEADER_BYTES - KEY_BYTES_MAX;

/// How many bytes of an extent a record takes.
#[inline]
pub fn record_bytes(key: usize, value: usize) -> usize {
    (HEADER_BYTES + key + value).next_multiple_of(Pointer::UNIT)
}

/// A self-verifying pointer to an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it is.
    pub at: Pointer,
    /// Its length in bytes, a multiple of 16, below 4 MiB.
    pub bytes: usize,
    /// The checksum over its bytes; zero where an index has none ([`Shard::CHECKSUMS`](crate::Shard::CHECKSUMS)).
    pub checksum: u64,
}

impl Extent {
    /// Reads the record into `into`, if there is room, and says where in it the value is, if it is this key's. For memory that
    /// is read at once: anything but a hit is no answer.
    #[inline(always)]
    pub fn read_at_once<M: Memory>(
        &self,
        memory: &M,
        key: &Key<'_>,
        into: &mut [u8],
        counters: &Counters,
    ) -> Option<Range<usize>> {
        let bytes = into.get_mut(..self.bytes)?;
        if !memory.read_at_once(self.at, bytes) {
            return None;
        }
        count(&counters.extents_read);
        if M::TEARS && checksum(bytes) != self.checksum {
            count(&counters.extents_unverified);
            return None;
        }
        let record = Record::parse(bytes).filter(|record| record.key == key.bytes())?;
        count(&counters.lookups);
        Some(record.value)
    }
}

/// The header of a record.
pub(crate) fn header(version: u64, key: usize, value: usize) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    bytes[8..12].copy_from_slice(&(value as u32).to_le_bytes());
    bytes[12..14].copy_from_slice(&(key as u16).to_le_bytes());
    bytes
}

/// A record, parsed.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Where in the bytes the value is.
    pub value: Range<usize>,
    /// The version.
    pub version: u64,
}

impl<'a> Record<'a> {
    /// How long the record with this beginning is, if it is one.
    pub(crate) fn bytes(beginning: &[u8]) -> Option<usize> {
        let head = beginning.first_chunk::<HEADER_BYTES>()?;
        let value = u32::from_le_bytes(head[8..12].try_into().expect("4 bytes")) as usize;
        let key = usize::from(u16::from_le_bytes([head[12], head[13]]));
        Some(record_bytes(key, value))
    }

    /// Reads a record, or says that these bytes are none: the lengths are checked against the bytes.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let version = u64::from_le_bytes(head[..8].try_into().expect("8 bytes"));
        let value = u32::from_le_bytes(head[8..12].try_into().expect("4 bytes")) as usize;
        let key_end = HEADER_BYTES + usize::from(u16::from_le_bytes([head[12], head[13]]));
        let key = bytes.get(HEADER_BYTES..key_end)?;
        (bytes.len() - key_end >= value).then_some(Self { key, value: key_end..key_end + value, version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_overruns_its_bytes_is_none() {
        let mut bytes = header(7, 3, 5).to_vec();
        bytes.extend_from_slice(b"keyvalue");
        let record = Record::parse(&bytes).unwrap();
        assert_eq!(
            (record.key, &bytes[record.value.clone()], record.version),
            (&b"key"[..], &b"value"[..], 7)
        );
        for cut in 0..bytes.len() {
            assert!(Record::parse(&bytes[..cut]).is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn the_longest_record_fits_a_row() {
        assert!(record_bytes(KEY_BYTES_MAX, VALUE_BYTES_MAX) < (1 << 18) * Pointer::UNIT);
    }
}
