//! Faults that need an RDMA device of one's own: peers that are killed or stopped, a port that goes down, a device that
//! is taken away, a firewall, a machine that stands still. The variable `LOCUS_RDMA` gives the device's IPv4 address; without it there are no tests. `scripts/test`
//! runs them in virtual machines:
//!
//! `LOCUS_RDMA=10.99.0.1 vm/softroce --env LOCUS_RDMA target/debug/deps/rdma-...`
//!
//! How soon a fault shows is part of what is promised: [`SOON`].

#[path = "../shared/device.rs"]
mod device;
mod faults;
#[path = "../shared/firewall.rs"]
mod filter;
mod firewall;
mod gids;
mod ill;
mod limits;
mod machines;
mod peer;
mod removal;
#[path = "../shared/wait.rs"]
mod wait;

use libtest_mimic::{Arguments, Trial};
use std::{process::ExitCode, time::Duration};

/// A lost peer shows within this time, whatever the transport.
const SOON: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("--role") {
        peer::play(&arguments.collect::<Vec<_>>());
        return ExitCode::SUCCESS;
    }
    let Ok(device) = std::env::var("LOCUS_RDMA") else {
        println!("no tests: LOCUS_RDMA names no RDMA device; scripts/test runs these in virtual machines");
        return ExitCode::SUCCESS;
    };
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let limited = rustix::process::getrlimit(rustix::process::Resource::Memlock).current.is_some();
    let tests = match (number("SOFTROCE_MACHINES").unwrap_or(1), number("SOFTROCE_MACHINE").unwrap_or(0)) {
        (1, _) if limited => limits::tests(),
        (1, _) => faults::tests(&device),
        (_, machine) => machines::tests(machine),
    };
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// A test of this name.
fn test(name: impl Into<String>, run: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        run();
        Ok(())
    })
}
