//! What can be benchmarked: the seams between the load and the systems that bear it.

use crate::error::BenchError;
use crate::load::Load;
use crate::measure::{Measured, Measurement};
use crate::options::BenchOptions;
use std::fmt;

/// One connection, of one load-generating thread. It is made and used on that thread alone and need not be `Send`.
///
/// `drive` is called once per phase, so the operations in it run without indirect calls. A synchronous client:
///
/// ```
/// use locus_bench::{BenchError, Kind, Load, Next, Target};
/// use std::collections::HashMap;
///
/// struct Table(HashMap<Vec<u8>, Vec<u8>>);
///
/// impl Target for Table {
///     fn drive(&mut self, load: &Load) -> Result<(), BenchError> {
///         let mut operation = load.operation();
///         loop {
///             match load.next(&mut operation) {
///                 Next::Finished => return Ok(()),
///                 Next::Later(due) => {
///                     load.wait_until(due);
///                     continue;
///                 }
///                 Next::Ready => {}
///             }
///             match operation.kind() {
///                 Kind::Get => match self.0.get(operation.key()) {
///                     Some(value) => load.found(&operation, value),
///                     None => load.missing(&operation),
///                 },
///                 Kind::Put | Kind::Insert => {
///                     self.0.insert(operation.key().to_vec(), operation.value().to_vec());
///                     load.stored(&operation);
///                 }
///                 Kind::ReadModifyWrite => {
///                     if let Some(value) = self.0.get_mut(operation.key()) {
///                         load.fetched(&operation, value);
///                         value.copy_from_slice(operation.value());
///                     }
///                     load.stored(&operation);
///                 }
///             }
///         }
///     }
/// }
/// ```
///
/// An asynchronous one makes `load.window()` futures, each running that loop with an operation of its own and awaiting
/// where this one blocks, and polls them until all are done; on `Later` a future yields and asks again.
pub trait Target {
    /// Performs the operations of `load`, up to [`Load::window`] at a time, until it says `Finished`, and returns when all
    /// those drawn are finished. Errors of single operations are told to the load; `Err` means that this connection is
    /// of no more use.
    fn drive(&mut self, load: &Load) -> Result<(), BenchError>;

    /// What this connection has counted since it was made.
    fn counters(&self) -> Counters {
        Counters::default()
    }
}

/// What explains slowness. `None` where a system has no such thing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// One-sided READs posted for gets.
    pub reads: Option<u64>,
    /// Requests sent and replies received.
    pub messages: Option<u64>,
    /// Reads done again since they did not verify, and operations done again for any other reason.
    pub retries: Option<u64>,
}

/// What a row is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The design (`pilaf`), or the program (`memcached`).
    pub design: String,
    /// How its clients reach it: `shm`, `tcp`, `unix`, `mmap`.
    pub fabric: String,
    /// Whether it may lose records that it has acknowledged, as a cache may.
    pub forgets: bool,
}

impl Label {
    /// A label of a system that keeps what it is given.
    pub fn new(design: impl Into<String>, fabric: impl Into<String>) -> Self {
        Self { design: design.into(), fabric: fabric.into(), forgets: false }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.design, self.fabric)
    }
}

/// Something that can be started to be benchmarked.
pub trait Starter {
    /// What its rows are called.
    fn label(&self) -> Label;

    /// Starts it, empty, with room for the records of `options`. It stops when dropped.
    fn start(&self, options: &BenchOptions) -> Result<Box<dyn System>, BenchError>;
}

/// A system that runs.
pub trait System: Sync {
    /// Opens connection number `client`, on the thread that will drive it.
    fn connect(&self, client: usize) -> Result<Box<dyn Target + '_>, BenchError>;

    /// The server's processes, whose CPU time is measured; none if it has no server.
    fn server_pids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// How many operations one connection can have outstanding, if that is limited. Wider windows are narrowed to it.
    fn widest_window(&self) -> usize {
        usize::MAX
    }

    /// Which pages the data lies on, if known: `2 MiB`, `4 KiB`.
    fn pages(&self) -> Option<String> {
        None
    }

    /// Measures from another process than this one, which filled the store; for systems without a server, whose store
    /// is to be shared between processes. `None`: this process measures.
    fn measure_elsewhere(&self, _measurement: &Measurement) -> Option<Result<Measured, BenchError>> {
        None
    }
}
