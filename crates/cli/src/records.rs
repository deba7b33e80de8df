//! `locus get`, `locus put`, `locus del`: one record.

use crate::{Outcome, connect::Connect, output};
use anyhow::Context;
use clap::Args;
use std::{
    ffi::{OsStr, OsString},
    io::Read,
    os::unix::ffi::OsStrExt,
};

/// The key to look for.
#[derive(Args, Debug)]
#[command(after_help = "Exit status 1 if the key is absent.

Examples:
  locus get greeting
  locus get --connect shm:/tmp/locus.sock picture > picture.png")]
pub struct GetArgs {
    #[command(flatten)]
    connect: Connect,
    /// 1 byte to 1 KiB
    key: OsString,
}

/// The record to store.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  locus put greeting 'hello, world'
  locus put picture - < picture.png
  locus put -- -key '-value'")]
pub struct PutArgs {
    #[command(flatten)]
    connect: Connect,
    /// 1 byte to 1 KiB
    key: OsString,
    /// The value, or - to read it from standard input
    value: OsString,
}

/// The key to remove.
#[derive(Args, Debug)]
#[command(after_help = "Exit status 1 if the key is absent.

Example:
  locus del greeting")]
pub struct DelArgs {
    #[command(flatten)]
    connect: Connect,
    /// 1 byte to 1 KiB
    key: OsString,
}

/// Writes the value of a key to standard output.
pub fn get(arguments: &GetArgs) -> anyhow::Result<Outcome> {
    let table = arguments.connect.table(1)?;
    match table.get_with(arguments.key.as_bytes(), output::print_bytes)? {
        Some(written) => {
            written?;
            Ok(Outcome::Done)
        }
        None => Ok(absent(&arguments.key)),
    }
}

/// Stores a value.
pub fn put(arguments: &PutArgs) -> anyhow::Result<Outcome> {
    let table = arguments.connect.table(1)?;
    if arguments.value == "-" {
        // One byte over the limit is enough to be told of it.
        let limit = table.value_bytes_max()? as u64 + 1;
        let mut value = Vec::new();
        std::io::stdin()
            .take(limit)
            .read_to_end(&mut value)
            .context("reading the value from standard input")?;
        table.put(arguments.key.as_bytes(), &value)?;
    } else {
        table.put(arguments.key.as_bytes(), arguments.value.as_bytes())?;
    }
    Ok(Outcome::Done)
}

/// Removes a key.
pub fn del(arguments: &DelArgs) -> anyhow::Result<Outcome> {
    let present = arguments.connect.table(1)?.delete(arguments.key.as_bytes())?;
    Ok(if present { Outcome::Done } else { absent(&arguments.key) })
}

fn absent(key: &OsStr) -> Outcome {
    eprintln!("locus: there is no key {:?}", String::from_utf8_lossy(key.as_bytes()));
    Outcome::Partly
}
