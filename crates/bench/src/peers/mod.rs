//! What an engineer would use instead: memcached, Redis and LMDB, started by us, filled with the same records and driven
//! by minimal clients of our own, so that they are measured without the handicap of a general client library.

mod lmdb;
mod memcached;
mod pipeline;
mod redis;
mod server;

pub use lmdb::become_reader_if_asked;

use crate::error::BenchError;
use crate::target::Starter;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A system to measure beside Locus, and how it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerKind {
    /// memcached over loopback TCP.
    Memcached,
    /// memcached over a Unix socket.
    MemcachedUnix,
    /// Redis over loopback TCP.
    Redis,
    /// Redis over a Unix socket.
    RedisUnix,
    /// LMDB, written by one process and read by a second.
    Lmdb,
}

impl PeerKind {
    /// Every peer.
    pub const ALL: [PeerKind; 5] =
        [PeerKind::Memcached, PeerKind::MemcachedUnix, PeerKind::Redis, PeerKind::RedisUnix, PeerKind::Lmdb];

    /// What starts this peer.
    pub fn starter(self) -> Box<dyn Starter> {
        use server::{Peer, Socket};
        match self {
            PeerKind::Memcached => Box::new(Peer::<memcached::Memcached>::new(Socket::Tcp)),
            PeerKind::MemcachedUnix => Box::new(Peer::<memcached::Memcached>::new(Socket::Unix)),
            PeerKind::Redis => Box::new(Peer::<redis::Redis>::new(Socket::Tcp)),
            PeerKind::RedisUnix => Box::new(Peer::<redis::Redis>::new(Socket::Unix)),
            PeerKind::Lmdb => Box::new(lmdb::LmdbStarter),
        }
    }
}

impl fmt::Display for PeerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PeerKind::Memcached => "memcached",
            PeerKind::MemcachedUnix => "memcached-unix",
            PeerKind::Redis => "redis",
            PeerKind::RedisUnix => "redis-unix",
            PeerKind::Lmdb => "lmdb",
        })
    }
}

impl FromStr for PeerKind {
    type Err = BenchError;

    fn from_str(name: &str) -> Result<Self, BenchError> {
        let known = PeerKind::ALL.into_iter().find(|peer| peer.to_string() == name.to_ascii_lowercase());
        known.ok_or_else(|| {
            let names = PeerKind::ALL.map(|peer| peer.to_string()).join(", ");
            BenchError::Options(format!("no peer {name:?}: {names} (--peers)"))
        })
    }
}
