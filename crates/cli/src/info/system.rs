//! The system: its kernel, the fence that sleepers need, and the number of open files.

use super::{Finding, read};
use locus::ServerConfig;
use rustix::{
    process::{Resource, getrlimit},
    thread::{MembarrierCommand, membarrier_query},
};

/// Descriptors that a client costs its server, about.
const FILES_PER_CLIENT: u64 = 4;

/// Looks at the system.
pub(super) fn look() -> Vec<Finding> {
    vec![
        Finding::good("kernel", read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into())),
        fence(),
        open_files(),
    ]
}

fn fence() -> Finding {
    let name = "membarrier";
    let query = membarrier_query();
    let wanted = [MembarrierCommand::GlobalExpedited, MembarrierCommand::RegisterGlobalExpedited];
    if wanted.into_iter().all(|command| query.contains_command(command)) {
        return Finding::good(name, "there: senders need no fence to wake a sleeper");
    }
    let what = "every message pays for a full fence";
    let cure = "run Linux 4.16 or later; in a container, let its seccomp profile pass membarrier";
    Finding::bad(name, "missing", what, cure)
}

fn open_files() -> Finding {
    let name = "open files (ulimit -n)";
    let clients = ServerConfig::default().clients_max as u64;
    let wanted = FILES_PER_CLIENT * clients;
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < wanted => {
            let what = format!("{clients} clients, a server's default limit, may need {wanted}");
            Finding::bad(name, limit.to_string(), what, format!("ulimit -n {wanted}"))
        }
        Some(limit) => Finding::good(name, limit.to_string()),
        None => Finding::good(name, "unlimited"),
    }
}
