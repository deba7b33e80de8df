//! The YCSB core workloads (Cooper et al. 2010, Table 2) that an unordered table can run: A, B, C, D and F;
//! and W, updates only, which is none of YCSB's.

use crate::error::BenchError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// YCSB's zipfian constant; the papers all use it.
pub const ZIPFIAN_THETA: f64 = 0.99;

/// A mix of operations over a distribution of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Half gets, half updates.
    A,
    /// 95% gets, 5% updates.
    B,
    /// Gets alone.
    C,
    /// 95% gets of recently inserted records, 5% inserts.
    D,
    /// Half gets, half read-modify-writes.
    F,
    /// Updates alone; not of YCSB.
    W,
}

/// Percentages of the kinds of operation; the rest are gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// Overwrites of a record that is there.
    pub put_percent: u32,
    /// New records.
    pub insert_percent: u32,
    /// A get, then a put of the same record, counted as one operation.
    pub read_modify_write_percent: u32,
}

impl Workload {
    /// Every workload that can be run.
    pub const ALL: [Workload; 6] =
        [Workload::A, Workload::B, Workload::C, Workload::D, Workload::F, Workload::W];

    /// What is done, and how often.
    pub fn mix(self) -> Mix {
        let (put_percent, insert_percent, read_modify_write_percent) = match self {
            Workload::A => (50, 0, 0),
            Workload::B => (5, 0, 0),
            Workload::C => (0, 0, 0),
            Workload::D => (0, 5, 0),
            Workload::F => (0, 0, 50),
            Workload::W => (100, 0, 0),
        };
        Mix { put_percent, insert_percent, read_modify_write_percent }
    }

    /// The mix in words: `50% gets, 50% puts`.
    pub fn summary(self) -> String {
        let Mix { put_percent, insert_percent, read_modify_write_percent } = self.mix();
        let gets = 100 - put_percent - insert_percent - read_modify_write_percent;
        let kinds = [
            (gets, "gets"),
            (put_percent, "puts"),
            (insert_percent, "inserts"),
            (read_modify_write_percent, "read-modify-writes"),
        ];
        let some = kinds.iter().filter(|(percent, _)| *percent > 0);
        some.map(|(percent, kind)| format!("{percent}% {kind}")).collect::<Vec<_>>().join(", ")
    }

    /// YCSB's own choice of keys for this workload; for W that of most others.
    pub fn distribution(self) -> Distribution {
        if self == Workload::D { Distribution::Latest } else { Distribution::Zipfian }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Workload::A => "a",
            Workload::B => "b",
            Workload::C => "c",
            Workload::D => "d",
            Workload::F => "f",
            Workload::W => "w",
        })
    }
}

impl FromStr for Workload {
    type Err = BenchError;

    fn from_str(name: &str) -> Result<Self, BenchError> {
        match name.to_ascii_lowercase().as_str() {
            "a" => Ok(Workload::A),
            "b" => Ok(Workload::B),
            "c" => Ok(Workload::C),
            "d" => Ok(Workload::D),
            "e" => Err(BenchError::Options(
                "workload e scans ranges of keys; these designs keep unordered (hash) tables, which cannot scan".into(),
            )),
            "f" => Ok(Workload::F),
            "w" => Ok(Workload::W),
            other => Err(BenchError::Options(format!("no workload {other:?}: a, b, c, d, f or w"))),
        }
    }
}

/// Which keys are used how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Zipf with θ = 0.99, its ranks scattered over all records by a one-to-one map.
    Zipfian,
    /// Every record alike.
    Uniform,
    /// Zipf with θ = 0.99, the newest record first.
    Latest,
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Distribution::Zipfian => "zipfian",
            Distribution::Uniform => "uniform",
            Distribution::Latest => "latest",
        })
    }
}

impl FromStr for Distribution {
    type Err = BenchError;

    fn from_str(name: &str) -> Result<Self, BenchError> {
        match name.to_ascii_lowercase().as_str() {
            "zipfian" => Ok(Distribution::Zipfian),
            "uniform" => Ok(Distribution::Uniform),
            "latest" => Ok(Distribution::Latest),
            other => {
                Err(BenchError::Options(format!("no distribution {other:?}: zipfian, uniform or latest")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for workload in Workload::ALL {
            assert_eq!(workload.to_string().parse::<Workload>().unwrap(), workload);
        }
        for distribution in [Distribution::Zipfian, Distribution::Uniform, Distribution::Latest] {
            assert_eq!(distribution.to_string().parse::<Distribution>().unwrap(), distribution);
        }
    }

    #[test]
    fn scans_are_refused_with_the_reason() {
        let error = "E".parse::<Workload>().unwrap_err().to_string();
        assert!(error.contains("unordered") && error.contains("scan"), "{error}");
        assert!("x".parse::<Workload>().is_err());
    }
}
