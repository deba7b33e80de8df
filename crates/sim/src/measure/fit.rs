//! Chooses the numbers of a machine that measurements with one client and one server show, so that the model, running
//! the same program, comes as near to them as it can: the sum of the squared errors (of logarithms) is made small.
//!
//! The sum has narrow valleys, since a latency is made of many numbers, and kinks, since what is slowest decides a rate.
//! So first each number alone is looked for over all magnitudes; then all are changed together, by Levenberg and
//! Marquardt; then each alone again, by less and less. What no measurement shows is left as it was, and named as such.

use super::Point;
use crate::calibrate::{Experiment, ProbeTask, Quantity, run};
use locus_fabric::sim::{
    SimulationError,
    performance::{GigabytesPerSecond, Machine, Nanoseconds},
};
use std::{
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// A number that may be chosen.
struct Free {
    path: &'static str,
    get: fn(&Machine) -> f64,
    set: fn(&mut Machine, f64),
    /// Where it is looked for first: all these magnitudes.
    magnitudes: (f64, f64),
    /// What it has to do with.
    shows: fn(ProbeTask) -> bool,
}

const ANY: fn(ProbeTask) -> bool = |_| true;
/// From what limits nothing to a hundred times what software takes.
const TIMES_NS: (f64, f64) = (1.0, 1e6);
/// From far less than Ethernet to more than any link, in GB/s.
const RATES: (f64, f64) = (0.01, 200.0);

/// In the order in which they are looked for: first what the others build upon. They are fewer than the measurements that
/// [`plan`](super::plan()) has for them.
const FREE: [Free; 8] = [
    Free {
        path: "nic.pipeline_ns",
        get: |machine| machine.nic.pipeline_ns.ns(),
        set: |machine, ns| machine.nic.pipeline_ns = Nanoseconds::from_ns(ns),
        magnitudes: TIMES_NS,
        shows: ANY,
    },
    Free {
        path: "nic.responder.read_ns",
        get: |machine| machine.nic.responder.read_ns.ns(),
        set: |machine, ns| machine.nic.responder.read_ns = Nanoseconds::from_ns(ns),
        magnitudes: TIMES_NS,
        shows: |task| task == ProbeTask::Read,
    },
    Free {
        path: "nic.responder.write_ns",
        get: |machine| machine.nic.responder.write_ns.ns(),
        set: |machine, ns| machine.nic.responder.write_ns = Nanoseconds::from_ns(ns),
        magnitudes: TIMES_NS,
        shows: |task| task == ProbeTask::Write,
    },
    Free {
        path: "nic.responder.send_ns",
        get: |machine| machine.nic.responder.send_ns.ns(),
        set: |machine, ns| machine.nic.responder.send_ns = Nanoseconds::from_ns(ns),
        magnitudes: TIMES_NS,
        shows: |task| task == ProbeTask::Echo,
    },
    Free {
        path: "link.gigabytes_per_second",
        get: |machine| machine.link.gigabytes_per_second.rate(),
        set: |machine, rate| machine.link.gigabytes_per_second = rate_of(rate),
        magnitudes: RATES,
        shows: ANY,
    },
    Free {
        path: "nic.responder.read_kib_ns",
        get: |machine| machine.nic.responder.read_kib_ns.ns(),
        set: |machine, ns| machine.nic.responder.read_kib_ns = Nanoseconds::from_ns(ns),
        magnitudes: TIMES_NS,
        shows: |task| task == ProbeTask::Read,
    },
    Free {
        path: "nic.pcie.read_ns",
        get: |machine| machine.nic.pcie.read_ns.ns(),
        set: |machine, ns| machine.nic.pcie.read_ns = Nanoseconds::from_ns(ns),
        magnitudes: TIMES_NS,
        shows: ANY,
    },
    Free {
        path: "nic.pcie.gigabytes_per_second",
        get: |machine| machine.nic.pcie.gigabytes_per_second.rate(),
        set: |machine, rate| machine.nic.pcie.gigabytes_per_second = rate_of(rate),
        magnitudes: RATES,
        shows: ANY,
    },
];

/// A rate that a preset may have.
fn rate_of(rate: f64) -> GigabytesPerSecond {
    GigabytesPerSecond::from_rate(rate.clamp(0.001, 10_000.0))
}

/// What is looked for from here if it was zero, in nanoseconds.
const FROM_ZERO_NS: f64 = 100.0;
/// How far apart magnitudes are.
const MAGNITUDE: f64 = 4.0;
/// Then each number is changed by these factors.
const FACTORS: [f64; 3] = [1.3, 1.05, 1.01];
/// How often all numbers are gone through with one factor, and together, at most.
const ROUNDS_MAX: usize = 6;
/// By which fraction a number is changed to see what depends on it.
const TRIAL: f64 = 0.02;
/// A round that lessens the sum of squares by no more than this fraction, and this much, is the last one.
const GAIN_MIN: (f64, f64) = (1e-3, 1e-9);
/// Where numbers make sense, in nanoseconds or GB/s.
const BOUNDS: RangeInclusive<f64> = 0.001..=1e9;
/// A number shows if a quarter more or less of it changes a measurement by more than this fraction.
const SHOWS: f64 = 0.01;

/// A machine, and which of its numbers were chosen.
#[derive(Clone, Debug)]
pub(super) struct Fitted {
    /// The machine.
    pub machine: Machine,
    /// What was chosen.
    pub chosen: Vec<&'static str>,
    /// What could have been, had the measurements shown it.
    pub hidden: Vec<&'static str>,
}

/// Fits a machine to what was measured: points, which of their results counts, and how much it was. `progress` is told
/// how many of [`STAGES`] are over.
pub(super) fn fit(
    machine: &Machine,
    measured: &[(Point, Quantity, f64)],
    progress: &dyn Fn(usize),
) -> Result<Fitted, SimulationError> {
    let mut search = Search { best: machine.clone(), measured, errors: Vec::new() };
    // A factor changes no number that is zero.
    for free in FREE.iter().filter(|free| (free.get)(machine) == 0.0) {
        (free.set)(&mut search.best, FROM_ZERO_NS);
    }
    search.errors = errors(&search.best, &measured.iter().collect::<Vec<_>>())?;
    for round in 0..2 {
        for free in &FREE {
            search.look_everywhere(free)?;
        }
        search.all_together()?;
        progress(round + 1);
    }
    for (stage, factor) in FACTORS.into_iter().enumerate() {
        search.each_alone(factor)?;
        search.all_together()?;
        progress(stage + 3);
    }
    let (mut chosen, mut hidden) = (Vec::new(), Vec::new());
    for free in &FREE {
        if search.shows(free)? {
            chosen.push(free.path);
        } else {
            // It may have strayed where nothing shows it.
            search.take(free, (free.get)(machine))?;
            hidden.push(free.path);
        }
    }
    Ok(Fitted { machine: search.best, chosen, hidden })
}

/// How many steps of progress there are.
pub const STAGES: usize = FACTORS.len() + 2;

struct Search<'a> {
    best: Machine,
    measured: &'a [(Point, Quantity, f64)],
    /// By measurement: the logarithm of modelled over measured.
    errors: Vec<f64>,
}

impl Search<'_> {
    /// Tries a number at all magnitudes.
    fn look_everywhere(&mut self, free: &Free) -> Result<(), SimulationError> {
        let (mut value, most) = free.magnitudes;
        while value <= most {
            self.keep_if_better(free, value)?;
            value *= MAGNITUDE;
        }
        Ok(())
    }

    /// Changes each number by a factor, up and down, for as long as that helps.
    fn each_alone(&mut self, factor: f64) -> Result<(), SimulationError> {
        for _ in 0..ROUNDS_MAX {
            let before = squares(&self.errors);
            for free in &FREE {
                for factor in [factor, 1.0 / factor] {
                    while self.keep_if_better(free, (free.get)(&self.best) * factor)? {}
                }
            }
            if !is_better(squares(&self.errors), before) {
                break;
            }
        }
        Ok(())
    }

    fn take(&mut self, free: &Free, value: f64) -> Result<(), SimulationError> {
        if let Some((machine, errors)) = self.with(free, value)? {
            (self.best, self.errors) = (machine, errors);
        }
        Ok(())
    }

    /// Takes another number if that makes the errors less: whether it does.
    fn keep_if_better(&mut self, free: &Free, value: f64) -> Result<bool, SimulationError> {
        let Some((machine, errors)) = self.with(free, value)? else { return Ok(false) };
        let better = squares(&errors) < squares(&self.errors) - GAIN_MIN.1;
        if better {
            (self.best, self.errors) = (machine, errors);
        }
        Ok(better)
    }

    /// Changes all numbers at once (Levenberg, Marquardt), until that helps no more.
    fn all_together(&mut self) -> Result<(), SimulationError> {
        let mut damping = 1e-3;
        for _ in 0..ROUNDS_MAX {
            // How each error changes with the logarithm of each number.
            let mut slopes = Vec::new();
            for free in &FREE {
                let changed = self.with(free, (free.get)(&self.best) * (1.0 + TRIAL))?;
                let errors = changed.map_or_else(|| self.errors.clone(), |(_, errors)| errors);
                let change = errors.iter().zip(&self.errors);
                slopes.push(change.map(|(one, other)| (one - other) / TRIAL.ln_1p()).collect::<Vec<f64>>());
            }
            let before = squares(&self.errors);
            while damping < 1e3 {
                let step = self.step(&slopes, damping);
                let mut machine = self.best.clone();
                for (free, step) in FREE.iter().zip(step) {
                    (free.set)(&mut machine, (free.get)(&self.best) * step.clamp(-2.0, 2.0).exp());
                }
                let errors = errors(&machine, &self.measured.iter().collect::<Vec<_>>())?;
                if squares(&errors) < before {
                    (self.best, self.errors) = (machine, errors);
                    damping /= 10.0;
                    break;
                }
                damping *= 10.0;
            }
            if !is_better(squares(&self.errors), before) {
                break;
            }
        }
        Ok(())
    }

    /// By how much to change the logarithm of each number.
    fn step(&self, slopes: &[Vec<f64>], damping: f64) -> [f64; FREE.len()] {
        let product = |one: &[f64], other: &[f64]| -> f64 { one.iter().zip(other).map(|(a, b)| a * b).sum() };
        let mut system = [[0.0; FREE.len() + 1]; FREE.len()];
        for (row, slope) in slopes.iter().enumerate() {
            for (column, other) in slopes.iter().enumerate() {
                system[row][column] = product(slope, other);
            }
            // What shows nowhere stays.
            system[row][row] += damping * system[row][row].max(1e-6);
            system[row][FREE.len()] = -product(slope, &self.errors);
        }
        solve(system)
    }

    /// The machine with another number, and how far it is off; none if it makes no sense.
    fn with(&self, free: &Free, value: f64) -> Result<Option<(Machine, Vec<f64>)>, SimulationError> {
        if value != 0.0 && !BOUNDS.contains(&value) {
            return Ok(None);
        }
        let mut machine = self.best.clone();
        (free.set)(&mut machine, value);
        let shown = |place: &usize| (free.shows)(self.measured[*place].0.task);
        let places: Vec<usize> = (0..self.measured.len()).filter(shown).collect();
        let changed =
            errors(&machine, &places.iter().map(|place| &self.measured[*place]).collect::<Vec<_>>())?;
        let mut errors = self.errors.clone();
        for (place, error) in places.into_iter().zip(changed) {
            errors[place] = error;
        }
        Ok(Some((machine, errors)))
    }

    /// Whether any measurement shows a number.
    fn shows(&self, free: &Free) -> Result<bool, SimulationError> {
        for factor in [1.25, 0.8] {
            let Some((_, errors)) = self.with(free, (free.get)(&self.best) * factor)? else { continue };
            if errors.iter().zip(&self.errors).any(|(one, other)| (one - other).abs() > SHOWS) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Solves as many equations as there are unknowns, by elimination; what an equation does not say is zero.
fn solve<const N: usize, const M: usize>(mut system: [[f64; M]; N]) -> [f64; N] {
    for column in 0..N {
        let pivot = (column..N)
            .max_by(|one, other| system[*one][column].abs().total_cmp(&system[*other][column].abs()));
        system.swap(column, pivot.unwrap_or(column));
        if system[column][column].abs() < f64::MIN_POSITIVE {
            continue;
        }
        for row in (0..N).filter(|row| *row != column) {
            let (factor, pivot) = (system[row][column] / system[column][column], system[column]);
            for (number, other) in system[row].iter_mut().zip(pivot) {
                *number -= factor * other;
            }
        }
    }
    std::array::from_fn(
        |row| {
            if system[row][row] == 0.0 { 0.0 } else { system[row][M - 1] / system[row][row] }
        },
    )
}

/// Whether one sum of squares is notably less than another.
fn is_better(one: f64, other: f64) -> bool {
    one < other * (1.0 - GAIN_MIN.0) - GAIN_MIN.1
}

fn squares(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error * error).sum()
}

/// How far a machine is off each measurement; the worlds run side by side on the cores there are.
fn errors(machine: &Machine, measured: &[&(Point, Quantity, f64)]) -> Result<Vec<f64>, SimulationError> {
    let (threads, next) = (std::thread::available_parallelism().map_or(1, Into::into), AtomicUsize::new(0));
    let work = || {
        let mut found = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = measured.get(place) else { return found };
            found.push((place, error(machine, one)));
        }
    };
    let mut errors = vec![0.0; measured.len()];
    let found: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.min(measured.len())).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("a world's panic is an error of it"))
            .collect()
    });
    for (place, error) in found {
        errors[place] = error?;
    }
    Ok(errors)
}

fn error(
    machine: &Machine,
    (point, quantity, measured): &(Point, Quantity, f64),
) -> Result<f64, SimulationError> {
    let result = run(&Arc::new(machine.clone()), &Experiment::from(*point))?.value;
    Ok((quantity.of(result.mops, result.latency_us) / measured).ln())
}
