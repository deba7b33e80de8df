//! `locus sim calibrate`: holds a preset to what was measured of raw verbs.

use crate::Outcome;
use anyhow::bail;
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use locus_sim::{
    Preset,
    calibrate::{Comparison, Quantity, Relation, Use, compare},
};
use std::time::Duration;

/// Which machine to look at.
#[derive(Args, Debug)]
#[command(
    after_help = "Runs the raw verbs on the model of a machine and prints what was measured of the real one beside what the
model gives. Measurements that numbers of the preset were fitted to must be met within 10%, others within 20%.

Exit status: 0 all are met; 3 one is not.

Examples:
  locus sim calibrate apt
  locus sim calibrate my-cluster.toml"
)]
pub struct CalibrateArgs {
    /// A preset that comes along, or a TOML file
    #[arg(value_name = "PRESET")]
    preset: String,
}

pub fn run(arguments: &CalibrateArgs) -> anyhow::Result<Outcome> {
    let preset = Preset::find(&arguments.preset)?;
    println!("{}: {}", preset.name, preset.description);
    if !preset.calibrated {
        println!("This preset is not calibrated: it is derived from others.");
    }
    if preset.measurements.is_empty() {
        println!("It names no measurement to hold it to.");
        return Ok(Outcome::Done);
    }
    let bar = ProgressBar::new(preset.measurements.len() as u64);
    let style = ProgressStyle::with_template("[{bar:40}] {pos} of {len} measurements");
    bar.set_style(style.expect("a template that makes sense"));
    bar.enable_steady_tick(Duration::from_millis(200));
    let comparisons = compare(&preset, &|done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    println!("{}", table(&comparisons));
    let fitted_to = comparisons.iter().filter(|one| one.measurement.used == Use::Fitted).count();
    println!("{} numbers of the preset are fitted to {fitted_to} measurements.", preset.fitted.len());
    let off: Vec<&str> =
        comparisons.iter().filter(|one| !one.holds()).map(|one| one.measurement.what.as_str()).collect();
    if !off.is_empty() {
        bail!("{} of {} measurements are not met: {}", off.len(), comparisons.len(), off.join("; "));
    }
    Ok(Outcome::Done)
}

pub(super) fn table(comparisons: &[Comparison]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["measurement", "source", "measured", "modelled", "error", "used", ""]);
    for comparison in comparisons {
        let measurement = &comparison.measurement;
        let (unit, digits) = match measurement.quantity {
            Quantity::Mops => ("Mops", if measurement.measured < 10.0 { 3 } else { 2 }),
            Quantity::LatencyUs => ("us", 2),
        };
        let bound = match measurement.relation {
            Relation::Equal => "",
            Relation::AtMost => "<= ",
            Relation::AtLeast => ">= ",
        };
        table.add_row([
            measurement.what.clone(),
            measurement.source.clone(),
            format!("{bound}{:.digits$} {unit}", measurement.measured),
            format!("{:.digits$} {unit}", comparison.modelled),
            format!("{:+.1}%", comparison.error * 100.0),
            match measurement.used {
                Use::Fitted => "fitted",
                Use::Checked => "checked",
            }
            .into(),
            if comparison.holds() { "" } else { "OFF" }.into(),
        ]);
    }
    for column in 2..5 {
        table.column_mut(column).expect("there are seven").set_cell_alignment(CellAlignment::Right);
    }
    table
}
