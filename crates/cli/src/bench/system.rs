//! Locus as a system to be measured: a server process of its own, and clients on the threads of the benchmark.

use locus_bench::{
    BenchError, BenchOptions, Counters, Kind, Label, Load, Next, ServerProcess, Starter, System, Target,
    process::PrivateDirectory,
};
use locus_fabric::{Address, shm::ShmNic};
use locus_runtime::{LANES_MAX, interleave_async, yield_now};
use locus_store::{Client, ClientConfig, Design, Locus, RawReads, StoreError};
use std::{
    cell::OnceCell,
    process::{Command, Stdio},
};

/// Records that the raw READs go round.
const RAW_ROWS: usize = 1 << 20;

/// Which server.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// One of its own.
    Own {
        /// On pages of the base size.
        small_pages: bool,
    },
    /// One that is there.
    Running(Address),
}

/// Starts a server of a design.
pub(super) struct LocusStarter {
    pub(super) design: &'static Design,
    /// Whether gets are bare READs.
    pub(super) raw: bool,
    pub(super) place: Place,
}

impl Starter for LocusStarter {
    fn label(&self) -> Label {
        Label::new(if self.raw { "raw READs" } else { self.design.name }, "shm")
    }

    fn start(&self, options: &BenchOptions) -> Result<Box<dyn System>, BenchError> {
        let window = options.windows.iter().copied().max().unwrap_or(1).clamp(16, LANES_MAX);
        let mut running = Running {
            nic: ShmNic::open().map_err(said)?,
            address: Address::Shm("unused".into()),
            config: ClientConfig { window, reads: Some(self.design.reads), ..ClientConfig::default() },
            raw: self.raw,
            key_bytes: options.key_bytes,
            pid: 0,
            pages: String::new(),
            _server: None,
            _directory: None,
        };
        match &self.place {
            Place::Running(address) => running.address = address.clone(),
            Place::Own { small_pages } => running.serve(self.design, options, *small_pages)?,
        }
        let statistics = running.client()?.statistics().map_err(said)?;
        let first = statistics.first().ok_or_else(|| said("the server has no statistics"))?;
        running.pid = first.process;
        running.pages = first.pages.clone();
        Ok(Box::new(running))
    }
}

struct Running {
    nic: ShmNic,
    address: Address,
    config: ClientConfig,
    raw: bool,
    key_bytes: usize,
    pid: u32,
    pages: String,
    /// Declared in this order, so that the server is gone before its directory.
    _server: Option<ServerProcess>,
    _directory: Option<PrivateDirectory>,
}

impl Running {
    fn client(&self) -> Result<Client<ShmNic>, BenchError> {
        Client::connect(&self.nic, std::slice::from_ref(&self.address), self.config.clone()).map_err(said)
    }

    /// Starts a server with room for twice what will be there: tables double when they grow.
    fn serve(
        &mut self,
        design: &Design,
        options: &BenchOptions,
        small_pages: bool,
    ) -> Result<(), BenchError> {
        let directory = PrivateDirectory::new()?;
        self.address = Address::Shm(directory.path().join("locus.sock"));
        let record_bytes = options.key_bytes + options.value_bytes + 24;
        let memory_mib = ((options.records as usize * (2 * record_bytes + 256)) >> 20) + 512;
        let program = std::env::current_exe().map_err(BenchError::system("finding this program's file"))?;
        let mut command = Command::new(program);
        command.args(["serve", "--design", design.name, "--listen", &self.address.to_string()]);
        command.args(["--cores", &options.server_cores.to_string(), "--memory", &format!("{memory_mib}MiB")]);
        if small_pages {
            command.arg("--small-pages");
        }
        command.stdout(Stdio::null());
        let mut server = ServerProcess::spawn(&mut command)?;
        server.wait_until(|| self.client().is_ok())?;
        self._server = Some(server);
        self._directory = Some(directory);
        Ok(())
    }
}

impl System for Running {
    fn connect(&self, client: usize) -> Result<Box<dyn Target + '_>, BenchError> {
        Ok(Box::new(Connected {
            client: self.client()?,
            raw: self.raw.then_some(client as u64 + 1),
            raw_reads: OnceCell::new(),
            key_bytes: self.key_bytes,
        }))
    }

    fn server_pids(&self) -> Vec<u32> {
        vec![self.pid]
    }

    fn widest_window(&self) -> usize {
        LANES_MAX
    }

    fn pages(&self) -> Option<String> {
        Some(self.pages.clone())
    }
}

/// A client on its thread.
struct Connected {
    client: Client<ShmNic>,
    /// The seed of its raw READs, if gets are to be such.
    raw: Option<u64>,
    /// Made in the first phase, which is the warm-up: finding the rows takes its time.
    raw_reads: OnceCell<RawReads<ShmNic>>,
    key_bytes: usize,
}

impl Target for Connected {
    fn drive(&mut self, load: &Load) -> Result<(), BenchError> {
        let client = &self.client;
        let raw = match self.raw {
            Some(seed) if !load.is_filling() => {
                if self.raw_reads.get().is_none() {
                    let _ = self.raw_reads.set(client.raw_reads(RAW_ROWS, seed).map_err(said)?);
                }
                self.raw_reads.get()
            }
            _ => None,
        };
        let lanes = load.window().min(LANES_MAX);
        let lane = || Lane { client, load, raw, alone: lanes == 1, key_bytes: self.key_bytes };
        if lanes == 1 {
            return client.block_on(lane().run());
        }
        let _overlap = client.overlap();
        let mut result = Ok(());
        client.block_on(interleave_async(lanes, (0..lanes).map(|_| lane().run()), |_, ended| {
            if ended.is_err() {
                result = ended;
            }
        }));
        result
    }

    fn counters(&self) -> Counters {
        let effort = self.client.effort();
        let reads = [&effort.rows_read, &effort.rows_read_again, &effort.extents_read, &effort.entries_read];
        let again = [&effort.rows_unverified, &effort.extents_unverified, &effort.second_passes_failed];
        let sum = |counters: &[&std::cell::Cell<u64>]| counters.iter().map(|counter| counter.get()).sum();
        let at_client = self.client.reads() == Locus::Client && self.raw.is_none();
        Counters {
            reads: at_client.then(|| sum(&reads)),
            retries: Some(sum(&again) + self.client.counters().fallbacks.get()),
        }
    }
}

/// One place of the window.
struct Lane<'a> {
    client: &'a Client<ShmNic>,
    load: &'a Load,
    raw: Option<&'a RawReads<ShmNic>>,
    alone: bool,
    key_bytes: usize,
}

impl Lane<'_> {
    async fn run(self) -> Result<(), BenchError> {
        let load = self.load;
        let mut operation = load.operation();
        loop {
            match load.next(&mut operation) {
                Next::Finished => return Ok(()),
                Next::Later(due) if self.alone => load.wait_until(due),
                Next::Later(_) => yield_now().await,
                Next::Ready => {
                    if let Err(error) = self.perform(&operation).await {
                        load.failed(&operation, error);
                    }
                }
            }
        }
    }

    #[inline]
    async fn perform(&self, operation: &locus_bench::Operation) -> Result<(), StoreError> {
        let (client, load) = (self.client, self.load);
        match (operation.kind(), self.raw) {
            (Kind::Get, None) => {
                if client.get(operation.key(), |value| load.found(operation, value)).await?.is_none() {
                    load.missing(operation);
                }
            }
            (Kind::Get, Some(raw)) => {
                let bytes = raw.read().await?;
                let begin = locus_index::HEADER_BYTES + self.key_bytes;
                load.found(operation, bytes.get(begin..begin + load.value_bytes()).unwrap_or_default());
            }
            (Kind::Put | Kind::Insert, None) => {
                client.put(operation.key(), operation.value()).await?;
                load.stored(operation);
            }
            (Kind::ReadModifyWrite, None) => {
                if client.get(operation.key(), |value| load.fetched(operation, value)).await?.is_none() {
                    load.missing(operation);
                    return Ok(());
                }
                client.put(operation.key(), operation.value()).await?;
                load.stored(operation);
            }
            (_, Some(_)) => return Err(StoreError::Config("raw READs store nothing: use workload c".into())),
        }
        Ok(())
    }
}

fn said(error: impl std::fmt::Display) -> BenchError {
    BenchError::Target(error.to_string())
}
