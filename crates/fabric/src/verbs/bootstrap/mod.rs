//! The TCP connection over which two processes set up their queue pairs, and by which each notices the other's end.
//!
//! RC queue pairs notice a dead peer only when they send to it, and slowly; a connection that both kernels keep ends at
//! once with its process, and heartbeats tell of a stopped process or a cut network. It knows nothing of verbs.
//!
//! | module | what it holds |
//! |---|---|
//! | `connection`, `listening` | what users see: connecting, accepting, messages |
//! | `hello`, `frame` | what travels: 16 bytes that every release understands, then frames |
//! | `wire`, `inbox`, `ending` | what all clones of a connection and the watch share |
//! | `watch`, `lease` | the one thread that reads all sockets and notices silence |
//! | `address`, `turns` | names, and how many connect at a time |
//! | `probe` | what is found at an address that does not serve |
//! | `socket` | system calls |

mod address;
mod connection;
mod ending;
mod frame;
mod hello;
mod inbox;
mod lease;
mod listening;
mod probe;
mod socket;
#[cfg(test)]
mod tests;
mod turns;
mod watch;
mod wire;

pub(crate) use connection::Connection;
pub(crate) use ending::Ended;
pub(crate) use listening::Listening;
pub use probe::{Probe, probe};
