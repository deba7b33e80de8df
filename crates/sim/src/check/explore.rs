//! Many worlds, on all cores.

use super::{
    scenario::Scenario,
    tally::Tally,
    world::{Failure, run},
};
use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// What was found in a range of seeds.
#[derive(Debug)]
pub struct Exploration {
    /// What the good worlds went through.
    pub tally: Tally,
    /// The failure with the lowest seed of those that were found before the others stopped.
    pub found: Option<Found>,
    /// How many worlds were run.
    pub worlds: u64,
}

/// A world that failed.
#[derive(Debug)]
pub struct Found {
    /// The world.
    pub scenario: Scenario,
    /// What is wrong with it.
    pub failure: Failure,
}

/// Runs the worlds of these seeds on so many threads, until one fails, `stop` is set, or all are done. `progress` is
/// called after each, by any thread, with how many are done.
pub fn explore(
    design: &'static str,
    seeds: Range<u64>,
    threads: usize,
    stop: &AtomicBool,
    progress: &(impl Fn(u64) + Sync),
) -> Exploration {
    let (next, worlds, failed) = (AtomicU64::new(seeds.start), AtomicU64::new(0), AtomicBool::new(false));
    let result = Mutex::new((Tally::default(), None::<Found>));
    let lock = || result.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        let mut tally = Tally::default();
        while !stop.load(Ordering::Relaxed) && !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            let scenario = Scenario::of_seed(design, seed);
            match run(&scenario) {
                Ok(run) => tally.merge(&run.tally),
                Err(failure) => {
                    failed.store(true, Ordering::Relaxed);
                    let mut result = lock();
                    if result.1.as_ref().is_none_or(|found| seed < found.scenario.seed) {
                        result.1 = Some(Found { scenario, failure });
                    }
                }
            }
            progress(worlds.fetch_add(1, Ordering::Relaxed) + 1);
        }
        lock().0.merge(&tally);
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    let (tally, found) = result.into_inner().unwrap_or_else(PoisonError::into_inner);
    Exploration { tally, found, worlds: worlds.into_inner() }
}
