//! The cache of queue-pair contexts on a NIC (Kalia §3.3, Mitchell §2.3): limited entries, and whoever was not used for
//! longest goes.

use std::collections::HashMap;

/// Which queue pairs a NIC has the state of at hand.
#[derive(Debug)]
pub(crate) struct ContextCache {
    entries: usize,
    places: HashMap<u32, usize>,
    /// A ring through `slots[0]`, which holds no queue pair: behind it the one used last, before it the one to go.
    slots: Vec<Slot>,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    pair: u32,
    before: usize,
    behind: usize,
}

impl ContextCache {
    /// A cache with a number of entries.
    pub(crate) fn new(entries: usize) -> Self {
        let slots = vec![Slot { pair: 0, before: 0, behind: 0 }];
        Self { entries, places: HashMap::new(), slots, hits: 0, misses: 0 }
    }

    /// Uses the context of a queue pair: whether it was there.
    #[inline]
    pub(crate) fn touch(&mut self, pair: u32) -> bool {
        // The one used last is used again more often than not.
        if self.slots[self.slots[0].behind].pair == pair && pair != 0 {
            self.hits += 1;
            return true;
        }
        match self.places.get(&pair) {
            Some(&place) => {
                self.unlink(place);
                self.link_first(place);
                self.hits += 1;
                true
            }
            None => {
                self.misses += 1;
                self.insert(pair);
                false
            }
        }
    }

    fn insert(&mut self, pair: u32) {
        if self.entries == 0 {
            return;
        }
        let place = if self.places.len() < self.entries {
            self.slots.push(Slot { pair, before: 0, behind: 0 });
            self.slots.len() - 1
        } else {
            let oldest = self.slots[0].before;
            self.places.remove(&self.slots[oldest].pair);
            self.unlink(oldest);
            self.slots[oldest].pair = pair;
            oldest
        };
        self.places.insert(pair, place);
        self.link_first(place);
    }

    fn unlink(&mut self, place: usize) {
        let Slot { before, behind, .. } = self.slots[place];
        self.slots[before].behind = behind;
        self.slots[behind].before = before;
    }

    fn link_first(&mut self, place: usize) {
        let first = self.slots[0].behind;
        self.slots[place] = Slot { before: 0, behind: first, ..self.slots[place] };
        self.slots[first].before = place;
        self.slots[0].behind = place;
    }
}

#[cfg(test)]
mod tests {
    use super::ContextCache;

    #[test]
    fn the_one_unused_for_longest_goes() {
        let mut cache = ContextCache::new(3);
        for pair in 1..=3 {
            assert!(!cache.touch(pair));
        }
        assert!(cache.touch(1) && cache.touch(1) && cache.touch(3));
        assert!(!cache.touch(4), "it goes in place of 2");
        assert!(cache.touch(1) && cache.touch(3) && cache.touch(4));
        assert!(!cache.touch(2));
        assert!(!cache.touch(1), "2 came in its place");
        assert_eq!((cache.hits, cache.misses), (6, 6));
    }

    #[test]
    fn without_entries_nothing_is_ever_there() {
        let mut cache = ContextCache::new(0);
        assert!(!cache.touch(7) && !cache.touch(7));
    }
}
