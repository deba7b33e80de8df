//! The table of designs: each published system is a row of choices over shared parts, and no code is named after one.
//! Other combinations of the same choices are designs as well, as far as they make sense.

use locus_rpc::{Pair, Way};
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

/// A design: one row of the table, or another combination.
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

/// All published designs that can be run.
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
    Design {
        name: "farm-kv",
        index: Index::HopscotchInline,
        reads: Locus::Client,
        writes: Locus::Server,
        request: Way::UC_WRITE,
        reply: Way::UC_WRITE,
        source: "Kalia, section 5.1.2 (FaRM-em)",
        summary: "gets by the client with one READ of a hopscotch neighbourhood that holds the values",
    },
    Design {
        name: "farm-kv-var",
        index: Index::Hopscotch,
        reads: Locus::Client,
        writes: Locus::Server,
        request: Way::UC_WRITE,
        reply: Way::UC_WRITE,
        source: "Kalia, section 5.1.2 (FaRM-em-VAR)",
        summary: "the same with values out of the table: a READ of the neighbourhood and one of the value",
    },
    herd(
        "herd",
        Way::UC_WRITE,
        "Kalia, section 4",
        "a lossy cache; requests are written into the server's memory",
    ),
    herd(
        "herd-ud",
        Way::UD_SEND,
        "Kalia, sections 3.3 and 4",
        "the same cache for many clients: datagrams both ways",
    ),
    perk("perk-sd-sd", Way::RC_SEND, Way::RC_SEND, "a blocked hash; messages both ways"),
    perk(
        "perk-wr-sd",
        Way::RC_WRITE,
        Way::RC_SEND,
        "the same; requests written to memory, replies as messages",
    ),
    perk(
        "perk-wrimm-sd",
        Way::RC_WRITE_IMMEDIATE,
        Way::RC_SEND,
        "the same; requests written to memory and announced",
    ),
    perk("perk-wr-wr", Way::RC_WRITE, Way::RC_WRITE, "the same; both written to memory"),
    perk(
        "perk-wr-rd",
        Way::RC_WRITE,
        Way::RC_READ,
        "the same; requests written to memory, replies READ by the client",
    ),
];

const fn herd(name: &'static str, request: Way, source: &'static str, summary: &'static str) -> Design {
    let (index, reads, writes) = (Index::Lossy, Locus::Server, Locus::Server);
    Design { name, index, reads, writes, request, reply: Way::UD_SEND, source, summary }
}

const fn perk(name: &'static str, request: Way, reply: Way, summary: &'static str) -> Design {
    let (index, reads, writes) = (Index::Blocked, Locus::Server, Locus::Server);
    Design { name, index, reads, writes, request, reply, source: "Onkenhout, section 3.3", summary }
}

impl Design {
    /// The design of this name: a row of the table, or a combination as [`Design::combine`] names it.
    pub fn find(name: &str) -> Option<&'static Self> {
        DESIGNS.iter().chain(combinations()).find(|design| design.name == name)
    }

    /// The design of these choices, or why there is none. One that is no row of the table is named after its choices.
    pub fn combine(index: Index, reads: Locus, pair: Pair) -> Result<&'static Self, String> {
        if let Some(reason) = index.refuses(reads) {
            return Err(format!("{} with reads at the {reads}: {reason}", index.name()));
        }
        pair.sense().map_err(|reason| format!("{pair} makes no sense: {reason}"))?;
        let is_same =
            |design: &&'static Self| (design.index, design.reads, design.pair()) == (index, reads, pair);
        DESIGNS
            .iter()
            .chain(combinations())
            .find(is_same)
            .ok_or_else(|| "there is no such combination".into())
    }

    /// How its messages travel.
    pub const fn pair(&self) -> Pair {
        Pair { request: self.request, reply: self.reply }
    }

    fn combination(index: Index, reads: Locus, pair: Pair) -> Self {
        let mut name = format!("{}-at-{reads}", index.name());
        if pair != Pair::default() {
            name = format!("{name}-{}-{}", pair.request.name(), pair.reply.name());
        }
        Self {
            // Made once per combination and process.
            name: name.leak(),
            index,
            reads,
            writes: Locus::Server,
            request: pair.request,
            reply: pair.reply,
            source: "none: a combination",
            summary: "a combination of choices",
        }
    }
}

/// What is sensible and no row of the table, as [`Design::combine`] gives it.
pub fn combinations() -> &'static [Design] {
    static COMBINATIONS: OnceLock<Vec<Design>> = OnceLock::new();
    COMBINATIONS.get_or_init(|| {
        let places = Index::ALL.into_iter().flat_map(|index| Locus::ALL.map(|reads| (index, reads)));
        let sensible = places.filter(|&(index, reads)| index.refuses(reads).is_none());
        let all = sensible
            .flat_map(|(index, reads)| Pair::all().map(move |pair| Design::combination(index, reads, pair)));
        let is_row = |design: &Design| {
            let choices = |design: &Design| (design.index, design.reads, design.pair());
            DESIGNS.iter().any(|row| choices(row) == choices(design))
        };
        all.filter(|design| !is_row(design)).collect()
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_a_design_or_is_refused_with_a_reason() {
        let places = Index::ALL.into_iter().flat_map(|index| Locus::ALL.map(|reads| (index, reads)));
        for ((index, reads), pair) in places.flat_map(|place| Pair::all().map(move |pair| (place, pair))) {
            match Design::combine(index, reads, pair) {
                Ok(design) => {
                    assert_eq!((design.index, design.reads, design.pair()), (index, reads, pair));
                    assert_eq!(Design::find(design.name), Some(design), "{}", design.name);
                }
                Err(reason) => assert!(reason.contains("READ"), "{reason}"),
            }
        }
        let plain = Pair::default();
        assert_eq!(Design::combine(Index::Cuckoo, Locus::Client, plain).unwrap().name, "pilaf");
        assert_eq!(Design::combine(Index::Blocked, Locus::Client, plain).unwrap().name, "blocked-at-client");
        assert_eq!(Design::combine(Index::Blocked, Locus::Server, plain).unwrap().name, "perk-sd-sd");
        assert!(Design::combine(Index::Lossy, Locus::Client, plain).is_err());
        assert_eq!(Design::find("lossy-at-client"), None);
        let senseless = Pair { request: Way::UC_WRITE, reply: Way::RC_READ };
        assert!(
            Design::combine(Index::Cuckoo, Locus::Server, senseless).unwrap_err().contains("two queue pairs")
        );
    }

    #[test]
    fn rows_are_told_apart_by_their_choices() {
        for (number, row) in DESIGNS.iter().enumerate() {
            assert_eq!(Design::combine(row.index, row.reads, row.pair()), Ok(row));
            assert!(DESIGNS[..number].iter().all(|other| other.name != row.name));
        }
    }
}
