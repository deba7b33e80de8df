//! `locus bench --history`, and `locus history`, which judges.

use crate::harness::{Place, Ran, locus, locus_reading};
use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

/// A line of a history; times in ns.
fn line(client: u32, op: &str, value: &str, times: (u64, u64)) -> String {
    let (value, found) = match (op, value) {
        ("put", value) => (format!("{value:?}"), String::new()),
        (_, "") => ("null".into(), "\"found\":false,".into()),
        (_, value) => (format!("{value:?}"), "\"found\":true,".into()),
    };
    let (invoked, returned) = times;
    format!(
        "{{\"client\":{client},\"op\":{op:?},\"key\":\"k\",\"value\":{value},{found}\"invoked_ns\":{invoked},\
         \"returned_ns\":{returned},\"outcome\":\"ok\"}}\n"
    )
}

/// A put that returned is not seen by a get that began later.
fn stale() -> String {
    line(0, "put", "old", (0, 10)) + &line(0, "put", "new", (20, 30)) + &line(1, "get", "old", (40, 50))
}

fn history(file: &Path) -> Ran {
    locus(&["history", file.to_str().unwrap()])
}

fn bench(file: &Path, arguments: &[&str]) -> Ran {
    let mut all = vec!["bench", "--history", file.to_str().unwrap()];
    all.extend(arguments);
    locus(&all)
}

#[test]
fn a_history_is_judged() {
    let place = Place::new();
    let good =
        line(0, "put", "old", (0, 10)) + &line(1, "get", "old", (20, 30)) + &line(1, "get", "", (0, 5));
    let said = history(&place.file("good", &good)).done().text();
    assert_eq!(said, "history of 3 operations of 2 clients on 1 keys: linearizable\n");
    assert_eq!(locus_reading(&["history", "-"], good.as_bytes()).done().text(), said);
    let words =
        ["3 operations", "not linearizable", "key \"k\"", "get found \"old\"", "contradict", "put \"new\""];
    history(&place.file("stale", stale())).said(3, &words);
    let said = history(&place.file("empty", "")).done().text();
    assert!(said.contains("0 operations") && said.contains(": linearizable"), "{said}");
}

#[test]
fn a_cache_may_forget_and_nothing_more() {
    let place = Place::new();
    let judged = |name: &str, text: &str| {
        let file = place.file(name, text);
        (history(&file), locus(&["history", "--cache", file.to_str().unwrap()]))
    };
    let forgot = line(0, "put", "old", (0, 10)) + &line(1, "get", "", (20, 30));
    let (of_map, of_cache) = judged("forgot", &forgot);
    of_map.said(3, &["not linearizable", "get found nothing"]);
    let said = of_cache.done().text();
    assert_eq!(said, "history of 2 operations of 2 clients on 1 keys: linearizable for a cache\n");
    let (_, of_cache) = judged("back", &(forgot + &line(1, "get", "old", (40, 50))));
    of_cache.said(3, &["not linearizable for a cache", "get found nothing", "get found \"old\""]);
    judged("stale", &stale()).1.said(3, &["not linearizable for a cache"]);
}

#[test]
fn a_history_that_nobody_can_decide_is_told_from_one_that_is_wrong() {
    let place = Place::new();
    let of_one = |client| {
        let value = format!("v{client}");
        line(client, "put", &value, (0, 1000)) + &line(client, "get", &value, (0, 1000))
    };
    let ran = history(&place.file("many", (0..600).map(of_one).collect::<String>()));
    assert!(ran.text().contains("not decided for key \"k\""), "{}{}", ran.text(), ran.stderr);
    ran.said(1, &[]);
}

#[test]
fn what_is_no_history_says_where() {
    let place = Place::new();
    let bad = place.file("bad", stale() + "{\"client\": 1}\n");
    history(&bad).said(3, &[bad.to_str().unwrap(), "line 4", "\"key\"", "missing"]);
    history(&place.file("text", "hello\n")).said(3, &["line 1", "no object"]);
    history(&place.path("absent")).said(3, &["opening", "absent"]);
    history(&place.path("")).said(3, &["directory"]);
    locus(&["history"]).said(2, &["<FILE>"]);
}

#[test]
fn a_run_is_recorded_and_found_linearizable() {
    for arguments in [
        &["--window", "1,4", "--workload", "a,d,f"][..],
        &["--design", "pilaf-vo", "--window", "4", "--workload", "b"],
        &["--get-many", "--window", "8", "--clients", "1", "--runs", "2"],
    ] {
        let place = Place::new();
        let file = place.path("history");
        let said =
            bench(&file, &[arguments, &["--seconds", "0.05", "--records", "40"]].concat()).done().text();
        let verdict = said.lines().last().unwrap();
        assert!(verdict.starts_with("history of ") && verdict.ends_with(": linearizable"), "{said}");
        assert_eq!(history(&file).done().text().trim_end(), verdict);
        let lines = std::fs::read_to_string(&file).unwrap();
        let puts = lines.lines().filter(|line| line.contains("\"op\":\"put\"")).count();
        let found = lines.lines().filter(|line| line.contains("\"found\":true")).count();
        assert!(puts > 40 && found > 40, "{puts} puts, {found} gets that found something");
    }
}

#[test]
fn a_run_with_a_writer_that_is_not_recorded_is_no_linearizable_history() {
    let place = Place::new();
    let server = place.serve(&[]);
    let (file, over) = (place.path("history"), AtomicBool::new(false));
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            let table = server.table();
            while !over.load(Ordering::Relaxed) {
                table.put("user000000000000", [b'x'; 64]).unwrap();
            }
        });
        let ran = bench(&file, &["--fabric", &server.address, "--records", "1", "--seconds", "0.3"]);
        over.store(true, Ordering::Relaxed);
        ran
    });
    ran.said(3, &["not linearizable", "key \"user000000000000\"", "get found \"xxxx", "contradict"]);
    history(&file).said(3, &["not linearizable", "key \"user000000000000\""]);
}

#[test]
fn what_makes_no_history_is_refused_with_the_reason() {
    let place = Place::new();
    let file = place.path("history");
    let refused = |arguments: &[&str], words: &[&str]| {
        bench(&file, arguments).said(3, words);
    };
    refused(&["--peers", "lmdb"], &["clients of Locus", "--peers"]);
    refused(&["--raw", "--workload", "c"], &["no keys and values", "--raw"]);
    refused(&["--growth"], &["workloads", "--growth"]);
    refused(&["--footprint"], &["workloads", "--footprint"]);
    refused(&["--design", "pilaf,pilaf-vo"], &["one store", "--design"]);
    refused(&["--design", "all"], &["one store"]);
    refused(&["--value-bytes", "8"], &["8 bytes", "tell one put from another"]);
    refused(&["--records", "10000000"], &["10000000 records", "--records"]);
    assert_eq!(place.names(), [""; 0]);
    bench(Path::new("/nonexistent/history"), &[]).said(3, &["creating /nonexistent/history"]);
}
