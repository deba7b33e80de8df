//! Puts the commit that is built into the reports (`LOCUS_COMMIT`).

use std::path::Path;
use std::process::Command;

fn main() {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let commit = output.ok().filter(|o| o.status.success()).and_then(|o| String::from_utf8(o.stdout).ok());
    println!("cargo::rustc-env=LOCUS_COMMIT={}", commit.as_deref().unwrap_or("unknown").trim());
    println!("cargo::rerun-if-changed=build.rs");
    // Every commit is a line in this file.
    let log = Path::new("../../.git/logs/HEAD");
    if log.exists() {
        println!("cargo::rerun-if-changed={}", log.display());
    }
}
