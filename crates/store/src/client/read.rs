//! Gets: at the client by one-sided READs, or at the server by RPC.
//!
//! A client-side get is the index's traversal over [`locus_memory::Remote`] memory. What it needs besides is here: the
//! directory entry in use, fetched again when it turns out stale; regions that the server has added since; and the way
//! out when writers keep the traversal from an answer, which is to ask the server. Every loop has its limit.

use super::{Client, at_once::LANES, connection::Connection, counters::count};
use crate::{
    Index, Locus, Owner, StoreError,
    opcode::{Opcode, Status, decode_extent},
};
use locus_fabric::{FabricError, Link, Nic};
use locus_index::{Answer, Extent, Key, LookupError, Record, blocked, cuckoo, hopscotch};
use locus_memory::{Memory, MemoryError, checksum};
use locus_rpc::{INLINE_VALUE_BYTES_MAX, Reply, Request, RpcError};
use locus_runtime::{Idle, interleave_async, interleave_idling, yield_now};
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    ops::{Deref, Range},
    rc::Rc,
};

/// How often one get fetches its directory entry, or the list of regions, before it asks the server instead.
const ENTRY_READS_MAX: usize = 8;
/// How often a large value is asked for again because it changed before it was read.
const LARGE_READS_MAX: usize = 64;

/// Why a get at the client has no answer.
enum Interrupted {
    /// Ask the server.
    Contended,
    /// The connection is lost or broken.
    Failed(StoreError),
}

impl<N: Nic> Client<N> {
    /// Finds a key and hands the value to `found`. The value's bytes are good for the call alone.
    pub fn get<T>(
        &self,
        key: &[u8],
        found: impl FnOnce(&[u8]) -> T,
    ) -> impl Future<Output = Result<Option<T>, StoreError>> {
        // Used where it is captured: arguments of an `async fn` are moved once more.
        let mut found = Some(found);
        async move {
            let key = self.key(key)?;
            count(&self.counters.gets);
            if self.reads == Locus::Server {
                let owner = self.map.owner(key.partition());
                let connection = self.connection(owner.server.into())?;
                // What follows is [`Client::get_at_server`] but for values that are elsewhere: a future within this one would be
                // handed all it needs and hand back a result, through memory.
                let failed = |error| self.failed(owner.server, &connection, error);
                let request = self.request_to_get(&key);
                let channel = connection.channel(owner.core).map_err(failed)?;
                let mut call = channel.begin(&request).map_err(|error| failed(error.into()))?;
                let mut resumes = 0;
                let asked = poll_fn(|_| self.step(owner.server, &connection, &mut call, &mut resumes)).await;
                asked.map_err(|error| failed(*error))?;
                return match call.take(|reply| got(reply, &mut found)) {
                    Got::Value(value) => Ok(value),
                    Got::Refused(status) => Err(failed(super::bad_reply(status))),
                    Got::Elsewhere(extent) => {
                        let value =
                            self.get_large_or_ask(&connection, owner, &key, *extent, &mut found).await;
                        value.map_err(failed)
                    }
                };
            }
            let connection = self.connection_of(key.partition())?;
            if self.at_once() {
                let value = match self.overlapping.get() {
                    0 => self.get_at_once(&connection, &key, &mut found),
                    _ => self.get_in_turns(&connection, &key, &mut found).await,
                };
                if value.is_some() {
                    return Ok(value);
                }
            }
            if let Some(shape) = self.hops_at_once() {
                if self.overlapping.get() > 0
                    && let Some(table) = connection.table(key.partition())
                {
                    connection.remote.prefetch(shape.first_at(&table, &key), shape.read_bytes());
                    yield_now().await;
                }
                let value = self.hop_at_once(shape, &connection, &key, &mut found);
                if value.is_some() {
                    return Ok(value);
                }
            }
            self.get_thoroughly(&connection, &key, &mut found).await
        }
    }

    /// Finds a key wherever the design says, or at the server if it cannot be found at the client.
    async fn get_thoroughly<T>(
        &self,
        connection: &Rc<Connection<N>>,
        key: &Key<'_>,
        found: &mut Option<impl FnOnce(&[u8]) -> T>,
    ) -> Result<Option<T>, StoreError> {
        let owner = self.map.owner(key.partition());
        if self.reads == Locus::Client {
            match self.get_at_client(connection, owner.core, key, found).await {
                Ok(value) => return Ok(value),
                Err(Interrupted::Contended) => count(&self.counters.fallbacks),
                Err(Interrupted::Failed(error)) => return Err(self.failed(owner.server, connection, error)),
            }
        }
        let result = self.get_at_server(connection, owner, key, found).await;
        result.map_err(|error| self.failed(owner.server, connection, error))
    }

    /// The same on this thread, which is quicker than [`Client::block_on`] with [`Client::get`]: where READs are over at
    /// once, and where the server is asked, there is no future to be made and moved.
    #[inline]
    pub fn get_blocking<T>(
        &self,
        key: &[u8],
        found: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, StoreError> {
        let mut found = Some(found);
        if self.reads == Locus::Server {
            let key = self.key(key)?;
            count(&self.counters.gets);
            let owner = self.map.owner(key.partition());
            let connection = self.connection(owner.server.into())?;
            let result = self.get_at_server_blocking(&connection, owner, &key, &mut found);
            return result.map_err(|error| self.failed(owner.server, &connection, error));
        }
        if self.at_once() {
            let key = self.key(key)?;
            let connection = self.connection_of(key.partition())?;
            if let Some(value) = self.get_at_once(&connection, &key, &mut found) {
                count(&self.counters.gets);
                return Ok(Some(value));
            }
        }
        if let Some(shape) = self.hops_at_once() {
            let key = self.key(key)?;
            let connection = self.connection_of(key.partition())?;
            if let Some(value) = self.hop_at_once(shape, &connection, &key, &mut found) {
                count(&self.counters.gets);
                return Ok(Some(value));
            }
        }
        let found = |value: &[u8]| found.take().map(|found| found(value));
        Ok(self.block_on(self.get(key, found))?.flatten())
    }

    /// Finds many keys, with up to the window of them under way at once, so that their READs overlap. Hands each
    /// result to `found` with the key's place in `keys`, in the order in which they arrive.
    pub async fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        found: impl FnMut(usize, Result<Option<&[u8]>, StoreError>),
    ) {
        let (found, _overlap) = (RefCell::new(found), self.overlap());
        interleave_async(self.config.window, self.gets(keys, &found), |_, ()| ()).await;
    }

    /// The same at once on this thread, which is quicker than [`Client::block_on`] with [`Client::get_many`].
    pub fn get_batch<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        found: impl FnMut(usize, Result<Option<&[u8]>, StoreError>),
    ) {
        /// READs that overlap need some turns; only after that is there something to wait for.
        const TURNS: u32 = 16;
        let (found, _overlap) = (RefCell::new(found), self.overlap());
        let mut idle = Idle::default();
        interleave_idling(
            self.config.window,
            self.gets(keys, &found),
            |_, ()| (),
            |turns| {
                if turns > TURNS {
                    idle.step(self);
                } else {
                    idle.reset();
                }
            },
        );
    }

    /// A get for each key that could not be found at once, which hands over its result when it is done. Where READs are
    /// over at once, drawing from this finds the others and hands them over.
    fn gets<'a, K: AsRef<[u8]>, F: FnMut(usize, Result<Option<&[u8]>, StoreError>)>(
        &'a self,
        keys: &'a [K],
        found: &'a RefCell<F>,
    ) -> impl Iterator<Item = impl Future<Output = ()>> {
        keys.chunks(LANES).enumerate().flat_map(move |(number, keys)| {
            let first = number * LANES;
            let left = if self.at_once() {
                self.get_many_at_once(keys, |place, value| (found.borrow_mut())(first + place, value))
            } else if let Some(shape) = self.hops_at_once() {
                self.hop_many_at_once(shape, keys, |place, value| (found.borrow_mut())(first + place, value))
            } else {
                u32::MAX
            };
            let left = keys.iter().zip(first..).enumerate().filter(move |(lane, _)| left >> lane & 1 == 1);
            left.map(move |(_, (key, place))| self.get_one_of_many(key.as_ref(), place, found))
        })
    }

    async fn get_one_of_many<F: FnMut(usize, Result<Option<&[u8]>, StoreError>)>(
        &self,
        key: &[u8],
        place: usize,
        found: &RefCell<F>,
    ) {
        let got = async {
            let key = self.key(key)?;
            count(&self.counters.gets);
            let connection = self.connection_of(key.partition())?;
            let mut hand_over = Some(|value: &[u8]| (found.borrow_mut())(place, Ok(Some(value))));
            self.get_thoroughly(&connection, &key, &mut hand_over).await
        };
        match got.await {
            Ok(Some(())) => {}
            Ok(None) => (found.borrow_mut())(place, Ok(None)),
            Err(error) => (found.borrow_mut())(place, Err(error)),
        }
    }

    /// While this lives, gets that take turns on this thread let each other's READs overlap, in place of waiting for each
    /// READ at once, which is quickest for a get alone.
    pub fn overlap(&self) -> Overlap<'_> {
        self.overlapping.set(self.overlapping.get() + 1);
        Overlap(&self.overlapping)
    }

    async fn get_at_client<T>(
        &self,
        connection: &Rc<Connection<N>>,
        core: u16,
        key: &Key<'_>,
        found: &mut Option<impl FnOnce(&[u8]) -> T>,
    ) -> Result<Option<T>, Interrupted> {
        let _overlap = (self.overlapping.get() > 0).then(|| connection.remote.overlap());
        for _ in 0..ENTRY_READS_MAX {
            let tables = connection.entry(key.partition());
            let (remote, retries, effort) = (&connection.remote, self.config.retries, &self.effort);
            let result = match (self.index, tables.current) {
                (_, None) => Err(LookupError::Stale),
                (Index::Cuckoo, _) => cuckoo::get(remote, &tables, key, retries, effort).await,
                (Index::Blocked, Some(table)) => blocked::get(remote, &table, key, retries, effort).await,
                (Index::Hopscotch | Index::HopscotchInline, _) => match &self.shape {
                    Some(shape) => hopscotch::get(remote, shape, &tables, key, retries, effort).await,
                    None => Err(LookupError::Contended),
                },
                // Refused when the client was made.
                (Index::Lossy, _) => Err(LookupError::Contended),
            };
            match result {
                Ok(Answer::Found(record)) => return Ok(hand_over(record.bytes, record.value, found)),
                Ok(Answer::Absent) => return Ok(None),
                Err(LookupError::Stale) => {
                    count(&self.counters.stale_entries);
                    let fresh = connection
                        .directory(core)
                        .read(&connection.remote, key.partition(), &self.effort)
                        .await;
                    match fresh {
                        // Nothing was ever put into this partition: an entry says so as long as it is true.
                        Ok(tables) if tables.current.is_none() => {
                            connection.remote.current().map_err(|error| interrupted(connection, error))?;
                            return Ok(None);
                        }
                        Ok(tables) => connection.set_entry(key.partition(), tables),
                        Err(error) => self.recover(connection, error)?,
                    }
                }
                Err(error) => self.recover(connection, error)?,
            }
        }
        Err(Interrupted::Contended)
    }

    /// Does what lets a lookup go on after an error, or says that it cannot.
    fn recover(&self, connection: &Rc<Connection<N>>, error: LookupError) -> Result<(), Interrupted> {
        match error {
            LookupError::Memory(MemoryError::UnknownRegion(_)) => {
                count(&self.counters.region_updates);
                let any = connection.fetch_regions().map_err(Interrupted::Failed)?;
                if any { Ok(()) } else { Err(Interrupted::Contended) }
            }
            LookupError::Memory(MemoryError::NoBuffer(_)) | LookupError::Contended | LookupError::Stale => {
                Err(Interrupted::Contended)
            }
            LookupError::Memory(error) => Err(interrupted(connection, error)),
        }
    }

    async fn get_at_server<T>(
        &self,
        connection: &Rc<Connection<N>>,
        owner: Owner,
        key: &Key<'_>,
        found: &mut Option<impl FnOnce(&[u8]) -> T>,
    ) -> Result<Option<T>, StoreError> {
        let channel = connection.channel(owner.core)?;
        for _ in 0..LARGE_READS_MAX {
            let request = self.request_to_get(key);
            let (mut call, mut resumes) = (channel.begin(&request)?, 0);
            poll_fn(|_| self.step(owner.server, connection, &mut call, &mut resumes)).await?;
            match call.take(|reply| got(reply, found)) {
                Got::Value(value) => return Ok(value),
                Got::Refused(status) => return Err(super::bad_reply(status)),
                Got::Elsewhere(extent) => {
                    if let Some(value) = self.get_large(connection, key, *extent, found).await? {
                        return Ok(Some(value));
                    }
                }
            }
        }
        Err(StoreError::Contended(LARGE_READS_MAX))
    }

    /// Reads a record to which a reply pointed, or asks the server again if it has changed since.
    async fn get_large_or_ask<T>(
        &self,
        connection: &Rc<Connection<N>>,
        owner: Owner,
        key: &Key<'_>,
        extent: Extent,
        found: &mut Option<impl FnOnce(&[u8]) -> T>,
    ) -> Result<Option<T>, StoreError> {
        match self.get_large(connection, key, extent, found).await? {
            Some(value) => Ok(Some(value)),
            None => self.get_at_server(connection, owner, key, found).await,
        }
    }

    /// The same on this thread.
    #[inline]
    fn get_at_server_blocking<T>(
        &self,
        connection: &Rc<Connection<N>>,
        owner: Owner,
        key: &Key<'_>,
        found: &mut Option<impl FnOnce(&[u8]) -> T>,
    ) -> Result<Option<T>, StoreError> {
        let request = self.request_to_get(key);
        let mut call = connection.channel(owner.core)?.begin(&request)?;
        self.wait_for(owner.server, connection, &mut call)?;
        match call.take(|reply| got(reply, found)) {
            Got::Value(value) => Ok(value),
            Got::Refused(status) => Err(super::bad_reply(status)),
            Got::Elsewhere(extent) => {
                self.block_on(self.get_large_or_ask(connection, owner, key, *extent, found))
            }
        }
    }

    #[inline]
    fn request_to_get<'k>(&self, key: &Key<'k>) -> Request<'k> {
        Request {
            opcode: Opcode::Get as u8,
            mutates: false,
            partition: key.partition().index() as u16,
            map_epoch: self.map.epoch,
            key: key.bytes(),
            value: &[],
        }
    }

    /// Reads a record to which a reply pointed; none if it has changed since.
    async fn get_large<T>(
        &self,
        connection: &Rc<Connection<N>>,
        key: &Key<'_>,
        extent: Extent,
        found: &mut Option<impl FnOnce(&[u8]) -> T>,
    ) -> Result<Option<T>, StoreError> {
        if !connection.remote.region_known(extent.at.region()) {
            connection.fetch_regions()?;
        }
        let bytes = connection.remote.read(extent.at, extent.bytes).await?;
        connection.remote.current()?;
        if checksum(&bytes) != extent.checksum {
            return Ok(None);
        }
        match Record::parse(&bytes) {
            Some(Record { key: its, value, .. }) if its == key.bytes() => Ok(hand_over(bytes, value, found)),
            _ => Err(StoreError::Protocol {
                peer: connection.link.peer(),
                what: "a pointer to another record".into(),
            }),
        }
    }

    /// What the client makes of an error: a connection that is lost or broken is forgotten, so that the next operation
    /// makes a new one.
    pub(super) fn failed(
        &self,
        server: u16,
        connection: &Rc<Connection<N>>,
        error: StoreError,
    ) -> StoreError {
        let lost = !connection.link.alive();
        let broken = matches!(
            error,
            StoreError::ServerLost { .. }
                | StoreError::OutcomeUnknown { .. }
                | StoreError::Protocol { .. }
                | StoreError::Memory(_)
                | StoreError::Fabric(_)
        );
        if lost || broken {
            self.lose(server.into(), connection);
        }
        match error {
            StoreError::Memory(MemoryError::OwnerLost) => {
                StoreError::ServerLost { peer: connection.link.peer() }
            }
            StoreError::Memory(_) | StoreError::Fabric(_) | StoreError::Protocol { .. } if lost => {
                StoreError::ServerLost { peer: connection.link.peer() }
            }
            error => error,
        }
    }
}

/// Hands a value over. A long one is copied first, since there are few buffers as long as that, and a callback that gets
/// such values in turn would wait for ever for those that its callers hold.
fn hand_over<T>(
    bytes: impl Deref<Target = [u8]>,
    value: Range<usize>,
    found: &mut Option<impl FnOnce(&[u8]) -> T>,
) -> Option<T> {
    /// Buffers for longer objects are few (see [`locus_memory::Remote`]).
    const LENT_BYTES_MAX: usize = 64 << 10;
    let found = found.take()?;
    if bytes.len() <= LENT_BYTES_MAX {
        return Some(found(&bytes[value]));
    }
    let copy = bytes[value].to_vec();
    drop(bytes);
    Some(found(&copy))
}

/// A channel's error in the words of the store.
pub(super) fn rpc_error<N: Nic>(connection: &Connection<N>, error: RpcError) -> StoreError {
    match error {
        RpcError::ServerLost { .. } | RpcError::Fabric(FabricError::PeerLost { .. }) => {
            StoreError::ServerLost { peer: connection.link.peer() }
        }
        RpcError::OutcomeUnknown => StoreError::OutcomeUnknown { peer: connection.link.peer() },
        RpcError::Unanswered { peer, limit, change_pending } => {
            StoreError::Unanswered { peer, limit, change_pending }
        }
        error => StoreError::Rpc(error),
    }
}

fn interrupted<N: Nic>(connection: &Rc<Connection<N>>, error: MemoryError) -> Interrupted {
    Interrupted::Failed(match error {
        // Also where the link lives and a queue pair broke: for a port that went down, say.
        MemoryError::OwnerLost => StoreError::ServerLost { peer: connection.link.peer() },
        error => StoreError::Memory(error),
    })
}

/// See [`Client::overlap`].
pub struct Overlap<'a>(&'a Cell<usize>);

impl Drop for Overlap<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// What a reply to a get says. Small, whatever is rare: see [`super::ended`].
enum Got<T> {
    Value(Option<T>),
    Elsewhere(Box<Extent>),
    /// This status does not answer the request.
    Refused(u8),
}

#[inline(always)]
fn got<T>(reply: &Reply<'_>, found: &mut Option<impl FnOnce(&[u8]) -> T>) -> Got<T> {
    match Status::from_byte(reply.status) {
        Some(Status::Present) if reply.value.len() <= INLINE_VALUE_BYTES_MAX => {
            Got::Value(found.take().map(|found| found(reply.value)))
        }
        Some(Status::Absent) => Got::Value(None),
        Some(Status::Pointer) => decode_extent(reply.value)
            .map_or(Got::Refused(reply.status), |extent| Got::Elsewhere(Box::new(extent))),
        _ => Got::Refused(reply.status),
    }
}
