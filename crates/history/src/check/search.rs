//! The search for an order of one key's operations: Wing and Gong's, with the memory of configurations and the
//! just-in-time linearisation of Lowe (*Testing for linearizability*, 2017, sections 3 and 5).
//!
//! It goes through the events in the order of time and keeps all configurations that are possible so far: what the
//! register holds, and which of the operations under way have taken effect. Only when an operation returns must it have
//! taken effect; so at its return, and not before, a chain of operations under way takes effect of which it is the last.
//! If no configuration is left, the operations up to that return fit no order, and those up to just before it do.
//!
//! Since this is a register, most choices need not be tried:
//!
//! - A look takes effect as soon as the register holds what it saw; it changes nothing.
//! - A put under way may be *hidden* just before any other write or take that takes effect: nobody sees it. From then on
//!   it is *free*: it may take effect later, or have been hidden. So it takes effect in a chain, before the last link,
//!   only if looks wait for its value, or a take for any. Operations with an unknown outcome are free from the beginning.
//! - Of writes of the same value, and of takes, the one that returns first goes first: they could be exchanged.
//! - A configuration that can do all that another can makes that one needless (`Shape::covers`).

use super::Limit;
use super::plan::{ABSENT, Event, Item, Plan, Step, UNREAD, Value};
use crate::Operation;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// The most operations on a key that may be under way at a time; those with an unknown outcome stay under way.
pub const OVERLAP_MAX: usize = 16 * 64;

/// How many configurations are kept where not all are.
const NARROW: usize = 64;
/// The most configurations that are compared with each other.
const PRUNED_MAX: usize = 256;
/// Of how many orders a misfit tells the last write.
const ORDERS_MAX: usize = 256;

/// What a search ends with.
pub(super) enum Found {
    /// An order that fits: indices of the operations that take effect.
    Fits(Vec<usize>),
    Misfit(Misfit),
    Limit(Limit),
}

/// Where no order is left.
pub(super) struct Misfit {
    /// The operation by whose return.
    pub operation: usize,
    /// An order that fits until just before that.
    pub order: Vec<usize>,
    /// The last writes of all such orders.
    pub last_writes: Vec<Option<usize>>,
}

/// Searches an order of a key's operations (see [`Plan::new`]). Gives also how many states were looked at.
pub(super) fn search(
    operations: &[&Operation],
    weakened: &dyn Fn(usize) -> bool,
    states_max: usize,
) -> (Found, usize) {
    match Plan::new(operations, weakened) {
        Err(limit) => (Found::Limit(limit), 0),
        Ok(plan) if plan.slots <= 64 => narrow_then_whole::<1>(&plan, states_max),
        Ok(plan) if plan.slots <= 4 * 64 => narrow_then_whole::<4>(&plan, states_max),
        Ok(plan) => narrow_then_whole::<16>(&plan, states_max),
    }
}

/// Most histories fit an order, which few of many configurations suffice to find. If they do not, all are tried.
fn narrow_then_whole<const W: usize>(plan: &Plan, states_max: usize) -> (Found, usize) {
    let mut narrow = Search::<W>::new(plan, states_max, NARROW);
    let found = narrow.through_events();
    if matches!(found, Found::Fits(_)) || !narrow.left_out {
        return (found, narrow.states);
    }
    let mut whole = Search::<W>::new(plan, states_max, usize::MAX);
    let found = whole.through_events();
    (found, narrow.states + whole.states)
}

/// A set of slots.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Slots<const W: usize>([u64; W]);

impl<const W: usize> Slots<W> {
    const NONE: Self = Self([0; W]);

    fn contains(&self, slot: u32) -> bool {
        self.0[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    fn insert(&mut self, slot: u32) {
        self.0[slot as usize / 64] |= 1 << (slot % 64);
    }

    fn remove(&mut self, slot: u32) {
        self.0[slot as usize / 64] &= !(1 << (slot % 64));
    }

    fn with(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    fn without(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    fn is_within(&self, other: &Self) -> bool {
        self.without(other) == Self::NONE
    }

    fn both(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    fn iter(self) -> impl Iterator<Item = u32> {
        (0..).zip(self.0).flat_map(|(word, bits)| {
            let next = |bits: &u64| Some(bits & bits.wrapping_sub(1)).filter(|&bits| bits != 0);
            std::iter::successors(Some(bits).filter(|&bits| bits != 0), next)
                .map(move |bits| word * 64 + bits.trailing_zeros())
        })
    }

    fn differing(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] ^ other.0[word]))
    }
}

/// What the register holds, and how far the operations under way are.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Configuration<const W: usize> {
    holds: Value,
    /// Have taken effect.
    gone: Slots<W>,
    /// Certain puts that may have been hidden, and have not otherwise taken effect.
    free: Slots<W>,
}

impl<const W: usize> Hash for Configuration<W> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.holds.into());
        self.gone.0.iter().chain(&self.free.0).for_each(|&word| state.write_u64(word));
    }
}

/// Mixes words; always alike, so that the same history gives the same verdict.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

type Seen<const W: usize> = HashSet<Configuration<W>, BuildHasherDefault<Mixer>>;

/// A link of the chain of operations that led to a configuration.
#[derive(Clone, Copy)]
struct Link {
    /// The link before, or `START`.
    before: u32,
    item: u32,
    /// It took effect just before the last write or take before this link.
    hidden: bool,
}

const START: u32 = u32::MAX;

/// The items under way.
struct Shape<const W: usize> {
    /// By value, then by deadline.
    writes: Vec<(Value, u32, u32)>,
    /// By deadline.
    takes: Vec<(u32, u32)>,
    /// By value, then by slot.
    looks: Vec<(Value, u32)>,
    /// Slots of writes that are not optional.
    certain_writes: Slots<W>,
    optional_writes: Slots<W>,
    all_looks: Slots<W>,
    /// Which item has a slot.
    items: Vec<u32>,
    /// By value: nobody reads it any more, it has become `UNREAD`.
    forgotten: Vec<bool>,
}

impl<const W: usize> Shape<W> {
    fn insert(&mut self, number: u32, item: &Item) {
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

    fn remove(&mut self, item: &Item) {
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
    fn forget(&mut self, value: Value) {
        self.writes.iter_mut().filter(|write| write.0 == value).for_each(|write| write.0 = UNREAD);
        self.writes.sort_unstable();
        self.forgotten[value as usize] = true;
    }

    /// What the register holds after a write or a take.
    fn value_of(&self, item: &Item) -> Value {
        match item.step {
            Step::Write(value) | Step::Look(value) if self.forgotten[value as usize] => UNREAD,
            Step::Write(value) | Step::Look(value) => value,
            Step::Take => ABSENT,
        }
    }

    /// The slots of looks that saw a value.
    fn looks_for(&self, value: Value) -> impl Iterator<Item = u32> {
        let first = self.looks.partition_point(|&(other, _)| other < value);
        self.looks[first..].iter().take_while(move |&&(other, _)| other == value).map(|&(_, slot)| slot)
    }

    /// Whether the register's holding a value would let a look take effect.
    fn awaited(&self, of: &Configuration<W>, value: Value) -> bool {
        self.looks_for(value).any(|slot| !of.gone.contains(slot))
    }

    /// Lets a write or take take effect, after which the register holds `holds`, and the looks that see that.
    fn after(&self, of: &Configuration<W>, slot: u32, holds: Value) -> Configuration<W> {
        let mut gone = of.gone;
        gone.insert(slot);
        self.looks_for(holds).for_each(|slot| gone.insert(slot));
        Configuration { holds, gone, free: of.free.with(&self.certain_writes).without(&gone) }
    }

    fn next_take(&self, of: &Configuration<W>) -> Option<u32> {
        self.takes.iter().map(|&(_, slot)| slot).find(|&slot| !of.gone.contains(slot))
    }

    /// Calls `each` with the slot, value and deadline of each write that may be the next one, by ascending value, but for
    /// those of the value of the item that returns.
    fn next_writes(&self, of: &Configuration<W>, returning: u32, mut each: impl FnMut(u32, Value, u32)) {
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
    fn covers(&self, this: &Configuration<W>, other: &Configuration<W>) -> bool {
        let holds = this.holds == other.holds || other.holds == UNREAD && this.holds != ABSENT;
        // A write that is free here can stand for one that is gone or not yet free there; others must be as they are.
        let free = this.free.with(&self.optional_writes.without(&this.gone));
        let other_free = other.free.with(&self.optional_writes.without(&other.gone));
        let unlike = this.gone.differing(&other.gone).with(&free.differing(&other_free));
        holds && unlike.is_within(&free.with(&self.all_looks.both(&this.gone)))
    }
}

/// A search under way.
struct Search<'a, const W: usize> {
    plan: &'a Plan,
    states_max: usize,
    states: usize,
    shape: Shape<W>,
    /// The configurations possible so far, each with the last link of a chain that leads to it.
    frontier: Vec<(Configuration<W>, u32)>,
    links: Vec<Link>,
    /// The configurations of the next frontier.
    kept: Seen<W>,
    /// Those within the event at hand.
    seen: Seen<W>,
    stack: Vec<(Configuration<W>, u32)>,
    /// How many configurations are kept; some were left out.
    width: usize,
    left_out: bool,
}

impl<'a, const W: usize> Search<'a, W> {
    fn new(plan: &'a Plan, states_max: usize, width: usize) -> Self {
        let start = Configuration { holds: ABSENT, gone: Slots::NONE, free: Slots::NONE };
        let shape = Shape {
            writes: Vec::new(),
            takes: Vec::new(),
            looks: Vec::new(),
            certain_writes: Slots::NONE,
            optional_writes: Slots::NONE,
            all_looks: Slots::NONE,
            items: vec![0; W * 64],
            forgotten: vec![false; plan.values],
        };
        Self {
            plan,
            states_max,
            states: 0,
            shape,
            frontier: vec![(start, START)],
            links: Vec::new(),
            kept: Seen::default(),
            seen: Seen::default(),
            stack: Vec::new(),
            width,
            left_out: false,
        }
    }

    fn through_events(&mut self) -> Found {
        for event in &self.plan.events {
            match *event {
                Event::Invoked(number) => self.invoked(number),
                Event::Returned(number) => {
                    let before = std::mem::take(&mut self.frontier);
                    self.returned(number, &before);
                    // Links are numbered with 32 bits; a step adds fewer than twice as many as there are slots.
                    if self.states > self.states_max || self.links.len() >= START as usize / 2 {
                        return Found::Limit(Limit::States(self.states_max));
                    }
                    if self.frontier.is_empty() {
                        return Found::Misfit(self.misfit(number, &before));
                    }
                }
            }
        }
        Found::Fits(self.order(self.frontier[0].1))
    }

    fn invoked(&mut self, number: u32) {
        let item = &self.plan.items[number as usize];
        self.shape.insert(number, item);
        if let Step::Look(value) = item.step {
            for (configuration, last) in &mut self.frontier {
                if configuration.holds == value {
                    configuration.gone.insert(item.slot);
                    self.links.push(Link { before: *last, item: number, hidden: false });
                    *last = self.links.len() as u32 - 1;
                }
            }
        }
    }

    /// Makes the frontier in which an item has returned of the one before.
    fn returned(&mut self, number: u32, before: &[(Configuration<W>, u32)]) {
        clear(&mut self.kept);
        clear(&mut self.seen);
        let item = self.plan.items[number as usize];
        for &(configuration, last) in before {
            if configuration.gone.contains(item.slot) {
                self.keep(configuration, last, &item);
                continue;
            }
            if item.optional {
                self.keep(configuration, last, &item);
            } else if configuration.free.contains(item.slot) {
                self.links.push(Link { before: last, item: number, hidden: true });
                self.keep(configuration, self.links.len() as u32 - 1, &item);
            }
            if self.seen.insert(configuration) {
                self.stack.push((configuration, last));
            }
        }
        while let Some((configuration, last)) = self.stack.pop() {
            self.expand(&configuration, last, &item);
            if self.states > self.states_max {
                return;
            }
            if self.seen.len() / 32 > self.width {
                self.left_out |= !self.stack.is_empty();
                self.stack.clear();
            }
        }
        self.shape.remove(&item);
        if let (Step::Look(value), true) = (item.step, item.is_last) {
            self.shape.forget(value);
        }
        self.prune();
        if self.frontier.len() > self.width {
            self.left_out = true;
            self.narrow();
        }
    }

    /// Leaves out configurations: of those that hold the same value, the ones that used more of what is optional.
    fn narrow(&mut self) {
        let used = |of: &Configuration<W>| of.gone.both(&self.shape.optional_writes).count();
        self.frontier.sort_by_cached_key(|(of, _)| (of.holds, used(of)));
        let (mut place, mut holds) = (0, None);
        let mut ranked: Vec<_> = self
            .frontier
            .drain(..)
            .map(|element| {
                place = if holds == Some(element.0.holds) { place + 1 } else { 0 };
                holds = Some(element.0.holds);
                (place, element)
            })
            .collect();
        ranked.sort_by_key(|&(place, _)| place);
        self.frontier.extend(ranked.into_iter().take(self.width).map(|(_, element)| element));
    }

    /// Takes a configuration into the next frontier. The slot of the item that returned is no longer in use.
    fn keep(&mut self, mut configuration: Configuration<W>, last: u32, returned: &Item) {
        self.states += 1;
        configuration.gone.remove(returned.slot);
        configuration.free.remove(returned.slot);
        if returned.is_last && returned.step == Step::Look(configuration.holds) {
            configuration.holds = UNREAD;
        }
        if self.kept.insert(configuration) {
            self.frontier.push((configuration, last));
        }
    }

    /// Tries the next links of a chain that is to end with the item that returns.
    fn expand(&mut self, from: &Configuration<W>, last: u32, item: &Item) {
        if let Step::Write(_) = item.step {
            let to = self.shape.after(from, item.slot, self.shape.value_of(item));
            self.reach(from, last, &[(item.slot, to)], item);
        }
        let take = self.shape.next_take(from);
        let mut chains: Vec<(u32, Configuration<W>, bool)> = Vec::new();
        // To take something, any value will do; that of an unread write that returns earlier is no loss.
        let mut unread_deadline = None;
        self.shape.next_writes(from, item.slot, |slot, value, deadline| {
            let awaited = self.shape.awaited(from, value);
            let needless = unread_deadline.is_some_and(|earlier| earlier <= deadline);
            let enables = take.is_some() && from.holds == ABSENT && value != ABSENT && !needless;
            if value == UNREAD {
                unread_deadline = Some(deadline);
            }
            if awaited || enables {
                let to = self.shape.after(from, slot, value);
                if awaited {
                    chains.push((slot, to, false));
                }
                if enables {
                    chains.push((slot, to, true));
                }
            }
        });
        for (slot, to, taken) in chains {
            match take.filter(|_| taken) {
                None => self.reach(from, last, &[(slot, to)], item),
                Some(take) => {
                    let end = self.shape.after(&to, take, ABSENT);
                    self.reach(from, last, &[(slot, to), (take, end)], item);
                }
            }
        }
        if let Some(take) = take.filter(|_| from.holds != ABSENT) {
            let to = self.shape.after(from, take, ABSENT);
            self.reach(from, last, &[(take, to)], item);
        }
    }

    /// Goes along steps, each a slot and the configuration after it.
    fn reach(
        &mut self,
        from: &Configuration<W>,
        mut last: u32,
        steps: &[(u32, Configuration<W>)],
        item: &Item,
    ) {
        self.states += 1;
        let Some(&(_, end)) = steps.last() else { return };
        let ends = end.gone.contains(item.slot);
        if !ends && !self.seen.insert(end) {
            return;
        }
        let mut gone = from.gone;
        for &(slot, ref to) in steps {
            last = self.link(last, slot);
            gone.insert(slot);
            for look in to.gone.without(&gone).iter() {
                last = self.link(last, look);
            }
            gone = to.gone;
        }
        if ends {
            self.keep(end, last, item);
        } else {
            self.stack.push((end, last));
        }
    }

    fn link(&mut self, before: u32, slot: u32) -> u32 {
        self.links.push(Link { before, item: self.shape.items[slot as usize], hidden: false });
        self.links.len() as u32 - 1
    }

    /// Drops configurations that others cover.
    fn prune(&mut self) {
        if self.frontier.len() > PRUNED_MAX {
            return;
        }
        let mut at = 0;
        while at < self.frontier.len() {
            let this = self.frontier[at].0;
            let covered =
                self.frontier.iter().any(|(other, _)| *other != this && self.shape.covers(other, &this));
            if covered {
                self.frontier.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// The links that lead to one, the first first.
    fn chain(&self, last: u32) -> Vec<Link> {
        let before = |&at: &u32| Some(self.links[at as usize].before).filter(|&at| at != START);
        let mut chain: Vec<Link> = std::iter::successors(Some(last).filter(|&at| at != START), before)
            .map(|at| self.links[at as usize])
            .collect();
        chain.reverse();
        chain
    }

    /// The order of operations that a chain means.
    fn order(&self, last: u32) -> Vec<usize> {
        let (mut order, mut last_write) = (Vec::new(), 0);
        for link in self.chain(last) {
            let item = &self.plan.items[link.item as usize];
            if link.hidden {
                order.insert(last_write, item.operation as usize);
                last_write += 1;
                continue;
            }
            if !matches!(item.step, Step::Look(_)) {
                last_write = order.len();
            }
            order.push(item.operation as usize);
        }
        order
    }

    fn misfit(&self, number: u32, before: &[(Configuration<W>, u32)]) -> Misfit {
        let operation = |item: u32| self.plan.items[item as usize].operation as usize;
        let last_write = |last: u32| {
            let is_write = |link: &&Link| {
                !link.hidden && !matches!(self.plan.items[link.item as usize].step, Step::Look(_))
            };
            self.chain(last).iter().rev().find(is_write).map(|link| operation(link.item))
        };
        let orders: Vec<_> = before.iter().take(ORDERS_MAX).map(|&(_, last)| last).collect();
        Misfit {
            operation: operation(number),
            order: orders.first().map(|&last| self.order(last)).unwrap_or_default(),
            last_writes: orders.into_iter().map(last_write).collect(),
        }
    }
}

/// Empties a set. One that has become large is given up: emptying it takes time by its size.
fn clear<const W: usize>(set: &mut Seen<W>) {
    if set.capacity() > 4096 {
        *set = Seen::default();
    } else {
        set.clear();
    }
}
