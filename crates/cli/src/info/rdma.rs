//! RDMA devices: what there is, what is wrong with it, and how to mend it.

use super::Finding;
use crate::size;
use locus_fabric::{
    FabricError,
    verbs::{DeviceInfo, GidKind, PortInfo, VerbsConfig, VerbsNic, devices},
};
use rustix::process::{Resource, getrlimit};

/// Below this a server's memory is not likely to be lockable.
const LOCKED_BYTES_MIN: u64 = 1 << 30;

/// Looks at each device. A machine without one has nothing wrong with it.
pub(super) fn look() -> Vec<Finding> {
    let devices = match devices() {
        Ok(devices) if !devices.is_empty() => devices,
        Ok(_) => return vec![Finding::good("devices", NO_DEVICE)],
        Err(FabricError::NoDevice { what, advice, .. }) => {
            return vec![Finding::good(
                "devices",
                format!("none can be looked for: {what}; to have them, {advice}"),
            )];
        }
        Err(error) => {
            return vec![Finding::bad("devices", "unknown", error.to_string(), "see the kernel's log")];
        }
    };
    let mut findings: Vec<Finding> = devices.iter().flat_map(device).collect();
    findings.push(match VerbsNic::open(&VerbsConfig::default()) {
        Ok(nic) => Finding::good("by default", nic.describe()),
        Err(error) => Finding::bad("by default", "none", error.to_string(), "mend what is wrong above"),
    });
    findings.push(locked_memory());
    findings
}

const NO_DEVICE: &str =
    "none: load a NIC's driver, or make a software one: rdma link add rxe0 type rxe netdev eth0";

fn device(device: &DeviceInfo) -> Vec<Finding> {
    let ports = match &device.ports {
        Ok(ports) => ports,
        Err(why) => {
            let cure = "look at the permissions of /dev/infiniband, and at the kernel's log";
            return vec![Finding::bad("device", device.name.clone(), why.clone(), cure)];
        }
    };
    let limits: Vec<String> = device.limits.iter().map(|(what, count)| format!("{count} {what}")).collect();
    let mut findings = vec![Finding::good("device", format!("{}: {}", device.name, limits.join(", ")))];
    findings.extend(ports.iter().map(port));
    findings
}

fn port(port: &PortInfo) -> Finding {
    let kind = |kind| match kind {
        GidKind::InfiniBand => "InfiniBand",
        GidKind::RoceV1 => "RoCE v1",
        GidKind::RoceV2 => "RoCE v2",
    };
    let gids: Vec<String> = port
        .gids
        .iter()
        .map(|gid| format!("GID {} = {} ({})", gid.index, gid.address, kind(gid.kind)))
        .collect();
    let layer = if port.ethernet { "Ethernet" } else { "InfiniBand" };
    let state =
        format!("{}: {}, {layer}, MTU {}; {}", port.number, port.state, port.mtu_bytes, gids.join(", "));
    if !port.active {
        let cure = "bring its network interface up (ip link set DEVICE up); on InfiniBand also see to a subnet manager";
        return Finding::bad("port", state, "no traffic passes", cure);
    }
    if port.gids.is_empty() {
        let cure = "give its network interface an address: ip address add ADDRESS/24 dev DEVICE";
        return Finding::bad("port", state, "it has no GID, so nobody can reach it", cure);
    }
    if port.ethernet && !port.gids.iter().any(|gid| gid.kind == GidKind::RoceV2) {
        let cure = "enable RoCE v2 in the NIC's driver; version 1 works within one Ethernet segment only";
        return Finding::bad("port", state, "it has no RoCE v2 GID", cure);
    }
    Finding::good("port", state)
}

/// Registered memory is locked, which the system limits for everybody but root.
fn locked_memory() -> Finding {
    let limit = getrlimit(Resource::Memlock).current;
    let state = limit.map_or_else(|| "unlimited".to_owned(), size::show);
    if limit.is_none_or(|limit| limit >= LOCKED_BYTES_MIN) || rustix::process::geteuid().is_root() {
        return Finding::good("locked memory", state);
    }
    let cure = "raise it: ulimit -l unlimited, or LimitMEMLOCK=infinity in the service's unit";
    Finding::bad("locked memory", state, "regions are locked memory, and this is little", cure)
}
