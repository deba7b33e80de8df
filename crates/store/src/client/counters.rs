//! What a client counts, to explain where its time goes.

use std::cell::Cell;

/// Counts of operations; those of traversals are in [`locus_index::Counters`].
#[derive(Debug, Default)]
pub struct ClientCounters {
    /// Gets.
    pub gets: Cell<u64>,
    /// Puts and deletes.
    pub mutations: Cell<u64>,
    /// Gets that ran at the client and had to be asked of the server in the end.
    pub fallbacks: Cell<u64>,
    /// Directory entries that turned out to be stale.
    pub stale_entries: Cell<u64>,
    /// Times that the list of regions was fetched.
    pub region_updates: Cell<u64>,
    /// Connections made after the first.
    pub reconnects: Cell<u64>,
    /// Long values that were placed at the server again, because their request came before them.
    pub values_placed_again: Cell<u64>,
}

impl ClientCounters {
    /// Names and values.
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("gets", self.gets.get()),
            ("mutations", self.mutations.get()),
            ("fallbacks", self.fallbacks.get()),
            ("stale_entries", self.stale_entries.get()),
            ("region_updates", self.region_updates.get()),
            ("reconnects", self.reconnects.get()),
            ("values_placed_again", self.values_placed_again.get()),
        ]
    }
}

/// Adds one.
#[inline]
pub(crate) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}
