//! A get: the bucket, then the item that the tag leads to (Kalia §4.1: up to two random memory accesses).
//!
//! Batches take the same steps for all keys side by side, each step prefetching for the next ([`batch`]): on HERD's pipeline of
//! two stages (§4.1.1) a get costs half of what it costs as a future of its own.

use super::{
    BUCKET_BYTES, Layout,
    bucket::{LINE_BYTES, entries, tag},
};
use crate::{
    Answer, Counters, Extent, Found, Key, LANES, LookupError, Owner, Wanted, counters::count, record::Record,
};
use arrayvec::ArrayVec;
use locus_fabric::{Prefetches, Region};
use locus_memory::{Memory, Pointer};
use locus_runtime::mistakes::{Mistake, planted};
use std::ops::Deref;

/// An item that may be a key's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) at: Pointer,
    /// How many bytes surely hold it, if its entry says; else how many to begin with.
    pub(super) bytes: usize,
    long: bool,
    /// How many bytes the log has from there on.
    rest: usize,
}

/// The item that a key's tag leads to, from the key's bucket.
#[inline]
pub(super) fn item(layout: &Layout, key: &Key<'_>, bucket: &[u8]) -> Option<Item> {
    let tag = tag(key);
    let entry = entries(bucket).into_iter().find(|entry| entry.tag() == tag)?;
    let (at, rest) = layout.log.find(entry.position())?;
    let bytes = entry.bytes().unwrap_or(LINE_BYTES).min(rest);
    Some(Item { at, bytes, long: entry.bytes().is_none(), rest })
}

impl Item {
    /// How many bytes hold the item, whose first ones are these.
    #[inline]
    pub(super) fn whole(&self, beginning: &[u8]) -> usize {
        if self.long { Record::bytes(beginning).unwrap_or(0).min(self.rest) } else { self.bytes }
    }

    /// The record, if it is the key's.
    #[inline]
    pub(super) fn record<B: Deref<Target = [u8]>>(
        &self,
        bytes: B,
        key: &Key<'_>,
        counters: &Counters,
    ) -> Option<Found<B>> {
        count(&counters.extents_read);
        match Record::parse(&bytes) {
            Some(Record { key: its, value, version })
                if its == key.bytes() || planted(Mistake::NoItemKey) =>
            {
                let length = value.end.next_multiple_of(Pointer::UNIT);
                let extent = Extent { at: self.at, bytes: length, checksum: 0 };
                Some(Found { bytes, extent, value, version })
            }
            _ => {
                count(&counters.fingerprint_collisions);
                None
            }
        }
    }
}

/// Finds a key in a cache of this layout.
///
/// Only over memory that does not tear: see the [module](super).
#[inline]
pub async fn get<'m, M: Memory>(
    memory: &'m M,
    layout: &Layout,
    key: &Key<'_>,
    counters: &Counters,
) -> Result<Answer<M::Bytes<'m>>, LookupError> {
    const { assert!(!M::TEARS && !M::INTERLEAVES, "nothing in a lossy cache can be verified") };
    count(&counters.lookups);
    count(&counters.rows_read);
    let bucket = memory.read(layout.bucket_at(key), BUCKET_BYTES).await?;
    let Some(item) = item(layout, key, &bucket) else { return Ok(Answer::Absent) };
    drop(bucket);
    let bytes = memory.read(item.at, item.bytes).await?;
    let whole = item.whole(&bytes);
    let bytes = if whole == bytes.len() { bytes } else { memory.read(item.at, whole).await? };
    Ok(item.record(bytes, key, counters).map_or(Answer::Absent, Answer::Found))
}

/// Looks a batch up, as [`crate::Shard::get_batch`] says. Of what is to be changed the buckets are fetched: a put needs no more.
#[inline]
pub(super) fn batch<'m, R: Region>(
    owner: &'m Owner<R>,
    layout: &Layout,
    wanted: &[Option<Wanted<'_>>],
    mut found: impl FnMut(usize, Option<Found<&'m [u8]>>),
) {
    let (local, counters) = (owner.arena.local(), &owner.counters);
    let mut ahead = Prefetches::within(owner.arena.region_bytes());
    for wanted in wanted.iter().flatten() {
        ahead.push(local.ahead(layout.bucket_at(&wanted.key), BUCKET_BYTES));
    }
    ahead.start();
    let mut items = ArrayVec::<_, LANES>::new();
    for wanted in wanted {
        let Some(Wanted { key, get: true }) = wanted else {
            items.push(None);
            continue;
        };
        count(&counters.lookups);
        count(&counters.rows_read);
        let item = item(layout, key, owner.bytes(layout.bucket_at(key), BUCKET_BYTES));
        if let Some(item) = &item {
            ahead.push(local.ahead(item.at, item.bytes));
        }
        items.push(item);
    }
    ahead.start();
    for (place, (item, wanted)) in items.iter().zip(wanted).enumerate() {
        let Some(Wanted { key, get: true }) = wanted else { continue };
        found(
            place,
            item.as_ref().and_then(|item| {
                let whole = item.whole(owner.bytes(item.at, item.bytes));
                item.record(owner.bytes(item.at, whole), key, counters)
            }),
        );
    }
}
