//! A region on the heap, which no peer can reach.

use locus_fabric::{Access, Pages, Region};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const PAGE_BYTES: usize = 4096;

/// Words of one page, aligned as a page is.
#[repr(C, align(4096))]
struct Page([AtomicU64; PAGE_BYTES / 8]);

/// A region on the heap, for tests. Clones share the memory.
#[derive(Clone)]
pub struct HeapRegion(Arc<[Page]>);

impl HeapRegion {
    /// Zeroed, rounded up to whole pages.
    pub fn new(bytes: usize) -> Self {
        let page = |_| Page(std::array::from_fn(|_| AtomicU64::new(0)));
        Self((0..bytes.div_ceil(PAGE_BYTES)).map(page).collect())
    }

    /// One aligned word of bytes.
    fn load(&self, index: usize) -> [u8; 8] {
        self.words()[index].load(Relaxed).to_le_bytes()
    }
}

impl Region for HeapRegion {
    fn bytes(&self) -> usize {
        self.0.len() * PAGE_BYTES
    }

    fn pages(&self) -> Pages {
        Pages::Base("memory of a test".into())
    }

    fn access(&self) -> Access {
        Access::Local
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: a page is nothing but its words (its size equals its alignment), and pages lie one behind the other.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * (PAGE_BYTES / 8)) }
    }

    fn store(&self, index: usize, word: u64) {
        self.words()[index].store(word, Relaxed);
    }

    unsafe fn slice(&self, offset: usize, bytes: usize) -> &[u8] {
        let words = &self.words()[offset / 8..(offset + bytes).div_ceil(8)];
        // SAFETY: these words hold the bytes, and the caller lets nobody store to them.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>().add(offset % 8), bytes) }
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) {
        for (byte, position) in into.iter_mut().zip(offset..) {
            *byte = self.load(position / 8)[position % 8];
        }
    }

    fn copy_in(&self, offset: usize, from: &[u8]) {
        for (byte, position) in from.iter().zip(offset..) {
            let mut word = self.load(position / 8);
            word[position % 8] = *byte;
            self.store(position / 8, u64::from_le_bytes(word));
        }
    }

    fn revoke(&self) {}
}

const _: () = assert!(size_of::<Page>() == PAGE_BYTES);
