//! A channel is a pair of verbs: how requests travel, and how replies do (Onkenhout's matrix; Kalia §4).
//!
//! One pair exists: RC SEND both ways. The others become values of the same types; [`Outbox`](crate::outbox) and
//! [`Inbox`](crate::inbox) are where their verbs differ, and nothing else is.

use crate::RpcError;
use locus_fabric::Transport;
use std::fmt;

/// The verb that carries a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// SEND into a RECV of the peer.
    Send,
}

/// A verb over a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Way {
    /// The verb.
    pub carrier: Carrier,
    /// The transport.
    pub transport: Transport,
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
    pub const RC_SEND_RC_SEND: Self = Self {
        request: Way { carrier: Carrier::Send, transport: Transport::Rc },
        reply: Way { carrier: Carrier::Send, transport: Transport::Rc },
    };

    /// Refuses what this version has no code for.
    pub fn check(&self) -> Result<(), RpcError> {
        if *self == Self::RC_SEND_RC_SEND {
            return Ok(());
        }
        Err(locus_fabric::FabricError::Unsupported(
            "RC SEND for requests and replies is the one pair of verbs so far",
        )
        .into())
    }
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
        };
        write!(out, "{transport} {verb}")
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
    fn prints_as_the_designs_are_written_and_refuses_the_rest() {
        assert_eq!(Pair::default().to_string(), "RC SEND → RC SEND");
        assert!(Pair::default().check().is_ok());
        let lossy = Way { carrier: Carrier::Send, transport: Transport::Ud };
        assert!(Pair { reply: lossy, ..Pair::default() }.check().is_err());
    }
}
