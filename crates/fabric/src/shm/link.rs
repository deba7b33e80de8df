//! Links: a Unix stream socket to one peer process, and what is known of the peer: its control area.
//!
//! Both sides say hello first: magic and version, the descriptor of their control area, and the token that stands for
//! this link. From then on either side sees by plain loads whether the other process lives and keeps the link.

use super::{
    ShmNic, ShmRegion, ShmRemoteRegion,
    control::{PeerControl, Token},
    frame::{self, Assembler, Broken},
    life,
    listener::AddressLock,
    wire::{Record, VERSION},
};
use crate::{ControlMessage, FabricError, Facts, Link};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
};
use std::{
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// How long a peer may take to say hello.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a peer may leave its messages unread before a sender gives it up.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// In a hello: its process takes part in expedited global membarriers.
const CAPABILITY_MEMBARRIER: u64 = 1;

/// A bootstrap connection to one peer process.
#[derive(Clone, Debug)]
pub struct ShmLink {
    pub(crate) inner: Arc<LinkInner>,
}

/// What all clones of a link share, queue pairs included.
#[derive(Debug)]
pub(crate) struct LinkInner {
    /// Unique in this process.
    pub(crate) id: u64,
    pub(crate) peer: Peer,
    socket: UnixStream,
    token: Token,
    closed: AtomicBool,
    sending: Mutex<()>,
    receiving: Mutex<Assembler>,
    /// The lock of the address that this link was accepted at: nobody else may listen there before it is closed.
    lock: Mutex<Option<Arc<AddressLock>>>,
}

/// What is known of a peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) control: Arc<PeerControl>,
    /// The place and value of the token that stands for the link.
    token: (usize, u64),
    /// Whether the peer's process takes part in membarriers.
    pub(crate) membarrier: bool,
    pub(crate) process: i32,
}

/// Says who we are: the first message on a link. The token is the one that stands for the link.
pub(crate) fn hello(nic: &ShmNic, token: &Token) -> Result<Facts, FabricError> {
    let (index, value) = token.name();
    let capabilities = if nic.membarrier() { CAPABILITY_MEMBARRIER } else { 0 };
    let bytes = Record::Hello.encode(&[VERSION, u64::from(index), value, capabilities]);
    let handle = nic.control().file().try_clone_to_owned();
    let handle = handle.map_err(|source| FabricError::System { what: "a descriptor", source })?;
    Ok(Facts { bytes, handles: vec![handle] })
}

/// Understands a peer's hello; an error says what is wrong with it.
pub(crate) fn greet(socket: &UnixStream, hello: ControlMessage) -> Result<Peer, String> {
    let [facts] = <[Facts; 1]>::try_from(hello.1).map_err(|_| "its hello carries no facts")?;
    let version = facts.bytes.get(1..9).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    if version != Some(VERSION) {
        let theirs = version.map_or("an unknown version".into(), |version| format!("version {version}"));
        return Err(format!(
            "it speaks {theirs} of the shm protocol and this process version {VERSION}: run the same release on both sides"
        ));
    }
    let [_, index, value, capabilities] = Record::Hello.decode(&facts.bytes)?;
    let [file] = <[OwnedFd; 1]>::try_from(facts.handles).map_err(|_| "a hello comes with one descriptor")?;
    let control = PeerControl::import(file.as_fd())?;
    let place = u32::try_from(index).ok().and_then(|index| control.token(index));
    let place = place.filter(|_| value != 0).ok_or("its link token is outside of the control area")?;
    let process =
        rustix::net::sockopt::socket_peercred(socket).map_or(0, |peer| peer.pid.as_raw_nonzero().get());
    let membarrier = capabilities & CAPABILITY_MEMBARRIER != 0;
    Ok(Peer { control: Arc::new(control), token: (place, value), membarrier, process })
}

impl ShmLink {
    /// A link over a socket whose peer said hello.
    pub(crate) fn new(socket: UnixStream, token: Token, peer: Peer, lock: Option<Arc<AddressLock>>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let inner = LinkInner {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            peer,
            socket,
            token,
            closed: AtomicBool::new(false),
            sending: Mutex::new(()),
            receiving: Mutex::default(),
            lock: Mutex::new(lock),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Says hello on a fresh socket and waits for the peer's.
    pub(crate) fn introduce(nic: &ShmNic, socket: UnixStream) -> Result<Self, FabricError> {
        let token = Self::say_hello(nic, &socket)?;
        Self::hear_hello(socket, token)
    }

    /// Two linked ends in this process.
    pub(crate) fn pair(nic: &ShmNic, near: UnixStream, far: UnixStream) -> Result<(Self, Self), FabricError> {
        let (near_token, far_token) = (Self::say_hello(nic, &near)?, Self::say_hello(nic, &far)?);
        Ok((Self::hear_hello(near, near_token)?, Self::hear_hello(far, far_token)?))
    }

    fn say_hello(nic: &ShmNic, socket: &UnixStream) -> Result<Token, FabricError> {
        let token = nic.control().take_token()?;
        send_frame(socket, b"", vec![hello(nic, &token)?], &|| peer_name(socket))?;
        Ok(token)
    }

    fn hear_hello(socket: UnixStream, token: Token) -> Result<Self, FabricError> {
        let who = || peer_name(&socket);
        let mut assembler = Assembler::default();
        let answer = receive_frame(&socket, &mut assembler, HELLO_TIMEOUT, &who)?;
        let answer = answer.ok_or_else(|| FabricError::NotServed {
            address: who(),
            reason: format!("it did not answer within {HELLO_TIMEOUT:?}: it is stopped or overloaded"),
        })?;
        let peer = greet(&socket, answer).map_err(|what| FabricError::Protocol { peer: who(), what })?;
        Ok(Self::new(socket, token, peer, None))
    }
}

impl LinkInner {
    /// Whether the peer lives and keeps the link, and so do we. Three loads.
    #[inline]
    pub(crate) fn alive(&self) -> bool {
        let (place, value) = self.peer.token;
        // Acquire: whoever sees the link closed also sees what the peer did before it closed it.
        !self.closed.load(Ordering::Acquire)
            && life::lives(self.peer.control.life())
            && self.peer.control.word(place).load(Ordering::Acquire) == value
    }

    /// The socket, to be watched for the peer's end.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn close(&self) {
        // The peer must see the link closed before the address is free for a successor.
        self.closed.store(true, Ordering::Release);
        self.token.revoke();
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        drop(lock(&self.lock).take());
    }

    fn gone(&self) -> FabricError {
        FabricError::PeerLost { peer: self.name() }
    }

    /// Who the peer is, for people.
    pub(crate) fn name(&self) -> String {
        format!("process {}", self.peer.process)
    }
}

impl Drop for LinkInner {
    fn drop(&mut self) {
        self.close();
    }
}

impl Link for ShmLink {
    type Nic = ShmNic;
    const MESSAGE_BYTES_MAX: usize = frame::MESSAGE_BYTES_MAX;

    fn send(&self, message: &[u8], facts: Vec<Facts>) -> Result<(), FabricError> {
        let _one_at_a_time = lock(&self.inner.sending);
        if self.inner.closed.load(Ordering::Acquire) {
            return Err(self.inner.gone());
        }
        let sent = send_frame(&self.inner.socket, message, facts, &|| self.inner.name());
        if !matches!(sent, Ok(()) | Err(FabricError::Limit { .. })) {
            // Part of a message may be out: nothing that follows would make sense.
            self.inner.close();
        }
        sent
    }

    fn receive(&self, timeout: Duration) -> Result<Option<ControlMessage>, FabricError> {
        let mut assembler = lock(&self.inner.receiving);
        let received = receive_frame(&self.inner.socket, &mut assembler, timeout, &|| self.inner.name());
        if received.is_err() {
            self.inner.close();
        }
        received
    }

    fn grant(&self, region: &ShmRegion) -> Result<Facts, FabricError> {
        region.grant()
    }

    fn import(&self, facts: Facts) -> Result<ShmRemoteRegion, FabricError> {
        ShmRemoteRegion::import(facts, self.inner.id, &self.inner.peer.control)
            .map_err(|what| FabricError::Protocol { peer: self.inner.name(), what: what.into() })
    }

    #[inline]
    fn alive(&self) -> bool {
        self.inner.alive()
    }

    fn check(&self) -> bool {
        let mut socket = [PollFd::new(&self.inner.socket, PollFlags::RDHUP)];
        let polled = rustix::event::poll(&mut socket, Some(&Timespec::default()));
        let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        if polled.is_ok() && socket[0].revents().intersects(ended) || !self.inner.alive() {
            self.inner.close();
        }
        self.inner.alive()
    }

    fn close(&self) {
        self.inner.close();
    }

    fn peer(&self) -> String {
        self.inner.name()
    }
}

/// Sends a frame; blocks while the peer's buffer is full, but not for ever.
pub(crate) fn send_frame(
    socket: &UnixStream,
    message: &[u8],
    facts: Vec<Facts>,
    peer: &dyn Fn() -> String,
) -> Result<(), FabricError> {
    check_limits(message, &facts)?;
    let bytes = frame::encode(message, &facts);
    let handles: Vec<_> = facts.iter().flat_map(|fact| &fact.handles).map(AsFd::as_fd).collect();
    let deadline = Instant::now() + SEND_TIMEOUT;
    let mut sent = 0;
    while sent < bytes.len() {
        let handles = if sent == 0 { &handles[..] } else { &[] };
        match frame::send_some(socket.as_fd(), &bytes[sent..], handles) {
            Ok(more) => sent += more,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                if !wait(socket, PollFlags::OUT, deadline)? {
                    let what = format!("it left its messages unread for {SEND_TIMEOUT:?}");
                    return Err(FabricError::Protocol { peer: peer(), what });
                }
            }
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                return Err(FabricError::PeerLost { peer: peer() });
            }
            Err(errno) => {
                return Err(FabricError::System { what: "sending a control message", source: errno.into() });
            }
        }
    }
    Ok(())
}

fn check_limits(message: &[u8], facts: &[Facts]) -> Result<(), FabricError> {
    let bytes = message.len() + facts.iter().map(|fact| fact.bytes.len()).sum::<usize>();
    let handles = facts.iter().map(|fact| fact.handles.len()).sum();
    for (what, asked, limit) in [
        ("the length of a control message in bytes", bytes, frame::MESSAGE_BYTES_MAX),
        ("the number of descriptors of a control message", handles, frame::HANDLES_MAX),
        ("the number of facts of a control message", facts.len(), frame::FACTS_MAX),
    ] {
        if asked > limit {
            return Err(FabricError::Limit { what, asked, limit });
        }
    }
    Ok(())
}

/// Receives a frame; `None` when the time has passed.
fn receive_frame(
    socket: &UnixStream,
    assembler: &mut Assembler,
    timeout: Duration,
    peer: &dyn Fn() -> String,
) -> Result<Option<ControlMessage>, FabricError> {
    let deadline = Instant::now() + timeout;
    loop {
        match assembler.receive(socket) {
            Ok(Some(frame)) => return Ok(Some(frame)),
            Ok(None) => {
                if !wait(socket, PollFlags::IN, deadline)? {
                    return Ok(None);
                }
            }
            Err(broken) => return Err(explain(broken, peer())),
        }
    }
}

/// Says what broke a connection.
pub(crate) fn explain(broken: Broken, peer: String) -> FabricError {
    match broken {
        Broken::Closed => FabricError::PeerLost { peer },
        Broken::Garbage(what) => FabricError::Protocol { peer, what: what.into() },
        Broken::System(errno) => {
            FabricError::System { what: "receiving a control message", source: errno.into() }
        }
    }
}

/// Waits until a socket is ready; false when the time has passed.
fn wait(socket: &UnixStream, what: PollFlags, deadline: Instant) -> Result<bool, FabricError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(false);
    }
    match rustix::event::poll(&mut [PollFd::new(socket, what)], Some(&timespec(left))) {
        // The caller looks again and finds out how long there is left.
        Ok(_) | Err(Errno::INTR) => Ok(true),
        Err(errno) => Err(FabricError::System { what: "waiting for a socket", source: errno.into() }),
    }
}

/// A duration in the kernel's terms.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    // A year is as good as for ever, and nothing overflows.
    let seconds = duration.as_secs().min(365 * 24 * 3600);
    Timespec { tv_sec: seconds as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// Who is at the other end, as far as the kernel knows.
pub(crate) fn peer_name(socket: &UnixStream) -> String {
    match rustix::net::sockopt::socket_peercred(socket) {
        Ok(peer) => format!("process {}", peer.pid.as_raw_nonzero()),
        Err(_) => "an unknown process".into(),
    }
}

/// Locks a mutex. Nothing that is guarded here is left half-changed by a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
