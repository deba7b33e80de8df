//! One measurement: a verb over and over, over some queue pairs from one thread. The same program on every fabric.

use crate::calibrate::ProbeTask;
use locus_fabric::{
    FabricError, Nic,
    echo::{Probe, Task},
};
use locus_runtime::{Clock, Idle, IdlePolicy, MonotonicClock};
use std::{collections::VecDeque, time::Duration};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Point {
    /// What is done over and over.
    pub task: ProbeTask,
    /// With how many bytes, there and back.
    pub bytes: usize,
    /// How many are under way over each queue pair. With one, latencies are noted; with more, throughput alone.
    pub window: usize,
    /// How many queue pairs.
    pub queue_pairs: usize,
}

impl Point {
    /// As the fabric calls it.
    pub fn task(&self) -> Task {
        match self.task {
            ProbeTask::Read => Task::Read,
            ProbeTask::Write => Task::Write,
            ProbeTask::Echo => Task::Echo { reply_bytes: self.bytes },
        }
    }
}

/// How long a measurement goes on: until both the operations and the time are reached, so many times. Whoever else uses
/// the machine only makes it slower, so the best stretch counts.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// So many stretches.
    pub stretches: usize,
    /// So many operations in each, after as many and two windows that do not count.
    pub operations: usize,
    /// So long.
    pub at_least: Duration,
    /// It has failed if that takes longer.
    pub at_most: Duration,
}

impl Effort {
    /// On the model every operation goes as the one before.
    pub const MODEL: Self =
        Self { stretches: 1, operations: 128, at_least: Duration::ZERO, at_most: Duration::from_secs(1000) };

    /// On a real fabric, for a time.
    pub fn lasting(time: Duration) -> Self {
        const STRETCHES: u32 = 5;
        Self {
            stretches: STRETCHES as usize,
            operations: 32,
            at_least: time / STRETCHES,
            at_most: time + Duration::from_secs(10),
        }
    }
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Taken {
    /// Million operations per second.
    pub mops: f64,
    /// How long one takes: with one under way the median, else the average that follows from the throughput. In us.
    pub latency_us: f64,
    /// What it takes the core to post one and ring, and to poll one that has ended; medians, with one under way. In ns.
    pub post_ns: f64,
    /// See above.
    pub poll_ns: f64,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The fabric.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// It is too slow, or stands still.
    #[error("{ended} of {wanted} operations ended within {limit:?}")]
    TooSlow {
        /// How many ended.
        ended: usize,
        /// How many were needed.
        wanted: usize,
        /// The time they had.
        limit: Duration,
    },
}

/// Takes a measurement over queue pairs, as many as it asks for.
pub fn take<N: Nic>(probes: &mut [Probe<N>], point: &Point, effort: &Effort) -> Result<Taken, MeasureError> {
    let mut run = Run::new(point, probes.len());
    let under_way = point.window * probes.len();
    let warm_up = effort.operations + 2 * under_way;
    run.until(probes, effort, |ended, _| ended >= warm_up)?;
    let (mut best, clock_ns) = (Taken::default(), clock_ns());
    for _ in 0..effort.stretches {
        let from = (run.ended, run.last_end_ns);
        run.samples = Samples::default();
        let (wanted, end_ns) = (from.0 + effort.operations, from.1 + effort.at_least.as_nanos() as u64);
        run.until(probes, effort, |ended, now_ns| ended >= wanted && now_ns >= end_ns)?;
        let mops = (run.ended - from.0) as f64 * 1000.0 / (run.last_end_ns - from.1).max(1) as f64;
        let [latency_ns, post_ns, poll_ns] = run.samples.medians();
        let alone = under_way == 1;
        let latency_us = if alone { latency_ns / 1000.0 } else { under_way as f64 / mops };
        if best.mops == 0.0 || (alone && latency_us < best.latency_us) || (!alone && mops > best.mops) {
            let beside = |ns: f64| (ns - clock_ns).max(0.0);
            best = Taken { mops, latency_us, post_ns: beside(post_ns), poll_ns: beside(poll_ns) };
        }
    }
    run.drain(probes, effort)?;
    Ok(best)
}

/// What it costs to ask for the time, in nanoseconds.
fn clock_ns() -> f64 {
    let clock = MonotonicClock::new();
    let mut times: Vec<f64> = (0..101)
        .map(|_| {
            let before = clock.now_ns();
            (clock.now_ns() - before) as f64
        })
        .collect();
    median(&mut times)
}

fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// What was noted of each operation, in nanoseconds.
#[derive(Default)]
struct Samples {
    latencies: Vec<f64>,
    posts: Vec<f64>,
    polls: Vec<f64>,
}

impl Samples {
    fn medians(&mut self) -> [f64; 3] {
        [&mut self.latencies, &mut self.posts, &mut self.polls].map(|values| median(values))
    }
}

/// A measurement under way.
struct Run<'a> {
    point: &'a Point,
    clock: MonotonicClock,
    idle: Idle,
    /// Per queue pair: when those under way were started.
    since: Vec<VecDeque<u64>>,
    ended: usize,
    last_end_ns: u64,
    samples: Samples,
}

impl<'a> Run<'a> {
    fn new(point: &'a Point, queue_pairs: usize) -> Self {
        // It yields to whatever its answers need the core for, and never sleeps: no wake-up is measured.
        let policy = IdlePolicy { yields: u32::MAX, ..IdlePolicy::default() };
        Self {
            point,
            clock: MonotonicClock::new(),
            idle: Idle::new(policy),
            since: vec![VecDeque::with_capacity(point.window); queue_pairs],
            ended: 0,
            last_end_ns: 0,
            samples: Samples::default(),
        }
    }

    /// Goes on until this says so, of how many have ended and the time.
    fn until<N: Nic>(
        &mut self,
        probes: &mut [Probe<N>],
        effort: &Effort,
        enough: impl Fn(usize, u64) -> bool,
    ) -> Result<(), MeasureError> {
        let limit_ns = self.clock.now_ns() + effort.at_most.as_nanos() as u64;
        while !enough(self.ended, self.last_end_ns) {
            for (place, probe) in probes.iter_mut().enumerate() {
                self.start(probe, place)?;
            }
            self.look(probes, effort, limit_ns)?;
        }
        Ok(())
    }

    /// Lets what is under way end.
    fn drain<N: Nic>(&mut self, probes: &mut [Probe<N>], effort: &Effort) -> Result<(), MeasureError> {
        let limit_ns = self.clock.now_ns() + effort.at_most.as_nanos() as u64;
        while self.since.iter().any(|since| !since.is_empty()) {
            self.look(probes, effort, limit_ns)?;
        }
        Ok(())
    }

    fn start<N: Nic>(&mut self, probe: &mut Probe<N>, place: usize) -> Result<(), MeasureError> {
        let Point { bytes, window, .. } = *self.point;
        while self.since[place].len() < window {
            let before_ns = if window == 1 { self.clock.now_ns() } else { 0 };
            if !probe.start(self.point.task(), bytes)? {
                break;
            }
            self.since[place].push_back(before_ns);
            if window == 1 {
                self.samples.posts.push((self.clock.now_ns() - before_ns) as f64);
            }
        }
        Ok(())
    }

    /// Takes what has ended, or waits for it.
    fn look<N: Nic>(
        &mut self,
        probes: &mut [Probe<N>],
        effort: &Effort,
        limit_ns: u64,
    ) -> Result<(), MeasureError> {
        let before = self.ended;
        for (probe, since) in probes.iter_mut().zip(&mut self.since) {
            let single = self.point.window == 1;
            let before_ns = if single { self.clock.now_ns() } else { 0 };
            let count = probe.ended()?;
            let started = since.drain(..count).next();
            self.ended += count;
            if let Some(started_ns) = started.filter(|_| single) {
                let now_ns = self.clock.now_ns();
                self.samples.polls.push((now_ns - before_ns) as f64);
                self.samples.latencies.push((now_ns - started_ns) as f64);
            }
        }
        if self.ended > before {
            self.idle.reset();
            self.last_end_ns = self.clock.now_ns();
            return Ok(());
        }
        if self.clock.now_ns() > limit_ns {
            let wanted = effort.operations;
            return Err(MeasureError::TooSlow { ended: self.ended, wanted, limit: effort.at_most });
        }
        self.idle.step(probes[0].queue());
        Ok(())
    }
}
