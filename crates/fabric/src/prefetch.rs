//! Prefetching, in two steps: to find out where, and to begin. A prefetch stays among the instructions under way until
//! the page of its line is known. In a large table that is a walk through page tables in DRAM, and only prefetches with
//! little code between them walk side by side. So whoever has many places finds all of them first.

use std::ptr::null;

const LINE_BYTES: usize = 64;
/// Beyond this the processor's own prefetcher follows along.
const BYTES_MAX: usize = 32 * LINE_BYTES;
/// How many ranges are prefetched side by side where pages must be looked for: fewer overlap fewer walks, more ask for
/// more lines at once than a core can wait for. By measurement.
const GROUP: usize = 8;
/// Memory up to this size has its pages in the TLB, about a thousand of 2 MiB, and ranges are best prefetched when found.
const REACH_BYTES: usize = 1 << 30;

/// A range of memory that may be prefetched. It is an address and no reference: the memory may be gone when the prefetch
/// starts, which then does nothing.
#[derive(Clone, Copy, Debug)]
pub struct Prefetch {
    first: *const u8,
    /// How many bytes follow the first.
    more: usize,
}

impl Prefetch {
    /// Nothing to prefetch.
    pub const NONE: Self = Self { first: null(), more: 0 };

    /// Of the bytes from `offset` on, counted from `base`.
    #[inline(always)]
    pub fn of(base: *const u8, offset: usize, bytes: usize) -> Self {
        match bytes.min(BYTES_MAX).checked_sub(1) {
            Some(more) => Self { first: base.wrapping_add(offset), more },
            None => Self::NONE,
        }
    }

    /// Asks the processor to fetch the lines.
    #[inline(always)]
    pub fn start(self) {
        let before = self.first as usize % LINE_BYTES;
        let line = self.first.wrapping_sub(before);
        // Counted, so that it ends also where addresses do.
        let mut offset = 0;
        loop {
            fetch(line.wrapping_add(offset));
            offset += LINE_BYTES;
            if offset > before + self.more {
                return;
            }
        }
    }
}

/// Ranges that are found one by one and prefetched side by side, in groups.
#[derive(Debug)]
pub struct Prefetches {
    ranges: [Prefetch; GROUP],
    count: usize,
    group: usize,
}

impl Prefetches {
    /// For ranges that lie anywhere in so many bytes.
    #[inline]
    pub fn within(bytes: usize) -> Self {
        let group = if bytes > REACH_BYTES { GROUP } else { 1 };
        Self { ranges: [Prefetch::NONE; GROUP], count: 0, group }
    }

    /// Adds a range, and prefetches a group if this makes one.
    #[inline(always)]
    pub fn push(&mut self, range: Prefetch) {
        self.ranges[self.count] = range;
        self.count += usize::from(!range.first.is_null());
        if self.count == self.group {
            self.start();
        }
    }

    /// Prefetches those that are left.
    #[inline(always)]
    pub fn start(&mut self) {
        self.ranges[..self.count].iter().for_each(|range| range.start());
        self.count = 0;
    }
}

/// Asks the processor to fetch the cache line at an address.
#[inline(always)]
fn fetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect but on caches, and is allowed at any address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Asks the processor to take the cache line of a word from whoever has it, to be stored to. A store that finds its line
/// elsewhere holds up all stores behind it, which leave a core one after the other.
#[inline(always)]
pub(crate) fn take(word: &std::sync::atomic::AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect but on caches; processors without it take it for a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) word, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) word, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = word;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_may_be_named() {
        for base in [null(), LINE_BYTES as *const u8, usize::MAX as *const u8] {
            for offset in [0, 1, 63, 4096, 1 << 40, usize::MAX] {
                for bytes in [0, 1, 64, 193, BYTES_MAX + 1, usize::MAX] {
                    Prefetch::of(base, offset, bytes).start();
                }
            }
        }
        Prefetch::NONE.start();
    }
}
