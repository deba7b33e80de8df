//! Prefetching, in two steps: to find out where, and to begin. A prefetch stays among the instructions under way until
//! the page of its line is known. In a large table that is a walk through page tables in DRAM, and only prefetches with
//! little code between them walk side by side. So whoever has many places finds all of them first.

use std::ptr::null;

const LINE_BYTES: usize = 64;
/// Beyond this the processor's own prefetcher follows along.
const BYTES_MAX: usize = 32 * LINE_BYTES;

/// A range of memory that may be prefetched. It is an address and no reference: the memory may be gone when the prefetch
/// starts, which then does nothing.
#[derive(Clone, Copy, Debug)]
pub struct Prefetch {
    first: *const u8,
    last: *const u8,
}

impl Prefetch {
    /// Nothing to prefetch.
    pub const NONE: Self = Self { first: null(), last: null() };

    /// Of the bytes from `offset` on, counted from `base`.
    #[inline(always)]
    pub fn of(base: *const u8, offset: usize, bytes: usize) -> Self {
        let Some(end) = bytes.min(BYTES_MAX).checked_sub(1) else { return Self::NONE };
        let first = base.wrapping_add(offset);
        Self { first, last: first.wrapping_add(end) }
    }

    /// Asks the processor to fetch the lines. Ranges of up to three lines, which are most, take no branch that depends on
    /// their length.
    #[inline(always)]
    pub fn start(self) {
        let last = (self.last as usize).wrapping_sub(self.first as usize);
        fetch(self.first);
        fetch(self.first.wrapping_add(last.min(LINE_BYTES)));
        fetch(self.last);
        for offset in (2 * LINE_BYTES..last).step_by(LINE_BYTES) {
            fetch(self.first.wrapping_add(offset));
        }
    }
}

/// Up to `COUNT` ranges, found one by one and prefetched together.
#[derive(Debug)]
pub struct Prefetches<const COUNT: usize> {
    ranges: [Prefetch; COUNT],
    count: usize,
}

impl<const COUNT: usize> Default for Prefetches<COUNT> {
    fn default() -> Self {
        Self { ranges: [Prefetch::NONE; COUNT], count: 0 }
    }
}

impl<const COUNT: usize> Prefetches<COUNT> {
    /// Adds a range; one too many is left out.
    #[inline(always)]
    pub fn push(&mut self, range: Prefetch) {
        if let Some(place) = self.ranges.get_mut(self.count) {
            *place = range;
            self.count += usize::from(!range.first.is_null());
        }
    }

    /// Prefetches them all, and has none left.
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
