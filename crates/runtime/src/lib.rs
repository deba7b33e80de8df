//! One executor per core, its clock and timers, and polling that spins, then yields, then sleeps.
//!
//! Nothing above this crate names a thread, a clock, a source of chance or an executor of its own, so that a simulation
//! can put its own in their place ([`world`]).
#![forbid(unsafe_code)]

mod block_on;
pub mod channel;
mod clock;
mod executor;
mod idle;
mod interleave;
pub mod mistakes;
mod park;
mod signal;
pub mod thread;
mod timers;
pub mod world;

pub use block_on::block_on;
pub use clock::{Clock, ManualClock, MonotonicClock};
pub use executor::{Core, Sleep, Task, TooManyTasks, YieldNow, yield_now};
pub use idle::{Idle, IdlePolicy, Rest};
pub use interleave::{LANES_MAX, interleave, interleave_async, interleave_idling};
pub use park::{Park, ThreadPark};
pub use timers::{Timers, TimersFull};
pub use world::random;
