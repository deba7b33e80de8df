//! Gets whose READs are over when they are started, on fabrics that can do that: no futures, no buffers, no queue. What
//! they do not answer (see [`cuckoo::Attempt`]), the traversal in `read.rs` does.

use super::{Client, connection::Connection, counters::count};
use crate::{Locus, StoreError};
use locus_fabric::Nic;
use locus_index::{
    Counters, Extent, Key,
    cuckoo::{Attempt, Glance, WAYS},
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
    key: Key<'k>,
    attempt: Attempt,
    state: State,
}

/// Where a lane is.
enum State {
    /// At a row, which was prefetched.
    Row,
    /// At an extent, which was prefetched.
    Extent(Extent),
    /// Left to the other way.
    Over,
}

impl<N: Nic> Lane<'_, N> {
    /// Looks at the row of a way, if it is still to be looked at, and prefetches what is next.
    #[inline]
    fn glance(&mut self, way: usize, effort: &Counters) {
        let remote = &self.connection.remote;
        if let State::Row = self.state {
            self.state = match self.attempt.glance(remote, way, &self.key, effort) {
                Glance::Candidate(extent) => {
                    remote.prefetch(extent.at, extent.bytes);
                    State::Extent(extent)
                }
                Glance::Other if way + 1 < WAYS => {
                    self.attempt.prefetch(remote, way + 1);
                    State::Row
                }
                Glance::Other | Glance::Unclear => State::Over,
            };
        }
    }
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
        let table = connection.table(key.partition())?;
        let attempt = Attempt::begin(&table, key);
        (0..WAYS).for_each(|way| attempt.prefetch(&connection.remote, way));
        let extent = attempt.extent(&connection.remote, key, &self.effort)?;
        self.value_at_once(connection, &extent, key, |value| found.take().map(|found| found(value)))?
    }

    /// The same, in turns with others that overlap.
    pub(super) async fn get_in_turns<T>(
        &self,
        connection: &Connection<N>,
        key: &Key<'_>,
        found: &mut Option<impl FnOnce(&[u8]) -> T>,
    ) -> Option<T> {
        let table = connection.table(key.partition())?;
        let attempt = Attempt::begin(&table, key);
        (0..WAYS).for_each(|way| attempt.prefetch(&connection.remote, way));
        yield_now().await;
        let extent = attempt.extent(&connection.remote, key, &self.effort)?;
        connection.remote.prefetch(extent.at, extent.bytes);
        yield_now().await;
        self.value_at_once(connection, &extent, key, |value| found.take().map(|found| found(value)))?
    }

    /// Finds those of up to [`LANES`] keys that can be found at once, and hands them to `found`. Gives a bit for each of the
    /// others.
    pub(super) fn get_many_at_once<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut found: impl FnMut(usize, Result<Option<&[u8]>, StoreError>),
    ) -> u32 {
        let mut left = 0;
        let mut lanes: [Option<Lane<'_, N>>; LANES] = [const { None }; LANES];
        for (place, (lane, key)) in lanes.iter_mut().zip(keys).enumerate() {
            *lane = self.lane(key.as_ref());
            left |= u32::from(lane.is_none()) << place;
        }
        for way in 0..WAYS {
            lanes.iter_mut().flatten().for_each(|lane| lane.glance(way, &self.effort));
        }
        for (place, lane) in lanes.iter().enumerate() {
            let Some(Lane { connection, key, state, .. }) = lane else { continue };
            let hand_over = |value: &[u8]| found(place, Ok(Some(value)));
            let value = match state {
                State::Extent(extent) => self.value_at_once(connection, extent, key, hand_over),
                State::Row | State::Over => None,
            };
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
        let table = connection.table(key.partition())?;
        let attempt = Attempt::begin(&table, &key);
        attempt.prefetch(&connection.remote, 0);
        Some(Lane { connection, key, attempt, state: State::Row })
    }

    #[inline]
    fn value_at_once<T>(
        &self,
        connection: &Connection<N>,
        extent: &Extent,
        key: &Key<'_>,
        found: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        let mut scratch = self.scratch.0.try_borrow_mut().ok()?;
        let value = Attempt::value(&connection.remote, extent, key, &mut scratch[..], &self.effort)?;
        connection.remote.current().ok()?;
        count(&self.effort.lookups);
        Some(found(&scratch[value]))
    }

    /// Whether gets are to be tried at once.
    #[inline]
    pub(super) fn at_once(&self) -> bool {
        self.reads_at_once && self.reads == Locus::Client
    }
}
