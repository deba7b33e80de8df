//! The history of one key, made ready for the search: values as numbers, operations as what they mean for a register,
//! times as one sequence of events.

use super::Limit;
use super::search::OVERLAP_MAX;
use crate::{Action, Operation};
use std::collections::{HashMap, HashSet};

/// What the register holds: [`ABSENT`], or a value's number.
pub(super) type Value = u32;
/// No value.
pub(super) const ABSENT: Value = 0;
/// Any value that nobody reads any more: nothing tells such values apart.
pub(super) const UNREAD: Value = 1;

/// The event of a return that never comes.
pub(super) const NEVER: u32 = u32::MAX;

/// What an operation means for a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It then holds a value, or nothing: a put, a delete of which it is not known what it found, or what finds
    /// nothing in a store that forgets.
    Write(Value),
    /// It holds a value, and then nothing: a delete that found the key.
    Take,
    /// It holds that value, or nothing: a get, or a delete that found nothing.
    Look(Value),
}

/// An operation that matters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub step: Step,
    /// It may also never have taken effect. Only writes are optional.
    pub optional: bool,
    /// Its bit while it is under way.
    pub slot: u32,
    /// The number of the event of its return, or `NEVER`.
    pub deadline: u32,
    /// It is the last that looks for its value: whatever holds that is unread from then on.
    pub is_last: bool,
    /// Its index in the key's history.
    pub operation: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Invoked(u32),
    Returned(u32),
}

/// The items, and the events of their invocations and returns in the order of time; of those at one moment, invocations
/// come first, so that what touches overlaps.
pub(super) struct Plan {
    pub items: Vec<Item>,
    pub events: Vec<Event>,
    /// How many items are under way at a time.
    pub slots: usize,
    /// By value: the events of its last invocations.
    pub last: Vec<Last>,
}

/// When something is invoked for the last time that has to do with a value. 0 if nothing is: at the first event nothing
/// can be lost yet.
#[derive(Clone, Copy, Default)]
pub(super) struct Last {
    pub look: u32,
    pub write: u32,
}

impl Plan {
    /// Makes a plan of a key's operations, in a store that may forget it or not: whoever finds nothing there as good as deletes the key,
    /// since that may have been forgotten until then at any moment. Those that are `weakened` may have taken effect within their time or not, and
    /// whatever result they had.
    pub fn new(
        operations: &[&Operation],
        forgets: bool,
        weakened: &dyn Fn(usize) -> bool,
    ) -> Result<Self, Limit> {
        let certain = |index: &usize| operations[*index].is_certain() && !weakened(*index);
        let forgotten = |operation: &Operation| forgets && operation.found_nothing();
        let looking = (0..operations.len()).filter(certain).map(|index| operations[index]);
        let looks = Looks::new(looking.filter(|operation| !forgotten(operation)));
        let mut items = Vec::with_capacity(operations.len());
        for (index, operation) in operations.iter().enumerate() {
            let optional = !certain(&index);
            let step = match &operation.action {
                Action::Get(_) if optional => continue,
                _ if forgotten(operation) => Step::Write(ABSENT),
                Action::Get(found) => Step::Look(looks.number(found.as_deref())),
                Action::Put(value) => Step::Write(looks.number_at(value, operation.invoked_ns)),
                Action::Delete { .. } if optional => Step::Write(ABSENT),
                Action::Delete { found: true } => Step::Take,
                Action::Delete { found: false } => Step::Look(ABSENT),
            };
            // An optional operation that nothing certain could need never needs to have taken effect.
            let needless = match step {
                Step::Write(UNREAD) => !looks.take,
                Step::Write(ABSENT) => !looks.absent,
                _ => false,
            };
            if !(optional && needless) {
                items.push(Item {
                    step,
                    optional,
                    slot: 0,
                    deadline: NEVER,
                    is_last: false,
                    operation: index as u32,
                });
            }
        }
        Self::schedule(items, operations, UNREAD as usize + 1 + looks.found.len())
    }

    fn schedule(mut items: Vec<Item>, operations: &[&Operation], values: usize) -> Result<Self, Limit> {
        let mut times = Vec::with_capacity(items.len() * 2);
        for (number, item) in (0..).zip(&items) {
            let operation = operations[item.operation as usize];
            times.push((operation.invoked_ns, Event::Invoked(number)));
            // One whose outcome is unknown may take effect after it returned.
            if let (Some(returned_ns), true) = (operation.returned_ns, operation.is_certain()) {
                times.push((returned_ns, Event::Returned(number)));
            }
        }
        times.sort_by_key(|&(at_ns, event)| (at_ns, matches!(event, Event::Returned(_))));
        let events: Vec<Event> = times.into_iter().map(|(_, event)| event).collect();
        let mut last = vec![Last::default(); values];
        let (mut free, mut slots) = (Vec::new(), 0);
        for (at, event) in (0..).zip(&events) {
            match *event {
                Event::Invoked(item) => {
                    match items[item as usize].step {
                        Step::Write(value) => last[value as usize].write = at,
                        Step::Look(value) => last[value as usize].look = at,
                        Step::Take => {}
                    }
                    items[item as usize].slot = free.pop().unwrap_or_else(|| {
                        slots += 1;
                        slots - 1
                    });
                }
                Event::Returned(item) => {
                    items[item as usize].deadline = at;
                    free.push(items[item as usize].slot);
                }
            }
        }
        let mut known = HashSet::new();
        for event in events.iter().rev() {
            if let Event::Returned(number) = *event
                && let item = &mut items[number as usize]
                && let Step::Look(value) = item.step
            {
                item.is_last = value != ABSENT && known.insert(value);
            }
        }
        let slots = slots as usize;
        if slots > OVERLAP_MAX {
            Err(Limit::Overlap(OVERLAP_MAX))
        } else {
            Ok(Self { items, events, slots, last })
        }
    }
}

/// What is read with certainty.
struct Looks<'a> {
    /// The values that are found, with their numbers and when the last get that finds them returns.
    found: HashMap<&'a [u8], (Value, u64)>,
    /// Some get or delete finds nothing.
    absent: bool,
    /// Some delete finds the key.
    take: bool,
}

impl<'a> Looks<'a> {
    fn new(certain: impl Iterator<Item = &'a Operation>) -> Self {
        let mut looks = Self { found: HashMap::new(), absent: false, take: false };
        for operation in certain {
            match &operation.action {
                Action::Get(Some(value)) => {
                    let next = UNREAD + 1 + looks.found.len() as Value;
                    let (_, last_ns) = looks.found.entry(value).or_insert((next, 0));
                    *last_ns = operation.returned_ns.unwrap_or(u64::MAX).max(*last_ns);
                }
                Action::Get(None) | Action::Delete { found: false } => looks.absent = true,
                Action::Delete { found: true } => looks.take = true,
                Action::Put(_) => {}
            }
        }
        looks
    }

    fn number(&self, found: Option<&[u8]>) -> Value {
        found.map_or(ABSENT, |value| self.found.get(value).map_or(UNREAD, |&(number, _)| number))
    }

    /// The number of a value that is put at a moment or later.
    fn number_at(&self, value: &[u8], at_ns: u64) -> Value {
        match self.found.get(value) {
            Some(&(number, last_ns)) if last_ns >= at_ns => number,
            _ => UNREAD,
        }
    }
}
