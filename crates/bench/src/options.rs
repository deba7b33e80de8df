//! What a benchmark is asked to do.

use crate::error::BenchError;
use crate::keys::Shape;
use crate::measure::Measurement;
use crate::peers::PeerKind;
use crate::trace::RECORDS_MAX;
use crate::workload::{Distribution, Workload};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// The most clients, each a thread: more would measure the scheduler.
pub const CLIENTS_MAX: usize = 256;
/// The widest window of a client.
pub const WINDOW_MAX: usize = 4096;

/// Parameters of a benchmark. `Display` prints them all on one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchOptions {
    /// Mixes of operations, measured one after the other.
    pub workloads: Vec<Workload>,
    /// Which keys; each workload's own if `None`.
    pub distribution: Option<Distribution>,
    /// Records loaded before measuring.
    pub records: u64,
    /// Length of keys, in bytes.
    pub key_bytes: usize,
    /// Length of values, in bytes.
    pub value_bytes: usize,
    /// Connections, each with a thread of its own.
    pub clients: usize,
    /// Operations outstanding per client; every system is measured with each of these.
    pub windows: Vec<usize>,
    /// Cores of a Locus server. Peers have their own ways; memcached and Redis run on one.
    pub server_cores: usize,
    /// Open loop: operations per second of all clients together. Closed loop if `None`.
    pub rate: Option<f64>,
    /// How long each measurement takes.
    pub seconds: f64,
    /// How long each measurement warms up before.
    pub warmup_seconds: f64,
    /// Measurements of each row; the row has the medians.
    pub runs: usize,
    /// Whether every byte of the values read is checked (their length always is).
    pub verify: bool,
    /// One operation in this many has its latency recorded.
    pub latency_every: u32,
    /// What to measure beside Locus.
    pub peers: Vec<PeerKind>,
    /// Seed of the operations drawn.
    pub seed: u64,
    /// The program that reads as the second process of a peer without a server, and calls
    /// [`become_reader_if_asked`](crate::become_reader_if_asked) first; this program if `None`.
    #[serde(skip)]
    pub reader_program: Option<PathBuf>,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self {
            workloads: vec![Workload::A, Workload::B, Workload::C],
            distribution: None,
            records: 1_000_000,
            key_bytes: 16,
            value_bytes: 64,
            clients: 1,
            windows: vec![1],
            server_cores: 1,
            rate: None,
            seconds: 5.0,
            warmup_seconds: 0.5,
            runs: 1,
            verify: false,
            latency_every: 1,
            peers: Vec::new(),
            seed: 1,
            reader_program: None,
        }
    }
}

impl BenchOptions {
    /// Refuses what cannot be run, with the reason.
    pub fn check(&self) -> Result<(), BenchError> {
        let refuse = |why: String| Err(BenchError::Options(why));
        if self.workloads.is_empty() || self.windows.is_empty() {
            return refuse("at least one workload and one window are needed (--workload, --window)".into());
        }
        if self.records == 0 || self.records > RECORDS_MAX {
            return refuse(format!("{} records: 1 to {RECORDS_MAX} are possible (--records)", self.records));
        }
        if self.clients == 0 || self.clients > CLIENTS_MAX {
            return refuse(format!("{} clients: 1 to {CLIENTS_MAX} are possible (--clients)", self.clients));
        }
        if let Some(window) = self.windows.iter().find(|window| !(1..=WINDOW_MAX).contains(*window)) {
            return refuse(format!("a window of {window}: 1 to {WINDOW_MAX} are possible (--window)"));
        }
        if self.runs == 0 || self.latency_every == 0 {
            return refuse("--runs and --latency-every start at 1".into());
        }
        if !(0.01..=86_400.0).contains(&self.seconds) || !(0.0..=86_400.0).contains(&self.warmup_seconds) {
            return refuse(format!("{} s: between 0.01 s and a day are possible (--seconds)", self.seconds));
        }
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate <= 1e9)) {
            return refuse("a rate is above 0 and at most 1e9 operations per second (--rate)".into());
        }
        Shape::new(self.key_bytes, self.value_bytes, self.records - 1).map(|_| ())
    }

    /// The measurement of `workload` with `window`, of run number `run`.
    pub(crate) fn measurement(&self, workload: Workload, window: usize, run: usize) -> Measurement {
        Measurement {
            workload,
            distribution: self.distribution.unwrap_or(workload.distribution()),
            records: self.records,
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            clients: self.clients,
            window,
            rate: self.rate,
            seconds: self.seconds,
            warmup_seconds: self.warmup_seconds,
            verify: self.verify,
            timed_every: self.latency_every,
            seed: self.seed.wrapping_add(run as u64),
            number: 0,
            inserted: vec![0; self.clients],
        }
    }

    /// Bytes of keys and values of all records loaded.
    pub fn payload_bytes(&self) -> u64 {
        self.records * (self.key_bytes + self.value_bytes) as u64
    }
}

impl fmt::Display for BenchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(&[self.value_bytes]))
    }
}

impl BenchOptions {
    /// All of them on one line, with these lengths of values.
    pub(crate) fn describe(&self, value_bytes: &[usize]) -> String {
        let Self { records, key_bytes, clients, server_cores, seconds, warmup_seconds, runs, .. } = self;
        format!(
            "workloads {}, {} keys, {records} records, keys of {key_bytes} and values of {} bytes, \
             {clients} client(s), window {}, {server_cores} server core(s), {}, {seconds} s after {warmup_seconds} s of \
             warm-up, {runs} run(s), seed {}{}{}",
            list(&self.workloads),
            self.distribution.map_or("each workload's own".into(), |distribution| distribution.to_string()),
            list(value_bytes),
            list(&self.windows),
            self.rate.map_or("closed loop".into(), |rate| format!("open loop at {rate}/s")),
            self.seed,
            if self.verify { ", values verified" } else { "" },
            match self.latency_every {
                1 => String::new(),
                every => format!(", latency of one operation in {every}"),
            },
        )
    }
}

fn list(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_good_and_print_themselves() {
        let options = BenchOptions::default();
        options.check().unwrap();
        let text = options.to_string();
        for part in ["workloads a,b,c", "1000000 records", "window 1,", "closed loop", "5 s", "seed 1"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }

    #[test]
    fn what_cannot_run_is_refused_by_the_name_of_its_option() {
        let good = BenchOptions::default;
        let bad = [
            (BenchOptions { records: 0, ..good() }, "--records"),
            (BenchOptions { clients: 0, ..good() }, "--clients"),
            (BenchOptions { windows: vec![1, 0], ..good() }, "--window"),
            (BenchOptions { windows: vec![], ..good() }, "--window"),
            (BenchOptions { seconds: 0.0, ..good() }, "--seconds"),
            (BenchOptions { seconds: f64::NAN, ..good() }, "--seconds"),
            (BenchOptions { rate: Some(0.0), ..good() }, "--rate"),
            (BenchOptions { runs: 0, ..good() }, "--runs"),
            (BenchOptions { key_bytes: 4, ..good() }, "--key-bytes"),
        ];
        for (options, name) in bad {
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(name), "{name} is not in {error:?}");
        }
    }
}
