//! Buffers of posted verbs. A buffer belongs to its queue pair until each verb that was posted with it has completed,
//! also when whoever posted it has gone; only then is it read, and only then used again.

use locus_fabric::{
    Access, Completion, FabricError, LocalSlice, Nic, Opcode, PagePolicy, PostError, Region, Status,
};
use std::cell::Cell;
use std::ops::Deref;

const NONE: u32 = u32::MAX;
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// What is known of a buffer.
struct Slot {
    /// How many verbs were posted with it and have not completed.
    outstanding: Cell<u32>,
    /// Whether a [`Buffer`] is alive for it.
    owned: Cell<bool>,
    /// The first failure among its verbs.
    failure: Cell<Option<Status>>,
    /// How many bytes its verbs fill, from its start.
    filled: Cell<u32>,
    /// The queue pair it was posted to.
    queue_pair: Cell<u32>,
    /// The next free buffer, or `NONE`.
    next: Cell<u32>,
}

/// A registered region cut in equal buffers. Stays on the thread that made it.
pub struct BufferPool<N: Nic> {
    /// Nobody else has it: peers may not touch it, and verbs target it through [`Buffer`]s alone.
    region: N::Region,
    buffer_bytes: usize,
    slots: Box<[Slot]>,
    /// The buffer that was freed last, or `NONE`.
    free: Cell<u32>,
    /// The upper half of the ids of all work requests.
    tag: u64,
}

impl<N: Nic> BufferPool<N> {
    /// Registers `count` buffers of `bytes` each, rounded up to cache lines. The ids of their work requests have `tag` in
    /// the upper half, which tells the pools of one completion queue apart.
    pub fn new(nic: &N, count: usize, bytes: usize, tag: u32) -> Result<Self, FabricError> {
        let buffer_bytes = bytes.max(1).next_multiple_of(64);
        let limit = NONE as usize - 1;
        for (what, asked) in [("buffers", count), ("bytes of a buffer", buffer_bytes)] {
            if asked > limit {
                return Err(FabricError::Limit { what, asked, limit });
            }
        }
        let bytes = count * buffer_bytes;
        let pages = if bytes < HUGE_PAGE_BYTES { PagePolicy::Base } else { PagePolicy::PreferHuge };
        let region = nic.register(bytes, Access::Local, pages)?;
        let slot = |index| Slot {
            outstanding: Cell::new(0),
            owned: Cell::new(false),
            failure: Cell::new(None),
            filled: Cell::new(0),
            queue_pair: Cell::new(0),
            next: Cell::new(if index + 1 < count { index as u32 + 1 } else { NONE }),
        };
        let slots = (0..count).map(slot).collect();
        let free = Cell::new(if count == 0 { NONE } else { 0 });
        Ok(Self { region, buffer_bytes, slots, free, tag: u64::from(tag) << 32 })
    }

    /// The length of a buffer in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Whether a work request of this id was posted with a buffer of this pool, if it was by any pool.
    #[inline]
    pub fn posted(&self, id: u64) -> bool {
        id >> 32 == self.tag >> 32
    }

    /// Takes a free buffer, the one that was freed last.
    #[inline]
    pub fn take(&self) -> Option<Buffer<'_, N>> {
        let index = self.free.get();
        let slot = self.slots.get(index as usize)?;
        self.free.set(slot.next.get());
        slot.owned.set(true);
        slot.failure.set(None);
        slot.filled.set(0);
        Some(Buffer { pool: self, slot, index })
    }

    /// Takes note of a completion that a completion queue gave. Says whether it was of one of these buffers.
    #[inline]
    pub fn complete(&self, completion: &Completion) -> bool {
        let index = completion.id as u32;
        let Some(slot) = self.slots.get(index as usize).filter(|_| self.posted(completion.id)) else {
            return false;
        };
        if slot.outstanding.get() == 0 || slot.queue_pair.get() != completion.queue_pair {
            return false;
        }
        if completion.status != Status::Success {
            slot.failure.set(slot.failure.get().or(Some(completion.status)));
        } else if completion.opcode == Opcode::Receive {
            slot.filled.set(completion.bytes.min(self.buffer_bytes as u32));
        }
        slot.outstanding.set(slot.outstanding.get() - 1);
        self.free_if_done(slot, index);
        true
    }

    #[inline]
    fn free_if_done(&self, slot: &Slot, index: u32) {
        if slot.outstanding.get() == 0 && !slot.owned.get() {
            slot.next.set(self.free.replace(index));
        }
    }
}

/// A buffer that is nobody else's. When it is dropped it is free again, or will be once its verbs have completed.
///
/// Its bytes are what its verbs have filled.
pub struct Buffer<'p, N: Nic> {
    pool: &'p BufferPool<N>,
    slot: &'p Slot,
    index: u32,
}

impl<N: Nic> Buffer<'_, N> {
    /// Posts a verb with bytes `offset..offset + bytes` of the buffer: `post` gets the id for the work request, which must
    /// be signaled, and the range. The range is the queue pair's until [`BufferPool::complete`] gets the completion.
    ///
    /// # Panics
    /// When the range is outside the buffer: a bug of the caller.
    #[inline]
    pub fn post(
        &mut self,
        queue_pair: u32,
        offset: usize,
        bytes: usize,
        post: impl FnOnce(u64, LocalSlice<'_, N>) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.pool.buffer_bytes);
        let end = end.expect("a range of the buffer");
        let offset = self.index as usize * self.pool.buffer_bytes + offset;
        post(self.pool.tag | u64::from(self.index), LocalSlice { region: &self.pool.region, offset, bytes })?;
        self.slot.queue_pair.set(queue_pair);
        self.slot.filled.set(self.slot.filled.get().max(end as u32));
        self.slot.outstanding.set(self.slot.outstanding.get() + 1);
        Ok(())
    }

    /// How its verbs ended, once all have completed: the first failure if there was one.
    #[inline]
    pub fn outcome(&self) -> Option<Result<(), Status>> {
        (self.slot.outstanding.get() == 0).then(|| self.slot.failure.get().map_or(Ok(()), Err))
    }
}

impl<N: Nic> Deref for Buffer<'_, N> {
    type Target = [u8];

    /// # Panics
    /// When not all its verbs have completed: a bug of the caller.
    #[inline]
    fn deref(&self) -> &[u8] {
        assert!(self.slot.outstanding.get() == 0, "a buffer is read before its verbs have completed");
        let offset = self.index as usize * self.pool.buffer_bytes;
        // SAFETY: nobody stores to this range while `self` is borrowed. The region is the pool's own: peers have no
        // access, and verbs target it through `post` alone, which borrows this buffer mutably. No other `Buffer` has this
        // range, since `take` removes it from the free list and only the drop of this one, or the last completion after
        // it, puts it back. And every verb posted with it has completed: `outstanding` counts them up when posted, and
        // down for completions of the same id and queue pair, of which a queue pair gives one for each verb.
        unsafe { self.pool.region.slice(offset, self.slot.filled.get() as usize) }
    }
}

impl<N: Nic> Drop for Buffer<'_, N> {
    #[inline]
    fn drop(&mut self) {
        self.slot.owned.set(false);
        self.pool.free_if_done(self.slot, self.index);
    }
}
