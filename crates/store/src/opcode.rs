//! The operations of a request channel and the statuses of their replies.

use locus_index::Extent;
use locus_memory::Pointer;

/// What a request asks: a byte on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// The value of a key. One too long for a reply is answered with a pointer to its record.
    Get = 1,
    /// Stores a value.
    Put = 2,
    /// Removes a key.
    Delete = 3,
}

impl Opcode {
    /// The operation of this byte, if it is one.
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::Get, Self::Put, Self::Delete].into_iter().find(|&opcode| opcode as u8 == byte)
    }

    /// Whether it changes anything, so that it must be executed at most once.
    pub fn mutates(self) -> bool {
        self != Self::Get
    }
}

/// How a request ended: a byte on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Done; the key was present.
    Present = 1,
    /// Done; the key was absent.
    Absent = 2,
    /// Present; the reply has a pointer to the record in place of the value.
    Pointer = 3,
    /// The memory limit is reached.
    OutOfMemory = 4,
    /// Key or value have a length that the server does not take.
    Length = 5,
    /// Too many colliding keys.
    Collisions = 6,
    /// The partition is not this core's, or the map is an old one.
    WrongOwner = 7,
    /// The request makes no sense.
    BadRequest = 8,
    /// The value is not in the staging area, or not all of it; nothing was changed.
    NotStaged = 9,
}

impl Status {
    /// The status of this byte, if it is one.
    pub fn from_byte(byte: u8) -> Option<Self> {
        use Status::*;
        [Present, Absent, Pointer, OutOfMemory, Length, Collisions, WrongOwner, BadRequest, NotStaged]
            .into_iter()
            .find(|&status| status as u8 == byte)
    }
}

/// The length of an encoded extent pointer.
pub const EXTENT_BYTES: usize = 20;

/// A self-verifying pointer to a record, for the wire.
pub fn encode_extent(extent: &Extent) -> [u8; EXTENT_BYTES] {
    let mut bytes = [0; EXTENT_BYTES];
    bytes[..8].copy_from_slice(&extent.at.bits().to_le_bytes());
    bytes[8..16].copy_from_slice(&extent.checksum.to_le_bytes());
    bytes[16..].copy_from_slice(&(extent.bytes as u32).to_le_bytes());
    bytes
}

/// The same from the wire; what it points to need not exist.
pub fn decode_extent(bytes: &[u8]) -> Option<Extent> {
    let bytes: &[u8; EXTENT_BYTES] = bytes.try_into().ok()?;
    let (at, rest) = bytes.split_first_chunk::<8>()?;
    let (checksum, length) = rest.split_first_chunk::<8>()?;
    Some(Extent {
        at: Pointer::from_bits(u64::from_le_bytes(*at)),
        checksum: u64::from_le_bytes(*checksum),
        bytes: u32::from_le_bytes(length.try_into().ok()?) as usize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_survives_the_wire() {
        let extent = Extent { at: Pointer::from_bits(0x2_1234_5678), bytes: 4_000_000, checksum: !7 };
        assert_eq!(decode_extent(&encode_extent(&extent)), Some(extent));
        assert_eq!(decode_extent(&encode_extent(&extent)[1..]), None);
    }
}
