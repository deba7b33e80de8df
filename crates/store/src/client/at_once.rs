//! Gets whose READs are over when they are started, on fabrics that can do that: no futures, no buffers, no queue. What
//! they do not answer (see [`cuckoo::Attempt`]), the traversal in `read.rs` does.

use super::{Client, connection::Connection};
use crate::{Index, Locus, StoreError};
use locus_fabric::{Nic, Prefetches};
use locus_index::{
    Key,
    cuckoo::{Attempt, WAYS},
    hopscotch::{self, Shape},
};
use locus_memory::Memory;
use locus_runtime::yield_now;
use std::{cell::RefCell, rc::Rc};

/// Records up to this length are read at once, in bytes.
const BYTES_MAX: usize = 4 << 10;
/// How many keys of a batch are looked up side by side: enough for their cache misses to hide each other's.
pub(super) const LANES: usize = 32;

/// Where the bytes of a record go. Lent to whoever gets the value; gets that begin meanwhile take the other way.
pub(super) struct Scratch(RefCell<Box<[u8; BYTES_MAX]>>);

impl Default for Scratch {
    fn default() -> Self {
        Self(RefCell::new(Box::new([0; BYTES_MAX])))
    }
}

/// A key of a batch under way.
struct Lane<'k, N: Nic> {
    connection: Rc<Connection<N>>,
    attempt: Attempt<'k>,
}

impl<N: Nic> Client<N> {
    /// Finds a key, or does not know whether it is there.
    #[inline]
    pub(super) fn get_at_once<T>(
        &self,
        connection: &Connection<N>,
        key: &Key<'_>,
        found: &mut Option<impl FnOnce(&[u8]) -> T>,
    ) -> Option<T> {
        let mut attempt = Attempt::begin(&connection.table(key.partition())?, *key);
        (0..WAYS).for_each(|way| attempt.ahead(&connection.remote, way).start());
        attempt.find_extent(&connection.remote, &self.effort);
        self.value_at_once(connection, &attempt, |value| found.take().map(|found| found(value)))?
    }

    /// The same, in turns with others that overlap.
    pub(super) async fn get_in_turns<T>(
        &self,
        connection: &Connection<N>,
        key: &Key<'_>,
        found: &mut Option<impl FnOnce(&[u8]) -> T>,
    ) -> Option<T> {
        let mut attempt = Attempt::begin(&connection.table(key.partition())?, *key);
        attempt.ahead(&connection.remote, 0).start();
        for way in 0..WAYS {
            yield_now().await;
            attempt.step(&connection.remote, way, &self.effort).start();
            if attempt.extent().is_some() {
                break;
            }
        }
        yield_now().await;
        self.value_at_once(connection, &attempt, |value| found.take().map(|found| found(value)))?
    }

    /// Finds those of up to [`LANES`] keys that can be found at once, and hands them to `found`. Gives a bit for each of the
    /// others.
    pub(super) fn get_many_at_once<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut found: impl FnMut(usize, Result<Option<&[u8]>, StoreError>),
    ) -> u32 {
        let mut lanes: [Option<Lane<'_, N>>; LANES] = [const { None }; LANES];
        for (lane, key) in lanes.iter_mut().zip(keys) {
            *lane = self.lane(key.as_ref());
        }
        let lanes = &mut lanes[..keys.len()];
        let bytes = lanes.iter().flatten().next().map_or(0, |lane| lane.connection.remote.region_bytes());
        let mut ahead = Prefetches::within(bytes);
        for Lane { connection, attempt } in lanes.iter().flatten() {
            ahead.push(attempt.ahead(&connection.remote, 0));
        }
        ahead.start();
        for way in 0..WAYS {
            for Lane { connection, attempt } in lanes.iter_mut().flatten() {
                ahead.push(attempt.step(&connection.remote, way, &self.effort));
            }
            ahead.start();
        }
        let mut left = 0;
        for (place, lane) in lanes.iter().enumerate() {
            let value = lane.as_ref().and_then(|Lane { connection, attempt }| {
                self.value_at_once(connection, attempt, |value| found(place, Ok(Some(value))))
            });
            left |= u32::from(value.is_none()) << place;
            self.counters.gets.set(self.counters.gets.get() + u64::from(value.is_some()));
        }
        left
    }

    /// Begins with a key, unless there is anything to wait for or to complain of.
    #[inline]
    fn lane<'k>(&self, key: &'k [u8]) -> Option<Lane<'k, N>> {
        let key = self.key(key).ok()?;
        let connection = self.connection_of(key.partition()).ok()?;
        let attempt = Attempt::begin(&connection.table(key.partition())?, key);
        Some(Lane { connection, attempt })
    }

    #[inline]
    fn value_at_once<T>(
        &self,
        connection: &Connection<N>,
        attempt: &Attempt<'_>,
        found: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        let mut scratch = self.scratch.0.try_borrow_mut().ok()?;
        let value = attempt.value(&connection.remote, &mut scratch[..], &self.effort)?;
        connection.remote.current().ok()?;
        Some(found(&scratch[value]))
    }

    /// Finds a key in a hopscotch table, or does not know whether it is there.
    #[inline]
    pub(super) fn hop_at_once<T>(
        &self,
        shape: &Shape,
        connection: &Connection<N>,
        key: &Key<'_>,
        found: &mut Option<impl FnOnce(&[u8]) -> T>,
    ) -> Option<T> {
        let table = connection.table(key.partition())?;
        let mut scratch = self.scratch.0.try_borrow_mut().ok()?;
        let remote = &connection.remote;
        let value = hopscotch::attempt(remote, shape, &table, key, &mut scratch[..], &self.effort)?;
        remote.current().ok()?;
        found.take().map(|found| found(&scratch[value]))
    }

    /// What slots are like, if gets are to be tried so.
    #[inline]
    pub(super) fn hops_at_once(&self) -> Option<&Shape> {
        self.shape.as_ref().filter(|_| self.reads_at_once && self.reads == Locus::Client)
    }

    /// Whether gets are to be tried at once.
    #[inline]
    pub(super) fn at_once(&self) -> bool {
        self.reads_at_once && self.reads == Locus::Client && self.index == Index::Cuckoo
    }
}
