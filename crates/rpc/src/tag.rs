//! The ids of work requests: whose they are, of which connection, and which one.
//!
//! `owner (16) | connection (15) | receive (1) | number (32)`. The connection tells late completions of a queue pair
//! that was dropped from those of its successor.

/// The part of an id that all work requests of one connection share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u64);

/// What a work request was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A RECV, with its slot.
    Receive(u32),
    /// A SEND or WRITE, with the low bits of how many were posted.
    Send(u32),
}

const RECEIVE: u64 = 1 << 32;

impl Tag {
    pub fn new(owner: u16, connection: u16) -> Self {
        Self(u64::from(owner) << 48 | u64::from(connection & 0x7fff) << 33)
    }

    pub fn receive(self, slot: u32) -> u64 {
        self.0 | RECEIVE | u64::from(slot)
    }

    pub fn send(self, posted: u64) -> u64 {
        self.0 | u64::from(posted as u32)
    }

    /// Whether the id is of this connection.
    pub fn owns(self, id: u64) -> bool {
        id & !(RECEIVE | 0xffff_ffff) == self.0
    }
}

pub(crate) fn owner(id: u64) -> usize {
    (id >> 48) as usize
}

pub(crate) fn kind(id: u64) -> Kind {
    if id & RECEIVE != 0 { Kind::Receive(id as u32) } else { Kind::Send(id as u32) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_apart_as_they_were_put_together() {
        let tag = Tag::new(0xffff, 0x7fff);
        assert_eq!(kind(tag.receive(u32::MAX)), Kind::Receive(u32::MAX));
        assert_eq!(kind(tag.send(u64::MAX)), Kind::Send(u32::MAX));
        assert_eq!(owner(tag.send(7)), 0xffff);
        assert!(tag.owns(tag.receive(3)) && tag.owns(tag.send(3)));
        assert!(!Tag::new(0xffff, 0x7ffe).owns(tag.send(3)));
        assert!(!Tag::new(0xfffe, 0x7fff).owns(tag.receive(3)));
    }
}
