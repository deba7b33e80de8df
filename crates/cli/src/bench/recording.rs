//! `locus bench --history`: what the clients of a run see, as a history.
//!
//! Whether a run is recorded is a type parameter of the loop that performs the operations ([`Witness`]): with [`Nobody`]
//! looking on, tickets have no size, nothing can be full, and what remains is the loop without any of it.

use anyhow::{Context, bail};
use bytesize::ByteSize;
use locus_bench::{BenchError, BenchOptions};
use locus_history::{Capacity, History, HistoryError, Recorder, Ticket};
use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    sync::{
        Mutex, PoisonError,
        atomic::{Ordering, fence},
    },
    time::Instant,
};

/// What a history of a run takes, of all clients together: about a GiB of memory by the time it is judged.
pub(super) const ROOM: Capacity = Capacity { operations_max: 2 << 20, bytes_max: 512 << 20 };
/// Shorter values have no room for what makes each differ from all others.
const VALUE_BYTES_MIN: usize = 16;

/// Who is told of each operation of a client, as it begins and as it ends.
pub(super) trait Witness: Copy {
    /// An operation that was begun.
    type Ticket;
    /// Why no operation can be begun any more.
    type Full;

    /// A get is about to begin.
    fn get(self, key: &[u8]) -> Result<Self::Ticket, Self::Full>;
    /// A put is about to begin.
    fn put(self, key: &[u8], value: &[u8]) -> Result<Self::Ticket, Self::Full>;
    /// A get has ended with what it found.
    fn got(self, ticket: &Self::Ticket, value: Option<&[u8]>);
    /// A put was acknowledged.
    fn stored(self, ticket: &Self::Ticket);
    /// A get failed.
    fn unanswered(self, ticket: &Self::Ticket);
    /// A put failed: it may have been made, or will be, or not.
    fn unknown(self, ticket: &Self::Ticket);
}

/// Nobody looks on.
#[derive(Clone, Copy)]
pub(super) struct Nobody;

impl Witness for Nobody {
    type Ticket = ();
    type Full = Infallible;

    #[inline(always)]
    fn get(self, _key: &[u8]) -> Result<(), Infallible> {
        Ok(())
    }
    #[inline(always)]
    fn put(self, _key: &[u8], _value: &[u8]) -> Result<(), Infallible> {
        Ok(())
    }
    #[inline(always)]
    fn got(self, _ticket: &(), _value: Option<&[u8]>) {}
    #[inline(always)]
    fn stored(self, _ticket: &()) {}
    #[inline(always)]
    fn unanswered(self, _ticket: &()) {}
    #[inline(always)]
    fn unknown(self, _ticket: &()) {}
}

/// What all clients of a run see of one store.
pub(super) struct Recording {
    /// Its clock. The system's own is read, and not the counter that latencies are taken from: that one may differ between
    /// cores and be read ahead of its turn, which would make up operations out of order.
    from: Instant,
    /// Those of the clients, and those of the same clients while they load.
    records: Vec<Mutex<Records>>,
    clients: usize,
}

/// What one client sees. Clients of later measurements go on with those of earlier ones.
struct Records {
    recorder: RefCell<Recorder>,
    /// Why it records no more.
    full: RefCell<Option<String>>,
}

impl Recording {
    /// A recording of a run, with its memory reserved.
    pub(super) fn new(options: &BenchOptions, room: Capacity) -> anyhow::Result<Self> {
        options.check()?;
        let BenchOptions { value_bytes, records, .. } = *options;
        if value_bytes < VALUE_BYTES_MIN {
            bail!(
                "values of {value_bytes} bytes cannot all differ, so a history could not tell one put from another: \
                 take {VALUE_BYTES_MIN} bytes or more (--value-bytes)"
            );
        }
        let clients = options.clients as u64;
        let (operations, bytes) = (room.operations_max as u64, room.bytes_max as u64);
        if records > operations / 2 || options.payload_bytes() > bytes / 2 {
            bail!(
                "{records} records are too many to record: a history takes {operations} operations and {} of keys and \
                 values, half of it for what is loaded (--records, --value-bytes)",
                ByteSize(bytes)
            );
        }
        let capacity = |operations: u64, bytes: u64| Capacity {
            operations_max: operations as usize,
            bytes_max: bytes as usize,
        };
        let loaded_each = records.div_ceil(clients);
        let loading = capacity(loaded_each, loaded_each * (options.key_bytes + value_bytes) as u64);
        let measured =
            capacity((operations - records) / clients, (bytes - options.payload_bytes()) / clients);
        let records = (0..2 * options.clients as u32).map(|number| {
            let capacity = if u64::from(number) < clients { measured } else { loading };
            let recorder = RefCell::new(Recorder::new(number, capacity)?);
            Ok(Mutex::new(Records { recorder, full: RefCell::new(None) }))
        });
        let records: Result<Vec<_>, HistoryError> = records.collect();
        Ok(Self {
            from: Instant::now(),
            records: records.context("making room for a history")?,
            clients: options.clients,
        })
    }

    /// Has `drive` told to the records of a client, which are its alone for as long as it takes.
    pub(super) fn witness<T>(
        &self,
        client: usize,
        is_loading: bool,
        drive: impl FnOnce(Recorded<'_>) -> T,
    ) -> T {
        let number = if is_loading { self.clients + client } else { client };
        let records = self.records[number].lock().unwrap_or_else(PoisonError::into_inner);
        drive(Recorded { records: &records, from: self.from })
    }

    /// What was recorded, and why that is not all, if it is not. Nothing is recorded any more.
    pub(super) fn end(self) -> Result<(History, Option<String>), HistoryError> {
        let records =
            self.records.into_iter().map(|one| one.into_inner().unwrap_or_else(PoisonError::into_inner));
        let (recorders, full): (Vec<_>, Vec<_>) =
            records.map(|one| (one.recorder.into_inner(), one.full.into_inner())).unzip();
        Ok((History::merge(recorders)?, full.into_iter().flatten().next()))
    }
}

/// A client's records look on.
#[derive(Clone, Copy)]
pub(super) struct Recorded<'a> {
    records: &'a Records,
    from: Instant,
}

impl Recorded<'_> {
    fn now_ns(self) -> u64 {
        self.from.elapsed().as_nanos() as u64
    }

    fn begin(
        self,
        begin: impl FnOnce(&mut Recorder, u64) -> Result<Ticket, HistoryError>,
    ) -> Result<Cell<Option<Ticket>>, BenchError> {
        if let Some(full) = &*self.records.full.borrow() {
            return Err(BenchError::Target(full.clone()));
        }
        let ticket = begin(&mut self.records.recorder.borrow_mut(), self.now_ns());
        let ticket = ticket.map_err(|error| BenchError::Target(self.full(&error)))?;
        // The clock was read and its reading stored: no load of the operation comes before that. What looked earlier
        // than it says it began would be blamed for what it could not know.
        fence(Ordering::SeqCst);
        Ok(Cell::new(Some(ticket)))
    }

    fn full(self, error: &HistoryError) -> String {
        let what = match error {
            HistoryError::OperationsOfClient { limit, .. } => format!("{limit} operations"),
            HistoryError::BytesOfClient { limit, .. } => {
                format!("{} of keys and values", ByteSize(*limit as u64))
            }
            other => other.to_string(),
        };
        let text = format!(
            "the history is full: a client has recorded {what}, the most that it may; make the run shorter (--seconds, \
             --warmup-seconds, --runs, fewer workloads and windows) or slower (--rate)"
        );
        self.records.full.borrow_mut().get_or_insert(text).clone()
    }

    /// Ends what was begun, once.
    fn end(self, ticket: &Cell<Option<Ticket>>, end: impl FnOnce(&mut Recorder, Ticket, u64)) {
        // Reading the system's clock waits for the loads before it.
        let now_ns = self.now_ns();
        if let Some(ticket) = ticket.take() {
            end(&mut self.records.recorder.borrow_mut(), ticket, now_ns);
        }
    }
}

impl Witness for Recorded<'_> {
    type Ticket = Cell<Option<Ticket>>;
    type Full = BenchError;

    fn get(self, key: &[u8]) -> Result<Self::Ticket, BenchError> {
        self.begin(|recorder, now_ns| recorder.get(key, now_ns))
    }

    fn put(self, key: &[u8], value: &[u8]) -> Result<Self::Ticket, BenchError> {
        self.begin(|recorder, now_ns| recorder.put(key, value, now_ns))
    }

    fn got(self, ticket: &Self::Ticket, value: Option<&[u8]>) {
        self.end(ticket, |recorder, ticket, now_ns| {
            if let Err(error) = recorder.got(ticket, value, now_ns) {
                self.full(&error);
            }
        });
    }

    fn stored(self, ticket: &Self::Ticket) {
        self.end(ticket, Recorder::acknowledged);
    }

    fn unanswered(self, ticket: &Self::Ticket) {
        self.end(ticket, |recorder, ticket, _| recorder.withdraw(ticket));
    }

    fn unknown(self, ticket: &Self::Ticket) {
        self.end(ticket, Recorder::unknown);
    }
}

#[cfg(test)]
#[path = "recording_tests.rs"]
mod tests;
