//! The circumstances of a result, which every row carries: without them a figure is worth nothing.

use crate::cache_line::RoundTrips;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::read_to_string;
use std::time::SystemTime;

/// Where, when and with what a benchmark ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Circumstances {
    /// The version of this program.
    pub version: String,
    /// The commit that this program was built from.
    pub commit: String,
    /// The machine's name.
    pub machine: String,
    /// The processor's model.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The kernel's use of huge pages for shared memory and for ordinary memory.
    pub huge_pages: String,
    /// UTC, when it began.
    pub date: String,
    /// What drawing, timing and recording one operation costs, which is in every latency and rate, in nanoseconds.
    pub harness_ns_per_op: f64,
    /// What a cache line took to another core and back, measured beside every measurement. `None` if that could not be
    /// measured, with a single core, say.
    pub cache_line_round_trip_ns: Option<RoundTrips>,
    /// All parameters, as they print themselves.
    pub parameters: String,
}

impl Circumstances {
    /// Those of this machine, now.
    pub fn here(parameters: String, harness_ns_per_op: f64) -> Self {
        let word = |path: &str| read_to_string(path).map_or("unknown".into(), |text| text.trim().to_owned());
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            commit: env!("LOCUS_COMMIT").into(),
            machine: word("/proc/sys/kernel/hostname"),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_bytes(),
            kernel: word("/proc/sys/kernel/osrelease"),
            huge_pages: format!("shared {}, private {}", huge_pages("shmem_enabled"), huge_pages("enabled")),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            harness_ns_per_op,
            cache_line_round_trip_ns: None,
            parameters,
        }
    }

    /// How far apart the cores were while measuring.
    pub(crate) fn cores_apart(&self) -> Option<String> {
        let RoundTrips { least, median, most } = self.cache_line_round_trip_ns?;
        Some(format!(
            "a cache line takes {median:.0} ns to another core and back ({least:.0} to {most:.0} between measurements)"
        ))
    }
}

impl fmt::Display for Circumstances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, version {}, commit {}", self.date, self.version, self.commit)?;
        writeln!(
            f,
            "{}: {}, {} cores, {:.1} GiB, Linux {}, huge pages: {}",
            self.machine,
            self.cpu,
            self.cores,
            self.memory_bytes as f64 / f64::from(1 << 30),
            self.kernel,
            self.huge_pages
        )?;
        writeln!(f, "{}", self.parameters)?;
        write!(
            f,
            "the harness itself takes {:.0} ns per operation, included in all figures",
            self.harness_ns_per_op
        )?;
        self.cores_apart().map_or(Ok(()), |text| write!(f, "\n{text}"))
    }
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory_bytes() -> u64 {
    let text = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    text.trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10
}

/// The choice in brackets in one of the kernel's files on transparent huge pages.
fn huge_pages(file: &str) -> String {
    let text = read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{file}")).unwrap_or_default();
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or("unknown".into(), |(chosen, _)| chosen.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let here = Circumstances::here("parameters".into(), 25.0);
        assert!(here.cores > 0 && here.memory_bytes > 1 << 20);
        assert!(here.date.starts_with("20") && here.date.ends_with('Z'), "{}", here.date);
        assert_ne!(here.kernel, "unknown");
        let text = here.to_string();
        assert!(text.contains("parameters") && text.contains("25 ns"), "{text}");
        let spread = RoundTrips { least: 55.0, median: 60.0, most: 330.0 };
        let text = Circumstances { cache_line_round_trip_ns: Some(spread), ..here }.to_string();
        assert!(text.contains("takes 60 ns to another core and back (55 to 330 "), "{text}");
    }
}
