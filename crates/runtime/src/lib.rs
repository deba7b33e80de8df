//! One executor per core, its clock and timers, and polling that spins, then yields, then sleeps.
#![forbid(unsafe_code)]

mod park;

pub use park::Park;
