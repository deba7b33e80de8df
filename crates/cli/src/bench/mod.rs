//! `locus bench`: measures designs and peers side by side, and prints one table.

mod command;
mod footprint;
mod growth;
mod recording;
mod system;

use crate::{Outcome, choices::Choices, history};
use anyhow::{Context, bail};
use clap::{Args, builder::ArgPredicate::IsPresent};
use locus_bench::{BenchOptions, Distribution, PeerKind, Starter, Workload};
use locus_store::{DESIGNS, Design};
use recording::Recording;
use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
    sync::Arc,
};
use system::{Gets, LocusStarter, Place, Raw};

/// What to measure. The defaults are those of a quick look.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  locus bench --design pilaf,pilaf-vo --workload c --peers lmdb
  locus bench --design pilaf --raw --workload c --distribution uniform --runs 5
  locus bench --design pilaf-vo --raw --workload c,w --distribution uniform
  locus bench --design pilaf-vo --request rc-write --reply rc-write
  locus bench --design pilaf --get-many --workload c --distribution uniform --window 1,16
  locus bench --design all --value-bytes 32,128,512 --window 1,16 --html report.html
  locus bench --design pilaf --growth --records 10000000
  locus bench --design pilaf --footprint
  locus bench --history history.ndjson --clients 4 --window 4
  locus bench --design pilaf-vo --window 1,16 --peers memcached-unix,redis-unix --json rows.json")]
pub struct BenchArgs {
    /// Designs, or `all`. Within a workload, a window and a length of values the table has the one with the highest
    /// throughput first
    #[arg(long, value_delimiter = ',', default_value = "pilaf,pilaf-vo", value_name = "NAME")]
    #[arg(default_value_if("history", IsPresent, "pilaf"))]
    design: Vec<String>,
    #[command(flatten)]
    choices: Choices,
    /// `shm` starts a server of its own for each design; an address measures the server that is there, and writes to it
    #[arg(long, default_value = "shm", value_name = "shm|ADDR")]
    fabric: String,
    /// Beside the designs, the limits under their gets and puts: bare READs at random places of the same memory (with
    /// workload c), and echoes by WRITE and by SEND as long as requests and replies
    #[arg(long)]
    raw: bool,
    /// Beside each design, gets in batches as wide as the window, by get_many
    #[arg(long)]
    get_many: bool,
    /// Instead of workloads: let a store grow to so many records under half puts and half gets, and show what they take
    #[arg(long, conflicts_with_all = ["workload", "peers", "raw", "get_many", "footprint"])]
    growth: bool,
    /// Instead of workloads: show what a record takes besides key and value, for values of 32 bytes to 4 KiB
    #[arg(long, conflicts_with_all = ["workload", "peers", "raw", "get_many"])]
    footprint: bool,
    /// YCSB workloads: a (50% gets), b (95%), c (100%), d (latest), f (read, modify, write); and w (updates only; not of
    /// YCSB)
    #[arg(long, value_delimiter = ',', default_value = "a,b,c", value_name = "NAME")]
    #[arg(default_value_if("history", IsPresent, "a"))]
    workload: Vec<Workload>,
    /// zipfian, uniform or latest, in place of the workload's own
    #[arg(long, value_name = "NAME")]
    distribution: Option<Distribution>,
    /// Records loaded before measuring
    #[arg(long, default_value_t = 1_000_000, default_value_if("history", IsPresent, "1000"))]
    records: u64,
    /// Length of keys
    #[arg(long, default_value_t = 16)]
    key_bytes: usize,
    /// Length of values; several lengths are measured one after the other, each with servers of its own
    #[arg(long, value_delimiter = ',', default_value = "64")]
    value_bytes: Vec<usize>,
    /// Connections, each with a thread of its own
    #[arg(long, default_value_t = 1, default_value_if("history", IsPresent, "2"))]
    clients: usize,
    /// Operations outstanding per client; several widths are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "1")]
    window: Vec<usize>,
    /// Cores of the Locus server
    #[arg(long, default_value_t = 1)]
    server_cores: usize,
    /// Open loop: operations per second of all clients together
    #[arg(long)]
    rate: Option<f64>,
    /// How long each measurement takes
    #[arg(long, default_value_t = 3.0, default_value_if("history", IsPresent, "0.1"))]
    seconds: f64,
    /// How long each measurement warms up before
    #[arg(long, default_value_t = 0.5, default_value_if("history", IsPresent, "0"))]
    warmup_seconds: f64,
    /// Measurements of each row, which then has the medians
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Check every byte of what is read, not its length alone
    #[arg(long)]
    verify: bool,
    /// Record the latency of one operation in this many
    #[arg(long, default_value_t = 1)]
    latency_every: u32,
    /// memcached, memcached-unix, redis, redis-unix, lmdb
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    peers: Vec<PeerKind>,
    /// Keep Locus's memory on pages of the base size
    #[arg(long)]
    small_pages: bool,
    /// Seed of the operations drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also write the rows as JSON
    #[arg(long, value_name = "FILE", conflicts_with_all = ["growth", "footprint"])]
    json: Option<PathBuf>,
    /// Also write a report with charts: one page that needs no network and no scripts. It names neither this machine nor
    /// its files
    #[arg(long, value_name = "FILE", conflicts_with_all = ["growth", "footprint"])]
    html: Option<PathBuf>,
    /// Also record every operation, of loading and warm-up too, write them as NDJSON, and judge whether they are
    /// linearizable. For short runs: a history takes 2 million operations and 512 MiB of keys and values. The defaults
    /// become `--design pilaf --workload a --records 1000 --clients 2 --seconds 0.1 --warmup-seconds 0`. Figures include
    /// the recording. With --get-many, all gets are in batches. At an address, nobody else may write
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

/// Runs the benchmark and prints the table. An error if a row could not be measured, or if what clients saw is not
/// linearizable.
pub fn run(arguments: BenchArgs) -> anyhow::Result<Outcome> {
    let options = arguments.options();
    if arguments.value_bytes.len() > 1 && (arguments.growth || arguments.history.is_some()) {
        bail!("--growth and --history are of one length of values: give one (--value-bytes)");
    }
    if let Some(file) = &arguments.history {
        arguments.refuse_what_is_no_history()?;
        return run_recorded(&arguments, &options, file);
    }
    if arguments.growth || arguments.footprint {
        let measure = if arguments.growth { growth::run } else { footprint::run };
        let design = arguments.designs()?.first().copied().context("a design is needed")?;
        return measure(design, &options, &arguments.place()?).map(|()| Outcome::Done);
    }
    let mut starters = arguments.starters(None)?;
    starters.extend(arguments.peers.iter().map(|peer| peer.starter()));
    measure(&arguments, &options, &starters)?;
    Ok(Outcome::Done)
}

/// The same with every operation recorded. What was recorded of a run that failed is judged all the same.
fn run_recorded(arguments: &BenchArgs, options: &BenchOptions, file: &Path) -> anyhow::Result<Outcome> {
    let recording = Arc::new(Recording::new(options, recording::ROOM)?);
    let starters = arguments.starters(Some(&recording))?;
    let to = history::create(file)?;
    let measured = measure(arguments, options, &starters);
    drop(starters);
    let recording = Arc::into_inner(recording).context("somebody still records: a bug")?;
    let (history, full) = recording.end()?;
    history::write(&history, to, file)?;
    let verdict = history::judge(&history)?;
    if let Some(full) = full {
        bail!("{full}");
    }
    measured?;
    Ok(verdict)
}

fn measure(
    arguments: &BenchArgs,
    options: &BenchOptions,
    starters: &[Box<dyn Starter>],
) -> anyhow::Result<()> {
    let (json, html) = (&arguments.json, &arguments.html);
    for file in json.iter().chain(html) {
        // Told before measuring rather than after, and what is there stays until then.
        OpenOptions::new().create(true).append(true).open(file).with_context(|| writing(file))?;
    }
    let report = locus_bench::run_with_values(options, &arguments.value_bytes, starters)?;
    println!("{report}");
    if let Some(file) = json {
        std::fs::write(file, report.to_json()).with_context(|| writing(file))?;
    }
    if let Some(file) = html {
        let command = command::of(std::env::args());
        std::fs::write(file, report.to_html(&command)).with_context(|| writing(file))?;
    }
    if !report.is_complete() {
        bail!("some rows could not be measured, or had errors: see the table");
    }
    Ok(())
}

fn writing(file: &Path) -> String {
    format!("writing {}", file.display())
}

impl BenchArgs {
    fn options(&self) -> BenchOptions {
        BenchOptions {
            workloads: self.workload.clone(),
            distribution: self.distribution,
            records: self.records,
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes[0],
            clients: self.clients,
            windows: self.window.clone(),
            server_cores: self.server_cores,
            rate: self.rate,
            seconds: self.seconds,
            warmup_seconds: self.warmup_seconds,
            runs: self.runs,
            verify: self.verify,
            latency_every: self.latency_every,
            peers: self.peers.clone(),
            seed: self.seed,
            ..BenchOptions::default()
        }
    }

    fn place(&self) -> anyhow::Result<Place> {
        Ok(match self.fabric.as_str() {
            "shm" => Place::Own { small_pages: self.small_pages },
            address => Place::Running(address.parse()?),
        })
    }

    fn designs(&self) -> anyhow::Result<Vec<&'static Design>> {
        let mut designs = Vec::new();
        for name in &self.design {
            let named: Vec<_> = match (name.as_str(), Design::find(name)) {
                ("all", _) if self.choices.is_none() => DESIGNS.iter().collect(),
                ("all", _) => bail!(
                    "all designs with other choices than their own would differ in little else: name a design (--design), \
                     or leave --index, --reads, --request and --reply out"
                ),
                (_, Some(design)) => vec![self.choices.instead_of(design)?],
                (_, None) => bail!("there is no design {name:?}: `locus designs` lists them"),
            };
            // Designs may differ in nothing but what was chosen instead.
            for design in named {
                if !designs.contains(&design) {
                    designs.push(design);
                }
            }
        }
        Ok(designs)
    }

    /// A history is of one store, of what clients of Locus put and got there.
    fn refuse_what_is_no_history(&self) -> anyhow::Result<()> {
        if self.growth || self.footprint {
            bail!("--history records workloads: leave --growth and --footprint out");
        }
        if !self.peers.is_empty() {
            bail!("--history records what clients of Locus see: leave --peers out");
        }
        if self.raw {
            bail!("--raw carries no keys and values that a history could have: leave it out");
        }
        if self.designs()?.len() != 1 {
            bail!("a history is of one store, and each design has its own: name one (--design)");
        }
        Ok(())
    }

    fn starters(&self, recording: Option<&Arc<Recording>>) -> anyhow::Result<Vec<Box<dyn Starter>>> {
        let place = self.place()?;
        let ways: &[_] = match (self.get_many, recording) {
            (false, _) => &[Gets::Single],
            (true, None) => &[Gets::Single, Gets::Many],
            // Each way has a store of its own, and a history is of one.
            (true, Some(_)) => &[Gets::Many],
        };
        let mut starters: Vec<Box<dyn Starter>> = Vec::new();
        for design in self.designs()? {
            for &gets in ways {
                starters.push(Box::new(LocusStarter {
                    design,
                    gets,
                    place: place.clone(),
                    recording: recording.cloned(),
                }));
            }
        }
        if self.raw && self.verify {
            bail!("--raw carries no values that could be verified: leave --verify out");
        }
        if self.raw {
            let design = Design::find("pilaf").expect("a row of the table");
            let gets_alone = self.workload.iter().all(|&workload| workload == Workload::C);
            for &raw in if gets_alone { &Raw::ALL[..] } else { &Raw::ECHOES } {
                starters.push(Box::new(LocusStarter {
                    design,
                    gets: Gets::Raw(raw),
                    place: place.clone(),
                    recording: None,
                }));
            }
        }
        Ok(starters)
    }
}
