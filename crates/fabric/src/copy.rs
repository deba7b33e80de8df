//! Copies between words and bytes. Memory that races with other processes is only ever touched as atomic 64-bit words,
//! each source word once and in increasing order of addresses, so that aligned pieces of 8 bytes are never torn.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Who else stores to the bytes that share a word with the first or last byte of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Neighbours {
    /// Nobody: the word may be loaded, changed and stored.
    Quiet,
    /// Perhaps somebody: the word is exchanged by compare-and-swap.
    Busy,
}

/// Whether a READ samples and a WRITE stores in increasing order of addresses. On x86 every load and store is ordered so
/// anyway; naming it keeps the compiler from reordering and costs nothing. Elsewhere it would cost a barrier per word.
pub(crate) const IN_ORDER: bool = cfg!(target_arch = "x86_64");

/// Appends bytes to consecutive words.
pub(crate) struct Sink<'a> {
    words: &'a [AtomicU64],
    /// Words are taken modulo this plus one: a ring, or everything.
    mask: usize,
    index: usize,
    /// The word being filled; bytes not filled yet are zero.
    word: u64,
    /// How many bytes of it are behind us, kept ones included.
    filled: usize,
    /// How many of its first bytes are kept as they are in memory.
    kept: usize,
    neighbours: Neighbours,
}

impl<'a> Sink<'a> {
    /// Starts at byte `offset`.
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64], offset: usize, neighbours: Neighbours) -> Self {
        let kept = offset % 8;
        Self { words, mask: usize::MAX, index: offset / 8, word: 0, filled: kept, kept, neighbours }
    }

    /// Starts at word `index` of a ring, whose length is a power of two.
    #[inline]
    pub(crate) fn ring(words: &'a [AtomicU64], index: usize) -> Self {
        let mask = words.len() - 1;
        Self { words, mask, index, word: 0, filled: 0, kept: 0, neighbours: Neighbours::Quiet }
    }

    /// Appends the first `count` (1 to 8) bytes of a word whose other bytes are zero.
    #[inline]
    fn push(&mut self, bytes: u64, count: usize) {
        self.word |= bytes << (8 * self.filled);
        let filled = self.filled + count;
        if filled < 8 {
            self.filled = filled;
            return;
        }
        self.flush(8);
        self.word = if self.filled == 0 { 0 } else { bytes >> (8 * (8 - self.filled)) };
        self.filled = filled - 8;
    }

    /// Stores bytes `kept..end` of the current word and moves on.
    #[inline]
    fn flush(&mut self, end: usize) {
        let place = &self.words[self.index & self.mask];
        let fresh = low_bytes(end) & !low_bytes(self.kept);
        if fresh == u64::MAX {
            store(place, self.word);
        } else {
            blend(place, self.word, fresh, self.neighbours);
        }
        self.index += 1;
        self.kept = 0;
    }

    /// The next words, if so many follow each other without going round a ring.
    #[inline(always)]
    fn straight(&self, count: usize) -> Option<&'a [AtomicU64]> {
        let start = self.index & self.mask;
        self.words.get(start..start + count)
    }

    /// Appends bytes.
    #[inline(always)]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        if self.filled == 0
            && let Some(places) = self.straight(chunks.len())
        {
            copy_words_in(chunks, places);
            self.index += chunks.len();
        } else {
            for chunk in chunks {
                self.push(u64::from_le_bytes(*chunk), 8);
            }
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.push(u64::from_le_bytes(last), rest.len());
        }
    }

    /// Appends `count` bytes of other words, from byte `offset` on.
    #[inline]
    pub(crate) fn words(&mut self, source: &[AtomicU64], offset: usize, mut count: usize) {
        let mut index = offset / 8;
        let skipped = offset % 8;
        if skipped > 0 && count > 0 {
            let taken = count.min(8 - skipped);
            let word = load(&source[index]) >> (8 * skipped);
            self.push(word & low_bytes(taken), taken);
            index += 1;
            count -= taken;
        }
        let whole = &source[index..index + count / 8];
        if self.filled == 0
            && let Some(places) = self.straight(whole.len())
        {
            for (place, word) in places.iter().zip(whole) {
                store(place, load(word));
            }
            self.index += whole.len();
        } else {
            for word in whole {
                self.push(load(word), 8);
            }
        }
        if !count.is_multiple_of(8) {
            self.push(load(&source[index + count / 8]) & low_bytes(count % 8), count % 8);
        }
    }

    /// Appends zeroes.
    pub(crate) fn zeroes(&mut self, count: usize) {
        for _ in 0..count / 8 {
            self.push(0, 8);
        }
        if !count.is_multiple_of(8) {
            self.push(0, count % 8);
        }
    }

    /// Stores what is left; the last thing to be done. (By reference: moved, its fields would be loaded two at a time, and wait
    /// for all stores of the copy.)
    #[inline(always)]
    pub(crate) fn finish(&mut self) {
        if self.filled > self.kept {
            self.flush(self.filled);
        }
    }
}

#[inline(always)]
fn load(word: &AtomicU64) -> u64 {
    word.load(if IN_ORDER { Acquire } else { Relaxed })
}

#[inline(always)]
fn store(place: &AtomicU64, word: u64) {
    place.store(word, if IN_ORDER { Release } else { Relaxed });
}

/// A mask of the first `count` (0 to 8) bytes of a word.
#[inline(always)]
fn low_bytes(count: usize) -> u64 {
    if count >= 8 { u64::MAX } else { (1 << (8 * count)) - 1 }
}

/// Replaces the masked bytes of a word.
#[inline]
fn blend(place: &AtomicU64, bytes: u64, mask: u64, neighbours: Neighbours) {
    let mixed = |old: u64| (old & !mask) | (bytes & mask);
    match neighbours {
        Neighbours::Quiet => store(place, mixed(load(place))),
        Neighbours::Busy => {
            let mut old = load(place);
            while let Err(seen) = place.compare_exchange_weak(old, mixed(old), Release, Relaxed) {
                old = seen;
            }
        }
    }
}

/// Copies whole words in.
#[inline(always)]
pub(crate) fn copy_words_in(source: &[[u8; 8]], into: &[AtomicU64]) {
    for (place, word) in into.iter().zip(source) {
        store(place, u64::from_le_bytes(*word));
    }
}

/// Copies whole words out; both have as many.
#[inline(always)]
pub(crate) fn copy_words_out(source: &[AtomicU64], into: &mut [[u8; 8]]) {
    // Four at a time: most of what is read is a row of four words, or a record of twice that and more.
    let (fours, ones) = into.as_chunks_mut::<4>();
    let (from_fours, from_ones) = source.as_chunks::<4>();
    for (chunks, words) in fours.iter_mut().zip(from_fours) {
        for (chunk, word) in chunks.iter_mut().zip(words) {
            *chunk = load(word).to_le_bytes();
        }
    }
    for (chunk, word) in ones.iter_mut().zip(from_ones) {
        *chunk = load(word).to_le_bytes();
    }
}

/// Copies words to plain bytes.
#[inline(always)]
pub(crate) fn copy_out(source: &[AtomicU64], offset: usize, into: &mut [u8]) {
    let mut index = offset / 8;
    let skipped = offset % 8;
    let mut rest = into;
    if skipped > 0 && !rest.is_empty() {
        let taken = rest.len().min(8 - skipped);
        let (head, tail) = rest.split_at_mut(taken);
        head.copy_from_slice(&load(&source[index]).to_le_bytes()[skipped..skipped + taken]);
        rest = tail;
        index += 1;
    }
    let (chunks, last) = rest.as_chunks_mut::<8>();
    let end = index + chunks.len();
    copy_words_out(&source[index..end], chunks);
    if !last.is_empty() {
        last.copy_from_slice(&load(&source[end]).to_le_bytes()[..last.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(bytes: &[u8]) -> Vec<AtomicU64> {
        bytes.chunks(8).map(|chunk| AtomicU64::new(u64::from_le_bytes(chunk.try_into().unwrap()))).collect()
    }

    fn bytes(words: &[AtomicU64]) -> Vec<u8> {
        words.iter().flat_map(|word| load(word).to_le_bytes()).collect()
    }

    /// Every alignment of source and target, every length up to five words, both kinds of neighbours.
    #[test]
    fn copies_every_alignment_and_keeps_the_neighbours() {
        let source: Vec<u8> = (1..=64).collect();
        for from in 0..16 {
            for to in 0..16 {
                for count in 0..40 {
                    for neighbours in [Neighbours::Quiet, Neighbours::Busy] {
                        let mut expected = vec![0xEE; 64];
                        expected[to..to + count].copy_from_slice(&source[from..from + count]);

                        let target = words(&[0xEE; 64]);
                        let mut sink = Sink::new(&target, to, neighbours);
                        sink.words(&words(&source), from, count);
                        sink.finish();
                        assert_eq!(bytes(&target), expected, "words from {from} to {to}, {count} bytes");

                        let target = words(&[0xEE; 64]);
                        let mut sink = Sink::new(&target, to, neighbours);
                        sink.bytes(&source[from..from + count / 3]);
                        sink.bytes(&source[from + count / 3..from + count]);
                        sink.finish();
                        assert_eq!(bytes(&target), expected, "bytes from {from} to {to}, {count} bytes");

                        let mut out = vec![0xEE; count];
                        copy_out(&words(&source), from, &mut out);
                        assert_eq!(out, source[from..from + count]);
                    }
                }
            }
        }
    }

    #[test]
    fn a_ring_wraps() {
        let ring = words(&[0xEE; 32]);
        let mut sink = Sink::ring(&ring, 3);
        sink.bytes(&[1, 2, 3, 4, 5, 6, 7]);
        sink.words(&words(&[9; 16]), 0, 5);
        sink.zeroes(1);
        sink.finish();
        let mut expected = vec![0xEE; 32];
        expected[24..32].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 9]);
        expected[0..5].copy_from_slice(&[9, 9, 9, 9, 0]);
        assert_eq!(bytes(&ring), expected);
    }
}
