//! Locus, an in-memory key-value store for machines that can read each other's memory.
//!
//! A get can run at the client, which fetches the server's data structures with one-sided READs and takes nothing of
//! the server's CPU, or at the server, by RPC; the server's [`Design`] says which. Everything is kept in memory only.
//!
//! # In one process
//!
//! ```
//! # fn main() -> locus::Result<()> {
//! let store = locus::open(locus::ServerConfig::default())?;
//! let table = store.table()?;
//! table.put("greeting", "hello, world")?;
//! assert_eq!(table.get("greeting")?.as_deref(), Some(&b"hello, world"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! # In several processes
//!
//! ```
//! # fn main() -> locus::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let address = format!("shm:{}", directory.path().join("locus.sock").display());
//! // In the process that keeps the data; `locus serve` does the same.
//! let server = locus::Server::start(locus::ServerConfig::default(), &[&address])?;
//!
//! // In any other process of the same user.
//! let table = locus::connect(&address)?;
//! table.put("colour", "green")?;
//! assert!(table.get("color")?.is_none());
//!
//! // Gets that are asked for together overlap.
//! let values = table.get_many(&["colour", "color"]);
//! assert_eq!(values[0].as_ref().unwrap().as_deref(), Some(&b"green"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! # From many threads and tasks
//!
//! A [`Table`] belongs to the thread that made it, and is the fastest way in: every thread can make one of its own. An
//! [`AsyncTable`] can be cloned, sent and shared; it works on any executor, and takes each operation to a thread that
//! runs a client for all of them.
//!
//! # Limits
//!
//! Keys have 1 byte to 1 KiB, values 0 bytes to [`ServerConfig::value_bytes_max`]. A single get, put or delete is
//! linearizable; there are no transactions over several keys and no scans.
#![forbid(unsafe_code)]

mod async_table;
mod embedded;
mod provider;
mod server;
mod table;
mod turns;

pub use async_table::AsyncTable;
pub use embedded::{Embedded, open};
pub use locus_fabric::{FabricError, PagePolicy};
pub use locus_store::{
    ClientConfig, DESIGNS, Design, Index, Locus, ServerConfig, Statistics, StoreError as Error,
};
pub use server::Server;
pub use table::{Table, connect, connect_with};

/// What operations give.
pub type Result<T> = std::result::Result<T, Error>;
