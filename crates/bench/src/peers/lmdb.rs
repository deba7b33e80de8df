//! LMDB: what engineers share a read-mostly table with today. This process writes the table, a second process reads it
//! through its own mapping, and makes the puts of the mixed workloads too (LMDB lets one writer in at a time).
//!
//! Every get has a read transaction of its own, so that it sees the latest commit as a get of the other systems does; the
//! transaction's handle is reset and renewed, which spares LMDB an allocation (`mdb_txn_reset`, `mdb_txn_renew`). The value
//! is used where it lies, not copied. Every put is a transaction of its own, committed without a sync and in place
//! (`MDB_NOSYNC`, and `MDB_WRITEMAP`, which makes puts three times as fast here), in a file in memory where there is room.
//! Records are loaded in order of their keys, which fills LMDB's pages best. There is no window: LMDB has no asynchronous
//! calls.

use crate::clock::Clock;
use crate::error::BenchError;
use crate::load::{Kind, Load, Next, Operation};
use crate::measure::{Measured, Measurement};
use crate::options::BenchOptions;
use crate::process::PrivateDirectory;
use crate::target::{Label, Starter, System, Target};
use lmdb::{Database, Environment, EnvironmentFlags, RoTransaction, Transaction, WriteFlags};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The first argument that makes a program the second process.
const READER_ROLE: &str = "__locus-bench-lmdb-reader";

/// Records written in one transaction while loading.
const LOAD_BATCH: usize = 10_000;

pub(super) struct LmdbStarter;

impl Starter for LmdbStarter {
    fn label(&self) -> Label {
        Label::new("lmdb", "mmap")
    }

    fn start(&self, options: &BenchOptions) -> Result<Box<dyn System>, BenchError> {
        // Pages half full, twice over for the copies of pages that a writer makes; the file is sparse.
        let record_bytes = (options.key_bytes + options.value_bytes + 64) as u64;
        let map_bytes = (options.records * record_bytes * 4).max(1 << 30).next_multiple_of(1 << 20);
        let directory = PrivateDirectory::new_in(&place(map_bytes / 2))?;
        let readers = options.clients as u32 + 8;
        let store = Store::open(directory.path(), map_bytes as usize, readers)?;
        let program = options.reader_program.clone().map_or_else(std::env::current_exe, Ok);
        let program = program.map_err(BenchError::system("finding this program's file"))?;
        Ok(Box::new(Lmdb { store, directory, map_bytes, readers, program }))
    }
}

/// Memory (`/dev/shm`) if there is room, else the system's place for temporary files.
fn place(bytes: u64) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let free = nix::sys::statvfs::statvfs(memory).map(|s| s.blocks_available() * s.fragment_size());
    match free {
        Ok(free) if free > bytes => memory.to_owned(),
        _ => std::env::temp_dir(),
    }
}

/// The environment as one process has it open.
struct Store {
    environment: Environment,
    database: Database,
}

impl Store {
    fn open(directory: &Path, map_bytes: usize, readers: u32) -> Result<Self, BenchError> {
        let mut builder = Environment::new();
        let flags = EnvironmentFlags::NO_SYNC | EnvironmentFlags::WRITE_MAP;
        builder.set_flags(flags).set_map_size(map_bytes).set_max_readers(readers);
        let environment = builder.open(directory).map_err(while_doing("opening the environment"))?;
        let database = environment.open_db(None).map_err(while_doing("opening the database"))?;
        Ok(Self { environment, database })
    }
}

fn while_doing(during: &'static str) -> impl FnOnce(lmdb::Error) -> BenchError {
    move |source| BenchError::Lmdb { during, source }
}

/// The process that loads.
struct Lmdb {
    store: Store,
    directory: PrivateDirectory,
    map_bytes: u64,
    readers: u32,
    program: PathBuf,
}

impl System for Lmdb {
    fn connect(&self, _client: usize) -> Result<Box<dyn Target + '_>, BenchError> {
        Ok(Box::new(LmdbTarget { store: &self.store }))
    }

    fn widest_window(&self) -> usize {
        1
    }

    fn pages(&self) -> Option<String> {
        Some("4 KiB".into())
    }

    fn measure_elsewhere(&self, measurement: &Measurement) -> Option<Result<Measured, BenchError>> {
        let request = ReaderRequest {
            directory: self.directory.path().to_owned(),
            map_bytes: self.map_bytes,
            readers: self.readers,
            measurement: measurement.clone(),
        };
        Some(request.send_to(&self.program))
    }
}

/// What the second process is to do.
#[derive(serde::Serialize, serde::Deserialize)]
struct ReaderRequest {
    directory: PathBuf,
    map_bytes: u64,
    readers: u32,
    measurement: Measurement,
}

impl ReaderRequest {
    /// Starts `program` as the second process and returns what it found.
    fn send_to(&self, program: &Path) -> Result<Measured, BenchError> {
        let failed = |reason: String| BenchError::Reader { program: program.to_owned(), reason };
        let request = serde_json::to_string(self).map_err(|e| failed(e.to_string()))?;
        let mut command = Command::new(program);
        command.arg(READER_ROLE).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
        let mut stdin = child.stdin.take().expect("is piped");
        // If it cannot be written the process has ended, and says why below.
        let _ = stdin.write_all(request.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().map_err(|e| failed(e.to_string()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(failed(format!("it ended with {}: {said}", output.status)));
        }
        serde_json::from_slice(&output.stdout).map_err(|e| {
            failed(format!("{e}; does it call locus_bench::become_reader_if_asked first thing?"))
        })
    }

    fn carry_out(&self) -> Result<Measured, BenchError> {
        let store = Store::open(&self.directory, self.map_bytes as usize, self.readers)?;
        let clock = Clock::new();
        self.measurement.run(&LmdbReader { store }, &clock, &self.measurement.traces()?)
    }
}

/// Plays the part of the LMDB peer's second process and ends, if this program was started for that; else returns. To be
/// called first thing in `main` of any program that runs benchmarks.
pub fn become_reader_if_asked() {
    if std::env::args().nth(1).as_deref() != Some(READER_ROLE) {
        return;
    }
    match read_for_another_process() {
        Ok(json) => println!("{json}"),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
    std::process::exit(0);
}

fn read_for_another_process() -> Result<String, Box<dyn std::error::Error>> {
    let mut request = String::new();
    std::io::stdin().read_to_string(&mut request)?;
    let request: ReaderRequest = serde_json::from_str(&request)?;
    Ok(serde_json::to_string(&request.carry_out()?)?)
}

/// The process that reads.
struct LmdbReader {
    store: Store,
}

impl System for LmdbReader {
    fn connect(&self, _client: usize) -> Result<Box<dyn Target + '_>, BenchError> {
        Ok(Box::new(LmdbTarget { store: &self.store }))
    }
}

/// One thread's use of the environment.
struct LmdbTarget<'a> {
    store: &'a Store,
}

impl Target for LmdbTarget<'_> {
    fn drive(&mut self, load: &Load) -> Result<(), BenchError> {
        if load.is_filling() { self.fill(load) } else { self.perform(load) }
    }
}

impl LmdbTarget<'_> {
    /// Writes records in large transactions.
    fn fill(&self, load: &Load) -> Result<(), BenchError> {
        let mut operation = load.operation();
        loop {
            let mut transaction =
                self.store.environment.begin_rw_txn().map_err(while_doing("beginning to write"))?;
            for _ in 0..LOAD_BATCH {
                if load.next(&mut operation) == Next::Finished {
                    return transaction.commit().map_err(while_doing("committing"));
                }
                let (key, value) = (&operation.key(), &operation.value());
                match transaction.put(self.store.database, key, value, WriteFlags::empty()) {
                    Ok(()) => load.stored(&operation),
                    Err(error) => load.failed(&operation, error),
                }
            }
            transaction.commit().map_err(while_doing("committing"))?;
        }
    }

    fn perform(&self, load: &Load) -> Result<(), BenchError> {
        let beginning = self.store.environment.begin_ro_txn();
        let mut resting = beginning.map_err(while_doing("beginning to read"))?.reset();
        let mut operation = load.operation();
        loop {
            match load.next(&mut operation) {
                Next::Finished => return Ok(()),
                Next::Later(due) => {
                    load.wait_until(due);
                    continue;
                }
                Next::Ready => {}
            }
            match operation.kind() {
                Kind::Get => {
                    let reading = resting.renew().map_err(while_doing("renewing a read transaction"))?;
                    self.get(load, &operation, &reading);
                    resting = reading.reset();
                }
                Kind::Put | Kind::Insert => self.finish_put(load, &operation),
                Kind::ReadModifyWrite => {
                    let reading = resting.renew().map_err(while_doing("renewing a read transaction"))?;
                    let found = reading
                        .get(self.store.database, &operation.key())
                        .map(|v| load.fetched(&operation, v));
                    resting = reading.reset();
                    match found {
                        Ok(()) => self.finish_put(load, &operation),
                        Err(lmdb::Error::NotFound) => load.missing(&operation),
                        Err(error) => load.failed(&operation, error),
                    }
                }
            }
        }
    }

    #[inline]
    fn get(&self, load: &Load, operation: &Operation, reading: &RoTransaction) {
        match reading.get(self.store.database, &operation.key()) {
            Ok(value) => load.found(operation, value),
            Err(lmdb::Error::NotFound) => load.missing(operation),
            Err(error) => load.failed(operation, error),
        }
    }

    fn finish_put(&self, load: &Load, operation: &Operation) {
        let put = || {
            let mut transaction = self.store.environment.begin_rw_txn()?;
            let (key, value) = (&operation.key(), &operation.value());
            transaction.put(self.store.database, key, value, WriteFlags::empty())?;
            transaction.commit()
        };
        match put() {
            Ok(()) => load.stored(operation),
            Err(error) => load.failed(operation, error),
        }
    }
}
