//! Listening at a path: who may, and how strangers are kept from hurting anybody.
//!
//! `PATH.lock` is held with `flock` by whoever serves `PATH`, and by the links it accepted: as long as any of them may
//! serve old memory, nobody else listens. The lock, not the socket file, decides who serves; a socket file that is left
//! over from a dead server is replaced by whoever gets the lock, if nothing answers on it.

use super::{
    ShmLink, ShmNic,
    frame::{Assembler, Broken},
    link::{self, HELLO_TIMEOUT, lock, peer_name},
};
use crate::{Address, FabricError, Listener};
use rustix::{
    event::{PollFd, PollFlags},
    fd::OwnedFd,
    fs::{FlockOperation, Mode, OFlags},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt::Timeout},
};
use std::{
    fs::File,
    io::{Read, Seek, Write},
    os::unix::{
        fs::{FileTypeExt, MetadataExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// How many strangers may be about to say hello; a further one replaces the oldest.
const STRANGERS_MAX: usize = 64;
/// How many connections the kernel keeps waiting.
const BACKLOG: i32 = 128;

/// The path of an address.
pub(crate) fn path(address: &Address) -> Result<&Path, FabricError> {
    match address {
        Address::Shm(path) => Ok(path),
        Address::Rdma { .. } | Address::Sim(_) => Err(FabricError::BadAddress {
            address: address.to_string(),
            reason: "shared memory is reached at shm:/path/to/socket".into(),
        }),
    }
}

/// The right to serve an address.
#[derive(Debug)]
pub(crate) struct AddressLock {
    path: PathBuf,
    _file: File,
}

impl AddressLock {
    /// Takes the lock of a socket's path, or says who has it.
    fn take(socket: &Path) -> Result<Self, FabricError> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        loop {
            let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
                .map_err(|errno| unusable(socket, "opening its lock file", errno))?;
            let mut file = File::from(file);
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(taken(socket, &mut file)),
                Err(errno) => return Err(unusable(socket, "locking its lock file", errno)),
            }
            // Whoever had it may have removed the file between our opening and our locking it.
            if same_file(&file, &path) {
                let written = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
                written.map_err(|source| FabricError::System { what: "writing the lock file", source })?;
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for AddressLock {
    fn drop(&mut self) {
        // While it is still locked, so that nobody loses a lock file that is theirs.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(ours), Ok(theirs)) => ours.ino() == theirs.ino() && ours.dev() == theirs.dev(),
        _ => false,
    }
}

fn taken(socket: &Path, lock_file: &mut File) -> FabricError {
    let mut holder = String::new();
    let _ = lock_file.rewind();
    let _ = lock_file.take(20).read_to_string(&mut holder);
    let who = if holder.is_empty() { "another process".into() } else { format!("process {holder}") };
    let reason = format!("{who} serves it: stop that one, or listen at another path");
    FabricError::Taken { address: name(socket), reason }
}

fn unusable(socket: &Path, doing: &str, errno: Errno) -> FabricError {
    let error = std::io::Error::from(errno);
    let advice = match errno {
        Errno::NOENT => "make the directory first",
        Errno::ACCESS | Errno::PERM | Errno::ROFS => "choose a directory that this user may write to",
        _ => "choose another path",
    };
    FabricError::BadAddress { address: name(socket), reason: format!("{doing}: {error}; {advice}") }
}

fn name(socket: &Path) -> String {
    Address::Shm(socket.to_owned()).to_string()
}

/// Makes room for a socket at a path whose lock is ours. Only a socket that nobody answers on is removed.
fn clear(socket: &Path) -> Result<(), FabricError> {
    let taken = |reason: &str| FabricError::Taken { address: name(socket), reason: reason.into() };
    match std::fs::symlink_metadata(socket) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unusable(socket, "looking at it", errno_of(&error))),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(taken(
                "there is a file that is not a socket: move it away, or listen at another path",
            ));
        }
        Ok(_) => {}
    }
    match dial(socket, Duration::ZERO) {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
        _ => return Err(taken("a program that is not this one uses the socket: listen at another path")),
    }
    std::fs::remove_file(socket)
        .map_err(|error| unusable(socket, "removing what a dead server left", errno_of(&error)))
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Binds and listens. The socket file is never accessible to others, not for a moment: Linux takes the mode of a
/// socket's file from the socket itself when it is bound, and the umask can only take away.
fn bind(path: &Path) -> Result<UnixListener, FabricError> {
    let system = |what| move |errno: Errno| FabricError::System { what, source: errno.into() };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: OwnedFd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(system("making a socket"))?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(system("restricting a socket"))?;
    let address = SocketAddrUnix::new(path).map_err(|errno| unusable(path, "binding it", errno))?;
    rustix::net::bind(&socket, &address).map_err(|errno| unusable(path, "binding it", errno))?;
    rustix::net::listen(&socket, BACKLOG).map_err(system("listening"))?;
    let mode = std::fs::symlink_metadata(path).map_or(0o777, |found| found.mode() & 0o777);
    if mode & 0o077 != 0 {
        let _ = std::fs::remove_file(path);
        return Err(FabricError::Unsupported("this file system gives sockets a mode that lets others in"));
    }
    Ok(UnixListener::from(socket))
}

/// Accepts links from other processes of this machine.
#[derive(Debug)]
pub struct ShmListener {
    nic: ShmNic,
    path: PathBuf,
    socket: UnixListener,
    lock: Arc<AddressLock>,
    strangers: Mutex<Vec<Stranger>>,
}

/// Somebody who connected and has not said hello yet.
#[derive(Debug)]
struct Stranger {
    socket: UnixStream,
    assembler: Assembler,
    deadline: Instant,
}

impl ShmListener {
    pub(crate) fn listen(nic: &ShmNic, path: &Path) -> Result<Self, FabricError> {
        let lock = Arc::new(AddressLock::take(path)?);
        clear(path)?;
        let socket = bind(path)?;
        Ok(Self { nic: nic.clone(), path: path.to_owned(), socket, lock, strangers: Mutex::default() })
    }

    /// Takes all connections that wait.
    fn welcome(&self, strangers: &mut Vec<Stranger>) -> Result<(), FabricError> {
        loop {
            match self.socket.accept() {
                Ok((socket, _)) => {
                    if strangers.len() == STRANGERS_MAX {
                        strangers.remove(0);
                    }
                    let deadline = Instant::now() + HELLO_TIMEOUT;
                    strangers.push(Stranger { socket, assembler: Assembler::default(), deadline });
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => {}
                Err(source) => return Err(FabricError::System { what: "accepting a link", source }),
            }
        }
    }

    /// Hears one stranger. `None`: nothing to report, and the stranger either waits on or is gone.
    fn hear(&self, strangers: &mut Vec<Stranger>, index: usize) -> Option<Result<ShmLink, FabricError>> {
        let stranger = &mut strangers[index];
        match stranger.assembler.receive(&stranger.socket) {
            Ok(None) if Instant::now() < stranger.deadline => None,
            Ok(None) => {
                let what = format!("it connected and said nothing for {HELLO_TIMEOUT:?}");
                let peer = peer_name(&strangers.remove(index).socket);
                Some(Err(FabricError::Protocol { peer, what }))
            }
            Ok(Some(hello)) => Some(self.admit(strangers.remove(index).socket, hello)),
            Err(Broken::Closed) => {
                strangers.remove(index);
                None
            }
            Err(broken) => Some(Err(link::explain(broken, peer_name(&strangers.remove(index).socket)))),
        }
    }

    /// Makes a link with somebody who said hello. A peer of another version still gets our hello, so that it can say
    /// what is wrong on its side too.
    fn admit(&self, socket: UnixStream, hello: crate::ControlMessage) -> Result<ShmLink, FabricError> {
        let token = self.nic.control().take_token()?;
        link::send_frame(&socket, b"", vec![link::hello(&self.nic, &token)?], &|| peer_name(&socket))?;
        let peer = link::greet(&socket, hello)
            .map_err(|what| FabricError::Protocol { peer: peer_name(&socket), what })?;
        Ok(ShmLink::new(socket, token, peer, Some(self.lock.clone())))
    }

    /// Waits until somebody connects, says something, has been silent for too long, or the deadline.
    fn wait(&self, strangers: &[Stranger], deadline: Instant) -> Result<(), FabricError> {
        let until = strangers.iter().map(|stranger| stranger.deadline).fold(deadline, Instant::min);
        let left = link::timespec(until.saturating_duration_since(Instant::now()));
        let mut sockets = Vec::with_capacity(strangers.len() + 1);
        sockets.push(PollFd::new(&self.socket, PollFlags::IN));
        sockets.extend(strangers.iter().map(|stranger| PollFd::new(&stranger.socket, PollFlags::IN)));
        match rustix::event::poll(&mut sockets, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(FabricError::System { what: "waiting for links", source: errno.into() }),
        }
    }
}

impl Listener for ShmListener {
    type Link = ShmLink;

    /// Waits for the next link. Strangers are heard side by side, so none holds up the others. A stranger who says
    /// something else than hello, or nothing, is dropped and reported as [`FabricError::Protocol`] (or another error that
    /// names it), after which `accept` can be called again.
    fn accept(&self, timeout: Duration) -> Result<Option<ShmLink>, FabricError> {
        let deadline = Instant::now() + timeout;
        let mut strangers = lock(&self.strangers);
        loop {
            self.welcome(&mut strangers)?;
            // Backwards, since those who are heard out leave the list.
            for index in (0..strangers.len()).rev() {
                if let Some(heard) = self.hear(&mut strangers, index) {
                    return heard.map(Some);
                }
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            self.wait(&strangers, deadline)?;
        }
    }

    fn address(&self) -> Address {
        Address::Shm(self.path.clone())
    }
}

impl Drop for ShmListener {
    fn drop(&mut self) {
        // The lock is still held, so the file is ours unless somebody replaced it by hand.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Connects to a socket; waits no longer than so if too many others wait there already.
fn dial(path: &Path, patience: Duration) -> std::io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = if patience.is_zero() { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        flags | SocketFlags::CLOEXEC,
        None,
    )?;
    if !patience.is_zero() {
        rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    }
    rustix::net::connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

/// Connects to whoever serves a path.
pub(crate) fn connect(nic: &ShmNic, path: &Path) -> Result<ShmLink, FabricError> {
    let socket = dial(path, HELLO_TIMEOUT).map_err(|error| not_served(path, &error))?;
    ShmLink::introduce(nic, socket).map_err(|error| match error {
        FabricError::NotServed { reason, .. } => FabricError::NotServed { address: name(path), reason },
        FabricError::PeerLost { peer } => FabricError::NotServed {
            address: name(path),
            reason: format!("{peer} hung up: it ended, or it is not a server of this kind"),
        },
        other => other,
    })
}

fn not_served(path: &Path, error: &std::io::Error) -> FabricError {
    use std::io::ErrorKind;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let reason = match error.kind() {
        ErrorKind::NotFound => "there is no such file: start a server there, or check the path".into(),
        ErrorKind::ConnectionRefused if is_socket => {
            "its server is dead and left the socket file behind: start it again".into()
        }
        ErrorKind::ConnectionRefused => "the file is not a socket: check the path".into(),
        ErrorKind::PermissionDenied => {
            "it belongs to another user: run as the user who started the server".into()
        }
        ErrorKind::WouldBlock => {
            "too many connections wait for its server, which is stopped or overloaded: try again".into()
        }
        _ => error.to_string(),
    };
    FabricError::NotServed { address: name(path), reason }
}
