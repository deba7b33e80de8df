//! The provider `verbs`: RDMA NICs (InfiniBand, RoCE) and SoftRoCE, through `libibverbs`, which is loaded when first used.
//!
//! | file | what |
//! |---|---|
//! | `ffi`, `library`, `handle` | the C library: its structures, its functions, and owners of what it makes |
//! | `device` | which device, port and GID |
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
mod queue_pair;
mod region;
mod requests;

pub use bootstrap::{Probe, probe};
pub use completion_queue::VerbsCompletionQueue;
pub use device::{DeviceInfo, GidChoice, GidInfo, GidKind, PortInfo, VerbsConfig, devices};
pub use link::VerbsLink;
pub use listener::VerbsListener;
pub use queue_pair::{VerbsAddress, VerbsQueuePair};
pub use region::{VerbsRegion, VerbsRemoteRegion};

use crate::{
    Access, Address, Atomicity, FabricError, Nic, PagePolicy, Properties, QueuePairConfig, ReadOrder,
    checks::{self, Limits},
};
use device::Chosen;
use events::Events;
use facts::PairFacts;
use handle::{CompletionChannel, Completions, Domain, Pair};
use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

/// The vendor that SoftRoCE names. It copies with whatever the kernel copies memory with, byte by byte at worst.
const SOFTWARE_VENDOR: u32 = 0xFF_FFFF;
/// The deepest queues that are offered, whatever the device has.
const QUEUE_DEPTH_MAX: usize = 8 << 10;
/// What NICs have; a device that would take more keeps state for each in every queue pair.
const READS_OUTSTANDING_MAX: usize = 16;
/// The largest message and the largest transfer that are offered: what larger ones take would hold others up.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
const TRANSFER_BYTES_MAX: usize = 16 << 20;
/// Inline payloads that are tried, in bytes: devices do not say what they take.
const INLINE_BYTES: [usize; 6] = [1024, 512, 256, 128, 64, 32];

/// An opened RDMA NIC.
#[derive(Clone)]
pub struct VerbsNic {
    inner: Arc<Inner>,
}

struct Inner {
    chosen: Chosen,
    properties: Properties,
    events: Events,
}

impl VerbsNic {
    /// Opens the NIC that was asked for, by default the first usable one. An error says what is missing.
    pub fn open(config: &VerbsConfig) -> Result<Self, FabricError> {
        let chosen = device::choose(config)?;
        let properties = properties(&chosen)?;
        let events = Events::listen(&chosen.device)?;
        Ok(Self { inner: Arc::new(Inner { chosen, properties, events }) })
    }

    /// The device, the port and the GID in use, for people.
    pub fn describe(&self) -> String {
        let Chosen { name, port, gid, .. } = self.chosen();
        format!("{name} port {} GID {} ({}), MTU {}", port.number, gid.index, gid.address, port.mtu_bytes)
    }

    pub(crate) fn chosen(&self) -> &Chosen {
        &self.inner.chosen
    }

    fn events(&self) -> &Events {
        &self.inner.events
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

    /// The code of the port's MTU.
    fn mtu_code(&self) -> u32 {
        (self.chosen().port.mtu_bytes / 128).ilog2()
    }

    fn gid(&self) -> ffi::Gid {
        device::gid_of(self.chosen().gid.address)
    }

    /// How many READs and atomics of one queue pair are answered at a time.
    fn reads_answered_max(&self) -> u8 {
        self.chosen().attributes.max_qp_rd_atom.clamp(0, READS_OUTSTANDING_MAX as i32) as u8
    }

    /// The way to a peer's port.
    fn route(&self, theirs: &PairFacts) -> ffi::AhAttr {
        ffi::AhAttr {
            grh: ffi::GlobalRoute {
                dgid: theirs.gid,
                sgid_index: self.chosen().gid.index as u8,
                hop_limit: 64,
                ..Default::default()
            },
            dlid: theirs.lid,
            is_global: 1,
            port_num: self.chosen().port.number,
            ..Default::default()
        }
    }

    /// Something that a stranger cannot guess.
    fn random(&self) -> u32 {
        RandomState::new().hash_one(std::process::id()) as u32
    }
}

fn properties(chosen: &Chosen) -> Result<Properties, FabricError> {
    let attributes = &chosen.attributes;
    let positive = |value: i32| usize::try_from(value).unwrap_or(0);
    let completions_max = positive(attributes.max_cqe).min(8 * QUEUE_DEPTH_MAX);
    let message_bytes_max = chosen.message_bytes_max.min(MESSAGE_BYTES_MAX);
    let reads = attributes.max_qp_rd_atom.min(attributes.max_qp_init_rd_atom);
    Ok(Properties {
        provider: "verbs",
        // InfiniBand promises neither (Mitchell §2.1.2).
        read_order: ReadOrder::Unordered,
        read_atomicity_bytes: if attributes.vendor_id == SOFTWARE_VENDOR { 1 } else { 8 },
        write_in_order: false,
        writes_wake: false,
        atomics: match attributes.atomic_cap {
            ffi::ATOMIC_HCA => Atomicity::Nic,
            ffi::ATOMIC_GLOB => Atomicity::Global,
            _ => Atomicity::None,
        },
        inline_bytes_max: inline_bytes_max(chosen)?,
        message_bytes_max,
        datagram_bytes_max: chosen.port.mtu_bytes,
        transfer_bytes_max: chosen.message_bytes_max.min(TRANSFER_BYTES_MAX),
        queue_depth_max: positive(attributes.max_qp_wr).min(completions_max).min(QUEUE_DEPTH_MAX),
        completions_max,
        reads_outstanding_max: positive(reads).min(READS_OUTSTANDING_MAX),
        loses_messages: true,
        dear_doorbells: attributes.vendor_id == SOFTWARE_VENDOR,
        prefetches: false,
        reads_at_once: false,
        writes_at_once: false,
    })
}

/// The largest inline payload that a queue pair is granted.
fn inline_bytes_max(chosen: &Chosen) -> Result<usize, FabricError> {
    let domain = Domain::new(&chosen.device)?;
    let queue = Completions::new(&Arc::new(CompletionChannel::new(&chosen.device)?), 2)?;
    let granted = |&bytes: &usize| {
        let capacity = ffi::QpCap {
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: bytes as u32,
        };
        Pair::new(&domain, ffi::QPT_RC, capacity, (&queue, &queue)).is_ok()
    };
    Ok(INLINE_BYTES.into_iter().find(granted).unwrap_or(0))
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
        VerbsCompletionQueue::create(&self.chosen().device, depth)
    }

    fn create_completion_queue_beside(
        &self,
        other: &VerbsCompletionQueue,
        depth: usize,
    ) -> Result<VerbsCompletionQueue, FabricError> {
        checks::completions(depth, self.properties())?;
        other.beside(depth)
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
        VerbsLink::new(self, bootstrap::Connection::connect(host, port)?)
    }

    fn pair(&self) -> Result<(VerbsLink, VerbsLink), FabricError> {
        let (near, far) = bootstrap::Connection::pair()?;
        Ok((VerbsLink::new(self, near)?, VerbsLink::new(self, far)?))
    }
}
