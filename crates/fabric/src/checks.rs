//! What every provider checks of a request or a configuration before it takes it: which verb goes over which transport
//! (Mitchell Table 2.1), and the limits.

use crate::{
    FabricError, LocalSlice, Nic, Opcode, Payload, PostError, Properties, QueuePairConfig, Region,
    RemoteSlice, Transport, Verb,
};

/// The longest messages of a NIC, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) message: usize,
    pub(crate) datagram: usize,
    pub(crate) transfer: usize,
}

/// What a verb is, if it is legal on a transport.
#[inline]
pub(crate) fn legal<N: Nic>(verb: &Verb<'_, N>, transport: Transport) -> Result<Opcode, PostError> {
    match verb {
        Verb::Read { .. } if transport != Transport::Rc => Err(PostError::Illegal("READ")),
        Verb::CompareSwap { .. } | Verb::FetchAdd { .. } if transport != Transport::Rc => {
            Err(PostError::Illegal("an atomic"))
        }
        Verb::Write { .. } if transport == Transport::Ud => Err(PostError::Illegal("WRITE")),
        Verb::Send { to: None, .. } if transport == Transport::Ud => {
            Err(PostError::Illegal("SEND without an address"))
        }
        Verb::Send { to: Some(_), .. } if transport != Transport::Ud => {
            Err(PostError::Illegal("SEND with an address"))
        }
        Verb::Read { .. } => Ok(Opcode::Read),
        Verb::Write { .. } => Ok(Opcode::Write),
        Verb::Send { .. } => Ok(Opcode::Send),
        Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => Ok(Opcode::Atomic),
    }
}

/// Whether the local operands of a verb are within their regions and the limits.
#[inline]
pub(crate) fn operands<N: Nic>(
    verb: &Verb<'_, N>,
    inline_bytes: usize,
    limits: &Limits,
) -> Result<(), PostError> {
    match verb {
        Verb::Read { into, .. } => transfer(into, limits.transfer),
        Verb::Write { payload, .. } => carried(payload, inline_bytes, limits.transfer),
        Verb::Send { payload, to: Some(_), .. } => carried(payload, inline_bytes, limits.datagram),
        Verb::Send { payload, to: None, .. } => carried(payload, inline_bytes, limits.message),
        Verb::CompareSwap { into, at, .. } | Verb::FetchAdd { into, at, .. } => atomic(into, at),
    }
}

/// The length of a payload that is gathered.
#[inline]
pub(crate) fn gathered_bytes(pieces: &[&[u8]]) -> usize {
    pieces.iter().map(|piece| piece.len()).sum()
}

#[inline]
fn carried<N: Nic>(payload: &Payload<'_, N>, inline_bytes: usize, limit: usize) -> Result<(), PostError> {
    match payload {
        Payload::Inline(pieces) => {
            let bytes = gathered_bytes(pieces);
            if bytes > inline_bytes {
                return Err(PostError::InlineTooLong(bytes, inline_bytes));
            }
            if bytes > limit { Err(PostError::TooLong(bytes, limit)) } else { Ok(()) }
        }
        Payload::Slice(slice) => transfer(slice, limit),
    }
}

#[inline]
fn transfer<N: Nic>(local: &LocalSlice<'_, N>, limit: usize) -> Result<(), PostError> {
    range(local)?;
    if local.bytes > limit { Err(PostError::TooLong(local.bytes, limit)) } else { Ok(()) }
}

fn atomic<N: Nic>(into: &LocalSlice<'_, N>, at: &RemoteSlice<'_, N>) -> Result<(), PostError> {
    range(into)?;
    if into.bytes != 8 || !at.offset.is_multiple_of(8) { Err(PostError::Misaligned) } else { Ok(()) }
}

/// Whether a local range is within its region.
#[inline]
pub(crate) fn range<N: Nic>(slice: &LocalSlice<'_, N>) -> Result<(), PostError> {
    let bytes = slice.region.bytes();
    if slice.bytes <= bytes && slice.offset <= bytes - slice.bytes {
        Ok(())
    } else {
        Err(PostError::LocalRange)
    }
}

/// Refuses what is over a limit.
pub(crate) fn limit(what: &'static str, asked: usize, limit: usize) -> Result<(), FabricError> {
    if asked <= limit { Ok(()) } else { Err(FabricError::Limit { what, asked, limit }) }
}

/// Whether a queue pair is within the limits of a NIC.
pub(crate) fn configuration(config: &QueuePairConfig, properties: &Properties) -> Result<(), FabricError> {
    let message_bytes_max = match config.transport {
        Transport::Ud => properties.datagram_bytes_max,
        Transport::Rc | Transport::Uc => properties.message_bytes_max,
    };
    limit("the depth of a send queue", config.send_depth, properties.queue_depth_max)?;
    limit("the depth of a receive queue", config.receive_depth, properties.queue_depth_max)?;
    limit("the inline payload in bytes", config.inline_bytes, properties.inline_bytes_max)?;
    limit("the number of outstanding READs", config.reads_outstanding, properties.reads_outstanding_max)?;
    limit("the length of a message in bytes", config.message_bytes, message_bytes_max)
}

/// Whether a completion queue is within the limits of a NIC.
pub(crate) fn completions(depth: usize, properties: &Properties) -> Result<(), FabricError> {
    if depth == 0 {
        return Err(FabricError::State("a completion queue has room for one completion at least"));
    }
    limit("the depth of a completion queue", depth, properties.completions_max)
}
