//! Requests as they are posted: which are legal, which are within the limits, and where their bytes are.

use super::{
    ShmNic,
    copy::Sink,
    message::{MESSAGE_BYTES_MAX, TRANSFER_BYTES_MAX},
    queue_pair::{Core, check_range},
};
use crate::{LocalSlice, Opcode, Payload, PostError, QueuePairState, RemoteSlice, Transport, Verb};
use std::sync::atomic::AtomicU64;

/// The largest datagram, in bytes.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 4096;

impl Core {
    /// Checks what can be checked without the peer.
    #[inline]
    pub(crate) fn check(&self, verb: &Verb<'_, ShmNic>) -> Result<Opcode, PostError> {
        let opcode = self.check_legal(verb)?;
        if self.state == QueuePairState::Init {
            return Err(PostError::NotReady);
        }
        if let Some(depth) = self.sends.full() {
            return Err(PostError::SendQueueFull(depth));
        }
        match verb {
            Verb::Read { into, .. } => check_transfer(into)?,
            Verb::Write { payload, .. } => self.check_payload(payload, TRANSFER_BYTES_MAX)?,
            Verb::Send { payload, to: Some(_), .. } => self.check_payload(payload, DATAGRAM_BYTES_MAX)?,
            Verb::Send { payload, to: None, .. } => self.check_payload(payload, MESSAGE_BYTES_MAX)?,
            Verb::CompareSwap { into, at, .. } | Verb::FetchAdd { into, at, .. } => check_atomic(into, at)?,
        }
        Ok(opcode)
    }

    /// Mitchell Table 2.1: which verb goes over which transport.
    #[inline]
    fn check_legal(&self, verb: &Verb<'_, ShmNic>) -> Result<Opcode, PostError> {
        let transport = self.config.transport;
        match verb {
            Verb::Read { .. } if transport != Transport::Rc => Err(PostError::Illegal("READ")),
            Verb::CompareSwap { .. } | Verb::FetchAdd { .. } if transport != Transport::Rc => {
                Err(PostError::Illegal("an atomic"))
            }
            Verb::Write { .. } if transport == Transport::Ud => Err(PostError::Illegal("WRITE")),
            Verb::Send { to: None, .. } if transport == Transport::Ud => {
                Err(PostError::Illegal("SEND without an address"))
            }
            Verb::Send { to: Some(_), .. } if transport != Transport::Ud => {
                Err(PostError::Illegal("SEND with an address"))
            }
            Verb::Read { .. } => Ok(Opcode::Read),
            Verb::Write { .. } => Ok(Opcode::Write),
            Verb::Send { .. } => Ok(Opcode::Send),
            Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => Ok(Opcode::Atomic),
        }
    }

    #[inline]
    fn check_payload(&self, payload: &Payload<'_, ShmNic>, limit: usize) -> Result<(), PostError> {
        match payload {
            Payload::Inline(pieces) => {
                let bytes = Bytes::Gathered(pieces).len();
                if bytes > self.config.inline_bytes {
                    return Err(PostError::InlineTooLong(bytes, self.config.inline_bytes));
                }
                if bytes > limit { Err(PostError::TooLong(bytes, limit)) } else { Ok(()) }
            }
            Payload::Slice(slice) => {
                check_range(slice)?;
                if slice.bytes > limit { Err(PostError::TooLong(slice.bytes, limit)) } else { Ok(()) }
            }
        }
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
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Gathered(pieces) => pieces.iter().map(|piece| piece.len()).sum(),
            Self::Flat(bytes) => bytes.len(),
            Self::Words(_, _, bytes) => *bytes,
        }
    }

    #[inline]
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

#[inline]
fn check_transfer(local: &LocalSlice<'_, ShmNic>) -> Result<(), PostError> {
    check_range(local)?;
    if local.bytes > TRANSFER_BYTES_MAX {
        return Err(PostError::TooLong(local.bytes, TRANSFER_BYTES_MAX));
    }
    Ok(())
}

fn check_atomic(into: &LocalSlice<'_, ShmNic>, at: &RemoteSlice<'_, ShmNic>) -> Result<(), PostError> {
    check_range(into)?;
    if into.bytes != 8 || !at.offset.is_multiple_of(8) { Err(PostError::Misaligned) } else { Ok(()) }
}
