//! The records that peers exchange while setting things up: a kind and a fixed number of words each. The sizes are
//! checked here; what the words mean is checked by whoever takes them.

/// The version of everything that two processes share: records, control area, rings. Processes of different versions
/// refuse each other.
pub(crate) const VERSION: u64 = 1;

/// What kind of record it is; the first byte of its encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Record {
    /// Who a process is: version, token index, token value, capabilities.
    Hello = 0xC1,
    /// A region: bytes, token index, token value, whether it may be written, whether it lies on huge pages.
    Region = 0xC2,
    /// A queue pair; see `super::queue_pair`.
    QueuePair = 0xC3,
}

impl Record {
    /// Writes the words behind the kind.
    pub(crate) fn encode(self, words: &[u64]) -> Vec<u8> {
        let mut bytes = vec![self as u8];
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    /// Reads exactly `N` words of a record of this kind; an error says what is wrong.
    pub(crate) fn decode<const N: usize>(self, bytes: &[u8]) -> Result<[u64; N], &'static str> {
        let (&kind, rest) = bytes.split_first().ok_or("an empty record")?;
        if kind != self as u8 {
            return Err("a record of another kind than expected");
        }
        let (words, rest) = rest.as_chunks::<8>();
        let words: &[[u8; 8]; N] = words.try_into().map_err(|_| "a record of the wrong length")?;
        if rest.is_empty() { Ok(words.map(u64::from_le_bytes)) } else { Err("a record of the wrong length") }
    }
}
