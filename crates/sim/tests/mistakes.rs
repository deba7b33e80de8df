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

/// Plants a mistake and expects it to be found by one check within so many worlds of a design, on any other failure goes on.
fn is_found(mistake: Mistake, design: &'static str, by: FoundBy, within: u64) {
    plant(Some(mistake));
    let mut others = Vec::new();
    let found = (0..within).find(|seed| match run(&Scenario::of_seed(design, *seed)) {
        Ok(_) => false,
        Err(failure) if found_by(&failure) == Some(by) => true,
        Err(failure) => {
            others.push(format!("{seed}: {failure}"));
            false
        }
    });
    plant(None);
    match found {
        Some(seed) => println!("{mistake:?}: found by {by:?} in world {seed} of {design}"),
        None => {
            panic!("{mistake:?} was not found by {by:?} in {within} worlds of {design}, but: {others:#?}")
        }
    }
}

macro_rules! mistakes {
    ($($name:ident: $mistake:ident, $design:literal, $by:ident, $within:literal;)*) => {
        $(#[test]
        fn $name() {
            is_found(Mistake::$mistake, $design, FoundBy::$by, $within);
        })*

        #[test]
        fn every_mistake_is_looked_for() {
            let looked_for = [$(Mistake::$mistake),*];
            assert!(Mistake::ALL.iter().all(|mistake| looked_for.contains(mistake)));
        }
    };
}

mistakes! {
    no_checksum_of_extents: NoExtentChecksum, "pilaf", History, 200;
    no_checksum_of_rows: NoRowChecksum, "pilaf", LostExtent, 500;
    a_row_version_of_one_bit: NarrowRowVersion, "pilaf", History, 3000;
    no_second_pass: NoSecondPass, "pilaf", History, 1000;
    a_kick_out_that_clears_first: KickOutClearsFirst, "pilaf", History, 3000;
    an_extent_freed_early: ExtentFreedEarly, "pilaf", LostExtent, 500;
    a_record_published_early: PublishedEarly, "pilaf", LostExtent, 500;
    a_row_left_unmarked_by_growth: GrowthLeavesRowUnmarked, "pilaf", History, 500;
    an_early_acknowledgement: AcknowledgedEarly, "pilaf", History, 200;
    a_retried_put_that_is_made_twice: RetriedPutExecutedTwice, "pilaf", History, 2000;
    the_memory_of_a_dead_server: DeadServerBelieved, "pilaf", History, 2000;
    no_checksum_of_buckets: NoBucketChecksum, "blocked-at-client", LostExtent, 500;
    a_displacement_that_clears_first: DisplacementClearsFirst, "hopscotch-inline-at-client", History, 20_000;
    no_checksum_of_inline_slots: NoRowChecksum, "hopscotch-inline-at-client", History, 1000;
    no_key_of_items: NoItemKey, "herd", History, 200;
    no_checksum_of_staged_values: NoStagedChecksum, "cuckoo-at-server-uc-write-ud-send", History, 1000;
    a_slot_left_unmarked_by_growth: GrowthLeavesRowUnmarked, "hopscotch-at-client", History, 1000;
}
