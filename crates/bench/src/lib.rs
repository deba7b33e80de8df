//! Workloads, load generation, live peers and reports.
//!
//! A [`Starter`] starts a server and yields a [`System`]; a system's connections are [`Target`]s; a target draws
//! operations from a [`Load`] and tells it how each went. [`run()`] does that for every system, workload, window and
//! run of a [`BenchOptions`], and gives a [`Report`] of rows.
//!
//! The operations of every run are drawn beforehand ([`trace`]), so that drawing them costs the measured loop about
//! a nanosecond; [`harness_ns_per_operation`] measures what the loop itself costs, and every report carries it.
#![forbid(unsafe_code)]

pub mod cache_line;
pub mod chart;
pub mod circumstances;
pub mod clock;
pub mod cpu;
pub mod error;
mod figures;
mod html;
pub mod keys;
pub mod load;
pub mod measure;
pub mod options;
pub mod peers;
pub mod process;
pub mod report;
pub mod run;
pub mod target;
pub mod trace;
pub mod workload;

pub use error::BenchError;
pub use load::{Kind, Load, Next, Operation};
pub use measure::{Latency, Measured};
pub use options::BenchOptions;
pub use peers::{PeerKind, become_reader_if_asked};
pub use process::ServerProcess;
pub use report::{Report, Row};
pub use run::{harness_ns_per_operation, run, run_with_values};
pub use target::{Counters, Label, Starter, System, Target};
pub use workload::{Distribution, Workload};
