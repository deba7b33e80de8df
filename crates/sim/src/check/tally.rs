//! What worlds went through, in counts: whether they reached what they were meant to reach.

use std::{collections::BTreeMap, fmt};

/// Counts by name, added up over worlds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    counts: BTreeMap<String, u64>,
}

impl Tally {
    /// Adds to a count.
    pub fn add(&mut self, name: &str, count: u64) {
        *self.counts.entry(name.to_owned()).or_default() += count;
    }

    /// Adds another tally.
    pub fn merge(&mut self, other: &Self) {
        other.counts.iter().for_each(|(name, count)| self.add(name, *count));
    }

    /// A count; zero of what was never counted.
    pub fn get(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.counts.keys().map(String::len).max().unwrap_or(0);
        for (name, count) in &self.counts {
            writeln!(out, "  {name:width$}  {count:>12}", width = width)?;
        }
        Ok(())
    }
}
