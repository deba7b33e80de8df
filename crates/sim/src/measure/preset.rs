//! From what was measured to a preset.

use super::{Origin, Planned, Taken, fit, text};
use crate::{Preset, PresetError, calibrate::Use};
use locus_fabric::sim::{SimulationError, performance::Nanoseconds};

/// The preset that everything is taken from which is not measured.
const OTHERS_OF: &str = "apt";

/// What a NIC declares, and the machine that it was measured on.
#[derive(Clone, Debug)]
pub struct Declared {
    /// The largest inline payload, in bytes.
    pub inline_bytes_max: usize,
    /// READs of a queue pair under way at once.
    pub reads_outstanding: usize,
    /// How many bytes of payload a packet holds.
    pub mtu_bytes: usize,
    /// Cores of the client's machine.
    pub cores: usize,
}

/// Why there is no preset.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// The model does not run.
    #[error("running the model: {0}")]
    Simulation(#[from] SimulationError),
    /// It makes no sense.
    #[error(transparent)]
    Preset(#[from] PresetError),
}

/// Makes the text of a preset of this name from measurements.
pub fn preset(
    name: &str,
    declared: &Declared,
    measured: &[(Planned, Taken)],
    source: &str,
    progress: &dyn Fn(usize),
) -> Result<String, FitError> {
    let mut machine = (*Preset::find(OTHERS_OF)?.machine).clone();
    let mut origin = Origin {
        name: name.to_owned(),
        description: format!("measured with one client and one server of echoes: {source}"),
        source: "locus sim measure".to_owned(),
        others_of: OTHERS_OF.to_owned(),
        ..Origin::default()
    };
    let mut note = |path, words: &str| origin.numbers.insert(path, words.to_owned());
    machine.nic.inline_bytes_max = declared.inline_bytes_max.min(1024);
    note("nic.inline_bytes_max", "measured: what the NIC declares");
    machine.nic.reads_outstanding = declared.reads_outstanding.clamp(1, 128);
    note("nic.reads_outstanding", "measured: what the NIC allows, of the 16 that a probe asks for");
    machine.link.mtu_bytes = declared.mtu_bytes.clamp(256, 1 << 16);
    note("link.mtu_bytes", "measured: the MTU of the port");
    machine.processor.cores = declared.cores.clamp(1, 1024);
    note("processor.cores", "measured: of the client's machine");
    machine.processor.factor = 1.0;
    note("processor.factor", "not measured: as the machine on which the store's own steps were");
    // Whatever a NIC in software does within the call, some verb does least of it.
    let least = |of: fn(&Taken) -> f64| {
        let alone = measured.iter().filter(|(planned, _)| planned.point.window == 1);
        alone.map(|(_, taken)| of(taken)).min_by(f64::total_cmp).map(f64::round)
    };
    if let (Some(post_ns), Some(poll_ns)) = (least(|taken| taken.post_ns), least(|taken| taken.poll_ns)) {
        machine.processor.post_ns = Nanoseconds::from_ns(post_ns);
        note("processor.post_ns", "measured: posting one and ringing the doorbell, the least of the medians");
        machine.processor.poll_hit_ns = Nanoseconds::from_ns(poll_ns);
        note("processor.poll_hit_ns", "measured: taking one that has ended, the least of the medians");
    }
    let values: Vec<(Planned, f64)> = measured
        .iter()
        .map(|(planned, taken)| (planned.clone(), planned.quantity.of(taken.mops, taken.latency_us)))
        .collect();
    let fitted_to: Vec<_> = values
        .iter()
        .filter(|(planned, _)| planned.used == Use::Fitted)
        .map(|(planned, value)| (planned.point, planned.quantity, *value))
        .collect();
    let fitted = fit(&machine, &fitted_to, progress)?;
    for path in &fitted.chosen {
        note(path, "fitted");
    }
    let hidden = format!("as of {OTHERS_OF}: what was measured is held up elsewhere, and does not show it");
    for path in &fitted.hidden {
        note(path, &hidden);
    }
    origin.fitted = fitted.chosen;
    let text = text(&fitted.machine, &origin, &values);
    // What was written can be read.
    Preset::parse(name, &text)?;
    Ok(text)
}
