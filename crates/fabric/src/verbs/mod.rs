//! The provider `verbs`: RDMA NICs (InfiniBand, RoCE) and SoftRoCE, through `libibverbs`, which is loaded when first used.
//!
//! | file | what |
//! |---|---|
//! | `ffi`, `library`, `handle` | the C library: its structures, its functions, and owners of what it makes |
//! | `device`, `opening`, `removal` | which device, port and GID; what lasts until the device is taken away, and how that is dealt with |
//! | `bootstrap`, `link`, `listener` | the TCP connection that sets everything else up and notices dead peers |
//! | `region`, `facts` | regions, and what a peer must know to use them and queue pairs |
//! | `queue_pair`, `requests`, `completion_queue`, `events` | the verbs, and what a device tells of itself |
//!
//! `ibv_post_send` and `ibv_poll_cq` are used, which every driver has, and not the newer `ibv_wr_*` calls and the extended
//! completion queue, which several lack.

mod bootstrap;
mod completion_queue;
mod device;
mod events;
mod facts;
mod ffi;
mod handle;
mod library;
mod link;
mod listener;
mod opening;
mod queue_pair;
mod region;
mod removal;
mod requests;

pub use bootstrap::{Probe, probe};
pub use completion_queue::VerbsCompletionQueue;
pub use device::{DeviceInfo, GidChoice, GidInfo, GidKind, PortInfo, VerbsConfig, devices};
pub use link::VerbsLink;
pub use listener::VerbsListener;
pub use queue_pair::{VerbsAddress, VerbsQueuePair};
pub use region::{VerbsRegion, VerbsRemoteRegion};

use crate::{
    Access, Address, FabricError, Nic, PagePolicy, Properties, QueuePairConfig,
    checks::{self, Limits},
};
use opening::Opening;
use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, PoisonError},
};

/// An opened RDMA NIC.
#[derive(Clone)]
pub struct VerbsNic {
    inner: Arc<Inner>,
}

struct Inner {
    config: VerbsConfig,
    properties: Properties,
    /// Another one after the device was taken away and came back.
    opening: Mutex<Arc<Opening>>,
}

impl VerbsNic {
    /// Opens the NIC that was asked for, by default the first usable one. An error says what is missing.
    pub fn open(config: &VerbsConfig) -> Result<Self, FabricError> {
        let (opening, properties) = Opening::new(config)?;
        let opening = Mutex::new(Arc::new(opening));
        Ok(Self { inner: Arc::new(Inner { config: config.clone(), properties, opening }) })
    }

    /// The device, the port and the GID in use, for people.
    pub fn describe(&self) -> String {
        match self.opening() {
            Ok(opening) => opening.describe(),
            Err(error) => error.to_string(),
        }
    }

    /// The device as it is open now. One that was taken away is opened anew, if it is back.
    pub(crate) fn opening(&self) -> Result<Arc<Opening>, FabricError> {
        let mut opening = self.inner.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if opening.is_gone() {
            *opening = Arc::new(opening.anew(&self.inner.config, &self.inner.properties)?);
        }
        Ok(opening.clone())
    }

    /// The longest messages.
    fn limits(&self) -> Limits {
        let properties = &self.inner.properties;
        Limits {
            message: properties.message_bytes_max,
            datagram: properties.datagram_bytes_max,
            transfer: properties.transfer_bytes_max,
        }
    }

    /// Something that a stranger cannot guess.
    fn random(&self) -> u32 {
        RandomState::new().hash_one(std::process::id()) as u32
    }
}

impl Nic for VerbsNic {
    type Region = VerbsRegion;
    type RemoteRegion = VerbsRemoteRegion;
    type Link = VerbsLink;
    type Listener = VerbsListener;
    type CompletionQueue = VerbsCompletionQueue;
    type QueuePair = VerbsQueuePair;
    type AddressHandle = VerbsAddress;

    fn properties(&self) -> &Properties {
        &self.inner.properties
    }

    fn register(&self, bytes: usize, access: Access, pages: PagePolicy) -> Result<VerbsRegion, FabricError> {
        VerbsRegion::register(bytes, access, pages)
    }

    fn create_completion_queue(&self, depth: usize) -> Result<VerbsCompletionQueue, FabricError> {
        checks::completions(depth, self.properties())?;
        let opening = self.opening()?;
        let queue = VerbsCompletionQueue::create(&opening.chosen().device, depth);
        queue.map_err(|error| opening.explain(error))
    }

    fn create_completion_queue_beside(
        &self,
        other: &VerbsCompletionQueue,
        depth: usize,
    ) -> Result<VerbsCompletionQueue, FabricError> {
        checks::completions(depth, self.properties())?;
        let opening = self.opening()?;
        other.queue.follow(&opening)?;
        other.beside(depth).map_err(|error| opening.explain(error))
    }

    fn create_queue_pair(
        &self,
        link: &VerbsLink,
        config: &QueuePairConfig,
        send: &VerbsCompletionQueue,
        receive: &VerbsCompletionQueue,
    ) -> Result<VerbsQueuePair, FabricError> {
        checks::configuration(config, self.properties())?;
        VerbsQueuePair::create(self, link, config, &send.queue, &receive.queue)
    }

    fn listen(&self, address: &Address) -> Result<VerbsListener, FabricError> {
        VerbsListener::listen(self, address)
    }

    fn connect(&self, address: &Address) -> Result<VerbsLink, FabricError> {
        let (host, port) = listener::rdma(address)?;
        // Without a device there is nothing to connect for.
        self.opening()?;
        let link = VerbsLink::new(self, bootstrap::Connection::connect(host, port)?);
        link.inner.port()?;
        Ok(link)
    }

    fn pair(&self) -> Result<(VerbsLink, VerbsLink), FabricError> {
        let (near, far) = bootstrap::Connection::pair()?;
        Ok((VerbsLink::new(self, near), VerbsLink::new(self, far)))
    }

    fn trouble(&self) -> Option<String> {
        self.opening().err().map(|error| error.to_string())
    }
}
