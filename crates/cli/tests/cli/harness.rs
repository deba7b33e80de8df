//! Starts servers and runs commands.

use rustix::process::{Pid, Signal, kill_process};
use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A command that was run to its end.
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ran {
    fn new(output: Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Self { status: output.status, stdout: output.stdout, stderr }
    }

    /// What it wrote, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// It did what it was asked, and had nothing to say on standard error.
    #[track_caller]
    pub fn done(self) -> Self {
        assert_eq!((self.status.code(), self.stderr.as_str()), (Some(0), ""), "{}", self.text());
        self
    }

    /// It ended with this status, and said all of this on standard error.
    #[track_caller]
    pub fn said(self, status: i32, words: &[&str]) -> Self {
        assert_eq!(self.status.code(), Some(status), "{}{}", self.text(), self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "no {word:?} in: {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }
}

/// The command, with an environment in which nobody else's server is the default one.
pub fn command<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_locus"));
    command.args(arguments).env("XDG_RUNTIME_DIR", "/nonexistent").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the command.
pub fn locus<S: AsRef<OsStr>>(arguments: &[S]) -> Ran {
    Ran::new(command(arguments).output().expect("the command runs"))
}

/// Runs the command with this on standard input.
pub fn locus_reading<S: AsRef<OsStr>>(arguments: &[S], input: &[u8]) -> Ran {
    let mut child = command(arguments).stdin(Stdio::piped()).spawn().expect("the command runs");
    let mut stdin = child.stdin.take().expect("piped");
    std::thread::scope(|scope| {
        // A command that fails early does not read to the end.
        scope.spawn(move || drop(stdin.write_all(input)));
        Ran::new(child.wait_with_output().expect("the command ends"))
    })
}

/// Sends a signal.
pub fn signal(child: &Child, signal: Signal) {
    let process = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(process, signal).expect("the process is there");
}

/// A directory with the socket of a server.
pub struct Place {
    directory: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("locus.sock")
    }

    pub fn address(&self) -> String {
        format!("shm:{}", self.socket().display())
    }

    /// Writes a file.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file");
        path
    }

    /// What is in the directory.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.path()).expect("a directory");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Starts a server and waits until it serves.
    pub fn serve(&self, arguments: &[&str]) -> Served {
        self.try_serve(arguments).unwrap_or_else(|ran| panic!("the server ended: {}", ran.stderr))
    }

    /// Starts a server that may refuse to start.
    pub fn try_serve(&self, arguments: &[&str]) -> Result<Served, Ran> {
        let mut all = vec!["serve"];
        all.extend(arguments);
        if !arguments.contains(&"--memory") {
            all.extend(["--memory", "256MiB"]);
        }
        let address = self.address();
        if !arguments.contains(&"--listen") {
            all.extend(["--listen", &address]);
        }
        let mut child = command(&all).spawn().expect("the command runs");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut banner = String::new();
        while !banner.lines().any(|line| line.starts_with("serving")) {
            if output.read_line(&mut banner).expect("it writes text") == 0 {
                return Err(Ran::new(child.wait_with_output().expect("it ends")));
            }
        }
        Ok(Served { child, output, address, banner })
    }
}

/// A server that runs; killed if it still does when dropped.
pub struct Served {
    pub child: Child,
    output: BufReader<ChildStdout>,
    pub address: String,
    /// What it said when it started.
    pub banner: String,
}

impl Served {
    /// Runs a command with this server.
    pub fn locus(&self, name: &str, arguments: &[&str]) -> Ran {
        locus(&self.line(name, arguments))
    }

    /// The same, with this on standard input.
    pub fn locus_reading(&self, name: &str, arguments: &[&str], input: &[u8]) -> Ran {
        locus_reading(&self.line(name, arguments), input)
    }

    /// The command line.
    pub fn line(&self, name: &str, arguments: &[&str]) -> Vec<String> {
        let mut all = vec![name.to_owned(), "--connect".to_owned(), self.address.clone()];
        all.extend(arguments.iter().map(|&argument| argument.to_owned()));
        all
    }

    /// Loads a file.
    pub fn load(&self, file: &Path, arguments: &[&str]) -> Ran {
        let mut all = vec![file.to_str().expect("text")];
        all.extend(arguments);
        self.locus("load", &all)
    }

    /// The value of a key that must be there.
    #[track_caller]
    pub fn value(&self, key: &str) -> Vec<u8> {
        self.locus("get", &[key]).done().stdout
    }

    /// A client in the process of the test.
    pub fn table(&self) -> locus::Table {
        self.table_with(locus::ClientConfig::default())
    }

    /// The same, by a configuration.
    pub fn table_with(&self, config: locus::ClientConfig) -> locus::Table {
        locus::connect_with(&[&self.address], config).expect("a server")
    }

    /// Stops the server, all threads of it, until [`Served::go_on`].
    pub fn stop(&self) {
        signal(&self.child, Signal::STOP);
        let threads = format!("/proc/{}/task", self.child.id());
        let is_stopped = |thread: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        };
        let begun = Instant::now();
        while !std::fs::read_dir(&threads).unwrap().all(is_stopped) {
            assert!(begun.elapsed() < Duration::from_secs(60), "the server does not stop");
            std::thread::yield_now();
        }
    }

    /// Lets a server go on that was stopped.
    pub fn go_on(&self) {
        signal(&self.child, Signal::CONT);
    }

    /// Ends the server by a signal and waits.
    pub fn end(mut self, by: Signal) -> Ran {
        signal(&self.child, by);
        let mut ran =
            Ran { status: self.child.wait().expect("it ends"), stdout: Vec::new(), stderr: String::new() };
        self.output.read_to_end(&mut ran.stdout).expect("it wrote");
        self.child.stderr.take().expect("piped").read_to_string(&mut ran.stderr).expect("it wrote text");
        ran
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
