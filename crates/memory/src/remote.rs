//! The owner's memory as a client reads it: one-sided READs into registered buffers (Mitchell §3.2).
//!
//! Where a NIC can carry out READs at once, as a software NIC can, nothing is posted: a lone read is copied when it is first
//! polled, and reads that overlap with others prefetch and yield once first. Elsewhere a lone read polls for its
//! completion as soon as it has posted, and reads that overlap with others post and yield first. A read
//! makes progress whenever it is polled, and wakes its task only where it can go on at once.

use crate::{
    Buffer, BufferPool, Memory, MemoryError, Pointer, RegionId,
    plain::{Copied, PlainBuffers},
};
use locus_fabric::{
    Completion, CompletionQueue, FabricError, Facts, Link, LocalSlice, Nic, PostError, Prefetch, QueuePair,
    QueuePairConfig, QueuePairState, RemoteRegion, RemoteSlice, SendRequest, Status, Transport, Verb, Work,
};
use locus_runtime::{
    Park,
    mistakes::{Mistake, planted},
    yield_now,
};
use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Most objects fit into a buffer of this size, of which there are as many as the window.
const SMALL_BYTES: usize = 4 << 10;
/// Buffers for larger objects are registered when first needed; a read waits until one is free.
const MEDIUM_BYTES: usize = 64 << 10;
const MEDIUM_COUNT: usize = 16;
const LARGE_COUNT: usize = 2;
/// How many completions are taken at once.
const COMPLETIONS: usize = 16;

/// The limits of a [`Remote`].
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// How many reads of up to 4 KiB may be under way or have their bytes in use.
    pub window: usize,
    /// The largest object that can be read, in bytes.
    pub object_bytes_max: usize,
}

impl Default for RemoteConfig {
    fn default() -> Self {
        Self { window: 64, object_bytes_max: (4 << 20) + (4 << 10) }
    }
}

/// What a [`Remote`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteCounters {
    /// READs posted.
    pub reads: u64,
    /// The bytes that they asked for.
    pub bytes: u64,
    /// Polls that found no completion.
    pub empty_polls: u64,
}

/// What READs go through.
struct Wire<N: Nic> {
    pair: N::QueuePair,
    queue: N::CompletionQueue,
    /// Room for completions, kept so that it need not be cleared for each poll.
    completions: [Completion; COMPLETIONS],
    /// Whether something was posted since the doorbell was rung.
    unrung: bool,
}

impl<N: Nic> Wire<N> {
    /// Rings the doorbell if it was not rung since the last post.
    #[inline]
    fn ring(&mut self) {
        if std::mem::take(&mut self.unrung) {
            // A doorbell that fails shows in the completions.
            let _ = self.pair.ring();
        }
    }
}

/// The memory of one peer, read with one-sided READs. Stays on the thread that made it.
pub struct Remote<N: Nic> {
    nic: N,
    link: N::Link,
    config: RemoteConfig,
    wire: RefCell<Wire<N>>,
    small: BufferPool<N>,
    /// Where READs at once go.
    plain: PlainBuffers<SMALL_BYTES>,
    medium: OnceCell<BufferPool<N>>,
    large: OnceCell<BufferPool<N>>,
    regions: RefCell<Vec<Option<N::RemoteRegion>>>,
    region_bytes: Cell<usize>,
    number: u32,
    part_bytes: usize,
    prefetches: bool,
    at_once_bytes: usize,
    /// Work requests that were posted and have not completed.
    outstanding: Cell<usize>,
    /// How many [`Overlap`]s are alive.
    overlaps: Cell<usize>,
    reads: Cell<u64>,
    bytes: Cell<u64>,
    empty_polls: Cell<u64>,
}

impl<N: Nic> Remote<N> {
    /// Makes a queue pair of its own, for the calling thread. It must be connected before anything is read.
    pub fn new(nic: &N, link: &N::Link, config: RemoteConfig) -> Result<Self, FabricError> {
        Self::create(nic, link, config, |depth| nic.create_completion_queue(depth))
    }

    /// The same, where a thread that sleeps on `queue` also wakes when a READ completes.
    pub fn beside(
        queue: &N::CompletionQueue,
        nic: &N,
        link: &N::Link,
        config: RemoteConfig,
    ) -> Result<Self, FabricError> {
        Self::create(nic, link, config, |depth| nic.create_completion_queue_beside(queue, depth))
    }

    fn create(
        nic: &N,
        link: &N::Link,
        config: RemoteConfig,
        make_queue: impl FnOnce(usize) -> Result<N::CompletionQueue, FabricError>,
    ) -> Result<Self, FabricError> {
        let properties = nic.properties();
        let part_bytes = properties.transfer_bytes_max.min(config.object_bytes_max.max(SMALL_BYTES));
        let parts = |bytes: usize| bytes.div_ceil(part_bytes);
        let depth = config.window * parts(SMALL_BYTES)
            + MEDIUM_COUNT * parts(MEDIUM_BYTES)
            + LARGE_COUNT * parts(config.object_bytes_max);
        for (what, limit) in [
            ("a window of READs", properties.queue_depth_max),
            ("a window of READs", properties.completions_max),
        ] {
            if depth > limit {
                return Err(FabricError::Limit { what, asked: depth, limit });
            }
        }
        let queue = make_queue(depth)?;
        let pair_config = QueuePairConfig {
            transport: Transport::Rc,
            send_depth: depth,
            receive_depth: 1,
            inline_bytes: 0,
            reads_outstanding: depth.min(properties.reads_outstanding_max),
            ..QueuePairConfig::default()
        };
        let pair = nic.create_queue_pair(link, &pair_config, &queue, &queue)?;
        let at_once_bytes = if properties.reads_at_once { part_bytes.min(SMALL_BYTES) } else { 0 };
        let plain = if properties.reads_at_once { config.window } else { 0 };
        Ok(Self {
            nic: nic.clone(),
            link: link.clone(),
            small: BufferPool::new(nic, config.window, SMALL_BYTES, 0)?,
            plain: PlainBuffers::new(plain),
            medium: OnceCell::new(),
            large: OnceCell::new(),
            number: pair.number(),
            wire: RefCell::new(Wire {
                pair,
                queue,
                completions: [Completion::EMPTY; COMPLETIONS],
                unrung: false,
            }),
            regions: RefCell::default(),
            region_bytes: Cell::new(0),
            part_bytes,
            prefetches: properties.prefetches,
            at_once_bytes,
            config,
            outstanding: Cell::new(0),
            overlaps: Cell::new(0),
            reads: Cell::new(0),
            bytes: Cell::new(0),
            empty_polls: Cell::new(0),
        })
    }

    /// What the owner must know to connect a queue pair of its own to this one.
    pub fn facts(&self, link: &N::Link) -> Result<Facts, FabricError> {
        self.wire.borrow().pair.facts(link)
    }

    /// Connects with the owner's queue pair.
    pub fn connect(&mut self, facts: Facts) -> Result<(), FabricError> {
        self.wire.get_mut().pair.connect(facts)
    }

    /// Starts anew with another queue pair, which has to be connected: the way out once a READ failed, which breaks a
    /// queue pair. Regions stay known.
    pub fn reset(&mut self) -> Result<(), FabricError> {
        let fresh = Self::beside(&self.wire.borrow().queue, &self.nic, &self.link, self.config.clone())?;
        let Self { regions, region_bytes, .. } = std::mem::replace(self, fresh);
        (self.regions, self.region_bytes) = (regions, region_bytes);
        Ok(())
    }

    /// Whether the queue pair is broken, so that no read will succeed until it is [`Remote::reset`].
    pub fn broken(&self) -> bool {
        self.wire.borrow().pair.state() == QueuePairState::Error
    }

    /// Lets reads know a region. One of the same number is replaced.
    pub fn add_region(&self, id: RegionId, region: N::RemoteRegion) {
        let mut regions = self.regions.borrow_mut();
        if regions.len() <= id.index() {
            regions.resize_with(id.index() + 1, || None);
        }
        let bytes = region.bytes();
        let replaced = regions[id.index()].replace(region).map_or(0, |region| region.bytes());
        self.region_bytes.set(self.region_bytes.get() + bytes - replaced);
    }

    /// How much memory the known regions are, in bytes.
    pub fn region_bytes(&self) -> usize {
        self.region_bytes.get()
    }

    /// Whether READs are over when they are started, as [`Memory::read_at_once`] has them.
    pub fn reads_at_once(&self) -> bool {
        self.at_once_bytes > 0
    }

    /// Whether a region is known.
    pub fn region_known(&self, id: RegionId) -> bool {
        self.regions.borrow().get(id.index()).is_some_and(Option::is_some)
    }

    /// While the returned value lives every read yields after it was posted, even if it is alone so far: for batches, of
    /// which the first read must not run to its end before the second is posted.
    pub fn overlap(&self) -> Overlap<'_> {
        self.overlaps.set(self.overlaps.get() + 1);
        Overlap(&self.overlaps)
    }

    /// What was done so far.
    pub fn counters(&self) -> RemoteCounters {
        RemoteCounters {
            reads: self.reads.get(),
            bytes: self.bytes.get(),
            empty_polls: self.empty_polls.get(),
        }
    }

    /// A free buffer of the smallest kind that fits, `None` while all of a kind that is waited for are in use.
    #[inline]
    fn buffer(&self, bytes: usize) -> Result<Option<Buffer<'_, N>>, MemoryError> {
        if bytes > SMALL_BYTES {
            return self.large_buffer(bytes);
        }
        if let Some(buffer) = self.small.take() {
            return Ok(Some(buffer));
        }
        // Buffers of reads that were given up are free once their READs have completed.
        self.poll();
        self.small.take().map(Some).ok_or(MemoryError::NoBuffer(bytes))
    }

    #[inline(never)]
    fn large_buffer(&self, bytes: usize) -> Result<Option<Buffer<'_, N>>, MemoryError> {
        let (pool, count, size, tag) = match bytes {
            ..=MEDIUM_BYTES => (&self.medium, MEDIUM_COUNT, MEDIUM_BYTES, 1),
            _ if bytes <= self.config.object_bytes_max => {
                (&self.large, LARGE_COUNT, self.config.object_bytes_max, 2)
            }
            _ => return Err(MemoryError::NoBuffer(bytes)),
        };
        if pool.get().is_none() {
            let registered =
                BufferPool::new(&self.nic, count, size, tag).map_err(|_| MemoryError::NoBuffer(bytes))?;
            let _ = pool.set(registered);
        }
        Ok(pool.get().and_then(BufferPool::take))
    }

    /// Reads at once into a buffer of no NIC; `None` to go the way of posting.
    #[inline]
    fn copied(&self, at: Pointer, bytes: usize) -> Option<Bytes<'_, N>> {
        let mut copy = self.plain.take(bytes)?;
        self.read_at_once(at, copy.bytes_mut()).then_some(Bytes::Copied(copy))
    }

    /// Posts a read, `None` if it has to wait for a buffer.
    fn start(&self, at: Pointer, bytes: usize) -> Result<Option<Buffer<'_, N>>, MemoryError> {
        let regions = self.regions.borrow();
        let region = regions.get(at.region().index()).and_then(Option::as_ref);
        let region = region.ok_or(MemoryError::UnknownRegion(at.region()))?;
        if bytes > region.bytes() || at.offset() > region.bytes() - bytes {
            return Err(MemoryError::OutOfRange(at, bytes));
        }
        let Some(mut buffer) = self.buffer(bytes)? else { return Ok(None) };
        let wire = &mut *self.wire.borrow_mut();
        let from = RemoteSlice { region, offset: at.offset() };
        self.post(wire, &mut buffer, from, bytes)?;
        self.bytes.set(self.bytes.get() + bytes as u64);
        Ok(Some(buffer))
    }

    /// Posts the READs of one read.
    #[inline]
    fn post(
        &self,
        wire: &mut Wire<N>,
        buffer: &mut Buffer<'_, N>,
        from: RemoteSlice<'_, N>,
        bytes: usize,
    ) -> Result<(), MemoryError> {
        let mut begin = 0;
        while begin < bytes {
            let part = (bytes - begin).min(self.part_bytes);
            let post = |id, into: LocalSlice<'_, N>| {
                let from = RemoteSlice { region: from.region, offset: from.offset + begin };
                wire.pair.post_send(&SendRequest { id, verb: Verb::Read { into, from }, signaled: true })
            };
            buffer.post(self.number, begin, part, post).map_err(|error| self.refused(error, bytes))?;
            wire.unrung = true;
            self.outstanding.set(self.outstanding.get() + 1);
            self.reads.set(self.reads.get() + 1);
            begin += part;
        }
        Ok(())
    }

    /// Starts the reads that were posted, which otherwise start when one of them is polled: before a sleep.
    pub fn ring(&self) {
        self.wire.borrow_mut().ring();
    }

    /// Rings the doorbell if it was not rung since the last post, then takes completions, and says whether there were any.
    #[inline]
    fn poll(&self) -> bool {
        let wire = &mut *self.wire.borrow_mut();
        wire.ring();
        let Wire { queue, completions, .. } = wire;
        let count = queue.poll(completions);
        if count == 0 {
            self.empty_polls.set(self.empty_polls.get() + 1);
        }
        for completion in &completions[..count] {
            let known = self.small.complete(completion) || self.complete_large(completion);
            debug_assert!(known, "{completion:?} of no read");
            self.outstanding.set(self.outstanding.get() - usize::from(known));
        }
        count > 0
    }

    #[inline(never)]
    fn complete_large(&self, completion: &Completion) -> bool {
        [&self.medium, &self.large]
            .iter()
            .any(|pool| pool.get().is_some_and(|pool| pool.complete(completion)))
    }

    #[cold]
    fn refused(&self, error: PostError, bytes: usize) -> MemoryError {
        match error {
            _ if !self.link.alive() => MemoryError::OwnerLost,
            PostError::SendQueueFull(_) | PostError::Unregistered => MemoryError::NoBuffer(bytes),
            PostError::NotReady => MemoryError::Failed(Status::Flushed),
            _ => MemoryError::Failed(Status::RemoteInvalidRequest),
        }
    }

    #[cold]
    fn failed(&self, status: Status, region: RegionId) -> MemoryError {
        match status {
            // A READ is flushed when another of its queue pair failed.
            Status::PeerLost | Status::Flushed => MemoryError::OwnerLost,
            _ if !self.link.alive() => MemoryError::OwnerLost,
            Status::RemoteAccess => MemoryError::Revoked(region),
            status => MemoryError::Failed(status),
        }
    }
}

impl<N: Nic> Memory for Remote<N> {
    type Bytes<'a>
        = Bytes<'a, N>
    where
        Self: 'a;
    const TEARS: bool = true;
    const INTERLEAVES: bool = true;

    /// A read over 4 KiB may have to wait until the bytes of another one are dropped: hold no such bytes across a read.
    #[inline]
    async fn read(&self, at: Pointer, bytes: usize) -> Result<Bytes<'_, N>, MemoryError> {
        if bytes <= self.at_once_bytes {
            // Reads that overlap have their lines fetched while the others take their turns.
            if self.overlaps.get() > 0 {
                self.prefetch(at, bytes);
                yield_now().await;
            }
            if let Some(bytes) = self.copied(at, bytes) {
                return Ok(bytes);
            }
        }
        Read { remote: self, at, bytes, buffer: None }.await.map(Bytes::Posted)
    }

    #[inline(always)]
    fn read_at_once(&self, at: Pointer, into: &mut [u8]) -> bool {
        let regions = self.regions.borrow();
        let Some(Some(region)) = regions.get(at.region().index()) else { return false };
        let from = RemoteSlice { region, offset: at.offset() };
        if into.len() > self.at_once_bytes || !self.wire.borrow_mut().pair.read_at_once(into, &from) {
            return false;
        }
        self.reads.set(self.reads.get() + 1);
        self.bytes.set(self.bytes.get() + into.len() as u64);
        true
    }

    #[inline(always)]
    fn ahead(&self, at: Pointer, bytes: usize) -> Prefetch {
        match self.regions.borrow().get(at.region().index()) {
            Some(Some(region)) if self.prefetches => region.ahead(at.offset(), bytes),
            _ => Prefetch::NONE,
        }
    }

    #[inline]
    fn current(&self) -> Result<(), MemoryError> {
        let current = self.link.alive() || planted(Mistake::DeadServerBelieved);
        if current { Ok(()) } else { Err(MemoryError::OwnerLost) }
    }
}

/// Sleeps until a READ completes.
impl<N: Nic> Park for Remote<N> {
    fn prepare(&self) -> bool {
        self.ring();
        self.wire.borrow().queue.prepare()
    }

    fn park(&self, timeout: Duration) {
        self.wire.borrow().queue.park(timeout);
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.wire.borrow().queue.waker()
    }
}

/// Makes reads overlap while it lives.
pub struct Overlap<'a>(&'a Cell<usize>);

impl Drop for Overlap<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The bytes of a read.
pub enum Bytes<'a, N: Nic> {
    /// As a posted READ left them.
    Posted(Buffer<'a, N>),
    /// As they were copied at once.
    Copied(Copied<'a, SMALL_BYTES>),
}

impl<N: Nic> Deref for Bytes<'_, N> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Posted(buffer) => buffer,
            Self::Copied(copied) => copied.bytes(),
        }
    }
}

/// A read under way. Dropped early, it leaves its buffer to the READs that were posted.
struct Read<'a, N: Nic> {
    remote: &'a Remote<N>,
    at: Pointer,
    bytes: usize,
    buffer: Option<Buffer<'a, N>>,
}

impl<'a, N: Nic> Future for Read<'a, N> {
    type Output = Result<Buffer<'a, N>, MemoryError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let remote = self.remote;
        let buffer = match self.buffer.take() {
            Some(buffer) => buffer,
            None => {
                let alone = remote.outstanding.get() == 0 && remote.overlaps.get() == 0;
                let Some(buffer) = remote.start(self.at, self.bytes)? else {
                    remote.poll();
                    return Poll::Pending;
                };
                if !alone {
                    self.buffer = Some(buffer);
                    return Poll::Pending;
                }
                buffer
            }
        };
        // Completions may be of reads that had their turn before, and are mostly followed by more: no time to sleep.
        if buffer.outcome().is_none() && remote.poll() {
            context.waker().wake_by_ref();
        }
        match buffer.outcome() {
            Some(Ok(())) => {
                N::charge(Work::Verify(self.bytes));
                Poll::Ready(Ok(buffer))
            }
            Some(Err(status)) => Poll::Ready(Err(remote.failed(status, self.at.region()))),
            None => {
                self.buffer = Some(buffer);
                Poll::Pending
            }
        }
    }
}
