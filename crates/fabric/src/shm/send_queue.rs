//! The send queue. Requests start in the order posted and complete in that order.
//!
//! WRITEs and SENDs start when they are posted, if nothing waits before them. READs and atomics only ask the processor to
//! fetch their lines when they are posted and start on the next poll, so that the cache misses of several overlap; they
//! start when all before them are complete, and then complete at once. A SEND has started when it is in the peer's ring; on RC it completes when the peer has put it into a RECV,
//! which the sender looks for only while a signaled request is open.

use super::{
    ShmAddress, ShmNic,
    channel::status_of,
    copy::{self, Neighbours, Sink},
    message::{Header, TRANSFER_BYTES_MAX},
    queue_pair::{Core, Range},
    region::Imported,
    request::{Bytes, bytes_of},
    ring::Violation,
};
use crate::{
    Completion, Opcode, Payload, PostError, QueuePairState, ReceiverNotReady, RemoteSlice, SendRequest,
    Status, Transport, Verb,
};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Release},
    fence,
};

/// A posted request.
#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u64,
    /// Lines that the peer must have consumed for this to be complete.
    end: u64,
    work: Work,
    status: Status,
    opcode: Opcode,
    signaled: bool,
}

/// A range of a held region of the peer.
#[derive(Clone, Copy, Debug)]
struct Place {
    held: u32,
    offset: usize,
}

/// What a request that has not started needs.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Nothing: it has started, or never will.
    None,
    Read {
        into: Range,
        from: Place,
    },
    Write {
        source: Source,
        to: Place,
        immediate: Option<u32>,
    },
    Send {
        source: Source,
        immediate: Option<u32>,
    },
    CompareSwap {
        into: Range,
        at: Place,
        expected: u64,
        desired: u64,
    },
    FetchAdd {
        into: Range,
        at: Place,
        add: u64,
    },
}

impl Work {
    /// Whether it brings something back.
    #[inline(always)]
    fn fetches(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }
}

/// Where the payload of a request that waits is.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// In the entry's own part of the inline buffer, so many bytes.
    Inline(usize),
    Range(Range),
}

/// What came of trying to start a request.
enum Start {
    /// It started; it is complete when the peer has consumed so many lines.
    Done(u64),
    /// There is no room in the peer's ring.
    Blocked,
    Failed(Status),
}

/// The queue: `head <= walked <= started <= tail`, all counting up for ever.
#[derive(Debug)]
pub(crate) struct Sends {
    entries: Box<[Entry]>,
    depth: usize,
    /// The oldest request whose place is not free.
    head: usize,
    /// The oldest request that is not complete. Unsignaled ones between `head` and here wait for a signaled one.
    walked: usize,
    /// The oldest request that has not started.
    started: usize,
    tail: usize,
    /// Signaled requests from `walked` on.
    signaled: usize,
    /// Lines that the peer was last seen to have consumed.
    consumed: u64,
    /// A request failed on starting: none after it starts.
    halted: bool,
    inline: Box<[u8]>,
    inline_bytes: usize,
}

impl Sends {
    pub(crate) fn new(depth: usize, inline_bytes: usize) -> Self {
        let empty = Entry {
            id: 0,
            end: 0,
            work: Work::None,
            status: Status::Success,
            opcode: Opcode::Send,
            signaled: false,
        };
        let places = depth.max(1).next_power_of_two();
        Self {
            entries: vec![empty; places].into(),
            depth,
            head: 0,
            walked: 0,
            started: 0,
            tail: 0,
            signaled: 0,
            consumed: 0,
            halted: false,
            inline: vec![0; places * inline_bytes].into(),
            inline_bytes,
        }
    }

    #[inline(always)]
    fn index(&self, number: usize) -> usize {
        number & (self.entries.len() - 1)
    }

    /// Whether anything is to be done on a poll: something waits to start, or somebody waits for a completion.
    #[inline(always)]
    pub(crate) fn are_open(&self) -> bool {
        self.started != self.tail || self.signaled > 0 || self.halted
    }

    /// The depth, if every place is taken.
    #[inline(always)]
    pub(crate) fn full(&self) -> Option<usize> {
        (self.tail - self.head >= self.depth).then_some(self.depth)
    }

    /// Whether every request is complete.
    pub(crate) fn is_empty(&self) -> bool {
        self.walked == self.tail
    }

    /// Keeps the payload of a request that must wait.
    fn stash(&mut self, index: usize, pieces: &[&[u8]]) -> Source {
        let mut place = &mut self.inline[index * self.inline_bytes..][..self.inline_bytes];
        let mut bytes = 0;
        for piece in pieces {
            let (front, rest) = place.split_at_mut(piece.len());
            front.copy_from_slice(piece);
            bytes += piece.len();
            place = rest;
        }
        Source::Inline(bytes)
    }
}

impl Core {
    /// Posts a request: checks it, then starts it or has it wait.
    #[inline]
    pub(crate) fn post_send(&mut self, request: &SendRequest<'_, ShmNic>) -> Result<(), PostError> {
        let opcode = self.check(&request.verb)?;
        let index = self.sends.index(self.sends.tail);
        let entry = &mut self.sends.entries[index];
        entry.id = request.id;
        entry.end = 0;
        entry.work = Work::None;
        entry.status = Status::Success;
        entry.opcode = opcode;
        entry.signaled = request.signaled;
        if self.state == QueuePairState::Ready {
            self.take_on(index, request);
        }
        self.sends.tail += 1;
        self.sends.signaled += usize::from(request.signaled);
        Ok(())
    }

    /// Starts a checked request if nothing waits before it, or has it wait.
    #[inline]
    fn take_on(&mut self, index: usize, request: &SendRequest<'_, ShmNic>) {
        let signaled = request.signaled;
        let work = match &request.verb {
            Verb::Read { into, from } => {
                let waiting = self.sends.tail - self.sends.started;
                let (imported, offset) = (&*from.region.inner, from.offset);
                if waiting < self.config.reads_outstanding
                    && imported.check(self.link.id, offset, into.bytes, false) == Status::Success
                {
                    imported.ahead(offset, into.bytes).start();
                }
                let into = self.hold(into.region, into.offset, into.bytes);
                Work::Read { into, from: self.place(from) }
            }
            Verb::Write { payload, to, immediate } => {
                if self.may_start() {
                    let region = &to.region.inner;
                    let start = self.start_write(bytes_of(payload), region, to.offset, *immediate, signaled);
                    if self.note(start, index) {
                        return;
                    }
                }
                let source = self.keep(index, payload);
                Work::Write { source, to: self.place(to), immediate: *immediate }
            }
            Verb::Send { payload, immediate, to: Some(address) } => {
                send_datagram(payload, *immediate, address);
                self.sends.started += 1;
                return;
            }
            Verb::Send { payload, immediate, to: None } => {
                if self.may_start() {
                    let start = self.start_send(bytes_of(payload), *immediate, signaled);
                    if self.note(start, index) {
                        return;
                    }
                }
                Work::Send { source: self.keep(index, payload), immediate: *immediate }
            }
            Verb::CompareSwap { into, at, expected, desired } => {
                let into = self.hold(into.region, into.offset, into.bytes);
                Work::CompareSwap { into, at: self.place(at), expected: *expected, desired: *desired }
            }
            Verb::FetchAdd { into, at, add } => {
                let into = self.hold(into.region, into.offset, into.bytes);
                Work::FetchAdd { into, at: self.place(at), add: *add }
            }
        };
        self.sends.entries[index].work = work;
    }

    #[inline]
    fn may_start(&self) -> bool {
        self.sends.started == self.sends.tail && !self.sends.halted
    }

    /// Takes note of an attempt to start the request after the last one that started; false if it must wait.
    #[inline]
    fn note(&mut self, start: Start, index: usize) -> bool {
        match start {
            Start::Done(end) => self.sends.entries[index].end = end,
            Start::Blocked => return false,
            Start::Failed(status) => {
                self.sends.entries[index].status = status;
                self.sends.halted = true;
            }
        }
        self.sends.started += 1;
        true
    }

    fn keep(&mut self, index: usize, payload: &Payload<'_, ShmNic>) -> Source {
        match payload {
            Payload::Inline(pieces) => self.sends.stash(index, pieces),
            Payload::Slice(slice) => Source::Range(self.hold(slice.region, slice.offset, slice.bytes)),
        }
    }

    #[inline]
    fn place(&mut self, remote: &RemoteSlice<'_, ShmNic>) -> Place {
        Place { held: self.remote.hold(&remote.region.inner), offset: remote.offset }
    }

    /// Starts what can start and completes what is complete.
    #[inline]
    pub(crate) fn advance_sends(&mut self) {
        while self.sends.started != self.sends.tail && !self.sends.halted {
            let index = self.sends.index(self.sends.started);
            let fetches = self.sends.entries[index].work.fetches();
            if fetches && !self.is_next() || !self.start_next(index) {
                break;
            }
            if fetches && !self.sends.halted {
                self.complete(index);
            }
        }
        if self.sends.walked != self.sends.started && (self.sends.signaled > 0 || self.sends.halted) {
            self.settle();
        }
    }

    /// Starts the WRITEs and SENDs that wait and can start. READs wait for the next poll, where they complete at once: so
    /// a region can be revoked before, but not between.
    pub(crate) fn start_stores(&mut self) {
        while self.sends.started != self.sends.tail && !self.sends.halted {
            let index = self.sends.index(self.sends.started);
            if self.sends.entries[index].work.fetches() || !self.start_next(index) {
                break;
            }
        }
    }

    /// Whether all requests before the next one to start are complete.
    #[inline]
    fn is_next(&mut self) -> bool {
        if self.sends.walked != self.sends.started {
            self.settle();
        }
        self.sends.walked == self.sends.started && self.state == QueuePairState::Ready
    }

    /// Tries to start the next request; false if it must wait.
    #[inline]
    fn start_next(&mut self, index: usize) -> bool {
        let start = match self.sends.entries[index].work {
            Work::None => Start::Done(0),
            Work::Read { into, from } => {
                let start = self.read(into, from);
                self.local.release(into.held);
                self.remote.release(from.held);
                self.sends.entries[index].work = Work::None;
                return self.note(start, index);
            }
            Work::CompareSwap { into, at, expected, desired } => self.atomic(into, at, |word| {
                match word.compare_exchange(expected, desired, AcqRel, Acquire) {
                    Ok(old) | Err(old) => old,
                }
            }),
            Work::FetchAdd { into, at, add } => self.atomic(into, at, |word| word.fetch_add(add, AcqRel)),
            Work::Write { .. } | Work::Send { .. } => self.start_waiting(index),
        };
        if !self.note(start, index) {
            return false;
        }
        let work = std::mem::replace(&mut self.sends.entries[index].work, Work::None);
        self.release(&work);
        true
    }

    #[inline]
    fn read(&mut self, into: Range, from: Place) -> Start {
        let imported = self.remote.get(from.held);
        let status = imported.check(self.link.id, from.offset, into.bytes, false);
        if status != Status::Success || !imported.stands() {
            return Start::Failed(Status::RemoteAccess);
        }
        // Busy: the bytes around a buffer may belong to anybody.
        let mut sink = Sink::new(self.local.get(into.held).words(), into.offset, Neighbours::Busy);
        sink.words(imported.words(), from.offset, into.bytes);
        sink.finish();
        if imported.stands() { Start::Done(0) } else { Start::Failed(Status::RemoteAccess) }
    }

    /// A READ that is over when this returns; false if it may not be, or is not to be trusted.
    #[inline(always)]
    pub(crate) fn read_at_once(&self, into: &mut [u8], from: &RemoteSlice<'_, ShmNic>) -> bool {
        let imported = &*from.region.inner;
        let may = self.state == QueuePairState::Ready
            && self.config.transport == Transport::Rc
            && self.sends.is_empty()
            && into.len() <= TRANSFER_BYTES_MAX
            && imported.check(self.link.id, from.offset, into.len(), false) == Status::Success;
        if may {
            copy::copy_out(imported.words(), from.offset, into);
        }
        may && imported.stands()
    }

    /// A WRITE that is over when this returns; false if it may not be: then nothing was stored.
    #[inline(always)]
    pub(crate) fn write_at_once(&mut self, pieces: &[&[u8]], to: &RemoteSlice<'_, ShmNic>) -> bool {
        let imported = &*to.region.inner;
        let payload = Bytes::Gathered(pieces);
        let may = self.state == QueuePairState::Ready
            && self.config.transport != Transport::Ud
            && self.sends.is_empty()
            && payload.len() <= TRANSFER_BYTES_MAX
            && imported.check(self.link.id, to.offset, payload.len(), true) == Status::Success
            && imported.stands();
        if may {
            store(payload, imported, to.offset);
            if let Some(outbound) = &mut self.outbound {
                outbound.wake_receiver();
            }
        }
        may
    }

    /// A SEND that is in the peer's ring when this returns; false if it is not: then nothing was stored that the peer looks at.
    #[inline]
    pub(crate) fn send_at_once(&mut self, pieces: &[&[u8]]) -> bool {
        let may = self.state == QueuePairState::Ready && self.may_start();
        // None over UD.
        let Some(outbound) = self.outbound.as_mut().filter(|_| may) else { return false };
        let payload = Bytes::Gathered(pieces);
        let header = Header {
            bytes: payload.len(),
            write: false,
            immediate: None,
            fail_if_not_ready: self.config.receiver_not_ready == ReceiverNotReady::Fail,
            acknowledge: false,
        };
        header.bytes <= outbound.message_bytes && outbound.send(header, |sink| payload.pour(sink)) == Ok(true)
    }

    fn atomic(&mut self, into: Range, at: Place, change: impl FnOnce(&AtomicU64) -> u64) -> Start {
        let imported = self.remote.get(at.held);
        let status = imported.check(self.link.id, at.offset, 8, true);
        if status != Status::Success || !imported.stands() {
            return Start::Failed(Status::RemoteAccess);
        }
        let old = change(&imported.words()[at.offset / 8]);
        let mut sink = Sink::new(self.local.get(into.held).words(), into.offset, Neighbours::Busy);
        sink.bytes(&old.to_le_bytes());
        sink.finish();
        Start::Done(0)
    }

    /// Starts a WRITE or a SEND that waited. Its payload is borrowed from `self`, so what is changed is taken out.
    fn start_waiting(&mut self, index: usize) -> Start {
        let entry = self.sends.entries[index];
        let (Work::Write { source, .. } | Work::Send { source, .. }) = entry.work else {
            return Start::Done(0);
        };
        let inline = std::mem::take(&mut self.sends.inline);
        let local = std::mem::replace(&mut self.local, super::held::Held::none());
        let bytes = match source {
            Source::Inline(bytes) => Bytes::Flat(&inline[index * self.sends.inline_bytes..][..bytes]),
            Source::Range(range) => Bytes::Words(local.get(range.held).words(), range.offset, range.bytes),
        };
        let start = match entry.work {
            Work::Write { to, immediate, .. } => {
                let imported = self.remote.share(to.held);
                self.start_write(bytes, &imported, to.offset, immediate, entry.signaled)
            }
            Work::Send { immediate, .. } => self.start_send(bytes, immediate, entry.signaled),
            _ => Start::Done(0),
        };
        self.sends.inline = inline;
        self.local = local;
        start
    }

    #[inline]
    fn start_send(&mut self, bytes: Bytes<'_>, immediate: Option<u32>, signaled: bool) -> Start {
        self.message(bytes.len(), false, immediate, signaled, |sink| bytes.pour(sink))
    }

    #[inline]
    fn start_write(
        &mut self,
        bytes: Bytes<'_>,
        to: &Imported,
        offset: usize,
        immediate: Option<u32>,
        signaled: bool,
    ) -> Start {
        let length = bytes.len();
        let status = to.check(self.link.id, offset, length, true);
        if status != Status::Success || !to.stands() {
            // A UC sender never learns what the receiver made of it.
            let lost = self.config.transport == Transport::Uc;
            return if lost { Start::Done(0) } else { Start::Failed(Status::RemoteAccess) };
        }
        store(bytes, to, offset);
        match immediate {
            None => {
                if let Some(outbound) = &mut self.outbound {
                    outbound.wake_receiver();
                }
                Start::Done(0)
            }
            // If there is no room the whole WRITE is repeated, which stores the same bytes again.
            Some(_) => self.message(length, true, immediate, signaled, |_| {}),
        }
    }

    /// Puts a message into the peer's ring.
    #[inline]
    fn message(
        &mut self,
        bytes: usize,
        write: bool,
        immediate: Option<u32>,
        acknowledge: bool,
        fill: impl FnOnce(&mut Sink<'_>),
    ) -> Start {
        let Some(outbound) = &mut self.outbound else { return Start::Failed(Status::PeerLost) };
        let reliable = self.config.transport == Transport::Rc;
        if !write && bytes > outbound.message_bytes {
            // No RECV of the peer is as long as that.
            return if reliable { Start::Failed(Status::RemoteInvalidRequest) } else { Start::Done(0) };
        }
        let fail_if_not_ready = self.config.receiver_not_ready == ReceiverNotReady::Fail;
        let acknowledge = acknowledge && reliable;
        match outbound.send(Header { bytes, write, immediate, fail_if_not_ready, acknowledge }, fill) {
            Ok(true) if reliable => Start::Done(outbound.position()),
            Ok(true) => Start::Done(0),
            Ok(false) if reliable => Start::Blocked,
            // Unreliable: what finds no room is lost.
            Ok(false) => Start::Done(0),
            Err(Violation) => Start::Failed(Status::ProtocolViolation),
        }
    }

    /// Completes what is complete, in order.
    #[inline]
    pub(crate) fn settle(&mut self) {
        while self.sends.walked != self.sends.started {
            let Entry { end, status, .. } = self.sends.entries[self.sends.index(self.sends.walked)];
            let status = if status != Status::Success { status } else { self.arrived(end) };
            match status {
                Status::Success => {}
                Status::Flushed => return,
                failure => return self.fail(failure),
            }
            self.complete(self.sends.index(self.sends.walked));
        }
    }

    /// Completes the oldest request that is not complete.
    #[inline]
    fn complete(&mut self, index: usize) {
        let Entry { id, opcode, signaled, .. } = self.sends.entries[index];
        self.sends.walked += 1;
        if signaled {
            self.sends.signaled -= 1;
            self.sends.head = self.sends.walked;
            let status = Status::Success;
            let queue_pair = self.number;
            self.send_queue.push(Completion { id, queue_pair, status, opcode, bytes: 0, immediate: None });
        }
    }

    /// Whether the peer has consumed so many lines: success, flushed for "not yet", or what went wrong.
    #[inline]
    fn arrived(&mut self, end: u64) -> Status {
        if end <= self.sends.consumed {
            return Status::Success;
        }
        let Some(outbound) = &mut self.outbound else { return Status::PeerLost };
        match outbound.consumed() {
            Err(Violation) => Status::ProtocolViolation,
            Ok((verdict, consumed)) => {
                self.sends.consumed = consumed;
                match verdict {
                    _ if end <= consumed => Status::Success,
                    0 => Status::Flushed,
                    verdict => status_of(verdict),
                }
            }
        }
    }

    /// Gives back what a request held.
    #[inline]
    fn release(&mut self, work: &Work) {
        match work {
            Work::None => {}
            Work::Read { into, from: at }
            | Work::CompareSwap { into, at, .. }
            | Work::FetchAdd { into, at, .. } => {
                self.local.release(into.held);
                self.remote.release(at.held);
            }
            Work::Write { source, to, .. } => {
                self.remote.release(to.held);
                self.release_source(source);
            }
            Work::Send { source, .. } => self.release_source(source),
        }
    }

    fn release_source(&mut self, source: &Source) {
        if let Source::Range(range) = source {
            self.local.release(range.held);
        }
    }

    /// Ends the requests of a queue pair in error.
    pub(crate) fn flush_sends(&mut self) {
        // Unsignaled ones that were complete raise nothing.
        self.sends.head = self.sends.head.max(self.sends.walked);
        while self.sends.head != self.sends.tail && self.send_queue.has_room() {
            let index = self.sends.index(self.sends.head);
            let Entry { id, work, signaled, .. } = self.sends.entries[index];
            self.release(&work);
            self.sends.entries[index].work = Work::None;
            self.sends.signaled -= usize::from(signaled);
            self.sends.head += 1;
            let status = self.oldest.take().unwrap_or(Status::Flushed);
            self.send_queue.push(self.failed(id, status));
        }
        self.sends.walked = self.sends.head;
        self.sends.started = self.sends.started.max(self.sends.head);
    }
}

/// Stores the bytes of a WRITE.
#[inline(always)]
fn store(bytes: Bytes<'_>, to: &Imported, offset: usize) {
    let mut sink = Sink::new(to.words(), offset, Neighbours::Busy);
    bytes.pour(&mut sink);
    sink.finish();
    // Whoever sees what this process stores later sees these bytes too.
    fence(Release);
}

/// Sends a datagram, or loses it.
fn send_datagram(payload: &Payload<'_, ShmNic>, immediate: Option<u32>, to: &ShmAddress) {
    let bytes = bytes_of(payload);
    let header =
        Header { bytes: bytes.len(), write: false, immediate, fail_if_not_ready: false, acknowledge: false };
    let mut outbound = to.outbound.borrow_mut();
    if bytes.len() <= outbound.message_bytes {
        // No room, or a receiver that breaks the rules: the sender never learns.
        let _ = outbound.send(header, |sink| bytes.pour(sink));
    }
}
