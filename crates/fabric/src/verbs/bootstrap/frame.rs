//! Frames: an 8-byte head, and for messages a table of the facts' lengths, the message and the facts.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | kind: 1 message, 2 heartbeat, 3 goodbye |
//! | 2..4 | number of facts |
//! | 4..8 | bytes that follow the head |
//!
//! Whatever arrives is checked against limits before anything is kept of it, and what is kept grows with what arrives.

use crate::FabricError;

/// The longest message, the facts' bytes counted in.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// How many facts one message can carry.
pub(crate) const FACTS_MAX: usize = 256;

/// A message and the facts that came along.
pub(crate) type Message = (Vec<u8>, Vec<Vec<u8>>);

pub(super) const HEAD_BYTES: usize = 8;
/// One entry of the table: the length of a fact.
const ENTRY_BYTES: usize = 4;

const MESSAGE: u16 = 1;
const HEARTBEAT: u16 = 2;
const GOODBYE: u16 = 3;

/// The sender lives.
pub(super) const HEARTBEAT_FRAME: [u8; HEAD_BYTES] = head(HEARTBEAT, 0, 0);
/// The sender closed the connection.
pub(super) const GOODBYE_FRAME: [u8; HEAD_BYTES] = head(GOODBYE, 0, 0);

/// What a peer says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Message(Message),
    Heartbeat,
    Goodbye,
}

const fn head(kind: u16, facts: usize, body_bytes: usize) -> [u8; HEAD_BYTES] {
    let [k0, k1] = kind.to_le_bytes();
    let [f0, f1] = (facts as u16).to_le_bytes();
    let [b0, b1, b2, b3] = (body_bytes as u32).to_le_bytes();
    [k0, k1, f0, f1, b0, b1, b2, b3]
}

/// Whether a message can be sent at all.
pub(super) fn check_limits(message: &[u8], facts: &[Vec<u8>]) -> Result<(), FabricError> {
    let bytes = message.len() + facts.iter().map(Vec::len).sum::<usize>();
    for (what, asked, limit) in [
        ("the length of a control message in bytes", bytes, MESSAGE_BYTES_MAX),
        ("the number of facts of a control message", facts.len(), FACTS_MAX),
    ] {
        if asked > limit {
            return Err(FabricError::Limit { what, asked, limit });
        }
    }
    Ok(())
}

/// Appends a message that is within the limits.
pub(super) fn encode(message: &[u8], facts: &[Vec<u8>], frame: &mut Vec<u8>) {
    let fact_bytes: usize = facts.iter().map(Vec::len).sum();
    let body_bytes = facts.len() * ENTRY_BYTES + message.len() + fact_bytes;
    frame.reserve(HEAD_BYTES + body_bytes);
    frame.extend(head(MESSAGE, facts.len(), body_bytes));
    facts.iter().for_each(|fact| frame.extend((fact.len() as u32).to_le_bytes()));
    frame.extend(message);
    facts.iter().for_each(|fact| frame.extend(fact));
}

/// What a frame's head says.
#[derive(Clone, Copy, Debug)]
struct Head {
    kind: u16,
    facts: usize,
    body_bytes: usize,
}

impl Head {
    fn decode(bytes: [u8; HEAD_BYTES]) -> Result<Self, &'static str> {
        let [k0, k1, f0, f1, b0, b1, b2, b3] = bytes;
        let kind = u16::from_le_bytes([k0, k1]);
        let facts = usize::from(u16::from_le_bytes([f0, f1]));
        let body_bytes = u32::from_le_bytes([b0, b1, b2, b3]) as usize;
        match kind {
            MESSAGE if facts > FACTS_MAX => Err("its message carries too many facts"),
            MESSAGE if body_bytes < facts * ENTRY_BYTES => Err(MISFIT),
            MESSAGE if body_bytes - facts * ENTRY_BYTES > MESSAGE_BYTES_MAX => {
                Err("its message is over the limit")
            }
            MESSAGE => Ok(Self { kind, facts, body_bytes }),
            HEARTBEAT | GOODBYE if facts == 0 && body_bytes == 0 => Ok(Self { kind, facts, body_bytes }),
            _ => Err("it does not speak this protocol"),
        }
    }
}

const MISFIT: &str = "its table of facts does not fit the message";

/// Puts frames together as they arrive, in any number of pieces.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    /// The bytes of an unfinished head.
    head: Vec<u8>,
    /// The head whose body is unfinished.
    decoded: Option<Head>,
    body: Vec<u8>,
}

impl Assembler {
    /// Takes bytes up to the end of one frame and moves `bytes` past them. `None`: all were taken and the frame is not
    /// complete yet.
    pub(super) fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Frame>, &'static str> {
        let head = match self.decoded {
            Some(head) => head,
            None => {
                fill(&mut self.head, HEAD_BYTES, bytes);
                let Ok(head) = <[u8; HEAD_BYTES]>::try_from(&self.head[..]) else { return Ok(None) };
                self.head.clear();
                *self.decoded.insert(Head::decode(head)?)
            }
        };
        fill(&mut self.body, head.body_bytes, bytes);
        if self.body.len() < head.body_bytes {
            return Ok(None);
        }
        self.decoded = None;
        let body = std::mem::take(&mut self.body);
        match head.kind {
            HEARTBEAT => Ok(Some(Frame::Heartbeat)),
            GOODBYE => Ok(Some(Frame::Goodbye)),
            _ => split(head, &body).map(|message| Some(Frame::Message(message))),
        }
    }
}

/// Moves bytes until `into` has as many as it needs, or there are no more.
fn fill(into: &mut Vec<u8>, needed: usize, bytes: &mut &[u8]) {
    let (taken, rest) = bytes.split_at(bytes.len().min(needed - into.len()));
    into.extend(taken);
    *bytes = rest;
}

/// Takes a complete message apart.
fn split(head: Head, body: &[u8]) -> Result<Message, &'static str> {
    let (table, rest) = body.split_at(head.facts * ENTRY_BYTES);
    let lengths = table.as_chunks::<ENTRY_BYTES>().0.iter().map(|entry| u32::from_le_bytes(*entry) as usize);
    let fact_bytes = lengths.clone().try_fold(0_usize, usize::checked_add).ok_or(MISFIT)?;
    let message_bytes = rest.len().checked_sub(fact_bytes).ok_or(MISFIT)?;
    let (message, mut rest) = rest.split_at(message_bytes);
    let mut facts = Vec::with_capacity(head.facts);
    for length in lengths {
        let (fact, others) = rest.split_at(length);
        facts.push(fact.to_vec());
        rest = others;
    }
    Ok((message.to_vec(), facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_in_any_pieces() {
        let message = (b"hello".to_vec(), vec![vec![], vec![1, 2, 3], vec![9; 300]]);
        let mut stream = HEARTBEAT_FRAME.to_vec();
        encode(&message.0, &message.1, &mut stream);
        encode(b"", &[], &mut stream);
        stream.extend(GOODBYE_FRAME);
        for piece in [1, 2, 7, 8, 9, 100, stream.len()] {
            let (mut assembler, mut frames) = (Assembler::default(), Vec::new());
            for mut bytes in stream.chunks(piece) {
                while let Some(frame) = assembler.take(&mut bytes).unwrap() {
                    frames.push(frame);
                }
            }
            let all = [
                Frame::Heartbeat,
                Frame::Message(message.clone()),
                Frame::Message((vec![], vec![])),
                Frame::Goodbye,
            ];
            assert_eq!(frames, all, "in pieces of {piece}");
        }
    }

    #[test]
    fn what_no_peer_sends_is_refused() {
        let table =
            |lengths: &[u32]| lengths.iter().flat_map(|length| length.to_le_bytes()).collect::<Vec<_>>();
        for (what, head, body) in [
            ("an unknown kind", head(4, 0, 0), vec![]),
            ("a heartbeat with a body", head(HEARTBEAT, 0, 1), vec![]),
            ("a goodbye with facts", head(GOODBYE, 1, 4), vec![]),
            ("too long a message", head(MESSAGE, 0, MESSAGE_BYTES_MAX + 1), vec![]),
            ("too many facts", head(MESSAGE, FACTS_MAX + 1, 4 * FACTS_MAX + 4), vec![]),
            ("a body shorter than its table", head(MESSAGE, 2, 7), vec![]),
            ("a fact longer than the body", head(MESSAGE, 1, 6), [table(&[3]), vec![0; 2]].concat()),
            ("facts longer than memory", head(MESSAGE, 2, 8), table(&[u32::MAX, u32::MAX])),
        ] {
            let stream = [head.to_vec(), body].concat();
            assert!(Assembler::default().take(&mut &stream[..]).is_err(), "{what}");
        }
    }
}
