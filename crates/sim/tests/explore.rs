//! Worlds of many seeds are found good, and reached what they were meant to reach.

use locus_rpc::{Pair, Way};
use locus_sim::check::{Scenario, Tally, explore, run};
use locus_store::{DESIGNS, Design, Index, Locus};
use std::sync::atomic::AtomicBool;

/// How many worlds of each design a test run sees.
const SEEDS: u64 = 2_000;

fn explored(design: &'static str) -> Tally {
    explored_by(design, SEEDS)
}

fn explored_by(design: &'static str, worlds: u64) -> Tally {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let seeds = std::env::var("LOCUS_SEEDS")
        .ok()
        .map_or(worlds, |seeds| seeds.parse().expect("LOCUS_SEEDS is a number"));
    let found = explore(design, 0..seeds, threads, &AtomicBool::new(false), &|_| ());
    if let Some(found) = found.found {
        panic!("{}: {}", found.scenario, found.failure);
    }
    println!("{design}\n{}", found.tally);
    assert_eq!(found.tally.get("worlds"), seeds);
    found.tally
}

#[test]
fn pilaf_is_linearizable_whatever_happens() {
    let tally = explored("pilaf");
    for name in [
        "second_passes",
        "second_passes_failed",
        "rows_unverified",
        "extents_unverified",
        "moved_rows",
        "stale_entries",
        "kick_outs",
        "growths",
        "fallbacks",
        "reconnects",
        "unknown_outcomes",
        "unanswered_operations",
        "killed_clients",
        "killed_servers",
        "broken_queue_pairs",
        "receivers_not_ready",
        "row_versions_wrapped",
        "sampled_before_stores",
        "preemptions",
    ] {
        assert!(tally.get(name) > 0, "no {name} in any world\n{tally}");
    }
}

#[test]
fn pilaf_vo_is_linearizable_whatever_happens() {
    let tally = explored("pilaf-vo");
    for name in [
        "kick_outs",
        "growths",
        "reconnects",
        "unknown_outcomes",
        "killed_servers",
        "preemptions",
        "receivers_not_ready",
        "row_versions_wrapped",
    ] {
        assert!(tally.get(name) > 0, "no {name} in any world\n{tally}");
    }
}

/// Explores a design that promises linearizable gets, and asks that so much was reached.
fn linearizable(design: &'static str, reached: &[&str]) {
    let tally = explored(design);
    let always = ["reconnects", "unknown_outcomes", "killed_servers", "preemptions"];
    for name in always.iter().chain(reached) {
        assert!(tally.get(name) > 0, "no {name} in any world of {design}\n{tally}");
    }
}

#[test]
fn hopscotch_out_of_table_is_linearizable_whatever_happens() {
    let client = ["second_passes_failed", "rows_unverified", "extents_unverified", "moved_rows", "fallbacks"];
    linearizable("hopscotch-at-client", &[&client[..], &["displacements", "kick_outs", "growths"]].concat());
}

#[test]
fn hopscotch_inline_is_linearizable_whatever_happens() {
    let client = ["second_passes_failed", "rows_unverified", "moved_rows", "fallbacks", "displacements"];
    linearizable("hopscotch-inline-at-client", &client);
}

#[test]
fn farm_kv_is_linearizable_whatever_happens() {
    let client = [
        "second_passes_failed",
        "rows_unverified",
        "moved_rows",
        "fallbacks",
        "displacements",
        "lost_messages",
    ];
    linearizable("farm-kv", &client);
    linearizable("farm-kv-var", &[&client[..], &["extents_unverified"]].concat());
}

/// Half of the worlds of a cache have room for all keys, and are linearizable. In the others it evicts: there any key may be found
/// absent, but nothing else is allowed.
fn evicting(design: &'static str, worlds: u64, reached: &[&str]) {
    let tally = explored_by(design, worlds);
    let always = ["reconnects", "unknown_outcomes", "killed_servers", "preemptions", "worlds_with_evictions"];
    for name in always.iter().chain(reached) {
        assert!(tally.get(name) > 0, "no {name} in any world of {design}\n{tally}");
    }
    let (evicting, all) = (tally.get("worlds_with_evictions"), tally.get("worlds"));
    assert!((all / 5..all * 4 / 5).contains(&evicting), "{evicting} of {all} worlds of {design} evicted");
}

#[test]
fn a_blocked_hash_keeps_or_forgets_and_gives_no_wrong_value_wherever_reads_run() {
    let client = ["rows_unverified", "extents_unverified", "fallbacks", "bucket_evictions"];
    evicting("blocked-at-client", SEEDS, &client);
    for design in DESIGNS.iter().filter(|design| design.index == Index::Blocked) {
        evicting(design.name, SEEDS, &["bucket_evictions"]);
    }
}

#[test]
fn a_lossy_cache_keeps_or_forgets_and_gives_no_wrong_value() {
    // Also that tags led to the items of other keys.
    let reached = ["bucket_evictions", "log_overwrites", "fingerprint_collisions"];
    for design in DESIGNS.iter().filter(|design| design.index == Index::Lossy) {
        evicting(design.name, SEEDS, &[&reached[..], &["lost_messages"]].concat());
    }
}

#[test]
fn a_world_goes_the_same_way_every_time() {
    for seed in 0..40 {
        let scenario = Scenario::of_seed("pilaf", seed);
        let [one, other] =
            [(); 2].map(|()| run(&scenario).unwrap_or_else(|failure| panic!("{scenario}: {failure}")));
        assert_eq!(one.history, other.history, "{scenario}");
        assert_eq!((one.virtual_ns, one.tally), (other.virtual_ns, other.tally), "{scenario}");
    }
}

#[test]
fn a_scenario_survives_being_written_down() {
    let scenario = Scenario::of_seed("pilaf-vo", 17);
    assert_eq!(scenario.to_string().parse(), Ok(scenario));
    for wrong in [
        "",
        "pilaf",
        "pilaf:1:2:3:4",
        "pilaf:1:2:3:4:5:6",
        "nobody:1:1:1:1:1",
        "pilaf:1:0:1:1:1",
        "pilaf:x:1:1:1:1",
    ] {
        assert!(wrong.parse::<Scenario>().is_err(), "{wrong}");
    }
}

/// Also where messages are lost, WRITEs come in pieces and in any order, and servers and clients die.
#[test]
fn every_pair_of_verbs_is_linearizable_whatever_happens() {
    let mut all = Tally::default();
    for pair in Pair::all() {
        let design = Design::combine(Index::Cuckoo, Locus::Server, pair).unwrap().name;
        let scenario = Scenario::of_seed(design, 3);
        assert_eq!(scenario.to_string().parse(), Ok(scenario));
        all.merge(&explored_by(design, 60));
    }
    // With reads at the client, too.
    let herd = Pair { request: Way::UC_WRITE, reply: Way::UD_SEND };
    all.merge(&explored_by(Design::combine(Index::Cuckoo, Locus::Client, herd).unwrap().name, 60));
    for name in ["lost_messages", "reconnects", "unknown_outcomes", "killed_clients", "killed_servers"] {
        assert!(all.get(name) > 0, "no {name}");
    }
}

/// Where requests may be lost, a value that no message holds goes ahead of its request, which may come before it all the same.
#[test]
fn values_that_go_ahead_of_their_requests_are_linearizable_whatever_happens() {
    for design in ["herd", "herd-ud", "farm-kv-var"] {
        let tally = explored_by(design, 400);
        for name in ["writes_acknowledged_early", "values_placed_again", "lost_messages", "killed_clients"] {
            assert!(tally.get(name) > 0, "no {name} in any world of {design}\n{tally}");
        }
    }
}
