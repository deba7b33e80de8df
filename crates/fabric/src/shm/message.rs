//! The header of a message in a ring: one word, read as hostile input.

use super::ring::Violation;

/// The longest SEND over RC and UC, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// The longest READ or WRITE, in bytes; a notification carries the length of its WRITE in 24 bits.
pub(crate) const TRANSFER_BYTES_MAX: usize = 8 << 20;

const KIND_SEND: u64 = 1 << 24;
const KIND_WRITE: u64 = 2 << 24;
const KIND_MASK: u64 = 0xF << 24;
const HAS_IMMEDIATE: u64 = 1 << 28;
const FAIL_IF_NOT_READY: u64 = 1 << 29;
const ACKNOWLEDGE: u64 = 1 << 30;
const RESERVED: u64 = 1 << 31;
const LENGTH_MASK: u64 = (1 << 24) - 1;

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The length of the SEND or of the WRITE, in bytes.
    pub(crate) bytes: usize,
    /// Whether this tells of a WRITE; such a message has no payload.
    pub(crate) write: bool,
    /// The immediate.
    pub(crate) immediate: Option<u32>,
    /// Whether the sender wants to fail if no RECV is posted.
    pub(crate) fail_if_not_ready: bool,
    /// Whether the sender waits for this message to be consumed.
    pub(crate) acknowledge: bool,
}

impl Header {
    /// As one word, never zero.
    #[inline]
    pub(crate) fn encode(self) -> u64 {
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        self.bytes as u64
            | if self.write { KIND_WRITE } else { KIND_SEND }
            | flag(self.immediate.is_some(), HAS_IMMEDIATE)
            | flag(self.fail_if_not_ready, FAIL_IF_NOT_READY)
            | flag(self.acknowledge, ACKNOWLEDGE)
            | u64::from(self.immediate.unwrap_or(0)) << 32
    }

    /// Checks a word that a peer stored. `message_bytes` is the longest SEND that was agreed.
    #[inline]
    pub(crate) fn decode(word: u64, message_bytes: usize) -> Result<Self, Violation> {
        let write = match word & KIND_MASK {
            KIND_SEND => false,
            KIND_WRITE => true,
            _ => return Err(Violation),
        };
        let bytes = (word & LENGTH_MASK) as usize;
        let limit = if write { TRANSFER_BYTES_MAX } else { message_bytes };
        let immediate = (word & HAS_IMMEDIATE != 0).then_some((word >> 32) as u32);
        let stray_immediate = immediate.is_none() && word >> 32 != 0;
        if word & RESERVED != 0 || bytes > limit || stray_immediate || (write && immediate.is_none()) {
            return Err(Violation);
        }
        let fail_if_not_ready = word & FAIL_IF_NOT_READY != 0;
        Ok(Self { bytes, write, immediate, fail_if_not_ready, acknowledge: word & ACKNOWLEDGE != 0 })
    }

    /// How many bytes of payload lie in the ring.
    #[inline]
    pub(crate) fn payload_bytes(self) -> usize {
        if self.write { 0 } else { self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_and_strange_ones_are_refused() {
        for write in [false, true] {
            for immediate in [None, Some(0), Some(u32::MAX)] {
                let header =
                    Header { bytes: 77, write, immediate, fail_if_not_ready: write, acknowledge: !write };
                let word = header.encode();
                assert_ne!(word, 0);
                let legal = !(write && immediate.is_none());
                assert_eq!(Header::decode(word, 77), if legal { Ok(header) } else { Err(Violation) });
                assert_eq!(Header::decode(word | RESERVED, 77), Err(Violation));
                assert!(write || Header::decode(word, 76).is_err());
            }
        }
        for kind in (0..16).filter(|kind| ![1, 2].contains(kind)) {
            assert_eq!(Header::decode(kind << 24 | 1, 77), Err(Violation));
        }
        assert_eq!(Header::decode(KIND_SEND | 1 << 32, 77), Err(Violation), "an immediate without its flag");
        let over = KIND_WRITE | HAS_IMMEDIATE | (TRANSFER_BYTES_MAX as u64 + 1);
        assert_eq!(Header::decode(over, 77), Err(Violation));
    }
}
