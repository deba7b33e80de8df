//! A store in this process.

use crate::{
    AsyncTable, ClientConfig, Result, ServerConfig, Statistics, Table,
    provider::{self, AnyClient},
};
use locus_store::{Client, Server};
use std::sync::Arc;

/// Opens a store in this process: server and clients in one.
///
/// ```
/// # fn main() -> locus::Result<()> {
/// let config = locus::ServerConfig { memory_bytes: 256 << 20, ..Default::default() };
/// let store = locus::open(config)?;
/// store.table()?.put("key", "value")?;
///
/// // Every thread makes a table of its own.
/// let other = store.clone();
/// let value = std::thread::spawn(move || other.table()?.get("key")).join().unwrap()?;
/// assert_eq!(value.as_deref(), Some(&b"value"[..]));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// A configuration that makes no sense; too little memory for the first regions.
pub fn open(config: ServerConfig) -> Result<Embedded> {
    let nic = provider::embedded()?;
    let client = ClientConfig { token: config.token.clone().unwrap_or_default(), ..ClientConfig::default() };
    let server = Arc::new(Server::start(&nic, config)?);
    Ok(Embedded { nic, server, client })
}

/// A store in this process, and the way to let other processes in. Clones are handles of the same store, which ends
/// when the last of its handles and tables is dropped.
#[derive(Clone)]
pub struct Embedded {
    nic: provider::Embedded,
    server: Arc<Server<provider::Embedded>>,
    /// The configuration of its tables.
    client: ClientConfig,
}

impl Embedded {
    /// A table for the calling thread.
    pub fn table(&self) -> Result<Table> {
        let client = Client::attach(&self.nic, self.server.attach()?, self.client.clone())?;
        Ok(Table::new(AnyClient::Shm(client), self.client.window, Some(self.server.clone())))
    }

    /// A handle that any thread and any executor can use. It has a thread of its own.
    ///
    /// ```
    /// # futures_executor::block_on(async {
    /// let store = locus::open(locus::ServerConfig::default())?;
    /// let table = store.async_table().await?;
    /// table.put("key", "value").await?;
    /// assert_eq!(table.get("key").await?.as_deref(), Some(&b"value"[..]));
    /// # Ok::<(), locus::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn async_table(&self) -> Result<AsyncTable> {
        let store = self.clone();
        AsyncTable::start(move || store.table()).await
    }

    /// Lets other processes in at an address (`shm:/path/to/socket`). Gives the address as they write it.
    ///
    /// ```
    /// # fn main() -> locus::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let address = format!("shm:{}", directory.path().join("locus.sock").display());
    /// let store = locus::open(locus::ServerConfig::default())?;
    /// store.listen(&address)?;
    /// store.table()?.put("key", "from inside")?;
    /// assert_eq!(locus::connect(&address)?.get("key")?.as_deref(), Some(&b"from inside"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An address that makes no sense or that another process serves.
    pub fn listen(&self, address: &str) -> Result<String> {
        Ok(self.server.listen(&address.parse()?)?.to_string())
    }

    /// What the server has counted.
    pub fn stats(&self) -> Statistics {
        self.server.statistics()
    }
}
