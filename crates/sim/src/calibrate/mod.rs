//! Holds presets to what was measured of real clusters: runs the raw verbs on the model, and compares.
//!
//! The programs speak with the traits of the fabric alone, on simulated hosts: `flood` posts one verb over and over,
//! `echo` sends messages there and back, `probe` does what `locus sim measure` does, `cluster` links them and lets them begin, `run` says who does what in which
//! experiment. Only raw verbs are measured: what stores make of them is for the simulator to predict.

mod cluster;
mod echo;
mod experiment;
mod flood;
mod measurement;
mod probe;
mod run;

pub use experiment::{Direction, Experiment, ProbeTask, Result, Transport, Verb};
pub use measurement::{Comparison, Measurement, Quantity, Relation, Use, compare};
pub use probe::measure_on_model;
pub use run::run;
