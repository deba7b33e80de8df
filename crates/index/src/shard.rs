//! What a core asks of whatever its keys are found by. A core is made for one kind of shard, so that the choice costs no
//! operation anything.

use crate::{Answer, Found, Key, LookupError, MutationError, Owner};
use locus_fabric::Region;
use locus_runtime::interleave;

/// How many keys of a batch are looked up side by side, at most (Kalia §4.1.1).
pub const LANES: usize = 16;

/// A key of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'k> {
    /// Which.
    pub key: Key<'k>,
    /// To be found. Otherwise it is about to be changed, and what that needs is only to be fetched.
    pub get: bool,
}

/// What a put did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutOutcome {
    /// The record's version.
    pub version: u64,
    /// Whether the key was present before. A lossy index does not look, and says so of a key whose tag was.
    pub replaced: bool,
}

/// The keys of one core.
pub trait Shard<R: Region> {
    /// Whether what is found comes with the checksum over its record. Elsewhere whoever points a reader to it makes one.
    const CHECKSUMS: bool = true;

    /// Looks up to [`LANES`] keys up, their accesses to memory interleaved, and hands over what became of each that is to
    /// be found, by its place.
    fn get_batch<'m>(
        &'m self,
        owner: &'m Owner<R>,
        wanted: &[Option<Wanted<'_>>],
        found: impl FnMut(usize, Option<Found<&'m [u8]>>),
    );

    /// Stores a value under a key. On an error the key is as it was.
    fn put(&mut self, owner: &mut Owner<R>, key: &Key<'_>, value: &[u8])
    -> Result<PutOutcome, MutationError>;

    /// Removes a key. Gives the version of the change, or none if the key was absent.
    fn delete(&mut self, owner: &mut Owner<R>, key: &Key<'_>) -> Result<Option<u64>, MutationError>;

    /// Carries on with a table that grows, when there is nothing else to do. Says whether there was any.
    fn grow(&mut self, owner: &mut Owner<R>) -> bool;

    /// How many keys are present.
    fn records(&self, owner: &Owner<R>) -> u64;

    /// How many places for keys there are.
    fn rows(&self) -> u64;

    /// How many bytes of tables lie outside what the arena hands out.
    fn fixed_bytes(&self) -> u64 {
        0
    }
}

/// Finds the keys of a batch that its quick way left, given with their places, by their whole lookups, interleaved.
#[cold]
pub(crate) fn find_left<'m, R: Region, B, F: Future<Output = Result<Answer<B>, LookupError>>>(
    owner: &'m Owner<R>,
    keys: &[(usize, &Key<'_>)],
    lookups: impl Iterator<Item = F>,
    mut found: impl FnMut(usize, Option<Found<&'m [u8]>>),
) {
    interleave(LANES, lookups, |number, answer| match answer {
        Ok(Answer::Found(Found { extent, value, version, .. })) => {
            let bytes = owner.bytes(extent.at, extent.bytes);
            found(keys[number].0, Some(Found { bytes, extent, value, version }));
        }
        Ok(Answer::Absent) => found(keys[number].0, None),
        // The owner's own tables are always as it knows them.
        Err(error) => unreachable!("a lookup of the owner failed: {error}"),
    });
}
