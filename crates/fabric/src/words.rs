//! The words of a region, for whoever also keeps their mapping.

use crate::{
    copy::{self, Neighbours, Sink},
    mapping::Mapping,
};
use std::{
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

/// The methods of [`Region`](crate::Region) that are about its words, for regions that have `words: Words`.
macro_rules! words_of_region {
    () => {
        fn bytes(&self) -> usize {
            self.words.bytes()
        }

        #[inline(always)]
        fn words(&self) -> &[std::sync::atomic::AtomicU64] {
            self.words.all()
        }

        #[inline(always)]
        fn store(&self, index: usize, word: u64) {
            self.words.store(index, word);
        }

        #[inline]
        unsafe fn slice(&self, offset: usize, bytes: usize) -> &[u8] {
            // SAFETY: as the caller vouches.
            unsafe { self.words.slice(offset, bytes) }
        }

        #[inline]
        fn copy_out(&self, offset: usize, into: &mut [u8]) {
            self.words.copy_out(offset, into);
        }

        #[inline]
        fn copy_in(&self, offset: usize, from: &[u8]) {
            self.words.copy_in(offset, from);
        }
    };
}
pub(crate) use words_of_region;

/// Where the words of a mapping are. Kept beside the mapping's owner, so that a load needs no second look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    base: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the memory is the process's, not a thread's, and all access goes through atomic words, except for `slice`,
// whose caller vouches for it.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Of a mapping.
    ///
    /// # Safety
    /// The mapping outlives every use of what is returned.
    pub(crate) unsafe fn of(mapping: &Mapping) -> Self {
        Self { base: mapping.base(), count: mapping.bytes() / 8 }
    }

    /// Their length in bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> usize {
        self.count * 8
    }

    /// All of them.
    #[inline(always)]
    pub(crate) fn all(&self) -> &[AtomicU64] {
        // SAFETY: the mapping lives, as whoever made this vouched; see `Mapping::words`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.count) }
    }

    /// Stores one, relaxed.
    #[inline(always)]
    pub(crate) fn store(&self, index: usize, word: u64) {
        self.all()[index].store(word, Ordering::Relaxed);
    }

    /// Panics when a range is outside, before anything is touched.
    #[inline]
    fn check(&self, offset: usize, bytes: usize) {
        let end = offset.checked_add(bytes).filter(|&end| end <= self.bytes());
        assert!(end.is_some(), "bytes {offset}+{bytes} of a region of {}", self.bytes());
    }

    /// Borrows bytes.
    ///
    /// # Safety
    /// As with [`Region::slice`](crate::Region::slice).
    #[inline]
    pub(crate) unsafe fn slice(&self, offset: usize, bytes: usize) -> &[u8] {
        self.check(offset, bytes);
        // SAFETY: the range is inside the mapping, which lives; the caller vouches that nobody stores to it meanwhile.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast::<u8>().add(offset), bytes) }
    }

    /// Copies bytes out.
    #[inline]
    pub(crate) fn copy_out(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        copy::copy_out(self.all(), offset, into);
    }

    /// Copies bytes in.
    #[inline]
    pub(crate) fn copy_in(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        let mut sink = Sink::new(self.all(), offset, Neighbours::Quiet);
        sink.bytes(from);
        sink.finish();
    }
}
