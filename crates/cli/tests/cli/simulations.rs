//! `locus sim` from outside.

use crate::harness::{Place, Ran, command, locus, signal};
use rustix::process::Signal;

fn check(arguments: &[&str]) -> Ran {
    let mut all = vec!["sim", "check"];
    all.extend(arguments);
    locus(&all)
}

#[test]
fn worlds_are_explored_and_what_they_went_through_is_told() {
    for design in ["pilaf", "pilaf-vo"] {
        let said = check(&["--design", design, "--seeds", "0..20"]).done().text();
        assert!(said.starts_with(&format!("20 worlds of {design}, all linearizable\n")), "{said}");
        let count = |name: &str| -> u64 {
            let line = said.lines().find(|line| line.split_whitespace().next() == Some(name));
            line.and_then(|line| line.split_whitespace().last()?.parse().ok()).unwrap_or(0)
        };
        assert_eq!(count("worlds"), 20, "{said}");
        let of_clients = if design == "pilaf" { "reads" } else { "gets" };
        for name in ["operations", of_clients, "events", "preemptions"] {
            assert!(count(name) > 20, "{name} in {said}");
        }
    }
}

#[test]
fn worlds_of_a_cache_forget_and_say_so() {
    let said = check(&["--design", "herd", "--seeds", "0..20"]).done().text();
    let first = said.lines().next().unwrap();
    assert!(first.starts_with("20 worlds of herd, all linearizable, "), "{said}");
    assert!(first.ends_with(" of them for a cache that forgets"), "{said}");
    let place = Place::new();
    let file = place.path("history");
    // The first one that forgets.
    let worlds = (0..20).map(|seed| {
        let world = format!("herd:{seed}:2:2:30:3");
        check(&["--world", &world, "--history", file.to_str().unwrap()]).done().text()
    });
    let said = worlds.into_iter().find(|said| said.contains(": linearizable for a cache, after ")).unwrap();
    assert!(said.contains("log_overwrites"), "{said}");
    locus(&["history", "--cache", file.to_str().unwrap()]).done();
}

#[test]
fn worlds_are_the_same_however_many_run_at_once() {
    let one = check(&["--seeds", "10..30", "--threads", "1"]).done().text();
    assert_eq!(check(&["--seeds", "10..30", "--threads", "3"]).done().text(), one);
}

#[test]
fn a_world_is_run_again_byte_for_byte() {
    let place = Place::new();
    let run = |name: &str| {
        let file = place.path(name);
        let arguments = ["--world", "pilaf:17:3:2:20:2", "--history", file.to_str().unwrap()];
        (check(&arguments).done().text(), std::fs::read(&file).unwrap())
    };
    let (said, history) = run("first");
    assert!(said.starts_with("pilaf:17:3:2:20:2: linearizable, after "), "{said}");
    assert!(history.len() > 1000);
    assert!((said, history) == run("second"), "the same world went another way");
    // Another judge says the same.
    let said = locus(&["history", place.path("first").to_str().unwrap()]).done().text();
    assert!(said.ends_with(": linearizable\n"), "{said}");
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let refused = |arguments: &[&str], words: &[&str]| {
        check(arguments).said(2, words);
    };
    refused(&["--seeds", "5..5"], &["5..5 holds no seed"]);
    refused(&["--seeds", "7..5"], &["holds no seed"]);
    refused(&["--seeds", "5"], &["FROM..TO"]);
    refused(&["--seeds", "0..x"], &["\"x\" is no seed"]);
    refused(&["--design", "nonsense"], &["nonsense", "no design of this name", "locus designs"]);
    let form = "DESIGN:SEED:CLIENTS:LANES:OPERATIONS:KEYS";
    let worlds = [
        "garbage",
        "pilaf:1:2:3",
        "pilaf:1:2:3:4:x",
        "pilaf:1:2:3:4:5:6",
        "pilaf:1:2:3:4:5:x",
        "pilaf:1:0:3:4:5",
    ];
    for world in worlds {
        refused(&["--world", world], &[&format!("{world:?}"), form]);
    }
    refused(&["--world", "nonsense:1:2:3:4:5"], &["no design \"nonsense\""]);
    for other in [["--seeds", "0..5"], ["--design", "pilaf"], ["--threads", "1"]] {
        refused(
            &["--world", "pilaf:17:2:1:9:1", other[0], other[1]],
            &["--world", other[0], "cannot be used"],
        );
    }
    let unwritable = ["--world", "pilaf:17:2:1:9:1", "--history", "/nonexistent/history"];
    check(&unwritable).said(3, &["creating /nonexistent/history"]);
}

#[test]
fn a_signal_ends_a_long_exploration_with_what_was_found_so_far() {
    for (by, mask) in [(Signal::INT, 1 << 1), (Signal::TERM, 1 << 14)] {
        let child = command(&["sim", "check", "--seeds", "0..1000000000"]).spawn().unwrap();
        // Once it has asked for the signal, that ends it as it says, and not as the system would.
        let status = format!("/proc/{}/status", child.id());
        let catches = || {
            let status = std::fs::read_to_string(&status).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
            u64::from_str_radix(caught, 16).unwrap() & mask != 0
        };
        while !catches() {
            std::thread::yield_now();
        }
        signal(&child, by);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]), "{said}");
        assert!(
            said.starts_with("interrupted: ") && said.contains("worlds of pilaf, all linearizable"),
            "{said}"
        );
    }
}

#[test]
fn what_cannot_be_measured_is_refused_with_the_reason() {
    let place = Place::new();
    let measure = |address: &str, output: &std::path::Path| {
        locus(&["sim", "measure", address, "--output", output.to_str().unwrap()])
    };
    let new = place.path("new.toml");
    measure(&place.address(), &new).said(3, &["over shared memory there is no NIC", "rdma://"]);
    measure("sim:server", &new).said(2, &["a simulated world is entered by locus sim"]);
    measure("nonsense", &new).said(2, &["nonsense"]);
    let there = place.file("there.toml", "mine");
    measure("rdma://127.0.0.1:1", &there).said(3, &["there.toml is there already", "--output"]);
    assert_eq!(std::fs::read(&there).unwrap(), b"mine");
    measure("rdma://127.0.0.1:1", &place.path("no/where.toml")).said(3, &["there is no directory"]);
    measure("rdma://127.0.0.1:1", std::path::Path::new("/")).said(3, &["names no file"]);
    let hasty = ["sim", "measure", "rdma://127.0.0.1:1", "--milliseconds", "0"];
    locus(&hasty).said(2, &["--milliseconds"]);
    assert_eq!(place.names(), ["there.toml"]);
}

#[test]
fn a_cluster_that_cannot_be_is_refused_with_the_reason() {
    let bench = |arguments: &[&str]| {
        let mut all = vec!["sim", "bench"];
        all.extend(arguments);
        locus(&all)
    };
    for (arguments, words) in [
        (["--servers", "0"], "--servers: 1 to 1024 are possible, not 0"),
        (["--server-cores", "17"], "--server-cores: a machine of apt has 16, not 17"),
        (["--client-hosts", "0"], "--client-hosts: 1 to 1024"),
        (["--clients", "4,0"], "--clients: 1 to 16384"),
        (["--window", "33"], "--window: 1 to 32"),
        (["--workload", "d"], "workload d inserts records"),
        (["--records", "0"], "--records"),
        (["--records", "99999999999"], "more than the 4 GiB that a simulation loads at most"),
        (["--design", "nonsense"], "no design \"nonsense\""),
        (["--preset", "nowhere"], "no preset \"nowhere\": name one of beaker"),
        (["--preset", "/"], "reading the preset /"),
    ] {
        bench(&arguments).said(3, &[words]);
    }
    for milliseconds in ["-1", "nan", "1e300", "0", "five"] {
        bench(&[&format!("--milliseconds={milliseconds}")]).said(2, &["--milliseconds"]);
    }
}

#[test]
fn a_preset_that_makes_no_sense_is_refused_by_the_name_of_the_field() {
    let (place, apt) = (Place::new(), include_str!("../../../sim/presets/apt.toml"));
    for (from, to, words) in [
        ("match_ns = 7.0", "", ["missing field", "match_ns"]),
        ("match_ns = 7.0", "match_ns = -7.0", ["match_ns", "negative"]),
        ("match_ns = 7.0", "match_ns = 7.0\nmatches_ns = 8.0", ["unknown field", "matches_ns"]),
        ("cores = 16", "cores = 0", ["processor.cores", "between 1 and"]),
        ("[nic]", "[nic", ["TOML", "line"]),
    ] {
        assert!(apt.contains(from), "{from:?} is there");
        let file = place.file("mine.toml", apt.replacen(from, to, 1));
        let file = file.to_str().unwrap();
        for command in [&["sim", "calibrate", file][..], &["sim", "bench", "--preset", file]] {
            locus(command).said(3, &[words[0], words[1], "mine.toml"]);
        }
    }
    // A NIC of which the store asks for more than it has: refused when the queue pair is made.
    let file = place.file("weak.toml", apt.replacen("reads_outstanding = 16 ", "reads_outstanding = 1 ", 1));
    let weak = ["sim", "bench", "--design", "pilaf", "--preset", file.to_str().unwrap()];
    locus(&weak).said(3, &["outstanding READs"]);
}
