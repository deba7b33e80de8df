//! The search for an order of one key's operations: Wing and Gong's, with the memory of configurations and the just-in-time
//! linearisation of Lowe (*Testing for linearizability*, 2017), all configurations of a moment side by side.
//!
//! It goes through the events in the order of time and keeps all configurations that are possible so far: what the
//! register holds, and which of the operations under way have taken effect. Only when an operation returns must it have
//! taken effect; so at its return, and not before, a chain of operations under way takes effect of which it is the last.
//! If no configuration is left, the operations up to that return fit no order, and those up to just before it do.
//!
//! Since this is a register, most choices need not be tried:
//!
//! - A look takes effect as soon as the register holds what it saw; it changes nothing.
//! - A put under way may be *hidden* just before any other write or take that takes effect: nobody sees it (and what leaves
//!   nothing, just after a take). From then on it is *free*: it may take effect later, or have been hidden. So it takes
//!   effect in a chain, before the last link, only if looks wait for its value, or a take for any. Operations with an unknown outcome are free from the beginning.
//! - Of writes of the same value, and of takes, the one that returns first goes first: they could be exchanged.
//! - A configuration that can do all that another can makes that one needless (`Shape::covers`).
//!
//! What is left can still be too much where many operations have an unknown outcome. So a search first keeps but some
//! configurations at a time, which mostly finds an order if there is one; if it does not, another keeps them all.

use super::Limit;
use super::plan::{ABSENT, Event, Item, Plan, Step, UNREAD, Value};
use super::shape::{Configuration, Shape};
use super::slots::Slots;
use crate::Operation;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// The most operations on a key that may be under way at a time; those with an unknown outcome stay under way.
pub const OVERLAP_MAX: usize = 16 * 64;

/// How many configurations are kept, first and then.
const WIDTHS: [usize; 2] = [64, usize::MAX];
/// The most configurations that are compared with each other.
const PRUNED_MAX: usize = 256;
/// Of how many orders a misfit tells the last write.
const ORDERS_MAX: usize = 256;

/// What a search ends with.
pub(super) enum Found {
    /// An order that fits: indices of the operations that take effect.
    Fits(Vec<usize>),
    /// There is none.
    Misfit(Misfit),
    /// A limit was reached.
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
    forgets: bool,
    weakened: &dyn Fn(usize) -> bool,
    states_max: usize,
) -> (Found, usize) {
    match Plan::new(operations, forgets, weakened) {
        Err(limit) => (Found::Limit(limit), 0),
        Ok(plan) if plan.slots <= 64 => widening::<1>(&plan, states_max, &WIDTHS),
        Ok(plan) if plan.slots <= 4 * 64 => widening::<4>(&plan, states_max, &WIDTHS),
        Ok(plan) => widening::<16>(&plan, states_max, &WIDTHS),
    }
}

/// Most histories fit an order, which few of many configurations suffice to find. If they do not, more are tried.
fn widening<const W: usize>(plan: &Plan, states_max: usize, widths: &[usize]) -> (Found, usize) {
    let (mut found, mut states) = (Found::Limit(Limit::States(states_max)), 0);
    for &width in widths {
        let mut search = Search::<W>::new(plan, states_max, width);
        found = search.through_events();
        states += search.states;
        if matches!(found, Found::Fits(_)) || !search.left_out {
            break;
        }
    }
    (found, states)
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
    /// The number of the event at hand.
    now: u32,
    /// How many configurations are kept.
    width: usize,
    /// Some were not.
    left_out: bool,
}

impl<'a, const W: usize> Search<'a, W> {
    fn new(plan: &'a Plan, states_max: usize, width: usize) -> Self {
        let start = Configuration { holds: ABSENT, gone: Slots::NONE, free: Slots::NONE };
        Self {
            plan,
            states_max,
            states: 0,
            shape: Shape::new(plan.last.len()),
            frontier: vec![(start, START)],
            links: Vec::new(),
            kept: Seen::default(),
            seen: Seen::default(),
            stack: Vec::new(),
            now: 0,
            width,
            left_out: false,
        }
    }

    fn through_events(&mut self) -> Found {
        for (at, event) in (0..).zip(&self.plan.events) {
            self.now = at;
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
            let need_not = item.optional || configuration.free.contains(item.slot);
            if need_not && !self.is_lost(self.shape.value_of(&item), &configuration, item.slot) {
                // An optional one then never takes effect.
                let last = if item.optional { last } else { self.link(last, item.slot, true) };
                self.keep(configuration, last, &item);
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
        let mut holds = from.holds;
        for (slot, to) in steps {
            if holds != to.holds && self.is_lost(holds, &end, *slot) {
                return;
            }
            holds = to.holds;
        }
        let ends = end.gone.contains(item.slot);
        if !ends && !self.seen.insert(end) {
            return;
        }
        let mut gone = from.gone;
        for &(slot, ref to) in steps {
            last = self.link(last, slot, false);
            gone.insert(slot);
            for look in to.gone.without(&gone).iter() {
                last = self.link(last, look, false);
            }
            gone = to.gone;
        }
        if ends {
            self.keep(end, last, item);
        } else {
            self.stack.push((end, last));
        }
    }

    /// Whether a value that is replaced, or whose put in a slot has been hidden, will be read and cannot come back. Such a
    /// configuration has an end, which a narrow search need not wait for. A whole one does, to say where that is.
    fn is_lost(&mut self, value: Value, of: &Configuration<W>, slot: u32) -> bool {
        let last = self.plan.last[value as usize];
        let is_lost = self.width != usize::MAX
            && value > UNREAD
            && last.look > self.now
            && last.write < self.now
            && !self.shape.can_write(of, value, slot);
        self.left_out |= is_lost;
        is_lost
    }

    fn link(&mut self, before: u32, slot: u32, hidden: bool) -> u32 {
        self.links.push(Link { before, item: self.shape.items[slot as usize], hidden });
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
        let (mut order, mut before, mut after, mut takes) = (Vec::new(), 0, 0, false);
        for link in self.chain(last) {
            let item = &self.plan.items[link.item as usize];
            if link.hidden {
                // A take would find nothing behind what leaves nothing: that is as well hidden just after it.
                let at = if takes && item.step == Step::Write(ABSENT) { after } else { before };
                order.insert(at, item.operation as usize);
                after += 1;
                continue;
            }
            if !matches!(item.step, Step::Look(_)) {
                (before, after, takes) = (order.len(), order.len() + 1, item.step == Step::Take);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, Outcome};
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    /// Operations without any rule, but for that most gets find something that is put.
    fn any_operations(random: &mut SmallRng) -> Vec<Operation> {
        let (count, values) = (random.random_range(1..14), random.random_range(1..5));
        let mut operations = Vec::new();
        for _ in 0..count {
            let value = vec![random.random_range(0..values)];
            let action = match random.random_range(0..9) {
                0..4 => Action::Put(value),
                4..6 => Action::Get(Some(value)),
                6 => Action::Get(None),
                _ => Action::Delete { found: random.random_bool(0.7) },
            };
            let invoked_ns = random.random_range(0..20);
            let outcome = if random.random_bool(0.3) { Outcome::Unknown } else { Outcome::Ok };
            let returned_ns = Some(invoked_ns + random.random_range(0..15));
            operations.push(Operation { client: 0, key: vec![], action, invoked_ns, returned_ns, outcome });
        }
        operations
    }

    /// Whether an order fits, or by which operation's return none does.
    fn judge<const W: usize>(
        operations: &[&Operation],
        forgets: bool,
        widths: &[usize],
    ) -> Result<(), usize> {
        let plan = Plan::new(operations, forgets, &|index| index % 5 == 4).unwrap();
        match widening::<W>(&plan, usize::MAX, widths).0 {
            Found::Fits(_) => Ok(()),
            Found::Misfit(misfit) => Err(misfit.operation),
            Found::Limit(limit) => panic!("{limit:?}"),
        }
    }

    #[test]
    fn a_narrow_search_first_and_wider_sets_change_nothing() {
        let mut random = SmallRng::seed_from_u64(7);
        let mut fitting = 0;
        const CASES: usize = 20_000;
        for case in 0..CASES {
            let forgets = case % 2 == 1;
            let operations = any_operations(&mut random);
            let operations: Vec<&Operation> = operations.iter().collect();
            let whole = judge::<1>(&operations, forgets, &[usize::MAX]);
            assert_eq!(judge::<1>(&operations, forgets, &[1, 2, usize::MAX]), whole, "{operations:#?}");
            assert_eq!(judge::<4>(&operations, forgets, &WIDTHS), whole, "{operations:#?}");
            fitting += usize::from(whole.is_ok());
        }
        // The cases are worth something.
        assert!((CASES / 10..CASES * 9 / 10).contains(&fitting), "{fitting}");
    }
}
