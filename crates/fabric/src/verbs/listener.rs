//! Accepting links at a host and a port.

use super::{VerbsConfig, VerbsLink, VerbsNic, bootstrap::Listening};
use crate::{Address, FabricError, Listener};
use std::time::Duration;

/// Accepts links from other processes.
pub struct VerbsListener {
    nic: VerbsNic,
    listening: Listening,
}

/// The host and the port of an address.
pub(crate) fn rdma(address: &Address) -> Result<(&str, u16), FabricError> {
    match address {
        Address::Rdma { host, port, .. } => Ok((host, *port)),
        Address::Shm(_) | Address::Sim(_) => Err(FabricError::BadAddress {
            address: address.to_string(),
            reason: "an RDMA NIC is reached at rdma://host:port".into(),
        }),
    }
}

impl VerbsListener {
    pub(crate) fn listen(nic: &VerbsNic, address: &Address) -> Result<Self, FabricError> {
        let (host, port) = rdma(address)?;
        Ok(Self { nic: nic.clone(), listening: Listening::bind(host, port)? })
    }
}

impl Listener for VerbsListener {
    type Link = VerbsLink;

    fn accept(&self, timeout: Duration) -> Result<Option<VerbsLink>, FabricError> {
        let connection = self.listening.accept(timeout)?;
        Ok(connection.map(|connection| VerbsLink::new(&self.nic, connection)))
    }

    fn address(&self) -> Address {
        let address = self.listening.address();
        Address::Rdma { host: address.ip().to_string(), port: address.port(), nic: VerbsConfig::default() }
    }
}
