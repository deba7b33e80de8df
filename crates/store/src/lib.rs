//! The server and the client of a store: partitions, mutations, dispatch, growth, and the table of designs.
#![forbid(unsafe_code)]

mod client;
mod control;
mod design;
mod error;
mod mutation;
mod opcode;
mod partition_map;
mod server;

pub use client::{Client, ClientConfig, ClientCounters, Overlap, RawReads};
pub use control::{Statistics, VERSION};
pub use design::{DESIGNS, Design, Index, Locus, combinations};
pub use error::StoreError;
pub use mutation::{Applied, Mutation};
pub use partition_map::{Owner, PartitionMap, SERVERS_MAX};
pub use server::{KEY_HASH_SEED, Server, ServerConfig};

/// Random bits that nobody can guess.
pub(crate) fn random() -> Result<u128, StoreError> {
    locus_runtime::random().map_err(|source| StoreError::System { what: "random bits", source })
}
