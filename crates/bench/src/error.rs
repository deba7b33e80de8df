//! What can go wrong with a benchmark, and what to do about it.

use std::io;
use std::path::PathBuf;

/// Why a benchmark, or one row of it, could not be run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A peer's program is not installed.
    #[error("{program} is not installed (not found in PATH): apt-get install {package}")]
    MissingProgram {
        /// The program looked for.
        program: &'static str,
        /// Debian's package that has it.
        package: &'static str,
    },
    /// A server process that we started did not come up.
    #[error("{program} did not start: {reason}")]
    ServerStart {
        /// The program started.
        program: String,
        /// What it said, or what we saw.
        reason: String,
    },
    /// A connection to a server could not be made, or broke.
    #[error("connection to {peer}: {source}")]
    Connection {
        /// Which server.
        peer: String,
        /// What the system said.
        source: io::Error,
    },
    /// A server sent something that its protocol does not allow here.
    #[error("{peer} answered out of protocol: {reason}")]
    Protocol {
        /// Which server.
        peer: String,
        /// What was wrong with the answer.
        reason: String,
    },
    /// LMDB refused.
    #[error("LMDB, while {during}: {source}")]
    Lmdb {
        /// What was being done.
        during: &'static str,
        /// What LMDB said.
        source: lmdb::Error,
    },
    /// The second process of the LMDB peer failed.
    #[error("the reading process {program}: {reason}")]
    Reader {
        /// The program started for it.
        program: PathBuf,
        /// What it said, or what we saw.
        reason: String,
    },
    /// The options contradict each other or ask for something that cannot be.
    #[error("{0}")]
    Options(String),
    /// The operating system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// An error of a system that this crate does not know.
    #[error("{0}")]
    Target(String),
    /// A thread that generated load panicked: a bug.
    #[error("a load-generating thread panicked: {0}")]
    Panicked(String),
}

impl BenchError {
    /// An error of the operating system, met while doing `what`.
    pub fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| BenchError::System { what, source }
    }
}
