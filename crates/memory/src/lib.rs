//! Memory that remote readers can trust: regions, extents, checksums, one writer, and the three kinds of reader.
//!
//! The owner of an [`Arena`] is the only writer of its regions. Readers reach the same bytes through the [`Memory`]
//! trait: the owner with [`Local`] or [`Prefetched`], a client with [`Remote`]. A traversal is written once over the
//! trait; which memory it gets decides where it runs.

mod arena;
mod buffers;
mod checksum;
mod extents;
mod local;
mod pages;
mod plain;
mod pointer;
mod prefetched;
mod reader;
mod remote;
mod size_class;
#[doc(hidden)]
pub mod testing;
mod writer;

pub use arena::{AddRegionError, AllocateError, Arena, Purpose};
pub use buffers::{Buffer, BufferPool};
pub use checksum::{checksum, checksum_entry, checksum_row, checksum_slot};
pub use extents::{ClassUsage, Usage};
pub use local::Local;
pub use pointer::{Pointer, RegionId};
pub use prefetched::Prefetched;
pub use reader::{Memory, MemoryError};
pub use remote::{Overlap, Remote, RemoteConfig, RemoteCounters};
pub use writer::Writer;
