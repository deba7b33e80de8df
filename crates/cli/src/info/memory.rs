//! Memory: how much there is, huge pages, and the limits on it.

use super::{Finding, read};
use crate::size;
use locus::ServerConfig;
use rustix::process::{Resource, getrlimit};

/// Looks at memory.
pub(super) fn look() -> Vec<Finding> {
    let mut findings = vec![available(), huge_pages()];
    findings.extend(control_group());
    findings.push(shared_memory_mount());
    findings.push(locked());
    findings
}

fn available() -> Finding {
    let meminfo = read("/proc/meminfo").unwrap_or_default();
    let (Some(total), Some(available)) = (field(&meminfo, "MemTotal"), field(&meminfo, "MemAvailable"))
    else {
        return Finding::good("available", "unknown: /proc/meminfo cannot be read");
    };
    let state = format!("{} of {}", size::show(available), size::show(total));
    let default = ServerConfig::default().memory_bytes as u64;
    if available < default {
        let what = format!("less than {}, the default limit of a server", size::show(default));
        return Finding::bad("available", state, what, "give locus serve a smaller --memory, or free memory");
    }
    Finding::good("available", state)
}

/// A field of `/proc/meminfo`, in bytes.
fn field(meminfo: &str, name: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// Huge pages are asked for with `MADV_COLLAPSE`; whether they were granted shows at the provider. Here: what forbids them.
fn huge_pages() -> Finding {
    let name = "huge pages";
    let Some(shmem) = read("/sys/kernel/mm/transparent_hugepage/shmem_enabled") else {
        let what = "gets from large tables are slower, since they miss the TLB";
        return Finding::bad(name, "this kernel has none", what, "run a kernel with transparent huge pages");
    };
    let chosen = chosen(&shmem).unwrap_or("unknown");
    let state = format!("shared memory: {chosen}; asked for with MADV_COLLAPSE (Linux 6.1)");
    if chosen == "deny" {
        let cure =
            "echo never > /sys/kernel/mm/transparent_hugepage/shmem_enabled (never allows those asked for)";
        return Finding::bad(name, state, "the system forbids them for shared memory", cure);
    }
    match kernel() {
        Some(version) if version < (6, 1) => {
            Finding::bad(name, state, "this kernel is older", "run Linux 6.1 or later")
        }
        _ => Finding::good(name, state),
    }
}

/// The choice in brackets, as in `always [madvise] never`.
fn chosen(choices: &str) -> Option<&str> {
    choices.split_whitespace().find_map(|choice| choice.strip_prefix('[')?.strip_suffix(']'))
}

/// Major and minor version.
fn kernel() -> Option<(u32, u32)> {
    let release = read("/proc/sys/kernel/osrelease")?;
    let mut parts = release.split(|character: char| !character.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn control_group() -> Option<Finding> {
    let own = read("/proc/self/cgroup")?;
    let group = own.lines().find_map(|line| line.strip_prefix("0::"))?.trim_end_matches('/');
    let limit = read(&format!("/sys/fs/cgroup{group}/memory.max"))?.parse().ok()?;
    let state = format!("{} for this control group", size::show(limit));
    let default = ServerConfig::default().memory_bytes as u64;
    Some(if limit < default {
        let what = format!("less than {}, the default limit of a server", size::show(default));
        Finding::bad(
            "container limit",
            state,
            what,
            "give locus serve a smaller --memory, or raise the limit",
        )
    } else {
        Finding::good("container limit", state)
    })
}

fn shared_memory_mount() -> Finding {
    let state = match rustix::fs::statvfs("/dev/shm") {
        Ok(found) => size::show(found.f_blocks * found.f_frsize),
        Err(error) => error.to_string(),
    };
    Finding::good(
        "/dev/shm",
        format!("{state}; not used: regions are memfds, which this size does not limit"),
    )
}

fn locked() -> Finding {
    let state = getrlimit(Resource::Memlock).current.map_or("unlimited".to_owned(), size::show);
    Finding::good("locked (ulimit -l)", format!("{state}; not used by shm: RDMA devices will need it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_understood() {
        assert_eq!(chosen("always within_size advise [never] deny force"), Some("never"));
        assert_eq!(chosen("nothing"), None);
        assert_eq!(field("MemTotal:       24 kB\nMemAvailable:   2 kB", "MemAvailable"), Some(2048));
        assert_eq!(field("MemTotal:       24 kB", "Mem"), None);
    }
}
