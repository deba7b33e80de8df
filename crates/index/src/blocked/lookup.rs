//! A get: the bucket, then the extent. One hash, one or two comparisons (Onkenhout §3.4).
//!
//! **A hit is linearizable**: the bucket verified, so it was so at some instant of the lookup, and the extent is the one that it
//! points to, by the checksum beside the pointer. **A miss is**, too: what verified is all of the only bucket in which the key may be,
//! at one instant. Retries count against the caller's limit; then the lookup is [`LookupError::Contended`], and the client
//! asks the owner.

use super::{
    BUCKET_BYTES, PLACES,
    bucket::{Bucket, Place},
    bucket_at,
};
use crate::{
    Answer, Counters, Found, Key, LANES, LookupError, Owner, Wanted, counters::count, cuckoo::Table,
    record::Record,
};
use arrayvec::ArrayVec;
use locus_fabric::{Prefetches, Region};
use locus_memory::{Memory, checksum};
use locus_runtime::mistakes::{Mistake, planted};

/// Finds a key in a table. READs: a bucket and an extent, or a bucket if the key is absent.
#[inline]
pub async fn get<'m, M: Memory>(
    memory: &'m M,
    table: &Table,
    key: &Key<'_>,
    retries: usize,
    counters: &Counters,
) -> Result<Answer<M::Bytes<'m>>, LookupError> {
    count(&counters.lookups);
    let at = bucket_at(table, key);
    let mut left = retries;
    let mut fail = || left.checked_sub(1).map(|fewer| left = fewer).ok_or(LookupError::Contended);
    // The bucket as it was when an extent did not verify.
    let mut unverified = None;
    'bucket: loop {
        count(&counters.rows_read);
        let bytes = memory.read(at, BUCKET_BYTES).await?;
        let Some((bucket, sum)) = Bucket::unverified(&bytes) else { return Err(LookupError::Stale) };
        drop(bytes);
        if M::TEARS && !bucket.verifies(sum, at, table.epoch) && !planted(Mistake::NoBucketChecksum) {
            count(&counters.rows_unverified);
            fail()?;
            continue;
        }
        for extent in bucket.places.iter().filter_map(|place: &Place| place.extent_of(key)) {
            count(&counters.extents_read);
            let bytes = memory.read(extent.at, extent.bytes).await?;
            if M::TEARS && checksum(&bytes) != extent.checksum {
                // It was freed since: the bucket must have changed.
                count(&counters.extents_unverified);
                if unverified.replace(bucket) == Some(bucket) {
                    count(&counters.extents_lost);
                }
                fail()?;
                continue 'bucket;
            }
            match Record::parse(&bytes) {
                Some(Record { key: its, value, version }) if its == key.bytes() => {
                    memory.current()?;
                    return Ok(Answer::Found(Found { extent, value, version, bytes }));
                }
                _ => count(&counters.fingerprint_collisions),
            }
        }
        memory.current()?;
        return Ok(Answer::Absent);
    }
}

/// Looks a batch up in stages, as [`crate::Shard::get_batch`] says. What is to be changed is looked up, too: a put reads the
/// record with the key's fingerprint.
#[inline]
pub(super) fn batch<'m, R: Region>(
    owner: &'m Owner<R>,
    table: &Table,
    wanted: &[Option<Wanted<'_>>],
    mut found: impl FnMut(usize, Option<Found<&'m [u8]>>),
) {
    let (local, counters) = (owner.arena.local(), &owner.counters);
    let mut ahead = Prefetches::within(owner.arena.region_bytes());
    for Wanted { key, .. } in wanted.iter().flatten() {
        ahead.push(local.ahead(bucket_at(table, key), BUCKET_BYTES));
    }
    ahead.start();
    let mut extents = ArrayVec::<_, LANES>::new();
    for wanted in wanted {
        let Some(Wanted { key, .. }) = wanted else {
            extents.push([None; PLACES]);
            continue;
        };
        count(&counters.lookups);
        count(&counters.rows_read);
        let bytes = owner.bytes(bucket_at(table, key), BUCKET_BYTES);
        let (bucket, _) = Bucket::unverified(bytes).expect("64 bytes");
        let may_be = bucket.places.map(|place| place.extent_of(key));
        for extent in may_be.iter().flatten() {
            ahead.push(local.ahead(extent.at, extent.bytes));
        }
        extents.push(may_be);
    }
    ahead.start();
    for (place, (extents, wanted)) in extents.iter().zip(wanted).enumerate() {
        let Some(Wanted { key, get: true }) = wanted else { continue };
        let record = extents.iter().flatten().find_map(|&extent| {
            count(&counters.extents_read);
            let bytes = owner.bytes(extent.at, extent.bytes);
            let Record { key: its, value, version } = Record::parse(bytes)?;
            (its == key.bytes()).then_some(Found { bytes, extent, value, version })
        });
        found(place, record);
    }
}
