//! Tests of the page.

use crate::circumstances::Circumstances;
use crate::measure::Latency;
use crate::report::{Report, Row};
use crate::workload::{Distribution, Workload};

fn row(design: &str, value_bytes: usize, ops_per_second: f64) -> Row {
    Row {
        design: design.into(),
        fabric: "shm".into(),
        workload: Workload::A,
        distribution: Distribution::Zipfian,
        records: 1000,
        key_bytes: 16,
        value_bytes,
        clients: 1,
        window: 16,
        window_asked: 16,
        server_cores: Some(1),
        rate: None,
        seconds: 1.0,
        runs: 3,
        pages: Some("2 MiB".into()),
        operations: ops_per_second,
        ops_per_second,
        cache_line_round_trip_ns_of_runs: vec![Some(55.0), None, Some(330.0)],
        ops_per_second_of_runs: vec![ops_per_second * 0.9, ops_per_second, ops_per_second * 1.1],
        latency_ns: Latency { mean: 210.0, p50: 200.0, p90: 250.0, p99: 400.0, p999: 900.0, max: 70_000.0 },
        server_cpu_ns_per_op: Some(-0.2),
        server_idle_cores: Some(0.001),
        client_cpu_ns_per_op: Some(205.0),
        reads_per_get: Some(2.25),
        messages_per_op: Some(1.5),
        retries_per_op: Some(0.0),
        missing: 0,
        forgets: false,
        errors: 0,
        first_error: None,
        first_system_is_faster_by: Some(1.0),
        failure: None,
    }
}

fn report(rows: Vec<Row>) -> Report {
    let circumstances =
        Circumstances { machine: "secret-host".into(), ..Circumstances::here("all of them".into(), 30.0) };
    Report { circumstances, first: "pilaf".into(), rows }
}

/// The text of each chart.
fn charts(page: &str) -> Vec<&str> {
    page.split("<svg").skip(1).map(|rest| rest.split("</svg>").next().unwrap()).collect()
}

/// Checks that elements end in the order in which they began, that attributes are quoted, and that there is no markup but
/// that.
#[track_caller]
fn assert_well_formed(page: &str) {
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a page of HTML");
    let mut open = Vec::new();
    while let Some(at) = rest.find(['<', '&', '>']) {
        let from = &rest[at..];
        if let Some(entity) = from.strip_prefix('&') {
            let (name, after) = entity.split_once(';').expect("an entity ends");
            assert!(["amp", "lt", "gt", "quot", "#39"].contains(&name), "&{name};");
            rest = after;
            continue;
        }
        // In a style, > may stand for itself.
        if let Some(after) = from.strip_prefix('>') {
            assert_eq!(open.last(), Some(&"style"), "a stray > before {after:.60}");
            rest = after;
            continue;
        }
        let (tag, after) = from[1..].split_once('>').expect("a tag ends");
        assert!(!tag.contains('<'), "<{tag}>");
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "before {after:.60}");
            continue;
        }
        let name = tag.split([' ', '/']).next().unwrap();
        let mut attributes = tag[name.len()..].trim_end_matches('/').trim();
        while let Some((attribute, value)) = attributes.split_once("=\"") {
            assert!(
                attribute.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
                "{attribute:?} in <{tag}>"
            );
            attributes = value.split_once('"').expect("a value ends").1.trim_start();
        }
        assert_eq!(attributes, "", "in <{tag}>");
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert_eq!(open, Vec::<&str>::new(), "still open");
}

#[test]
fn each_design_is_in_each_chart_once_per_length_of_values() {
    let designs = ["herd", "pilaf", "pilaf-vo"];
    let rows: Vec<_> =
        [32, 256].iter().flat_map(|&bytes| designs.map(|design| row(design, bytes, 1e6))).collect();
    let page = report(rows).to_html("locus bench");
    assert_well_formed(&page);
    let charts = charts(&page);
    assert_eq!(charts.len(), 2 * 5, "throughput, latency, CPU, READs and messages");
    for chart in charts {
        for design in designs {
            assert_eq!(chart.matches(&format!(">{design}</text>")).count(), 1, "{design} in {chart}");
        }
    }
    assert_eq!(page.matches("<h3>Values of 32 bytes</h3>").count(), 1);
    assert_eq!(page.matches("<h3>Values of 256 bytes</h3>").count(), 1);
}

#[test]
fn more_designs_than_can_be_told_apart_have_several_charts_of_latency() {
    let rows: Vec<_> = (0..17).map(|n| row(&format!("design-{n:02}"), 64, 1e6)).collect();
    let page = report(rows).to_html("locus bench");
    assert_well_formed(&page);
    let all = charts(&page);
    let latencies: Vec<_> = all.iter().filter(|chart| chart.contains("Latency by percentile")).collect();
    assert_eq!(latencies.len(), 3);
    for n in 0..17 {
        let name = format!(">design-{n:02}</text>");
        assert_eq!(latencies.iter().map(|chart| chart.matches(&name).count()).sum::<usize>(), 1, "{name}");
    }
}

#[test]
fn rows_keep_their_order_in_charts_and_in_the_table() {
    let page = report(vec![row("fast", 64, 3e6), row("middling", 64, 2e6), row("slow", 64, 1e6)]).to_html("");
    let table = page.split("<tbody>").nth(1).unwrap();
    for text in charts(&page).into_iter().chain([table]) {
        let at = ["fast<", "middling<", "slow<"].map(|name| text.find(name).unwrap());
        assert!(at.is_sorted(), "{text}");
    }
}

#[test]
fn what_is_not_ours_is_escaped_wherever_it_stands() {
    let mut wrong = row("<i>design</i>", 64, 1e6);
    wrong.pages = Some("<i>pages</i>".into());
    (wrong.errors, wrong.first_error) = (1, Some("<i>error</i> & \"more\"".into()));
    let mut failed = row("failed", 64, 0.0);
    (failed.runs, failed.failure) = (0, Some("<i>failure</i>".into()));
    let mut report = report(vec![wrong, failed]);
    report.circumstances.cpu = "<i>processor</i>".into();
    let page = report.to_html("locus bench '<i>'");
    assert_well_formed(&page);
    assert!(!page.contains("<i>"), "{page}");
    for text in ["design", "pages", "error", "failure", "processor"] {
        assert!(page.contains(&format!("&lt;i&gt;{text}&lt;/i&gt;")), "{text}");
    }
}

#[test]
fn what_could_not_be_measured_is_said_and_in_no_chart() {
    let mut failed = row("memcached", 64, 0.0);
    (failed.runs, failed.failure) = (0, Some("memcached is not installed".into()));
    let page = report(vec![row("pilaf", 64, 1e6), failed]).to_html("");
    assert!(
        page.contains("NOT MEASURED: memcached (shm)") && page.contains("<td>not measured</td>"),
        "{page}"
    );
    assert!(charts(&page).iter().all(|chart| !chart.contains("memcached")));
    let mut alone = row("memcached", 64, 0.0);
    alone.runs = 0;
    let page = report(vec![alone]).to_html("");
    assert_well_formed(&page);
    assert!(charts(&page).is_empty());
}

#[test]
fn what_a_system_does_not_count_is_not_made_up() {
    let mut peer = row("lmdb", 64, 1e6);
    (peer.reads_per_get, peer.messages_per_op, peer.server_cpu_ns_per_op) = (None, None, None);
    let page = report(vec![peer]).to_html("");
    assert_eq!(charts(&page).len(), 3, "neither READs nor messages");
    assert!(page.contains("<td>no server</td>"), "{page}");
}

#[test]
fn workloads_and_windows_have_sections_of_their_own_and_systems_that_narrow_windows_stay_with_the_others() {
    let mut narrow = row("lmdb", 64, 1e6);
    (narrow.window, narrow.fabric) = (1, "mmap".into());
    let mut other = row("pilaf", 64, 1e6);
    other.workload = Workload::C;
    let page = report(vec![row("pilaf", 64, 2e6), narrow, other]).to_html("");
    assert_eq!(page.matches("<section id=\"s").count(), 2);
    assert_eq!(page.matches("<a href=\"#s").count(), 2);
    assert!(page.contains("Workload a (50% gets, 50% puts), zipfian, window 16"), "{page}");
    assert!(page.contains("lmdb (mmap), window 1") && page.contains("pilaf (shm)"), "{page}");
}

#[test]
fn the_page_has_its_circumstances_and_asks_for_nothing_else() {
    let report = report(vec![row("pilaf", 64, 1e6)]);
    let page = report.to_html("locus bench --design pilaf");
    assert_well_formed(&page);
    let Circumstances { version, commit, kernel, date, .. } = &report.circumstances;
    for text in [version, commit, kernel, date, "locus bench --design pilaf", "all of them", "2 MiB", "30 ns"]
    {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("secret-host"));
    for outside in ["http", "url(", "<script", "<link", "<img", "@import", "src="] {
        assert!(!page.contains(outside), "{outside}");
    }
}
