//! The word that the ring and the sleep flag are made of: the processor's in production, loom's under the model checker.

use std::sync::atomic::Ordering;

/// An atomic word of 64 bits.
pub(crate) trait Word {
    /// Loads it.
    fn load(&self, ordering: Ordering) -> u64;
    /// Stores it.
    fn store(&self, word: u64, ordering: Ordering);
    /// A fence of the same world.
    fn fence(ordering: Ordering);
}

impl Word for std::sync::atomic::AtomicU64 {
    #[inline(always)]
    fn load(&self, ordering: Ordering) -> u64 {
        Self::load(self, ordering)
    }

    #[inline(always)]
    fn store(&self, word: u64, ordering: Ordering) {
        Self::store(self, word, ordering);
    }

    #[inline(always)]
    fn fence(ordering: Ordering) {
        std::sync::atomic::fence(ordering);
    }
}

#[cfg(all(test, loom))]
impl Word for loom::sync::atomic::AtomicU64 {
    fn load(&self, ordering: Ordering) -> u64 {
        Self::load(self, ordering)
    }

    fn store(&self, word: u64, ordering: Ordering) {
        Self::store(self, word, ordering);
    }

    fn fence(ordering: Ordering) {
        loom::sync::atomic::fence(ordering);
    }
}
