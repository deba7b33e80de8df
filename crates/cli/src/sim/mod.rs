//! `locus sim`: what runs in simulated worlds.

mod bench;
mod check;

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
}

pub fn run(arguments: SimArgs) -> anyhow::Result<Outcome> {
    match arguments.command {
        Command::Check(arguments) => check::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
    }
}
