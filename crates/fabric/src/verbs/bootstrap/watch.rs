//! The watch: one thread per process that reads the sockets of all connections, sends heartbeats on them, and notices
//! when one ends or falls silent.
//!
//! It starts with the first connection and ends with the last one, so that a process without connections has no thread
//! of ours; starting it again takes as long as a few system calls, and so does every connection. It never blocks but in
//! `poll`: sockets are non-blocking, and what somebody else is sending it leaves to them.
//!
//! A peer is not silent as long as bytes of it wait in the socket, since those that wait behind a full inbox are left
//! there on purpose. While an inbox is full, then, a peer that is cut off or stopped is not noticed until its messages
//! are received. One that ends is: at once by the end of its stream or, where that waits behind bytes that find no room,
//! when its kernel resets the connection upon our next heartbeat.

use super::{
    ending::Ending,
    frame::{Assembler, Frame},
    lease::{HEARTBEAT, HELD_UP, Lease},
    socket::{self, Gone, lock},
    wire::Wire,
};
use crate::FabricError;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags},
    fd::OwnedFd,
};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// How much is read from one socket before the next one has its turn.
const READ_BYTES: usize = 64 << 10;

/// What the process tells its watch.
struct Book {
    /// Wires that the watch does not know yet.
    arrivals: Vec<Arc<Wire>>,
    /// Wakes the watch; exists exactly while it runs.
    waker: Option<Arc<OwnedFd>>,
}

static BOOK: Mutex<Book> = Mutex::new(Book { arrivals: Vec::new(), waker: None });

/// Has a wire watched until it ends.
pub(super) fn add(wire: Arc<Wire>) -> Result<(), FabricError> {
    let mut book = lock(&BOOK);
    if book.waker.is_none() {
        let waker = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let waker =
            waker.map_err(|errno| FabricError::System { what: "an eventfd", source: errno.into() })?;
        let waker = Arc::new(waker);
        let watch = Watch { waker: waker.clone(), watched: Vec::new() };
        let thread = std::thread::Builder::new().name("locus-links".into()).spawn(|| watch.run());
        thread.map_err(|source| FabricError::System { what: "starting the watch of links", source })?;
        book.waker = Some(waker);
    }
    book.arrivals.push(wire);
    ring(&book);
    Ok(())
}

/// Has the watch look again at what it may read.
pub(super) fn wake() {
    ring(&lock(&BOOK));
}

fn ring(book: &Book) {
    if let Some(waker) = &book.waker {
        // It fails only where the count is full, and then it wakes anyway.
        let _ = rustix::io::write(waker, &1_u64.to_ne_bytes());
    }
}

struct Watch {
    waker: Arc<OwnedFd>,
    watched: Vec<Watched>,
}

impl Watch {
    fn run(mut self) {
        let mut buffer = vec![0; READ_BYTES];
        let mut looked = Instant::now();
        let mut beat_at = looked;
        while self.admit() {
            let events = self.wait(beat_at);
            let now = Instant::now();
            if now.duration_since(looked) > HELD_UP {
                self.watched.iter_mut().for_each(|watched| watched.lease.extend(now));
            }
            looked = now;
            if now >= beat_at {
                self.beat();
                beat_at = now + HEARTBEAT;
            }
            let mut events = events.into_iter();
            self.watched.retain_mut(|watched| {
                let events = events.next().unwrap_or(PollFlags::empty());
                watched.keeps_up(events, now, &mut buffer)
            });
        }
    }

    /// Takes the wires that are new; false if there is none at all, and the watch has ended.
    fn admit(&mut self) -> bool {
        let mut book = lock(&BOOK);
        self.watched.extend(book.arrivals.drain(..).map(Watched::new));
        if self.watched.is_empty() {
            book.waker = None;
        }
        !self.watched.is_empty()
    }

    fn beat(&self) {
        self.watched.iter().filter(|watched| watched.wire.alive()).for_each(|watched| watched.wire.beat());
    }

    /// Waits until something arrives, a heartbeat is due or a lease ends. What happened at each wire.
    fn wait(&self, beat_at: Instant) -> Vec<PollFlags> {
        let until = self.watched.iter().map(|watched| watched.lease.ends()).fold(beat_at, Instant::min);
        let left = until.saturating_duration_since(Instant::now());
        let wires = self
            .watched
            .iter()
            .map(|watched| PollFd::from_borrowed_fd(watched.wire.socket(), watched.interest()));
        let mut sockets: Vec<_> = wires.chain([PollFd::new(&self.waker, PollFlags::IN)]).collect();
        if socket::poll(&mut sockets, left).is_err() {
            // The kernel is out of memory: look everywhere, but not in a hurry.
            std::thread::sleep(left.max(Duration::from_millis(1)));
            return vec![PollFlags::IN; self.watched.len()];
        }
        let _ = rustix::io::read(&self.waker, &mut [0; 8]);
        sockets.iter().take(self.watched.len()).map(PollFd::revents).collect()
    }
}

impl Drop for Watch {
    /// Nobody may take an unwatched peer for a living one, whatever ended the watch.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut book = lock(&BOOK);
            book.waker = None;
            self.watched.extend(book.arrivals.drain(..).map(Watched::new));
            drop(book);
            self.watched.iter().for_each(|watched| watched.end(Ending::Lost));
        }
    }
}

/// A wire, and what only the watch knows of it.
struct Watched {
    wire: Arc<Wire>,
    assembler: Assembler,
    lease: Lease,
}

impl Watched {
    fn new(wire: Arc<Wire>) -> Self {
        Self { wire, assembler: Assembler::default(), lease: Lease::new(Instant::now()) }
    }

    fn interest(&self) -> PollFlags {
        if self.wire.inbox.is_full() { PollFlags::RDHUP } else { PollFlags::IN | PollFlags::RDHUP }
    }

    /// Reads what has arrived; false once there is nothing more to watch.
    fn keeps_up(&mut self, events: PollFlags, now: Instant, buffer: &mut [u8]) -> bool {
        let hung_up = events.intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
        let kept = if hung_up {
            Err(self.read_out(buffer))
        } else if events.contains(PollFlags::IN) {
            self.read(now, buffer).map(|_| ())
        } else {
            Ok(())
        };
        match kept.and_then(|()| self.check_lease(now)) {
            Ok(()) => true,
            Err(ending) => {
                self.end(ending);
                false
            }
        }
    }

    /// Reads once. How many bytes there were.
    fn read(&mut self, now: Instant, buffer: &mut [u8]) -> Result<usize, Ending> {
        let bytes = socket::receive(self.wire.socket(), buffer);
        let bytes = bytes.map_err(|Gone| Ending::Lost)?;
        // One that was closed is only waited for, as long as its last lease lasts.
        if bytes > 0 && self.wire.alive() {
            self.lease.renew(now);
        }
        let mut rest = &buffer[..bytes];
        while !rest.is_empty() {
            match self.assembler.take(&mut rest).map_err(Ending::Garbage)? {
                Some(Frame::Message(message)) => self.wire.inbox.push(message),
                Some(Frame::Goodbye) => return Err(Ending::Lost),
                Some(Frame::Heartbeat) | None => {}
            }
        }
        Ok(bytes)
    }

    /// Reads all that came before the peer hung up, full inbox or not: it is no more than the kernel has taken already.
    fn read_out(&mut self, buffer: &mut [u8]) -> Ending {
        loop {
            match self.read(Instant::now(), buffer) {
                Ok(0) => return Ending::Lost,
                Ok(_) => {}
                Err(ending) => return ending,
            }
        }
    }

    /// A peer is silent when its lease is over and, looked at once more, nothing of it waits.
    fn check_lease(&mut self, now: Instant) -> Result<(), Ending> {
        if now < self.lease.ends() {
            return Ok(());
        }
        if self.wire.alive() && socket::pending(self.wire.socket()) {
            self.lease.renew(now);
            return Ok(());
        }
        Err(Ending::Lost)
    }

    fn end(&self, ending: Ending) {
        self.wire.end(ending);
        self.wire.inbox.finish();
    }
}
