//! What a server can be told, with defaults that work.

use crate::{Design, StoreError};
use locus_fabric::PagePolicy;
use locus_index::VALUE_BYTES_MAX;
use locus_rpc::Pair;
use std::fmt;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Which design it serves.
    pub design: &'static Design,
    /// How requests and replies travel, where it is not what the design says.
    pub pair: Option<Pair>,
    /// How many cores serve: each owns a share of the partitions.
    pub cores: usize,
    /// How many bytes of regions may be reserved in all.
    pub memory_bytes: usize,
    /// How many bytes the first region of a core for records has; later ones double, up to 1 GiB.
    pub region_bytes: usize,
    /// The longest value in bytes.
    pub value_bytes_max: usize,
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
            pair: None,
            cores: 1,
            memory_bytes: 4 << 30,
            region_bytes: 64 << 20,
            value_bytes_max: 1 << 20,
            clients_max: 1024,
            window: 64,
            pages: PagePolicy::PreferHuge,
            token: None,
        }
    }
}

impl ServerConfig {
    /// How requests and replies travel.
    pub fn pair(&self) -> Pair {
        self.pair.unwrap_or(self.design.pair())
    }

    /// Says what makes no sense, if anything.
    pub fn check(&self) -> Result<(), StoreError> {
        let within = |what: &str, value: usize, low: usize, high: usize| {
            let fits = (low..=high).contains(&value);
            fits.then_some(())
                .ok_or_else(|| StoreError::Config(format!("{what} must be {low} to {high}, not {value}")))
        };
        let senseless = |reason| StoreError::Config(format!("{} makes no sense: {reason}", self.pair()));
        self.pair().sense().map_err(senseless)?;
        within("the number of server cores", self.cores, 1, 64)?;
        within("the longest value in bytes", self.value_bytes_max, 0, VALUE_BYTES_MAX)?;
        within("the number of clients", self.clients_max, 1, 1 << 16)?;
        within("the window", self.window, 1, 256)?;
        within("the first region in bytes", self.region_bytes, 1 << 20, 1 << 30)?;
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

impl fmt::Display for ServerConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "design {}, {}, {} core(s), memory limit {} MiB, values to {} bytes, {} clients, window {}, {}",
            self.design.name,
            self.pair(),
            self.cores,
            self.memory_bytes >> 20,
            self.value_bytes_max,
            self.clients_max,
            self.window,
            if self.token.is_some() { "token required" } else { "no token" }
        )
    }
}
