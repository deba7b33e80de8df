//! A simulated world, from its seed to its end: hosts and processes, and the loop that lets things happen.

use super::{
    events::Event,
    host::SimHost,
    model::SimulationConfig,
    state::{self, Exhausted, Process, SimulationCounters, State, with},
    threads::{self, Simulated, Turn},
};
use locus_runtime::{channel, world};
use std::{cell::RefCell, rc::Rc};

/// What became of a world.
#[derive(Clone, Debug)]
pub struct Outcome<T> {
    /// What its first process gave.
    pub value: T,
    /// The virtual time at which that ended, in nanoseconds.
    pub virtual_ns: u64,
    /// What was counted.
    pub counters: SimulationCounters,
}

/// Why a world ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// A simulated thread panicked.
    #[error("the simulated thread {thread} panicked at {at_ns} ns: {message}")]
    Panicked {
        /// Its name.
        thread: String,
        /// When.
        at_ns: u64,
        /// Its last words.
        message: String,
    },
    /// Nothing is left to happen, and the first process has not ended.
    #[error("every simulated thread waits, and nothing is left to happen at {at_ns} ns")]
    Stuck {
        /// Since when.
        at_ns: u64,
    },
    /// The limit of events was reached.
    #[error("the world has seen {limit} events, which is the limit, at {at_ns} ns")]
    Exhausted {
        /// The limit.
        limit: u64,
        /// When.
        at_ns: u64,
    },
    /// The limit of virtual time was reached.
    #[error(
        "the world has not ended after {limit} ns, which is the limit: most likely somebody waits for ever"
    )]
    TooLong {
        /// The limit.
        limit: u64,
    },
}

/// Runs a world until its first process, which runs `first`, ends; whatever else runs then is ended. The same
/// configuration gives the same world, event by event.
///
/// # Panics
/// When the calling thread is in a simulated world already.
pub fn simulate<T: 'static>(
    config: SimulationConfig,
    first: impl FnOnce() -> T + 'static,
) -> Result<Outcome<T>, SimulationError> {
    let inside = world::enter(Rc::new(Simulated));
    state::install(State::new(config));
    let value = Rc::new(RefCell::new(None));
    let place = value.clone();
    let root = with(|state| {
        let host = state.add_host("first", 0);
        state.processes.push(Process::new("the first", host.0));
        state.start_thread("first", 0, Box::new(move || *place.borrow_mut() = Some(first())))
    });
    let result = run_until_ended(root);
    end_threads(None);
    let state = state::take().expect("installed above");
    drop(inside);
    let (virtual_ns, counters) = (state.now_ns, state.counters);
    result?;
    let value = value.take().expect("the first process has ended");
    Ok(Outcome { value, virtual_ns, counters })
}

fn run_until_ended(root: world::ThreadNumber) -> Result<(), SimulationError> {
    loop {
        let (turn, at_ns) = with(|state| (state.until_a_turn(), state.now_ns));
        let thread = match turn {
            Ok(Some(thread)) => thread,
            Ok(None) => return Err(SimulationError::Stuck { at_ns }),
            Err(Exhausted::Events(limit)) => return Err(SimulationError::Exhausted { limit, at_ns }),
            Err(Exhausted::Time(limit)) => return Err(SimulationError::TooLong { limit }),
        };
        match threads::take_turn(thread) {
            Turn::Panicked(message) => {
                let thread = with(|state| state.threads.name(thread).to_owned());
                return Err(SimulationError::Panicked { thread, at_ns, message });
            }
            Turn::Returned if thread == root => return Ok(()),
            Turn::Returned | Turn::Suspended => {}
        }
    }
}

/// Ends threads where they are: those of a process, or all.
fn end_threads(process: Option<usize>) {
    for thread in with(|state| state.threads.of_process(process)) {
        threads::end_thread(thread);
    }
}

/// A simulated process: threads that end together, with all that they hold of the fabric.
#[derive(Debug)]
pub struct SimProcess {
    number: usize,
    ended: channel::Receiver<()>,
}

impl SimProcess {
    /// Starts a process on a host of its own, each of whose threads has a core to itself.
    pub fn spawn(name: &str, main: impl FnOnce() + 'static) -> Self {
        Self::spawn_on(SimHost::add(name, 0), name, main)
    }

    /// Starts a process on a host.
    pub fn spawn_on(host: SimHost, name: &str, main: impl FnOnce() + 'static) -> Self {
        let (end, ended) = channel::channel::<()>();
        let number = with(|state| {
            let number = state.processes.len();
            state.processes.push(Process::new(name, host.0));
            let main = move || {
                // Its being dropped is what tells of the end.
                let _end = end;
                main();
            };
            state.start_thread(name, number, Box::new(main));
            number
        });
        Self { number, ended }
    }

    /// Starts a process on a host that makes something and keeps it until it is killed; returns when it is made.
    pub fn spawn_keeper<T>(host: SimHost, name: &str, make: impl FnOnce() -> T + 'static) -> Self {
        let (made, is_made) = channel::channel();
        let process = Self::spawn_on(host, name, move || {
            let _kept = make();
            // Whoever started the process may be gone.
            let _ = made.send(());
            while !threads::is_ending() {
                threads::park(None);
            }
        });
        // An error says that it was killed before, or panicked, which ends the world.
        let _ = is_made.receive();
        process
    }

    /// Kills the process, as `kill -9` does: nothing of it runs any more, and its peers notice.
    ///
    /// # Panics
    /// When the process is the caller's own.
    pub fn kill(&self) {
        assert!(with(|state| state.threads.process()) != self.number, "a process does not kill itself");
        // What its threads hold is dropped while they are unwound, and must change nothing that others see in between.
        let listeners = with(|state| {
            let outlives_ns = state.config.adversary.outlives_ns;
            let links = state.links_of(self.number);
            for link in &links {
                state.cut_link(*link);
            }
            let process = &mut state.processes[self.number];
            (process.lingers, process.cut_links) = (true, links);
            state.after(outlives_ns, Event::Buried { process: self.number });
            state.take_listeners(self.number)
        });
        end_threads(Some(self.number));
        drop(listeners);
    }

    /// Keeps a thread of the process, the n-th that it started under this name, from running until the returned value is
    /// dropped: it has no turn, wherever it is, while the rest of its process goes on.
    ///
    /// # Panics
    /// When there is no such thread, or it is held already.
    pub fn stall(&self, thread: &str, nth: usize) -> Stalled {
        let held = with(|state| state.hold(self.number, thread, nth));
        Stalled(held.unwrap_or_else(|| panic!("no thread {thread} {nth} to be held")))
    }

    /// Waits until its first thread has ended.
    pub fn join(&self) {
        // Nothing is ever sent: what ends the wait is that the sender goes.
        let _ = self.ended.receive();
    }
}

/// A thread that is kept from running: see [`SimProcess::stall`].
#[derive(Debug)]
pub struct Stalled(world::ThreadNumber);

impl Drop for Stalled {
    fn drop(&mut self) {
        state::try_with(|state| state.let_go(self.0));
    }
}
