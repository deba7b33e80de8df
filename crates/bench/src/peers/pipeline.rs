//! A pipelined connection to a server that answers requests in order, over TCP or a Unix socket.
//!
//! All requests that can be sent go out in one write, and every reply that a read brings is handled before the next write,
//! so a window of W costs about one write and one read per W operations. With a window of 1 that is a plain client. No
//! operation allocates.

use crate::error::BenchError;
use crate::load::{Kind, Load, Next, Operation};
use crate::target::Target;
use nix::errno::Errno;
use nix::poll::{self, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{self, MsgFlags};
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a server may take to answer before its connection is given up.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// How long a client looks for replies, letting others run in between, before it sleeps until one comes. Locus's clients
/// spin before they sleep, too; waking a sleeper takes longer than serving a request.
const SPIN: Duration = Duration::from_micros(100);

const READ_BYTES: usize = 64 << 10;

/// How requests and replies are written.
pub(super) trait Protocol {
    /// Appends a request for the value of `key`.
    fn write_get(key: &[u8], requests: &mut Vec<u8>);
    /// Appends a request to store `value` under `key`.
    fn write_put(key: &[u8], value: &[u8], requests: &mut Vec<u8>);
    /// Reads the reply at the front of `bytes`, and how long it is; `None` if it is not whole yet.
    fn reply(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, String>;
}

/// What a server answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply<'a> {
    Value(&'a [u8]),
    Missing,
    Stored,
    Refused(&'a [u8]),
}

/// Where a server listens.
#[derive(Debug, Clone)]
pub(super) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Connects to `address` of the server called `peer`.
pub(super) fn connect<P: Protocol + 'static>(
    address: &Address,
    peer: &'static str,
) -> Result<Box<dyn Target>, BenchError> {
    let broken = |source| BenchError::Connection { peer: peer.into(), source };
    Ok(match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect(address).map_err(broken)?;
            stream.set_nodelay(true).map_err(broken)?;
            Box::new(Connection::<_, P>::new(stream, peer))
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).map_err(broken)?;
            Box::new(Connection::<_, P>::new(stream, peer))
        }
    })
}

/// A connection and its buffers.
struct Connection<S, P> {
    stream: S,
    peer: &'static str,
    requests: Vec<u8>,
    replies: Vec<u8>,
    /// The bytes of `replies` that are received and not handled.
    unhandled: std::ops::Range<usize>,
    /// Since when the server has sent nothing that is awaited.
    silent_since: Option<Instant>,
    protocol: PhantomData<P>,
}

/// The operations outstanding.
struct Window {
    operations: Vec<Operation>,
    free: Vec<usize>,
    /// Places of the operations whose replies are awaited, in the order of their requests.
    awaited: VecDeque<usize>,
    /// Whether the operation of a place is a read-modify-write that has read.
    has_read: Vec<bool>,
}

impl Window {
    fn new(load: &Load) -> Self {
        let places = load.window();
        Self {
            operations: (0..places).map(|_| load.operation()).collect(),
            free: (0..places).rev().collect(),
            awaited: VecDeque::with_capacity(places),
            has_read: vec![false; places],
        }
    }
}

impl<S: AsFd + AsRawFd, P: Protocol> Target for Connection<S, P> {
    fn drive(&mut self, load: &Load) -> Result<(), BenchError> {
        let mut window = Window::new(load);
        loop {
            let next = self.draw(load, &mut window);
            self.send(load, &mut window)?;
            if !window.awaited.is_empty() {
                self.receive(load, &mut window)?;
                continue;
            }
            match next {
                Next::Finished => return Ok(()),
                Next::Later(due) => load.wait_until(due),
                Next::Ready => {}
            }
        }
    }
}

impl<S: AsFd + AsRawFd, P: Protocol> Connection<S, P> {
    fn new(stream: S, peer: &'static str) -> Self {
        let (requests, replies) = (Vec::with_capacity(READ_BYTES), vec![0; READ_BYTES]);
        Self { stream, peer, requests, replies, unhandled: 0..0, silent_since: None, protocol: PhantomData }
    }

    /// Writes requests for as many operations as the window and the load allow.
    fn draw(&mut self, load: &Load, window: &mut Window) -> Next {
        while let Some(place) = window.free.pop() {
            let operation = &mut window.operations[place];
            let next = load.next(operation);
            if next != Next::Ready {
                window.free.push(place);
                return next;
            }
            match operation.kind() {
                Kind::Get | Kind::ReadModifyWrite => P::write_get(operation.key(), &mut self.requests),
                Kind::Put | Kind::Insert => {
                    P::write_put(operation.key(), operation.value(), &mut self.requests)
                }
            }
            window.has_read[place] = false;
            window.awaited.push_back(place);
        }
        Next::Ready
    }

    /// Sends all requests. While the server takes no more, its replies are handled: it may be waiting for room to write
    /// them before it reads on.
    fn send(&mut self, load: &Load, window: &mut Window) -> Result<(), BenchError> {
        let mut sent = 0;
        while sent < self.requests.len() {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            match socket::send(self.stream.as_raw_fd(), &self.requests[sent..], flags) {
                Ok(bytes) => sent += bytes,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    if self.sleep_until(PollFlags::POLLIN | PollFlags::POLLOUT)?.contains(PollFlags::POLLIN) {
                        self.receive(load, window)?;
                    }
                }
                Err(error) => return Err(self.broken(error.into())),
            }
        }
        self.requests.clear();
        Ok(())
    }

    /// Reads once and handles all whole replies.
    fn receive(&mut self, load: &Load, window: &mut Window) -> Result<(), BenchError> {
        self.make_room();
        // An open loop must not sleep while another operation becomes due.
        self.unhandled.end += self.read(!load.is_open_loop())?;
        let bytes = &self.replies[self.unhandled.clone()];
        let mut handled = 0;
        while !window.awaited.is_empty() {
            match P::reply(&bytes[handled..]) {
                Ok(None) => break,
                Ok(Some((reply, length))) => {
                    handled += length;
                    finish::<P>(load, window, reply, &mut self.requests);
                }
                Err(reason) => return Err(BenchError::Protocol { peer: self.peer.into(), reason }),
            }
        }
        self.unhandled.start += handled;
        Ok(())
    }

    /// Reads what has come, waiting for something if `wait`.
    fn read(&mut self, wait: bool) -> Result<usize, BenchError> {
        loop {
            let room = &mut self.replies[self.unhandled.end..];
            match socket::recv(self.stream.as_raw_fd(), room, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Err(self.broken(io::ErrorKind::UnexpectedEof.into())),
                Ok(bytes) => {
                    self.silent_since = None;
                    return Ok(bytes);
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    let silence = self.silent_since.get_or_insert_with(Instant::now).elapsed();
                    if silence > ANSWER_LIMIT {
                        return Err(self.broken(io::ErrorKind::TimedOut.into()));
                    } else if !wait {
                        return Ok(0);
                    } else if silence < SPIN {
                        std::thread::yield_now();
                    } else {
                        self.sleep_until(PollFlags::POLLIN)?;
                    }
                }
                Err(error) => return Err(self.broken(error.into())),
            }
        }
    }

    /// Sleeps until one of `events` happens.
    fn sleep_until(&self, events: PollFlags) -> Result<PollFlags, BenchError> {
        let mut ready = [PollFd::new(self.stream.as_fd(), events)];
        let limit = PollTimeout::try_from(ANSWER_LIMIT).expect("is a few seconds");
        match poll::poll(&mut ready, limit) {
            Ok(0) => Err(self.broken(io::ErrorKind::TimedOut.into())),
            Ok(_) => Ok(ready[0].revents().unwrap_or(PollFlags::empty())),
            Err(Errno::EINTR) => Ok(PollFlags::empty()),
            Err(error) => Err(self.broken(error.into())),
        }
    }

    /// Moves what is unhandled to the front, and grows the buffer if it is full of the beginning of one reply.
    fn make_room(&mut self) {
        if self.unhandled.is_empty() {
            self.unhandled = 0..0;
        } else if self.unhandled.end == self.replies.len() {
            self.replies.copy_within(self.unhandled.clone(), 0);
            self.unhandled = 0..self.unhandled.len();
            if self.unhandled.end == self.replies.len() {
                self.replies.resize(self.replies.len() * 2, 0);
            }
        }
    }

    fn broken(&self, source: io::Error) -> BenchError {
        let source = match source.kind() {
            io::ErrorKind::TimedOut => io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no answer within {} s", ANSWER_LIMIT.as_secs()),
            ),
            _ => source,
        };
        BenchError::Connection { peer: self.peer.into(), source }
    }
}

/// Takes `reply` as that to the request sent first.
fn finish<P: Protocol>(load: &Load, window: &mut Window, reply: Reply<'_>, requests: &mut Vec<u8>) {
    let Some(place) = window.awaited.pop_front() else { return };
    let operation = &window.operations[place];
    let reads = match operation.kind() {
        Kind::Get => true,
        Kind::Put | Kind::Insert => false,
        Kind::ReadModifyWrite => !window.has_read[place],
    };
    match reply {
        Reply::Value(value) if reads && operation.kind() == Kind::ReadModifyWrite => {
            load.fetched(operation, value);
            P::write_put(operation.key(), operation.value(), requests);
            window.has_read[place] = true;
            window.awaited.push_back(place);
            return;
        }
        Reply::Value(value) if reads => load.found(operation, value),
        Reply::Missing if reads => load.missing(operation),
        Reply::Stored if !reads => load.stored(operation),
        Reply::Refused(message) => load.failed(operation, String::from_utf8_lossy(message)),
        other => load.failed(operation, format_args!("{:?} was answered with {other:?}", operation.kind())),
    }
    window.free.push(place);
}

/// Appends `number` in decimal, without allocating.
pub(super) fn write_decimal(mut number: usize, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// The line at the front of `bytes`, without its end, and its length with it.
pub(super) fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, String> {
    const LINE_MAX: usize = 2048;
    match bytes.windows(2).take(LINE_MAX).position(|pair| pair == b"\r\n") {
        Some(length) => Ok(Some((&bytes[..length], length + 2))),
        None if bytes.len() > LINE_MAX => Err(format!("a line of more than {LINE_MAX} bytes")),
        None => Ok(None),
    }
}

/// A decimal number no larger than any value can be.
pub(super) fn decimal(digits: &[u8]) -> Result<usize, String> {
    const VALUE_MAX: usize = 1 << 30;
    let text = std::str::from_utf8(digits).ok();
    let number = text.and_then(|text| text.parse::<usize>().ok()).filter(|number| *number <= VALUE_MAX);
    number.ok_or_else(|| format!("{:?} is no length of a value", String::from_utf8_lossy(digits)))
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
