//! A wire: what all clones of a connection and the watch share. The watch reads; whoever sends writes, the watch too
//! where it can do so at once.

use super::{
    ending::{End, Ended, Ending},
    frame::{self, GOODBYE_FRAME, HEARTBEAT_FRAME, Message},
    inbox::{Found, Inbox},
    socket::{self, Gone, lock},
    watch,
};
use crate::FabricError;
use rustix::{
    event::PollFlags,
    fd::{AsFd, BorrowedFd, OwnedFd},
    net::Shutdown,
};
use std::{
    sync::{Mutex, TryLockError, Weak},
    time::{Duration, Instant},
};

/// How long a peer may leave its messages unread before a sender gives it up.
pub(super) const SEND_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Wire {
    socket: OwnedFd,
    peer: String,
    end: End,
    pub(super) inbox: Inbox,
    /// Whoever writes holds this: what the kernel did not take of a heartbeat, to be sent before anything else.
    rest: Mutex<Vec<u8>>,
}

impl Wire {
    /// A wire over a socket on which both sides said hello.
    pub(super) fn new(socket: OwnedFd, peer: String) -> Self {
        let (end, inbox, rest) = (End::default(), Inbox::default(), Mutex::default());
        Self { socket, peer, end, inbox, rest }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    #[inline]
    pub(super) fn alive(&self) -> bool {
        !self.end.came()
    }

    pub(super) fn on_end(&self, member: Weak<dyn Ended>) {
        self.end.register(member);
    }

    /// Why nothing can be sent or received any more.
    fn error(&self) -> FabricError {
        self.end.ending().unwrap_or(Ending::Lost).explain(&self.peer)
    }

    /// Sends a message; blocks while the peer's buffer is full, but not for ever.
    pub(super) fn send(&self, message: &[u8], facts: &[Vec<u8>]) -> Result<(), FabricError> {
        frame::check_limits(message, facts)?;
        let mut rest = lock(&self.rest);
        if !self.alive() {
            return Err(self.error());
        }
        let mut bytes = std::mem::take(&mut *rest);
        frame::encode(message, facts, &mut bytes);
        let Err(ending) = self.send_all(&bytes) else { return Ok(()) };
        // Part of the message may be out: nothing that follows would make sense, so it ends before anybody can go on.
        let first = self.end.mark(ending);
        socket::shutdown(&self.socket, Shutdown::Both);
        drop(rest);
        if first {
            self.end.tell();
        }
        Err(self.error())
    }

    fn send_all(&self, mut bytes: &[u8]) -> Result<(), Ending> {
        let deadline = Instant::now() + SEND_TIMEOUT;
        while !bytes.is_empty() {
            match socket::send(&self.socket, bytes) {
                Ok(0) => match socket::wait(&self.socket, PollFlags::OUT, deadline) {
                    Ok(true) => {}
                    Ok(false) => return Err(Ending::Unread),
                    Err(_) => return Err(Ending::Lost),
                },
                Ok(sent) => bytes = &bytes[sent..],
                Err(Gone) => return Err(Ending::Lost),
            }
        }
        Ok(())
    }

    /// Sends one of the watch's frames if nobody else is sending, as far as that goes without blocking. A peer that does
    /// not read misses it, and misses nothing: what it has not read yet tells it the same.
    fn send_at_once(&self, frame: &[u8]) {
        let mut rest = match self.rest.try_lock() {
            Ok(rest) => rest,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if rest.is_empty() {
            rest.extend(frame);
        }
        // Whatever broke the socket, the watch sees it too.
        let sent = socket::send(&self.socket, &rest).unwrap_or(0);
        rest.drain(..sent);
    }

    /// Says that this process lives.
    pub(super) fn beat(&self) {
        self.send_at_once(&HEARTBEAT_FRAME);
    }

    pub(super) fn receive(&self, timeout: Duration) -> Result<Option<Message>, FabricError> {
        match self.inbox.receive(timeout) {
            Found::Message { message, made_room } => {
                if made_room {
                    watch::wake();
                }
                Ok(Some(message))
            }
            Found::Nothing => Ok(None),
            Found::Finished => Err(self.error()),
        }
    }

    /// Closes the connection. What was sent before still reaches a peer that reads: the watch keeps the socket until the
    /// peer has hung up too, since a kernel that closes one with unread bytes forgets what it has not sent.
    pub(super) fn close(&self) {
        if self.end.mark(Ending::Closed) {
            self.send_at_once(&GOODBYE_FRAME);
            socket::shutdown(&self.socket, Shutdown::Write);
            self.inbox.finish();
            self.end.tell();
        }
    }

    /// The connection has ended, but for what has arrived and the watch has not read yet.
    pub(super) fn end(&self, ending: Ending) {
        if self.end.mark(ending) {
            socket::shutdown(&self.socket, Shutdown::Both);
            self.end.tell();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::frame::{Assembler, Frame},
        *,
    };
    use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
    use std::net::{TcpListener, TcpStream};

    /// A wire that nobody watches, and its peer, with little room between them.
    fn narrow() -> (Wire, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_socket_recv_buffer_size(&listener, 4096).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        set_socket_send_buffer_size(&near, 4096).unwrap();
        (Wire::new(socket::prepare(near).unwrap(), "a peer".into()), listener.accept().unwrap().0)
    }

    #[test]
    fn heartbeats_that_find_no_room_are_finished_before_anything_else() {
        let (wire, peer) = narrow();
        while lock(&wire.rest).is_empty() {
            wire.send_at_once(&HEARTBEAT_FRAME);
        }
        let waiting = lock(&wire.rest).len();
        (0..100).for_each(|_| wire.beat());
        assert!(lock(&wire.rest).len() <= waiting, "heartbeats do not pile up");
        assert!(wire.alive());
        std::thread::scope(|scope| {
            scope.spawn(|| wire.send(b"after", &[]).unwrap());
            let (mut assembler, mut buffer) = (Assembler::default(), [0; 1000]);
            loop {
                let bytes = socket::receive(&peer, &mut buffer).unwrap();
                let mut bytes = &buffer[..bytes];
                while let Some(frame) = assembler.take(&mut bytes).unwrap() {
                    if frame != Frame::Heartbeat {
                        assert_eq!(frame, Frame::Message((b"after".to_vec(), vec![])));
                        return;
                    }
                }
            }
        });
    }
}
