//! Bad lines: told one by one up to a cap, and counted.

use std::cell::Cell;

/// How many bad lines are told one by one.
const TOLD_MAX: u64 = 20;

/// The bad lines of a load.
pub struct Report {
    strict: bool,
    bad: Cell<u64>,
}

impl Report {
    /// With `strict`, the first bad line stops the load.
    pub fn new(strict: bool) -> Self {
        Self { strict, bad: Cell::new(0) }
    }

    /// Tells of a bad line.
    pub fn bad(&self, line: u64, reason: &str) {
        let bad = self.bad.get() + 1;
        self.bad.set(bad);
        if bad <= TOLD_MAX && (bad == 1 || !self.strict) {
            eprintln!("locus: line {line}: {reason}");
        } else if bad == TOLD_MAX + 1 {
            eprintln!("locus: further bad lines are counted and not shown");
        }
    }

    /// Whether there was any.
    pub fn any(&self) -> bool {
        self.bad.get() > 0
    }

    /// Whether the load has to stop.
    pub fn stopped(&self) -> bool {
        self.strict && self.any()
    }

    /// The total, for people.
    pub fn summary(&self) -> String {
        match self.bad.get() {
            0 => "no bad lines".to_owned(),
            1 => "1 bad line".to_owned(),
            bad => format!("{bad} bad lines"),
        }
    }
}
