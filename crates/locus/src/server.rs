//! A server for other processes.

use crate::{
    Result, ServerConfig, Statistics,
    provider::{self, AnyServer},
};

/// A server that other processes connect to. It stops when dropped; its socket files go away with it.
///
/// ```
/// # fn main() -> locus::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let address = format!("shm:{}", directory.path().join("locus.sock").display());
/// let server = locus::Server::start(locus::ServerConfig::default(), &[&address])?;
/// assert_eq!(server.addresses(), [address]);
/// assert_eq!(server.stats().design, "pilaf");
/// # Ok(())
/// # }
/// ```
pub struct Server {
    server: AnyServer,
    addresses: Vec<String>,
}

impl Server {
    /// Starts a server and takes clients at these addresses (`shm:/path/to/socket` or `rdma://host:port`, all of
    /// one kind).
    ///
    /// # Errors
    /// An address that makes no sense or that another process serves; a configuration that makes no sense; too little
    /// memory for the first regions.
    pub fn start(config: ServerConfig, addresses: &[impl AsRef<str>]) -> Result<Self> {
        let addresses = provider::parse(addresses)?;
        let server = AnyServer::start(&addresses, config)?;
        let served: Result<_> =
            addresses.iter().map(|address| Ok(server.listen(address)?.to_string())).collect();
        Ok(Self { addresses: served?, server })
    }

    /// Where clients find it.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// What it has counted.
    pub fn stats(&self) -> Statistics {
        self.server.statistics()
    }

    /// Why it refuses clients, if its RDMA device was taken away. Once that is back, it serves again, with its data.
    pub fn trouble(&self) -> Option<String> {
        self.server.trouble()
    }
}
