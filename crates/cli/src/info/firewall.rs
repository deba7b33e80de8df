//! This machine's firewall, as far as it can be looked at: its rules are shown to root alone.

use super::Finding;
use std::{
    process::{Command, Stdio},
    sync::mpsc,
    time::Duration,
};

const NAME: &str = "this firewall";
/// How long the tools may take to list the rules.
const PATIENCE: Duration = Duration::from_secs(1);
/// The tools, the first that is there is asked.
const TOOLS: [(&str, &[&str]); 2] = [("nft", &["list", "ruleset"]), ("iptables-save", &[])];

/// Looks for rules of this machine that stop a TCP port.
pub(super) fn look(port: u16) -> Finding {
    if !rustix::process::geteuid().is_root() {
        let state = "not looked at: its rules are shown to root alone (nft list ruleset, or iptables-save)";
        return Finding::good(NAME, state);
    }
    let Some((tool, rules)) = TOOLS.iter().find_map(|(tool, arguments)| Some((tool, list(tool, arguments)?)))
    else {
        return Finding::good(NAME, "not looked at: neither nft nor iptables-save could list rules");
    };
    let stopping = stopping(&rules, port);
    if stopping.is_empty() {
        return Finding::good(NAME, format!("no rule in sight that stops port {port} ({tool})"));
    }
    let what = format!("it may stop port {port}: {}", stopping.join("; "));
    Finding::bad(NAME, format!("see {tool}"), what, "let the port pass, if clients come to this machine")
}

/// What a tool prints, if it succeeds in time.
fn list(tool: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(tool);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
    let (answer, answered) = mpsc::channel();
    std::thread::Builder::new().spawn(move || answer.send(command.output())).ok()?;
    let output = answered.recv_timeout(PATIENCE).ok()?.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The rules that name a port and stop it, and the chains that stop whatever no rule lets pass, unless one names the port.
/// A hint only: it understands neither sets nor jumps.
fn stopping(rules: &str, port: u16) -> Vec<String> {
    let port = port.to_string();
    let words = |line: &str| -> Vec<String> {
        let word = |character: char| !(character.is_alphanumeric() || character == '-' || character == '_');
        line.split(word).filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect()
    };
    let has =
        |words: &[String], wanted: &[&str]| wanted.iter().any(|word| words.iter().any(|other| other == word));
    let lines: Vec<_> = rules.lines().map(|line| (line.trim(), words(line))).collect();
    let passes = lines.iter().any(|(_, words)| has(words, &[&port]) && has(words, &["accept"]));
    let stops = |(line, words): &&(&str, Vec<String>)| {
        let of_port = has(words, &[&port]) && has(words, &["drop", "reject"]);
        let of_all = match line.strip_prefix(':') {
            Some(_) => has(words, &["input"]) && has(words, &["drop"]),
            None => has(words, &["policy"]) && has(words, &["input"]) && has(words, &["drop"]),
        };
        of_port || of_all && !passes
    };
    lines.iter().filter(stops).map(|(line, _)| (*line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NFT: &str = "table inet filter {
	chain input {
		type filter hook input priority filter; policy drop;
		tcp dport { 22, 80 } accept
	}
	chain output {
		type filter hook output priority filter; policy accept;
		tcp dport 7471 reject with tcp reset
	}
}";
    const IPTABLES: &str = "*filter
:INPUT DROP [0:0]
:OUTPUT ACCEPT [0:0]
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A INPUT -p tcp -m tcp --dport 74 -j DROP
COMMIT";

    #[test]
    fn rules_that_stop_a_port_are_found() {
        let found = |rules: &str, port| stopping(rules, port);
        assert_eq!(found(NFT, 80), [] as [&str; 0]);
        assert_eq!(found(NFT, 81), ["type filter hook input priority filter; policy drop;"]);
        assert_eq!(found(NFT, 7471).len(), 2);
        assert_eq!(found(IPTABLES, 22), [] as [&str; 0]);
        assert_eq!(found(IPTABLES, 7471), [":INPUT DROP [0:0]"]);
        assert_eq!(found(IPTABLES, 74), [":INPUT DROP [0:0]", "-A INPUT -p tcp -m tcp --dport 74 -j DROP"]);
        assert_eq!(found("", 7471), [] as [&str; 0]);
    }
}
