//! Starting memcached or Redis on an address of our own: a free loopback port, or a socket in a private directory.

use super::pipeline::{Address, Protocol, connect};
use crate::error::BenchError;
use crate::options::BenchOptions;
use crate::process::{PrivateDirectory, ServerProcess, find_program, free_address};
use crate::target::{Label, Starter, System, Target};
use std::marker::PhantomData;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// How a server is started.
pub(super) trait Server: Protocol + Send + Sync + 'static {
    /// The program.
    const NAME: &'static str;
    /// Debian's package that has it.
    const PACKAGE: &'static str;
    /// Adds the arguments that make it listen on `address` and hold the records of `options` in memory.
    fn configure(command: &mut Command, address: &Address, options: &BenchOptions);
}

/// How clients reach a server.
#[derive(Debug, Clone, Copy)]
pub(super) enum Socket {
    Tcp,
    Unix,
}

/// A server that can be started.
pub(super) struct Peer<S> {
    socket: Socket,
    server: PhantomData<S>,
}

impl<S> Peer<S> {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket, server: PhantomData }
    }
}

/// A server that runs; the process goes before its directory.
struct RunningPeer<S> {
    process: ServerProcess,
    address: Address,
    _directory: PrivateDirectory,
    server: PhantomData<S>,
}

impl<S: Server> Starter for Peer<S> {
    fn label(&self) -> Label {
        let fabric = match self.socket {
            Socket::Tcp => "tcp",
            Socket::Unix => "unix",
        };
        Label::new(S::NAME.trim_end_matches("-server"), fabric)
    }

    fn start(&self, options: &BenchOptions) -> Result<Box<dyn System>, BenchError> {
        // Another process may take the port that was free a moment ago; then the server says so and ends.
        const TRIES: usize = 3;
        let mut last = Err(BenchError::Options("no try was made".into()));
        for _ in 0..TRIES {
            last = self.start_once(options);
            if !matches!(last, Err(BenchError::ServerStart { .. })) {
                break;
            }
        }
        Ok(Box::new(last?))
    }
}

impl<S: Server> Peer<S> {
    fn start_once(&self, options: &BenchOptions) -> Result<RunningPeer<S>, BenchError> {
        let program = find_program(S::NAME, S::PACKAGE)?;
        let directory = PrivateDirectory::new()?;
        let address = match self.socket {
            Socket::Tcp => Address::Tcp(free_address()?),
            Socket::Unix => Address::Unix(directory.path().join("socket")),
        };
        let mut command = Command::new(program);
        S::configure(&mut command, &address, options);
        let mut process = ServerProcess::spawn(command.current_dir(directory.path()).stdout(Stdio::null()))?;
        process.wait_until(|| match &address {
            Address::Tcp(address) => TcpStream::connect(address).is_ok(),
            Address::Unix(path) => UnixStream::connect(path).is_ok(),
        })?;
        Ok(RunningPeer { process, address, _directory: directory, server: PhantomData })
    }
}

impl<S: Server> System for RunningPeer<S> {
    fn connect(&self, _client: usize) -> Result<Box<dyn Target + '_>, BenchError> {
        connect::<S>(&self.address, S::NAME)
    }

    fn server_pids(&self) -> Vec<u32> {
        vec![self.process.pid()]
    }
}
