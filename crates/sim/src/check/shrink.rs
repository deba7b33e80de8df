//! A smaller world with the same mistake: fewer clients, lanes, operations and keys, as far as it still fails alike.

use super::{
    scenario::Scenario,
    world::{Failure, run},
};

/// How many worlds are tried at most.
const TRIES_MAX: usize = 300;

/// The smallest world found that fails as this one does, and how. Every try is a world of its own, since fewer clients
/// see other chances; so a few seeds around are tried for each size.
pub fn shrink(scenario: &Scenario, failure: Failure) -> (Scenario, Failure) {
    let (mut best, mut failure) = (scenario.clone(), failure);
    let mut tries = 0;
    while let Some((smaller, its)) = smaller(&best, &failure, &mut tries) {
        (best, failure) = (smaller, its);
    }
    (best, failure)
}

fn smaller(best: &Scenario, failure: &Failure, tries: &mut usize) -> Option<(Scenario, Failure)> {
    for candidate in candidates(best) {
        if *tries >= TRIES_MAX {
            return None;
        }
        *tries += 1;
        if let Err(found) = run(&candidate)
            && std::mem::discriminant(&found) == std::mem::discriminant(failure)
        {
            return Some((candidate, found));
        }
    }
    None
}

/// Worlds that are smaller by one measure, the smallest first.
fn candidates(of: &Scenario) -> Vec<Scenario> {
    let mut all = Vec::new();
    for half in [true, false] {
        let less = |number: usize| if half { number / 2 } else { number - 1 };
        let mut add = |smaller: Scenario| {
            let least = [smaller.clients, smaller.lanes, smaller.operations, smaller.keys];
            if least.iter().all(|number| *number > 0) && !all.contains(&smaller) {
                all.push(smaller);
            }
        };
        add(Scenario { operations: less(of.operations), ..of.clone() });
        add(Scenario { clients: less(of.clients), ..of.clone() });
        add(Scenario { lanes: less(of.lanes), ..of.clone() });
        add(Scenario { keys: less(of.keys), ..of.clone() });
    }
    all
}
