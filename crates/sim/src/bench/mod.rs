//! Clusters in virtual time: what a design would do with so many servers, clients and NICs of a kind.

mod client;
mod cluster;
mod plot;
mod row;

pub use cluster::{BenchError, ClusterBench, run};
pub use plot::throughput_against_latency;
pub use row::{Bottleneck, ClusterRow};
