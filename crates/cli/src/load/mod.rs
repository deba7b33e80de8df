//! `locus load`: stores the records of a file, many puts at a time.
//!
//! One thread reads, parses and posts: the iterator of records is asked for the next one whenever a put has finished.
//! Records of the same key are stored in the order of the file, so the last one stays.

mod format;
mod input;
mod lines;
mod progress;
mod report;

use crate::{Outcome, connect::Connect, output};
use anyhow::{Context, anyhow};
use clap::Args;
use format::{Columns, Format, Record, Records};
use input::Input;
use locus::{Error, Table};
use progress::Progress;
use report::Report;
use std::{cell::RefCell, path::PathBuf};

/// How many puts are under way at once.
const WINDOW: usize = 32;

/// What to load.
#[derive(Args, Debug)]
#[command(after_help = "Formats:
  tsv     key, tab, value; fields are taken as they are, without quotes or escapes
  csv     RFC 4180: fields with commas, quotes or line breaks stand in quotes
  ndjson  an object per line; a value that is not a string is stored as its JSON text

Without --key-column and --value-column, a line of TSV or CSV has exactly two fields, key and value.
Of several records with the same key, the last one stays.
Bad lines are reported by number and skipped (exit status 1), or end the load with --strict.

Examples:
  locus load records.tsv
  locus load --key-column id --value-column name people.csv
  locus load --format ndjson --key-column user --strict - < events
  zcat records.tsv.gz | locus load --format tsv -")]
pub struct LoadArgs {
    #[command(flatten)]
    connect: Connect,
    /// The file, or - for standard input
    file: PathBuf,
    /// tsv, csv or ndjson [default: by the file's ending]
    #[arg(long, value_name = "NAME")]
    format: Option<Format>,
    /// Stop at the first bad line
    #[arg(long)]
    strict: bool,
    /// The first line of TSV or CSV has the names of the columns
    #[arg(long)]
    header: bool,
    /// Where the key is: a number from 1, or a name (then there is a header) [default: 1; ndjson: key]
    #[arg(long, visible_alias = "key-field", value_name = "COLUMN")]
    key_column: Option<String>,
    /// Where the value is: likewise [default: 2; ndjson: value]
    #[arg(long, visible_alias = "value-field", value_name = "COLUMN")]
    value_column: Option<String>,
}

/// Loads the file.
pub fn run(arguments: &LoadArgs) -> anyhow::Result<Outcome> {
    let format = arguments.format.map_or_else(|| Format::of_file(&arguments.file), Ok)?;
    let columns =
        Columns::new(arguments.key_column.clone(), arguments.value_column.clone(), arguments.header);
    let input = Input::open(&arguments.file)?;
    let table = arguments.connect.table(WINDOW)?;
    let progress = Progress::new(input.bytes(), input.position());
    let records = format.read(input, columns).with_context(|| arguments.file.display().to_string())?;
    let run = Run { report: Report::new(arguments.strict), progress, fatal: RefCell::default() };
    run.store(&table, records);
    run.finish()
}

/// A load under way. The reader of records and the receiver of results take turns on it.
struct Run {
    report: Report,
    progress: Progress,
    /// What ended the load early.
    fatal: RefCell<Option<anyhow::Error>>,
}

impl Run {
    fn store(&self, table: &Table, mut records: Records) {
        let next = || {
            while !self.ended() {
                match records.next()? {
                    Ok(Record { line, content: Ok((key, value)) }) => {
                        return Some((Numbered { line, key }, value));
                    }
                    Ok(Record { line, content: Err(reason) }) => self.bad(line, &reason),
                    Err(error) => self.fail(anyhow!(error).context("reading the file")),
                }
            }
            None
        };
        table.put_many_with(std::iter::from_fn(next), |(key, value), result| match result {
            Ok(()) => self.progress.stored(key.key.len() + value.len()),
            Err(error @ (Error::KeyLength(_) | Error::ValueLength { .. } | Error::Collisions)) => {
                self.bad(key.line, &error.to_string());
            }
            Err(error) => self.fail(anyhow!(error).context(format!("storing line {}", key.line))),
        });
    }

    fn bad(&self, line: u64, reason: &str) {
        self.progress.around(|| self.report.bad(line, reason));
    }

    /// Only the first failure is told: what was under way fails likewise.
    fn fail(&self, error: anyhow::Error) {
        self.fatal.borrow_mut().get_or_insert(error);
    }

    fn ended(&self) -> bool {
        self.report.stopped() || self.fatal.borrow().is_some()
    }

    fn finish(self) -> anyhow::Result<Outcome> {
        let done = self.progress.finish();
        let stored = format!("{done}; {}", self.report.summary());
        if let Some(error) = self.fatal.into_inner() {
            return Err(error.context(format!("the load stopped early ({stored}; it can be run again)")));
        }
        if self.report.stopped() {
            anyhow::bail!("--strict: stopped at the first bad line ({stored})");
        }
        output::print(&format!("{stored}\n"))?;
        Ok(if self.report.any() { Outcome::Partly } else { Outcome::Done })
    }
}

/// A key that remembers its line.
struct Numbered {
    line: u64,
    key: Vec<u8>,
}

impl AsRef<[u8]> for Numbered {
    fn as_ref(&self) -> &[u8] {
        &self.key
    }
}
