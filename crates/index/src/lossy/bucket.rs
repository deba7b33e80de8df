//! A bucket of the lossy index: eight entries in one cache line, so that a lookup touches one line of the index.
//!
//! | bits of an entry | what |
//! |---|---|
//! | 0..44 | position of the item in the log, in units of 16 bytes, modulo 2^44 |
//! | 44..48 | length of the item in cache lines; 0 for one that is longer than that says |
//! | 48..64 | tag of the key, never zero: a zero word is no entry |

use super::log::POSITION_BITS;
use crate::Key;

/// The length of a bucket in bytes: a cache line.
pub const BUCKET_BYTES: usize = 64;
/// How many entries a bucket has.
pub const ENTRIES: usize = 8;
pub(super) const LINE_BYTES: usize = 64;

const LINES_SHIFT: u32 = POSITION_BITS;
const LINES_BITS: u32 = 4;
const TAG_SHIFT: u32 = LINES_SHIFT + LINES_BITS;

/// An entry: what a key's tag leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(u64);

impl Entry {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn new(tag: u16, position: u64, item_bytes: usize) -> Self {
        let lines = item_bytes.div_ceil(LINE_BYTES) as u64;
        let lines = if lines >> LINES_BITS == 0 { lines } else { 0 };
        Self(u64::from(tag) << TAG_SHIFT | lines << LINES_SHIFT | position & ((1 << POSITION_BITS) - 1))
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    pub(super) fn tag(self) -> u16 {
        (self.0 >> TAG_SHIFT) as u16
    }

    /// The item's position, modulo 2^44.
    pub(super) fn position(self) -> u64 {
        self.0 & ((1 << POSITION_BITS) - 1)
    }

    /// How many bytes surely hold the item, if the entry says.
    pub(super) fn bytes(self) -> Option<usize> {
        match (self.0 >> LINES_SHIFT) & ((1 << LINES_BITS) - 1) {
            0 => None,
            lines => Some(lines as usize * LINE_BYTES),
        }
    }
}

/// The tag of a key, by bits of its hash that choose neither its bucket nor its partition.
#[inline]
pub(super) fn tag(key: &Key<'_>) -> u16 {
    (key.fingerprint as u16).max(1)
}

/// The entries in these 64 bytes.
#[inline]
pub(super) fn entries(bytes: &[u8]) -> [Entry; ENTRIES] {
    let mut entries = [Entry::NONE; ENTRIES];
    for (entry, word) in entries.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *entry = Entry(u64::from_le_bytes(*word));
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_tells_what_it_was_made_of() {
        for (bytes, told) in
            [(16, Some(64)), (64, Some(64)), (65, Some(128)), (960, Some(960)), (961, None), (1 << 20, None)]
        {
            let entry = Entry::new(0xfffe, (1 << 44) + 77, bytes);
            assert_eq!((entry.tag(), entry.position(), entry.bytes()), (0xfffe, 77, told));
            assert_ne!(Entry::new(1, 1 << 44, bytes).bits(), 0);
        }
        for number in 0..100_000u32 {
            assert_ne!(tag(&Key::new(&number.to_le_bytes(), 1)), 0);
        }
    }
}
