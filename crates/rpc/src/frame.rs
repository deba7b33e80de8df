//! What travels: a request or reply is one message of a header and its bytes, little-endian.
//!
//! Headers take 24 bytes, so that a read of a key of up to 32 bytes is one cache line with what `shm` adds to it, and so
//! is a reply with a value of up to 32. A peer's bytes are input: parsing checks every length against the message that
//! arrived and every field against what this version knows.
//!
//! | request byte | field | reply byte | field |
//! |---|---|---|---|
//! | 0..2 | length of the frame | 0..2 | length of the frame |
//! | 2 | opcode | 2 | status |
//! | 3 | flags: 1 it mutates, 2 its value is staged | 3 | zero |
//! | 4..8 | server incarnation, folded | 4..8 | server incarnation, folded |
//! | 8..16 | sequence | 8..16 | sequence |
//! | 16..18 | key length | 16..24 | record version |
//! | 18..20 | partition | | |
//! | 20..24 | epoch of the partition map | | |
//! | 24.. | key, then value | 24.. | value |

/// The length of either header.
pub(crate) const HEADER_BYTES: usize = 24;
/// The length of a request's header.
pub const REQUEST_HEADER_BYTES: usize = HEADER_BYTES;
/// The length of a reply's header.
pub const REPLY_HEADER_BYTES: usize = HEADER_BYTES;
/// The longest key.
pub const KEY_BYTES_MAX: usize = 1 << 10;
/// The longest value that travels in a frame; longer ones travel by rendezvous.
pub const INLINE_VALUE_BYTES_MAX: usize = 4 << 10;
/// The longest frame.
pub const FRAME_BYTES_MAX: usize = REQUEST_HEADER_BYTES + KEY_BYTES_MAX + INLINE_VALUE_BYTES_MAX;
/// The longest reply.
pub(crate) const REPLY_BYTES_MAX: usize = REPLY_HEADER_BYTES + INLINE_VALUE_BYTES_MAX;
/// What a buffer takes for a message that is copied out of a slot with what belongs to it.
pub(crate) const fn buffer_bytes(frame_bytes: usize) -> usize {
    frame_bytes.next_multiple_of(8) + crate::slots::TAIL_BYTES_MAX
}
/// The same for requests.
pub(crate) const REQUEST_BUFFER_BYTES: usize = buffer_bytes(FRAME_BYTES_MAX);
/// The same for replies.
pub(crate) const REPLY_BUFFER_BYTES: usize = buffer_bytes(REPLY_BYTES_MAX);
/// Room for a reply that is copied out. (Of a length known when compiled, so that a box is one word, which is moved as it was
/// stored.)
pub(crate) type ReplyBuffer = [u8; REPLY_BUFFER_BYTES];
/// Empty room for a reply.
pub(crate) fn reply_buffer() -> Box<ReplyBuffer> {
    vec![0; REPLY_BUFFER_BYTES].try_into().expect("as many bytes")
}
/// The length of an encoded [`Staged`] without a checksum.
const STAGED_BYTES: usize = 12;
/// The same with one.
pub const STAGED_BYTES_MAX: usize = STAGED_BYTES + 8;

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
    /// Flags that this version does not know.
    #[error("unknown flags {0:#x}")]
    Flags(u8),
    /// The mark of a frame in a slot names a length that no slot has room for.
    #[error("the mark of a frame of {bytes} bytes in a slot of {slot_bytes}")]
    Mark {
        /// The length of the frame.
        bytes: usize,
        /// The room.
        slot_bytes: usize,
    },
    /// A frame of this length whose checksum stays wrong.
    #[error("a frame of {0} bytes that never becomes whole")]
    Torn(usize),
    /// A WRITE with immediate that names a slot without a new frame.
    #[error("an immediate that names no frame: {0}")]
    Immediate(u32),
    /// A staged value whose description has another length.
    #[error("the place of a staged value in {0} bytes")]
    StagedLength(usize),
}

/// A frame that is to be sent: its header, and what follows it.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'f> {
    pub header: [u8; HEADER_BYTES],
    /// Of a request; empty in a reply.
    pub key: &'f [u8],
    pub value: &'f [u8],
}

impl<'f> Frame<'f> {
    /// In one piece; none if it is shorter than a header.
    pub fn of(bytes: &'f [u8]) -> Option<Self> {
        let (header, value) = bytes.split_first_chunk()?;
        Some(Self { header: *header, key: &[], value })
    }

    /// Its length.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.key.len() + self.value.len()
    }

    /// What it consists of.
    #[inline(always)]
    pub fn pieces(&self) -> [&[u8]; 3] {
        [&self.header, self.key, self.value]
    }

    /// Puts it together, in as many bytes as it has.
    ///
    /// # Panics
    /// When there are more or fewer: a bug of the caller.
    #[inline(always)]
    pub fn copy_to(&self, into: &mut [u8]) {
        let (header, rest) = into.split_first_chunk_mut().expect("room for a header");
        *header = self.header;
        let (key, value) = rest.split_at_mut(self.key.len());
        key.copy_from_slice(self.key);
        value.copy_from_slice(self.value);
    }
}

/// The words of a header. It is put together in registers and stored word by word, as it is loaded soon after: what was stored
/// in smaller pieces would have to leave the core's store queue first, and with it all that was stored before.
type Words = [u64; HEADER_BYTES / 8];

#[inline(always)]
fn bytes_of([first, second, third]: Words) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[0..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..16].copy_from_slice(&second.to_le_bytes());
    bytes[16..24].copy_from_slice(&third.to_le_bytes());
    bytes
}

/// The header of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    pub value_bytes: u16,
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
        REQUEST_HEADER_BYTES + usize::from(self.key_bytes) + usize::from(self.value_bytes)
    }

    /// The header as it travels.
    #[inline]
    pub fn encode(&self) -> [u8; REQUEST_HEADER_BYTES] {
        let flags = if self.mutates { MUTATES } else { 0 } | if self.staged { STAGED } else { 0 };
        bytes_of([
            self.frame_bytes() as u64 & 0xffff
                | u64::from(self.opcode) << 16
                | u64::from(flags) << 24
                | u64::from(self.incarnation) << 32,
            self.sequence,
            u64::from(self.key_bytes) | u64::from(self.partition) << 16 | u64::from(self.map_epoch) << 32,
        ])
    }

    /// Reads and checks the header of a frame that arrived.
    #[inline(always)]
    pub fn parse(frame: &[u8]) -> Result<Self, FrameError> {
        let ([first, sequence, third], rest) = split(frame, MUTATES | STAGED)?;
        let (flags, key_bytes) = ((first >> 24) as u8, third as u16);
        if usize::from(key_bytes) > KEY_BYTES_MAX {
            return Err(FrameError::TooLarge { what: "key", bytes: key_bytes.into(), limit: KEY_BYTES_MAX });
        }
        let value_bytes = rest.checked_sub(key_bytes.into());
        let said = REQUEST_HEADER_BYTES + usize::from(key_bytes);
        let value_bytes = value_bytes.ok_or(FrameError::Length { arrived: frame.len(), said })?;
        check_value(value_bytes)?;
        let staged = flags & STAGED != 0;
        if staged && ![STAGED_BYTES, STAGED_BYTES_MAX].contains(&value_bytes) {
            return Err(FrameError::StagedLength(value_bytes));
        }
        Ok(Self {
            opcode: (first >> 16) as u8,
            mutates: flags & MUTATES != 0,
            staged,
            key_bytes,
            value_bytes: value_bytes as u16,
            incarnation: (first >> 32) as u32,
            sequence,
            partition: (third >> 16) as u16,
            map_epoch: (third >> 32) as u32,
        })
    }
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// How it went; the numbers belong to the store.
    pub status: u8,
    /// The length of the value as it is in the frame.
    pub value_bytes: u16,
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
        REPLY_HEADER_BYTES + usize::from(self.value_bytes)
    }

    /// The header as it travels.
    #[inline]
    pub fn encode(&self) -> [u8; REPLY_HEADER_BYTES] {
        bytes_of([
            self.frame_bytes() as u64 & 0xffff
                | u64::from(self.status) << 16
                | u64::from(self.incarnation) << 32,
            self.sequence,
            self.version,
        ])
    }

    /// Reads and checks the header of a frame that arrived.
    #[inline(always)]
    pub fn parse(frame: &[u8]) -> Result<Self, FrameError> {
        let ([first, sequence, version], value_bytes) = split(frame, 0)?;
        check_value(value_bytes)?;
        Ok(Self {
            status: (first >> 16) as u8,
            value_bytes: value_bytes as u16,
            incarnation: (first >> 32) as u32,
            sequence,
            version,
        })
    }
}

/// Where the value of a mutation is that is too large for a frame: in the client's staging region at the server, where
/// WRITEs put it before the request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// The offset in the staging region.
    pub offset: u64,
    /// The length of the value.
    pub bytes: u32,
    /// The value's checksum, where the request may be seen before the value.
    pub checksum: Option<u64>,
}

impl Staged {
    /// As it travels.
    pub fn encode<'b>(&self, into: &'b mut [u8; STAGED_BYTES_MAX]) -> &'b [u8] {
        into[0..8].copy_from_slice(&self.offset.to_le_bytes());
        into[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        let Some(checksum) = self.checksum else { return &into[..STAGED_BYTES] };
        into[STAGED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        into
    }

    /// Reads one; what it says is still to be checked by whoever knows the region.
    pub fn parse(bytes: &[u8]) -> Result<Self, FrameError> {
        let checksum = match bytes.len() {
            STAGED_BYTES => None,
            STAGED_BYTES_MAX => Some(u64_at(bytes, STAGED_BYTES)),
            other => return Err(FrameError::StagedLength(other)),
        };
        Ok(Self { offset: u64_at(bytes, 0), bytes: u32_at(bytes, 8), checksum })
    }
}

/// The 32 bits of a server's incarnation that frames carry.
pub fn fold(incarnation: u64) -> u32 {
    (incarnation ^ (incarnation >> 32)) as u32
}

/// Checks what both headers have in common: the length, which must be that of the message, and the flags. Gives the header
/// and how many bytes follow it.
#[inline(always)]
fn split(frame: &[u8], known_flags: u8) -> Result<(Words, usize), FrameError> {
    let (arrived, said) = (frame.len(), HEADER_BYTES);
    let (header, rest) =
        frame.split_first_chunk::<HEADER_BYTES>().ok_or(FrameError::Length { arrived, said })?;
    let words = [u64_at(header, 0), u64_at(header, 8), u64_at(header, 16)];
    let (said, flags) = (usize::from(words[0] as u16), (words[0] >> 24) as u8);
    if said != arrived {
        return Err(FrameError::Length { arrived, said });
    }
    if flags & !known_flags != 0 {
        return Err(FrameError::Flags(flags));
    }
    Ok((words, rest.len()))
}

#[inline]
fn check_value(bytes: usize) -> Result<(), FrameError> {
    if bytes > INLINE_VALUE_BYTES_MAX {
        return Err(FrameError::TooLarge { what: "value", bytes, limit: INLINE_VALUE_BYTES_MAX });
    }
    Ok(())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

#[inline(always)]
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
            inline_bytes in 0..=INLINE_VALUE_BYTES_MAX as u16,
            incarnation: u32, sequence: u64, partition: u16, map_epoch: u32,
        ) -> RequestHeader {
            let staged_bytes = if inline_bytes % 2 == 0 { STAGED_BYTES } else { STAGED_BYTES_MAX };
            let value_bytes = if staged { staged_bytes as u16 } else { inline_bytes };
            RequestHeader {
                opcode, mutates, staged, key_bytes, value_bytes, incarnation, sequence, partition, map_epoch,
            }
        }
    }

    prop_compose! {
        fn reply_header()(
            status: u8, value_bytes in 0..=INLINE_VALUE_BYTES_MAX as u16,
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
                let bytes = frame.len() as u16;
                frame[0..2].copy_from_slice(&bytes.to_le_bytes());
                frame[3] &= MUTATES | STAGED;
                frame[17] = 0;
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

        /// A changed length or an unknown flag never goes unnoticed. (A changed key length only moves the boundary between
        /// key and value.)
        #[test]
        fn a_changed_shape_is_refused(header in request_header(), at in 0..2usize, change in 1..=255u8, flag in 2..8u32) {
            let good = frame(&header.encode(), header.frame_bytes());
            let mut frame = good.clone();
            frame[at] ^= change;
            prop_assert!(RequestHeader::parse(&frame).is_err());
            let mut frame = good;
            frame[3] |= 1 << flag;
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
        fn places_of_staged_values_come_back_as_they_went(offset: u64, bytes: u32, checksum: Option<u64>) {
            let staged = Staged { offset, bytes, checksum };
            let mut encoded = [0; STAGED_BYTES_MAX];
            let encoded = staged.encode(&mut encoded);
            prop_assert_eq!(Staged::parse(encoded), Ok(staged));
            prop_assert!(Staged::parse(&encoded[1..]).is_err());
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
        let header = RequestHeader { key_bytes: 1, value_bytes: INLINE_VALUE_BYTES_MAX as u16 + 1, ..header };
        let long_value = frame(&header.encode(), header.frame_bytes());
        assert!(matches!(RequestHeader::parse(&long_value), Err(FrameError::TooLarge { what: "value", .. })));
        // A staged value's place takes no other length.
        let header = RequestHeader { staged: true, value_bytes: 8, ..header };
        let staged = frame(&header.encode(), header.frame_bytes());
        assert_eq!(RequestHeader::parse(&staged), Err(FrameError::StagedLength(8)));
    }
}
