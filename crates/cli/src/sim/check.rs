//! `locus sim check`: explores worlds by their seeds, and runs one again.

use crate::{Outcome, choices::Choices, history};
use anyhow::{Context, anyhow, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use locus_history::History;
use locus_sim::check::{Exploration, Failure, Found, Scenario, explore, run as run_world, shrink};
use locus_store::Design;
use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Which worlds to look at.
#[derive(Args, Debug)]
#[command(
    after_help = "Each world has a server, one to four clients, few hot keys of one small table, and a seed that decides
all the rest: who is held up where, what a READ sees while somebody writes, which queue pairs break, who is killed. What
the clients saw must be linearizable, key by key. Caches have room for all keys in some of the worlds, and forget in the others:
there any key may be found absent, and is so until it is put again.

Exit status: 0 all worlds are good; 3 one is not: its smallest relative is shown, with the line that runs it again.

Examples:
  locus sim check --design pilaf --seeds 0..10000
  locus sim check --design pilaf-vo --seeds 1000000.. --minutes 60
  locus sim check --design pilaf-vo --request uc-write --reply ud-send
  locus sim check --world pilaf:17:2:1:9:1 --history history.ndjson"
)]
pub struct CheckArgs {
    /// The design of the server
    #[arg(long, default_value = "pilaf", value_name = "NAME", value_parser = design, conflicts_with = "world")]
    design: &'static Design,
    #[command(flatten)]
    choices: Choices,
    /// The first seed, and the one behind the last
    #[arg(long, default_value = "0..1000", value_name = "FROM..TO", value_parser = seeds, conflicts_with = "world")]
    seeds: Range<u64>,
    /// Go on for so many minutes, from the first seed, in place of ending with the last one
    #[arg(long, value_name = "N", conflicts_with = "world")]
    minutes: Option<u64>,
    /// How many worlds run side by side [default: one per core]
    #[arg(long, value_name = "N", conflicts_with = "world")]
    threads: Option<usize>,
    /// Run this one world, as an earlier run printed it
    #[arg(long, value_name = "WORLD")]
    world: Option<Scenario>,
    /// Write what the clients of that world saw to a file, one JSON object per line; without --world, of the one that failed
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

fn design(name: &str) -> Result<&'static Design, String> {
    Design::find(name).ok_or_else(|| "there is no design of this name: see locus designs".into())
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("a range of seeds is written FROM..TO")?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is no seed"));
    let to = if to.is_empty() { u64::MAX } else { number(to)? };
    let seeds = number(from)?..to;
    if seeds.is_empty() {
        Err(format!("{text} holds no seed: TO is the one behind the last"))
    } else {
        Ok(seeds)
    }
}

pub fn run(arguments: &CheckArgs) -> anyhow::Result<Outcome> {
    // A panic of a simulated thread is a finding, and told as such.
    std::panic::set_hook(Box::new(|_| ()));
    match &arguments.world {
        Some(world) => run_again(world, arguments.history.as_deref()),
        None => look_at_all(arguments),
    }
}

fn run_again(world: &Scenario, file: Option<&Path>) -> anyhow::Result<Outcome> {
    let run = run_world(world);
    let history = match &run {
        Ok(run) => Some(&run.history),
        Err(failure) => history_of(failure),
    };
    if let (Some(file), Some(history)) = (file, history) {
        history::write(history, history::create(file)?, file)?;
    }
    let run = run.map_err(|failure| anyhow!("{world}: {failure}"))?;
    let promise = history::promise(&run.history);
    println!("{world}: {promise}, after {} ns of virtual time\n{}", run.virtual_ns, run.tally);
    Ok(Outcome::Done)
}

fn look_at_all(arguments: &CheckArgs) -> anyhow::Result<Outcome> {
    let CheckArgs { seeds, .. } = arguments;
    let design = arguments.choices.instead_of(arguments.design)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("taking note of signals")?;
    }
    let seeds = arguments.minutes.map_or(seeds.clone(), |_| seeds.start..u64::MAX);
    let deadline = arguments.minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let bar = progress_bar(deadline.is_none().then_some(seeds.end - seeds.start));
    let is_late = AtomicBool::new(false);
    let progress = |done| {
        bar.set_position(done);
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            is_late.store(true, Ordering::Relaxed);
            stop.store(true, Ordering::Relaxed);
        }
    };
    let threads = arguments.threads.unwrap_or(cores);
    let Exploration { tally, found, worlds } = explore(design.name, seeds.clone(), threads, &stop, &progress);
    bar.finish_and_clear();
    let Some(Found { scenario, failure }) = found else {
        let early = worlds < seeds.end - seeds.start && !is_late.into_inner();
        let words = if early { "interrupted: " } else { "" };
        let caches = match tally.get("worlds_with_evictions") {
            0 => String::new(),
            evicting => format!(", {evicting} of them for a cache that forgets"),
        };
        println!("{words}{worlds} worlds of {}, all linearizable{caches}\n{tally}", design.name);
        return Ok(Outcome::Done);
    };
    eprintln!("seed {} failed; looking for a smaller world that fails alike", scenario.seed);
    let (smallest, failure) = shrink(&scenario, failure);
    if let (Some(file), Some(history)) = (&arguments.history, history_of(&failure)) {
        history::write(history, history::create(file)?, file)?;
    }
    bail!(
        "world {scenario} failed, and so does this one of {} operations (first seen after {worlds} worlds): {failure}\n\
         run it again with: locus sim check --world {smallest}",
        smallest.size()
    )
}

/// How far an exploration is, if it has an end.
fn progress_bar(worlds: Option<u64>) -> ProgressBar {
    let (bar, template) = match worlds {
        Some(worlds) => {
            (ProgressBar::new(worlds), "[{bar:40}] {pos} of {len} worlds ({per_sec})  {eta} left")
        }
        None => (ProgressBar::new_spinner(), "{spinner} {pos} worlds ({per_sec})  {elapsed}"),
    };
    bar.set_style(ProgressStyle::with_template(template).expect("a template that makes sense"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn history_of(failure: &Failure) -> Option<&History> {
    match failure {
        Failure::NotLinearizable { history, .. } | Failure::Undecided { history, .. } => Some(history),
        Failure::Invariant { .. } | Failure::Unexpected(_) | Failure::World(_) => None,
    }
}
