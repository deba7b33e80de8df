//! Puts and deletes: by RPC, at most once. Values too long for a request are placed at the server by WRITE first.

use super::{Client, connection::Connection, counters::count};
use crate::{
    Owner, StoreError,
    opcode::{Opcode, Status},
};
use locus_fabric::Nic;
use locus_index::Key;
use locus_rpc::{Reply, Request};
use std::{future::poll_fn, rc::Rc};

/// How often a value is placed anew because its request came before it. That takes a NIC that acknowledges WRITEs early and
/// delivers the request of another queue pair within that time.
const PLACED_MAX: usize = 32;

/// What became of a mutation.
enum Outcome {
    /// It was made: whether the key was present before, and the record's version.
    Made(bool, u64),
    /// Its request came before its value, and nothing was changed.
    NotStaged,
    /// The server says why not.
    Refused(u8),
}

impl<N: Nic> Client<N> {
    /// Stores a value under a key. Gives the version of the record.
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<u64, StoreError> {
        let key = self.key(key)?;
        let (owner, connection, request) = self.mutation(Opcode::Put, &key, value)?;
        // What follows is [`Client::change`] for a request that fits a frame: see [`Client::get`].
        let failed = |error| self.failed(owner.server, &connection, error);
        let channel = connection.channel(owner.core).map_err(failed)?;
        if !channel.stages(&request) {
            let mut call = channel.begin(&request).map_err(|error| failed(error.into()))?;
            let mut resumes = 0;
            let asked = poll_fn(|_| self.step(owner.server, &connection, &mut call, &mut resumes)).await;
            asked.map_err(|error| failed(*error))?;
            match call.take(mutated) {
                Outcome::Made(_, version) => return Ok(version),
                Outcome::Refused(status) => return Err(failed(refused(status))),
                Outcome::NotStaged => {}
            }
        }
        let result = self.change(&connection, owner, &request).await;
        result.map(|(_, version)| version).map_err(failed)
    }

    /// The same on this thread, which is quicker than [`Client::block_on`] with [`Client::put`].
    #[inline]
    pub fn put_blocking(&self, key: &[u8], value: &[u8]) -> Result<u64, StoreError> {
        let key = self.key(key)?;
        self.mutate_blocking(Opcode::Put, &key, value).map(|(_, version)| version)
    }

    /// Removes a key. Says whether it was present.
    pub async fn delete(&self, key: &[u8]) -> Result<bool, StoreError> {
        let key = self.key(key)?;
        self.mutate(Opcode::Delete, &key, &[]).await.map(|(present, _)| present)
    }

    /// The same on this thread, which is quicker than [`Client::block_on`] with [`Client::delete`].
    #[inline]
    pub fn delete_blocking(&self, key: &[u8]) -> Result<bool, StoreError> {
        let key = self.key(key)?;
        self.mutate_blocking(Opcode::Delete, &key, &[]).map(|(present, _)| present)
    }

    async fn mutate(&self, opcode: Opcode, key: &Key<'_>, value: &[u8]) -> Result<(bool, u64), StoreError> {
        let (owner, connection, request) = self.mutation(opcode, key, value)?;
        let result = self.change(&connection, owner, &request).await;
        result.map_err(|error| self.failed(owner.server, &connection, error))
    }

    #[inline]
    fn mutate_blocking(
        &self,
        opcode: Opcode,
        key: &Key<'_>,
        value: &[u8],
    ) -> Result<(bool, u64), StoreError> {
        let (owner, connection, request) = self.mutation(opcode, key, value)?;
        let result = self.change_blocking(&connection, owner, &request);
        result.map_err(|error| self.failed(owner.server, &connection, error))
    }

    /// Counts a mutation and checks that it is within the limits. Gives who carries it out, and the request.
    #[inline(always)]
    fn mutation<'r>(
        &self,
        opcode: Opcode,
        key: &Key<'r>,
        value: &'r [u8],
    ) -> Result<(Owner, Rc<Connection<N>>, Request<'r>), StoreError> {
        count(&self.counters.mutations);
        let owner = self.map.owner(key.partition());
        let connection = self.connection(owner.server.into())?;
        let limit = connection.manifest.value_bytes_max as usize;
        if value.len() > limit {
            return Err(StoreError::ValueLength { bytes: value.len(), limit });
        }
        if let Some(shape) = self.shape.filter(|shape| shape.inline() && opcode == Opcode::Put) {
            let (bytes, limit) = (key.bytes().len() + value.len(), shape.pair_bytes_max());
            if bytes > limit {
                return Err(StoreError::SlotLength { bytes, limit });
            }
        }
        let request = Request {
            opcode: opcode as u8,
            mutates: true,
            partition: key.partition().index() as u16,
            map_epoch: self.map.epoch,
            key: key.bytes(),
            value,
        };
        Ok((owner, connection, request))
    }

    async fn change(
        &self,
        connection: &Rc<Connection<N>>,
        owner: Owner,
        request: &Request<'_>,
    ) -> Result<(bool, u64), StoreError> {
        let channel = connection.channel(owner.core)?;
        for _ in 0..PLACED_MAX {
            if channel.stages(request) {
                connection.provide_staging(channel)?;
            }
            let (mut call, mut resumes) = (channel.begin(request)?, 0);
            poll_fn(|_| self.step(owner.server, connection, &mut call, &mut resumes)).await?;
            match call.take(mutated) {
                Outcome::Made(present, version) => return Ok((present, version)),
                Outcome::Refused(status) => return Err(refused(status)),
                // As that was this request's outcome, another one is no repetition.
                Outcome::NotStaged => count(&self.counters.values_placed_again),
            }
        }
        Err(StoreError::NotStaged(PLACED_MAX))
    }

    /// The same on this thread.
    #[inline]
    fn change_blocking(
        &self,
        connection: &Rc<Connection<N>>,
        owner: Owner,
        request: &Request<'_>,
    ) -> Result<(bool, u64), StoreError> {
        let channel = connection.channel(owner.core)?;
        if !channel.stages(request) {
            let mut call = channel.begin(request)?;
            self.wait_for(owner.server, connection, &mut call)?;
            match call.take(mutated) {
                Outcome::Made(present, version) => return Ok((present, version)),
                Outcome::Refused(status) => return Err(refused(status)),
                Outcome::NotStaged => {}
            }
        }
        self.block_on(self.change(connection, owner, request))
    }
}

#[inline(always)]
fn mutated(reply: &Reply<'_>) -> Outcome {
    match Status::from_byte(reply.status) {
        Some(Status::Present) => Outcome::Made(true, reply.version),
        Some(Status::Absent) => Outcome::Made(false, reply.version),
        Some(Status::NotStaged) => Outcome::NotStaged,
        _ => Outcome::Refused(reply.status),
    }
}

#[cold]
fn refused(status: u8) -> StoreError {
    match Status::from_byte(status) {
        Some(Status::OutOfMemory) => StoreError::OutOfMemory,
        Some(Status::Collisions) => StoreError::Collisions,
        _ => super::bad_reply(status),
    }
}
