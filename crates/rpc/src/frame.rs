//! What travels: a request or reply is one message of a header and its bytes, little-endian.
//!
//! Headers take 32 bytes, so that a request with a short key and value fits two cache lines and a reply with a short
//! value one. A peer's bytes are input: parsing checks every length against the message that arrived and every field
//! against what this version knows.
//!
//! | request byte | field | reply byte | field |
//! |---|---|---|---|
//! | 0..4 | length of the frame | 0..4 | length of the frame |
//! | 4 | opcode | 4 | status |
//! | 5 | flags | 5 | flags |
//! | 6..8 | key length | 6..8 | zero |
//! | 8..12 | value length | 8..12 | value length |
//! | 12..16 | server incarnation, folded | 12..16 | server incarnation, folded |
//! | 16..24 | sequence | 16..24 | sequence |
//! | 24..26 | partition | 24..32 | record version |
//! | 26..28 | zero | | |
//! | 28..32 | epoch of the partition map | | |
//! | 32.. | key, then value | 32.. | value |
//!
//! The flags of a request say whether it mutates, and whether its value is staged; a reply has none.

/// The length of a request's header.
pub const REQUEST_HEADER_BYTES: usize = 32;
/// The length of a reply's header.
pub const REPLY_HEADER_BYTES: usize = 32;
/// The longest key.
pub const KEY_BYTES_MAX: usize = 1 << 10;
/// The longest value that travels in a frame; longer ones travel by rendezvous.
pub const INLINE_VALUE_BYTES_MAX: usize = 4 << 10;
/// The longest frame.
pub const FRAME_BYTES_MAX: usize = REQUEST_HEADER_BYTES + KEY_BYTES_MAX + INLINE_VALUE_BYTES_MAX;
/// The length of an encoded [`Staged`].
pub const STAGED_BYTES: usize = 16;

/// The flag of requests that change something.
const MUTATES: u8 = 1;
/// The flag of requests whose value is a [`Staged`].
const STAGED: u8 = 2;

/// Why a message is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Shorter than a header, or its parts do not add up to its length.
    #[error("a frame of {arrived} bytes says that it has {said}")]
    Length {
        /// The bytes that arrived.
        arrived: usize,
        /// What the header makes of it.
        said: usize,
    },
    /// A key or value over the limit.
    #[error("a {what} of {bytes} bytes is over the limit of {limit}")]
    TooLarge {
        /// Key or value.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Flags that this version does not know, or reserved bytes that are not zero.
    #[error("unknown flags or reserved bytes in use")]
    Reserved,
    /// A staged value whose description has another length.
    #[error("the place of a staged value in {0} bytes")]
    StagedLength(usize),
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// What to do; the numbers belong to the store.
    pub opcode: u8,
    /// Whether it changes something, so that it must be executed at most once.
    pub mutates: bool,
    /// Whether the value is a [`Staged`].
    pub staged: bool,
    /// The length of the key.
    pub key_bytes: u16,
    /// The length of the value as it is in the frame.
    pub value_bytes: u32,
    /// Of the server that the client believes to speak with, see [`fold`].
    pub incarnation: u32,
    /// The request's number in its session.
    pub sequence: u64,
    /// The partition of the key.
    pub partition: u16,
    /// The epoch of the client's partition map.
    pub map_epoch: u32,
}

impl RequestHeader {
    /// The length of the whole frame.
    pub fn frame_bytes(&self) -> usize {
        REQUEST_HEADER_BYTES + usize::from(self.key_bytes) + self.value_bytes as usize
    }

    /// The header as it travels.
    #[inline]
    pub fn encode(&self) -> [u8; REQUEST_HEADER_BYTES] {
        let mut bytes = [0; REQUEST_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&(self.frame_bytes() as u32).to_le_bytes());
        bytes[4] = self.opcode;
        bytes[5] = if self.mutates { MUTATES } else { 0 } | if self.staged { STAGED } else { 0 };
        bytes[6..8].copy_from_slice(&self.key_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.value_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..26].copy_from_slice(&self.partition.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.map_epoch.to_le_bytes());
        bytes
    }

    /// Reads and checks the header of a frame that arrived.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Self, FrameError> {
        let (said, flags) = common(frame, MUTATES | STAGED)?;
        let header = Self {
            opcode: frame[4],
            mutates: flags & MUTATES != 0,
            staged: flags & STAGED != 0,
            key_bytes: u16_at(frame, 6),
            value_bytes: u32_at(frame, 8),
            incarnation: u32_at(frame, 12),
            sequence: u64_at(frame, 16),
            partition: u16_at(frame, 24),
            map_epoch: u32_at(frame, 28),
        };
        if usize::from(header.key_bytes) > KEY_BYTES_MAX {
            return Err(FrameError::TooLarge {
                what: "key",
                bytes: header.key_bytes.into(),
                limit: KEY_BYTES_MAX,
            });
        }
        check_value(header.value_bytes)?;
        if header.staged && header.value_bytes as usize != STAGED_BYTES {
            return Err(FrameError::StagedLength(header.value_bytes as usize));
        }
        if u16_at(frame, 26) != 0 {
            return Err(FrameError::Reserved);
        }
        if header.frame_bytes() != said {
            return Err(FrameError::Length { arrived: frame.len(), said: header.frame_bytes() });
        }
        Ok(header)
    }
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// How it went; the numbers belong to the store.
    pub status: u8,
    /// The length of the value as it is in the frame.
    pub value_bytes: u32,
    /// Of the server that answers, see [`fold`].
    pub incarnation: u32,
    /// The sequence of the request.
    pub sequence: u64,
    /// The record's version.
    pub version: u64,
}

impl ReplyHeader {
    /// The length of the whole frame.
    pub fn frame_bytes(&self) -> usize {
        REPLY_HEADER_BYTES + self.value_bytes as usize
    }

    /// The header as it travels.
    #[inline]
    pub fn encode(&self) -> [u8; REPLY_HEADER_BYTES] {
        let mut bytes = [0; REPLY_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&(self.frame_bytes() as u32).to_le_bytes());
        bytes[4] = self.status;
        bytes[8..12].copy_from_slice(&self.value_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.version.to_le_bytes());
        bytes
    }

    /// Reads and checks the header of a frame that arrived.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Self, FrameError> {
        let (said, _) = common(frame, 0)?;
        let header = Self {
            status: frame[4],
            value_bytes: u32_at(frame, 8),
            incarnation: u32_at(frame, 12),
            sequence: u64_at(frame, 16),
            version: u64_at(frame, 24),
        };
        check_value(header.value_bytes)?;
        if u16_at(frame, 6) != 0 {
            return Err(FrameError::Reserved);
        }
        if header.frame_bytes() != said {
            return Err(FrameError::Length { arrived: frame.len(), said: header.frame_bytes() });
        }
        Ok(header)
    }
}

/// Where the value of a mutation is that is too large for a frame: in the client's staging region at the server, where a
/// WRITE put it before the request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// The offset in the staging region.
    pub offset: u64,
    /// The length of the value.
    pub bytes: u32,
}

impl Staged {
    /// As it travels.
    pub fn encode(&self) -> [u8; STAGED_BYTES] {
        let mut bytes = [0; STAGED_BYTES];
        bytes[0..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// Reads one; what it says is still to be checked by whoever knows the region.
    pub fn parse(bytes: &[u8]) -> Result<Self, FrameError> {
        if bytes.len() != STAGED_BYTES {
            return Err(FrameError::StagedLength(bytes.len()));
        }
        if u32_at(bytes, 12) != 0 {
            return Err(FrameError::Reserved);
        }
        Ok(Self { offset: u64_at(bytes, 0), bytes: u32_at(bytes, 8) })
    }
}

/// The 32 bits of a server's incarnation that frames carry.
pub fn fold(incarnation: u64) -> u32 {
    (incarnation ^ (incarnation >> 32)) as u32
}

/// Checks what both headers have in common: the length, which must be that of the message, and the flags.
#[inline]
fn common(frame: &[u8], known_flags: u8) -> Result<(usize, u8), FrameError> {
    const { assert!(REQUEST_HEADER_BYTES == REPLY_HEADER_BYTES) };
    if frame.len() < REQUEST_HEADER_BYTES {
        return Err(FrameError::Length { arrived: frame.len(), said: REQUEST_HEADER_BYTES });
    }
    let said = u32_at(frame, 0) as usize;
    if said != frame.len() {
        return Err(FrameError::Length { arrived: frame.len(), said });
    }
    let flags = frame[5];
    if flags & !known_flags != 0 {
        return Err(FrameError::Reserved);
    }
    Ok((said, flags))
}

#[inline]
fn check_value(bytes: u32) -> Result<(), FrameError> {
    let bytes = bytes as usize;
    if bytes > INLINE_VALUE_BYTES_MAX {
        return Err(FrameError::TooLarge { what: "value", bytes, limit: INLINE_VALUE_BYTES_MAX });
    }
    Ok(())
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn request_header()(
            opcode: u8, mutates: bool, staged: bool, key_bytes in 0..=KEY_BYTES_MAX as u16,
            inline_bytes in 0..=INLINE_VALUE_BYTES_MAX as u32,
            incarnation: u32, sequence: u64, partition: u16, map_epoch: u32,
        ) -> RequestHeader {
            let value_bytes = if staged { STAGED_BYTES as u32 } else { inline_bytes };
            RequestHeader {
                opcode, mutates, staged, key_bytes, value_bytes, incarnation, sequence, partition, map_epoch,
            }
        }
    }

    prop_compose! {
        fn reply_header()(
            status: u8, value_bytes in 0..=INLINE_VALUE_BYTES_MAX as u32,
            incarnation: u32, sequence: u64, version: u64,
        ) -> ReplyHeader {
            ReplyHeader { status, value_bytes, incarnation, sequence, version }
        }
    }

    /// A frame of this header and some bytes.
    fn frame(header: &[u8], bytes: usize) -> Vec<u8> {
        let mut frame = header.to_vec();
        frame.resize(bytes, 0xa5);
        frame
    }

    proptest! {
        #[test]
        fn requests_come_back_as_they_went(header in request_header()) {
            let frame = frame(&header.encode(), header.frame_bytes());
            prop_assert_eq!(RequestHeader::parse(&frame), Ok(header));
        }

        #[test]
        fn replies_come_back_as_they_went(header in reply_header()) {
            let frame = frame(&header.encode(), header.frame_bytes());
            prop_assert_eq!(ReplyHeader::parse(&frame), Ok(header));
        }

        /// Whatever arrives, parsing ends, and what it accepts stays within the frame and the limits.
        #[test]
        fn whatever_is_accepted_is_within_its_frame(
            mut frame in proptest::collection::vec(any::<u8>(), 0..200),
            plausible: bool,
        ) {
            if plausible && frame.len() >= REQUEST_HEADER_BYTES {
                let bytes = frame.len() as u32;
                frame[0..4].copy_from_slice(&bytes.to_le_bytes());
                frame[5] &= MUTATES | STAGED;
                frame[7] = 0;
                frame[9..12].fill(0);
                frame[26..28].fill(0);
            }
            if let Ok(header) = RequestHeader::parse(&frame) {
                prop_assert_eq!(header.frame_bytes(), frame.len());
                prop_assert_eq!(&header.encode()[..], &frame[..REQUEST_HEADER_BYTES]);
            }
            if let Ok(header) = ReplyHeader::parse(&frame) {
                prop_assert_eq!(header.frame_bytes(), frame.len());
                prop_assert_eq!(&header.encode()[..], &frame[..REPLY_HEADER_BYTES]);
            }
        }

        /// One changed byte in the lengths, flags or reserved bytes of a request never goes unnoticed.
        #[test]
        fn a_changed_shape_is_refused(header in request_header(), at in 0..9usize, change in 1..=255u8) {
            let mut frame = frame(&header.encode(), header.frame_bytes());
            let at = [0, 1, 2, 3, 6, 7, 8, 9, 26][at];
            frame[at] ^= change;
            prop_assert!(RequestHeader::parse(&frame).is_err());
        }

        #[test]
        fn a_cut_or_grown_frame_is_refused(header in request_header(), cut in 1..40usize, grow: bool) {
            let mut frame = frame(&header.encode(), header.frame_bytes());
            let bytes = if grow { frame.len() + cut } else { frame.len().saturating_sub(cut) };
            frame.resize(bytes, 0);
            prop_assert!(RequestHeader::parse(&frame).is_err());
        }

        #[test]
        fn places_of_staged_values_come_back_as_they_went(offset: u64, bytes: u32) {
            let staged = Staged { offset, bytes };
            prop_assert_eq!(Staged::parse(&staged.encode()), Ok(staged));
            prop_assert!(Staged::parse(&staged.encode()[1..]).is_err());
        }
    }

    #[test]
    fn limits_are_named() {
        let header = RequestHeader {
            opcode: 1,
            mutates: false,
            staged: false,
            key_bytes: KEY_BYTES_MAX as u16 + 1,
            value_bytes: 0,
            incarnation: 0,
            sequence: 0,
            partition: 0,
            map_epoch: 0,
        };
        let long_key = frame(&header.encode(), header.frame_bytes());
        let error = FrameError::TooLarge { what: "key", bytes: KEY_BYTES_MAX + 1, limit: KEY_BYTES_MAX };
        assert_eq!(RequestHeader::parse(&long_key), Err(error));
        let header = RequestHeader { key_bytes: 1, value_bytes: INLINE_VALUE_BYTES_MAX as u32 + 1, ..header };
        let long_value = frame(&header.encode(), header.frame_bytes());
        assert!(matches!(RequestHeader::parse(&long_value), Err(FrameError::TooLarge { what: "value", .. })));
        // A staged value's place takes no other length.
        let header = RequestHeader { staged: true, value_bytes: 8, ..header };
        let staged = frame(&header.encode(), header.frame_bytes());
        assert_eq!(RequestHeader::parse(&staged), Err(FrameError::StagedLength(8)));
    }
}
