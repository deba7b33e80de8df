//! `locus sim`: what runs in simulated worlds.

mod bench;
mod calibrate;
mod check;
mod measure;

use crate::Outcome;
use clap::{Args, Subcommand};

/// Run stores in simulated worlds: the same code, in virtual time and from a seed
#[derive(Args, Debug)]
pub struct SimArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Explore hostile worlds by their seeds, and judge what their clients saw
    Check(check::CheckArgs),
    /// Say what a design would do on a cluster
    Bench(bench::BenchArgs),
    /// Hold the model of a cluster's machines to what was measured of their raw verbs
    Calibrate(calibrate::CalibrateArgs),
    /// Measure the raw verbs of a real fabric, and write a preset from them
    Measure(measure::MeasureArgs),
}

pub fn run(arguments: SimArgs) -> anyhow::Result<Outcome> {
    match arguments.command {
        Command::Check(arguments) => check::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Calibrate(arguments) => calibrate::run(&arguments),
        Command::Measure(arguments) => measure::run(&arguments),
    }
}
