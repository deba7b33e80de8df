//! Figures as people read them, with their units.

/// How many decimals show a ratio to two digits or more.
pub(crate) fn decimals(ratio: f64) -> usize {
    match ratio {
        r if r >= 10.0 => 0,
        r if r >= 1.0 => 1,
        r if r >= 0.1 => 2,
        _ => 3,
    }
}

/// Operations per second, with three digits.
pub(crate) fn operations(per_second: f64) -> String {
    match per_second {
        n if n >= 1e6 => format!("{:.2} M", n / 1e6),
        n if n >= 1e3 => format!("{:.1} k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

/// A time given in nanoseconds. Slightly less than nothing is measured when a server's idle time varies.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        n if n.abs() < 0.5 => "0 ns".into(),
        n if n < 10_000.0 => format!("{n:.0} ns"),
        n if n < 1e7 => format!("{:.1} us", n / 1e3),
        n => format!("{:.1} ms", n / 1e6),
    }
}
