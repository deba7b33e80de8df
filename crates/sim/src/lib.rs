//! Simulated worlds of servers and clients: explored by seeds, and judged.
//!
//! The code of the store runs as it is, on the fabric provider [`sim`](locus_fabric::sim). [`check`] lets few clients do
//! few operations on few hot keys in a hostile world, records what they saw, and asks whether that is linearizable
//! ([`locus_history`]); thousands of such worlds, each from a seed, reach what real threads meet once in a long while.
#![forbid(unsafe_code)]

pub mod bench;
pub mod calibrate;
pub mod check;
pub mod measure;
mod preset;

pub use preset::{Preset, PresetError};
