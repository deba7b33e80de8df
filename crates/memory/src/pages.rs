//! The pages of one region: runs of 4 KiB pages, taken and given back, adjacent free runs joined.
//!
//! Two-level segregated fit (M. Masmano et al., "TLSF", ECRTS 2004) over pages: free runs hang in lists by size class, a
//! bitmap tells which lists are not empty, and both ends of a run know its length. Taking and giving are constant time.
//! All of it lies outside the registered memory, at 12 bytes to a page.

use crate::size_class;

/// Bytes of a page: an eighth of the smallest object that gets pages of its own.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A region has at most 64 GiB.
const CLASSES: usize = 8 + (24 - 3) * 8 + 1;
const NONE: u32 = u32::MAX;
/// How many runs of the class below are tried when no larger class has one.
const TRIES: usize = 32;

/// What a page belongs to. For runs only the entries of the first and the last page are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A free run of so many pages.
    Free(u32),
    /// One large object of so many pages.
    Large(u32),
    /// The slab of this number. Every page of a slab says so.
    Slab(u32),
}

impl Owner {
    const KIND: u32 = 3 << 30;

    /// In four bytes.
    fn packed(self) -> u32 {
        let (kind, number) = match self {
            Owner::Free(pages) => (0, pages),
            Owner::Large(pages) => (1, pages),
            Owner::Slab(number) => (2, number),
        };
        assert!(number & Self::KIND == 0, "{self:?}");
        kind << 30 | number
    }

    fn unpacked(packed: u32) -> Self {
        let number = packed & !Self::KIND;
        match packed >> 30 {
            0 => Owner::Free(number),
            1 => Owner::Large(number),
            _ => Owner::Slab(number),
        }
    }
}

/// The pages of one region.
pub(crate) struct Pages {
    owners: Box<[u32]>,
    /// Of the first page of a free run: the next run's in its list, or `NONE`.
    next: Box<[u32]>,
    previous: Box<[u32]>,
    heads: Box<[u32; CLASSES]>,
    filled: [u64; CLASSES.div_ceil(64)],
    free: u32,
}

impl Pages {
    /// So many pages, all free.
    pub(crate) fn new(count: u32) -> Self {
        // Zeroed by the system page by page when first used, so that a large region costs nothing at once.
        let zeroed = || vec![0; count as usize].into_boxed_slice();
        let mut pages = Self {
            owners: zeroed(),
            next: zeroed(),
            previous: zeroed(),
            heads: Box::new([NONE; CLASSES]),
            filled: [0; _],
            free: 0,
        };
        if count > 0 {
            pages.insert(0, count);
            pages.free = count;
        }
        pages
    }

    /// How many pages there are.
    pub(crate) fn count(&self) -> u32 {
        self.owners.len() as u32
    }

    /// How many of them are free.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// How many pages can surely be taken at once.
    pub(crate) fn longest(&self) -> u32 {
        let highest = (0..self.filled.len()).rev().find(|word| self.filled[*word] != 0);
        highest.map_or(0, |word| size_class::units(word * 64 + self.filled[word].ilog2() as usize))
    }

    /// What a page belongs to; for the inside of a run the answer means nothing.
    pub(crate) fn owner(&self, page: u32) -> Owner {
        Owner::unpacked(self.owners[page as usize])
    }

    /// Takes a run of pages for one large object and returns the first.
    pub(crate) fn take_large(&mut self, count: u32) -> Option<u32> {
        let first = self.take(count)?;
        self.mark_ends(first, count, Owner::Large(count));
        Some(first)
    }

    /// Takes a run of pages for a slab and returns the first.
    pub(crate) fn take_slab(&mut self, count: u32, slab: u32) -> Option<u32> {
        let first = self.take(count)?;
        self.owners[first as usize..(first + count) as usize].fill(Owner::Slab(slab).packed());
        Some(first)
    }

    /// Gives a run back, joined with free ones beside it.
    pub(crate) fn give(&mut self, first: u32, count: u32) {
        let (mut start, mut end) = (first, first + count);
        if start > 0
            && let Owner::Free(before) = self.owner(start - 1)
        {
            start -= before;
            self.remove(start, before);
        }
        if end < self.count()
            && let Owner::Free(after) = self.owner(end)
        {
            self.remove(end, after);
            end += after;
        }
        self.insert(start, end - start);
        self.free += count;
    }

    fn take(&mut self, count: u32) -> Option<u32> {
        let first = self.find(count)?;
        let Owner::Free(length) = self.owner(first) else { unreachable!("a run in a list is free") };
        self.remove(first, length);
        if length > count {
            self.insert(first + count, length - count);
        }
        self.free -= count;
        Some(first)
    }

    /// A free run of at least so many pages.
    fn find(&self, count: u32) -> Option<u32> {
        let class = size_class::holding(count);
        if class >= CLASSES {
            return None;
        }
        let mut bits = self.filled[class / 64] & (!0 << (class % 64));
        for word in class / 64..self.filled.len() {
            if word > class / 64 {
                bits = self.filled[word];
            }
            if bits != 0 {
                return Some(self.heads[word * 64 + bits.trailing_zeros() as usize]);
            }
        }
        let below = class.checked_sub(1)?;
        let runs =
            std::iter::successors(Some(self.heads[below]), |run| self.next.get(*run as usize).copied())
                .take_while(|run| *run != NONE);
        runs.take(TRIES).find(|run| match self.owner(*run) {
            Owner::Free(length) => length >= count,
            _ => false,
        })
    }

    fn mark_ends(&mut self, first: u32, count: u32, owner: Owner) {
        let entry = owner.packed();
        self.owners[first as usize] = entry;
        self.owners[(first + count - 1) as usize] = entry;
    }

    fn insert(&mut self, first: u32, count: u32) {
        self.mark_ends(first, count, Owner::Free(count));
        let class = size_class::filled_by(count);
        let next = std::mem::replace(&mut self.heads[class], first);
        self.next[first as usize] = next;
        self.previous[first as usize] = NONE;
        if next != NONE {
            self.previous[next as usize] = first;
        }
        self.filled[class / 64] |= 1 << (class % 64);
    }

    fn remove(&mut self, first: u32, count: u32) {
        let class = size_class::filled_by(count);
        let (next, previous) = (self.next[first as usize], self.previous[first as usize]);
        match previous {
            NONE => self.heads[class] = next,
            previous => self.next[previous as usize] = next,
        }
        if next != NONE {
            self.previous[next as usize] = previous;
        }
        if self.heads[class] == NONE {
            self.filled[class / 64] &= !(1 << (class % 64));
        }
    }

    /// Walks over all runs in order, and panics when the lists do not hold exactly the free ones.
    ///
    /// `slab_pages` says how many pages a slab has.
    pub(crate) fn audit(&self, slab_pages: impl Fn(u32) -> u32, mut visit: impl FnMut(u32, Owner)) {
        let (mut page, mut free_pages, mut free_runs, mut after_free) = (0, 0, 0, false);
        while page < self.count() {
            let owner = self.owner(page);
            visit(page, owner);
            let length = match owner {
                Owner::Free(pages) => {
                    assert!(!after_free, "free runs beside each other at page {page}");
                    (free_pages, free_runs) = (free_pages + pages, free_runs + 1);
                    pages
                }
                Owner::Large(pages) => pages,
                Owner::Slab(slab) => slab_pages(slab),
            };
            assert!(
                length > 0 && self.owner(page + length - 1) == owner,
                "the ends of the run at {page} disagree"
            );
            after_free = matches!(owner, Owner::Free(_));
            page += length;
        }
        assert_eq!((page, free_pages), (self.count(), self.free), "pages in all, and free");
        let mut listed = 0;
        for class in 0..CLASSES {
            assert_eq!(self.filled[class / 64] >> (class % 64) & 1 == 1, self.heads[class] != NONE);
            let mut run = self.heads[class];
            while run != NONE {
                assert!(
                    matches!(self.owner(run), Owner::Free(pages) if size_class::filled_by(pages) == class)
                );
                (listed, run) = (listed + 1, self.next[run as usize]);
                assert!(listed <= free_runs, "more runs in lists than are free");
            }
        }
        assert_eq!(listed, free_runs, "free runs in lists");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn runs_never_overlap_and_join_again(steps in proptest::collection::vec((0u32..70, 0usize..64), 1..200)) {
            let mut pages = Pages::new(1000);
            let mut taken: Vec<(u32, u32)> = Vec::new();
            for (count, index) in steps {
                if count == 0 || taken.len() > 40 {
                    if !taken.is_empty() {
                        let (first, count) = taken.swap_remove(index % taken.len());
                        pages.give(first, count);
                    }
                } else if let Some(first) = pages.take_large(count) {
                    for (other, length) in &taken {
                        proptest::prop_assert!(first + count <= *other || other + length <= first);
                    }
                    taken.push((first, count));
                } else {
                    proptest::prop_assert!(pages.longest() < count);
                }
                pages.audit(|_| unreachable!(), |_, _| ());
                let used: u32 = taken.iter().map(|(_, count)| count).sum();
                proptest::prop_assert_eq!(pages.free(), 1000 - used);
            }
            for (first, count) in taken.drain(..) {
                pages.give(first, count);
            }
            proptest::prop_assert_eq!(pages.owner(0), Owner::Free(1000));
        }
    }
}
