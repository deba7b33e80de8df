//! A few operations that contradict each other, out of a history that is not linearizable.
//!
//! Leaving out a put makes a mystery of every get that found its value; that would be another contradiction than the
//! history's. So whatever is left out counts as *weakened* in the search: a write may have taken effect within its time
//! or not, and what was seen is forgotten. What then still is no linearizable history stays none whatever the weakened
//! operations did; and it is none either with the weakened operations as they were, or without them.

use super::Limits;
use super::search::{Found, search};
use crate::{Action, History, Operation};

/// The most searches.
const SEARCHES_MAX: usize = 2000;
/// How many puts of a value that a get found are added, the last ones.
const ORIGINS_MAX: usize = 3;

/// Leaves out operations on a key that is in violation, as long as it is by those that are left, and adds the last puts of
/// the values that those found. The history of one key that it gives is in violation, too. `None` if the key is not in
/// violation, or if that is not known within the limit.
///
/// The searches for that, after the first, share [`Limits::states_max`] states; at its end, what is left by then is given.
pub fn minimise(history: &History, key: &[u8], limits: &Limits) -> Option<History> {
    let mut operations: Vec<&Operation> = history.operations().iter().filter(|o| o.key == key).collect();
    let (Found::Misfit(misfit), _) =
        search(&operations, history.is_of_cache(), &|_| false, limits.states_max)
    else {
        return None;
    };
    let misfit = misfit.operation;
    let end_ns = operations[misfit].returned_ns;
    // What was invoked later has nothing to do with it, and of what is under way the result is not known yet.
    operations.retain(|operation| Some(operation.invoked_ns) <= end_ns);
    let is_over = |&index: &usize| operations[index].is_certain() && operations[index].returned_ns <= end_ns;
    let kept = (0..operations.len()).filter(is_over).collect();
    let mut minimiser = Minimiser {
        operations,
        forgets: history.is_of_cache(),
        kept,
        states: limits.states_max,
        searches: SEARCHES_MAX,
    };
    minimiser.keep_last();
    minimiser.keep_writes(misfit);
    minimiser.leave_out();
    let few = History::new(minimiser.with_origins()).ok()?;
    Some(if history.is_of_cache() { few.of_cache() } else { few })
}

struct Minimiser<'a> {
    operations: Vec<&'a Operation>,
    /// It is the history of a cache.
    forgets: bool,
    /// Indices of the operations that are not weakened, ascending.
    kept: Vec<usize>,
    /// How many more states may be looked at.
    states: usize,
    /// How many more searches there may be.
    searches: usize,
}

impl Minimiser<'_> {
    /// Keeps only these operations, if they contradict each other.
    fn try_keep(&mut self, kept: Vec<usize>) -> bool {
        if self.searches == 0 || self.states == 0 {
            return false;
        }
        self.searches -= 1;
        let mut weakened = vec![true; self.operations.len()];
        kept.iter().for_each(|&index| weakened[index] = false);
        let (found, states) = search(&self.operations, self.forgets, &|index| weakened[index], self.states);
        self.states = self.states.saturating_sub(states);
        let contradicts = matches!(found, Found::Misfit(_));
        if contradicts {
            self.kept = kept;
        }
        contradicts
    }

    /// Most contradictions are among the last few operations.
    fn keep_last(&mut self) {
        let mut count = 32;
        while count < self.kept.len() && !self.try_keep(self.kept[self.kept.len() - count..].to_vec()) {
            count *= 4;
        }
    }

    /// What was written says more than who else saw it.
    fn keep_writes(&mut self, misfit: usize) {
        let is_get = |index: usize| matches!(self.operations[index].action, Action::Get(_));
        let writes = self.kept.iter().copied().filter(|&index| index == misfit || !is_get(index)).collect();
        self.try_keep(writes);
    }

    /// Leaves out ever smaller parts (Zeller and Hildebrandt, *Simplifying and isolating failure-inducing input*).
    fn leave_out(&mut self) {
        let mut part = self.kept.len().div_ceil(2);
        while part > 0 {
            let (mut at, mut smaller) = (0, false);
            while at < self.kept.len() {
                let end = (at + part).min(self.kept.len());
                let others = [&self.kept[..at], &self.kept[end..]].concat();
                if self.try_keep(others) {
                    smaller = true;
                } else {
                    at = end;
                }
            }
            // One by one until all that are left are needed.
            if part > 1 || !smaller {
                part /= 2;
            }
        }
    }

    /// The operations kept, with puts of the values that they found.
    fn with_origins(mut self) -> Vec<Operation> {
        for index in self.kept.clone() {
            let at = self.operations[index];
            let of_value = |put: &Vec<u8>| match &at.action {
                Action::Get(Some(found)) => put == found,
                Action::Delete { found } => *found,
                _ => false,
            };
            let before = |&origin: &usize| {
                let other = self.operations[origin];
                matches!(&other.action, Action::Put(value) if of_value(value))
                    && Some(other.invoked_ns) <= at.returned_ns
            };
            let count = if matches!(at.action, Action::Delete { .. }) { 1 } else { ORIGINS_MAX };
            let origins: Vec<usize> = (0..self.operations.len()).rev().filter(before).take(count).collect();
            self.kept.extend(origins);
        }
        self.kept.sort();
        self.kept.dedup();
        self.kept.iter().map(|&index| self.operations[index].clone()).collect()
    }
}
