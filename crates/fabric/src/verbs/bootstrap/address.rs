//! Hosts and ports: how they are written, what they resolve to, and what to do when they do not serve.

use super::hello::HELLO_TIMEOUT;
use crate::FabricError;
use std::{
    io::{Error, ErrorKind},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    sync::mpsc,
    time::Instant,
};

/// How many connections may wait to be accepted: when a server comes back, all its clients are there at once. The kernel
/// lowers it to its own limit (`net.core.somaxconn`); those beyond it try again after a second, which the kernel sees to.
const BACKLOG: i32 = 1024;

/// Host and port as people write them.
pub(super) fn write(host: &str, port: u16) -> String {
    let host = bare(host);
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A peer's address for people. An IPv4 peer of an IPv6 socket is written as what it is.
pub(super) fn write_peer(stream: &TcpStream) -> String {
    match stream.peer_addr() {
        Ok(peer) => match peer.ip().to_canonical() {
            IpAddr::V4(ip) => SocketAddr::from((ip, peer.port())).to_string(),
            IpAddr::V6(_) => peer.to_string(),
        },
        Err(_) => "a peer that has left".into(),
    }
}

/// A host without the brackets that set an IPv6 address apart from a port.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// The addresses of a host. The resolver has time limits of its own, longer than others like to wait: a name has a thread
/// to itself, which goes on for as long as the resolver does.
pub(super) fn resolve(host: &str, port: u16, deadline: Instant) -> Result<Vec<SocketAddr>, FabricError> {
    if let Ok(ip) = bare(host).parse::<IpAddr>() {
        return Ok(vec![(ip, port).into()]);
    }
    let bad = |reason| FabricError::BadAddress { address: write(host, port), reason };
    let (answer, answered) = mpsc::channel();
    let place = (bare(host).to_owned(), port);
    std::thread::Builder::new()
        .name("locus-resolve".into())
        .spawn(move || {
            // Whoever asked may have given up.
            let _ = answer.send(place.to_socket_addrs().map(Iterator::collect::<Vec<_>>));
        })
        .map_err(|source| FabricError::System { what: "starting a thread", source })?;
    match answered.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
        Ok(Ok(_)) => Err(bad("the host has no address; check its name".into())),
        Ok(Err(error)) => Err(bad(format!("{error}; check the host name"))),
        Err(_) => {
            Err(bad("the name service does not answer; check the host name, or use an IP address".into()))
        }
    }
}

/// Connects to the first address of a host that takes the connection. The time, of which finding the addresses takes the
/// first part, is shared out among them, so that one that never answers leaves some to the others.
pub(super) fn dial(host: &str, port: u16) -> Result<TcpStream, FabricError> {
    let deadline = Instant::now() + HELLO_TIMEOUT;
    let addresses = resolve(host, port, deadline)?;
    let mut failed = Error::from(ErrorKind::TimedOut);
    for (tried, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now()) / (addresses.len() - tried) as u32;
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(address, left) {
            Ok(stream) if is_its_own_peer(&stream) => failed = Error::from(ErrorKind::ConnectionRefused),
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(not_served(write(host, port), &failed))
}

/// TCP connects a socket with itself when it draws the very port that it calls and nobody listens there.
pub(super) fn is_its_own_peer(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(near), Ok(far)) if near == far)
}

fn not_served(address: String, error: &Error) -> FabricError {
    let reason = match error.kind() {
        ErrorKind::ConnectionRefused => {
            "nothing listens there: start a server, or check host and port".into()
        }
        ErrorKind::TimedOut => format!(
            "no answer within {HELLO_TIMEOUT:?}: check that the host is up, the address is right and no firewall drops \
             the port (locus info ADDRESS says more)"
        ),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            format!("{error}: check the address, the network and firewalls (locus info ADDRESS says more)")
        }
        _ => error.to_string(),
    };
    FabricError::NotServed { address, reason }
}

/// Listens at the first address of a host that can be listened at.
pub(super) fn bind(host: &str, port: u16) -> Result<TcpListener, FabricError> {
    let bound = TcpListener::bind(&resolve(host, port, Instant::now() + HELLO_TIMEOUT)?[..]);
    let listener = bound.map_err(|error| unusable(write(host, port), &error))?;
    // A second call changes the length of the queue, which std sets to 128.
    let prepared = rustix::net::listen(&listener, BACKLOG).map_err(Error::from);
    let prepared = prepared.and_then(|()| listener.set_nonblocking(true));
    prepared.map_err(|source| FabricError::System { what: "preparing a socket", source })?;
    Ok(listener)
}

fn unusable(address: String, error: &Error) -> FabricError {
    let advice = match error.kind() {
        ErrorKind::AddrInUse => {
            let reason = "another process listens there: stop that one, or choose another port".into();
            return FabricError::Taken { address, reason };
        }
        ErrorKind::AddrNotAvailable => "no interface of this machine has the address; choose one that does",
        ErrorKind::PermissionDenied => "choose a port above 1023",
        _ => "choose another address",
    };
    FabricError::BadAddress { address, reason: format!("listening: {error}; {advice}") }
}
