//! A firewall of this machine, as tests set it up: without a word it drops what goes to a TCP port, or also what comes back.

use std::process::Command;

/// Drops packets until it is dropped itself.
pub struct Firewall;

impl Firewall {
    /// Drops what is sent to a TCP port; with `both`, also what is sent from it.
    pub fn drops(port: u16, both: bool) -> Self {
        nft("add table inet locus");
        // From here on it is taken down, whatever fails.
        let firewall = Self;
        nft("add chain inet locus in { type filter hook input priority 0; }");
        nft(&format!("add rule inet locus in tcp dport {port} drop"));
        if both {
            nft(&format!("add rule inet locus in tcp sport {port} drop"));
        }
        firewall
    }
}

impl Drop for Firewall {
    fn drop(&mut self) {
        nft("delete table inet locus");
    }
}

fn nft(command: &str) {
    let done = Command::new("nft").arg(command).status().expect("nft of Debian's package nftables");
    assert!(done.success(), "nft {command}: {done}");
}
