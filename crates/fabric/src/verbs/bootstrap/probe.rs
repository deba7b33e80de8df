//! What is found at an address, for people who wonder why they cannot connect. Needs no device, and takes a bounded time.

use super::{
    address::{self, is_its_own_peer},
    hello::{self, Greeting, Verdict},
    socket,
};
use crate::FabricError;
use rustix::event::PollFlags;
use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// What was found at one of a host's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A server of this release's protocol.
    Serves,
    /// The host answered that nobody listens; a firewall can answer so, too.
    Refused,
    /// Nothing came back: the host is down, or a firewall drops what is sent there.
    Silent,
    /// Somebody on the way, or this machine, says that the host cannot be reached. In the system's words.
    Unreachable(String),
    /// This machine forbids it, by a route or a firewall of its own. In the system's words.
    Forbidden(String),
    /// Something took the connection and said nothing.
    Mute,
    /// Something that this release does not understand: another version, or no server of this kind.
    Foreign(String),
    /// Anything else, in the system's words.
    Failed(String),
}

/// Looks at every address of a host. Takes no longer than `patience`, which its addresses share; an error if the host has
/// none.
pub fn probe(host: &str, port: u16, patience: Duration) -> Result<Vec<(SocketAddr, Probe)>, FabricError> {
    let deadline = socket::deadline(patience);
    let addresses = address::resolve(host, port, deadline)?;
    let count = addresses.len();
    let probe = |(looked, address): (usize, SocketAddr)| {
        let left = deadline.saturating_duration_since(Instant::now()) / (count - looked) as u32;
        (address, look(address, left))
    };
    Ok(addresses.into_iter().enumerate().map(probe).collect())
}

fn look(address: SocketAddr, patience: Duration) -> Probe {
    let deadline = socket::deadline(patience);
    // A timeout of zero is refused.
    let stream = match TcpStream::connect_timeout(&address, patience.max(Duration::from_millis(1))) {
        Ok(stream) if is_its_own_peer(&stream) => return Probe::Refused,
        Ok(stream) => stream,
        Err(error) => {
            return match error.kind() {
                ErrorKind::ConnectionRefused => Probe::Refused,
                ErrorKind::TimedOut => Probe::Silent,
                ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                    Probe::Unreachable(error.to_string())
                }
                // The second is what a blackhole route says.
                ErrorKind::PermissionDenied | ErrorKind::InvalidInput => Probe::Forbidden(error.to_string()),
                _ => Probe::Failed(error.to_string()),
            };
        }
    };
    greet(stream, deadline)
}

/// Hears whether a server answers.
fn greet(stream: TcpStream, deadline: Instant) -> Probe {
    let hung_up = || Probe::Foreign("it hung up: it has too many connections, or is no such server".into());
    let socket = match socket::prepare(stream) {
        Ok(socket) => socket,
        Err(error) => return Probe::Failed(error.to_string()),
    };
    if hello::say(&socket, Verdict::Welcome).is_err() {
        return hung_up();
    }
    let mut greeting = Greeting::default();
    loop {
        match greeting.hear(&socket) {
            Ok(Some(answer)) => {
                return match hello::check(&answer) {
                    Ok(()) => Probe::Serves,
                    Err(what) => Probe::Foreign(what),
                };
            }
            Ok(None) => match socket::wait(&socket, PollFlags::IN, deadline) {
                Ok(true) => {}
                Ok(false) => return Probe::Mute,
                Err(error) => return Probe::Failed(error.to_string()),
            },
            Err(_) => return hung_up(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Listening, *};
    use std::{
        io::Write,
        net::{Ipv4Addr, TcpListener},
    };

    /// What is at a port of this machine, found in time.
    fn at(port: u16, patience: Duration) -> Probe {
        let start = Instant::now();
        let found = probe("127.0.0.1", port, patience).unwrap();
        assert!(start.elapsed() < patience + Duration::from_secs(10), "it took {:?}", start.elapsed());
        assert_eq!(found.len(), 1);
        found[0].1.clone()
    }

    const LONG: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(300);

    fn listen() -> (TcpListener, u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    #[test]
    fn a_server_is_told_from_what_only_listens_and_from_nothing() {
        let listening = Listening::bind("127.0.0.1", 0).unwrap();
        let port = listening.address().port();
        std::thread::scope(|scope| {
            scope.spawn(|| listening.accept(LONG).unwrap());
            assert_eq!(at(port, LONG), Probe::Serves);
        });
        drop(listening);
        assert_eq!(at(port, LONG), Probe::Refused);
        let (mute, port) = listen();
        assert_eq!(at(port, SHORT), Probe::Mute);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The mute one was left in the queue.
                drop(mute.accept().unwrap());
                mute.accept().unwrap().0.write_all(b"220 ready to go\r").unwrap();
            });
            let found = at(port, LONG);
            assert!(matches!(&found, Probe::Foreign(what) if what.contains("same release")), "{found:?}");
        });
    }

    /// A queue that is full drops what arrives, as a firewall does.
    #[test]
    fn what_is_dropped_is_silent() {
        let (listener, port) = listen();
        rustix::net::listen(&listener, 0).unwrap();
        let mut fill = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&listener.local_addr().unwrap(), SHORT) {
            fill.push(stream);
            assert!(fill.len() < 10, "the queue is never full");
        }
        assert_eq!(at(port, SHORT), Probe::Silent);
    }

    #[test]
    fn names_that_nobody_has_are_an_error() {
        let error = probe("no host has this name", 1, LONG).unwrap_err().to_string();
        assert!(error.contains("host name"), "{error}");
    }
}
