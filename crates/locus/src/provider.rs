//! Which fabric provider serves an address: the one place that a further provider adds an arm to.

use crate::Result;
use locus_fabric::{Address, shm::ShmNic};
use locus_store::Client;

/// The provider that everything above the store is made of. With a second one this becomes an enum of clients, chosen
/// by the address's scheme: once per connection, not per operation.
pub(crate) type Provider = ShmNic;
/// A server over it.
pub(crate) type ProviderServer = locus_store::Server<Provider>;
/// A client over it.
pub(crate) type ProviderClient = Client<Provider>;

/// Opens the provider of an embedded store.
pub(crate) fn local() -> Result<Provider> {
    Ok(ShmNic::open()?)
}

/// Opens the provider that these addresses name.
pub(crate) fn of(addresses: &[Address]) -> Result<Provider> {
    for address in addresses {
        match address {
            Address::Shm(_) => {}
            Address::Rdma { .. } => {
                return Err(locus_fabric::FabricError::Unsupported(
                    "stores are not served over rdma: yet, only shm: (the fabric below can do it)",
                )
                .into());
            }
        }
    }
    local()
}

/// Reads addresses as a user writes them.
pub(crate) fn parse(addresses: &[impl AsRef<str>]) -> Result<Vec<Address>> {
    addresses.iter().map(|address| Ok(address.as_ref().parse()?)).collect()
}
