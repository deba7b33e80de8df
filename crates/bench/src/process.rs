//! Server processes that a benchmark starts: they end with it, however it ends.
//!
//! A server is ended when its handle is dropped, and on SIGINT, SIGTERM and SIGHUP, together with its private directory.

use crate::error::BenchError;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

/// How long a server may take to start, and to stop when asked before it is killed.
const START_LIMIT: Duration = Duration::from_secs(10);
const STOP_LIMIT: Duration = Duration::from_secs(3);

/// What must go when this process is told to end.
struct Remains {
    pids: BTreeSet<u32>,
    directories: BTreeSet<PathBuf>,
}

static REMAINS: Mutex<Remains> = Mutex::new(Remains { pids: BTreeSet::new(), directories: BTreeSet::new() });

fn remains() -> MutexGuard<'static, Remains> {
    static WATCH: Once = Once::new();
    WATCH.call_once(clean_up_on_signals);
    REMAINS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends everything that is registered when a signal asks this process to end, then ends as the signal would have it.
fn clean_up_on_signals() {
    let Ok(mut signals) = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]) else {
        return;
    };
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let remains = REMAINS.lock().unwrap_or_else(PoisonError::into_inner);
            for pid in &remains.pids {
                // A process is registered only while it is not reaped, so the number is still its own.
                let _ = kill(Pid::from_raw(*pid as i32), Signal::SIGKILL);
            }
            for directory in &remains.directories {
                let _ = std::fs::remove_dir_all(directory);
            }
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
}

/// A server process, ended when this is dropped.
#[derive(Debug)]
pub struct ServerProcess {
    name: String,
    child: Child,
    /// A file, not a pipe, which would stop a talkative server when it is full.
    stderr: File,
}

impl ServerProcess {
    /// Starts `command`, without standard input, its standard error kept for error messages, and its standard output as
    /// `command` says.
    pub fn spawn(command: &mut Command) -> Result<Self, BenchError> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut remains = remains();
        let starting = || BenchError::system(format!("starting {name}"));
        let stderr = tempfile::tempfile().map_err(starting())?;
        let childs = stderr.try_clone().map_err(starting())?;
        let child = command.stdin(Stdio::null()).stderr(childs).spawn().map_err(starting())?;
        remains.pids.insert(child.id());
        Ok(Self { name, child, stderr })
    }

    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process's standard output, once, if the command had it piped.
    pub fn take_stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// Waits until `ready` says so; an error if the process ends before, or takes too long.
    pub fn wait_until(&mut self, mut ready: impl FnMut() -> bool) -> Result<(), BenchError> {
        let from = Instant::now();
        while !ready() {
            if let Ok(Some(status)) = self.child.try_wait() {
                // Reaped now, so its number may become another's.
                remains().pids.remove(&self.child.id());
                let reason = format!("it ended with {status}: {}", self.said());
                return Err(BenchError::ServerStart { program: self.name.clone(), reason });
            }
            if from.elapsed() > START_LIMIT {
                let reason = format!("it accepted no connection within {} s", START_LIMIT.as_secs());
                return Err(BenchError::ServerStart { program: self.name.clone(), reason });
            }
            // The servers offer nothing to wait on but the attempt itself.
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// What the process has written to its standard error, up to 64 KiB.
    fn said(&mut self) -> String {
        let mut text = Vec::new();
        let _ = self.stderr.rewind().and_then(|()| (&self.stderr).take(64 << 10).read_to_end(&mut text));
        String::from_utf8_lossy(&text).trim().to_owned()
    }

    fn end(&mut self) {
        let pid = Pid::from_raw(self.child.id() as i32);
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill(pid, Signal::SIGTERM);
            let from = Instant::now();
            while matches!(self.child.try_wait(), Ok(None)) && from.elapsed() < STOP_LIMIT {
                std::thread::sleep(Duration::from_millis(2));
            }
            let _ = self.child.kill();
        }
        // No signal may go to the number once it is reaped.
        let mut remains = remains();
        remains.pids.remove(&self.child.id());
        let _ = self.child.wait();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// A directory of our own, removed when this is dropped.
#[derive(Debug)]
pub struct PrivateDirectory {
    directory: tempfile::TempDir,
}

impl PrivateDirectory {
    /// A new directory in `parent` that only this user can enter.
    pub fn new_in(parent: &Path) -> Result<Self, BenchError> {
        let mut remains = remains();
        let directory = tempfile::Builder::new().prefix("locus-bench-").tempdir_in(parent);
        let directory =
            directory.map_err(BenchError::system(format!("making a directory in {}", parent.display())))?;
        remains.directories.insert(directory.path().to_owned());
        Ok(Self { directory })
    }

    /// A new directory in the system's place for temporary files.
    pub fn new() -> Result<Self, BenchError> {
        Self::new_in(&std::env::temp_dir())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        remains().directories.remove(self.directory.path());
    }
}

/// A loopback address with a port that is free now. Another process may take it before it is used; whoever starts a server
/// on it finds that out from the server.
pub fn free_address() -> Result<SocketAddr, BenchError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address.map_err(BenchError::system("looking for a free port"))
}

/// Where `program` is in PATH.
pub fn find_program(program: &'static str, package: &'static str) -> Result<PathBuf, BenchError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_in(&path, program).ok_or(BenchError::MissingProgram { program, package })
}

fn find_in(path: &std::ffi::OsStr, program: &str) -> Option<PathBuf> {
    std::env::split_paths(path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_running(pid: u32) -> bool {
        kill(Pid::from_raw(pid as i32), None).is_ok()
    }

    #[test]
    fn a_dropped_server_is_gone() {
        let server = ServerProcess::spawn(Command::new("sleep").arg("1000")).unwrap();
        let pid = server.pid();
        assert!(is_running(pid));
        drop(server);
        assert!(!is_running(pid));
    }

    #[test]
    fn a_server_that_ends_at_once_is_an_error_with_its_words() {
        let mut command = Command::new("sh");
        let mut server =
            ServerProcess::spawn(command.args(["-c", "echo no such thing >&2; exit 3"])).unwrap();
        let error = server.wait_until(|| false).unwrap_err().to_string();
        assert!(error.contains("no such thing") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_missing_program_names_its_package() {
        assert!(find_program("sh", "dash").is_ok());
        let error = find_program("no-such-program", "some-package").unwrap_err().to_string();
        assert!(error.contains("apt-get install some-package"), "{error}");
    }

    #[test]
    fn a_private_directory_goes_when_dropped() {
        let directory = PrivateDirectory::new().unwrap();
        let path = directory.path().to_owned();
        std::fs::write(path.join("file"), "x").unwrap();
        drop(directory);
        assert!(!path.exists());
    }
}
