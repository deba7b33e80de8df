//! What a peer must know of a queue pair: exchanged over the bootstrap connection, since UC has no connection manager.

use super::ffi::Gid;
use crate::{Facts, Transport};

/// The facts of a queue pair, and of the port that it is behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PairFacts {
    pub(crate) transport: Transport,
    pub(crate) number: u32,
    pub(crate) first_psn: u32,
    pub(crate) qkey: u32,
    /// The code of the path's MTU.
    pub(crate) mtu: u32,
    /// The port's address on InfiniBand.
    pub(crate) lid: u16,
    pub(crate) gid: Gid,
    /// How many READs and atomics of one queue pair its NIC answers at a time.
    pub(crate) reads_answered: u8,
}

const KIND: u8 = b'Q';
const BYTES: usize = 37;

fn code(transport: Transport) -> u8 {
    match transport {
        Transport::Rc => 0,
        Transport::Uc => 1,
        Transport::Ud => 2,
    }
}

impl PairFacts {
    pub(crate) fn encode(&self) -> Facts {
        let mut bytes = vec![KIND, code(self.transport)];
        for word in [self.number, self.first_psn, self.qkey, self.mtu] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.lid.to_le_bytes());
        bytes.extend(self.gid.0);
        bytes.push(self.reads_answered);
        debug_assert_eq!(bytes.len(), BYTES);
        Facts { bytes, handles: Vec::new() }
    }

    /// Understands a peer's facts, which must be of this transport.
    pub(crate) fn decode(facts: &Facts, transport: Transport) -> Result<Self, &'static str> {
        let bytes: &[u8; BYTES] = facts
            .bytes
            .as_slice()
            .try_into()
            .map_err(|_| "the facts of a queue pair are too long or short")?;
        if bytes[0] != KIND {
            return Err("these are not the facts of a queue pair");
        }
        if bytes[1] != code(transport) {
            return Err("its queue pair is of another transport");
        }
        let mut words = bytes[2..18].as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let mut word = || words.next().unwrap_or(0);
        let (number, first_psn, qkey, mtu) = (word(), word(), word(), word());
        if number == 0 || number > 0xFF_FFFF || first_psn > 0xFF_FFFF {
            return Err("its queue pair has no such number");
        }
        if !(1..=5).contains(&mtu) {
            return Err("its MTU is none that there is");
        }
        let lid = u16::from_le_bytes([bytes[18], bytes[19]]);
        let mut gid = Gid::default();
        gid.0.copy_from_slice(&bytes[20..36]);
        Ok(Self { transport, number, first_psn, qkey, mtu, lid, gid, reads_answered: bytes[36] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn facts_come_back_and_anything_else_is_refused_or_sane(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let facts = PairFacts {
                transport: Transport::Uc, number: 17, first_psn: 5, qkey: 6, mtu: 3, lid: 9, gid: Gid([7; 16]), reads_answered: 16,
            };
            prop_assert_eq!(PairFacts::decode(&facts.encode(), Transport::Uc), Ok(facts.clone()));
            prop_assert!(PairFacts::decode(&facts.encode(), Transport::Rc).is_err());
            let mut sane = facts.encode();
            for (place, byte) in sane.bytes.iter_mut().skip(2).zip(&bytes) {
                *place = *byte;
            }
            if let Ok(facts) = PairFacts::decode(&sane, Transport::Uc) {
                prop_assert!((1..=5).contains(&facts.mtu) && facts.number < 1 << 24 && facts.number > 0);
            }
            let _ = PairFacts::decode(&Facts { bytes, handles: Vec::new() }, Transport::Uc);
        }
    }
}
