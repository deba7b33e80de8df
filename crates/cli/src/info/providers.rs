//! Which fabric providers there are, tried out.

use super::Finding;
use crate::connect::default_address;
use locus::ServerConfig;

/// What is stored and read back to see that a provider works, in bytes: more than fits a message, so that all its ways
/// are taken.
const TRIAL_BYTES: usize = 100_000;

/// Looks at each provider.
pub(super) fn look() -> Vec<Finding> {
    vec![
        match try_shm() {
            Ok(pages) => Finding::good("shm", format!("works: put and got a record; memory on {pages}")),
            Err(error) => Finding::bad("shm", "does not work", error.to_string(), "see the items below"),
        },
        Finding::good("verbs", "InfiniBand, RoCE, SoftRoCE: see rdma below"),
        Finding::good("sim", "not in this release (the simulator)"),
        default(),
    ]
}

/// Serves, connects, puts and gets, in this process.
fn try_shm() -> locus::Result<String> {
    let config = ServerConfig { memory_bytes: 64 << 20, region_bytes: 8 << 20, ..ServerConfig::default() };
    let store = locus::open(config)?;
    let table = store.table()?;
    let value = vec![0xA5; TRIAL_BYTES];
    table.put("trial", &value)?;
    match table.get_with("trial", |found| found == value)? {
        Some(true) => Ok(store.stats().pages),
        _ => Err(locus::Error::Config("what was read is not what was stored: please report this".into())),
    }
}

fn default() -> Finding {
    let address = default_address();
    let state = match locus::connect(&address).and_then(|table| table.stats()) {
        Ok(servers) => {
            let process = servers.first().map_or(0, |server| server.process);
            format!("{address}: served by process {process}")
        }
        Err(error) => error.to_string(),
    };
    Finding::good("default address", state)
}
