//! Links and listeners: bootstrap connections between simulated processes.

use super::{
    SimNic, SimRegion, SimRemoteRegion,
    events::Event,
    state::{State, try_with, with},
    threads,
};
use crate::{Address, ControlMessage, FabricError, Facts, Link, Status};
use locus_runtime::world::{self, ThreadNumber};
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// A bootstrap connection to one simulated process.
#[derive(Clone, Debug)]
pub struct SimLink {
    pub(crate) number: u64,
    /// Which of its ends this is.
    pub(crate) side: usize,
    _end: Arc<LastEnd>,
}

/// Closes the link when the last clone of an end is gone.
#[derive(Debug)]
struct LastEnd(u64);

impl Drop for LastEnd {
    fn drop(&mut self) {
        try_with(|state| state.close_link(self.0));
    }
}

/// A link as the world knows it.
#[derive(Debug)]
pub(crate) struct LinkState {
    open: bool,
    ends: [End; 2],
}

#[derive(Debug, Default)]
struct End {
    process: usize,
    /// Sent, and not yet there.
    under_way: VecDeque<(Vec<u8>, Vec<Vec<u8>>)>,
    arrived: VecDeque<(Vec<u8>, Vec<Vec<u8>>)>,
    last_arrival_ns: u64,
    receiver: Option<ThreadNumber>,
}

/// A listener as the world knows it.
#[derive(Debug)]
pub(crate) struct ListenerState {
    process: usize,
    waiting: VecDeque<SimLink>,
    accepter: Option<ThreadNumber>,
}

/// Accepts links from other simulated processes.
#[derive(Debug)]
pub struct SimListener {
    name: String,
}

/// Two ends of a new link.
pub(crate) fn pair(state: &mut State, processes: [usize; 2]) -> [SimLink; 2] {
    let number = state.links.len() as u64;
    let ends = processes.map(|process| End { process, ..End::default() });
    state.links.push(LinkState { open: true, ends });
    [0, 1].map(|side| SimLink { number, side, _end: Arc::new(LastEnd(number)) })
}

fn name_of(address: &Address) -> Result<&str, FabricError> {
    match address {
        Address::Sim(name) => Ok(name),
        other => Err(FabricError::BadAddress {
            address: other.to_string(),
            reason: "the simulated fabric has addresses like sim:name".into(),
        }),
    }
}

impl SimListener {
    pub(crate) fn listen(address: &Address) -> Result<Self, FabricError> {
        let name = name_of(address)?.to_owned();
        with(|state| {
            if let Some(other) = state.listeners.get(&name) {
                let reason = format!("{} listens there", state.processes[other.process].name);
                return Err(FabricError::Taken { address: address.to_string(), reason });
            }
            let process = state.threads.process();
            state
                .listeners
                .insert(name.clone(), ListenerState { process, waiting: VecDeque::new(), accepter: None });
            Ok(Self { name })
        })
    }

    /// Links with whoever listens at an address.
    pub(crate) fn connect(address: &Address) -> Result<SimLink, FabricError> {
        let name = name_of(address)?;
        // There and back again.
        let round_trip_ns = with(|state| 2 * state.config.times.wire_ns);
        threads::work(round_trip_ns);
        with(|state| {
            let process = state.threads.process();
            let Some(server) = state.listeners.get(name).map(|listener| listener.process) else {
                let reason = "no simulated process listens there".into();
                return Err(FabricError::NotServed { address: address.to_string(), reason });
            };
            let [ours, theirs] = pair(state, [process, server]);
            let listener = state.listeners.get_mut(name).expect("found above");
            listener.waiting.push_back(theirs);
            if let Some(accepter) = listener.accepter.take() {
                state.unpark(accepter);
            }
            Ok(ours)
        })
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        // The links that nobody accepted end outside of the state, which they change.
        drop(try_with(|state| state.listeners.remove(&self.name)));
    }
}

impl crate::Listener for SimListener {
    type Link = SimLink;

    fn accept(&self, timeout: Duration) -> Result<Option<SimLink>, FabricError> {
        wait_until(timeout, |state, thread| {
            let Some(listener) = state.listeners.get_mut(&self.name) else {
                return Some(Err(FabricError::State("the listener's process is gone")));
            };
            let link = listener.waiting.pop_front();
            listener.accepter = link.is_none().then_some(thread);
            link.map(Ok)
        })
        .transpose()
    }

    fn address(&self) -> Address {
        Address::Sim(self.name.clone())
    }
}

/// Looks, and parks in between, until there is something or the time has passed.
fn wait_until<T>(
    timeout: Duration,
    mut look: impl FnMut(&mut State, ThreadNumber) -> Option<T>,
) -> Option<T> {
    let world = world::current()?;
    let until_ns = world.now_ns().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
    let thread = world.thread();
    loop {
        if let Some(found) = with(|state| look(state, thread)) {
            return Some(found);
        }
        if world.now_ns() >= until_ns || threads::is_ending() {
            return None;
        }
        world.park(Some(until_ns));
    }
}

impl SimLink {
    pub(crate) fn name(&self) -> String {
        with(|state| {
            let process = state.links[self.number as usize].ends[1 - self.side].process;
            let process = &state.processes[process];
            format!("simulated process {} on host {}", process.name, state.hosts[process.host].name)
        })
    }

    fn gone(&self) -> FabricError {
        FabricError::PeerLost { peer: self.name() }
    }

    pub(crate) fn is_open(&self, state: &State) -> bool {
        state.links[self.number as usize].open
    }
}

impl Link for SimLink {
    type Nic = SimNic;

    fn send(&self, message: &[u8], facts: Vec<Facts>) -> Result<(), FabricError> {
        let bytes = message.len() + facts.iter().map(|facts| facts.bytes.len()).sum::<usize>();
        crate::checks::limit("the length of a control message in bytes", bytes, Self::MESSAGE_BYTES_MAX)?;
        let sent = with(|state| {
            if !self.is_open(state) {
                return false;
            }
            let ns = state.config.times.wire_ns + state.transfer_ns(bytes) + state.delay_ns();
            let at_ns = state.now_ns + ns;
            let side = 1 - self.side;
            let end = &mut state.links[self.number as usize].ends[side];
            // A connection keeps its messages in order.
            let at_ns = at_ns.max(end.last_arrival_ns + 1);
            end.last_arrival_ns = at_ns;
            end.under_way.push_back((message.to_vec(), facts.into_iter().map(|facts| facts.bytes).collect()));
            state.at(at_ns, Event::LinkMessage { link: self.number, side });
            true
        });
        if sent { Ok(()) } else { Err(self.gone()) }
    }

    fn receive(&self, timeout: Duration) -> Result<Option<ControlMessage>, FabricError> {
        let received = wait_until(timeout, |state, thread| {
            let link = &mut state.links[self.number as usize];
            let open = link.open;
            let end = &mut link.ends[self.side];
            if let Some((message, facts)) = end.arrived.pop_front() {
                let facts = facts.into_iter().map(|bytes| Facts { bytes, handles: Vec::new() }).collect();
                return Some(Some((message, facts)));
            }
            if !open {
                return Some(None);
            }
            end.receiver = Some(thread);
            None
        });
        match received {
            Some(Some(message)) => Ok(Some(message)),
            Some(None) => Err(self.gone()),
            None => Ok(None),
        }
    }

    fn grant(&self, region: &SimRegion) -> Result<Facts, FabricError> {
        region.grant()
    }

    fn import(&self, facts: Facts) -> Result<SimRemoteRegion, FabricError> {
        SimRemoteRegion::import(&facts, self).map_err(|what| SimNic::protocol(self, what))
    }

    fn alive(&self) -> bool {
        try_with(|state| self.is_open(state)).unwrap_or(false)
    }

    fn check(&self) -> bool {
        self.alive()
    }

    fn close(&self) {
        try_with(|state| state.close_link(self.number));
    }

    fn peer(&self) -> String {
        self.name()
    }
}

impl State {
    pub(crate) fn link_message(&mut self, link: u64, side: usize) {
        let link = &mut self.links[link as usize];
        let end = &mut link.ends[side];
        // What was sent before the link was closed arrives all the same.
        if let Some(message) = end.under_way.pop_front() {
            end.arrived.push_back(message);
        }
        if let Some(receiver) = end.receiver.take() {
            self.unpark(receiver);
        }
    }

    /// Closes a link: both ends see it at once, and the connected queue pairs made over it flush.
    pub(crate) fn close_link(&mut self, number: u64) {
        if self.cut_link(number) {
            for number in self.pairs_of_link(number) {
                self.break_pair(number, Status::PeerLost);
            }
        }
    }

    /// Ends a link, but not yet the queue pairs made over it. False if it had ended before.
    pub(crate) fn cut_link(&mut self, number: u64) -> bool {
        let link = &mut self.links[number as usize];
        if !std::mem::replace(&mut link.open, false) {
            return false;
        }
        let receivers = [0, 1].map(|side| link.ends[side].receiver.take());
        // What is on its way is read before the end is seen.
        for end in &mut link.ends {
            let mut under_way = std::mem::take(&mut end.under_way);
            end.arrived.append(&mut under_way);
        }
        for receiver in receivers.into_iter().flatten() {
            self.unpark(receiver);
        }
        true
    }

    /// The links of a process.
    pub(crate) fn links_of(&self, process: usize) -> Vec<u64> {
        let links = self.links.iter().enumerate();
        links
            .filter(|(_, link)| link.open && link.ends.iter().any(|end| end.process == process))
            .map(|(number, _)| number as u64)
            .collect()
    }

    /// Removes the listeners of a process, for the caller to drop.
    pub(crate) fn take_listeners(&mut self, process: usize) -> Vec<ListenerState> {
        let names: Vec<String> =
            self.listeners.iter().filter(|(_, l)| l.process == process).map(|(n, _)| n.clone()).collect();
        names.iter().filter_map(|name| self.listeners.remove(name)).collect()
    }
}
