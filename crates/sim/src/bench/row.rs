//! What a simulated cluster did, as one row.

use locus_bench::Latency;
use serde::Serialize;

/// The figures of one run, with the names that `locus bench` gives them, and how busy what was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterRow {
    /// The design.
    pub design: String,
    /// The simulated fabric: `sim:` and the preset.
    pub fabric: String,
    /// The mix of operations.
    pub workload: String,
    /// Which keys.
    pub distribution: String,
    /// Records of all servers together.
    pub records: u64,
    /// Length of keys, in bytes.
    pub key_bytes: usize,
    /// Length of values, in bytes.
    pub value_bytes: usize,
    /// Servers, each on a host of its own.
    pub servers: usize,
    /// Cores of each server.
    pub server_cores: usize,
    /// Hosts that clients share.
    pub client_hosts: usize,
    /// Clients, each with a thread of its own.
    pub clients: usize,
    /// Operations outstanding per client.
    pub window: usize,
    /// Virtual seconds measured.
    pub seconds: f64,
    /// Operations that ended in that time.
    pub operations: u64,
    /// The same per second.
    pub ops_per_second: f64,
    /// From the start of an operation to its end.
    pub latency_ns: Latency,
    /// What the server cores worked per operation, polls that found nothing left out.
    pub server_cpu_ns_per_op: f64,
    /// What the clients' threads worked per operation.
    pub client_cpu_ns_per_op: f64,
    /// READs per get, in the time measured.
    pub reads_per_get: f64,
    /// Verifications that failed, per operation.
    pub retries_per_op: f64,
    /// Operations that failed.
    pub errors: u64,
    /// Gets of records that a cache had forgotten.
    pub misses: u64,
    /// Which share of what the servers' NICs did for queue pairs found their state not at hand.
    pub context_misses: f64,
    /// How busy the resources of the servers were on average, from 0 to 1, by name.
    pub utilisation: Vec<(String, f64)>,
    /// What limited the run.
    pub bottleneck: Bottleneck,
}

/// What limits a run: the busiest resource, if it is busy most of the time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// This resource of the servers.
    Server(String),
    /// None of them: the clients wait for each other's answers, or are busy themselves.
    Clients,
}

impl Bottleneck {
    /// A resource is taken for the limit when it is busy for at least this share of the time.
    const BUSY: f64 = 0.9;

    pub(super) fn of(utilisation: &[(String, f64)]) -> Self {
        let busiest = utilisation.iter().max_by(|one, other| one.1.total_cmp(&other.1));
        match busiest {
            Some((name, share)) if *share >= Self::BUSY => Self::Server(name.clone()),
            _ => Self::Clients,
        }
    }
}
