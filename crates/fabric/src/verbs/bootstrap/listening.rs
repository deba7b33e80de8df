//! Listening at a port: how strangers, whom anybody on the network can be, are kept from holding up others.

use super::{
    address,
    connection::Connection,
    hello::{self, Greeting, HELLO_BYTES, HELLO_TIMEOUT, Verdict},
    socket::{self, lock},
};
use crate::FabricError;
use rustix::{
    event::{PollFd, PollFlags},
    fd::OwnedFd,
    net::Shutdown,
};
use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpListener},
    sync::Mutex,
    time::{Duration, Instant},
};

/// How many strangers may be about to say hello; a further one replaces the oldest that has not.
pub(super) const STRANGERS_MAX: usize = 64;

/// Accepts connections from other processes.
#[derive(Debug)]
pub(crate) struct Listening {
    socket: TcpListener,
    address: SocketAddr,
    strangers: Mutex<Vec<Stranger>>,
}

/// Somebody who connected and has not said hello yet.
#[derive(Debug)]
struct Stranger {
    socket: OwnedFd,
    peer: String,
    greeting: Greeting,
    deadline: Instant,
}

impl Listening {
    /// Listens at an address of this machine; port 0 lets the system choose one.
    pub(crate) fn bind(host: &str, port: u16) -> Result<Self, FabricError> {
        let socket = address::bind(host, port)?;
        let address = socket.local_addr();
        let address =
            address.map_err(|source| FabricError::System { what: "asking for an address", source })?;
        Ok(Self { socket, address, strangers: Mutex::default() })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next connection; `None` when the time has passed. Strangers are heard side by side, so none holds up
    /// the others. One who says something else than hello, or nothing, is dropped and reported as
    /// [`FabricError::Protocol`], after which `accept` can be called again.
    pub(crate) fn accept(&self, timeout: Duration) -> Result<Option<Connection>, FabricError> {
        let deadline = socket::deadline(timeout);
        let mut strangers = lock(&self.strangers);
        loop {
            let welcomed = self.welcome(&mut strangers);
            // The oldest first: newcomers, however many, keep nobody waiting for ever.
            let mut index = 0;
            while index < strangers.len() {
                let count = strangers.len();
                if let Some(heard) = hear(&mut strangers, index) {
                    return heard.map(Some);
                }
                // Those who are gone leave their place to the next one.
                index += usize::from(strangers.len() == count);
            }
            // Where there are no descriptors for those who come, the oldest one gives its own.
            let crowded = match welcomed {
                Ok(()) => strangers.len() > STRANGERS_MAX,
                Err(_) if !strangers.is_empty() => true,
                Err(error) => return Err(error),
            };
            if crowded {
                strangers.remove(0);
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            if !crowded {
                self.wait(&strangers, deadline)?;
            }
        }
    }

    /// Takes the connections that wait, up to one too many: nobody is sent away who was not heard first.
    fn welcome(&self, strangers: &mut Vec<Stranger>) -> Result<(), FabricError> {
        while strangers.len() <= STRANGERS_MAX {
            match self.socket.accept() {
                Ok((stream, _)) => {
                    let peer = address::write_peer(&stream);
                    let socket = socket::prepare(stream)?;
                    let deadline = Instant::now() + HELLO_TIMEOUT;
                    strangers.push(Stranger { socket, peer, greeting: Greeting::default(), deadline });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                // Most likely there are no descriptors left.
                Err(source) => return Err(FabricError::System { what: "accepting a connection", source }),
            }
        }
        Ok(())
    }

    /// Waits until somebody connects, says something, has been silent for too long, or the deadline.
    fn wait(&self, strangers: &[Stranger], deadline: Instant) -> Result<(), FabricError> {
        let until = strangers.iter().map(|stranger| stranger.deadline).fold(deadline, Instant::min);
        let strangers = strangers.iter().map(|stranger| PollFd::new(&stranger.socket, PollFlags::IN));
        let mut sockets: Vec<_> = strangers.chain([PollFd::new(&self.socket, PollFlags::IN)]).collect();
        socket::poll(&mut sockets, until.saturating_duration_since(Instant::now()))
    }
}

/// Hears one stranger. `None`: nothing to report, and the stranger either waits on or is gone.
fn hear(strangers: &mut Vec<Stranger>, index: usize) -> Option<Result<Connection, FabricError>> {
    let stranger = &mut strangers[index];
    match stranger.greeting.hear(&stranger.socket) {
        Ok(None) if Instant::now() < stranger.deadline => None,
        Ok(None) => {
            let peer = strangers.remove(index).peer;
            let what = format!("it connected and said no hello for {HELLO_TIMEOUT:?}");
            Some(Err(FabricError::Protocol { peer, what }))
        }
        Ok(Some(hello)) => admit(strangers.remove(index), &hello),
        Err(_) => {
            strangers.remove(index);
            None
        }
    }
}

/// Connects with somebody who said hello. One of another version is told ours, so that it can say what is wrong too.
fn admit(stranger: Stranger, hello: &[u8; HELLO_BYTES]) -> Option<Result<Connection, FabricError>> {
    let Stranger { socket, peer, .. } = stranger;
    match hello::check(hello) {
        Ok(()) => {
            // One that is gone already is nobody's concern.
            hello::say(&socket, Verdict::Welcome).ok()?;
            Some(Connection::new(socket, peer))
        }
        Err(what) => {
            refuse(&socket);
            Some(Err(FabricError::Protocol { peer, what }))
        }
    }
}

/// Tells a stranger off. What it said is read to its end: a kernel that closes a socket with unread bytes resets the
/// connection, and the refusal might be lost.
fn refuse(socket: &OwnedFd) {
    let _ = hello::say(socket, Verdict::Refused);
    socket::shutdown(socket, Shutdown::Write);
    let _ = socket::receive(socket, &mut [0; 4096]);
}
