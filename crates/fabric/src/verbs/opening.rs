//! A NIC as it was opened: what lasts until its device is taken away.

use super::{
    VerbsConfig,
    device::{self, Chosen},
    events::Events,
    facts::PairFacts,
    ffi,
    handle::{CompletionChannel, Completions, Domain, Pair},
};
use crate::{Atomicity, FabricError, Properties, ReadOrder};
use rustix::event::EventfdFlags;
use std::sync::Arc;

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

/// The device, the port and the GID in use, and who listens to the device.
pub(crate) struct Opening {
    chosen: Chosen,
    events: Events,
}

impl Opening {
    /// Opens what a user asked for; gives its properties, too.
    pub(crate) fn new(config: &VerbsConfig) -> Result<(Self, Properties), FabricError> {
        let chosen = device::choose(config)?;
        let properties = properties(&chosen)?;
        let events = Events::listen(&chosen.device)?;
        Ok((Self { chosen, events }, properties))
    }

    /// Opens again what was asked for, now that this device is gone. It must do what was promised of it.
    pub(crate) fn anew(&self, config: &VerbsConfig, promised: &Properties) -> Result<Self, FabricError> {
        let (opening, properties) = Self::new(config).map_err(|error| self.missing(error.to_string()))?;
        if properties == *promised {
            return Ok(opening);
        }
        Err(FabricError::NoDevice {
            what: format!("the RDMA device {} was taken away", self.chosen.name),
            reason: format!("{}, which is there now, has other limits", opening.chosen.name),
            advice: "start this process again".into(),
        })
    }

    pub(crate) fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// Whether the device was taken away.
    pub(crate) fn is_gone(&self) -> bool {
        self.chosen.device.is_gone()
    }

    /// Says that the device was taken away.
    pub(crate) fn taken_away(&self) -> FabricError {
        self.missing("what was made from it has ended".into())
    }

    fn missing(&self, reason: String) -> FabricError {
        FabricError::NoDevice {
            what: format!("the RDMA device {} was taken away", self.chosen.name),
            reason,
            advice: "once it is back it is used again".into(),
        }
    }

    /// Why a call failed, if it is for that.
    pub(crate) fn explain(&self, error: FabricError) -> FabricError {
        if self.is_gone() || self.chosen.device.is_taken_away() {
            self.missing(error.to_string())
        } else {
            error
        }
    }

    /// What is in use, for people.
    pub(crate) fn describe(&self) -> String {
        let Chosen { name, port, gid, .. } = &self.chosen;
        format!("{name} port {} GID {} ({}), MTU {}", port.number, gid.index, gid.address, port.mtu_bytes)
    }

    /// The code of the port's MTU.
    pub(crate) fn mtu_code(&self) -> u32 {
        (self.chosen.port.mtu_bytes / 128).ilog2()
    }

    pub(crate) fn gid(&self) -> ffi::Gid {
        device::gid_of(self.chosen.gid.address)
    }

    /// How many READs and atomics of one queue pair are answered at a time.
    pub(crate) fn reads_answered_max(&self) -> u8 {
        self.chosen.attributes.max_qp_rd_atom.clamp(0, READS_OUTSTANDING_MAX as i32) as u8
    }

    /// The way to a peer's port.
    pub(crate) fn route(&self, theirs: &PairFacts) -> ffi::AhAttr {
        ffi::AhAttr {
            grh: ffi::GlobalRoute {
                dgid: theirs.gid,
                sgid_index: self.chosen.gid.index as u8,
                hop_limit: 64,
                ..Default::default()
            },
            dlid: theirs.lid,
            is_global: 1,
            port_num: self.chosen.port.number,
            ..Default::default()
        }
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
        messages_at_once: false,
    })
}

/// The largest inline payload that a queue pair is granted.
fn inline_bytes_max(chosen: &Chosen) -> Result<usize, FabricError> {
    let domain = Domain::new(&chosen.device)?;
    let waker = rustix::event::eventfd(0, EventfdFlags::CLOEXEC);
    let waker =
        waker.map_err(|errno| FabricError::System { what: "making an eventfd", source: errno.into() })?;
    let channel = CompletionChannel::new(&chosen.device, &Arc::new(waker))?;
    let queue = Completions::new(&Arc::new(channel), 2)?;
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
