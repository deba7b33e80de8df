//! A request as the core that executes it sees it.

use super::ChannelId;
use crate::{RequestHeader, SessionId, Staged, frame::REQUEST_HEADER_BYTES, inbox::Message};

/// A request that arrived, checked; its bytes stay where they are until it is dropped.
pub struct Incoming {
    pub(super) message: Message,
    pub(super) header: RequestHeader,
    pub(super) channel: ChannelId,
    pub(super) session: SessionId,
}

impl Incoming {
    /// What to do.
    pub fn opcode(&self) -> u8 {
        self.header.opcode
    }

    /// Whether it is executed at most once.
    pub fn mutates(&self) -> bool {
        self.header.mutates
    }

    /// The partition of the key, as the client says.
    pub fn partition(&self) -> u16 {
        self.header.partition
    }

    /// The epoch of the partition map that the client uses.
    pub fn map_epoch(&self) -> u32 {
        self.header.map_epoch
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.message[REQUEST_HEADER_BYTES..][..usize::from(self.header.key_bytes)]
    }

    /// The value, if it is in the frame; empty if it is staged.
    #[inline]
    pub fn value(&self) -> &[u8] {
        if self.header.staged { &[] } else { self.body() }
    }

    /// Where the value is in the client's staging region, if it is there. What it says is yet to be checked against that
    /// region.
    pub fn staged(&self) -> Option<Staged> {
        if self.header.staged { Staged::parse(self.body()).ok() } else { None }
    }

    /// Where it came from.
    pub fn channel(&self) -> ChannelId {
        self.channel
    }

    /// Whose it is.
    pub fn session(&self) -> SessionId {
        self.session
    }

    fn body(&self) -> &[u8] {
        &self.message[REQUEST_HEADER_BYTES + usize::from(self.header.key_bytes)..]
    }
}
