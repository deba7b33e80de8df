//! Which fabric provider serves an address: the one place that a further provider adds to. It is chosen once per server
//! and per table; from there on everything is compiled for it.

use crate::{ClientConfig, FabricError, Result, ServerConfig, Statistics};
use locus_fabric::{
    Address,
    shm::ShmNic,
    verbs::{VerbsConfig, VerbsNic},
};
use locus_store::{Client, Server};

/// The provider of an embedded store.
pub(crate) type Embedded = ShmNic;

/// A client over one of the providers.
pub(crate) enum AnyClient {
    Shm(Client<ShmNic>),
    Verbs(Client<VerbsNic>),
}

/// A server over one of the providers.
pub(crate) enum AnyServer {
    Shm(Server<ShmNic>),
    Verbs(Server<VerbsNic>),
}

/// Does the same with whichever client it is.
macro_rules! with_client {
    ($any:expr, $client:ident => $body:expr) => {
        match $any {
            $crate::provider::AnyClient::Shm($client) => $body,
            $crate::provider::AnyClient::Verbs($client) => $body,
        }
    };
}
pub(crate) use with_client;

/// Does the same with whichever server it is.
macro_rules! with_server {
    ($any:expr, $server:ident => $body:expr) => {
        match $any {
            AnyServer::Shm($server) => $body,
            AnyServer::Verbs($server) => $body,
        }
    };
}

/// The provider that addresses name, which must be the same for all of them.
enum Choice {
    Shm,
    Verbs(VerbsConfig),
}

fn choice(address: &Address) -> Result<Choice> {
    match address {
        Address::Shm(_) => Ok(Choice::Shm),
        Address::Rdma { nic, .. } => Ok(Choice::Verbs(nic.clone())),
        Address::Sim(_) => {
            Err(FabricError::Unsupported("a simulated store is reached within its simulation alone").into())
        }
    }
}

fn choose(addresses: &[Address]) -> Result<Choice> {
    let mut choices = addresses.iter().map(choice);
    let first = choices.next().transpose()?.unwrap_or(Choice::Shm);
    for other in choices {
        match (&first, &other?) {
            (Choice::Shm, Choice::Shm) => {}
            (Choice::Verbs(one), Choice::Verbs(another)) if one == another => {}
            (Choice::Verbs(_), Choice::Verbs(_)) => {
                return Err(FabricError::Unsupported(
                    "one store is reached through one RDMA NIC: name the same device, port and GID",
                )
                .into());
            }
            _ => {
                return Err(FabricError::Unsupported(
                    "one store is served over one fabric: all addresses are shm: or all are rdma:",
                )
                .into());
            }
        }
    }
    Ok(first)
}

impl AnyClient {
    pub(crate) fn connect(addresses: &[Address], config: ClientConfig) -> Result<Self> {
        Ok(match choose(addresses)? {
            Choice::Shm => Self::Shm(Client::connect(&ShmNic::open()?, addresses, config)?),
            Choice::Verbs(nic) => Self::Verbs(Client::connect(&VerbsNic::open(&nic)?, addresses, config)?),
        })
    }
}

impl AnyServer {
    /// Starts a server that can be listened with at these addresses.
    pub(crate) fn start(addresses: &[Address], config: ServerConfig) -> Result<Self> {
        Ok(match choose(addresses)? {
            Choice::Shm => Self::Shm(Server::start(&ShmNic::open()?, config)?),
            Choice::Verbs(nic) => Self::Verbs(Server::start(&VerbsNic::open(&nic)?, config)?),
        })
    }

    pub(crate) fn listen(&self, address: &Address) -> Result<Address> {
        with_server!(self, server => server.listen(address))
    }

    pub(crate) fn statistics(&self) -> Statistics {
        with_server!(self, server => server.statistics())
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        with_server!(self, server => server.trouble())
    }
}

/// Opens the provider of an embedded store.
pub(crate) fn embedded() -> Result<Embedded> {
    Ok(ShmNic::open()?)
}

/// Reads addresses as a user writes them.
pub(crate) fn parse(addresses: &[impl AsRef<str>]) -> Result<Vec<Address>> {
    addresses.iter().map(|address| Ok(address.as_ref().parse()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_name_one_fabric() {
        let refused =
            |addresses: &[&str]| choose(&parse(addresses).unwrap()).err().map(|error| error.to_string());
        assert_eq!(refused(&["shm:/a", "shm:/b"]), None);
        assert_eq!(refused(&["rdma://a?device=rxe0", "rdma://b?device=rxe0"]), None);
        assert!(refused(&["shm:/a", "rdma://b"]).unwrap().contains("one fabric"));
        assert!(refused(&["rdma://a?device=rxe0", "rdma://b"]).unwrap().contains("same device"));
    }
}
