//! Exploring worlds by their seeds.

mod client;
mod explore;
mod keys;
mod scenario;
mod shrink;
mod tally;
mod world;

pub use explore::{Exploration, Found, explore};
pub use scenario::Scenario;
pub use shrink::shrink;
pub use tally::Tally;
pub use world::{Failure, Run, run};
