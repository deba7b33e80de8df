//! Framing of control messages on a Unix stream socket: a fixed head, a table of facts, the message, the facts' bytes.
//! The descriptors of all facts travel with the head. Whatever arrives is checked against limits before anything is
//! allocated for it.

use crate::{ControlMessage, Facts};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags,
    },
};
use std::{
    collections::VecDeque,
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
};

/// The longest message, the facts' bytes counted in.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// How many descriptors one message can carry: the kernel takes 253 at once.
pub(crate) const HANDLES_MAX: usize = 240;
/// How many facts one message can carry.
pub(crate) const FACTS_MAX: usize = 4096;

const MAGIC: u32 = u32::from_le_bytes(*b"LCS1");
const HEAD_BYTES: usize = 16;
/// One entry of the table: bytes and descriptors of a fact, 4 bytes each.
const ENTRY_BYTES: usize = 8;

/// Why a message could not be received.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The peer closed the connection.
    Closed,
    /// The peer sent what no peer sends.
    Garbage(&'static str),
    /// The system refused.
    System(Errno),
}

/// Encodes a frame; the descriptors are sent along with it.
pub(crate) fn encode(message: &[u8], facts: &[Facts]) -> Vec<u8> {
    let handles: usize = facts.iter().map(|fact| fact.handles.len()).sum();
    let fact_bytes: usize = facts.iter().map(|fact| fact.bytes.len()).sum();
    let body = facts.len() * ENTRY_BYTES + message.len() + fact_bytes;
    let mut frame = Vec::with_capacity(HEAD_BYTES + body);
    let mut word = |value: usize| frame.extend((value as u32).to_le_bytes());
    word(MAGIC as usize);
    word(message.len());
    word(facts.len() | handles << 16);
    word(fact_bytes);
    for fact in facts {
        word(fact.bytes.len());
        word(fact.handles.len());
    }
    frame.extend(message);
    facts.iter().for_each(|fact| frame.extend(&fact.bytes));
    frame
}

/// Sends part of a frame without blocking, descriptors with its first byte.
pub(crate) fn send_some(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    handles: &[BorrowedFd<'_>],
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDLES_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !handles.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(handles)) {
        return Err(Errno::TOOBIG);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags)
}

/// What a frame's head says.
#[derive(Clone, Copy, Debug)]
struct Head {
    message_bytes: usize,
    facts: usize,
    handles: usize,
    body_bytes: usize,
}

impl Head {
    fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Self, &'static str> {
        let word = |index: usize| {
            let at = index * 4;
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
        };
        if word(0) != MAGIC as usize {
            return Err("it does not speak this protocol");
        }
        let (message_bytes, fact_bytes) = (word(1), word(3));
        let (facts, handles) = (word(2) & 0xFFFF, word(2) >> 16);
        if message_bytes > MESSAGE_BYTES_MAX || fact_bytes > MESSAGE_BYTES_MAX - message_bytes {
            return Err("its message is over the limit");
        }
        if facts > FACTS_MAX || handles > HANDLES_MAX {
            return Err("its message carries too many facts");
        }
        Ok(Self {
            message_bytes,
            facts,
            handles,
            body_bytes: facts * ENTRY_BYTES + message_bytes + fact_bytes,
        })
    }
}

/// Puts a frame together as it arrives. A frame may come in any number of pieces.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    head: [u8; HEAD_BYTES],
    decoded: Option<Head>,
    /// Bytes of the head or, once that is decoded, of the body.
    arrived: usize,
    body: Vec<u8>,
    handles: VecDeque<OwnedFd>,
}

impl Assembler {
    /// Takes what has arrived, without blocking. `None`: the frame is not complete yet. Never reads beyond the frame, so
    /// that descriptors belong to the frame they arrive with.
    pub(crate) fn receive(&mut self, socket: impl AsFd) -> Result<Option<ControlMessage>, Broken> {
        let socket = socket.as_fd();
        loop {
            let missing = match self.decoded {
                None => &mut self.head[self.arrived..],
                Some(_) => &mut self.body[self.arrived..],
            };
            if !missing.is_empty() {
                match receive_some(socket, missing, &mut self.handles) {
                    Ok(bytes) => self.arrived += bytes,
                    Err(Broken::System(Errno::AGAIN)) => return Ok(None),
                    Err(broken) => return Err(broken),
                }
            }
            match self.decoded {
                None if self.arrived == HEAD_BYTES => {
                    let head = Head::decode(&self.head).map_err(Broken::Garbage)?;
                    self.decoded = Some(head);
                    self.body = vec![0; head.body_bytes];
                    self.arrived = 0;
                }
                Some(head) if self.arrived == head.body_bytes => {
                    return std::mem::take(self).split(head).map(Some).map_err(Broken::Garbage);
                }
                _ => {}
            }
        }
    }

    /// Takes a complete frame apart.
    fn split(mut self, head: Head) -> Result<ControlMessage, &'static str> {
        if self.handles.len() != head.handles {
            return Err("its message came without the descriptors it announced (see ulimit -n)");
        }
        let (table, rest) = self.body.split_at(head.facts * ENTRY_BYTES);
        let (message, mut rest) = rest.split_at(head.message_bytes);
        let mut facts = Vec::with_capacity(head.facts);
        for entry in table.as_chunks::<ENTRY_BYTES>().0 {
            let [a, b, c, d, e, f, g, h] = *entry;
            let bytes = u32::from_le_bytes([a, b, c, d]) as usize;
            let handles = u32::from_le_bytes([e, f, g, h]) as usize;
            if bytes > rest.len() || handles > self.handles.len() {
                return Err("its table of facts does not fit the message");
            }
            let (own, others) = rest.split_at(bytes);
            facts.push(Facts { bytes: own.to_vec(), handles: self.handles.drain(..handles).collect() });
            rest = others;
        }
        if !rest.is_empty() || !self.handles.is_empty() {
            return Err("its table of facts does not fit the message");
        }
        Ok((message.to_vec(), facts))
    }
}

/// Receives up to `into.len()` bytes and the descriptors that come along.
fn receive_some(
    socket: BorrowedFd<'_>,
    into: &mut [u8],
    handles: &mut VecDeque<OwnedFd>,
) -> Result<usize, Broken> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(into)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET | Errno::PIPE) => return Err(Broken::Closed),
            other => break other.map_err(Broken::System)?,
        }
    };
    // Descriptors that nobody keeps are closed with the iterator.
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(arrived) = message {
            handles.extend(arrived);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Broken::Garbage("its descriptors could not be taken (raise ulimit -n)"));
    }
    if handles.len() > HANDLES_MAX {
        return Err(Broken::Garbage("it sent too many descriptors"));
    }
    if received.bytes == 0 { Err(Broken::Closed) } else { Ok(received.bytes) }
}
