//! Keeps changes of the same key in order while others overtake each other.

use locus_runtime::yield_now;
use std::{
    cell::RefCell,
    hash::{BuildHasher, RandomState},
};

/// The changes under way, at most a window of them: the number and the key's hash of each.
#[derive(Default)]
pub(crate) struct Turns {
    hasher: RandomState,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    under_way: Vec<(u64, u64)>,
}

/// The place of one change among those of its key; the next one's turn has come when it is dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
    hash: u64,
}

impl Turns {
    /// Takes a place behind all earlier changes of the key. Keys with the same hash count as the same.
    pub(crate) fn enter(&self, key: &[u8]) -> Turn<'_> {
        let hash = self.hasher.hash_one(key);
        let state = &mut *self.state.borrow_mut();
        let number = state.next;
        state.next += 1;
        state.under_way.push((number, hash));
        Turn { turns: self, number, hash }
    }
}

impl Turn<'_> {
    /// Waits until no earlier change of the key is under way.
    pub(crate) async fn come(&self) {
        let first = |state: &State| {
            !state.under_way.iter().any(|&(number, hash)| hash == self.hash && number < self.number)
        };
        while !first(&self.turns.state.borrow()) {
            yield_now().await;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.state.borrow_mut().under_way.retain(|&(number, _)| number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use locus_runtime::interleave;

    #[test]
    fn changes_of_a_key_keep_their_order_and_others_do_not_wait() {
        let (turns, trace) = (Turns::default(), RefCell::new(Vec::new()));
        let (turns, trace) = (&turns, &trace);
        // The earlier a change, the longer it takes.
        let changes = ["a", "b", "a", "c", "a"].into_iter().enumerate().map(|(number, key)| {
            let turn = turns.enter(key.as_bytes());
            async move {
                turn.come().await;
                for _ in number..9 {
                    yield_now().await;
                }
                trace.borrow_mut().push(number);
            }
        });
        interleave(8, changes, |_, ()| ());
        let order = |of: &[usize]| -> Vec<usize> {
            trace.borrow().iter().copied().filter(|number| of.contains(number)).collect()
        };
        assert_eq!(order(&[0, 2, 4]), [0, 2, 4]);
        assert_eq!(order(&[0, 1, 3]), [3, 1, 0]);
        assert!(turns.state.borrow().under_way.is_empty());
    }
}
