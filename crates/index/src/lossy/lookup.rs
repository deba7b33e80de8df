//! A get: the bucket, then the item that the tag leads to (Kalia §4.1: up to two random memory accesses).

use super::{
    BUCKET_BYTES, Layout,
    bucket::{LINE_BYTES, entries, tag},
};
use crate::{Answer, Counters, Extent, Found, Key, LookupError, counters::count, record::Record};
use locus_memory::{Memory, checksum};

/// Longer records come with a checksum over them, for who is to READ them.
const CHECKSUM_BYTES_MIN: usize = 4 << 10;

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
    let tag = tag(key);
    let Some(entry) = entries(&bucket).into_iter().find(|entry| entry.tag() == tag) else {
        return Ok(Answer::Absent);
    };
    drop(bucket);
    let Some((at, rest)) = layout.log.find(entry.position()) else { return Ok(Answer::Absent) };
    count(&counters.extents_read);
    let bytes = match entry.bytes() {
        Some(bytes) => memory.read(at, bytes.min(rest)).await?,
        None => {
            let length = Record::bytes(&memory.read(at, LINE_BYTES.min(rest)).await?);
            memory.read(at, length.unwrap_or(0).min(rest)).await?
        }
    };
    match Record::parse(&bytes) {
        Some(Record { key: its, value, version }) if its == key.bytes() => {
            let length = value.end.next_multiple_of(locus_memory::Pointer::UNIT);
            let checksum = if length >= CHECKSUM_BYTES_MIN { checksum(&bytes[..length]) } else { 0 };
            let extent = Extent { at, bytes: length, checksum };
            Ok(Answer::Found(Found { bytes, extent, value, version }))
        }
        _ => {
            count(&counters.fingerprint_collisions);
            Ok(Answer::Absent)
        }
    }
}
