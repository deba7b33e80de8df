//! The owner's side of registered memory: its regions, what each is for, and the places handed out of them.
//!
//! Tables, extents and the directory lie in different regions, so that users' bytes never lie where a reader may look
//! for a row. The owner of an arena is the only writer of its regions, through [`Arena::writer`]; readers in the same
//! thread borrow it, so that the compiler keeps them and the writer apart.

use crate::extents::{ClassUsage, Extents, Usage};
use crate::{Local, Pointer, Prefetched, RegionId, Writer};
use locus_fabric::{Access, Region};

/// What a region is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Tables of rows.
    Tables,
    /// Records of users.
    Extents,
    /// Where the tables are.
    Directory,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tables, Self::Extents, Self::Directory];

    /// The largest object, in bytes.
    pub const fn bytes_max(self) -> usize {
        match self {
            Self::Tables => 256 << 20,
            Self::Extents => 8 << 20,
            Self::Directory => 16 << 20,
        }
    }

    /// What objects are aligned to: rows and directory entries begin at cache lines.
    pub const fn alignment(self) -> usize {
        match self {
            Self::Tables | Self::Directory => 64,
            Self::Extents => Pointer::UNIT,
        }
    }

    /// What the allocator is asked for. Size classes that hold whole cache lines are whole cache lines themselves.
    const fn rounded(self, bytes: usize) -> usize {
        match self {
            Self::Tables | Self::Directory => bytes.next_multiple_of(64),
            Self::Extents => bytes,
        }
    }
}

/// Why nothing was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// No region has room: add one of at least so many bytes.
    #[error("no region for {purpose:?} has {bytes} bytes free; add one")]
    NeedRegion {
        /// For what.
        purpose: Purpose,
        /// The smallest region that will do, in bytes.
        bytes: usize,
    },
    /// Larger than any object may be.
    #[error("{bytes} bytes are over the limit of {limit} of one object of {purpose:?}", limit = .purpose.bytes_max())]
    TooLarge {
        /// For what.
        purpose: Purpose,
        /// How much was asked for.
        bytes: usize,
    },
}

/// Why a region was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddRegionError {
    /// There is one of this number.
    #[error("region {} is there already", .0.index())]
    Taken(RegionId),
    /// Peers may write to it, so that nothing read from it could be borrowed.
    #[error("region {} is writable by peers", .0.index())]
    WritableByPeers(RegionId),
    /// Over the 64 GiB that a pointer reaches over.
    #[error("region {number} has {1} bytes; a pointer reaches over 64 GiB", number = .0.index())]
    TooLarge(RegionId, usize),
}

/// Registered memory and the allocator of it. Stays on the core that writes it.
///
/// Whoever registered a region may keep clones of it, to grant and to revoke it. It must not write through them: that
/// is left to [`Writer`].
pub struct Arena<R> {
    /// By number.
    regions: Vec<Option<R>>,
    /// Their sizes together.
    region_bytes: usize,
    /// By purpose.
    extents: [Extents; Purpose::ALL.len()],
}

impl<R: Region> Default for Arena<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Region> Arena<R> {
    /// Without any region.
    pub fn new() -> Self {
        Self { regions: Vec::new(), region_bytes: 0, extents: Purpose::ALL.map(|_| Extents::new()) }
    }

    /// Adds a region, of which the arena is the only writer from now on.
    pub fn add_region(&mut self, id: RegionId, region: R, purpose: Purpose) -> Result<(), AddRegionError> {
        let bytes = region.bytes();
        self.add_whole_region(id, region)?;
        self.extents[purpose as usize].add_region(id, bytes);
        Ok(())
    }

    /// Adds a region that is one object as long as it lives, such as a circular log: nothing is allocated from it.
    pub fn add_whole_region(&mut self, id: RegionId, region: R) -> Result<(), AddRegionError> {
        if self.region(id).is_some() {
            return Err(AddRegionError::Taken(id));
        }
        if region.access() == Access::RemoteWrite {
            return Err(AddRegionError::WritableByPeers(id));
        }
        if region.bytes() > 1 << 36 {
            return Err(AddRegionError::TooLarge(id, region.bytes()));
        }
        if self.regions.len() <= id.index() {
            self.regions.resize_with(id.index() + 1, || None);
        }
        self.region_bytes += region.bytes();
        self.regions[id.index()] = Some(region);
        Ok(())
    }

    /// How much memory the regions are, in bytes.
    pub fn region_bytes(&self) -> usize {
        self.region_bytes
    }

    /// A region, if it was added.
    #[inline]
    pub fn region(&self, id: RegionId) -> Option<&R> {
        self.regions.get(id.index())?.as_ref()
    }

    /// Some region, if there is one.
    #[inline]
    pub(crate) fn any_region(&self) -> Option<&R> {
        self.regions.iter().flatten().next()
    }

    /// All regions.
    pub fn regions(&self) -> impl Iterator<Item = (RegionId, &R)> {
        let numbered = |(number, region)| Some((RegionId::new(number)?, Option::as_ref(region)?));
        self.regions.iter().enumerate().filter_map(numbered)
    }

    /// Room for an object, aligned to [`Purpose::alignment`]. What it holds is left from earlier.
    #[inline]
    pub fn allocate(&mut self, purpose: Purpose, bytes: usize) -> Result<Pointer, AllocateError> {
        if bytes > purpose.bytes_max() {
            return Err(AllocateError::TooLarge { purpose, bytes });
        }
        let bytes = purpose.rounded(bytes);
        let need = AllocateError::NeedRegion { purpose, bytes: bytes.max(crate::extents::REGION_BYTES_MIN) };
        self.extents[purpose as usize].allocate(bytes).ok_or(need)
    }

    /// Frees what [`Arena::allocate`] gave for the same purpose and length.
    ///
    /// # Panics
    /// When it did not, where that shows: a bug of the caller.
    #[inline]
    pub fn free(&mut self, purpose: Purpose, at: Pointer, bytes: usize) {
        self.extents[purpose as usize].free(at, purpose.rounded(bytes));
    }

    /// How many bytes of free pages are left for a purpose. When it gets low, have the next region reserved.
    #[inline]
    pub fn available(&self, purpose: Purpose) -> usize {
        self.extents[purpose as usize].usage().free_page_bytes
    }

    /// The largest object that the regions of a purpose surely have room for, in bytes.
    pub fn longest(&self, purpose: Purpose) -> usize {
        self.extents[purpose as usize].longest_bytes()
    }

    /// Bytes and objects of a purpose.
    pub fn usage(&self, purpose: Purpose) -> Usage {
        *self.extents[purpose as usize].usage()
    }

    /// The size classes of a purpose that hold memory. Walks over all slabs.
    pub fn classes(&self, purpose: Purpose) -> Vec<ClassUsage> {
        self.extents[purpose as usize].classes()
    }

    /// Walks over all bookkeeping. For tests.
    ///
    /// # Panics
    /// When anything overlaps or a sum is wrong.
    pub fn audit(&self) {
        for extents in &self.extents {
            extents.audit();
        }
    }

    /// The one writer of these regions.
    #[inline]
    pub fn writer(&mut self) -> Writer<'_, R> {
        Writer::new(self)
    }

    /// Reads that give borrowed slices at once.
    #[inline]
    pub fn local(&self) -> Local<'_, R> {
        Local::new(self)
    }

    /// Reads that give borrowed slices after yielding once, for batches of traversals.
    #[inline]
    pub fn prefetched(&self) -> Prefetched<'_, R> {
        Prefetched::new(self)
    }
}
