//! The locus command: serves a store, and works with one that is served.
#![forbid(unsafe_code)]

mod bench;
mod choices;
mod connect;
mod designs;
mod history;
mod info;
mod load;
mod output;
mod records;
mod serve;
mod sim;
mod size;
mod stats;
mod token;

use clap::{Parser, Subcommand};
use std::{ffi::OsString, process::ExitCode};

/// An in-memory store whose clients read the server's memory themselves.
#[derive(Parser, Debug)]
#[command(
    name = "locus",
    version,
    after_help = "Exit status: 0 done; 1 the key is absent, lines were bad and skipped, or a verdict is open; 2 wrong usage; 3 failed.

Examples:
  locus serve &
  locus put greeting 'hello, world'
  locus get greeting
  locus load records.tsv
  locus COMMAND --help"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve a store until Ctrl-C; its data is kept in memory only
    Serve(serve::ServeArgs),
    /// Write the value of a key to standard output, as it is
    Get(records::GetArgs),
    /// Store a value under a key
    Put(records::PutArgs),
    /// Remove a key
    Del(records::DelArgs),
    /// Store the records of a TSV, CSV or NDJSON file
    Load(load::LoadArgs),
    /// Refused: no design that this release has keeps its keys in order
    Scan(ScanArgs),
    /// Say what a server has counted
    Stats(stats::StatsArgs),
    /// List the published designs that run
    Designs,
    /// Say what this machine offers, what is wrong with it or with the way to a server, and what to do
    Info(info::InfoArgs),
    /// Measure designs and other stores side by side
    Bench(bench::BenchArgs),
    /// Say whether what clients saw, as locus bench --history records it, is linearizable
    History(history::HistoryArgs),
    /// Run stores in simulated worlds, in virtual time and from a seed
    Sim(sim::SimArgs),
}

#[derive(clap::Args, Debug)]
struct ScanArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    any: Vec<OsString>,
}

/// How a command ended, if it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// As asked.
    Done,
    /// The key is absent, not every line was good, or nobody knows whether a history is linearizable.
    Partly,
}

fn main() -> ExitCode {
    locus_bench::become_reader_if_asked();
    match run(Arguments::parse().command) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Partly) => ExitCode::from(1),
        // Whoever read our output has seen enough of it.
        Err(error) if output::broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("locus: {error:#}");
            ExitCode::from(3)
        }
    }
}

fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Get(arguments) => records::get(&arguments),
        Command::Put(arguments) => records::put(&arguments),
        Command::Del(arguments) => records::del(&arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Scan(_) => anyhow::bail!(
            "scan needs a design that keeps keys in order, and those of this release ({}) are hash tables: \
             fetch records by key, with `locus get`",
            locus::DESIGNS.iter().map(|design| design.name).collect::<Vec<_>>().join(", ")
        ),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Designs => designs::run(),
        Command::Info(arguments) => info::run(&arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::History(arguments) => history::run(&arguments),
        Command::Sim(arguments) => sim::run(arguments),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_arguments_make_sense() {
        super::Arguments::command().debug_assert();
    }
}
