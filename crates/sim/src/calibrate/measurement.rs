//! Measurements, and how near to them the model comes.

use super::{Experiment, Result, run};
use crate::Preset;
use locus_fabric::sim::SimulationError;
use serde::Deserialize;
use std::collections::HashMap;

/// How far a fitted measurement may be off.
const FITTED_WITHIN: f64 = 0.10;
/// And one that was only checked.
const CHECKED_WITHIN: f64 = 0.20;

/// Something that somebody measured of the raw verbs of a cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// What.
    pub what: String,
    /// Where it is written.
    pub source: String,
    /// What the number is of.
    pub quantity: Quantity,
    /// The number.
    pub measured: f64,
    /// Whether the number itself was measured, or a bound.
    #[serde(default)]
    pub relation: Relation,
    /// Whether numbers of the preset were chosen so that it comes out.
    #[serde(rename = "use")]
    pub used: Use,
    /// How to measure it on the model.
    pub experiment: Experiment,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Million operations per second.
    Mops,
    /// Microseconds on average.
    LatencyUs,
}

impl Quantity {
    /// Which of the two it is.
    pub(crate) fn of(self, mops: f64, latency_us: f64) -> f64 {
        match self {
            Self::Mops => mops,
            Self::LatencyUs => latency_us,
        }
    }
}

/// How the number stands to what was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// It is that.
    #[default]
    Equal,
    /// It was never more.
    AtMost,
    /// It was never less.
    AtLeast,
}

/// What a measurement is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// Numbers of the preset were chosen so that it comes out.
    Fitted,
    /// Nothing was chosen for its sake.
    Checked,
}

/// A measurement beside what the model gives.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The measurement.
    pub measurement: Measurement,
    /// What the model gives.
    pub modelled: f64,
    /// How far that is off, as a fraction of what was measured; nothing within a bound.
    pub error: f64,
}

impl Measurement {
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        if self.measured > 0.0 && self.measured.is_finite() {
            Ok(())
        } else {
            Err(format!("measured is {}, and must be positive", self.measured))
        }
    }
}

impl Comparison {
    /// How far it may be off, as a fraction.
    pub fn tolerance(&self) -> f64 {
        match self.measurement.used {
            Use::Fitted => FITTED_WITHIN,
            Use::Checked => CHECKED_WITHIN,
        }
    }

    /// Whether the model is near enough.
    pub fn holds(&self) -> bool {
        self.error.abs() <= self.tolerance()
    }
}

/// Runs every measurement of a preset on its model; `progress` is told how many are done.
pub fn compare(
    preset: &Preset,
    progress: &dyn Fn(usize),
) -> std::result::Result<Vec<Comparison>, SimulationError> {
    let mut results: HashMap<&Experiment, Result> = HashMap::new();
    let mut comparisons = Vec::new();
    for (done, measurement) in preset.measurements.iter().enumerate() {
        let result = match results.get(&measurement.experiment) {
            Some(result) => *result,
            None => run(&preset.machine, &measurement.experiment)?.value,
        };
        results.insert(&measurement.experiment, result);
        let modelled = measurement.quantity.of(result.mops, result.latency_us);
        let off = modelled / measurement.measured - 1.0;
        let error = match measurement.relation {
            Relation::Equal => off,
            Relation::AtMost => off.max(0.0),
            Relation::AtLeast => off.min(0.0),
        };
        comparisons.push(Comparison { measurement: measurement.clone(), modelled, error });
        progress(done + 1);
    }
    Ok(comparisons)
}
