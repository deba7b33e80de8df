//! The cut along which a traversal runs at the client or at the server: it reads through a [`Memory`].

use crate::{Pointer, RegionId};
use locus_fabric::Prefetch;
use std::ops::Deref;

/// Memory that a traversal can reach.
#[allow(
    async_fn_in_trait,
    reason = "traversals run on the core that made them; no future of theirs is ever sent"
)]
pub trait Memory {
    /// What a read gives: borrowed from the memory itself, or a buffer that is free again when dropped.
    type Bytes<'a>: Deref<Target = [u8]>
    where
        Self: 'a;
    /// Whether a read may overlap a writer and return torn bytes, which the caller must detect.
    const TEARS: bool;
    /// Whether a writer may run between two reads of one traversal.
    const INTERLEAVES: bool;

    /// Reads `bytes` bytes. With [`Memory::TEARS`], reads that follow this one sample memory later than it did.
    async fn read(&self, at: Pointer, bytes: usize) -> Result<Self::Bytes<'_>, MemoryError>;
    /// Reads at once into memory of the caller, which is quickest; false where that is not possible, and then
    /// [`Memory::read`] says why, or does it. Samples memory later than reads before it did.
    #[inline]
    fn read_at_once(&self, _at: Pointer, _into: &mut [u8]) -> bool {
        false
    }
    /// What to prefetch for a read of `at`, so that independent reads overlap. Any place may be named, also none.
    fn ahead(&self, at: Pointer, bytes: usize) -> Prefetch;
    /// Says that `at` will be read soon.
    #[inline(always)]
    fn prefetch(&self, at: Pointer, bytes: usize) {
        self.ahead(at, bytes).start();
    }
    /// To be asked after the last read that an answer rests on: an error if the memory may have ceased to be its
    /// owner's before that read, so that the answer might be older than what a successor has acknowledged.
    fn current(&self) -> Result<(), MemoryError>;
}

/// Why a read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The region is not known to this reader (yet): fetch the manifest.
    #[error("region {} is not known here", .0.index())]
    UnknownRegion(RegionId),
    /// The range is outside its region: a torn or stale pointer, or a broken peer.
    #[error("{1} bytes at {0:?} are outside their region")]
    OutOfRange(Pointer, usize),
    /// The owner has taken the region back.
    #[error("region {} was revoked", .0.index())]
    Revoked(RegionId),
    /// The owner is gone.
    #[error("the owner of the memory is gone")]
    OwnerLost,
    /// More reads are under way than the reader has buffers for, or the object is larger than its largest buffer.
    #[error("no read buffer of {0} bytes")]
    NoBuffer(usize),
    /// The provider failed in a way that it should not.
    #[error("a read failed: {0:?}")]
    Failed(locus_fabric::Status),
}
