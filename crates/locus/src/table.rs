//! A table as one thread uses it.

use crate::{
    ClientConfig, Locus, Result, Statistics,
    provider::{self, AnyClient, with_client},
    turns::Turns,
};
use locus_fabric::Nic;
use locus_runtime::{LANES_MAX, interleave_async};
use locus_store::{Client, Server};
use std::sync::Arc;

/// Connects with the server at an address (`shm:/path/to/socket` or `rdma://host:port`).
///
/// # Errors
/// Nobody serves the address; the server wants a token ([`connect_with`]); it runs another version.
pub fn connect(address: &str) -> Result<Table> {
    connect_with(&[address], ClientConfig::default())
}

/// Connects with all servers of a store. The order of the addresses decides which server has which keys: all clients of
/// the store must give the same.
///
/// ```
/// # fn main() -> locus::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let [first, second] = ["1", "2"].map(|name| format!("shm:{}", directory.path().join(name).display()));
/// let config = || locus::ServerConfig { token: Some(b"secret".to_vec()), ..Default::default() };
/// let servers = [locus::Server::start(config(), &[&first])?, locus::Server::start(config(), &[&second])?];
///
/// let config = locus::ClientConfig { token: b"secret".to_vec(), ..Default::default() };
/// let table = locus::connect_with(&[&first, &second], config)?;
/// for number in 0..100u32 {
///     table.put(number.to_le_bytes(), "a value")?;
/// }
/// assert!(table.stats()?.iter().all(|server| server.records > 0));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`connect`], and where the servers do not belong together.
pub fn connect_with(addresses: &[impl AsRef<str>], config: ClientConfig) -> Result<Table> {
    let addresses = provider::parse(addresses)?;
    let window = config.window;
    let client = AnyClient::connect(&addresses, config)?;
    Ok(Table::new(client, window, None))
}

/// A table, used by the thread that made it: operations block, and wait by spinning first, so they are as quick as can
/// be. When the server is lost, operations fail until it is back; the table connects again by itself.
pub struct Table {
    client: AnyClient,
    window: usize,
    /// The server, if it is in this process; dropped after the client.
    _server: Option<Arc<Server<provider::Embedded>>>,
}

impl Table {
    pub(crate) fn new(
        client: AnyClient,
        window: usize,
        server: Option<Arc<Server<provider::Embedded>>>,
    ) -> Self {
        Self { client, window: window.clamp(1, LANES_MAX), _server: server }
    }

    /// The value of a key; `None` if it is absent.
    ///
    /// # Errors
    /// A key that is empty or too long; a server that is lost.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.get_with(key, <[u8]>::to_vec)
    }

    /// Finds a key and hands the value to `found`, without copying or allocating; `None` if it is absent.
    ///
    /// ```
    /// # fn main() -> locus::Result<()> {
    /// # let store = locus::open(Default::default())?;
    /// # let table = store.table()?;
    /// table.put("counter", 7u64.to_le_bytes())?;
    /// let first = table.get_with("counter", |value| value.first().copied())?;
    /// assert_eq!(first, Some(Some(7)));
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn get_with<T>(&self, key: impl AsRef<[u8]>, found: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        with_client!(&self.client, client => client.get_blocking(key.as_ref(), found))
    }

    /// The values of many keys, in their order. Their READs overlap, so this takes far less time than as many gets.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Vec<u8>>>> {
        let mut values: Vec<_> = keys.iter().map(|_| Ok(None)).collect();
        self.get_many_with(keys, |place, value| values[place] = value.map(|value| value.map(<[u8]>::to_vec)));
        values
    }

    /// Finds many keys and hands each result to `found`, with the key's place in `keys`, in the order in which they
    /// arrive and without allocating.
    ///
    /// ```
    /// # fn main() -> locus::Result<()> {
    /// # let store = locus::open(Default::default())?;
    /// # let table = store.table()?;
    /// table.put("a", "1")?;
    /// table.put("b", "22")?;
    /// let mut bytes = 0;
    /// table.get_many_with(&["a", "b", "c"], |_, value| bytes += value.ok().flatten().map_or(0, <[u8]>::len));
    /// assert_eq!(bytes, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_many_with<K: AsRef<[u8]>>(&self, keys: &[K], found: impl FnMut(usize, Result<Option<&[u8]>>)) {
        with_client!(&self.client, client => client.get_batch(keys, found));
    }

    /// Stores a value under a key, in place of the one that was there.
    ///
    /// # Errors
    /// A key or a value that is too long; [`Error::OutOfMemory`](crate::Error::OutOfMemory) when the server's memory
    /// limit is reached, upon which nothing has changed; [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown) when
    /// the server was lost before it answered, and [`Error::Unanswered`](crate::Error::Unanswered) when it did not answer in time:
    /// the value may have been stored then, or not.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        with_client!(&self.client, client => client.put_blocking(key.as_ref(), value.as_ref())).map(drop)
    }

    /// Stores records as the iterator gives them, with a window of them under way at once, and hands each back to
    /// `done`, in the order in which they are finished, with how it went. Records of the same key are stored in the order
    /// in which they came.
    ///
    /// ```
    /// # fn main() -> locus::Result<()> {
    /// # let store = locus::open(Default::default())?;
    /// # let table = store.table()?;
    /// let mut stored = 0;
    /// let records = (0..10_000u32).map(|number| (number.to_le_bytes(), "a value"));
    /// table.put_many_with(records, |_, result| stored += u32::from(result.is_ok()));
    /// assert_eq!(stored, 10_000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_many_with<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = (K, V)>,
        done: impl FnMut((K, V), Result<()>),
    ) {
        with_client!(&self.client, client => put_many(client, self.window, records, done));
    }

    /// Removes a key. Says whether it was present.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        with_client!(&self.client, client => client.delete_blocking(key.as_ref()))
    }

    /// What each server has counted, in the order of their addresses.
    pub fn stats(&self) -> Result<Vec<Statistics>> {
        with_client!(&self.client, client => client.statistics())
    }

    /// What this table's operations and traversals have counted: names and values.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        with_client!(&self.client, client => {
            let mut counters = client.counters().list();
            counters.extend(client.effort().list());
            counters
        })
    }

    /// Where gets run.
    pub fn reads(&self) -> Locus {
        with_client!(&self.client, client => client.reads())
    }

    /// The longest value that the servers take, in bytes.
    pub fn value_bytes_max(&self) -> Result<usize> {
        with_client!(&self.client, client => client.value_bytes_max())
    }

    pub(crate) fn client(&self) -> &AnyClient {
        &self.client
    }

    pub(crate) fn window(&self) -> usize {
        self.window
    }
}

fn put_many<N: Nic, K: AsRef<[u8]>, V: AsRef<[u8]>>(
    client: &Client<N>,
    window: usize,
    records: impl IntoIterator<Item = (K, V)>,
    mut done: impl FnMut((K, V), Result<()>),
) {
    let turns = Turns::default();
    let puts = records.into_iter().map(|(key, value)| {
        let turn = turns.enter(key.as_ref());
        async move {
            turn.come().await;
            let result = client.put(key.as_ref(), value.as_ref()).await;
            ((key, value), result.map(drop))
        }
    });
    client.block_on(interleave_async(window, puts, |_, (record, result)| done(record, result)));
}
