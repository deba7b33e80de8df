//! The ring: messages from one producer to one consumer through memory that both may store to.
//!
//! A message starts on a cache line of its own, with its header in the first word and the payload behind it, so that a
//! small message is one transfer of one line. A header of zero means that there is no message yet. The consumer polls
//! the header at its own position and nothing else.
//!
//! Why no stale byte is ever taken for a header: before the producer publishes a message of `n` lines at position `p`
//! (by storing its header, release), it stores zero in the first word of line `p + n`. The consumer looks at line `p + n`
//! only after it saw the header at `p` (acquire), so it sees that zero or something newer, and the only newer thing that
//! is ever stored in this word before the consumer has passed it is the header of the next message. So a message needs
//! `n + 1` free lines: the next header's line must have been consumed too. The ring starts as zeroes.
//!
//! Why nothing is overwritten while it is read: the consumer publishes its position (release) after it has copied the
//! payload, and the producer loads it (acquire) before it uses the lines again.
//!
//! Neither side trusts the other. A header is loaded once and then checked; the position that the consumer publishes
//! must not run backwards or ahead of the producer.

use super::word::Word;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Words per line. The model checker explores smaller lines.
pub(crate) const LINE_WORDS: usize = if cfg!(loom) { 2 } else { 8 };
/// Bytes per line.
pub(crate) const LINE_BYTES: usize = LINE_WORDS * 8;
/// Words before the data: the line of the consumer's position, the line of its verdict (which the producer looks at
/// often and which hardly ever changes), each with one of distance, since processors fetch lines in pairs.
pub(crate) const HEAD_WORDS: usize = 4 * LINE_WORDS;
/// Where the verdict is.
const VERDICT: usize = 2 * LINE_WORDS;

/// The words of a ring.
pub(crate) struct Ring<'a, W> {
    /// How many lines were consumed, and the consumer's verdict. Only the consumer stores here.
    head: &'a [W],
    /// The messages; a power of two words.
    pub(crate) data: &'a [W],
}

impl<'a, W: Word> Ring<'a, W> {
    /// A ring of `lines` lines (a power of two) in the first words of a mapping.
    #[inline(always)]
    pub(crate) fn new(words: &'a [W], lines: u64) -> Self {
        let (head, rest) = words.split_at(HEAD_WORDS);
        Self { head, data: &rest[..lines as usize * LINE_WORDS] }
    }

    #[inline(always)]
    fn lines(&self) -> u64 {
        (self.data.len() / LINE_WORDS) as u64
    }

    /// The first word of a line.
    #[inline(always)]
    pub(crate) fn word_of(&self, line: u64) -> usize {
        (line as usize * LINE_WORDS) & (self.data.len() - 1)
    }

    #[inline(always)]
    fn header(&self, line: u64) -> &W {
        &self.data[self.word_of(line)]
    }

    /// What the consumer has to say to the producer. Acquire: its position is at least what it was when it said so.
    #[inline]
    pub(crate) fn verdict(&self) -> u64 {
        self.head[VERDICT].load(Acquire)
    }

    /// Says something to the producer, for good.
    pub(crate) fn set_verdict(&self, verdict: u64) {
        self.head[VERDICT].store(verdict, Release);
    }
}

/// How many lines a message takes.
#[inline(always)]
pub(crate) fn lines_of(payload_bytes: usize) -> u64 {
    (8 + payload_bytes).div_ceil(LINE_BYTES) as u64
}

/// The other side broke the rules of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation;

/// The producer's private state.
#[derive(Debug, Default)]
pub(crate) struct Producer {
    /// Lines published since the start.
    position: u64,
    /// Lines that the consumer was last seen to have consumed.
    consumed: u64,
}

impl Producer {
    /// Where the next message starts.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Whether there is room for a message of so many lines.
    #[inline]
    pub(crate) fn reserve<W: Word>(&mut self, ring: &Ring<'_, W>, lines: u64) -> Result<bool, Violation> {
        let end = self.position + lines + 1;
        Ok(end - self.consumed <= ring.lines() || end - self.consumed(ring)? <= ring.lines())
    }

    /// Publishes a message whose room was reserved and whose payload was stored.
    #[inline]
    pub(crate) fn publish<W: Word>(&mut self, ring: &Ring<'_, W>, lines: u64, header: u64) {
        debug_assert!(header != 0);
        ring.header(self.position + lines).store(0, Relaxed);
        // Release: the payload and the zero behind it come first.
        ring.header(self.position).store(header, Release);
        self.position += lines;
    }

    /// What [`Producer::publish`] must not be: the model checker shows that this loses the ring.
    #[cfg(all(test, loom))]
    pub(crate) fn publish_without_zero<W: Word>(&mut self, ring: &Ring<'_, W>, lines: u64, header: u64) {
        ring.header(self.position).store(header, Release);
        self.position += lines;
    }

    /// Looks how many lines were consumed.
    #[inline]
    pub(crate) fn consumed<W: Word>(&mut self, ring: &Ring<'_, W>) -> Result<u64, Violation> {
        // Acquire: the consumer has loaded what lies before this position.
        let consumed = ring.head[0].load(Acquire);
        if consumed < self.consumed || consumed > self.position {
            return Err(Violation);
        }
        self.consumed = consumed;
        Ok(consumed)
    }
}

/// The consumer's private state.
#[derive(Debug, Default)]
pub(crate) struct Consumer {
    /// Lines consumed since the start.
    position: u64,
}

impl Consumer {
    /// Where the next message starts.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The header of the next message, or zero.
    #[inline(always)]
    pub(crate) fn peek<W: Word>(&self, ring: &Ring<'_, W>) -> u64 {
        // Acquire: the payload is loaded after it.
        ring.header(self.position).load(Acquire)
    }

    /// Goes past a message.
    #[inline]
    pub(crate) fn advance(&mut self, lines: u64) {
        self.position += lines;
    }

    /// Lets the producer use again what lies before the position.
    #[inline]
    pub(crate) fn publish<W: Word>(&self, ring: &Ring<'_, W>) {
        // Release: the payloads were loaded before.
        ring.head[0].store(self.position, Release);
    }
}
