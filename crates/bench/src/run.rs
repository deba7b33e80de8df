//! Runs a benchmark: starts and fills every system, then measures them in turn.
//!
//! All systems run throughout, and each run measures all of them one after the other before the next run begins, so that
//! the ratios between them come from the same minutes of the same machine.

use crate::cache_line::{self, RoundTrips};
use crate::circumstances::Circumstances;
use crate::clock::Clock;
use crate::error::BenchError;
use crate::load::{Load, Next};
use crate::measure::{Measured, fill};
use crate::options::BenchOptions;
use crate::report::{Report, Series};
use crate::target::{Label, Starter, System, Target};
use crate::trace::Trace;
use crate::workload::Workload;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Arc;

/// Operations outstanding per client while loading, for systems that can.
const FILL_WINDOW: usize = 64;

/// Starts and measures everything in `starters`. What cannot be started or fails has rows that say why.
pub fn run(options: &BenchOptions, starters: &[Box<dyn Starter>]) -> Result<Report, BenchError> {
    run_with_values(options, &[options.value_bytes], starters)
}

/// The same with each of these lengths of values, in place of that of the options: one after the other, each with systems
/// of its own.
pub fn run_with_values(
    options: &BenchOptions,
    value_bytes: &[usize],
    starters: &[Box<dyn Starter>],
) -> Result<Report, BenchError> {
    let sizes: Vec<_> =
        value_bytes.iter().map(|&value_bytes| BenchOptions { value_bytes, ..options.clone() }).collect();
    let Some(first) = sizes.first() else {
        return Err(BenchError::Options("at least one length of values is needed (--value-bytes)".into()));
    };
    sizes.iter().try_for_each(BenchOptions::check)?;
    let clock = Clock::new();
    let harness_ns = harness_ns_per_operation(first, &clock)?;
    let mut circumstances = Circumstances::here(options.describe(value_bytes), harness_ns);
    let mut systems: Vec<_> = starters.iter().map(|_| Vec::new()).collect();
    for options in &sizes {
        for (system, series) in systems.iter_mut().zip(measure_all(options, starters, &clock)?) {
            system.extend(series);
        }
    }
    let round_trips =
        systems.iter().flatten().flat_map(|series| series.round_trips_ns.iter().flatten().copied());
    circumstances.cache_line_round_trip_ns = RoundTrips::of(round_trips.collect());
    Ok(Report::new(options, value_bytes, circumstances, &systems))
}

/// What is measured of each system with one length of values.
fn measure_all(
    options: &BenchOptions,
    starters: &[Box<dyn Starter>],
    clock: &Clock,
) -> Result<Vec<Vec<Series>>, BenchError> {
    let mut contestants: Vec<_> =
        starters.iter().map(|s| Contestant::start(s.as_ref(), options, clock)).collect();
    let measurements = options.workloads.len() * options.runs * options.windows.len() * contestants.len();
    let progress = bar(measurements as u64, "measurements");
    for &workload in &options.workloads {
        for run in 0..options.runs {
            let traces = options.measurement(workload, 1, run).traces()?;
            for &window in &options.windows {
                for contestant in &mut contestants {
                    progress
                        .set_prefix(format!("workload {workload}, window {window}, {}", contestant.label));
                    contestant.measure(options, workload, window, run, clock, &traces);
                    progress.inc(1);
                }
            }
        }
    }
    progress.finish_and_clear();
    Ok(contestants.into_iter().map(|contestant| contestant.series).collect())
}

/// A system, while it runs, and what was measured of it.
struct Contestant {
    label: Label,
    /// The system, or why there is none.
    system: Result<Box<dyn System>, String>,
    /// How many measurements were begun.
    measurements: u64,
    /// Records that each client has inserted.
    inserted: Vec<u64>,
    series: Vec<Series>,
}

impl Contestant {
    fn start(starter: &dyn Starter, options: &BenchOptions, clock: &Clock) -> Self {
        let label = starter.label();
        let system = starter.start(options).and_then(|system| {
            let progress = bar(options.records, "records").with_prefix(format!("loading {label}"));
            let filling =
                options.measurement(options.workloads[0], FILL_WINDOW.min(system.widest_window()), 0);
            let result = fill(&filling, system.as_ref(), clock, &progress);
            progress.finish_and_clear();
            result.map(|_| system)
        });
        let system = system.map_err(|error| error.to_string());
        Self { label, system, measurements: 0, inserted: vec![0; options.clients], series: Vec::new() }
    }

    fn measure(
        &mut self,
        options: &BenchOptions,
        workload: Workload,
        window: usize,
        run: usize,
        clock: &Clock,
        traces: &[Arc<Trace>],
    ) {
        let widest = self.system.as_ref().map_or(usize::MAX, |system| system.widest_window());
        let narrowed = window.min(widest);
        let known = self.series.iter().position(|s| s.workload == workload && s.window == narrowed);
        let number = known.unwrap_or_else(|| {
            let pages = self.system.as_ref().ok().and_then(|system| system.pages());
            let (label, bytes) = (self.label.clone(), options.value_bytes);
            self.series.push(Series::new(label, workload, bytes, window, narrowed, pages));
            self.series.len() - 1
        });
        let series = &mut self.series[number];
        // A wider window that was narrowed to one measured already needs no measurement of its own.
        if series.window_asked != window || series.failure.is_some() {
            return;
        }
        let mut measurement = options.measurement(workload, narrowed, run);
        self.measurements += 1;
        measurement.number = self.measurements;
        measurement.inserted.clone_from(&self.inserted);
        let before = cache_line::round_trip_ns();
        let result = match &self.system {
            Err(reason) => Err(reason.clone()),
            Ok(system) => match system.measure_elsewhere(&measurement) {
                Some(result) => result,
                None => measurement.run(system.as_ref(), clock, traces),
            }
            .map_err(|error| error.to_string()),
        };
        match result {
            Err(reason) => series.failure = Some(reason),
            Ok(measured) => {
                self.inserted.clone_from(&measured.inserted);
                series.runs.push(measured);
                // The longer of both: cores that moved apart meanwhile were apart for some of it.
                let both = before.zip(cache_line::round_trip_ns());
                series.round_trips_ns.push(both.map(|(one, other)| one.max(other)));
            }
        }
    }
}

/// A bar on the terminal, if there is one.
fn bar(length: u64, unit: &str) -> ProgressBar {
    let template =
        format!("{{prefix}}: [{{bar:30}}] {{human_pos}} of {{human_len}} {unit}, {{per_sec}}, {{eta}} left");
    let style = ProgressStyle::with_template(&template).expect("the template is ours");
    ProgressBar::new(length).with_style(style)
}

/// What the measured loop costs by itself, in nanoseconds per operation: drawing it, its share of reading the clock, and
/// recording it.
pub fn harness_ns_per_operation(options: &BenchOptions, clock: &Clock) -> Result<f64, BenchError> {
    struct Nothing;
    impl Target for Nothing {
        fn drive(&mut self, load: &Load) -> Result<(), BenchError> {
            let mut operation = load.operation();
            let value = vec![0; load.value_bytes()];
            while load.next(&mut operation) != Next::Finished {
                load.found(std::hint::black_box(&operation), &value);
            }
            Ok(())
        }
    }
    struct NoSystem;
    impl System for NoSystem {
        fn connect(&self, _client: usize) -> Result<Box<dyn Target + '_>, BenchError> {
            Ok(Box::new(Nothing))
        }
    }
    let alone = BenchOptions { clients: 1, rate: None, verify: false, distribution: None, ..options.clone() };
    let mut measurement = alone.measurement(Workload::C, 1, 0);
    measurement.distribution = crate::workload::Distribution::Uniform;
    (measurement.seconds, measurement.warmup_seconds) = (0.1, 0.02);
    let measured: Measured = measurement.run(&NoSystem, clock, &measurement.traces()?)?;
    // CPU time: what other processes take from this one is none of the harness's cost.
    Ok(measured.client_cpu_ns_per_op)
}
