//! One measurement: clients connect, idle, warm up, and perform a workload for some seconds.
//!
//! All clients are threads of this process, and servers are other processes, so that CPU time is attributable to either.

use crate::clock::Clock;
use crate::cpu;
use crate::error::BenchError;
use crate::keys::Shape;
use crate::load::{Finished, Load, LoadSettings, Pace};
use crate::target::{Counters, System, Target};
use crate::trace::Trace;
use crate::workload::{Distribution, Workload};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// How long the connected clients stand idle before each measurement, for the servers' idle CPU time.
const IDLE: Duration = Duration::from_millis(300);

/// Everything that one measurement needs to know; plain data, since another process may do it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
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
    /// Open loop: operations per second of all clients together. Closed loop if `None`.
    pub rate: Option<f64>,
    /// How long to measure.
    pub seconds: f64,
    /// How long to run before measuring.
    pub warmup_seconds: f64,
    /// Whether every byte of the values read is checked.
    pub verify: bool,
    /// One operation in this many has its latency recorded.
    pub timed_every: u32,
    /// Seed of the traces.
    pub seed: u64,
    /// Which measurement of the system this is, from 1 on, of which the versions of its values follow; 0 fills the store.
    pub number: u64,
    /// How many records each client has inserted into the system so far.
    pub inserted: Vec<u64>,
}

/// What a measurement found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Operations finished.
    pub operations: u64,
    /// From the start to the end of the last operation.
    pub seconds: f64,
    /// Operations by seconds.
    pub ops_per_second: f64,
    /// From the start (open loop: the intended start) of an operation to its end.
    pub latency_ns: Latency,
    /// CPU time of the servers per operation, less what they use when idle; `None` without a server.
    pub server_cpu_ns_per_op: Option<f64>,
    /// What share of a core the servers used while the connected clients were idle.
    pub server_idle_cores: Option<f64>,
    /// CPU time of the clients' process per operation.
    pub client_cpu_ns_per_op: f64,
    /// READs per get, where there are READs.
    pub reads_per_get: Option<f64>,
    /// Requests and replies per operation, where they are counted.
    pub messages_per_op: Option<f64>,
    /// Retries per operation, where they are counted.
    pub retries_per_op: Option<f64>,
    /// Gets of loaded records that found nothing.
    pub missing: u64,
    /// Operations that failed.
    pub errors: u64,
    /// What the first of them said.
    pub first_error: Option<String>,
    /// How many records each client has inserted so far.
    pub inserted: Vec<u64>,
}

/// Latencies in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it: the mean, percentiles and the longest")]
pub struct Latency {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Latency {
    /// Of what was recorded.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let quantile = |q| histogram.value_at_quantile(q) as f64;
        Self {
            mean: histogram.mean(),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: histogram.max() as f64,
        }
    }
}

impl Measurement {
    /// Draws the operations of every client.
    pub fn traces(&self) -> Result<Vec<Arc<Trace>>, BenchError> {
        let draw = |client| Trace::draw(self.workload, self.distribution, self.records, self.seed, client);
        (0..self.clients).map(|client| draw(client).map(Arc::new)).collect()
    }

    fn load(&self, client: usize, clock: &Clock, trace: Arc<Trace>) -> Result<Load, BenchError> {
        let pace = match self.rate {
            None => Pace::Closed,
            Some(rate) => {
                let interval = Duration::from_secs_f64(self.clients as f64 / rate);
                Pace::Open { interval: clock.ticks(interval).max(1) }
            }
        };
        Ok(Load::of_trace(&self.settings(client)?, clock.clone(), trace, pace))
    }

    fn settings(&self, client: usize) -> Result<LoadSettings, BenchError> {
        // Room for inserts in the digits of the keys: as many again as were loaded and one in each slot of a trace.
        let highest_index = match self.workload.mix().insert_percent {
            0 => self.records - 1,
            _ => {
                self.records * 2 + self.inserted.iter().max().unwrap_or(&0) * self.clients as u64 + (1 << 32)
            }
        };
        Ok(LoadSettings {
            shape: Shape::new(self.key_bytes, self.value_bytes, highest_index)?,
            records: self.records,
            client: client as u64,
            clients: self.clients as u64,
            window: self.window,
            verify: self.verify,
            timed_every: self.timed_every,
            number: self.number,
            inserted: self.inserted.get(client).copied().unwrap_or(0),
        })
    }

    /// Measures `system` with threads of this process. `traces` are those of [`Self::traces`].
    pub fn run(
        &self,
        system: &dyn System,
        clock: &Clock,
        traces: &[Arc<Trace>],
    ) -> Result<Measured, BenchError> {
        let barrier = Barrier::new(self.clients + 1);
        let pids = system.server_pids();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.clients)
                .map(|client| {
                    let (barrier, trace) = (&barrier, traces[client].clone());
                    scope.spawn(move || Client::new(self, system, client).run(clock, trace, barrier))
                })
                .collect();
            let times = Times::take(&pids, &barrier);
            let clients: Result<Vec<_>, _> =
                threads.into_iter().map(|t| t.join().expect("caught inside")).collect();
            self.summarize(&times?, &clients?)
        })
    }

    fn summarize(&self, times: &Times, clients: &[(Finished, Counters)]) -> Result<Measured, BenchError> {
        let mut histogram = clients[0].0.histogram.clone();
        for (finished, _) in &clients[1..] {
            histogram.add(&finished.histogram).expect("all have the same bounds");
        }
        let sum =
            |field: fn(&Finished) -> u64| clients.iter().map(|(finished, _)| field(finished)).sum::<u64>();
        let operations = sum(|f| f.operations);
        if operations == 0 {
            return Err(BenchError::Options(format!(
                "no operation finished in {} s (--seconds)",
                self.seconds
            )));
        }
        let total = |field: fn(&Counters) -> Option<u64>| -> Option<u64> {
            clients.iter().map(|(_, counters)| field(counters)).sum::<Option<u64>>()
        };
        let per = |count: u64, n: u64| count as f64 / n.max(1) as f64;
        Ok(Measured {
            operations,
            seconds: times.seconds,
            ops_per_second: operations as f64 / times.seconds,
            latency_ns: Latency::of(&histogram),
            server_cpu_ns_per_op: times.server_busy_ns.map(|ns| ns / operations as f64),
            server_idle_cores: times.server_idle_cores,
            client_cpu_ns_per_op: per(times.client_ns, operations),
            reads_per_get: total(|c| c.reads).map(|reads| per(reads, sum(|f| f.gets))),
            messages_per_op: total(|c| c.messages).map(|messages| per(messages, operations)),
            retries_per_op: total(|c| c.retries).map(|retries| per(retries, operations)),
            missing: sum(|f| f.missing),
            errors: sum(|f| f.errors),
            first_error: clients.iter().find_map(|(finished, _)| finished.first_error.clone()),
            inserted: clients.iter().map(|(finished, _)| finished.inserted).collect(),
        })
    }
}

/// The steps that all clients and the measuring thread take together; each waits for the others before the next.
struct Client<'a> {
    measurement: &'a Measurement,
    system: &'a dyn System,
    number: usize,
}

impl<'a> Client<'a> {
    fn new(measurement: &'a Measurement, system: &'a dyn System, number: usize) -> Self {
        Self { measurement, system, number }
    }

    /// Takes every step, whatever fails, since the others wait for this client at each.
    fn run(
        self,
        clock: &Clock,
        trace: Arc<Trace>,
        barrier: &Barrier,
    ) -> Result<(Finished, Counters), BenchError> {
        let mut state = catching(|| {
            let load = self.measurement.load(self.number, clock, trace)?;
            Ok((self.system.connect(self.number)?, load))
        });
        barrier.wait(); // All are connected: idle.
        barrier.wait(); // Warm up.
        state = drive(state, self.measurement.warmup_seconds);
        barrier.wait(); // All are warm.
        let before = state.as_ref().map(|(target, _)| target.counters()).unwrap_or_default();
        barrier.wait(); // Measure.
        state = drive(state, self.measurement.seconds);
        barrier.wait(); // All have finished.
        let (target, load) = state?;
        let after = target.counters();
        // What counted may have been lost with a connection.
        let since =
            |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before.unwrap_or(0)));
        let counters = Counters {
            reads: since(after.reads, before.reads),
            messages: since(after.messages, before.messages),
            retries: since(after.retries, before.retries),
        };
        Ok((load.finished(), counters))
    }
}

type Connected<'a> = Result<(Box<dyn Target + 'a>, Load), BenchError>;

fn drive(state: Connected<'_>, seconds: f64) -> Connected<'_> {
    let (mut target, load) = state?;
    load.start(Duration::from_secs_f64(seconds));
    catching(move || {
        target.drive(&load)?;
        Ok((target, load))
    })
}

/// Turns a panic into an error.
fn catching<T>(step: impl FnOnce() -> Result<T, BenchError>) -> Result<T, BenchError> {
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(BenchError::Panicked(text.unwrap_or_else(|| "for no stated reason".into())))
    })
}

/// What the measuring thread saw from outside.
struct Times {
    seconds: f64,
    client_ns: u64,
    server_busy_ns: Option<f64>,
    server_idle_cores: Option<f64>,
}

impl Times {
    /// Goes through the steps of [`Client::run`] on the measuring thread.
    fn take(pids: &[u32], barrier: &Barrier) -> Result<Self, BenchError> {
        barrier.wait();
        let idle_from = (Instant::now(), cpu::of_processes(pids));
        if !pids.is_empty() {
            std::thread::sleep(IDLE);
        }
        let idle_to = (Instant::now(), cpu::of_processes(pids));
        barrier.wait();
        barrier.wait();
        let (client_from, server_from) = (cpu::of_this_process(), cpu::of_processes(pids));
        let from = Instant::now();
        barrier.wait();
        barrier.wait();
        let seconds = from.elapsed().as_secs_f64();
        let client_ns = cpu::of_this_process() - client_from;
        let server_ns = cpu::of_processes(pids)? - server_from?;
        if pids.is_empty() {
            return Ok(Self { seconds, client_ns, server_busy_ns: None, server_idle_cores: None });
        }
        let idle_ns = (idle_to.1? - idle_from.1?) as f64;
        let idle_cores = idle_ns / (idle_to.0 - idle_from.0).as_nanos() as f64;
        let server_busy_ns = server_ns as f64 - idle_cores * seconds * 1e9;
        Ok(Self {
            seconds,
            client_ns,
            server_busy_ns: Some(server_busy_ns),
            server_idle_cores: Some(idle_cores),
        })
    }
}

/// Writes every record of `measurement` once, with its clients and window; `progress` moves on as records are written.
pub(crate) fn fill(
    measurement: &Measurement,
    system: &dyn System,
    clock: &Clock,
    progress: &ProgressBar,
) -> Result<(), BenchError> {
    let fill_share = |client| {
        let settings = measurement.settings(client)?;
        let load = Load::of_all_records(&settings, clock.clone(), progress.clone());
        system.connect(client)?.drive(&load)?;
        let finished = load.finished();
        match finished.first_error {
            Some(error) => {
                let text = format!(
                    "{} of {} records could not be loaded: {error}",
                    finished.errors, finished.operations
                );
                Err(BenchError::Target(text))
            }
            None => Ok(()),
        }
    };
    std::thread::scope(|scope| {
        let fill_share = &fill_share;
        let threads: Vec<_> = (0..measurement.clients)
            .map(|client| scope.spawn(move || catching(|| fill_share(client))))
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("caught inside"))
    })
}
