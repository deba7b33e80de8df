//! What client and server say to each other over a link, besides requests: the handshake, the manifest, channels,
//! regions, statistics. Encoded with postcard behind a version, so that peers of other versions get a clear answer.

use crate::StoreError;
use serde::{Deserialize, Serialize};

/// The version of these messages, of the manifest, and of everything in registered memory that it describes.
pub const VERSION: u16 = 3;
/// Comes first in every message: tells a stranger from a peer.
const MAGIC: [u8; 4] = *b"LOCS";

/// What a client asks.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// The first message. Answered by [`Answer::Welcome`] or [`Answer::Refused`].
    Hello {
        /// What the server's token file holds; empty without one.
        token: Vec<u8>,
        /// Names the client across reconnects: at most once is counted by it.
        session: u128,
        /// The design that the client insists on, if any.
        design: Option<String>,
    },
    /// Opens the request channel to a core; with the facts of the client's end. Answered by [`Answer::Channel`].
    OpenChannel {
        /// Which core.
        core: u16,
        /// How many requests may be under way.
        window: u16,
    },
    /// Opens a queue pair for READs; with its facts. Answered by [`Answer::Reads`].
    OpenReads,
    /// Asks for the regions that the client does not know. Answered by [`Answer::Regions`].
    Regions {
        /// The numbers of those it knows.
        known: Vec<u16>,
    },
    /// Asks for an area to place large values in; with the facts of a queue pair if they are to go ahead of their requests
    /// ([`locus_rpc::Ahead`]). Answered by [`Answer::Staging`].
    OpenStaging,
    /// Asks for statistics. Answered by [`Answer::Statistics`].
    Statistics,
    /// Makes the link one for bare echoes (`locus_fabric::echo`) and nothing else; with the facts of the client's end.
    /// Answered by [`Answer::Echo`].
    OpenEcho {
        /// By WRITEs, not by SENDs.
        writes: bool,
    },
}

/// What a server answers.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// The client may come in.
    Welcome(Manifest),
    /// The client may not, or a request was out of order; the link closes.
    Refused(String),
    /// A channel is open; with the facts of the server's side.
    Channel {
        /// An encoded [`locus_rpc::Greeting`].
        greeting: Vec<u8>,
    },
    /// READs may be posted; with the facts of the server's side.
    Reads,
    /// Regions, each with its facts, in this order.
    Regions(Vec<u16>),
    /// The staging area, with its facts, and those of the server's queue pair if the client gave some.
    Staging {
        /// The room for one value, in bytes.
        place_bytes: u32,
    },
    /// Statistics.
    Statistics(Statistics),
    /// Echoes are answered from now on; with the facts of the server's end.
    Echo,
}

/// What a client must know of a server to read its memory and to send it requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Which life of the server this is: random, and part of every directory entry's checksum and of every request.
    pub incarnation: u64,
    /// The design it serves.
    pub design: String,
    /// How requests travel, as [`locus_rpc::Way`] is named.
    pub request: String,
    /// How replies travel.
    pub reply: String,
    /// The seed of the key hash.
    pub seed: u64,
    /// The epoch of the partition map.
    pub map_epoch: u32,
    /// The longest value in bytes.
    pub value_bytes_max: u32,
    /// The length of a slot in bytes and how many a neighbourhood has, where keys are found by a hopscotch table.
    pub slots: Option<(u16, u8)>,
    /// How many requests of one client may be unanswered per core.
    pub window: u16,
    /// For each core, the region in which its directory is.
    pub directories: Vec<u16>,
}

/// What a server counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// The design it serves.
    pub design: String,
    /// Clients connected.
    pub clients: u64,
    /// Clients dropped since the start because of what they sent.
    pub clients_dropped: u64,
    /// Keys present.
    pub records: u64,
    /// Rows of all tables.
    pub rows: u64,
    /// Bytes of the regions, all reserved.
    pub region_bytes: u64,
    /// Bytes of records, as asked for, rounded up to 16.
    pub extent_bytes: u64,
    /// Bytes that the allocator set aside for them.
    pub extent_bytes_reserved: u64,
    /// Bytes of tables.
    pub table_bytes: u64,
    /// The limit of memory in bytes.
    pub memory_limit_bytes: u64,
    /// What pages the regions lie on, in words.
    pub pages: String,
    /// CPU time of the server's process in nanoseconds, user and system.
    pub cpu_ns: u64,
    /// The server's process.
    pub process: u32,
    /// Named counters, summed over the cores.
    pub counters: Vec<(String, u64)>,
}

/// Encodes a message.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    postcard::to_extend(message, bytes).expect("messages of plain data can be encoded")
}

/// Decodes a message of a peer.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8], peer: &str) -> Result<T, StoreError> {
    let broken = |what: &str| StoreError::Protocol { peer: peer.into(), what: what.into() };
    let body = bytes.strip_prefix(&MAGIC).ok_or_else(|| broken("it does not speak Locus"))?;
    let (version, body) = body.split_first_chunk::<2>().ok_or_else(|| broken("a message was cut short"))?;
    let version = u16::from_le_bytes(*version);
    if version != VERSION {
        return Err(StoreError::Version { peer: peer.into(), theirs: version, ours: VERSION });
    }
    let (message, rest) =
        postcard::take_from_bytes(body).map_err(|_| broken("a message could not be decoded"))?;
    if rest.is_empty() { Ok(message) } else { Err(broken("a message was followed by garbage")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_survives_and_its_prefixes_do_not() {
        let ask = Ask::Hello { token: b"secret".to_vec(), session: 9 << 70, design: Some("pilaf".into()) };
        let bytes = encode(&ask);
        assert_eq!(decode::<Ask>(&bytes, "peer").unwrap(), ask);
        for cut in 0..bytes.len() {
            assert!(decode::<Ask>(&bytes[..cut], "peer").is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = encode(&Ask::OpenReads);
        bytes[4] = 9;
        assert!(matches!(
            decode::<Ask>(&bytes, "peer"),
            Err(StoreError::Version { theirs: 9, ours: VERSION, .. })
        ));
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_and_never_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), magic: bool) {
            if magic {
                bytes.splice(0..0, encode(&Ask::OpenReads)[..6].iter().copied());
            }
            let _ = decode::<Ask>(&bytes, "peer");
            let _ = decode::<Answer>(&bytes, "peer");
        }
    }
}
