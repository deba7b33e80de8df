//! Nanoseconds and rates as a preset writes them: decimal fractions, which are kept as whole picoseconds.

use serde::{Deserialize, Deserializer, de::Error};

/// A length of time, kept in picoseconds: a NIC that does 35 million things per second spends 28.57 ns on each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nanoseconds {
    ps: u64,
}

impl Nanoseconds {
    /// From picoseconds.
    pub const fn from_ps(ps: u64) -> Self {
        Self { ps }
    }

    /// From nanoseconds, as a preset writes them; less than none is none.
    pub fn from_ns(ns: f64) -> Self {
        Self { ps: (ns * 1000.0).round() as u64 }
    }

    /// As a preset writes them.
    pub fn ns(self) -> f64 {
        self.ps as f64 / 1000.0
    }

    /// In picoseconds.
    #[inline]
    pub const fn ps(self) -> u64 {
        self.ps
    }

    /// In whole nanoseconds, rounded.
    #[inline]
    pub const fn whole_ns(self) -> u64 {
        (self.ps + 500) / 1000
    }
}

impl<'de> Deserialize<'de> for Nanoseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// An hour: whatever is longer is a slip of the pen.
        const MOST_NS: f64 = 3.6e12;
        let ns = f64::deserialize(deserializer)?;
        if !(0.0..=MOST_NS).contains(&ns) {
            return Err(D::Error::custom(format!("{ns} ns is negative, or longer than an hour")));
        }
        Ok(Self::from_ns(ns))
    }
}

/// A rate of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GigabytesPerSecond {
    /// How long a kibibyte takes, in picoseconds.
    kibibyte_ps: u64,
}

impl GigabytesPerSecond {
    /// From a rate as a preset writes it, which is positive.
    pub fn from_rate(rate: f64) -> Self {
        Self { kibibyte_ps: (1_024_000.0 / rate).round() as u64 }
    }

    /// As a preset writes it.
    pub fn rate(self) -> f64 {
        1_024_000.0 / self.kibibyte_ps as f64
    }

    /// How long bytes take, in picoseconds.
    #[inline]
    pub const fn transfer_ps(self, bytes: u64) -> u64 {
        (bytes * self.kibibyte_ps) >> 10
    }
}

impl<'de> Deserialize<'de> for GigabytesPerSecond {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rate = f64::deserialize(deserializer)?;
        if !(0.001..=10_000.0).contains(&rate) {
            return Err(D::Error::custom(format!("{rate} GB/s is not between 0.001 and 10000")));
        }
        Ok(Self::from_rate(rate))
    }
}
