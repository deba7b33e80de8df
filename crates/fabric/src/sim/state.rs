//! The whole state of a simulated world. It belongs to the thread of the machine that runs it; handles are numbers.

use super::{
    chance::Chance,
    completion_queue::{Channel, Queue},
    events::{Event, Events},
    host::Host,
    link::{LinkState, ListenerState},
    model::SimulationConfig,
    region::RegionState,
    sampling::UnderWay,
    threads::Threads,
    transport::Pair,
};
use crate::{Status, Transport};
use locus_runtime::world::ThreadNumber;
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
};

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
    /// Whether stores into registered memory matter to anybody: READs are under way, or threads may be preempted.
    pub(crate) static STORES_MATTER: Cell<bool> = const { Cell::new(false) };
}

/// A process of the world: what ends together.
#[derive(Debug)]
pub(crate) struct Process {
    /// It was killed, and peers still reach its memory.
    pub(crate) lingers: bool,
    pub(crate) host: usize,
    /// Its links, whose queue pairs end with it.
    pub(crate) cut_links: Vec<u64>,
    pub(crate) name: String,
}

impl Process {
    pub(crate) fn new(name: &str, host: usize) -> Self {
        Self { host, lingers: false, cut_links: Vec::new(), name: name.to_owned() }
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimulationCounters {
    /// Events that happened.
    pub events: u64,
    /// Turns that threads had.
    pub turns: u64,
    /// READs that were carried out.
    pub reads: u64,
    /// Pieces of READs that were sampled just before a store changed them.
    pub sampled_before_stores: u64,
    /// Stores after which their thread was held up.
    pub preemptions: u64,
    /// Messages over UC and UD that were lost.
    pub lost: u64,
    /// Messages that their receiver was late for, by chance.
    pub unready: u64,
    /// Messages over UD that overtook others.
    pub overtook: u64,
    /// WRITEs that were acknowledged before they were visible.
    pub acknowledged_early: u64,
    /// Queue pairs that chance broke.
    pub broken: u64,
    /// Requests that left, by transport and verb.
    sent: [[u64; 5]; 3],
}

/// The verbs as they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentVerb {
    /// READ.
    Read,
    /// WRITE without an immediate.
    Write,
    /// WRITE with an immediate.
    WriteImmediate,
    /// SEND.
    Send,
    /// An atomic.
    Atomic,
}

impl SimulationCounters {
    /// How many requests of a verb have left over a transport.
    pub fn sent(&self, transport: Transport, verb: SentVerb) -> u64 {
        self.sent[transport as usize][verb as usize]
    }

    /// The same of all verbs over all transports.
    pub fn sent_in_all(&self) -> u64 {
        self.sent.as_flattened().iter().sum()
    }

    pub(super) fn note_sent(&mut self, transport: Transport, verb: SentVerb) {
        self.sent[transport as usize][verb as usize] += 1;
    }
}

pub(crate) struct State {
    pub(crate) config: SimulationConfig,
    pub(crate) now_ns: u64,
    pub(crate) chance: Chance,
    pub(crate) events: Events,
    pub(crate) counters: SimulationCounters,
    pub(crate) threads: Threads,
    pub(crate) processes: Vec<Process>,
    pub(crate) hosts: Vec<Host>,
    /// By number; looked up, never walked in order.
    pub(crate) regions: HashMap<u64, RegionState>,
    pub(crate) next_region: u64,
    /// What peers may do with regions: by the secret in the facts.
    pub(crate) grants: BTreeMap<u64, u64>,
    pub(crate) pairs: Vec<Option<Pair>>,
    pub(crate) queues: Vec<Option<Queue>>,
    pub(crate) channels: Vec<Channel>,
    pub(crate) links: Vec<LinkState>,
    pub(crate) listeners: BTreeMap<String, ListenerState>,
    pub(crate) reads: BTreeMap<u64, UnderWay>,
    pub(crate) next_read: u64,
}

impl State {
    pub(crate) fn new(config: SimulationConfig) -> Self {
        Self {
            now_ns: 0,
            chance: Chance::new(config.seed),
            events: Events::default(),
            counters: SimulationCounters::default(),
            threads: Threads::default(),
            processes: Vec::new(),
            hosts: Vec::new(),
            regions: HashMap::new(),
            next_region: 1,
            grants: BTreeMap::new(),
            // Numbers begin at 1, as on real devices.
            pairs: vec![None],
            queues: Vec::new(),
            channels: Vec::new(),
            links: Vec::new(),
            listeners: BTreeMap::new(),
            reads: BTreeMap::new(),
            next_read: 0,
            config,
        }
    }

    /// Makes something happen after a while.
    pub(crate) fn after(&mut self, ns: u64, event: Event) {
        self.at(self.now_ns.saturating_add(ns), event);
    }

    /// Makes something happen at a moment.
    pub(crate) fn at(&mut self, at_ns: u64, event: Event) {
        // Only an adversary plays with the order of what happens at the same time.
        let order = if self.config.adversary.delay_ns > 0 { self.chance.number() >> 40 } else { 0 };
        self.events.add(at_ns, order, event);
    }

    /// How much longer than usual something takes.
    pub(crate) fn delay_ns(&mut self) -> u64 {
        let most = self.config.adversary.delay_ns;
        // Mostly short ones: a few long ones reorder more than many middling ones.
        if most == 0 { 0 } else { self.chance.up_to(most) >> self.chance.up_to(6) }
    }

    /// Whether the world must be asked before something is stored into registered memory.
    pub(crate) fn note_whether_stores_matter(&self) {
        let adversary = &self.config.adversary;
        STORES_MATTER.set(adversary.samples > 0.0 && !self.reads.is_empty() || adversary.preempts > 0.0);
    }

    /// Ends what was left of a process that was killed.
    fn bury(&mut self, process: usize) {
        self.processes[process].lingers = false;
        for link in std::mem::take(&mut self.processes[process].cut_links) {
            for pair in self.pairs_of_link(link) {
                self.break_pair(pair, Status::PeerLost);
            }
        }
        for number in 1..self.pairs.len() as u32 {
            if self.pair(number).is_some_and(|pair| pair.process == process) {
                self.drop_pair(number);
            }
        }
        let mut regions: Vec<u64> = self
            .regions
            .iter()
            .filter(|(_, region)| region.process == process)
            .map(|(number, _)| *number)
            .collect();
        regions.sort_unstable();
        regions.into_iter().for_each(|region| self.drop_region(region));
    }

    /// Lets what is due happen, until it is a thread's turn. None when nothing is left.
    pub(crate) fn until_a_turn(&mut self) -> Result<Option<ThreadNumber>, Exhausted> {
        while let Some((at_ns, event)) = self.events.next() {
            debug_assert!(at_ns >= self.now_ns, "time goes on");
            self.now_ns = at_ns;
            self.counters.events += 1;
            if self.counters.events > self.config.events_max {
                return Err(Exhausted::Events(self.config.events_max));
            }
            if at_ns > self.config.virtual_ns_max {
                return Err(Exhausted::Time(self.config.virtual_ns_max));
            }
            match event {
                Event::Resume { thread, turn } => {
                    if self.threads.begin_turn(thread, turn) {
                        self.counters.turns += 1;
                        return Ok(Some(thread));
                    }
                }
                Event::Arrive { to, message } => self.arrive(to, message),
                Event::Launch { to, message } => self.launch(to, message),
                Event::ComesIn { to, message, is_in } => self.comes_in(to, message, is_in),
                Event::AnswerComesIn { to, answer, is_in } => self.answer_comes_in(to, answer, is_in),
                Event::ReadEnds { number } => self.end_read(number),
                Event::WriteGoesOn { at } => self.write_goes_on(at),
                Event::Ready { at } => self.becomes_ready(at),
                Event::Departed { from, sequence } => self.departed(from, sequence),
                Event::Acknowledged { to, answer } => self.acknowledged(to, answer),
                Event::Buried { process } => self.bury(process),
                Event::LinkMessage { link, side } => self.link_message(link, side),
            }
        }
        Ok(None)
    }
}

/// The world has seen as much as it may.
#[derive(Debug)]
pub(crate) enum Exhausted {
    Events(u64),
    Time(u64),
}

/// Puts a world on this thread of the machine.
pub(crate) fn install(state: State) {
    state.note_whether_stores_matter();
    STATE.with_borrow_mut(|place| *place = Some(state));
}

/// Takes the world off.
pub(crate) fn take() -> Option<State> {
    STORES_MATTER.set(false);
    STATE.with_borrow_mut(Option::take)
}

/// Works on the state of the world. Never suspends, and never drops what works on it in turn.
pub(crate) fn with<R>(action: impl FnOnce(&mut State) -> R) -> R {
    try_with(action).expect("the simulated fabric is used within Simulation::run")
}

/// The same, where the world may be gone already.
pub(crate) fn try_with<R>(action: impl FnOnce(&mut State) -> R) -> Option<R> {
    STATE.with_borrow_mut(|state| state.as_mut().map(action))
}
