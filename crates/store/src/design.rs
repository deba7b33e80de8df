//! The table of designs: each published system is a row of choices over shared parts, and no code is named after one.

use std::{fmt, sync::OnceLock};

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
    /// A lossy index over a circular log: a cache, which forgets the oldest.
    Lossy,
    /// One bucket of two places per key, with records in extents: a cache, which evicts the last place of a full bucket.
    Blocked,
    /// A hopscotch table that points to records in extents.
    Hopscotch,
    /// A hopscotch table with keys and values in its slots.
    HopscotchInline,
}

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// SEND over a reliable connection.
    RcSend,
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
    pub request: Channel,
    /// How replies travel.
    pub reply: Channel,
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
        request: Channel::RcSend,
        reply: Channel::RcSend,
        source: "Mitchell, chapter 3",
        summary: "gets by the client over a self-verifying cuckoo table, without the server's CPU; puts by RPC",
    },
    Design {
        name: "pilaf-vo",
        index: Index::Cuckoo,
        reads: Locus::Server,
        writes: Locus::Server,
        request: Channel::RcSend,
        reply: Channel::RcSend,
        source: "Mitchell, section 6 (Pilaf, verbs only)",
        summary: "the same table, with all operations by RPC",
    },
];

impl Design {
    /// The design of this name: a row of the table, or a combination as [`Design::combine`] names it.
    pub fn find(name: &str) -> Option<&'static Self> {
        DESIGNS.iter().chain(combinations()).find(|design| design.name == name)
    }

    /// The design of these choices, or why there is none. One that is no row of the table is named after its choices.
    pub fn combine(index: Index, reads: Locus) -> Result<&'static Self, &'static str> {
        if let Some(reason) = index.refuses(reads) {
            return Err(reason);
        }
        let same = |design: &&'static Self| design.index == index && design.reads == reads;
        DESIGNS.iter().chain(combinations()).find(same).ok_or("there is no such combination")
    }
}

/// What is sensible and no row of the table, as [`Design::combine`] makes it.
pub fn combinations() -> &'static [Design] {
    static COMBINATIONS: OnceLock<Vec<Design>> = OnceLock::new();
    COMBINATIONS.get_or_init(|| {
        let all = Index::ALL.into_iter().flat_map(|index| Locus::ALL.map(|reads| (index, reads)));
        let is_row = |index, reads| DESIGNS.iter().any(|row| row.index == index && row.reads == reads);
        let sensible = all.filter(|&(index, reads)| index.refuses(reads).is_none() && !is_row(index, reads));
        sensible.map(|(index, reads)| Design::combination(index, reads)).collect()
    })
}

impl Design {
    fn combination(index: Index, reads: Locus) -> Self {
        Self {
            // Made once per combination and process.
            name: format!("{}-at-{reads}", index.name()).leak(),
            index,
            reads,
            writes: Locus::Server,
            request: Channel::RcSend,
            reply: Channel::RcSend,
            source: "none: a combination",
            summary: "a combination of choices",
        }
    }
}

impl Locus {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Client, Self::Server];
}

impl Index {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Cuckoo, Self::Lossy, Self::Blocked, Self::Hopscotch, Self::HopscotchInline];

    /// What a user types.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuckoo => "cuckoo",
            Self::Lossy => "lossy",
            Self::Blocked => "blocked",
            Self::Hopscotch => "hopscotch",
            Self::HopscotchInline => "hopscotch-inline",
        }
    }

    /// The index of this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|index| index.name() == name)
    }

    /// Whether keys may be gone that nobody has deleted.
    pub fn forgets(self) -> bool {
        matches!(self, Self::Lossy | Self::Blocked)
    }

    /// Why reads cannot run there, if so.
    pub fn refuses(self, reads: Locus) -> Option<&'static str> {
        match (self, reads) {
            (Self::Lossy, Locus::Client) => Some(
                "a client cannot READ a lossy index: its entries and its log carry no checksums, and the log is \
                 written over at any moment, so that nobody could tell what was read; let reads run at the server",
            ),
            _ => None,
        }
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
            Self::Lossy => "lossy index + circular log",
            Self::Blocked => "blocked hash + extents",
            Self::Hopscotch => "hopscotch + extents",
            Self::HopscotchInline => "hopscotch, inline",
        })
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::RcSend => "RC SEND",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_a_design_or_is_refused_with_a_reason() {
        for (index, reads) in Index::ALL.into_iter().flat_map(|index| Locus::ALL.map(|reads| (index, reads)))
        {
            match Design::combine(index, reads) {
                Ok(design) => {
                    assert_eq!((design.index, design.reads), (index, reads));
                    assert_eq!(Design::find(design.name), Some(design), "{}", design.name);
                }
                Err(reason) => assert!(reason.contains("READ"), "{reason}"),
            }
        }
        assert_eq!(Design::combine(Index::Cuckoo, Locus::Client).unwrap().name, "pilaf");
        assert_eq!(Design::combine(Index::Blocked, Locus::Client).unwrap().name, "blocked-at-client");
        assert!(Design::combine(Index::Lossy, Locus::Client).is_err());
        assert_eq!(Design::find("lossy-at-client"), None);
    }
}
