//! Connections as their users see them.

use super::{
    address,
    ending::Ended,
    frame::Message,
    hello::{self, Greeting, HELLO_BYTES, HELLO_TIMEOUT, Verdict},
    socket::{self, Gone},
    turns, watch,
    wire::Wire,
};
use crate::FabricError;
use rustix::{
    event::PollFlags,
    fd::{AsFd, OwnedFd},
    net::{AddressFamily, SocketFlags, SocketType},
};
use std::{
    fmt,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

/// A connection to one peer process. Clones share it, and it is closed with the last of them.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(super) wire: Arc<Wire>,
    /// The watch has the wire too, so the wire cannot know when its users are gone.
    _users: Arc<Users>,
}

struct Users(Arc<Wire>);

impl Drop for Users {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connection").field("peer", &self.peer()).field("alive", &self.alive()).finish()
    }
}

impl Connection {
    /// A connection over a socket on which both sides said hello.
    pub(super) fn new(socket: OwnedFd, peer: String) -> Result<Self, FabricError> {
        let wire = Arc::new(Wire::new(socket, peer));
        watch::add(wire.clone())?;
        Ok(Self { wire: wire.clone(), _users: Arc::new(Users(wire)) })
    }

    /// Two connected ends in this process, over a pair of Unix sockets: no port that a stranger could reach first.
    pub(crate) fn pair() -> Result<(Self, Self), FabricError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let sockets = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let (near, far) = sockets.map_err(|errno| FabricError::System {
            what: "making a pair of sockets",
            source: errno.into(),
        })?;
        let peer = format!("process {}", std::process::id());
        for socket in [&near, &far] {
            hello::say(socket, Verdict::Welcome).map_err(|Gone| hung_up(&peer))?;
        }
        Ok((hear_hello(near, &peer, peer.clone())?, hear_hello(far, &peer, peer.clone())?))
    }

    /// Connects with the process that listens at a host and port. Only so many threads of a process do so at a time; for
    /// its turn, for the connection and for the hello it waits 5 s each at most.
    pub(crate) fn connect(host: &str, port: u16) -> Result<Self, FabricError> {
        let _turn = turns::take(host, port)?;
        let stream = address::dial(host, port)?;
        let address = address::write(host, port);
        let peer = address::write_peer(&stream);
        let socket = socket::prepare(stream)?;
        hello::say(&socket, Verdict::Welcome).map_err(|Gone| hung_up(&address))?;
        hear_hello(socket, &address, peer)
    }

    /// Sends a message of up to [`MESSAGE_BYTES_MAX`](super::frame::MESSAGE_BYTES_MAX) bytes with those of its up to
    /// [`FACTS_MAX`](super::frame::FACTS_MAX) facts. Blocks while the peer's buffers are full; after 5 s the connection ends.
    pub(crate) fn send(&self, message: &[u8], facts: &[Vec<u8>]) -> Result<(), FabricError> {
        self.wire.send(message, facts)
    }

    /// Waits for a message; `None` when the time has passed. What arrived before the connection ended is still received.
    pub(crate) fn receive(&self, timeout: Duration) -> Result<Option<Message>, FabricError> {
        self.wire.receive(timeout)
    }

    /// Whether the connection stands. One load.
    #[inline]
    pub(crate) fn alive(&self) -> bool {
        self.wire.alive()
    }

    /// Closes the connection, for all clones. What was sent before still reaches a peer that reads within its lease.
    pub(crate) fn close(&self) {
        self.wire.close();
    }

    /// Where the peer is, for messages to people.
    pub(crate) fn peer(&self) -> String {
        self.wire.peer().into()
    }

    /// Tells somebody once when the connection ends, or at once if it has ended.
    pub(crate) fn on_end(&self, member: Weak<dyn Ended>) {
        self.wire.on_end(member);
    }
}

/// Waits for the peer's hello.
fn hear_hello(socket: OwnedFd, address: &str, peer: String) -> Result<Connection, FabricError> {
    let deadline = Instant::now() + HELLO_TIMEOUT;
    let answer = hear(&socket, deadline, address)?.ok_or_else(|| FabricError::NotServed {
        address: address.into(),
        reason: format!("it did not answer within {HELLO_TIMEOUT:?}: it is stopped or overloaded"),
    })?;
    match hello::check(&answer) {
        Ok(()) => Connection::new(socket, peer),
        Err(what) => Err(FabricError::Protocol { peer, what }),
    }
}

fn hear(
    socket: impl AsFd,
    deadline: Instant,
    address: &str,
) -> Result<Option<[u8; HELLO_BYTES]>, FabricError> {
    let mut greeting = Greeting::default();
    loop {
        match greeting.hear(&socket).map_err(|Gone| hung_up(address))? {
            Some(hello) => return Ok(Some(hello)),
            None if socket::wait(&socket, PollFlags::IN, deadline)? => {}
            None => return Ok(None),
        }
    }
}

fn hung_up(address: &str) -> FabricError {
    let reason = "it hung up: it ended, has too many connections, or is not a server of this kind".into();
    FabricError::NotServed { address: address.into(), reason }
}
