//! Find a key, over any memory: one READ of its neighbourhood, one of its second neighbourhood if the first says that keys are
//! there, and out of table one of the record.
//!
//! **A hit is linearizable.** The slot verified, so it was in the table at some instant of the lookup (see `slot.rs`), and at any
//! instant each slot that holds a key holds its current value: a displacement copies the slot, and an update follows when the
//! copy is the only one. Out of table, the record is the one that the slot points to, by the checksum in the slot.
//!
//! **A miss is linearizable** by a second pass, as in `cuckoo/lookup.rs`. Words of a READ are sampled in any order, so a key that
//! is displaced from a place not sampled yet to one that was is in none of them. Let t be the instant at which the last word of
//! the first pass was sampled. All slots of the first pass verified, and are read again after t; with the versions that they
//! had before t, none changed in between, and at t no slot of the pass held the key. The pass is enough: at any instant a key that
//! is present is in the neighbourhood of its first home, or the slot of its first home counts it and it is in that of its
//! second: it is counted before it goes there, and until it has gone. So where that slot counted none at t, the second
//! neighbourhood need not be looked at.
//!
//! **Retries are bounded**: a neighbourhood that does not verify in a few READs may be another table's by now
//! ([`LookupError::Stale`]), and second passes and records that fail count against the caller's limit; beyond it the lookup is
//! [`LookupError::Contended`] and the client asks the owner.

use super::{
    NEIGHBOURHOOD_MAX, Shape,
    slot::{Slot, State},
};
use crate::{
    Answer, Counters, Extent, Found, Key, LookupError,
    counters::count,
    cuckoo::{Table, Tables},
    record::Record,
};
use locus_memory::{Memory, checksum};
use locus_runtime::mistakes::{Mistake, planted};

/// How many times in a row one neighbourhood may fail to verify before the directory entry is suspected to be stale.
const READS_MAX: usize = 4;

/// Finds a key in its partition's table, as the directory entry in use has it.
#[inline]
pub async fn get<'m, M: Memory>(
    memory: &'m M,
    shape: &Shape,
    tables: &Tables,
    key: &Key<'_>,
    retries: usize,
    counters: &Counters,
) -> Result<Answer<M::Bytes<'m>>, LookupError> {
    count(&counters.lookups);
    let Some(table) = tables.current else { return Err(LookupError::Stale) };
    let homes = shape.homes(&table, key);
    let mut search = Search { memory, shape, table, key, counters, retries_left: retries };
    loop {
        let mut seen = [Seen::default(); 2];
        let mut looked = 0;
        while looked == 0 || (looked == 1 && seen[0].away) {
            match search.probe(homes[looked], &mut seen[looked]).await? {
                Some(found) => {
                    memory.current()?;
                    return Ok(Answer::Found(found));
                }
                None => looked += 1,
            }
        }
        if !M::INTERLEAVES
            || planted(Mistake::NoSecondPass)
            || search.unchanged(&homes[..looked], &seen).await?
        {
            memory.current()?;
            return Ok(Answer::Absent);
        }
        search.fail()?;
    }
}

/// A neighbourhood in the first pass, no slot of which held the key.
#[derive(Clone, Copy, Default)]
struct Seen {
    versions: [u32; NEIGHBOURHOOD_MAX as usize],
    /// Whether keys whose first home this is are at their second.
    away: bool,
}

struct Search<'m, 'k, M: Memory> {
    memory: &'m M,
    shape: &'k Shape,
    table: Table,
    key: &'k Key<'k>,
    counters: &'k Counters,
    retries_left: usize,
}

impl<'m, M: Memory> Search<'m, '_, M> {
    /// Looks for the key in a neighbourhood. If it is not there, all slots verified.
    #[inline]
    async fn probe(
        &mut self,
        home: u32,
        seen: &mut Seen,
    ) -> Result<Option<Found<M::Bytes<'m>>>, LookupError> {
        let at = self.shape.slot_at(&self.table, home);
        let (mut unverified, mut unverified_extent) = (0, None);
        loop {
            count(&self.counters.rows_read);
            let bytes = self.memory.read(at, self.shape.read_bytes()).await?;
            let slots = || bytes.chunks_exact(self.shape.slot_bytes()).map(Slot).enumerate();
            let verifies = |index: usize, slot: Slot<'_>| {
                let at = self.shape.slot_at(&self.table, home + index as u32);
                !M::TEARS || slot.verifies(at, self.table.epoch) || planted(Mistake::NoRowChecksum)
            };
            let candidate = slots().find(|(_, slot)| slot.may_hold(self.shape, self.key));
            let whole = match candidate {
                Some((index, slot)) => verifies(index, slot),
                None => slots().all(|(index, slot)| verifies(index, slot)),
            };
            if !whole {
                count(&self.counters.rows_unverified);
                unverified += 1;
                if unverified == READS_MAX {
                    return Err(LookupError::Stale);
                }
                continue;
            }
            if let Some((index, slot)) = candidate
                && self.shape.inline()
            {
                let (_, value, version) = slot.record().expect("it holds the key");
                let start = index * self.shape.slot_bytes();
                let value = start + value.start..start + value.end;
                let extent = Extent { at, bytes: bytes.len(), checksum: 0 };
                return Ok(Some(Found { bytes, extent, value, version }));
            }
            if let Some((_, slot)) = candidate {
                let (extent, meta) = (slot.extent(), slot.meta());
                drop(bytes);
                if let Some(found) = self.record(extent).await? {
                    return Ok(Some(found));
                }
                // Freed since, or another key with the same fingerprint: the slot must have changed, or the other slots are
                // to be looked at.
                if unverified_extent.replace(meta) == Some(meta) {
                    return self.collision(home, seen).await;
                }
                self.fail()?;
                continue;
            }
            let mut moved = false;
            for (index, slot) in slots() {
                seen.versions[index] = slot.meta().version();
                moved |= slot.meta().state() == State::Moved;
            }
            seen.away = Slot(&bytes).meta().away() > 0;
            if moved {
                count(&self.counters.moved_rows);
                return Err(LookupError::Stale);
            }
            return Ok(None);
        }
    }

    /// The record in an extent if it verifies and is the key's.
    async fn record(&self, extent: Extent) -> Result<Option<Found<M::Bytes<'m>>>, LookupError> {
        count(&self.counters.extents_read);
        let bytes = self.memory.read(extent.at, extent.bytes).await?;
        if M::TEARS && checksum(&bytes) != extent.checksum && !planted(Mistake::NoExtentChecksum) {
            count(&self.counters.extents_unverified);
            return Ok(None);
        }
        match Record::parse(&bytes) {
            Some(Record { key, value, version }) if key == self.key.bytes() => {
                Ok(Some(Found { extent, value, version, bytes }))
            }
            _ => Ok(None),
        }
    }

    /// Looks at every slot of a neighbourhood in which a slot with the key's fingerprint stays without its record: two keys of
    /// one fingerprint, as good as never.
    #[cold]
    async fn collision(
        &mut self,
        home: u32,
        seen: &mut Seen,
    ) -> Result<Option<Found<M::Bytes<'m>>>, LookupError> {
        count(&self.counters.fingerprint_collisions);
        let at = self.shape.slot_at(&self.table, home);
        let bytes = self.memory.read(at, self.shape.read_bytes()).await?;
        for (index, slot) in bytes.chunks_exact(self.shape.slot_bytes()).map(Slot).enumerate() {
            let at = self.shape.slot_at(&self.table, home + index as u32);
            if M::TEARS && !slot.verifies(at, self.table.epoch) || slot.meta().state() == State::Moved {
                return Err(LookupError::Stale);
            }
            seen.versions[index] = slot.meta().version();
            if slot.may_hold(self.shape, self.key) {
                let extent = slot.extent();
                count(&self.counters.extents_read);
                let bytes = self.memory.read(extent.at, extent.bytes).await?;
                if M::TEARS && checksum(&bytes) != extent.checksum {
                    count(&self.counters.extents_unverified);
                    return Err(LookupError::Contended);
                }
                match Record::parse(&bytes) {
                    Some(Record { key, value, version }) if key == self.key.bytes() => {
                        return Ok(Some(Found { extent, value, version, bytes }));
                    }
                    _ => {}
                }
            }
        }
        seen.away = Slot(&bytes).meta().away() > 0;
        Ok(None)
    }

    /// The second pass: whether all slots are as they were.
    async fn unchanged(&self, homes: &[u32], seen: &[Seen; 2]) -> Result<bool, LookupError> {
        count(&self.counters.second_passes);
        for (home, seen) in homes.iter().zip(seen) {
            count(&self.counters.rows_read_again);
            let at = self.shape.slot_at(&self.table, *home);
            let bytes = self.memory.read(at, self.shape.read_bytes()).await?;
            for (index, slot) in bytes.chunks_exact(self.shape.slot_bytes()).map(Slot).enumerate() {
                let at = self.shape.slot_at(&self.table, home + index as u32);
                // The version alone would do if it could not be torn.
                let same = slot.meta().version() == seen.versions[index];
                if !same || !(slot.verifies(at, self.table.epoch) || planted(Mistake::NoRowChecksum)) {
                    count(&self.counters.second_passes_failed);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn fail(&mut self) -> Result<(), LookupError> {
        self.retries_left = self.retries_left.checked_sub(1).ok_or(LookupError::Contended)?;
        Ok(())
    }
}
