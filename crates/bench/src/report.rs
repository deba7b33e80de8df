//! The report: a row per system, workload and window, as JSON and as one table.

use crate::circumstances::Circumstances;
use crate::figures::{decimals, operations, time};
use crate::measure::{Latency, Measured};
use crate::options::BenchOptions;
use crate::target::Label;
use crate::workload::{Distribution, Workload};
use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What was measured, and under which circumstances.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Shared by all rows.
    pub circumstances: Circumstances,
    /// The design of the first system, which the others are compared with.
    pub first: String,
    /// By workload, then by window, then by length of values, then by throughput: the best first, and last what could not
    /// be measured.
    pub rows: Vec<Row>,
}

/// The medians of a system's runs of one workload with one window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The design, or the peer's program.
    pub design: String,
    /// How clients reach it.
    pub fabric: String,
    /// The mix of operations.
    pub workload: Workload,
    /// Which keys.
    pub distribution: Distribution,
    /// Records loaded.
    pub records: u64,
    /// Length of keys, in bytes.
    pub key_bytes: usize,
    /// Length of values, in bytes.
    pub value_bytes: usize,
    /// Connections, each with a thread.
    pub clients: usize,
    /// Operations outstanding per connection.
    pub window: usize,
    /// The same as it was asked for, which may be more than the system can.
    pub window_asked: usize,
    /// Cores of the server; `None` for a peer, which decides itself.
    pub server_cores: Option<usize>,
    /// Open loop: operations asked for per second.
    pub rate: Option<f64>,
    /// Seconds per run.
    pub seconds: f64,
    /// Runs that the figures are the medians of.
    pub runs: usize,
    /// Pages that the data lies on, if known.
    pub pages: Option<String>,
    /// Operations finished per run.
    pub operations: f64,
    /// Operations finished per second.
    pub ops_per_second: f64,
    /// The same, of each run.
    pub ops_per_second_of_runs: Vec<f64>,
    /// What a cache line took to another core and back beside each run, in nanoseconds, if that could be measured.
    pub cache_line_round_trip_ns_of_runs: Vec<Option<f64>>,
    /// From the start (open loop: the intended start) to the end.
    pub latency_ns: Latency,
    /// CPU time of the server per operation beyond what it uses when idle; `None` without a server.
    pub server_cpu_ns_per_op: Option<f64>,
    /// What share of a core the server uses when connected clients are idle.
    pub server_idle_cores: Option<f64>,
    /// CPU time of the clients' process per operation.
    pub client_cpu_ns_per_op: Option<f64>,
    /// READs per get, where there are READs.
    pub reads_per_get: Option<f64>,
    /// Requests and replies per operation, where they are counted.
    pub messages_per_op: Option<f64>,
    /// Retries per operation, where they are counted.
    pub retries_per_op: Option<f64>,
    /// Gets of loaded records that found nothing, in all runs.
    pub missing: u64,
    /// Whether the system may lose records, so that this is no error.
    pub forgets: bool,
    /// Operations that failed, in all runs.
    pub errors: u64,
    /// What the first of them said.
    pub first_error: Option<String>,
    /// The operations per second of the first system, with this workload, window and length of values, divided by this one's, within each run.
    pub first_system_is_faster_by: Option<f64>,
    /// Why this row could not be measured, or not to the end.
    pub failure: Option<String>,
}

impl Row {
    /// What is to be said besides its figures: what failed, what was evicted.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let Self { design, fabric, workload, window, value_bytes, errors, missing, .. } = self;
        let name = format!(
            "{design} ({fabric}), workload {workload}, window {window}, values of {value_bytes} bytes"
        );
        let mut remarks = Vec::new();
        if let Some(failure) = &self.failure {
            remarks.push(format!("NOT MEASURED: {name}: {failure}"));
        }
        if self.forgets && *errors == 0 {
            if *missing > 0 {
                remarks
                    .push(format!("EVICTED: {name}: {missing} gets found nothing, as those of a cache may"));
            }
        } else if errors + missing > 0 {
            let first = self.first_error.as_deref().unwrap_or("records that were loaded were not found");
            remarks.push(format!("ERRORS: {name}: {errors} failed, {missing} not found: {first}"));
        }
        remarks
    }
}

/// A row in the making.
#[derive(Debug)]
pub(crate) struct Series {
    pub label: Label,
    pub workload: Workload,
    pub value_bytes: usize,
    pub window_asked: usize,
    pub window: usize,
    pub pages: Option<String>,
    pub runs: Vec<Measured>,
    pub round_trips_ns: Vec<Option<f64>>,
    pub failure: Option<String>,
}

impl Series {
    pub fn new(
        label: Label,
        workload: Workload,
        value_bytes: usize,
        window_asked: usize,
        window: usize,
        pages: Option<String>,
    ) -> Self {
        let (runs, round_trips_ns) = (Vec::new(), Vec::new());
        Self {
            label,
            workload,
            value_bytes,
            window_asked,
            window,
            pages,
            runs,
            round_trips_ns,
            failure: None,
        }
    }

    fn median(&self, field: impl Fn(&Measured) -> f64) -> f64 {
        median(self.runs.iter().map(field).collect()).unwrap_or(0.0)
    }

    fn median_if_any(&self, field: impl Fn(&Measured) -> Option<f64>) -> Option<f64> {
        median(self.runs.iter().filter_map(field).collect())
    }

    fn latency(&self) -> Latency {
        Latency {
            mean: self.median(|m| m.latency_ns.mean),
            p50: self.median(|m| m.latency_ns.p50),
            p90: self.median(|m| m.latency_ns.p90),
            p99: self.median(|m| m.latency_ns.p99),
            p999: self.median(|m| m.latency_ns.p999),
            max: self.median(|m| m.latency_ns.max),
        }
    }

    /// How many times faster `first` was, run by run.
    fn slower_than(&self, first: &Series) -> Option<f64> {
        let pairs = first.runs.iter().zip(&self.runs);
        median(pairs.map(|(first, this)| first.ops_per_second / this.ops_per_second).collect())
    }

    fn row(&self, options: &BenchOptions, first: Option<&Series>) -> Row {
        let is_peer = options.peers.iter().any(|peer| peer.starter().label() == self.label);
        Row {
            design: self.label.design.clone(),
            fabric: self.label.fabric.clone(),
            workload: self.workload,
            distribution: options.distribution.unwrap_or(self.workload.distribution()),
            records: options.records,
            key_bytes: options.key_bytes,
            value_bytes: self.value_bytes,
            clients: options.clients,
            window: self.window,
            window_asked: self.window_asked,
            server_cores: (!is_peer).then_some(options.server_cores),
            rate: options.rate,
            seconds: options.seconds,
            runs: self.runs.len(),
            pages: self.pages.clone(),
            operations: self.median(|m| m.operations as f64),
            ops_per_second: self.median(|m| m.ops_per_second),
            ops_per_second_of_runs: self.runs.iter().map(|m| m.ops_per_second).collect(),
            cache_line_round_trip_ns_of_runs: self.round_trips_ns.clone(),
            latency_ns: self.latency(),
            server_cpu_ns_per_op: self.median_if_any(|m| m.server_cpu_ns_per_op),
            server_idle_cores: self.median_if_any(|m| m.server_idle_cores),
            client_cpu_ns_per_op: self.median_if_any(|m| Some(m.client_cpu_ns_per_op)),
            reads_per_get: self.median_if_any(|m| m.reads_per_get),
            messages_per_op: self.median_if_any(|m| m.messages_per_op),
            retries_per_op: self.median_if_any(|m| m.retries_per_op),
            missing: self.runs.iter().map(|m| m.missing).sum(),
            forgets: self.label.forgets,
            errors: self.runs.iter().map(|m| m.errors).sum(),
            first_error: self.runs.iter().find_map(|m| m.first_error.clone()),
            first_system_is_faster_by: first.and_then(|first| self.slower_than(first)),
            failure: self.failure.clone(),
        }
    }
}

/// The middle of `values`, or the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// A row in the file, with its circumstances.
#[derive(Serialize)]
struct FileRow<'a> {
    #[serde(flatten)]
    row: &'a Row,
    circumstances: &'a Circumstances,
}

impl Report {
    /// Sorts what was measured of each system, with each length of values, into rows.
    pub(crate) fn new(
        options: &BenchOptions,
        value_bytes: &[usize],
        circumstances: Circumstances,
        systems: &[Vec<Series>],
    ) -> Self {
        let mut rows = Vec::new();
        for &workload in &options.workloads {
            for &window in &options.windows {
                for &bytes in value_bytes {
                    let is_here = |s: &&Series| {
                        s.workload == workload && s.window_asked == window && s.value_bytes == bytes
                    };
                    let first = systems.first().and_then(|first| first.iter().find(is_here));
                    let here = systems.iter().flatten().filter(is_here);
                    let mut here: Vec<_> = here.map(|series| series.row(options, first)).collect();
                    // Of a row without runs they are 0.
                    here.sort_by(|one, other| other.ops_per_second.total_cmp(&one.ops_per_second));
                    rows.extend(here);
                }
            }
        }
        let first = systems.iter().flatten().next().map_or("first", |series| &series.label.design);
        Self { circumstances, first: first.to_owned(), rows }
    }

    /// The rows as a JSON list, each with the circumstances.
    pub fn to_json(&self) -> String {
        let rows: Vec<_> =
            self.rows.iter().map(|row| FileRow { row, circumstances: &self.circumstances }).collect();
        serde_json::to_string_pretty(&rows).expect("rows have neither maps with odd keys nor failing fields")
    }

    /// Whether every row was measured, without errors, or records missing that a system must keep.
    pub fn is_complete(&self) -> bool {
        let kept = |row: &Row| row.forgets || row.missing == 0;
        self.rows.iter().all(|row| row.failure.is_none() && row.errors == 0 && kept(row))
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        let faster_by = format!("{} is", self.first);
        let reads = self.rows.iter().any(|row| row.reads_per_get.is_some());
        let sizes = self.rows.windows(2).any(|two| two[0].value_bytes != two[1].value_bytes);
        let mut header = vec![
            "workload",
            "system",
            "via",
            "window",
            "ops/s",
            "p50",
            "p99",
            "server CPU/op",
            "client CPU/op",
            &faster_by,
        ];
        if reads {
            header.push("READs/get");
        }
        if sizes {
            header.insert(3, "value bytes");
        }
        table.set_header(header);
        for row in &self.rows {
            let mut cells = cells(row);
            if reads {
                cells.push(row.reads_per_get.map_or("-".into(), |reads| format!("{reads:.2}")));
            }
            if sizes {
                cells.insert(3, row.value_bytes.to_string());
            }
            table.add_row(cells);
        }
        for column in 3..table.column_count() {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }
}

fn cells(row: &Row) -> Vec<String> {
    let names = [format!("{} {}", row.workload, row.distribution), row.design.clone(), row.fabric.clone()];
    let mut cells = Vec::from(names);
    cells.push(row.window.to_string());
    if row.runs == 0 {
        cells.extend(["not measured", "-", "-", "-", "-", "-"].map(String::from));
        return cells;
    }
    cells.extend([
        operations(row.ops_per_second),
        time(row.latency_ns.p50),
        time(row.latency_ns.p99),
        row.server_cpu_ns_per_op.map_or("no server".into(), time),
        row.client_cpu_ns_per_op.map_or("-".into(), time),
        row.first_system_is_faster_by.map_or("-".into(), |by| format!("{by:.*}x", decimals(by))),
    ]);
    cells
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.circumstances)?;
        writeln!(f, "{}", self.table())?;
        self.rows.iter().flat_map(Row::remarks).try_for_each(|remark| writeln!(f, "{remark}"))
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
