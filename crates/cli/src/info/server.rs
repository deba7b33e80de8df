//! An address: whether it is served, and if not, what keeps clients from it.

use super::{Finding, firewall};
use locus::ClientConfig;
use locus_fabric::{
    Address, FabricError,
    verbs::{Probe, VerbsConfig, VerbsNic, probe},
};
use std::{net::SocketAddr, time::Duration};

/// How long a host may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Looks at an address.
pub(super) fn look(address: &Address) -> Vec<Finding> {
    match address {
        Address::Shm(_) | Address::Sim(_) => vec![shm(address)],
        Address::Rdma { host, port, nic } => rdma(host, *port, nic),
    }
}

/// Whether somebody answers there; whatever is wrong with the address shows by that, too.
fn shm(address: &Address) -> Finding {
    let config = ClientConfig { patience: PATIENCE, ..ClientConfig::default() };
    match locus::connect_with(&[address.to_string()], config) {
        Ok(_) => Finding::good("served", address.to_string()),
        Err(locus::Error::Refused { reason, .. }) => {
            Finding::good("served", format!("{address}; it refused to say more: {reason}"))
        }
        Err(error) => Finding::bad(
            "served",
            "no",
            error.to_string(),
            format!("start a server there: locus serve --listen {address}"),
        ),
    }
}

fn rdma(host: &str, port: u16, nic: &VerbsConfig) -> Vec<Finding> {
    let mut findings = vec![match VerbsNic::open(nic) {
        Ok(nic) => Finding::good("reached by", nic.describe()),
        Err(error) => Finding::bad(
            "reached by",
            "no RDMA device",
            error.to_string(),
            "mend what is wrong under rdma below",
        ),
    }];
    match probe(host, port, PATIENCE) {
        Ok(found) => {
            findings.extend(found.iter().map(|(address, probe)| bootstrap(*address, probe)));
            if found.iter().any(|(_, probe)| suspects_firewall(probe)) {
                findings.push(firewall::look(port));
            }
        }
        Err(FabricError::BadAddress { reason, .. }) => findings.push(Finding::bad(
            "bootstrap",
            format!("{host} is not known"),
            reason,
            "check the host name (getent hosts NAME), or use an IP address",
        )),
        Err(error) => findings.push(Finding::bad("bootstrap", "unknown", error.to_string(), "try again")),
    }
    findings
}

fn suspects_firewall(probe: &Probe) -> bool {
    matches!(probe, Probe::Refused | Probe::Silent | Probe::Unreachable(_) | Probe::Forbidden(_))
}

/// What the TCP port says over which links are set up.
fn bootstrap(address: SocketAddr, probe: &Probe) -> Finding {
    let (host, port) = (address.ip(), address.port());
    let bad = |state: &str, what: String, cure: String| {
        Finding::bad("bootstrap", format!("TCP {address}: {state}"), what, cure)
    };
    let open = format!(
        "nft add rule inet filter input tcp dport {port} accept; or ufw allow {port}/tcp; or firewall-cmd --add-port={port}/tcp"
    );
    match probe {
        Probe::Serves => Finding::good(
            "bootstrap",
            format!("TCP {address}: a server answers (RDMA itself goes another way: with RoCE v2, UDP 4791)"),
        ),
        Probe::Refused => bad(
            "refused",
            format!("no server listens there, or a firewall rejects port {port}, which looks the same"),
            format!(
                "start one: locus serve --listen {}; if one runs there (ss -ltn lists the port), let the port pass: {open}",
                Address::Rdma { host: host.to_string(), port, nic: VerbsConfig::default() }
            ),
        ),
        Probe::Silent => bad(
            "no answer",
            format!("a firewall drops TCP port {port}, or the host is down, or the address is wrong"),
            format!("see that the host answers (ping {host}), then let the port pass there: {open}"),
        ),
        Probe::Unreachable(error) => bad(
            error,
            format!(
                "no route leads there, the host is down, or a firewall rejects port {port}: these look the same"
            ),
            format!(
                "see the way there (ip route get {host}) and that the host answers (ping {host}); then let the port pass there: {open}"
            ),
        ),
        Probe::Forbidden(error) => bad(
            error,
            "this machine itself forbids it: a route (prohibit, blackhole) or a firewall rule of its own"
                .into(),
            format!("see ip route get {host}, and as root nft list ruleset"),
        ),
        Probe::Mute => bad(
            "connected, but no hello",
            "the server is stopped or overloaded, or something else listens there".into(),
            format!("see what listens there: ss -ltnp 'sport = :{port}'"),
        ),
        Probe::Foreign(what) => bad(
            "not our protocol",
            what.clone(),
            "check host and port, and run the same release on both sides".into(),
        ),
        Probe::Failed(error) => bad("failed", error.clone(), "see the system's words".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_names_the_port_and_a_cure() {
        let address = "[fd00::1]:7471".parse().unwrap();
        let words = |probe: Probe| {
            let finding = bootstrap(address, &probe);
            let trouble = finding.trouble.unwrap_or_else(|| panic!("{probe:?} is trouble"));
            format!("{} | {} | {}", finding.state, trouble.what, trouble.cure)
        };
        for (probe, says) in [
            (Probe::Silent, &["no answer", "drops TCP port 7471", "ufw allow 7471/tcp", "ping fd00::1"][..]),
            (
                Probe::Refused,
                &["refused", "no server listens", "--listen rdma://[fd00::1]:7471", "dport 7471"],
            ),
            (Probe::Unreachable("no route".into()), &["no route", "look the same", "--add-port=7471/tcp"]),
            (Probe::Forbidden("EACCES".into()), &["this machine itself", "ip route get fd00::1"]),
            (Probe::Mute, &["no hello", "stopped or overloaded"]),
            (Probe::Foreign("version 9".into()), &["version 9", "same release"]),
        ] {
            let text = words(probe);
            says.iter().for_each(|say| assert!(text.contains(say), "no {say:?} in {text}"));
        }
        assert!(bootstrap(address, &Probe::Serves).trouble.is_none());
    }
}
