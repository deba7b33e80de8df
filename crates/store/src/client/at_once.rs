//! Gets whose READs are over when they are started, on fabrics that can do that: no futures, no buffers, no queue. What
//! they do not answer (see [`cuckoo::Attempt`]), the traversal in `read.rs` does.

use super::{Client, connection::Connection};
use crate::{Locus, StoreError};
use locus_fabric::{Nic, Prefetches};
use locus_index::{
    Key,
    cuckoo::{Attempt, WAYS},
};
use locus_memory::Memory;
use locus_runtime::yield_now;
use std::cell::RefCell;

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
        let mut got = 0;
        for server in 0..self.servers.len() {
            if let Ok(connection) = self.connection(server) {
                got |= self.get_many_of(&connection, server, keys, &mut found);
            }
        }
        self.counters.gets.set(self.counters.gets.get() + u64::from(got.count_ones()));
        !got
    }

    /// The same for the keys that one server has. Gives a bit for each that was found.
    #[inline(always)]
    fn get_many_of<K: AsRef<[u8]>>(
        &self,
        connection: &Connection<N>,
        server: usize,
        keys: &[K],
        found: &mut impl FnMut(usize, Result<Option<&[u8]>, StoreError>),
    ) -> u32 {
        let remote = &connection.remote;
        let mut ahead = Prefetches::within(remote.region_bytes());
        let mut lanes = [const { None }; LANES];
        let mut searching = 0;
        for (place, (lane, key)) in lanes.iter_mut().zip(keys).enumerate() {
            let Some(attempt) = self.attempt(connection, server, key.as_ref()) else { continue };
            ahead.push(attempt.ahead(remote, 0));
            *lane = Some(attempt);
            searching |= 1 << place;
        }
        ahead.start();
        let mut reached = 0;
        for way in 0..WAYS {
            for place in places(searching) {
                let Some(attempt) = &mut lanes[place] else { continue };
                ahead.push(attempt.step(remote, way, &self.effort));
                reached |= u32::from(attempt.extent().is_some()) << place;
            }
            searching &= !reached;
            ahead.start();
        }
        let mut got = 0;
        for place in places(reached) {
            let Some(attempt) = &lanes[place] else { continue };
            let value = self.value_at_once(connection, attempt, |value| found(place, Ok(Some(value))));
            got |= u32::from(value.is_some()) << place;
        }
        got
    }

    /// Begins with a key, if the server has it, unless there is anything to wait for or to complain of.
    #[inline(always)]
    fn attempt<'k>(&self, connection: &Connection<N>, server: usize, key: &'k [u8]) -> Option<Attempt<'k>> {
        let key = self.key(key).ok()?;
        // A look at the map is a cache miss more often than not.
        if self.servers.len() > 1 && usize::from(self.map.owner(key.partition()).server) != server {
            return None;
        }
        Some(Attempt::begin(&connection.table(key.partition())?, key))
    }

    #[inline]
    fn value_at_once<T>(
        &self,
        connection: &Connection<N>,
        attempt: &Attempt<'_>,
        found: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        let mut scratch = self.scratch.0.try_borrow_mut().ok()?;
        let value = attempt.value(&connection.remote, &mut scratch[..BYTES_MAX], &self.effort)?;
        connection.remote.current().ok()?;
        Some(found(&scratch[value]))
    }

    /// Whether gets are to be tried at once.
    #[inline]
    pub(super) fn at_once(&self) -> bool {
        self.reads_at_once && self.reads == Locus::Client
    }
}

/// The places of the bits that are set.
#[inline(always)]
fn places(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (place < LANES).then_some(place)
    })
}
