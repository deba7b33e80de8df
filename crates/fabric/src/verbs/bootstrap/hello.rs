//! The hello: 16 bytes that either side says first, and whose layout no release may change, so that processes of
//! different releases part with an error that says so.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | magic |
//! | 8..10 | version of everything that follows the hello |
//! | 10..12 | verdict: 0 welcome, 1 refused |
//! | 12..16 | milliseconds between the sender's heartbeats |

use super::{
    lease::{HEARTBEAT, LEASE},
    socket::{self, Gone},
};
use rustix::fd::AsFd;
use std::time::Duration;

/// How long a peer may take to say hello, from when it is connected.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// The version of the frames that follow.
pub(super) const VERSION: u16 = 1;
pub(super) const HELLO_BYTES: usize = 16;

const MAGIC: [u8; 8] = *b"LOCUS-RC";

/// What a side thinks of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Welcome,
    /// The connection is closed after this hello.
    Refused,
}

pub(super) fn encode(version: u16, verdict: Verdict, heartbeat: Duration) -> [u8; HELLO_BYTES] {
    let mut hello = [0; HELLO_BYTES];
    hello[..8].copy_from_slice(&MAGIC);
    hello[8..10].copy_from_slice(&version.to_le_bytes());
    hello[10..12].copy_from_slice(&(verdict as u16).to_le_bytes());
    hello[12..].copy_from_slice(&(heartbeat.as_millis() as u32).to_le_bytes());
    hello
}

/// Understands a peer's hello; an error says what is wrong with it.
pub(super) fn check(hello: &[u8; HELLO_BYTES]) -> Result<(), String> {
    let [magic @ .., v0, v1, r0, r1, h0, h1, h2, h3] = *hello;
    if magic != MAGIC {
        return Err(format!(
            "it does not speak the bootstrap protocol of rdma: addresses, of which this process speaks version \
             {VERSION}: check host and port, and run the same release on both sides"
        ));
    }
    let version = u16::from_le_bytes([v0, v1]);
    if version != VERSION {
        return Err(format!(
            "it speaks version {version} of the bootstrap protocol and this process version {VERSION}: run the same \
             release on both sides"
        ));
    }
    if u16::from_le_bytes([r0, r1]) != Verdict::Welcome as u16 {
        return Err("it refused this process: run the same release on both sides".into());
    }
    let heartbeat = Duration::from_millis(u32::from_le_bytes([h0, h1, h2, h3]).into());
    if heartbeat.is_zero() || heartbeat > LEASE / 2 {
        return Err(format!(
            "its heartbeat of {heartbeat:?} does not fit this process's lease of {LEASE:?}: run the same release on \
             both sides"
        ));
    }
    Ok(())
}

/// Says hello on a fresh socket.
pub(super) fn say(socket: impl AsFd, verdict: Verdict) -> Result<(), Gone> {
    // The buffer of a fresh socket has room for 16 bytes.
    let sent = socket::send(socket, &encode(VERSION, verdict, HEARTBEAT))?;
    if sent == HELLO_BYTES { Ok(()) } else { Err(Gone) }
}

/// A hello as it arrives, in any number of pieces.
#[derive(Debug, Default)]
pub(super) struct Greeting {
    bytes: [u8; HELLO_BYTES],
    arrived: usize,
}

impl Greeting {
    /// Takes what has arrived, never beyond the hello; the hello once it is complete.
    pub(super) fn hear(&mut self, socket: impl AsFd) -> Result<Option<[u8; HELLO_BYTES]>, Gone> {
        while self.arrived < HELLO_BYTES {
            match socket::receive(&socket, &mut self.bytes[self.arrived..])? {
                0 => return Ok(None),
                bytes => self.arrived += bytes,
            }
        }
        Ok(Some(self.bytes))
    }
}
