//! The provider `sim`: hosts, NICs and threads of a world in virtual time, in one thread and from one seed.
//!
//! | file | what |
//! |---|---|
//! | `simulation`, `model`, `chance`, `events`, `state` | a world: what it is made of, and the loop that lets things happen |
//! | `host`, `steps` | what processes share: cores, and how long a processor takes for what |
//! | `threads`, `scope` | simulated threads, which are coroutines, so that the code that runs elsewhere runs here as it is |
//! | `performance` | what verbs cost NICs, links and cores, where that is modelled |
//! | `link`, `facts` | bootstrap connections |
//! | `region`, `sampling` | memory, and READs that race with its writers |
//! | `queue_pair`, `completion_queue`, `transport`, `responder` | the verbs: at the requester and on the way, and where they arrive |
//!
//! Only one simulated thread runs at a time, and only until it waits, polls, or chance holds it up after a store
//! ([`Adversary::preempts`]). Between two such moments no virtual time passes. So a run is a sequence of events that
//! depends on the configuration alone.

mod chance;
mod completion_queue;
mod events;
mod facts;
mod host;
mod link;
mod model;
pub mod performance;
mod queue_pair;
mod region;
mod responder;
mod sampling;
mod scope;
mod simulation;
mod state;
mod steps;
#[cfg(test)]
mod tests;
mod threads;
mod transport;

pub use chance::Chance;
pub use completion_queue::SimCompletionQueue;
pub use host::SimHost;
pub use link::{SimLink, SimListener};
pub use model::{Adversary, NicModel, SimulationConfig, Times};
pub use queue_pair::{SimAddress, SimQueuePair};
pub use region::{SimRegion, SimRemoteRegion};
pub use scope::{Scope, ScopedThread, scope};
pub use simulation::{Outcome, SimProcess, SimulationError, Stalled, simulate};
pub use state::{SentVerb, SimulationCounters};
pub use steps::Steps;

use crate::{Access, Address, FabricError, Nic, PagePolicy, Properties, QueuePairConfig, Work, checks};
use state::with;
use std::sync::Arc;

/// The NIC of a simulated host.
#[derive(Clone, Debug)]
pub struct SimNic {
    properties: Arc<Properties>,
}

impl SimNic {
    /// Opens the NIC of the calling simulated thread's host.
    ///
    /// # Panics
    /// Outside of [`simulate`].
    pub fn open() -> Self {
        let machine = SimHost::of_caller().machine();
        let mut properties = with(|state| state.config.nic.properties(&state.config.adversary));
        if let Some(machine) = machine {
            properties.inline_bytes_max = machine.nic.inline_bytes_max;
            properties.reads_outstanding_max = machine.nic.reads_outstanding;
        }
        Self { properties: Arc::new(properties) }
    }
}

impl Nic for SimNic {
    type Region = SimRegion;
    type RemoteRegion = SimRemoteRegion;
    type Link = SimLink;
    type Listener = SimListener;
    type CompletionQueue = SimCompletionQueue;
    type QueuePair = SimQueuePair;
    type AddressHandle = SimAddress;

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn register(&self, bytes: usize, access: Access, _: PagePolicy) -> Result<SimRegion, FabricError> {
        SimRegion::register(bytes, access)
    }

    fn create_completion_queue(&self, depth: usize) -> Result<SimCompletionQueue, FabricError> {
        checks::completions(depth, &self.properties)?;
        Ok(SimCompletionQueue::create(depth, None))
    }

    fn create_completion_queue_beside(
        &self,
        other: &SimCompletionQueue,
        depth: usize,
    ) -> Result<SimCompletionQueue, FabricError> {
        checks::completions(depth, &self.properties)?;
        Ok(SimCompletionQueue::create(depth, Some(other)))
    }

    fn create_queue_pair(
        &self,
        link: &SimLink,
        config: &QueuePairConfig,
        send: &SimCompletionQueue,
        receive: &SimCompletionQueue,
    ) -> Result<SimQueuePair, FabricError> {
        checks::configuration(config, &self.properties)?;
        SimQueuePair::create(self, link, config, send, receive)
    }

    fn listen(&self, address: &Address) -> Result<SimListener, FabricError> {
        SimListener::listen(address)
    }

    fn connect(&self, address: &Address) -> Result<SimLink, FabricError> {
        SimListener::connect(address)
    }

    fn pair(&self) -> Result<(SimLink, SimLink), FabricError> {
        let [near, far] = with(|state| {
            let process = state.threads.process();
            link::pair(state, [process; 2])
        });
        Ok((near, far))
    }

    fn charge(work: Work) {
        if !threads::is_ending() {
            steps::charge(work);
        }
    }
}
