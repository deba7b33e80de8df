//! Addresses as a user writes them: `shm:/path/to/socket`, `rdma://host:port?device=rxe0&gid=1`, `sim:preset`.

use crate::FabricError;
use std::{fmt, path::PathBuf, str::FromStr};

/// Where a server is reached. The scheme names the provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A Unix socket of this machine.
    Shm(PathBuf),
}

impl FromStr for Address {
    type Err = FabricError;

    fn from_str(text: &str) -> Result<Self, FabricError> {
        let bad = |reason: &str| FabricError::BadAddress { address: text.into(), reason: reason.into() };
        let (scheme, rest) =
            text.split_once(':').ok_or_else(|| bad("an address has a scheme: shm:/path/to/socket"))?;
        match scheme {
            "shm" if rest.is_empty() => {
                Err(bad("shm: needs the path of a socket, as in shm:/tmp/locus.sock"))
            }
            // sockaddr_un holds 108 bytes, one of them the terminating zero.
            "shm" if rest.len() > 107 => Err(bad("the path of a Unix socket has at most 107 bytes")),
            "shm" => Ok(Self::Shm(rest.into())),
            "rdma" | "sim" => Err(bad("this build has no such provider yet; shm: is the one it has")),
            _ => Err(bad("unknown scheme; known: shm:/path/to/socket")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm(path) => write!(out, "shm:{}", path.display()),
        }
    }
}
