//! What traversals count, to explain where their time goes. One core's, cheap enough to stay on.

use std::cell::Cell;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counts since they were made. A client's counts are of its own READs, a server's of its local reads.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: Cell<u64>,)* }

        impl Counters {
            /// Names and values, in the order of declaration.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)*]
            }
        }
    };
}

counters! {
    /// Lookups begun.
    lookups,
    /// Rows read in first passes.
    rows_read,
    /// Rows read in second passes.
    rows_read_again,
    /// Extents read.
    extents_read,
    /// Second passes begun (Mitchell Algorithm 1).
    second_passes,
    /// Second passes that found a row changed, so that the lookup began again.
    second_passes_failed,
    /// Rows whose checksum did not hold.
    rows_unverified,
    /// Extents that were not what the row's checksum says: freed, and perhaps reused, meanwhile.
    extents_unverified,
    /// Extents that did not verify twice under a row that had not changed: an owner that keeps to the protocol leaves none.
    extents_lost,
    /// Extents that held another key with the same fingerprint.
    fingerprint_collisions,
    /// Rows that had been moved to a larger table.
    moved_rows,
    /// Directory entries read.
    entries_read,
    /// Directory entries whose checksum did not hold.
    entries_unverified,
    /// Entries of a table kicked out to another of their places.
    kick_outs,
    /// Entries of a hopscotch table that moved within their neighbourhood.
    displacements,
    /// Keys that a full bucket lost for a new one.
    bucket_evictions,
    /// Items of a circular log that newer ones were written over.
    log_overwrites,
    /// Growths of a table begun.
    growths,
    /// Rows moved to a larger table.
    rows_moved,
    /// Rows whose version went on from zero.
    row_versions_wrapped,
}

/// Adds one.
pub(crate) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}
