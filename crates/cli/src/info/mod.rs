//! `locus info`: what this machine offers, what is wrong with it, and what to do about it.

mod cpu;
mod firewall;
mod memory;
mod providers;
mod rdma;
mod server;
mod system;

use crate::{Outcome, output};
use clap::Args;
use locus_fabric::Address;
use std::fmt::Write;

/// What to look at beside this machine.
#[derive(Args, Debug)]
pub struct InfoArgs {
    /// Also say whether this address is served, and if not, what keeps clients from it
    #[arg(value_name = "ADDR")]
    address: Option<Address>,
}

/// One thing that was looked at.
#[derive(Debug)]
struct Finding {
    name: &'static str,
    /// What was found.
    state: String,
    /// What is wrong with it, and the cure.
    trouble: Option<Trouble>,
}

#[derive(Debug)]
struct Trouble {
    what: String,
    cure: String,
}

impl Finding {
    /// Something as it should be, or that is only worth knowing.
    fn good(name: &'static str, state: impl Into<String>) -> Self {
        Self { name, state: state.into(), trouble: None }
    }

    /// Something that costs speed or fails.
    fn bad(
        name: &'static str,
        state: impl Into<String>,
        what: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        let trouble = Trouble { what: what.into(), cure: cure.into() };
        Self { trouble: Some(trouble), ..Self::good(name, state) }
    }
}

/// Looks at everything and prints it.
pub fn run(arguments: &InfoArgs) -> anyhow::Result<Outcome> {
    let asked = arguments.address.as_ref().map(|address| ("address", server::look(address)));
    let machine = [
        ("providers", providers::look()),
        ("rdma", rdma::look()),
        ("memory", memory::look()),
        ("processor", cpu::look()),
        ("system", system::look()),
    ];
    let sections: Vec<_> = asked.into_iter().chain(machine).collect();
    output::print(&describe(&sections))?;
    Ok(Outcome::Done)
}

fn describe(sections: &[(&str, Vec<Finding>)]) -> String {
    let mut text = format!("locus {}\n", env!("CARGO_PKG_VERSION"));
    let all = || sections.iter().flat_map(|(_, findings)| findings);
    let width = all().map(|finding| finding.name.len()).max().unwrap_or(0);
    for (section, findings) in sections {
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n{section}");
        for Finding { name, state, trouble } in findings {
            let mark = if trouble.is_some() { '!' } else { ' ' };
            let _ = writeln!(text, "{mark} {name:width$}  {state}");
            if let Some(Trouble { what, cure }) = trouble {
                let _ = writeln!(text, "  {:width$}  wrong: {what}\n  {:width$}  cure:  {cure}", "", "");
            }
        }
    }
    let troubles = all().filter(|finding| finding.trouble.is_some()).count();
    let _ = match troubles {
        0 => writeln!(text, "\nnothing is wrong"),
        1 => writeln!(text, "\n1 thing is wrong: see !"),
        _ => writeln!(text, "\n{troubles} things are wrong: see !"),
    };
    text
}

/// Reads a small file of the kernel's; none if there is no such file.
fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubles_are_marked_and_counted() {
        let sections = [
            ("one", vec![Finding::good("name", "fine")]),
            ("two", vec![Finding::bad("longer", "slow", "it crawls", "push it")]),
        ];
        let text = describe(&sections);
        assert!(text.contains("\n  name    fine\n"), "{text}");
        assert!(
            text.contains("\n! longer  slow\n          wrong: it crawls\n          cure:  push it\n"),
            "{text}"
        );
        assert!(text.ends_with("\n1 thing is wrong: see !\n"), "{text}");
    }
}
