//! What clients saw of a store, and whether that is linearizable.
//!
//! Each client has a [`Recorder`]; their records together are a [`History`], which can be written as NDJSON, read from it
//! ([`ndjson`]), and judged ([`mod@check`]): whether there is one order of all operations, each at some moment between its
//! invocation and its return, in which a plain map, or [a cache](History::of_cache), would have given the same answers. Of
//! a history that is not linearizable, [`minimise`] finds a few operations that contradict each other.
//!
//! ```
//! use locus_history::{Capacity, History, Limits, Recorder, Verdict, check};
//!
//! let mut recorder = Recorder::new(0, Capacity { operations_max: 10, bytes_max: 1000 })?;
//! let put = recorder.put(b"key", b"value", 100)?;
//! recorder.acknowledged(put, 200);
//! let get = recorder.get(b"key", 300)?;
//! recorder.got(get, None, 400)?;
//! let history = History::merge([recorder])?;
//! assert!(matches!(check(&history, &Limits::default()), Verdict::Violation(_)));
//! # Ok::<(), locus_history::HistoryError>(())
//! ```
#![forbid(unsafe_code)]

mod check;
mod error;
mod history;
pub mod ndjson;
mod operation;
mod recorder;
mod text;

pub use check::{HELD_MAX, Limit, Limits, OVERLAP_MAX, Undecided, Verdict, Violation, check, minimise};
pub use error::HistoryError;
pub use history::{History, OPERATIONS_MAX};
pub use operation::{Action, Operation, Outcome};
pub use recorder::{Capacity, Recorder, Ticket};
