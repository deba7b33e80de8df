//! Memory as its owner reads it in a batch: each read starts to fetch its cache lines and yields once, so that the
//! others' work hides the latency of DRAM (Kalia §4.1.1, the request pipeline of HERD, as coroutines).

use crate::{Arena, Local, Memory, MemoryError, Pointer};
use locus_fabric::{Prefetch, Region};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The owner's memory, for batches of reads. Whoever polls must poll again without being woken. While a batch borrows
/// the arena nothing is stored, so that no writer comes between two reads of a traversal.
pub struct Prefetched<'a, R> {
    local: Local<'a, R>,
}

impl<R> Clone for Prefetched<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Prefetched<'_, R> {}

impl<'a, R: Region> Prefetched<'a, R> {
    #[inline]
    pub(crate) fn new(arena: &'a Arena<R>) -> Self {
        Self { local: Local::new(arena) }
    }
}

impl<'m, R: Region> Memory for Prefetched<'m, R> {
    type Bytes<'a>
        = &'a [u8]
    where
        Self: 'a;
    const TEARS: bool = false;
    const INTERLEAVES: bool = false;

    #[inline]
    async fn read(&self, at: Pointer, bytes: usize) -> Result<&[u8], MemoryError> {
        self.local.ahead(at, bytes).start();
        Turn::default().await;
        self.local.slice(at, bytes)
    }

    #[inline]
    fn ahead(&self, at: Pointer, bytes: usize) -> Prefetch {
        self.local.ahead(at, bytes)
    }

    /// The owner's memory is its own.
    #[inline]
    fn current(&self) -> Result<(), MemoryError> {
        Ok(())
    }
}

/// Yields once.
#[derive(Default)]
struct Turn {
    taken: bool,
}

impl Future for Turn {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.taken, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{HeapRegion, block_on};
    use crate::{Purpose, RegionId};
    use std::pin::pin;
    use std::task::Waker;

    #[test]
    fn yields_once_then_borrows() {
        let mut arena = Arena::new();
        let region = RegionId::new(0).unwrap();
        arena.add_region(region, HeapRegion::new(1 << 16), Purpose::Tables).unwrap();
        let at = arena.allocate(Purpose::Tables, 64).unwrap();
        arena.writer().store_bytes(at, &[b"to be read"]);
        let memory = arena.prefetched();
        let mut context = Context::from_waker(Waker::noop());
        let mut read = pin!(memory.read(at, 10));
        assert!(read.as_mut().poll(&mut context).is_pending());
        assert!(matches!(read.poll(&mut context), Poll::Ready(Ok(b"to be read"))));
        for (offset, bytes) in [(0, usize::MAX), (0, 65_537), (65_536, 1), (1 << 35, 4096)] {
            let at = Pointer::new(region, offset);
            memory.prefetch(at, bytes);
            assert_eq!(block_on(memory.read(at, bytes)), Err(MemoryError::OutOfRange(at, bytes)));
        }
        assert_eq!(block_on(memory.read(Pointer::new(region, 65_520), 16)).unwrap(), [0; 16]);
    }
}
