//! Slots: memory into which a peer WRITEs frames, or from which it READs them, and how it shows that a frame is whole.
//!
//! A frame lies at the right end of its slot (Kalia §4.2), so that what is polled is always at the same place:
//!
//! `... | frame | zeroes to a whole word | mark |` and, where order is not promised, `| checksum` behind it.
//!
//! The mark is never zero, differs from the one before it in its slot, and says how long the frame is. A receiver that
//! finds a mark that it has not taken yet copies the frame out, once, and looks at nothing but the copy from then on:
//! whoever may write to the slot may do so at any time.
//!
//! **What tears, and what detects it.** A WRITE becomes visible piece by piece. Where its bytes do so in increasing order
//! ([`write_in_order`](locus_fabric::Properties::write_in_order), and words whole), the mark comes last, so a frame whose
//! mark is there is whole; Kalia §4.2 relies on that with the key. Elsewhere, and whenever the slot is READ while its
//! owner writes it, a checksum (CRC-64) covers frame and mark: a mixture of two frames, or of a frame and what was there
//! before, fails it. The mark is part of it, so that a whole frame that was taken before is not taken again with a new
//! mark that has come early. What fails is looked at again, at most [`TRIES_MAX`] times: then its sender broke the rules,
//! or, over UC, lost a part, and sends it again with another mark.

use crate::{FrameError, frame::Frame, sessions::stride};
use locus_fabric::{FabricError, Nic, PagePolicy, Prefetch, Properties, Region};
use locus_memory::checksum;
use std::{cell::Cell, sync::atomic::Ordering};

/// How often a frame that is not whole is looked at again. A WRITE takes microseconds to become visible, and a look takes
/// tens of nanoseconds at least.
pub(crate) const TRIES_MAX: u32 = 1 << 16;
/// What a mark and a checksum take at the end of a slot.
pub(crate) const TAIL_BYTES_MAX: usize = 16;
const MARK_BYTES: usize = 8;

/// Where frames and marks lie in a region of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    slot_bytes: usize,
    /// The longest frame; slots are rounded up, and buffers are not.
    frame_bytes_max: usize,
    /// How many: a power of two, since a sequence names one.
    slots: usize,
    /// Whether a checksum follows the mark.
    pub checked: bool,
    /// What mark and checksum take.
    tail_bytes: usize,
}

/// What is told of a frame in its slot: never zero, since no frame is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(pub u64);

impl Mark {
    /// Of a frame: `attempt` tells repetitions of one apart.
    #[inline]
    pub fn new(sequence: u64, attempt: u8, bytes: usize) -> Self {
        Self(sequence << 24 | u64::from(attempt) << 16 | bytes as u64 & 0xffff)
    }

    /// The length of the frame.
    #[inline]
    fn bytes(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

impl Layout {
    /// Slots for a window of frames of up to so many bytes.
    pub fn new(window: usize, frame_bytes: usize, checked: bool) -> Self {
        let slot_bytes = (frame_bytes.next_multiple_of(8) + TAIL_BYTES_MAX).next_multiple_of(64);
        let tail_bytes = if checked { TAIL_BYTES_MAX } else { MARK_BYTES };
        Self { slot_bytes, frame_bytes_max: frame_bytes, slots: stride(window) as usize, checked, tail_bytes }
    }

    /// Whether WRITEs to memory behind this NIC need a checksum.
    pub fn needs_checksum(properties: &Properties) -> bool {
        !properties.write_in_order || properties.read_atomicity_bytes < 8
    }

    /// The length of the region.
    pub fn region_bytes(&self) -> usize {
        self.slots * self.slot_bytes
    }

    /// What a frame takes with all that belongs to it.
    pub fn bytes_of(&self, frame_bytes: usize) -> usize {
        frame_bytes.next_multiple_of(8) + self.tail_bytes
    }

    /// The room for one frame and what belongs to it.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// The slot of a sequence.
    #[inline]
    pub fn slot_of(&self, sequence: u64) -> usize {
        sequence as usize & (self.slots - 1)
    }

    /// Where a slot ends.
    pub fn end(&self, slot: usize) -> usize {
        (slot + 1) * self.slot_bytes
    }

    /// The slot in which an offset lies.
    pub fn slot_at(&self, offset: usize) -> usize {
        offset / self.slot_bytes
    }

    /// Where its mark is, in words.
    #[inline]
    fn mark_word(&self, slot: usize) -> usize {
        (self.end(slot) - self.tail_bytes) / 8
    }

    /// Whether a mark's length makes sense.
    #[inline]
    fn fits(&self, mark: Mark) -> bool {
        (1..=self.frame_bytes_max).contains(&mark.bytes())
    }

    /// Puts a frame, its mark and its checksum into one piece of memory of [`Layout::bytes_of`] the frame.
    ///
    /// # Panics
    /// When it has another length, or frames are not checked: a bug of the caller.
    pub fn assemble(&self, frame: &Frame<'_>, sequence: u64, attempt: u8, into: &mut [u8]) {
        assert!(self.checked);
        let bytes = frame.bytes();
        let (covered, sum) = into.split_last_chunk_mut().expect("room for a checksum");
        let (words, mark) = covered.split_last_chunk_mut().expect("room for a mark");
        // The frame does not fill its last word, perhaps.
        *words.last_chunk_mut().expect("no frame is empty") = [0; 8];
        frame.copy_to(&mut words[..bytes]);
        *mark = Mark::new(sequence, attempt, bytes).0.to_le_bytes();
        *sum = checksum(covered).to_le_bytes();
    }

    /// The frame in the copy of a slot's right end, whose mark it is, if it is whole.
    fn verified(&self, copy: &[u8], mark: Mark) -> bool {
        let Some((covered, sum)) = copy.split_last_chunk::<8>() else { return false };
        covered.ends_with(&mark.0.to_le_bytes()) && checksum(covered) == u64::from_le_bytes(*sum)
    }

    /// Looks for a frame in bytes that were READ from the right end of a slot: its length, if it is whole, or how many bytes
    /// have to be READ.
    pub fn find(&self, bytes: &[u8], taken: Mark) -> Fetched {
        let Some(tail) = bytes.len().checked_sub(TAIL_BYTES_MAX) else { return Fetched::Nothing };
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[tail..tail + 8]);
        let mark = Mark(u64::from_le_bytes(word));
        if mark == taken || !self.fits(mark) {
            return Fetched::Nothing;
        }
        let whole = self.bytes_of(mark.bytes());
        match bytes.len().checked_sub(whole) {
            None => Fetched::Longer(whole),
            Some(start) if self.verified(&bytes[start..], mark) => {
                Fetched::Frame { start, bytes: mark.bytes(), mark }
            }
            Some(_) => Fetched::Nothing,
        }
    }
}

/// What READ bytes hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// No whole frame that is new.
    Nothing,
    /// A frame, perhaps: so many bytes have to be READ.
    Longer(usize),
    /// A frame.
    Frame { start: usize, bytes: usize, mark: Mark },
}

/// What a look at a slot brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing new.
    Nothing,
    /// A frame of so many bytes, copied out.
    Frame(usize),
    /// What no honest peer writes.
    Broken(FrameError),
}

/// Slots of this process that a peer WRITEs frames into.
pub(crate) struct Arrivals<N: Nic> {
    pub region: N::Region,
    pub layout: Layout,
    /// For each slot, the mark of the frame that was taken last.
    taken: Box<[Cell<u64>]>,
    /// For each slot, the mark that was there when somebody last looked before sleeping.
    seen: Box<[Cell<u64>]>,
    /// The slot in which the next frame is expected.
    next: Cell<usize>,
    /// How often the present frame was found not to be whole.
    tries: Cell<u32>,
    /// Whether a part of a message may be lost.
    lossy: bool,
}

impl<N: Nic> Arrivals<N> {
    /// Slots of which `window` are used.
    pub fn new(nic: &N, layout: Layout, window: usize, lossy: bool) -> Result<Self, FabricError> {
        let region =
            nic.register(layout.region_bytes(), locus_fabric::Access::RemoteWrite, PagePolicy::Base)?;
        let marks = || vec![Cell::new(0); window].into();
        let (taken, seen, next, tries) = (marks(), marks(), Cell::new(0), Cell::new(0));
        Ok(Self { region, layout, taken, seen, next, tries, lossy })
    }

    /// The mark of a slot, if its frame was not taken yet. Acquire: the frame is looked at after its mark.
    #[inline]
    fn fresh(&self, slot: usize) -> Option<Mark> {
        let mark = self.region.words()[self.layout.mark_word(slot)].load(Ordering::Acquire);
        (mark != self.taken[slot].get()).then_some(Mark(mark))
    }

    /// Whether there is something new where the next frame is expected.
    #[inline]
    pub fn expects(&self) -> bool {
        self.fresh(self.next.get()).is_some()
    }

    /// Whether there is something new in a slot.
    #[inline(always)]
    pub fn is_there(&self, slot: usize) -> bool {
        self.fresh(slot).is_some()
    }

    /// Whether there is something new in any slot.
    pub fn has_any(&self) -> bool {
        (0..self.taken.len()).any(|slot| self.fresh(slot).is_some())
    }

    /// Looks for the next frame where it is expected, slot after slot.
    #[inline]
    pub fn look_ahead(&self, into: &mut [u8]) -> Look {
        self.look(self.next.get(), into)
    }

    /// Looks for frames in all slots, beginning with the one that is expected: of requests that were lost, whose successors
    /// came, and of repeated ones.
    pub fn look_around(&self, into: &mut [u8]) -> Look {
        let next = self.next.get();
        for slot in (next..self.taken.len()).chain(0..next) {
            let look = self.look(slot, into);
            if look != Look::Nothing {
                return look;
            }
        }
        Look::Nothing
    }

    /// Looks at a slot that the peer names.
    pub fn look_named(&self, slot: usize, into: &mut [u8]) -> Look {
        if slot < self.taken.len() { self.look(slot, into) } else { Look::Nothing }
    }

    /// Looks at a slot, and copies its frame out if it is new.
    #[inline(always)]
    pub fn look(&self, slot: usize, into: &mut [u8]) -> Look {
        let Some(mark) = self.fresh(slot) else { return Look::Nothing };
        if !self.layout.fits(mark) {
            return self.does_not_fit(slot, mark);
        }
        // Whole words: what fills the last one up, and, where it is needed, the tail are copied with the frame.
        let words = mark.bytes().div_ceil(8);
        let first = self.layout.mark_word(slot) - words;
        let into = into.as_chunks_mut().0;
        if !self.layout.checked {
            self.region.copy_words_out(first, &mut into[..words]);
        } else {
            let whole = &mut into[..words + TAIL_BYTES_MAX / 8];
            self.region.copy_words_out(first, whole);
            if !self.layout.verified(whole.as_flattened(), mark) {
                return self.not_whole(slot, mark);
            }
        }
        self.taken[slot].set(mark.0);
        self.tries.set(0);
        let next = if slot + 1 == self.taken.len() { 0 } else { slot + 1 };
        self.next.set(next);
        // It is looked at soon, and comes while this frame is handled. Not those behind it: what their sender has yet to
        // write would be taken from its cache.
        Prefetch::of(self.region.words().as_ptr().cast(), 8 * self.layout.mark_word(next), 8).start();
        Look::Frame(mark.bytes())
    }

    #[cold]
    fn does_not_fit(&self, slot: usize, mark: Mark) -> Look {
        // Where words are not whole, a part of the mark may be missing yet.
        if self.layout.checked {
            return self.not_whole(slot, mark);
        }
        self.taken[slot].set(mark.0);
        Look::Broken(FrameError::Mark { bytes: mark.bytes(), slot_bytes: self.layout.slot_bytes })
    }

    #[cold]
    fn not_whole(&self, slot: usize, mark: Mark) -> Look {
        let tries = self.tries.get() + 1;
        self.tries.set(tries);
        if tries < TRIES_MAX {
            return Look::Nothing;
        }
        self.tries.set(0);
        self.taken[slot].set(mark.0);
        if self.lossy { Look::Nothing } else { Look::Broken(FrameError::Torn(mark.bytes())) }
    }

    /// Whether a mark has come since this was asked last; what lies there and nobody takes counts once.
    pub fn has_news(&self) -> bool {
        let mut news = false;
        for (slot, seen) in self.seen.iter().enumerate() {
            let mark = self.region.words()[self.layout.mark_word(slot)].load(Ordering::Acquire);
            news |= seen.replace(mark) != mark && mark != self.taken[slot].get();
        }
        news
    }
}
