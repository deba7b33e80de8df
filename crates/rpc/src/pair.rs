//! A channel is a pair of ways: how requests travel, and how replies do (Onkenhout's matrix, §3.3 and Table 2; Kalia §4).
//!
//! A way is a verb over a transport. [`Outbox`](crate::outbox) is where sending differs by verb, [`Inbox`](crate::inbox)
//! and [`Arrivals`](crate::slots) are where receiving does, and nothing else knows which verb it is.
//!
//! | published as | requests | replies |
//! |---|---|---|
//! | Pilaf, Cell, PERK `sd-sd` | RC SEND | RC SEND |
//! | PERK `wr-sd`, `wrimm-sd` | RC WRITE, RC WRITE with immediate | RC SEND |
//! | PERK `wr-wr`, `wr-rd` | RC WRITE | RC WRITE, RC READ by the client |
//! | HERD | UC WRITE | UD SEND |
//! | HERD for many clients (Kalia §3.3) | UD SEND | UD SEND |
//! | FaRM | UC or RC WRITE | UC or RC WRITE |

use crate::RpcError;
use locus_fabric::{FabricError, Properties, Transport};
use std::{fmt, str::FromStr};

/// The verb that carries a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// SEND into a RECV of the peer.
    Send,
    /// WRITE into a slot of the peer's memory, which the peer polls.
    Write,
    /// WRITE into a slot of the peer's memory, with an immediate that consumes a RECV and tells which.
    WriteImmediate,
    /// The client READs a slot of the server's memory until the reply is there.
    Read,
}

/// A verb over a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Way {
    /// The transport.
    pub transport: Transport,
    /// The verb.
    pub carrier: Carrier,
}

impl Way {
    /// SEND over RC.
    pub const RC_SEND: Self = Self { transport: Transport::Rc, carrier: Carrier::Send };
    /// WRITE over RC.
    pub const RC_WRITE: Self = Self { transport: Transport::Rc, carrier: Carrier::Write };
    /// WRITE with immediate over RC.
    pub const RC_WRITE_IMMEDIATE: Self = Self { transport: Transport::Rc, carrier: Carrier::WriteImmediate };
    /// READ over RC.
    pub const RC_READ: Self = Self { transport: Transport::Rc, carrier: Carrier::Read };
    /// SEND over UC.
    pub const UC_SEND: Self = Self { transport: Transport::Uc, carrier: Carrier::Send };
    /// WRITE over UC.
    pub const UC_WRITE: Self = Self { transport: Transport::Uc, carrier: Carrier::Write };
    /// WRITE with immediate over UC.
    pub const UC_WRITE_IMMEDIATE: Self = Self { transport: Transport::Uc, carrier: Carrier::WriteImmediate };
    /// SEND over UD.
    pub const UD_SEND: Self = Self { transport: Transport::Ud, carrier: Carrier::Send };

    /// All ways that a transport has a verb for.
    pub const ALL: [Self; 8] = [
        Self::RC_SEND,
        Self::RC_WRITE,
        Self::RC_WRITE_IMMEDIATE,
        Self::RC_READ,
        Self::UC_SEND,
        Self::UC_WRITE,
        Self::UC_WRITE_IMMEDIATE,
        Self::UD_SEND,
    ];

    /// Whether it goes over a queue pair that is connected with one peer.
    pub fn is_connected(self) -> bool {
        self.transport != Transport::Ud
    }

    /// Whether what it carries may be lost.
    pub fn is_lossy(self) -> bool {
        self.transport != Transport::Rc
    }

    /// What a user types, such as `rc-write`.
    pub fn name(self) -> String {
        self.to_string().to_lowercase().replace(' ', "-")
    }
}

/// How requests and replies travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// From client to server.
    pub request: Way,
    /// From server to client.
    pub reply: Way,
}

impl Pair {
    /// RC SEND → RC SEND: Pilaf, Cell, and PERK's `sd-sd`.
    pub const RC_SEND_RC_SEND: Self = Self { request: Way::RC_SEND, reply: Way::RC_SEND };

    /// All pairs that make sense.
    pub fn all() -> impl Iterator<Item = Self> {
        let pairs = Way::ALL.into_iter().flat_map(|request| Way::ALL.map(|reply| Self { request, reply }));
        pairs.filter(|pair| pair.sense().is_ok())
    }

    /// Refuses what makes no sense, with the reason.
    pub fn check(&self) -> Result<(), RpcError> {
        self.sense().map_err(|reason| FabricError::Unsupported(reason).into())
    }

    /// What is wrong with the pair, if anything.
    pub fn sense(&self) -> Result<(), &'static str> {
        for way in [self.request, self.reply] {
            match (way.transport, way.carrier) {
                (Transport::Ud, Carrier::Send) | (Transport::Rc, _) => {}
                (Transport::Ud, _) => return Err("UD carries SENDs alone (Kalia, Table 1)"),
                (_, Carrier::Read) => return Err("READ is a verb of RC alone (Kalia, Table 1)"),
                _ => {}
            }
        }
        match (self.request, self.reply) {
            (Way { carrier: Carrier::Read, .. }, _) => Err(
                "a server that READs requests would READ again and again before there is one (Onkenhout §3.3)",
            ),
            (_, Way { carrier: Carrier::WriteImmediate, .. }) => Err(
                "a reply by WRITE with immediate takes a RECV, as one by SEND does, and a WRITE: it has the costs of both",
            ),
            (request, reply)
                if request.is_connected() && reply.is_connected() && request.transport != reply.transport =>
            {
                Err(
                    "requests over one connected transport and replies over another take two queue pairs where \
                     one serves both",
                )
            }
            _ => Ok(()),
        }
    }

    /// Whether a request or its reply may be lost, so that the client tries again.
    pub fn is_lossy(&self) -> bool {
        self.request.is_lossy() || self.reply.is_lossy()
    }

    /// The transport of the connected queue pair, if there is one.
    pub(crate) fn connected(&self) -> Option<Transport> {
        let ways = [self.request, self.reply];
        ways.into_iter().find(|way| way.is_connected()).map(|way| way.transport)
    }

    /// Whether messages go over UD queue pairs, one of each client's channels and one of each server core.
    pub(crate) fn has_datagrams(&self) -> bool {
        !self.request.is_connected() || !self.reply.is_connected()
    }

    /// The longest value that a reply carries on this NIC, in bytes; longer ones travel by rendezvous.
    pub fn reply_value_bytes_max(&self, properties: &Properties) -> usize {
        let room = match self.reply.transport {
            Transport::Ud => datagram_frame_bytes(properties).saturating_sub(crate::REPLY_HEADER_BYTES),
            _ => usize::MAX,
        };
        crate::INLINE_VALUE_BYTES_MAX.min(room)
    }

    /// The longest frame that carries a request on this NIC, in bytes.
    pub(crate) fn request_bytes_max(&self, properties: &Properties) -> usize {
        match self.request.transport {
            Transport::Ud => crate::FRAME_BYTES_MAX.min(datagram_frame_bytes(properties)),
            _ => crate::FRAME_BYTES_MAX,
        }
    }
}

/// What comes before a frame in a datagram: the token of its channel, since anybody can send datagrams.
pub(crate) const TOKEN_BYTES: usize = 8;

/// The longest frame in a datagram.
fn datagram_frame_bytes(properties: &Properties) -> usize {
    properties.datagram_bytes_max.saturating_sub(TOKEN_BYTES)
}

impl Default for Pair {
    fn default() -> Self {
        Self::RC_SEND_RC_SEND
    }
}

impl fmt::Display for Way {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            Transport::Rc => "RC",
            Transport::Uc => "UC",
            Transport::Ud => "UD",
        };
        let verb = match self.carrier {
            Carrier::Send => "SEND",
            Carrier::Write => "WRITE",
            Carrier::WriteImmediate => "WRITE IMM",
            Carrier::Read => "READ",
        };
        write!(out, "{transport} {verb}")
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|way| way.name() == text).ok_or_else(|| {
            let names: Vec<String> = Self::ALL.iter().map(|way| way.name()).collect();
            format!("there is no way {text:?} for messages to travel: {}", names.join(", "))
        })
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} → {}", self.request, self.reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_and_pairs_are_written_as_the_designs_are() {
        assert_eq!(Pair::default().to_string(), "RC SEND → RC SEND");
        assert_eq!("uc-write-imm".parse(), Ok(Way::UC_WRITE_IMMEDIATE));
        assert!(Way::ALL.iter().all(|way| way.name().parse() == Ok(*way)));
        assert!("ud-write".parse::<Way>().unwrap_err().contains("ud-send"));
    }

    #[test]
    fn the_published_pairs_make_sense_and_the_rest_is_refused_by_reason() {
        let pairs: Vec<Pair> = Pair::all().collect();
        let published = [
            (Way::RC_SEND, Way::RC_SEND),
            (Way::RC_WRITE, Way::RC_SEND),
            (Way::RC_WRITE_IMMEDIATE, Way::RC_SEND),
            (Way::RC_WRITE, Way::RC_WRITE),
            (Way::RC_WRITE, Way::RC_READ),
            (Way::UC_WRITE, Way::UD_SEND),
            (Way::UD_SEND, Way::UD_SEND),
            (Way::UC_WRITE, Way::UC_WRITE),
        ];
        assert!(published.iter().all(|&(request, reply)| pairs.contains(&Pair { request, reply })));
        let reason = |request, reply| Pair { request, reply }.sense().unwrap_err();
        assert!(reason(Way::RC_READ, Way::RC_SEND).contains("again and again"));
        assert!(reason(Way::RC_SEND, Way::RC_WRITE_IMMEDIATE).contains("RECV"));
        assert!(reason(Way::UC_WRITE, Way::RC_READ).contains("two queue pairs"));
        let uc_read = Way { transport: Transport::Uc, carrier: Carrier::Read };
        assert!(reason(Way::UC_WRITE, uc_read).contains("RC alone"));
        let ud_write = Way { transport: Transport::Ud, carrier: Carrier::Write };
        assert!(reason(ud_write, Way::UD_SEND).contains("SENDs alone"));
    }
}
