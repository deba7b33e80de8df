//! System calls on non-blocking stream sockets, TCP or Unix, with their many errors sorted into the few that matter.

use crate::FabricError;
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fd::{AsFd, OwnedFd},
    io::Errno,
    net::{SendFlags, Shutdown},
};
use std::{
    net::TcpStream,
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

/// The connection behind a socket has ended: closed, reset, or given up by the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

/// Makes a TCP connection fit for small frames and a thread that must never block.
pub(super) fn prepare(stream: TcpStream) -> Result<OwnedFd, FabricError> {
    let prepared = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
    prepared.map_err(|source| FabricError::System { what: "preparing a socket", source })?;
    Ok(stream.into())
}

/// Reads what has arrived; 0: nothing has.
pub(super) fn receive(socket: impl AsFd, into: &mut [u8]) -> Result<usize, Gone> {
    loop {
        match rustix::io::read(&socket, &mut *into) {
            Ok(0) => return Err(Gone),
            Ok(bytes) => return Ok(bytes),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            Err(_) => return Err(Gone),
        }
    }
}

/// Sends what the kernel takes; 0: its buffer is full.
pub(super) fn send(socket: impl AsFd, bytes: &[u8]) -> Result<usize, Gone> {
    loop {
        match rustix::net::send(&socket, bytes, SendFlags::NOSIGNAL) {
            Ok(bytes) => return Ok(bytes),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            Err(_) => return Err(Gone),
        }
    }
}

/// Whether bytes wait to be read.
pub(super) fn pending(socket: impl AsFd) -> bool {
    rustix::io::ioctl_fionread(socket).is_ok_and(|bytes| bytes > 0)
}

/// Ends a connection. What has arrived can still be read.
pub(super) fn shutdown(socket: impl AsFd, how: Shutdown) {
    // It fails only where there is nothing left to end.
    let _ = rustix::net::shutdown(socket, how);
}

/// Waits until a socket is ready; false when the time has passed.
pub(super) fn wait(socket: impl AsFd, what: PollFlags, deadline: Instant) -> Result<bool, FabricError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(false);
    }
    poll(&mut [PollFd::new(&socket, what)], left)?;
    // The caller looks again and finds out how long there is left.
    Ok(true)
}

/// Waits until one of these is ready, the time has passed, or a signal came.
pub(super) fn poll(sockets: &mut [PollFd<'_>], timeout: Duration) -> Result<(), FabricError> {
    match rustix::event::poll(sockets, Some(&timespec(timeout))) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(FabricError::System { what: "waiting for a socket", source: errno.into() }),
    }
}

/// A year: as good as for ever, and nothing overflows.
const EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// When a timeout ends.
pub(super) fn deadline(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(EVER)
}

fn timespec(duration: Duration) -> Timespec {
    let duration = duration.min(EVER);
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// Locks a mutex. Nothing that is guarded here is left half-changed by a panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
