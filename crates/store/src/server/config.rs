//! What a server can be told, with defaults that work.

use crate::{Design, Index, StoreError};
use locus_fabric::PagePolicy;
use locus_index::{
    VALUE_BYTES_MAX,
    hopscotch::{INLINE_SLOT_BYTES, INLINE_SLOT_BYTES_MAX, NEIGHBOURHOOD, NEIGHBOURHOOD_MAX, Shape},
};
use std::fmt;

/// The smallest cache: a few buckets.
const CACHE_BYTES_MIN: usize = 1 << 10;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Which design it serves.
    pub design: &'static Design,
    /// How many cores serve: each owns a share of the partitions.
    pub cores: usize,
    /// How many bytes of regions may be reserved in all.
    pub memory_bytes: usize,
    /// How many bytes the first region of a core for records has; later ones double, up to a sixteenth of
    /// `memory_bytes`, or 256 MiB if that is more, and 1 GiB at the most.
    pub region_bytes: usize,
    /// The longest value in bytes.
    pub value_bytes_max: usize,
    /// How many slots a neighbourhood of a hopscotch table has.
    pub neighbourhood: u32,
    /// How many bytes of its memory the index and the log of a cache, or its buckets, take in each core; none for the parts that
    /// they have by design. With few of them it forgets soon, as simulated worlds have it.
    pub cache_bytes: Option<usize>,
    /// How long the slots of a hopscotch table are that hold keys and values, in bytes: a power of two.
    pub slot_bytes: usize,
    /// How many clients may be connected at once.
    pub clients_max: usize,
    /// How many requests of one client may be unanswered per core.
    pub window: usize,
    /// What pages the regions should lie on.
    pub pages: PagePolicy,
    /// What a client must show; none where any client of this user may come.
    pub token: Option<Vec<u8>>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            design: Design::find("pilaf").expect("a row of the table"),
            cores: 1,
            memory_bytes: 4 << 30,
            region_bytes: 64 << 20,
            value_bytes_max: 1 << 20,
            neighbourhood: NEIGHBOURHOOD,
            cache_bytes: None,
            slot_bytes: INLINE_SLOT_BYTES,
            clients_max: 1024,
            window: 64,
            pages: PagePolicy::PreferHuge,
            token: None,
        }
    }
}

impl ServerConfig {
    /// Says what makes no sense, if anything.
    pub fn check(&self) -> Result<(), StoreError> {
        let within = |what: &str, value: usize, low: usize, high: usize| {
            let fits = (low..=high).contains(&value);
            fits.then_some(())
                .ok_or_else(|| StoreError::Config(format!("{what} must be {low} to {high}, not {value}")))
        };
        let pair = self.design.pair();
        pair.sense().map_err(|reason| StoreError::Config(format!("{pair} makes no sense: {reason}")))?;
        within("the number of server cores", self.cores, 1, 64)?;
        within("the longest value in bytes", self.value_bytes_max, 0, VALUE_BYTES_MAX)?;
        within("the number of clients", self.clients_max, 1, 1 << 16)?;
        within("the window", self.window, 1, 256)?;
        within("the first region in bytes", self.region_bytes, 1 << 20, 1 << 30)?;
        within("the neighbourhood", self.neighbourhood as usize, 2, NEIGHBOURHOOD_MAX as usize)?;
        if self.design.index == Index::HopscotchInline && self.shape().is_none() {
            return Err(StoreError::Config(format!(
                "a slot has a power of two of bytes from 64 to {INLINE_SLOT_BYTES_MAX}, not {}",
                self.slot_bytes
            )));
        }
        if let Some(bytes) = self.cache_bytes {
            within(
                "what a cache takes of a core's memory in bytes",
                bytes,
                CACHE_BYTES_MIN,
                self.memory_bytes,
            )?;
        }
        let least = self.cores * (self.region_bytes + (4 << 20));
        if self.memory_bytes < least {
            return Err(StoreError::Config(format!(
                "a memory limit of {} bytes does not hold the first regions of {} cores, {least} bytes",
                self.memory_bytes, self.cores
            )));
        }
        Ok(())
    }
}

impl ServerConfig {
    /// What slots are like, in designs with a hopscotch table.
    pub(crate) fn shape(&self) -> Option<Shape> {
        match self.design.index {
            Index::Hopscotch => Shape::out_of_table(self.neighbourhood),
            Index::HopscotchInline => Shape::inline_slots(self.neighbourhood, self.slot_bytes),
            Index::Cuckoo | Index::Lossy | Index::Blocked => None,
        }
    }
}

impl fmt::Display for ServerConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "design {}, {}, {} core(s), memory limit {} MiB, values to {} bytes, {} clients, window {}, {}",
            self.design.name,
            self.design.pair(),
            self.cores,
            self.memory_bytes >> 20,
            self.value_bytes_max,
            self.clients_max,
            self.window,
            if self.token.is_some() { "token required" } else { "no token" }
        )
    }
}
