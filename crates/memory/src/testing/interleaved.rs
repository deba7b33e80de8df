//! A remote reader's memory at its most adverse, in one thread: before each word that a read samples, the test may do
//! anything, such as to let the owner store. So every interleaving of a reader with a writer can be tried, and replayed.

use crate::{Arena, Memory, MemoryError, Pointer, RegionId};
use locus_fabric::{Prefetch, Region};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// In which order a read samples its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleOrder {
    /// From the first to the last.
    Increasing,
    /// From the last to the first.
    Decreasing,
    /// In an order that this seed and the number of words sampled before determine.
    Shuffled(u64),
}

/// The regions that a reader knows. Clones share them, so that a hook can add one while a read is under way.
pub struct SharedRegions<R>(Rc<RefCell<Vec<Option<R>>>>);

impl<R> Clone for SharedRegions<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Region> SharedRegions<R> {
    /// Lets the reader know a region.
    pub fn add(&self, id: RegionId, region: R) {
        let mut regions = self.0.borrow_mut();
        if regions.len() <= id.index() {
            regions.resize_with(id.index() + 1, || None);
        }
        regions[id.index()] = Some(region);
    }

    /// Lets the reader know all regions of an arena.
    pub fn add_all(&self, arena: &Arena<R>) {
        for (id, region) in arena.regions() {
            self.add(id, region.clone());
        }
    }

    fn get(&self, id: RegionId) -> Option<R> {
        self.0.borrow().get(id.index())?.clone()
    }
}

/// Memory that calls a hook before each word that it samples. The hook gets the number of words sampled so far, over
/// all reads. It may store through the arena that owns the regions; it must not read through this memory.
pub struct Interleaved<'h, R> {
    regions: SharedRegions<R>,
    hook: RefCell<Box<dyn FnMut(u64) + 'h>>,
    order: SampleOrder,
    step: Cell<u64>,
    reads: Cell<u64>,
    owner_lost: Cell<bool>,
}

impl<'h, R: Region> Interleaved<'h, R> {
    /// Over the regions that an arena has by now, which samples words in increasing order.
    pub fn new(arena: &Arena<R>, hook: impl FnMut(u64) + 'h) -> Self {
        let regions = SharedRegions(Rc::default());
        regions.add_all(arena);
        Self {
            regions,
            hook: RefCell::new(Box::new(hook)),
            order: SampleOrder::Increasing,
            step: Cell::new(0),
            reads: Cell::new(0),
            owner_lost: Cell::new(false),
        }
    }

    /// With another order.
    pub fn with_order(self, order: SampleOrder) -> Self {
        Self { order, ..self }
    }

    /// What the reader knows.
    pub fn regions(&self) -> SharedRegions<R> {
        self.regions.clone()
    }

    /// How many words were sampled.
    pub fn steps(&self) -> u64 {
        self.step.get()
    }

    /// How many reads were made.
    pub fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// From now on [`Memory::current`] fails.
    pub fn lose_owner(&self) {
        self.owner_lost.set(true);
    }

    fn sample(&self, region: &R, index: usize) -> [u8; 8] {
        let step = self.step.replace(self.step.get() + 1);
        (self.hook.borrow_mut())(step);
        region.words()[index].load(Relaxed).to_le_bytes()
    }

    fn read_now(&self, at: Pointer, bytes: usize) -> Result<Vec<u8>, MemoryError> {
        let region = self.regions.get(at.region()).ok_or(MemoryError::UnknownRegion(at.region()))?;
        if bytes > region.bytes() || at.offset() > region.bytes() - bytes {
            return Err(MemoryError::OutOfRange(at, bytes));
        }
        self.reads.set(self.reads.get() + 1);
        let mut words = vec![[0; 8]; bytes.div_ceil(8)];
        for position in self.positions(words.len()) {
            words[position] = self.sample(&region, at.offset() / 8 + position);
        }
        let mut sampled = words.into_flattened();
        sampled.truncate(bytes);
        Ok(sampled)
    }

    /// The positions of `count` words in the order in which to sample them.
    fn positions(&self, count: usize) -> Vec<usize> {
        let mut positions: Vec<usize> = (0..count).collect();
        match self.order {
            SampleOrder::Increasing => (),
            SampleOrder::Decreasing => positions.reverse(),
            SampleOrder::Shuffled(seed) => {
                let mut state = seed ^ self.step.get().wrapping_mul(0x9e37_79b9_7f4a_7c15);
                for last in (1..count).rev() {
                    // Marsaglia's xorshift, kept off its fixed point at zero.
                    state = (state | 1 << 40) ^ (state << 13);
                    state ^= state >> 7;
                    state ^= state << 17;
                    positions.swap(last, (state >> 16) as usize % (last + 1));
                }
            }
        }
        positions
    }
}

impl<R: Region> Memory for Interleaved<'_, R> {
    type Bytes<'a>
        = Vec<u8>
    where
        Self: 'a;
    const TEARS: bool = true;
    const INTERLEAVES: bool = true;

    async fn read(&self, at: Pointer, bytes: usize) -> Result<Vec<u8>, MemoryError> {
        self.read_now(at, bytes)
    }

    fn read_at_once(&self, at: Pointer, into: &mut [u8]) -> bool {
        self.read_now(at, into.len()).map(|sampled| into.copy_from_slice(&sampled)).is_ok()
    }

    fn ahead(&self, _: Pointer, _: usize) -> Prefetch {
        Prefetch::NONE
    }

    fn current(&self) -> Result<(), MemoryError> {
        if self.owner_lost.get() { Err(MemoryError::OwnerLost) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Purpose;
    use crate::testing::{HeapRegion, ready};

    /// A row of four words is read while the owner replaces it, word by word, between the reader's words.
    fn torn(order: SampleOrder, begins: u64) -> Vec<u8> {
        let region = RegionId::new(0).unwrap();
        let mut arena = Arena::new();
        arena.add_region(region, HeapRegion::new(1 << 16), Purpose::Tables).unwrap();
        let at = arena.allocate(Purpose::Tables, 32).unwrap();
        arena.writer().fill(at, 32, u64::from_ne_bytes([1; 8]));
        let shared = RefCell::new(arena);
        let memory = Interleaved::new(&shared.borrow(), |step| {
            if let Some(word) = step.checked_sub(begins) {
                shared.borrow_mut().writer().store_word(at, word as usize, u64::from_ne_bytes([2; 8]));
            }
        });
        let memory = memory.with_order(order);
        let bytes = ready(memory.read(at, 32)).unwrap();
        assert_eq!((memory.steps(), memory.reads()), (4, 1));
        bytes.chunks(8).map(|word| word[0]).collect()
    }

    #[test]
    fn a_writer_runs_between_the_words_of_a_read() {
        assert_eq!(torn(SampleOrder::Increasing, 0), [2, 2, 2, 2]);
        assert_eq!(torn(SampleOrder::Increasing, 1), [1, 1, 1, 1]);
        assert_eq!(torn(SampleOrder::Decreasing, 1), [2, 2, 1, 1]);
        assert_eq!(torn(SampleOrder::Decreasing, 0), [2, 2, 1, 1]);
        let orders: std::collections::BTreeSet<Vec<u8>> =
            (0..100).map(|seed| torn(SampleOrder::Shuffled(seed), 0)).collect();
        assert!(orders.len() > 4, "{orders:?}");
        assert_eq!(torn(SampleOrder::Shuffled(7), 0), torn(SampleOrder::Shuffled(7), 0));
    }

    #[test]
    fn regions_can_be_added_while_reading() {
        let (first, second) = (RegionId::new(0).unwrap(), RegionId::new(1).unwrap());
        let mut arena = Arena::new();
        arena.add_region(first, HeapRegion::new(4096), Purpose::Tables).unwrap();
        let memory = Interleaved::new(&arena, |_| ());
        let at = Pointer::new(second, 0);
        assert_eq!(ready(memory.read(at, 8)), Err(MemoryError::UnknownRegion(second)));
        memory.regions().add(second, HeapRegion::new(4096));
        assert_eq!(ready(memory.read(at, 5)).unwrap(), [0; 5]);
        assert_eq!(ready(memory.read(at, 4097)), Err(MemoryError::OutOfRange(at, 4097)));
        assert_eq!(memory.current(), Ok(()));
        memory.lose_owner();
        assert_eq!(memory.current(), Err(MemoryError::OwnerLost));
    }
}
