//! Whether a history is linearizable: key by key, since a history is linearizable if its part for every key is (Herlihy
//! and Wing, *Linearizability*, theorem 1).
//!
//! The search is our own. Of the crates, `stateright`'s tester tries orders without remembering which it has tried,
//! recursively, and brings an HTTP server; `lincheck` likewise tries all permutations, and brings `loom`; `todc-utils` is
//! a Wing-Gong-Lowe search, but finds entries and remembers configurations in time and memory that grow with the whole
//! history, knows neither outcomes that are unknown nor a bound, does not say what is wrong, and rests since 2023. None
//! makes use of what a register is, which is what keeps the search small (`search.rs`).

mod minimise;
mod plan;
mod search;
mod shape;
mod slots;

pub use minimise::minimise;
pub use search::OVERLAP_MAX;

use crate::{Action, History, Operation, text::Shown};
use search::{Found, Misfit};
use std::collections::HashSet;
use std::fmt;

/// How much is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// States that are looked at for one key, twice at most; each takes some 100 bytes, and up to 1 KiB where hundreds of
    /// operations overlap.
    pub states_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { states_max: 4_000_000 }
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} states per key", self.states_max)
    }
}

/// What a check says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// There is an order of all operations that a map could have gone through.
    Linearizable,
    /// There is none.
    Violation(Box<Violation>),
    /// A limit was reached before it was known; no violation was found with other keys.
    Undecided(Undecided),
}

/// A key whose history is not linearizable, and where that shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The key.
    pub key: Vec<u8>,
    /// The first operation by whose return no order is left.
    pub misfit: Operation,
    /// An order that fits of what returned before the misfit, and of some that overlap with it.
    pub order: Vec<Operation>,
    /// What the key may hold after such orders; `None` is absent. At most [`HELD_MAX`].
    pub held: Vec<Option<Vec<u8>>>,
    /// The operations on the key that overlap with the misfit, in the order of their invocations.
    pub concurrent: Vec<Operation>,
}

/// A limit that was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecided {
    /// For which key.
    pub key: Vec<u8>,
    /// Which limit.
    pub limit: Limit,
}

/// The limits of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`Limits::states_max`].
    States(usize),
    /// [`OVERLAP_MAX`], operations under way at a time; those with an unknown outcome stay under way.
    Overlap(usize),
}

/// How many values a violation lists that a key may hold.
pub const HELD_MAX: usize = 16;
/// How many operations of each kind a violation prints.
const PRINTED_MAX: usize = 12;

/// Judges a history, of a map or [of a cache](History::of_cache). Keys are absent at first. Operations that touch at a moment overlap.
///
/// If several keys are in violation, the one is reported where it shows first. The same history gives the same verdict.
pub fn check(history: &History, limits: &Limits) -> Verdict {
    let mut verdict = Verdict::Linearizable;
    let mut shown_ns = None;
    for (key, operations) in history.by_key() {
        match search::search(&operations, history.is_of_cache(), &|_| false, limits.states_max).0 {
            Found::Fits(order) => {
                debug_assert!(
                    fits(&operations, history.is_of_cache(), &order),
                    "a wrong order: a bug of the search"
                )
            }
            Found::Limit(limit) => {
                if verdict == Verdict::Linearizable {
                    verdict = Verdict::Undecided(Undecided { key: key.to_vec(), limit });
                }
            }
            Found::Misfit(misfit) => {
                let at_ns = operations[misfit.operation].returned_ns;
                if shown_ns.is_none() || at_ns < shown_ns {
                    shown_ns = at_ns;
                    verdict = Verdict::Violation(Box::new(Violation::new(key, &operations, misfit)));
                }
            }
        }
    }
    verdict
}

/// Whether a map, or a cache that forgets, would have given the same answers if the operations had taken effect in this order,
/// and each could have at its place in time. Shares no thought with the search.
fn fits(operations: &[&Operation], forgets: bool, order: &[usize]) -> bool {
    let mut left: HashSet<usize> = (0..operations.len()).collect();
    let (mut holds, mut now_ns) = (None, 0);
    let each_fits = order.iter().all(|index| {
        let operation = operations[*index];
        now_ns = operation.invoked_ns.max(now_ns);
        let in_time = !operation.is_certain() || operation.returned_ns >= Some(now_ns);
        if forgets && operation.is_certain() && operation.found_nothing() {
            holds = None;
        }
        let agrees = match &operation.action {
            Action::Get(found) => *found == holds,
            Action::Put(value) => {
                holds = Some(value.clone());
                true
            }
            Action::Delete { found } => *found == holds.take().is_some() || !operation.is_certain(),
        };
        left.remove(index) && in_time && agrees
    });
    let is_effectless = |index: &usize| !operations[*index].is_certain();
    each_fits && left.iter().all(is_effectless)
}

impl Violation {
    fn new(key: &[u8], operations: &[&Operation], misfit: Misfit) -> Self {
        let the = operations[misfit.operation];
        let overlaps = |(index, other): &(usize, &&Operation)| {
            let ends_before = other.is_certain() && other.returned_ns < Some(the.invoked_ns);
            *index != misfit.operation && !ends_before && Some(other.invoked_ns) <= the.returned_ns
        };
        let value = |write: &usize| match &operations[*write].action {
            Action::Put(value) => Some(value.clone()),
            _ => None,
        };
        let mut held: Vec<_> =
            misfit.last_writes.iter().map(|write| write.as_ref().and_then(value)).collect();
        held.sort();
        held.dedup();
        held.truncate(HELD_MAX);
        Self {
            key: key.to_vec(),
            misfit: the.clone(),
            order: misfit.order.iter().map(|&index| operations[index].clone()).collect(),
            held,
            concurrent: operations
                .iter()
                .enumerate()
                .filter(overlaps)
                .map(|(_, &other)| other.clone())
                .collect(),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linearizable => write!(f, "linearizable"),
            Self::Violation(violation) => violation.fmt(f),
            Self::Undecided(undecided) => undecided.fmt(f),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "key {} is not linearizable; what does not fit:", Shown(&self.key))?;
        writeln!(f, "  {}", self.misfit)?;
        write!(f, "before it, and what overlaps with it, the key holds ")?;
        for (number, value) in self.held.iter().enumerate() {
            let or = if number > 0 { " or " } else { "" };
            match value {
                Some(value) => write!(f, "{or}{}", Shown(value))?,
                None => write!(f, "{or}nothing")?,
            }
        }
        writeln!(f)?;
        if !self.concurrent.is_empty() {
            writeln!(f, "what overlaps with it:")?;
            let first = self.concurrent.len().saturating_sub(PRINTED_MAX);
            print(f, &self.concurrent[first..], first)?;
        }
        if !self.order.is_empty() {
            writeln!(f, "an order of those before it that fits:")?;
            let first = self.order.len().saturating_sub(PRINTED_MAX);
            print(f, &self.order[first..], first)?;
        }
        Ok(())
    }
}

fn print(f: &mut fmt::Formatter<'_>, operations: &[Operation], before: usize) -> fmt::Result {
    if before > 0 {
        writeln!(f, "  ... {before} others, and")?;
    }
    operations.iter().try_for_each(|operation| writeln!(f, "  {operation}"))
}

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not decided for key {}: ", Shown(&self.key))?;
        match self.limit {
            Limit::States(limit) => {
                write!(
                    f,
                    "more than {limit} states to look at: raise Limits::states_max, or check fewer clients"
                )
            }
            Limit::Overlap(limit) => write!(
                f,
                "more than {limit} operations on it were under way at a time, those with an unknown outcome included: \
                 check fewer clients, or a shorter run"
            ),
        }
    }
}
