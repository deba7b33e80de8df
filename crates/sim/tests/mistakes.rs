//! The check can fail: each planted mistake is found, within so many worlds, and by the check that should find it.

use locus_runtime::mistakes::{Mistake, plant};
use locus_sim::check::{Failure, Scenario, run};

/// Which check is to find a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FoundBy {
    /// The history is not linearizable.
    History,
    /// A row pointed to a record that was not whole: readers notice, and nobody gets wrong bytes.
    LostExtent,
}

fn found_by(failure: &Failure) -> Option<FoundBy> {
    match failure {
        Failure::NotLinearizable { .. } => Some(FoundBy::History),
        Failure::Invariant { name: "extents_lost", .. } => Some(FoundBy::LostExtent),
        _ => None,
    }
}

/// Plants a mistake and expects it to be found by one check within so many worlds, on any other failure goes on.
fn is_found(mistake: Mistake, by: FoundBy, within: u64) {
    plant(Some(mistake));
    let mut others = Vec::new();
    let found = (0..within).find(|seed| match run(&Scenario::of_seed("pilaf", *seed)) {
        Ok(_) => false,
        Err(failure) if found_by(&failure) == Some(by) => true,
        Err(failure) => {
            others.push(format!("{seed}: {failure}"));
            false
        }
    });
    plant(None);
    match found {
        Some(seed) => println!("{mistake:?}: found by {by:?} in world {seed}"),
        None => panic!("{mistake:?} was not found by {by:?} in {within} worlds, but: {others:#?}"),
    }
}

macro_rules! mistakes {
    ($($name:ident: $mistake:ident, $by:ident, $within:literal;)*) => {
        $(#[test]
        fn $name() {
            is_found(Mistake::$mistake, FoundBy::$by, $within);
        })*

        #[test]
        fn every_mistake_is_looked_for() {
            let looked_for = [$(Mistake::$mistake),*];
            assert!(Mistake::ALL.iter().all(|mistake| looked_for.contains(mistake)));
        }
    };
}

mistakes! {
    no_checksum_of_extents: NoExtentChecksum, History, 200;
    no_checksum_of_rows: NoRowChecksum, LostExtent, 500;
    a_row_version_of_one_bit: NarrowRowVersion, History, 3000;
    no_second_pass: NoSecondPass, History, 1000;
    a_kick_out_that_clears_first: KickOutClearsFirst, History, 3000;
    an_extent_freed_early: ExtentFreedEarly, LostExtent, 500;
    a_record_published_early: PublishedEarly, LostExtent, 500;
    a_row_left_unmarked_by_growth: GrowthLeavesRowUnmarked, History, 500;
    an_early_acknowledgement: AcknowledgedEarly, History, 200;
    a_retried_put_that_is_made_twice: RetriedPutExecutedTwice, History, 2000;
    the_memory_of_a_dead_server: DeadServerBelieved, History, 2000;
}
