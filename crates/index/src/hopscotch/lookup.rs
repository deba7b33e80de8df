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
//! neighbourhood need not be looked at. While the partition grows, the neighbourhoods of both tables count: a key is in the
//! next table only after a slot of its neighbourhoods was marked MOVED, which it stays.
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
    let Some(current) = tables.current else { return Err(LookupError::Stale) };
    let mut search = Search { memory, shape, key, counters, retries_left: retries };
    loop {
        let mut pass = Pass { seen: [Seen::of(&current); 4], length: 0 };
        let mut table = current;
        while let Some(found) = search.look_through(&table, &mut pass).await? {
            match (found, tables.next) {
                (Through::Found(found), _) => {
                    memory.current()?;
                    return Ok(Answer::Found(found));
                }
                (Through::Moved, Some(next)) if table != next => table = next,
                (Through::Moved, _) => return Err(LookupError::Stale),
            }
        }
        if !M::INTERLEAVES || planted(Mistake::NoSecondPass) || search.unchanged(&pass).await? {
            memory.current()?;
            return Ok(Answer::Absent);
        }
        search.fail()?;
    }
}

/// A neighbourhood in the first pass, no slot of which held the key.
#[derive(Clone, Copy)]
struct Seen {
    table: Table,
    home: u32,
    versions: [u32; NEIGHBOURHOOD_MAX as usize],
    /// Whether keys whose first home this is are at their second.
    away: bool,
    /// Whether a slot was marked MOVED.
    moved: bool,
}

impl Seen {
    fn of(table: &Table) -> Self {
        Self { table: *table, home: 0, versions: [0; _], away: false, moved: false }
    }

    /// Takes note of a neighbourhood whose slots verified.
    fn note(&mut self, shape: &Shape, bytes: &[u8]) {
        for (version, slot) in self.versions.iter_mut().zip(bytes.chunks_exact(shape.slot_bytes()).map(Slot))
        {
            *version = slot.meta().version();
            self.moved |= slot.meta().state() == State::Moved;
        }
        self.away = Slot(bytes).meta().away() > 0;
    }
}

/// What a first pass went through: one or two neighbourhoods of one or two tables.
struct Pass {
    seen: [Seen; 4],
    length: usize,
}

/// Why a first pass is not over with a table in which the key is not.
enum Through<B> {
    Found(Found<B>),
    /// What was here may be in the next table.
    Moved,
}

struct Search<'m, 'k, M: Memory> {
    memory: &'m M,
    shape: &'k Shape,
    key: &'k Key<'k>,
    counters: &'k Counters,
    retries_left: usize,
}

impl<'m, M: Memory> Search<'m, '_, M> {
    /// Looks for the key in a table; none if it is not there and nothing has moved on from there.
    #[inline]
    async fn look_through(
        &mut self,
        table: &Table,
        pass: &mut Pass,
    ) -> Result<Option<Through<M::Bytes<'m>>>, LookupError> {
        let mut moved = false;
        for home in self.shape.homes(table, self.key) {
            let seen = &mut pass.seen[pass.length];
            *seen = Seen { home, ..Seen::of(table) };
            if let Some(found) = self.probe(seen).await? {
                return Ok(Some(Through::Found(found)));
            }
            pass.length += 1;
            moved |= seen.moved;
            if !seen.away {
                break;
            }
        }
        self.counters.moved_rows.set(self.counters.moved_rows.get() + u64::from(moved));
        Ok(moved.then_some(Through::Moved))
    }

    /// Looks for the key in a neighbourhood. If it is not there, all slots verified.
    #[inline]
    async fn probe(&mut self, seen: &mut Seen) -> Result<Option<Found<M::Bytes<'m>>>, LookupError> {
        let (table, home) = (seen.table, seen.home);
        let at = self.shape.slot_at(&table, home);
        let (mut unverified, mut unverified_extent) = (0, None);
        loop {
            count(&self.counters.rows_read);
            let bytes = self.memory.read(at, self.shape.read_bytes()).await?;
            let slots = || bytes.chunks_exact(self.shape.slot_bytes()).map(Slot).enumerate();
            let verifies = |index: usize, slot: Slot<'_>| {
                let at = self.shape.slot_at(&table, home + index as u32);
                !M::TEARS || slot.verifies(at, table.epoch) || planted(Mistake::NoRowChecksum)
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
                    return self.collision(seen).await;
                }
                self.fail()?;
                continue;
            }
            seen.note(self.shape, &bytes);
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
    async fn collision(&mut self, seen: &mut Seen) -> Result<Option<Found<M::Bytes<'m>>>, LookupError> {
        count(&self.counters.fingerprint_collisions);
        let at = self.shape.slot_at(&seen.table, seen.home);
        let bytes = self.memory.read(at, self.shape.read_bytes()).await?;
        for (slot, number) in bytes.chunks_exact(self.shape.slot_bytes()).map(Slot).zip(seen.home..) {
            if M::TEARS && !slot.verifies(self.shape.slot_at(&seen.table, number), seen.table.epoch) {
                return Err(LookupError::Stale);
            }
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
        seen.note(self.shape, &bytes);
        Ok(None)
    }

    /// The second pass: whether all slots are as they were.
    async fn unchanged(&self, pass: &Pass) -> Result<bool, LookupError> {
        count(&self.counters.second_passes);
        for seen in &pass.seen[..pass.length] {
            count(&self.counters.rows_read_again);
            let at = self.shape.slot_at(&seen.table, seen.home);
            let bytes = self.memory.read(at, self.shape.read_bytes()).await?;
            let slots = bytes.chunks_exact(self.shape.slot_bytes()).map(Slot);
            for ((slot, number), version) in slots.zip(seen.home..).zip(seen.versions) {
                let at = self.shape.slot_at(&seen.table, number);
                // The version alone would do if it could not be torn.
                let verifies = slot.verifies(at, seen.table.epoch) || planted(Mistake::NoRowChecksum);
                if slot.meta().version() != version || !verifies {
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
