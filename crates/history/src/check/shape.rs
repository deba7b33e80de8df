//! The operations under way, and what may follow when some of them have taken effect.

use super::plan::{ABSENT, Item, Step, UNREAD, Value};
use super::slots::Slots;
use std::hash::{Hash, Hasher};

/// What the register holds, and how far the operations under way are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Configuration<const W: usize> {
    pub holds: Value,
    /// Have taken effect.
    pub gone: Slots<W>,
    /// Certain puts that may have been hidden, and have not otherwise taken effect.
    pub free: Slots<W>,
}

impl<const W: usize> Hash for Configuration<W> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.holds.into());
        self.gone.0.iter().chain(&self.free.0).for_each(|&word| state.write_u64(word));
    }
}

/// The items under way.
pub(super) struct Shape<const W: usize> {
    /// By value, then by deadline.
    writes: Vec<(Value, u32, u32)>,
    /// By deadline.
    takes: Vec<(u32, u32)>,
    /// By value, then by slot.
    looks: Vec<(Value, u32)>,
    /// Slots of writes that are not optional.
    certain_writes: Slots<W>,
    pub optional_writes: Slots<W>,
    all_looks: Slots<W>,
    /// Which item has a slot.
    pub items: Vec<u32>,
    /// By value: nobody reads it any more, it has become `UNREAD`.
    forgotten: Vec<bool>,
}

impl<const W: usize> Shape<W> {
    /// Nothing is under way. Values are below `values`.
    pub fn new(values: usize) -> Self {
        Self {
            writes: Vec::new(),
            takes: Vec::new(),
            looks: Vec::new(),
            certain_writes: Slots::NONE,
            optional_writes: Slots::NONE,
            all_looks: Slots::NONE,
            items: vec![0; W * 64],
            forgotten: vec![false; values],
        }
    }

    pub fn insert(&mut self, number: u32, item: &Item) {
        fn place<T: Ord>(list: &mut Vec<T>, element: T) {
            let at = list.partition_point(|other| *other < element);
            list.insert(at, element);
        }
        self.items[item.slot as usize] = number;
        match item.step {
            Step::Write(value) => {
                place(&mut self.writes, (value, item.deadline, item.slot));
                let writes = if item.optional { &mut self.optional_writes } else { &mut self.certain_writes };
                writes.insert(item.slot);
            }
            Step::Take => {
                place(&mut self.takes, (item.deadline, item.slot));
            }
            Step::Look(value) => {
                place(&mut self.looks, (value, item.slot));
                self.all_looks.insert(item.slot);
            }
        }
    }

    pub fn remove(&mut self, item: &Item) {
        fn displace<T: Ord>(list: &mut Vec<T>, element: T) {
            if let Ok(at) = list.binary_search(&element) {
                list.remove(at);
            }
        }
        let value = self.value_of(item);
        match item.step {
            Step::Write(_) => displace(&mut self.writes, (value, item.deadline, item.slot)),
            Step::Take => displace(&mut self.takes, (item.deadline, item.slot)),
            Step::Look(_) => displace(&mut self.looks, (value, item.slot)),
        }
        for slots in [&mut self.certain_writes, &mut self.optional_writes, &mut self.all_looks] {
            slots.remove(item.slot);
        }
    }

    /// Nobody reads a value any more.
    pub fn forget(&mut self, value: Value) {
        self.writes.iter_mut().filter(|write| write.0 == value).for_each(|write| write.0 = UNREAD);
        self.writes.sort_unstable();
        self.forgotten[value as usize] = true;
    }

    /// What the register holds after a write or a take.
    pub fn value_of(&self, item: &Item) -> Value {
        match item.step {
            Step::Write(value) | Step::Look(value) if self.forgotten[value as usize] => UNREAD,
            Step::Write(value) | Step::Look(value) => value,
            Step::Take => ABSENT,
        }
    }

    /// The slots of looks that saw a value.
    pub fn looks_for(&self, value: Value) -> impl Iterator<Item = u32> {
        let first = self.looks.partition_point(|&(other, _)| other < value);
        self.looks[first..].iter().take_while(move |&&(other, _)| other == value).map(|&(_, slot)| slot)
    }

    /// Whether the register's holding a value would let a look take effect.
    pub fn awaited(&self, of: &Configuration<W>, value: Value) -> bool {
        self.looks_for(value).any(|slot| !of.gone.contains(slot))
    }

    /// Whether a write of a value is under way, other than that in a slot.
    pub fn can_write(&self, of: &Configuration<W>, value: Value, except: u32) -> bool {
        let first = self.writes.partition_point(|&(other, ..)| other < value);
        let mut same = self.writes[first..].iter().take_while(|&&(other, ..)| other == value);
        same.any(|&(.., slot)| slot != except && !of.gone.contains(slot))
    }

    /// Lets a write or take take effect, after which the register holds `holds`, and the looks that see that.
    pub fn after(&self, of: &Configuration<W>, slot: u32, holds: Value) -> Configuration<W> {
        let mut gone = of.gone;
        gone.insert(slot);
        self.looks_for(holds).for_each(|slot| gone.insert(slot));
        Configuration { holds, gone, free: of.free.with(&self.certain_writes).without(&gone) }
    }

    pub fn next_take(&self, of: &Configuration<W>) -> Option<u32> {
        self.takes.iter().map(|&(_, slot)| slot).find(|&slot| !of.gone.contains(slot))
    }

    /// Calls `each` with the slot, value and deadline of each write that may be the next one, by ascending value, but for
    /// those of the value of the item that returns.
    pub fn next_writes(&self, of: &Configuration<W>, returning: u32, mut each: impl FnMut(u32, Value, u32)) {
        let mut rest = &self.writes[..];
        while let Some(&(value, ..)) = rest.first() {
            let (same, others) = rest.split_at(rest.partition_point(|&(other, ..)| other == value));
            // The item that returns is the first of its value, and the last of the chain.
            if let Some(&(_, deadline, slot)) = same.iter().find(|&&(.., slot)| !of.gone.contains(slot))
                && slot != returning
            {
                each(slot, value, deadline);
            }
            rest = others;
        }
    }

    /// Whether all that may follow the other configuration may follow this one.
    pub fn covers(&self, this: &Configuration<W>, other: &Configuration<W>) -> bool {
        let holds = this.holds == other.holds || other.holds == UNREAD && this.holds != ABSENT;
        // A write that is free here can stand for one that is gone or not yet free there; others must be as they are.
        let free = this.free.with(&self.optional_writes.without(&this.gone));
        let other_free = other.free.with(&self.optional_writes.without(&other.gone));
        let unlike = this.gone.differing(&other.gone).with(&free.differing(&other_free));
        holds && unlike.is_within(&free.with(&self.all_looks.both(&this.gone)))
    }
}
