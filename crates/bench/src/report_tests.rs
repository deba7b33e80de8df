//! Tests of the report.

use super::*;
use crate::peers::PeerKind;

fn measured(ops_per_second: f64) -> Measured {
    Measured {
        operations: ops_per_second as u64,
        seconds: 1.0,
        ops_per_second,
        latency_ns: Latency { mean: 210.0, p50: 200.0, p90: 250.0, p99: 400.0, p999: 900.0, max: 70_000.0 },
        server_cpu_ns_per_op: Some(-0.2),
        server_idle_cores: Some(0.001),
        client_cpu_ns_per_op: 205.0,
        reads_per_get: Some(2.25),
        messages_per_op: Some(2.0),
        retries_per_op: Some(0.0),
        missing: 0,
        errors: 0,
        first_error: None,
        inserted: vec![0],
    }
}

fn series(design: &str, window: usize, rates: &[f64]) -> Series {
    let mut series =
        Series::new(Label::new(design, "shm"), Workload::C, 64, window, window, Some("2 MiB".into()));
    series.runs = rates.iter().copied().map(measured).collect();
    series
}

fn report(systems: Vec<Vec<Series>>) -> Report {
    let options = BenchOptions {
        workloads: vec![Workload::C],
        windows: vec![1, 16],
        peers: vec![PeerKind::Memcached],
        ..BenchOptions::default()
    };
    Report::new(&options, &[64], Circumstances::here(options.to_string(), 30.0), &systems)
}

#[test]
fn figures_are_medians_and_ratios_are_taken_run_by_run() {
    let pilaf = vec![series("pilaf", 1, &[4e6, 1e6, 2e6])];
    let memcached = vec![series("memcached", 1, &[1e4, 1e4, 1e4])];
    let report = report(vec![pilaf, memcached]);
    assert_eq!(report.rows[0].ops_per_second, 2e6);
    assert_eq!(report.rows[0].ops_per_second_of_runs, [4e6, 1e6, 2e6]);
    assert_eq!(report.rows[0].first_system_is_faster_by, Some(1.0));
    assert_eq!(report.rows[1].first_system_is_faster_by, Some(200.0));
    assert!(report.is_complete());
    assert_eq!(median(vec![1.0, 2.0, 4.0, 100.0]), Some(3.0));
    assert_eq!(median(vec![]), None);
}

#[test]
fn the_file_is_a_list_of_rows_with_every_field_promised() {
    let text = report(vec![vec![series("pilaf", 1, &[5e6])]]).to_json();
    let file: serde_json::Value = serde_json::from_str(&text).unwrap();
    let row = &file[0];
    for field in [
        "design",
        "fabric",
        "workload",
        "records",
        "key_bytes",
        "value_bytes",
        "clients",
        "window",
        "window_asked",
        "server_cores",
        "seconds",
        "operations",
        "ops_per_second",
        "latency_ns",
        "server_cpu_ns_per_op",
        "client_cpu_ns_per_op",
        "reads_per_get",
        "messages_per_op",
        "retries_per_op",
        "errors",
    ] {
        assert!(!row[field].is_null(), "{field} is missing in {row}");
    }
    for field in ["mean", "p50", "p90", "p99", "p999", "max"] {
        assert!(row["latency_ns"][field].is_number(), "{field}");
    }
    for field in
        ["version", "commit", "machine", "cpu", "cores", "kernel", "huge_pages", "date", "parameters"]
    {
        assert!(!row["circumstances"][field].is_null(), "{field}");
    }
    assert_eq!(row["workload"], "c");
}

#[test]
fn what_could_not_be_measured_is_a_row_that_says_so() {
    let mut failed = series("memcached", 1, &[]);
    failed.failure = Some("memcached is not installed: apt-get install memcached".into());
    let report = report(vec![vec![series("pilaf", 1, &[5e6])], vec![failed]]);
    assert_eq!(report.rows.len(), 2);
    assert!(!report.is_complete());
    let text = report.to_string();
    assert!(text.contains("not measured"), "{text}");
    assert!(
        text.contains("NOT MEASURED: memcached (shm), workload c, window 1, values of 64 bytes: memcached is not installed"),
        "{text}"
    );
}

#[test]
fn errors_and_missing_records_are_shown_and_make_it_incomplete() {
    let mut wrong = series("pilaf", 1, &[5e6]);
    wrong.runs[0].missing = 3;
    let report = report(vec![vec![wrong]]);
    assert!(!report.is_complete());
    assert!(report.to_string().contains("0 failed, 3 not found"), "{report}");
}

#[test]
fn records_that_a_cache_has_evicted_are_shown_and_are_no_errors() {
    let mut cache = series("lossy", 1, &[5e6]);
    cache.label.forgets = true;
    cache.runs[0].missing = 3;
    let report = report(vec![vec![cache]]);
    assert!(report.is_complete());
    assert!(
        report.to_string().contains("EVICTED: lossy (shm), workload c, window 1, values of 64 bytes: 3 gets"),
        "{report}"
    );
}

#[test]
fn the_table_has_a_line_per_row_by_window_and_its_figures_with_units() {
    let pilaf = vec![series("pilaf", 1, &[5.123e6]), series("pilaf", 16, &[9e6])];
    let memcached = vec![series("memcached", 1, &[20_480.0]), series("memcached", 16, &[300_000.0])];
    let report = report(vec![pilaf, memcached]);
    let order: Vec<_> = report.rows.iter().map(|row| (row.design.as_str(), row.window)).collect();
    assert_eq!(order, [("pilaf", 1), ("memcached", 1), ("pilaf", 16), ("memcached", 16)]);
    let text = report.table().to_string();
    for part in ["5.12 M", "20.5 k", "200 ns", "250x", "30x", "2.25", "0 ns"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn the_best_are_first_within_workload_window_and_length_of_values_and_the_unmeasured_last() {
    let sized = |design: &str, window: usize, value_bytes: usize, rates: &[f64]| Series {
        value_bytes,
        ..series(design, window, rates)
    };
    let both = |design: &str, small: &[f64], large: &[f64]| {
        vec![
            sized(design, 1, 32, small),
            sized(design, 16, 32, small),
            sized(design, 1, 1024, large),
            sized(design, 16, 1024, large),
        ]
    };
    let systems = [both("pilaf", &[2e6], &[3e6]), both("lost", &[], &[]), both("herd", &[4e6], &[1e6])];
    let options =
        BenchOptions { workloads: vec![Workload::C], windows: vec![1, 16], ..BenchOptions::default() };
    let sizes = [32, 1024];
    let circumstances = Circumstances::here(options.describe(&sizes), 30.0);
    let report = Report::new(&options, &sizes, circumstances, &systems);
    let order: Vec<_> =
        report.rows.iter().map(|row| (row.window, row.value_bytes, row.design.as_str())).collect();
    let (small, large) = (["herd", "pilaf", "lost"], ["pilaf", "herd", "lost"]);
    let expected = [1, 16].map(|window| {
        let of = |bytes, names: [&'static str; 3]| names.map(|name| (window, bytes, name));
        [of(32, small), of(1024, large)].concat()
    });
    assert_eq!(order, expected.concat());
    // Compared with the one that was named first, wherever it ended up.
    assert_eq!(report.rows[0].first_system_is_faster_by, Some(0.5));
    assert_eq!(report.rows[4].first_system_is_faster_by, Some(3.0));
    let text = report.to_string();
    assert!(text.contains("pilaf is") && text.contains("value bytes"), "{text}");
    assert!(text.contains("values of 32,1024 bytes"), "{text}");
}
