//! `locus history`, which judges.

use crate::harness::{Place, Ran, locus, locus_reading};
use std::path::Path;

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
