//! `locus history`: judges what clients saw, of whatever store, and what `locus bench --history` recorded.

use crate::Outcome;
use anyhow::{Context, bail};
use clap::Args;
use locus_history::{History, Limits, Verdict, check, minimise, ndjson};
use std::{
    collections::HashSet,
    fs::File,
    io::{self, BufWriter, Read},
    path::{Path, PathBuf},
};

/// Which history.
#[derive(Args, Debug)]
#[command(
    after_help = "A history is linearizable if its operations can be put into one order, each at some moment between its
invocation and its return, in which a plain map would have given the same answers. All keys are absent at first.

Each line is an object:
  {\"client\": 0, \"op\": \"put\", \"key\": \"k\", \"value\": \"v\", \"invoked_ns\": 1, \"returned_ns\": 2, \"outcome\": \"ok\"}
  {\"client\": 1, \"op\": \"get\", \"key\": \"k\", \"value\": null, \"found\": false, \"invoked_ns\": 3, ...}
  {\"client\": 1, \"op\": \"delete\", \"key\": \"k\", \"value\": null, \"found\": true, \"invoked_ns\": 5, ...}
value is what a get found, null if the key was absent; returned_ns is null for what never returned; outcome is \"unknown\"
where nobody knows whether it took effect. Bytes that are not UTF-8 are written as hex: and their digits.

Exit status: 0 it is linearizable; 1 that could not be decided; 2 wrong usage; 3 it is not, or cannot be read.

Examples:
  locus bench --history history.ndjson --clients 4 --records 100
  locus history history.ndjson"
)]
pub struct HistoryArgs {
    /// The file, as locus bench and locus sim check write it; - is standard input
    file: PathBuf,
    /// It is that of a cache, which may forget any key at any moment; that is then absent until it is put again
    #[arg(long)]
    cache: bool,
}

pub fn run(arguments: &HistoryArgs) -> anyhow::Result<Outcome> {
    let file = arguments.file.as_path();
    let source: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(file).with_context(|| format!("opening {}", file.display()))?),
    };
    let history = ndjson::read(source).with_context(|| file.display().to_string())?;
    judge(&if arguments.cache { history.of_cache() } else { history })
}

/// Says in a line whether a history is linearizable. If it is not, that is an error, which shows the contradiction.
pub fn judge(history: &History) -> anyhow::Result<Outcome> {
    let operations = history.operations();
    let clients: HashSet<_> = operations.iter().map(|operation| operation.client).collect();
    let keys: HashSet<_> = operations.iter().map(|operation| &operation.key).collect();
    let what = format!(
        "history of {} operations of {} clients on {} keys",
        operations.len(),
        clients.len(),
        keys.len()
    );
    let limits = Limits::default();
    match check(history, &limits) {
        Verdict::Linearizable => {
            println!("{what}: {}", promise(history));
            Ok(Outcome::Done)
        }
        Verdict::Undecided(undecided) => {
            println!("{what}: {undecided}");
            Ok(Outcome::Partly)
        }
        Verdict::Violation(violation) => {
            let few = minimise(history, &violation.key, &limits);
            let few = few.map_or(String::new(), |few| format!("a few that contradict each other:\n{few}"));
            bail!("{what}: not {}\n{}", promise(history), format!("{violation}{few}").trim_end())
        }
    }
}

/// What is said of a history that keeps what its store promises.
pub fn promise(history: &History) -> &'static str {
    if history.is_of_cache() { "linearizable for a cache" } else { "linearizable" }
}

/// Creates the file for a history.
pub fn create(file: &Path) -> anyhow::Result<File> {
    File::create(file).with_context(|| format!("creating {}", file.display()))
}

/// Writes a history to a file that was created for it.
pub fn write(history: &History, to: File, file: &Path) -> anyhow::Result<()> {
    ndjson::write(history, BufWriter::new(to)).with_context(|| format!("writing {}", file.display()))
}
