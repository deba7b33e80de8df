//! The load of one client: which operation comes next, when it should start, and how each went.
//!
//! A target draws operations and reports them finished; everything here costs a few nanoseconds per operation, allocates
//! nothing, and is not shared between threads. One reading of the clock serves as the end of an operation and the start
//! of the one drawn after it. `&Load` suffices for everything, so that many futures of one thread can draw from it.

use crate::clock::{Clock, Ticks};
use crate::keys::Shape;
use crate::trace::Trace;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

/// The longest latency that a histogram tells apart: a minute.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reads a record.
    Get,
    /// Overwrites a record.
    Put,
    /// Writes a record that is not there yet. Most systems put.
    Insert,
    /// Reads a record, then overwrites it; one operation.
    ReadModifyWrite,
}

impl Kind {
    #[inline]
    pub(crate) fn from_bits(bits: u32) -> Self {
        match bits & 3 {
            0 => Kind::Get,
            1 => Kind::Put,
            2 => Kind::Insert,
            _ => Kind::ReadModifyWrite,
        }
    }
}

/// One operation, with buffers for its key and value that are used again for the next one drawn into it.
#[derive(Debug)]
pub struct Operation {
    kind: Kind,
    index: u64,
    key: Vec<u8>,
    value: Vec<u8>,
    start: Ticks,
    timed: bool,
}

impl Operation {
    /// What to do.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The record's number; the key says the same.
    #[inline]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The record's key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value to write; of no meaning for a get.
    #[inline]
    pub fn value(&self) -> &[u8] {
        &self.value
    }
}

/// What [`Load::next`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The operation is to be performed now.
    Ready,
    /// Open loop: the next operation is due at this moment. Attend to those outstanding, or [`Load::wait_until`].
    Later(Ticks),
    /// No more operations: finish those outstanding and return.
    Finished,
}

/// When operations start.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pace {
    /// Each as soon as one of the window has finished, until the deadline.
    Closed,
    /// One every so many ticks, however long they take.
    Open {
        /// Ticks from one intended start to the next.
        interval: Ticks,
    },
}

/// Where operations come from.
#[derive(Debug)]
enum Source {
    /// Every `stride`-th record once, from `next` to `end`.
    Sequence { next: Cell<u64>, end: u64, stride: u64 },
    /// The trace, from a position.
    Trace { trace: Arc<Trace>, position: Cell<usize> },
}

/// The load of one client. Not `Sync`: it belongs to the thread that drives the target.
#[derive(Debug)]
pub struct Load {
    shape: Shape,
    source: Source,
    pace: Pace,
    window: usize,
    clock: Clock,
    verify: bool,
    /// One operation in this many is timed.
    timed_every: u32,
    untimed_left: Cell<u32>,
    deadline: Cell<Ticks>,
    /// Closed loop: when the operation timed last ended. Open loop: when the next operation is due.
    boundary: Cell<Ticks>,
    version: Cell<u64>,
    inserts: Inserts,
    /// Moved on in steps of many writes.
    progress: Option<ProgressBar>,
    tally: Tally,
    histogram: RefCell<Histogram<u64>>,
    first_error: RefCell<Option<String>>,
}

#[derive(Debug, Default)]
struct Tally {
    operations: Cell<u64>,
    gets: Cell<u64>,
    missing: Cell<u64>,
    errors: Cell<u64>,
}

/// What makes up a load; see the fields of the same names of `BenchOptions`.
#[derive(Debug, Clone)]
pub(crate) struct LoadSettings {
    pub shape: Shape,
    pub records: u64,
    pub client: u64,
    pub clients: u64,
    pub window: usize,
    pub verify: bool,
    pub timed_every: u32,
    /// See the field of `Measurement`.
    pub number: u64,
    /// Records that this client has inserted before.
    pub inserted: u64,
}

/// The version of a client's first write in a measurement. The versions of no other client and of no other measurement of
/// the same store come near it (2^40 writes), so that every value is written once: what a get found says who put it.
fn first_version(client: u64, number: u64) -> u64 {
    client << 56 | (number & 0xFFFF) << 40
}

/// The results of a drive.
#[derive(Debug)]
pub(crate) struct Finished {
    pub operations: u64,
    pub gets: u64,
    pub missing: u64,
    pub errors: u64,
    pub first_error: Option<String>,
    pub histogram: Histogram<u64>,
    pub inserted: u64,
}

impl Load {
    /// The load that writes this client's share of all records once. `progress` counts the records written.
    pub(crate) fn of_all_records(settings: &LoadSettings, clock: Clock, progress: ProgressBar) -> Self {
        let source = Source::Sequence {
            next: Cell::new(settings.client),
            end: settings.records,
            stride: settings.clients,
        };
        let mut load = Self::new(settings, clock, source, Pace::Closed);
        load.progress = Some(progress);
        load.deadline.set(Ticks::MAX);
        load
    }

    /// The load of a workload. [`Self::start`] before driving.
    pub(crate) fn of_trace(settings: &LoadSettings, clock: Clock, trace: Arc<Trace>, pace: Pace) -> Self {
        Self::new(settings, clock, Source::Trace { trace, position: Cell::new(0) }, pace)
    }

    fn new(settings: &LoadSettings, clock: Clock, source: Source, pace: Pace) -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are constants");
        Self {
            shape: settings.shape,
            source,
            pace,
            window: settings.window,
            clock,
            verify: settings.verify,
            timed_every: settings.timed_every.max(1),
            untimed_left: Cell::new(0),
            deadline: Cell::new(0),
            boundary: Cell::new(0),
            version: Cell::new(first_version(settings.client, settings.number)),
            inserts: Inserts::new(settings),
            progress: None,
            tally: Tally::default(),
            histogram: RefCell::new(histogram),
            first_error: RefCell::new(None),
        }
    }

    /// Begins a phase of `duration` with nothing counted. An open loop's operations are due from now on.
    pub(crate) fn start(&self, duration: Duration) {
        let now = self.clock.now();
        self.boundary.set(now);
        self.deadline.set(now + self.clock.ticks(duration));
        self.untimed_left.set(0);
        for counter in [&self.tally.operations, &self.tally.gets, &self.tally.missing, &self.tally.errors] {
            counter.set(0);
        }
        self.histogram.borrow_mut().reset();
        self.first_error.replace(None);
    }

    /// What was counted since [`Self::start`].
    pub(crate) fn finished(&self) -> Finished {
        Finished {
            operations: self.tally.operations.get(),
            gets: self.tally.gets.get(),
            missing: self.tally.missing.get(),
            errors: self.tally.errors.get(),
            first_error: self.first_error.borrow().clone(),
            histogram: self.histogram.borrow().clone(),
            inserted: self.inserts.issued.get(),
        }
    }

    /// How many operations are to be outstanding at most.
    #[inline]
    pub fn window(&self) -> usize {
        self.window
    }

    /// Whether this load fills the store, each record once: the target may write in batches.
    #[inline]
    pub fn is_filling(&self) -> bool {
        matches!(self.source, Source::Sequence { .. })
    }

    /// Whether operations become due at a rate, so that [`Next::Later`] may come.
    #[inline]
    pub fn is_open_loop(&self) -> bool {
        matches!(self.pace, Pace::Open { .. })
    }

    /// The length of every value.
    pub fn value_bytes(&self) -> usize {
        self.shape.value_bytes()
    }

    /// An operation to draw into; make one per place of the window, before the first is drawn.
    pub fn operation(&self) -> Operation {
        Operation {
            kind: Kind::Get,
            index: 0,
            key: self.shape.new_key(),
            value: vec![0; self.shape.value_bytes()],
            start: 0,
            timed: false,
        }
    }

    /// Draws the next operation into `operation`, whose previous one must be finished.
    #[inline]
    pub fn next(&self, operation: &mut Operation) -> Next {
        match self.pace {
            Pace::Closed => {
                if self.boundary.get() >= self.deadline.get() {
                    return Next::Finished;
                }
                self.time_closed(operation);
            }
            Pace::Open { interval } => {
                let (now, due) = (self.clock.now(), self.boundary.get());
                if due >= self.deadline.get() || now >= self.deadline.get() {
                    return Next::Finished;
                }
                if now < due {
                    return Next::Later(due);
                }
                (operation.start, operation.timed) = (due, true);
                self.boundary.set(due + interval);
            }
        }
        self.draw(operation)
    }

    /// Decides whether the operation is timed. When all are, the previous one's end is this one's start.
    #[inline]
    fn time_closed(&self, operation: &mut Operation) {
        let left = self.untimed_left.get();
        operation.timed = left == 0;
        if left > 0 {
            self.untimed_left.set(left - 1);
        } else if self.timed_every == 1 {
            operation.start = self.boundary.get();
        } else {
            self.untimed_left.set(self.timed_every - 1);
            operation.start = self.clock.now();
            self.boundary.set(operation.start);
        }
    }

    #[inline]
    fn draw(&self, operation: &mut Operation) -> Next {
        let (kind, index) = match &self.source {
            Source::Trace { trace, position } => {
                let (kind, number, following) = trace.entry(position.get());
                position.set(following);
                match kind {
                    Kind::Insert => (kind, self.inserts.issue()),
                    _ if trace.is_latest() => (kind, self.inserts.latest(number)),
                    _ => (kind, number),
                }
            }
            Source::Sequence { next, end, stride } => {
                let index = next.get();
                if index >= *end {
                    return Next::Finished;
                }
                next.set(index + stride);
                (Kind::Put, index)
            }
        };
        (operation.kind, operation.index) = (kind, index);
        self.shape.write_key(&mut operation.key, index);
        if kind != Kind::Get {
            let version = self.version.get();
            self.version.set(version + 1);
            self.shape.write_value(&mut operation.value, index, version);
        }
        Next::Ready
    }

    /// Open loop: passes the time until `due`; sleeps while it is far, since a client's spinning would disturb a server
    /// that shares its core.
    pub fn wait_until(&self, due: Ticks) {
        const SPIN_NS: u64 = 100_000;
        let left_ns = self.clock.nanoseconds(self.clock.now(), due);
        if left_ns > 2 * SPIN_NS {
            std::thread::sleep(Duration::from_nanos(left_ns - SPIN_NS));
        }
        while self.clock.now() < due {
            std::hint::spin_loop();
        }
    }

    /// A get finished with `value`.
    #[inline]
    pub fn found(&self, operation: &Operation, value: &[u8]) {
        self.finish(operation);
        self.check(operation, value);
    }

    /// A get found no record. All records that are asked for have been written, so this is counted as `missing`.
    #[inline]
    pub fn missing(&self, operation: &Operation) {
        self.finish(operation);
        self.tally.missing.set(self.tally.missing.get() + 1);
    }

    /// The get of a read-modify-write found `value`; the put follows, and [`Self::stored`] will finish the operation.
    #[inline]
    pub fn fetched(&self, operation: &Operation, value: &[u8]) {
        self.check(operation, value);
    }

    /// A put, an insert or a read-modify-write finished, or anything that brings no value.
    #[inline]
    pub fn stored(&self, operation: &Operation) {
        self.finish(operation);
    }

    /// An operation finished with an error, of which the first is kept.
    #[cold]
    pub fn failed(&self, operation: &Operation, error: impl Display) {
        self.finish(operation);
        self.note_error(error);
    }

    #[inline]
    fn finish(&self, operation: &Operation) {
        if operation.timed {
            let now = self.clock.now();
            if matches!(self.pace, Pace::Closed) {
                self.boundary.set(now);
            }
            self.histogram.borrow_mut().saturating_record(self.clock.nanoseconds(operation.start, now));
        }
        let operations = self.tally.operations.get() + 1;
        self.tally.operations.set(operations);
        match operation.kind {
            Kind::Get | Kind::ReadModifyWrite => self.tally.gets.set(self.tally.gets.get() + 1),
            Kind::Insert => self.inserts.acknowledge(operation.index),
            Kind::Put => self.count_progress(operations),
        }
    }

    #[inline]
    fn count_progress(&self, operations: u64) {
        const STEP: u64 = 1024;
        if let Some(progress) = &self.progress
            && operations.is_multiple_of(STEP)
        {
            progress.inc(STEP);
        }
    }

    #[inline]
    fn check(&self, operation: &Operation, value: &[u8]) {
        let good = match self.verify {
            true => self.shape.is_value_of(value, operation.index),
            false => value.len() == self.shape.value_bytes(),
        };
        if !good {
            self.wrong_value(operation, value);
        }
    }

    #[cold]
    fn wrong_value(&self, operation: &Operation, value: &[u8]) {
        let key = String::from_utf8_lossy(&operation.key);
        let (got, expected) = (value.len(), self.shape.value_bytes());
        self.note_error(format_args!(
            "the value of {key} ({got} bytes, {expected} expected) was never written"
        ));
    }

    fn note_error(&self, error: impl Display) {
        self.tally.errors.set(self.tally.errors.get() + 1);
        self.first_error.borrow_mut().get_or_insert_with(|| error.to_string());
    }
}

/// The records that one client inserts: numbered after those loaded, the clients taking turns, so that no two insert the
/// same and each knows the latest of its own.
#[derive(Debug)]
struct Inserts {
    records: u64,
    client: u64,
    clients: u64,
    issued: Cell<u64>,
    /// Numbers (of this client's inserts) that are not acknowledged yet: at most a window of them.
    outstanding: RefCell<Vec<u64>>,
}

impl Inserts {
    fn new(settings: &LoadSettings) -> Self {
        Self {
            records: settings.records,
            client: settings.client,
            clients: settings.clients,
            issued: Cell::new(settings.inserted),
            outstanding: RefCell::new(Vec::with_capacity(settings.window)),
        }
    }

    /// The index of a new record.
    fn issue(&self) -> u64 {
        let number = self.issued.get();
        self.issued.set(number + 1);
        self.outstanding.borrow_mut().push(number);
        self.index(number)
    }

    fn index(&self, number: u64) -> u64 {
        self.records + number * self.clients + self.client
    }

    fn acknowledge(&self, index: u64) {
        let number = (index - self.records) / self.clients;
        self.outstanding.borrow_mut().retain(|outstanding| *outstanding != number);
    }

    /// The `rank`-th latest record that this client knows to be stored.
    fn latest(&self, rank: u64) -> u64 {
        let stored = self.outstanding.borrow().iter().copied().min().unwrap_or(self.issued.get());
        match stored.checked_sub(rank + 1) {
            Some(number) => self.index(number),
            None => self.records - 1 - (rank - stored),
        }
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
