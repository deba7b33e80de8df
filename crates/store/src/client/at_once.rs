//! Gets whose READs are over when they are started, on fabrics that can do that: no futures, no buffers, no queue. What
//! they do not answer (see [`Attempt`]), the traversal in `read.rs` does.

use super::{Client, connection::Connection};
use crate::{Index, Locus, StoreError};
use locus_fabric::{Nic, Prefetch, Prefetches};
use locus_index::{
    Extent, Key,
    cuckoo::{Attempt, Table, WAYS},
    hopscotch::{self, Glance, Shape},
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

/// The same in a hopscotch table.
struct Hop<'k, N: Nic> {
    connection: Rc<Connection<N>>,
    key: Key<'k>,
    table: Table,
    /// Where the record is, once that is known.
    record: Option<Extent>,
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

    /// Finds those of up to [`LANES`] keys in hopscotch tables that can be found at once, and hands them to `found`. Gives a bit
    /// for each of the others.
    pub(super) fn hop_many_at_once<K: AsRef<[u8]>>(
        &self,
        shape: &Shape,
        keys: &[K],
        mut found: impl FnMut(usize, Result<Option<&[u8]>, StoreError>),
    ) -> u32 {
        let mut hops: [Option<Hop<'_, N>>; LANES] = [const { None }; LANES];
        for (hop, key) in hops.iter_mut().zip(keys) {
            *hop = self.hop(key.as_ref());
        }
        let hops = &mut hops[..keys.len()];
        let bytes = hops.iter().flatten().next().map_or(0, |hop| hop.connection.remote.region_bytes());
        let mut ahead = Prefetches::within(bytes);
        for Hop { connection, key, table, .. } in hops.iter().flatten() {
            ahead.push(connection.remote.ahead(shape.first_at(table, key), shape.read_bytes()));
        }
        ahead.start();
        let mut left = u32::MAX;
        let mut hand_over = |place: usize, value: &[u8]| {
            found(place, Ok(Some(value)));
            left &= !(1 << place);
        };
        for (place, hop) in hops.iter_mut().enumerate() {
            if let Some(hop) = hop {
                self.glance(shape, hop, |value| hand_over(place, value));
                let next = hop.record.map(|extent| hop.connection.remote.ahead(extent.at, extent.bytes));
                ahead.push(next.unwrap_or(Prefetch::NONE));
            }
        }
        ahead.start();
        for (place, hop) in hops.iter().enumerate() {
            if let Some(Hop { connection, key, record: Some(extent), .. }) = hop {
                self.record_at_once(connection, extent, key, |value| hand_over(place, value));
            }
        }
        self.counters.gets.set(self.counters.gets.get() + u64::from(left.count_zeros()));
        left
    }

    /// Begins with a key in a hopscotch table, unless there is anything to wait for or to complain of.
    #[inline]
    fn hop<'k>(&self, key: &'k [u8]) -> Option<Hop<'k, N>> {
        let key = self.key(key).ok()?;
        let connection = self.connection_of(key.partition()).ok()?;
        let table = connection.table(key.partition())?;
        Some(Hop { connection, key, table, record: None })
    }

    /// Looks at a key's neighbourhood: hands the value over if it is there, and takes note of the record otherwise.
    #[inline]
    fn glance(&self, shape: &Shape, hop: &mut Hop<'_, N>, found: impl FnOnce(&[u8])) {
        let Ok(mut scratch) = self.scratch.0.try_borrow_mut() else { return };
        let remote = &hop.connection.remote;
        match hopscotch::glance(remote, shape, &hop.table, &hop.key, &mut scratch[..], &self.effort) {
            Some(Glance::Value(value)) if remote.current().is_ok() => found(&scratch[value]),
            Some(Glance::Record(extent)) => hop.record = Some(extent),
            Some(Glance::Value(_)) | None => {}
        }
    }

    #[inline]
    fn record_at_once(
        &self,
        connection: &Connection<N>,
        extent: &Extent,
        key: &Key<'_>,
        found: impl FnOnce(&[u8]),
    ) {
        let Ok(mut scratch) = self.scratch.0.try_borrow_mut() else { return };
        let remote = &connection.remote;
        if let Some(value) = extent.read_at_once(remote, key, &mut scratch[..], &self.effort)
            && remote.current().is_ok()
        {
            found(&scratch[value]);
        }
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
