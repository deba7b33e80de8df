//! Presets: machines of known clusters, as commented TOML files that name the source of each number and the raw-verb
//! measurements that they are held to. Users write their own in the same form.

use crate::calibrate::{Measurement, Use};
use locus_fabric::sim::performance::{LinkCosts, Machine, NicCosts, ProcessorCosts};
use serde::Deserialize;
use std::{path::Path, sync::Arc};

/// The presets that come along: name and text.
const BUILT_IN: [(&str, &str); 6] = [
    ("beaker", include_str!("../presets/beaker.toml")),
    ("nome", include_str!("../presets/nome.toml")),
    ("susitna", include_str!("../presets/susitna.toml")),
    ("apt", include_str!("../presets/apt.toml")),
    ("das5", include_str!("../presets/das5.toml")),
    ("brown", include_str!("../presets/brown.toml")),
];

/// A kind of machine, and what was measured of it.
#[derive(Clone, Debug)]
pub struct Preset {
    /// Its name.
    pub name: String,
    /// Which cluster it is of.
    pub description: String,
    /// Whether it was calibrated against measurements of that cluster.
    pub calibrated: bool,
    /// Which of its numbers were chosen so that the fitted measurements come out.
    pub fitted: Vec<String>,
    /// The costs.
    pub machine: Arc<Machine>,
    /// The measurements.
    pub measurements: Vec<Measurement>,
}

/// Why there is no such preset.
#[derive(Debug, thiserror::Error)]
pub enum PresetError {
    /// Neither a built-in one nor a file.
    #[error("there is no preset {name:?}: name one of {known}, or a TOML file")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The file cannot be read.
    #[error("reading the preset {path}: {error}")]
    Unreadable {
        /// Which.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// It is not TOML, or a field is missing, unknown, negative or of another kind.
    #[error("the preset {preset}: {error}")]
    Malformed {
        /// Which.
        preset: String,
        /// Where and why.
        error: Box<toml::de::Error>,
    },
    /// Its numbers make no sense together.
    #[error("the preset {preset}: {what}")]
    Senseless {
        /// Which.
        preset: String,
        /// What is wrong.
        what: String,
    },
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    description: String,
    calibrated: bool,
    #[serde(default)]
    fitted: Vec<String>,
    nic: NicCosts,
    link: LinkCosts,
    processor: ProcessorCosts,
    #[serde(default)]
    measurement: Vec<Measurement>,
}

impl Preset {
    /// The names of those that come along.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// One that comes along, by name, or else one from a file.
    pub fn find(name: &str) -> Result<Self, PresetError> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Self::parse(name, text);
        }
        if !Path::new(name).exists() {
            let known = Self::names().collect::<Vec<_>>().join(", ");
            return Err(PresetError::Unknown { name: name.to_owned(), known });
        }
        let text = std::fs::read_to_string(name)
            .map_err(|error| PresetError::Unreadable { path: name.to_owned(), error })?;
        Self::parse(name, &text)
    }

    /// From the text of a file.
    pub fn parse(preset: &str, text: &str) -> Result<Self, PresetError> {
        let malformed = |error| PresetError::Malformed { preset: preset.to_owned(), error: Box::new(error) };
        let senseless = |what| PresetError::Senseless { preset: preset.to_owned(), what };
        let file: File = toml::from_str(text).map_err(malformed)?;
        let table: toml::Table = toml::from_str(text).map_err(malformed)?;
        let machine = Machine { nic: file.nic, link: file.link, processor: file.processor };
        machine.check().map_err(senseless)?;
        for path in &file.fitted {
            let found = path.split('.').try_fold(&table, |table, part| table.get(part)?.as_table());
            let number = path.rsplit_once('.').and_then(|(place, name)| {
                place.split('.').try_fold(&table, |table, part| table.get(part)?.as_table())?.get(name)
            });
            if found.is_some() || number.is_none() {
                return Err(senseless(format!("fitted names {path:?}, which is no number of it")));
            }
        }
        let fitted_to = file.measurement.iter().filter(|measurement| measurement.used == Use::Fitted).count();
        if !file.fitted.is_empty() && file.fitted.len() >= fitted_to {
            return Err(senseless(format!(
                "{} numbers are fitted to {fitted_to} measurements: there must be fewer of them",
                file.fitted.len()
            )));
        }
        for measurement in &file.measurement {
            measurement
                .check()
                .map_err(|what| senseless(format!("measurement {:?}: {what}", measurement.what)))?;
        }
        Ok(Self {
            name: file.name,
            description: file.description,
            calibrated: file.calibrated,
            fitted: file.fitted,
            machine: Arc::new(machine),
            measurements: file.measurement,
        })
    }
}
