//! The table of designs: each published system is a row of choices over shared parts, and no code is named after one.

use locus_rpc::{Pair, Way};
use std::fmt;

/// Where a computation runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Locus {
    /// At the client, by one-sided READs.
    Client,
    /// At the server, by RPC.
    Server,
}

/// What keys are found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Index {
    /// The 3-way self-verifying cuckoo table, with records in extents.
    Cuckoo,
}

/// A design: one row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Design {
    /// What a user types.
    pub name: &'static str,
    /// What keys are found by.
    pub index: Index,
    /// Where reads run.
    pub reads: Locus,
    /// Where writes run.
    pub writes: Locus,
    /// How requests travel.
    pub request: Way,
    /// How replies travel.
    pub reply: Way,
    /// The paper, for people.
    pub source: &'static str,
    /// What it is, in a sentence.
    pub summary: &'static str,
}

/// All designs.
pub const DESIGNS: &[Design] = &[
    Design {
        name: "pilaf",
        index: Index::Cuckoo,
        reads: Locus::Client,
        writes: Locus::Server,
        request: Way::RC_SEND,
        reply: Way::RC_SEND,
        source: "Mitchell, chapter 3",
        summary: "gets by the client over a self-verifying cuckoo table, without the server's CPU; puts by RPC",
    },
    Design {
        name: "pilaf-vo",
        index: Index::Cuckoo,
        reads: Locus::Server,
        writes: Locus::Server,
        request: Way::RC_SEND,
        reply: Way::RC_SEND,
        source: "Mitchell, section 6 (Pilaf, verbs only)",
        summary: "the same table, with all operations by RPC",
    },
];

impl Design {
    /// The design of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        DESIGNS.iter().find(|design| design.name == name)
    }

    /// How its messages travel.
    pub fn pair(&self) -> Pair {
        Pair { request: self.request, reply: self.reply }
    }
}

impl fmt::Display for Locus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}

impl fmt::Display for Index {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Cuckoo => "cuckoo 3-way + extents",
        })
    }
}
