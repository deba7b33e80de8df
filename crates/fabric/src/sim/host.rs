//! Hosts: what processes share, cores and a NIC.

use super::{
    performance::{Machine, NicState, NicUsage},
    state::{State, with},
};
use std::sync::Arc;

/// A host of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimHost(pub(crate) usize);

impl SimHost {
    /// Adds a host. On one with a number of cores, threads take turns on them; with none, each thread has one to itself.
    pub fn add(name: &str, cores: usize) -> Self {
        with(|state| state.add_host(name, cores))
    }

    /// Adds a host that is a machine of which the costs are modelled: its cores, NIC and link.
    ///
    /// # Panics
    /// When the machine makes no sense: see [`Machine::check`].
    pub fn add_machine(name: &str, machine: &Arc<Machine>) -> Self {
        if let Err(what) = machine.check() {
            panic!("a host of no sense: {what}");
        }
        with(|state| {
            let host = state.add_host(name, machine.processor.cores);
            state.hosts[host.0].nic = Some(Box::new(NicState::new(machine.clone())));
            host
        })
    }

    /// The machine that it is, if its costs are modelled.
    pub fn machine(self) -> Option<Arc<Machine>> {
        with(|state| state.hosts[self.0].nic.as_ref().map(|nic| nic.machine.clone()))
    }

    /// How busy its NIC was so far, if its costs are modelled.
    pub fn nic_usage(self) -> Option<NicUsage> {
        with(|state| state.hosts[self.0].nic.as_ref().map(|nic| nic.usage()))
    }

    /// The host of the calling thread.
    pub fn of_caller() -> Self {
        with(|state| Self(state.processes[state.threads.process()].host))
    }

    /// How long all threads of the host have worked so far, in nanoseconds.
    pub fn busy_ns(self) -> u64 {
        with(|state| state.hosts[self.0].busy_ns)
    }

    /// How long each core has worked so far, in nanoseconds.
    pub fn cores_busy_ns(self) -> Vec<u64> {
        with(|state| state.hosts[self.0].cores.iter().map(|core| core.busy_ns).collect())
    }
}

/// A host as the world knows it.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    cores: Vec<Core>,
    /// The core that the next thread is put on.
    next_core: usize,
    busy_ns: u64,
    /// Its NIC, where its costs are modelled.
    pub(crate) nic: Option<Box<NicState>>,
}

/// A core, on which one thread works at a time.
#[derive(Clone, Debug, Default)]
struct Core {
    free_at_ns: u64,
    busy_ns: u64,
}

impl State {
    pub(crate) fn add_host(&mut self, name: &str, cores: usize) -> SimHost {
        let cores = vec![Core::default(); cores];
        self.hosts.push(Host { name: name.to_owned(), cores, next_core: 0, busy_ns: 0, nic: None });
        SimHost(self.hosts.len() - 1)
    }

    /// Puts a thread of a process on a core.
    pub(crate) fn place_thread(&mut self, process: usize) -> Option<usize> {
        let host = &mut self.hosts[self.processes[process].host];
        let core = host.next_core;
        host.next_core += 1;
        (!host.cores.is_empty()).then(|| core % host.cores.len())
    }

    /// Uses a core for a while, as soon as it is free: gives the moment at which that ends.
    pub(crate) fn use_core(&mut self, process: usize, core: Option<usize>, ns: u64) -> u64 {
        let now_ns = self.now_ns;
        let host = &mut self.hosts[self.processes[process].host];
        host.busy_ns += ns;
        let Some(core) = core.and_then(|core| host.cores.get_mut(core)) else { return now_ns + ns };
        core.free_at_ns = core.free_at_ns.max(now_ns) + ns;
        core.busy_ns += ns;
        core.free_at_ns
    }
}
