//! A table for applications on any executor: a handle in front of a client that has a thread of its own.
//!
//! A client is local to its thread, and its futures poll the fabric. So operations go over a bounded channel to a thread
//! that runs a client, which keeps a window of them under way; the caller awaits a oneshot. The thread sleeps while there
//! is nothing to do, and a new operation wakes it.

use crate::{
    ClientConfig, Error, FabricError, Result, Statistics, Table, connect_with, provider::with_client,
};
use async_channel::{Receiver, Sender};
use futures_channel::oneshot;
use futures_core::Stream;
use locus_fabric::Nic;
use locus_store::Client;
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
};

/// How many operations may wait for a place in the window; further ones wait to be handed over.
const COMMANDS_MAX: usize = 1024;

/// A table that can be cloned, sent and shared, for applications on any executor. All clones share one client, which has
/// a thread of its own; it ends with the last clone.
///
/// An operation whose future is dropped after it was first polled may be carried out all the same.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let address = format!("shm:{}", directory.path().join("locus.sock").display());
/// # let server = locus::Server::start(locus::ServerConfig::default(), &[&address]).unwrap();
/// # futures_executor::block_on(async {
/// let table = locus::AsyncTable::connect(&address).await?;
/// table.put("key", "value").await?;
/// assert_eq!(table.get("key").await?.as_deref(), Some(&b"value"[..]));
/// assert!(table.delete("key").await?);
/// # Ok::<(), locus::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct AsyncTable {
    commands: Sender<Command>,
}

/// An operation, and where its result goes. Whoever waited may be gone: then the result is dropped.
#[derive(Debug)]
enum Command {
    Get(Vec<u8>, Answer<Option<Vec<u8>>>),
    GetMany(Vec<Vec<u8>>, oneshot::Sender<Vec<Result<Option<Vec<u8>>>>>),
    Put(Vec<u8>, Vec<u8>, Answer<()>),
    Delete(Vec<u8>, Answer<bool>),
    Stats(Answer<Vec<Statistics>>),
    Counters(oneshot::Sender<Vec<(&'static str, u64)>>),
}

type Answer<T> = oneshot::Sender<Result<T>>;

impl AsyncTable {
    /// Connects with the server at an address (`shm:/path/to/socket` or `rdma://host:port`).
    ///
    /// # Errors
    /// As [`connect`](crate::connect).
    pub async fn connect(address: &str) -> Result<Self> {
        Self::connect_with(&[address], ClientConfig::default()).await
    }

    /// Connects with all servers of a store, as [`connect_with`].
    ///
    /// # Errors
    /// As [`connect_with`].
    pub async fn connect_with(addresses: &[impl AsRef<str>], config: ClientConfig) -> Result<Self> {
        let addresses: Vec<String> = addresses.iter().map(|address| address.as_ref().to_owned()).collect();
        Self::start(move || connect_with(&addresses, config)).await
    }

    /// Starts the thread, on which `open` makes the client.
    pub(crate) async fn start(open: impl FnOnce() -> Result<Table> + Send + 'static) -> Result<Self> {
        let (commands, received) = async_channel::bounded(COMMANDS_MAX);
        let (ready, opened) = oneshot::channel();
        let body = move || match open() {
            Ok(table) => {
                // Nobody waits any more: then there is no sender either, and the loop ends at once.
                let _ = ready.send(Ok(()));
                with_client!(table.client(), client => serve(client, &table, received));
            }
            Err(error) => drop(ready.send(Err(error))),
        };
        std::thread::Builder::new()
            .name("locus-async".into())
            .spawn(body)
            .map_err(|source| Error::System { what: "starting a thread", source })?;
        opened.await.unwrap_or_else(|_| Err(ended()))?;
        Ok(Self { commands })
    }

    /// The value of a key; `None` if it is absent.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub async fn get(&self, key: impl Into<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        self.ask(|answer| Command::Get(key.into(), answer)).await?
    }

    /// The values of many keys, in their order. Their READs overlap.
    ///
    /// # Errors
    /// Only where none of the keys could be looked up; else each has a result of its own.
    pub async fn get_many<K: Into<Vec<u8>>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Result<Option<Vec<u8>>>>> {
        let keys = keys.into_iter().map(Into::into).collect();
        self.ask(|answer| Command::GetMany(keys, answer)).await
    }

    /// Stores a value under a key, in place of the one that was there.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub async fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<()> {
        self.ask(|answer| Command::Put(key.into(), value.into(), answer)).await?
    }

    /// Removes a key. Says whether it was present.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub async fn delete(&self, key: impl Into<Vec<u8>>) -> Result<bool> {
        self.ask(|answer| Command::Delete(key.into(), answer)).await?
    }

    /// What each server has counted, in the order of their addresses.
    ///
    /// # Errors
    /// A server that is lost.
    pub async fn stats(&self) -> Result<Vec<Statistics>> {
        self.ask(Command::Stats).await?
    }

    /// What the operations and traversals of the client behind all clones have counted: names and values.
    ///
    /// # Errors
    /// Only when the thread has ended, which it does not.
    pub async fn counters(&self) -> Result<Vec<(&'static str, u64)>> {
        self.ask(Command::Counters).await
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(command(answer)).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())
    }
}

fn ended() -> Error {
    Error::Fabric(FabricError::State("the thread of this table has ended, by a panic: see its message"))
}

/// Carries out operations until all handles are gone.
fn serve<N: Nic>(client: &Client<N>, table: &Table, received: Receiver<Command>) {
    let mut lanes = Lanes::new(table.window());
    let mut received = pin!(received);
    let mut open = true;
    client.block_on(poll_fn(|context| {
        while open && lanes.room() {
            match received.as_mut().poll_next(context) {
                Poll::Ready(Some(command)) => lanes.begin(carry_out(client, table, command)),
                Poll::Ready(None) => open = false,
                // The next command wakes this thread.
                Poll::Pending => break,
            }
        }
        // Gets that take turns let each other's READs overlap; one alone is quicker at once.
        let _overlap = (lanes.live > 1).then(|| client.overlap());
        if lanes.turn(context) {
            // Something was done: not a reason to idle, and there is room for more.
            context.waker().wake_by_ref();
        }
        if lanes.live == 0 && !open { Poll::Ready(()) } else { Poll::Pending }
    }));
}

/// Places for operations under way. Unlike a runtime's interleaving, they fill as operations come.
struct Lanes<F> {
    places: Vec<Pin<Box<Option<F>>>>,
    live: usize,
}

impl<F: Future<Output = ()>> Lanes<F> {
    fn new(count: usize) -> Self {
        Self { places: (0..count).map(|_| Box::pin(None)).collect(), live: 0 }
    }

    fn room(&self) -> bool {
        self.live < self.places.len()
    }

    fn begin(&mut self, operation: F) {
        if let Some(place) = self.places.iter_mut().find(|place| place.is_none()) {
            place.set(Some(operation));
            self.live += 1;
        }
    }

    /// Polls each operation once, and says whether any finished.
    fn turn(&mut self, context: &mut Context<'_>) -> bool {
        let before = self.live;
        for place in &mut self.places {
            if let Some(operation) = place.as_mut().as_pin_mut()
                && operation.poll(context).is_ready()
            {
                place.set(None);
                self.live -= 1;
            }
        }
        self.live < before
    }
}

async fn carry_out<N: Nic>(client: &Client<N>, table: &Table, command: Command) {
    // Whoever is gone by now needs no answer.
    match command {
        Command::Get(key, answer) => drop(answer.send(client.get(&key, <[u8]>::to_vec).await)),
        Command::GetMany(keys, answer) => {
            let mut values: Vec<_> = keys.iter().map(|_| Ok(None)).collect();
            let found = |place: usize, value: Result<Option<&[u8]>>| {
                values[place] = value.map(|value| value.map(<[u8]>::to_vec));
            };
            // Boxed: it is much larger than the others, and every lane has room for the largest.
            Box::pin(client.get_many(&keys, found)).await;
            drop(answer.send(values));
        }
        Command::Put(key, value, answer) => drop(answer.send(client.put(&key, &value).await.map(drop))),
        Command::Delete(key, answer) => drop(answer.send(client.delete(&key).await)),
        Command::Stats(answer) => drop(answer.send(table.stats())),
        Command::Counters(answer) => drop(answer.send(table.counters())),
    }
}
