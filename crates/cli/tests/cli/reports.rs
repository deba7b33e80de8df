//! What `locus bench` writes: rows, one table, and a page.

use crate::harness::{Place, Ran, locus};
use std::path::Path;

/// A benchmark of a few records for a moment.
fn bench(arguments: &[&str]) -> Ran {
    let small =
        ["bench", "--workload", "c", "--records", "300", "--seconds", "0.05", "--warmup-seconds", "0"];
    locus(&[&small, arguments].concat())
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).expect("it was written")
}

fn rows(path: &Path) -> Vec<serde_json::Value> {
    serde_json::from_str(&text(path)).expect("a list of rows")
}

fn name(row: &serde_json::Value) -> String {
    row["design"].as_str().unwrap().to_owned()
}

/// A column of the table that was printed.
fn column(table: &str, number: usize) -> Vec<String> {
    let lines = table.lines().filter(|line| line.starts_with("| c "));
    lines.map(|line| line.split('|').nth(number).unwrap().trim().to_owned()).collect()
}

#[test]
fn all_designs_are_in_one_table_and_in_one_page_the_best_first() {
    let place = Place::new();
    let (page, json) = (place.path("report.html"), place.path("rows.json"));
    let files = ["--html", page.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let table = bench(&[&["--design", "all", "--value-bytes", "200"], &files[..]].concat()).done().text();
    let rows = rows(&json);
    let rates: Vec<_> = rows.iter().map(|row| row["ops_per_second"].as_f64().unwrap()).collect();
    assert_eq!(rates.len(), locus::DESIGNS.len());
    assert!(rates.is_sorted_by(|one, next| one >= next), "{rates:?}");
    assert_eq!(column(&table, 2), rows.iter().map(name).collect::<Vec<_>>(), "{table}");
    let page = text(&page);
    for design in locus::DESIGNS {
        // Throughput, latency, CPU time, READs and messages.
        let name = format!(">{}</text>", design.name);
        assert_eq!(page.matches(&name).count(), 5, "{}", design.name);
    }
    assert!(
        page.contains("locus bench --workload c --records 300") && page.contains("--html FILE"),
        "{page}"
    );
    assert!(!page.contains(place.path("").to_str().unwrap()), "a path of this machine");
}

#[test]
fn several_lengths_of_values_are_measured_with_the_messages_and_reads_of_the_design() {
    let place = Place::new();
    let (page, json) = (place.path("report.html"), place.path("rows.json"));
    let files = ["--html", page.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let table = bench(&[&["--value-bytes", "32,1000"], &files[..]].concat()).done().text();
    assert_eq!(column(&table, 4), ["32", "32", "1000", "1000"], "{table}");
    let rows = rows(&json);
    for row in &rows {
        let of = |figure: &str| row[figure].as_f64();
        // Gets of Pilaf are READs alone, of a row and an extent at least; those of the other a request and a reply.
        if name(row) == "pilaf" {
            assert_eq!(of("messages_per_op"), Some(0.0), "{row}");
            assert!(of("reads_per_get") >= Some(2.0), "{row}");
        } else {
            assert_eq!(of("messages_per_op"), Some(2.0), "{row}");
            assert_eq!(of("reads_per_get"), None, "{row}");
        }
    }
    let page = text(&page);
    for heading in ["<h3>Values of 32 bytes</h3>", "<h3>Values of 1000 bytes</h3>"] {
        assert_eq!(page.matches(heading).count(), 1, "{heading}");
    }
}

#[test]
fn what_cannot_be_reported_is_refused_before_anything_is_measured() {
    let all = ["--design", "all", "--index", "cuckoo"];
    bench(&all).said(3, &["--design", "--index", "leave"]);
    bench(&["--html", "/nonexistent/report.html"]).said(3, &["writing /nonexistent/report.html"]);
    let growth = ["bench", "--growth", "--value-bytes", "32,64"];
    locus(&growth).said(3, &["one length of values", "--value-bytes"]);
    locus(&["bench", "--footprint", "--html", "report.html"]).said(2, &["--footprint", "--html"]);
}
