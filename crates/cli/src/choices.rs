//! Choices in place of those of a design: free combinations.

use anyhow::anyhow;
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use locus_rpc::{Pair, Way};
use locus_store::{Design, Index, Locus};

/// What is to differ from the design.
#[derive(Args, Clone, Copy, Debug)]
pub struct Choices {
    /// What keys are found by, in place of what the design says
    #[arg(long, value_name = "NAME", value_parser = indexes())]
    index: Option<Index>,
    /// Where gets run, in place of where the design says
    #[arg(long, value_name = "LOCUS", value_parser = loci())]
    reads: Option<Locus>,
    /// How requests travel, in place of what the design says
    #[arg(long, value_name = "WAY", value_parser = way)]
    request: Option<Way>,
    /// How replies travel, in place of what the design says
    #[arg(long, value_name = "WAY", value_parser = way)]
    reply: Option<Way>,
}

fn indexes() -> impl TypedValueParser<Value = Index> {
    PossibleValuesParser::new(Index::ALL.map(Index::name))
        .map(|name| Index::find(&name).expect("one of the possible values"))
}

fn loci() -> impl TypedValueParser<Value = Locus> {
    let named = |name: String| Locus::ALL.into_iter().find(|locus| locus.to_string() == name);
    PossibleValuesParser::new(["client", "server"])
        .map(move |name| named(name).expect("one of the possible values"))
}

fn way(text: &str) -> Result<Way, String> {
    text.parse()
}

impl Choices {
    /// Whether nothing is chosen in place of anything.
    pub fn is_none(self) -> bool {
        self.index.is_none() && self.reads.is_none() && self.request.is_none() && self.reply.is_none()
    }

    /// The design with these choices, or why there is none.
    pub fn instead_of(self, design: &'static Design) -> anyhow::Result<&'static Design> {
        let pair = Pair {
            request: self.request.unwrap_or(design.request),
            reply: self.reply.unwrap_or(design.reply),
        };
        let (index, reads) = (self.index.unwrap_or(design.index), self.reads.unwrap_or(design.reads));
        Design::combine(index, reads, pair).map_err(|reason| anyhow!(reason))
    }
}
