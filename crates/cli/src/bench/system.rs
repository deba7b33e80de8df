//! Locus as a system to be measured: a server process of its own, and clients on the threads of the benchmark.

use super::recording::{Nobody, Recording, Witness};
use locus_bench::{
    BenchError, BenchOptions, Counters, Kind, Label, Load, Next, ServerProcess, Starter, System, Target,
    process::PrivateDirectory,
};
use locus_fabric::{
    Address, Nic,
    echo::{EchoClient, EchoVerb},
    shm::ShmNic,
    verbs::VerbsNic,
};
use locus_index::hopscotch::{INLINE_SLOT_BYTES, NEIGHBOURHOOD, Shape};
use locus_rpc::{REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES};
use locus_runtime::{LANES_MAX, interleave_async, yield_now};
use locus_store::{Client, ClientConfig, Design, Index, Locus, RawReads, StoreError};
use std::{
    cell::OnceCell,
    convert::Infallible,
    process::{Command, Stdio},
    sync::Arc,
};

/// Records that the raw READs go round: of memory at hand, where how many there are decides how many are cached, and of
/// memory across a wire, where each takes several round trips to find.
const RAW_ROWS: usize = 1 << 20;
const RAW_ROWS_AFAR: usize = 1 << 12;

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

/// The NIC of a place: from here on everything is compiled for it.
pub(super) enum AnyNic {
    Shm(ShmNic),
    Verbs(VerbsNic),
}

impl Place {
    /// What tables call the fabric.
    fn fabric(&self) -> &'static str {
        match self {
            Self::Own { .. } | Self::Running(Address::Shm(_)) => "shm",
            Self::Running(Address::Rdma { .. }) => "rdma",
            Self::Running(Address::Sim(_)) => "sim",
        }
    }

    /// Opens its NIC.
    pub(super) fn nic(&self) -> Result<AnyNic, BenchError> {
        Ok(match self {
            Self::Own { .. } | Self::Running(Address::Shm(_)) => AnyNic::Shm(ShmNic::open().map_err(said)?),
            Self::Running(Address::Rdma { nic, .. }) => AnyNic::Verbs(VerbsNic::open(nic).map_err(said)?),
            Self::Running(address @ Address::Sim(_)) => {
                return Err(said(format!(
                    "{address}: a simulated store is reached within its simulation alone"
                )));
            }
        })
    }
}

/// Starts a server of a design.
pub(super) struct LocusStarter {
    pub(super) design: &'static Design,
    pub(super) gets: Gets,
    pub(super) place: Place,
    /// What its clients tell of their operations.
    pub(super) recording: Option<Arc<Recording>>,
}

/// How a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gets {
    /// Each on its own.
    Single,
    /// As many at once as the window is wide, by `get_many`.
    Many,
    /// Not at all: bare verbs of the same sizes.
    Raw(Raw),
}

/// Bare verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Raw {
    /// A READ of a row, and the READ of the extent that it points to.
    Reads,
    /// One READ as long as a reply, always of the same bytes.
    Read,
    /// A message as long as a request and one as long as a reply, by WRITE.
    WriteEcho,
    /// The same by SEND.
    SendEcho,
}

impl Raw {
    /// With gets alone.
    pub(super) const ALL: [Self; 4] = [Self::Reads, Self::Read, Self::WriteEcho, Self::SendEcho];
    /// With puts among them.
    pub(super) const ECHOES: [Self; 2] = [Self::WriteEcho, Self::SendEcho];
}

impl Starter for LocusStarter {
    fn label(&self) -> Label {
        let name = match self.gets {
            Gets::Single => self.design.name.to_owned(),
            Gets::Many => format!("{} get_many", self.design.name),
            Gets::Raw(Raw::Reads) => "raw READs".to_owned(),
            Gets::Raw(Raw::Read) => "raw READ".to_owned(),
            Gets::Raw(Raw::WriteEcho) => "WRITE echo".to_owned(),
            Gets::Raw(Raw::SendEcho) => "SEND echo".to_owned(),
        };
        Label { forgets: self.design.index.forgets(), ..Label::new(&name, self.place.fabric()) }
    }

    fn start(&self, options: &BenchOptions) -> Result<Box<dyn System>, BenchError> {
        Ok(match self.place.nic()? {
            AnyNic::Shm(nic) => Box::new(self.start_on(nic, options)?),
            AnyNic::Verbs(nic) => Box::new(self.start_on(nic, options)?),
        })
    }
}

impl LocusStarter {
    fn start_on<N: Nic>(&self, nic: N, options: &BenchOptions) -> Result<Running<N>, BenchError> {
        let running = Running::start(nic, self.design, options, &self.place)?;
        Ok(Running { gets: self.gets, recording: self.recording.clone(), ..running })
    }
}

/// A server that runs.
pub(super) struct Running<N: Nic> {
    nic: N,
    address: Address,
    config: ClientConfig,
    gets: Gets,
    recording: Option<Arc<Recording>>,
    key_bytes: usize,
    pid: u32,
    pages: String,
    /// Declared in this order, so that the server is gone before its directory.
    _server: Option<ServerProcess>,
    _directory: Option<PrivateDirectory>,
}

impl<N: Nic> Running<N> {
    /// Starts a server of a design, or finds the one that is there.
    pub(super) fn start(
        nic: N,
        design: &'static Design,
        options: &BenchOptions,
        place: &Place,
    ) -> Result<Self, BenchError> {
        let window = options.windows.iter().copied().max().unwrap_or(1).clamp(16, LANES_MAX);
        let mut running = Running {
            nic,
            address: Address::Shm("unused".into()),
            config: ClientConfig { window, reads: Some(design.reads), ..ClientConfig::default() },
            gets: Gets::Single,
            recording: None,
            key_bytes: options.key_bytes,
            pid: 0,
            pages: String::new(),
            _server: None,
            _directory: None,
        };
        match place {
            Place::Running(address) => running.address = address.clone(),
            Place::Own { small_pages } => running.serve(design, options, *small_pages)?,
        }
        let statistics = running.client()?.statistics().map_err(said)?;
        let first = statistics.first().ok_or_else(|| said("the server has no statistics"))?;
        running.pid = first.process;
        running.pages = first.pages.clone();
        Ok(running)
    }

    /// A client of it.
    pub(super) fn client(&self) -> Result<Client<N>, BenchError> {
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
        let pair_bytes = options.key_bytes + options.value_bytes;
        let slot_bytes = (design.index == Index::HopscotchInline).then(|| slot_bytes(pair_bytes));
        // Of a table that grows there are both, the larger one half empty.
        let record_bytes = slot_bytes.map_or(pair_bytes + 24, |slot_bytes| 2 * slot_bytes);
        let memory_mib = ((options.records as usize * (2 * record_bytes + 256)) >> 20) + 512;
        let program = std::env::current_exe().map_err(BenchError::system("finding this program's file"))?;
        let mut command = Command::new(program);
        command.args(["serve", "--design", design.name, "--listen", &self.address.to_string()]);
        command.args(["--cores", &options.server_cores.to_string(), "--memory", &format!("{memory_mib}MiB")]);
        if let Some(slot_bytes) = slot_bytes {
            command.args(["--slot-bytes", &slot_bytes.to_string()]);
        }
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

/// The shortest slots, from the usual ones on, that have room for key and value; the usual ones if none have, so that the
/// server says why it refuses them.
fn slot_bytes(pair_bytes: usize) -> usize {
    let usual = INLINE_SLOT_BYTES;
    let mut longer = std::iter::successors(Some(usual), |bytes| Some(2 * bytes))
        .map_while(|bytes| Shape::inline_slots(NEIGHBOURHOOD, bytes));
    longer.find(|shape| shape.pair_bytes_max() >= pair_bytes).map_or(usual, |shape| shape.slot_bytes())
}

impl<N: Nic> System for Running<N> {
    fn connect(&self, client: usize) -> Result<Box<dyn Target + '_>, BenchError> {
        Ok(Box::new(Connected {
            client: self.client()?,
            number: client,
            gets: self.gets,
            recording: self.recording.clone(),
            raw_rows: if self.nic.properties().reads_at_once { RAW_ROWS } else { RAW_ROWS_AFAR },
            raw_seed: client as u64 + 1,
            bare: OnceCell::new(),
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
struct Connected<N: Nic> {
    client: Client<N>,
    number: usize,
    gets: Gets,
    recording: Option<Arc<Recording>>,
    raw_rows: usize,
    raw_seed: u64,
    /// Made in the first phase, which is the warm-up: finding the rows takes its time.
    bare: OnceCell<Bare<N>>,
    key_bytes: usize,
}

/// What bare verbs go through.
enum Bare<N: Nic> {
    Reads(RawReads<N>),
    Read(RawReads<N>),
    Echo(Box<EchoClient<N>>),
}

impl<N: Nic> Bare<N> {
    fn new(client: &Client<N>, raw: Raw, rows: usize, seed: u64) -> Result<Self, StoreError> {
        Ok(match raw {
            Raw::Reads => Self::Reads(client.raw_reads(rows, seed)?),
            Raw::Read => Self::Read(client.raw_reads(rows, seed)?),
            Raw::WriteEcho => Self::Echo(Box::new(client.echoes(EchoVerb::Write)?)),
            Raw::SendEcho => Self::Echo(Box::new(client.echoes(EchoVerb::Send)?)),
        })
    }
}

impl<N: Nic> Target for Connected<N> {
    fn drive(&mut self, load: &Load) -> Result<(), BenchError> {
        if let Gets::Raw(raw) = self.gets
            && !load.is_filling()
            && self.bare.get().is_none()
        {
            let bare = Bare::new(&self.client, raw, self.raw_rows, self.raw_seed);
            let _ = self.bare.set(bare.map_err(said)?);
        }
        match &self.recording {
            None => self.drive_before(load, Nobody).map_err(|never| match never {}),
            Some(recording) => recording
                .witness(self.number, load.is_filling(), |recorded| self.drive_before(load, recorded)),
        }
    }

    fn counters(&self) -> Counters {
        let effort = self.client.effort();
        let reads = [&effort.rows_read, &effort.rows_read_again, &effort.extents_read, &effort.entries_read];
        let again = [&effort.rows_unverified, &effort.extents_unverified, &effort.second_passes_failed];
        let sum = |counters: &[&std::cell::Cell<u64>]| counters.iter().map(|counter| counter.get()).sum();
        let bare = matches!(self.gets, Gets::Raw(_));
        let (messages, sent_again) = self.client.messages();
        let at_client = self.client.reads() == Locus::Client && !bare;
        Counters {
            reads: at_client.then(|| sum(&reads)),
            messages: (!bare).then_some(messages),
            retries: Some(sum(&again) + sent_again + self.client.counters().fallbacks.get()),
        }
    }
}

impl<N: Nic> Connected<N> {
    /// Drives a load before a witness: from here on everything is compiled for it.
    fn drive_before<W: Witness>(&self, load: &Load, witness: W) -> Result<(), W::Full> {
        let client = &self.client;
        let bare = self.bare.get().filter(|_| !load.is_filling());
        let lanes = load.window().min(LANES_MAX);
        let lane = || Lane { client, load, witness, bare, key_bytes: self.key_bytes };
        match (lanes, self.gets) {
            (1, Gets::Raw(_)) => client.block_on(lane().run()),
            (1, _) => lane().run_alone(),
            (_, Gets::Many) => lane().run_batches(lanes),
            _ => {
                let _overlap = client.overlap();
                let mut result = Ok(());
                client.block_on(interleave_async(lanes, (0..lanes).map(|_| lane().run()), |_, ended| {
                    if ended.is_err() {
                        result = ended;
                    }
                }));
                result
            }
        }
    }
}

/// Why an operation brought nothing.
enum Failure<F> {
    /// The store said so. In a box: results as large as an error would be moved whole with every operation.
    Store(Box<StoreError>),
    /// It was not begun, since the witness is full.
    Full(F),
}

/// Without a witness, this is the store's error and nothing else.
const _: () = assert!(size_of::<Failure<Infallible>>() == size_of::<usize>());

impl<F> From<StoreError> for Failure<F> {
    #[cold]
    fn from(error: StoreError) -> Self {
        Self::Store(Box::new(error))
    }
}

/// One place of the window.
struct Lane<'a, N: Nic, W: Witness> {
    client: &'a Client<N>,
    load: &'a Load,
    witness: W,
    bare: Option<&'a Bare<N>>,
    key_bytes: usize,
}

impl<N: Nic, W: Witness> Lane<'_, N, W> {
    /// The only one: operations one after the other, each called as an ordinary function.
    fn run_alone(self) -> Result<(), W::Full> {
        let (client, load) = (self.client, self.load);
        let mut operation = load.operation();
        loop {
            match load.next(&mut operation) {
                Next::Finished => return Ok(()),
                Next::Later(due) => load.wait_until(due),
                Next::Ready => {
                    let done = match operation.kind() {
                        Kind::Get => self.get_alone(&operation),
                        Kind::Put | Kind::Insert => self.put_alone(&operation),
                        _ => client.block_on(self.perform(&operation)),
                    };
                    self.note(&operation, done)?;
                }
            }
        }
    }

    /// Tells the load of what failed; an error if there can be no further operations.
    #[inline]
    fn note(
        &self,
        operation: &locus_bench::Operation,
        done: Result<(), Failure<W::Full>>,
    ) -> Result<(), W::Full> {
        match done {
            Ok(()) => Ok(()),
            Err(Failure::Store(error)) => {
                self.load.failed(operation, error);
                Ok(())
            }
            Err(Failure::Full(full)) => Err(full),
        }
    }

    #[inline]
    fn get_alone(&self, operation: &locus_bench::Operation) -> Result<(), Failure<W::Full>> {
        let (load, witness) = (self.load, self.witness);
        let ticket = witness.get(operation.key()).map_err(Failure::Full)?;
        let found = self.client.get_blocking(operation.key(), |value| {
            witness.got(&ticket, Some(value));
            load.found(operation, value);
        });
        self.note_absent(operation, &ticket, found)
    }

    #[inline]
    fn put_alone(&self, operation: &locus_bench::Operation) -> Result<(), Failure<W::Full>> {
        let (key, value) = (operation.key(), operation.value());
        let ticket = self.witness.put(key, value).map_err(Failure::Full)?;
        self.note_put(operation, &ticket, self.client.put_blocking(key, value).map(drop))
    }

    #[inline]
    fn note_put(
        &self,
        operation: &locus_bench::Operation,
        ticket: &W::Ticket,
        put: Result<(), StoreError>,
    ) -> Result<(), Failure<W::Full>> {
        put.inspect_err(|_| self.witness.unknown(ticket))?;
        self.witness.stored(ticket);
        self.load.stored(operation);
        Ok(())
    }

    /// Tells of a get that found nothing or failed; of others it is told by then.
    #[inline]
    fn note_absent(
        &self,
        operation: &locus_bench::Operation,
        ticket: &W::Ticket,
        found: Result<Option<()>, StoreError>,
    ) -> Result<(), Failure<W::Full>> {
        match found {
            Ok(Some(())) => {}
            Ok(None) => {
                self.witness.got(ticket, None);
                self.load.missing(operation);
            }
            Err(error) => {
                self.witness.unanswered(ticket);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Gets in batches; what else there is comes one after the other between them.
    fn run_batches(self, lanes: usize) -> Result<(), W::Full> {
        let (client, load, witness) = (self.client, self.load, self.witness);
        let mut operations: Vec<_> = (0..lanes).map(|_| load.operation()).collect();
        let mut tickets = Vec::with_capacity(lanes);
        let mut finished = false;
        while !finished {
            let mut count = 0;
            while count < lanes && !finished {
                let operation = &mut operations[count];
                match load.next(operation) {
                    Next::Finished => finished = true,
                    Next::Later(_) if count > 0 => break,
                    Next::Later(due) => load.wait_until(due),
                    Next::Ready if operation.kind() == Kind::Get => count += 1,
                    Next::Ready => {
                        let done = client.block_on(self.perform(operation));
                        self.note(operation, done)?;
                    }
                }
            }
            let mut keys: [&[u8]; LANES_MAX] = [&[]; LANES_MAX];
            tickets.clear();
            for (key, operation) in keys.iter_mut().zip(&operations[..count]) {
                *key = operation.key();
                tickets.push(witness.get(operation.key())?);
            }
            client.get_batch(&keys[..count], |place, value| {
                // Without a witness tickets have no size, and nothing is left of looking one up.
                if let Some(ticket) = tickets.get(place) {
                    match &value {
                        Ok(value) => witness.got(ticket, *value),
                        Err(_) => witness.unanswered(ticket),
                    }
                }
                match value {
                    Ok(Some(value)) => load.found(&operations[place], value),
                    Ok(None) => load.missing(&operations[place]),
                    Err(error) => load.failed(&operations[place], error),
                }
            });
        }
        Ok(())
    }

    async fn run(self) -> Result<(), W::Full> {
        let load = self.load;
        let mut operation = load.operation();
        loop {
            match load.next(&mut operation) {
                Next::Finished => return Ok(()),
                Next::Later(_) => yield_now().await,
                Next::Ready => {
                    let done = self.perform(&operation).await;
                    self.note(&operation, done)?;
                }
            }
        }
    }

    #[inline]
    async fn perform(&self, operation: &locus_bench::Operation) -> Result<(), Failure<W::Full>> {
        let (client, load, witness) = (self.client, self.load, self.witness);
        if let Some(bare) = self.bare {
            return Ok(self.perform_bare(bare, operation).await?);
        }
        if operation.kind() == Kind::Get {
            let ticket = witness.get(operation.key()).map_err(Failure::Full)?;
            // Awaited where it is made, and its result looked at where it is: neither is to be moved.
            let found = |value: &[u8]| {
                witness.got(&ticket, Some(value));
                load.found(operation, value);
            };
            return match client.get(operation.key(), found).await {
                Ok(Some(())) => Ok(()),
                found => self.note_absent(operation, &ticket, found),
            };
        }
        if operation.kind() == Kind::ReadModifyWrite {
            let ticket = witness.get(operation.key()).map_err(Failure::Full)?;
            let found = client.get(operation.key(), |value| {
                witness.got(&ticket, Some(value));
                load.fetched(operation, value);
            });
            let found = found.await;
            let is_absent = matches!(found, Ok(None));
            self.note_absent(operation, &ticket, found)?;
            if is_absent {
                return Ok(());
            }
        }
        let ticket = witness.put(operation.key(), operation.value()).map_err(Failure::Full)?;
        match client.put(operation.key(), operation.value()).await {
            Ok(_) => self.note_put(operation, &ticket, Ok(())),
            Err(error) => self.note_put(operation, &ticket, Err(error)),
        }
    }

    /// Bare verbs of the operation's sizes.
    #[inline]
    async fn perform_bare(
        &self,
        bare: &Bare<N>,
        operation: &locus_bench::Operation,
    ) -> Result<(), StoreError> {
        let (load, in_turns) = (self.load, self.load.window() > 1);
        let request_bytes = REQUEST_HEADER_BYTES + self.key_bytes;
        let value_bytes = load.value_bytes();
        match (operation.kind(), bare) {
            (Kind::Get, Bare::Reads(raw)) => {
                let begin = locus_index::HEADER_BYTES + self.key_bytes;
                let value = |bytes: &[u8]| {
                    load.found(operation, bytes.get(begin..begin + value_bytes).unwrap_or_default());
                };
                return raw.read(in_turns, value).await;
            }
            (Kind::Get, Bare::Read(raw)) => raw.read_one(in_turns, REPLY_HEADER_BYTES + value_bytes).await?,
            (Kind::Get, Bare::Echo(echo)) => {
                echo.call(request_bytes, REPLY_HEADER_BYTES + value_bytes).await?;
            }
            (Kind::Put | Kind::Insert, Bare::Echo(echo)) => {
                echo.call(request_bytes + value_bytes, REPLY_HEADER_BYTES).await?;
            }
            _ => return Err(StoreError::Config("bare verbs do not read, modify and write".into())),
        }
        load.stored(operation);
        Ok(())
    }
}

fn said(error: impl std::fmt::Display) -> BenchError {
    BenchError::Target(error.to_string())
}
