//! Requests as they are posted: which are legal, which are within the limits, and where their bytes are.

use super::{
    ShmNic,
    copy::Sink,
    message::{MESSAGE_BYTES_MAX, TRANSFER_BYTES_MAX},
    queue_pair::Core,
};
use crate::{
    Opcode, Payload, PostError, QueuePairState, Verb,
    checks::{self, Limits},
};
use std::sync::atomic::AtomicU64;

/// The largest datagram, in bytes.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 4096;
const LIMITS: Limits =
    Limits { message: MESSAGE_BYTES_MAX, datagram: DATAGRAM_BYTES_MAX, transfer: TRANSFER_BYTES_MAX };

impl Core {
    /// Checks what can be checked without the peer.
    #[inline]
    pub(crate) fn check(&self, verb: &Verb<'_, ShmNic>) -> Result<Opcode, PostError> {
        let opcode = checks::legal(verb, self.config.transport)?;
        if self.state == QueuePairState::Init {
            return Err(PostError::NotReady);
        }
        if let Some(depth) = self.sends.full() {
            return Err(PostError::SendQueueFull(depth));
        }
        checks::operands(verb, self.config.inline_bytes, &LIMITS)?;
        Ok(opcode)
    }
}

/// Bytes to send, wherever they are.
#[derive(Clone, Copy)]
pub(crate) enum Bytes<'a> {
    Gathered(&'a [&'a [u8]]),
    Flat(&'a [u8]),
    Words(&'a [AtomicU64], usize, usize),
}

impl Bytes<'_> {
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Gathered(pieces) => checks::gathered_bytes(pieces),
            Self::Flat(bytes) => bytes.len(),
            Self::Words(_, _, bytes) => *bytes,
        }
    }

    #[inline(always)]
    pub(crate) fn pour(&self, sink: &mut Sink<'_>) {
        match self {
            Self::Gathered(pieces) => pieces.iter().for_each(|piece| sink.bytes(piece)),
            Self::Flat(bytes) => sink.bytes(bytes),
            Self::Words(words, offset, bytes) => sink.words(words, *offset, *bytes),
        }
    }
}

#[inline]
pub(crate) fn bytes_of<'a>(payload: &'a Payload<'_, ShmNic>) -> Bytes<'a> {
    match payload {
        Payload::Inline(pieces) => Bytes::Gathered(pieces),
        Payload::Slice(slice) => Bytes::Words(slice.region.mapping().words(), slice.offset, slice.bytes),
    }
}
