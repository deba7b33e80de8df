//! Addresses as a user writes them: `shm:/path/to/socket`, `rdma://host:port?device=rxe0&gid=1`.

use crate::{
    FabricError,
    verbs::{GidChoice, VerbsConfig},
};
use std::{fmt, net::Ipv6Addr, path::PathBuf, str::FromStr};

/// Where a server is reached. The scheme names the provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A Unix socket of this machine.
    Shm(PathBuf),
    /// A name in a simulated world, known to that world alone: never what a user writes.
    Sim(String),
    /// An RDMA NIC, set up over TCP.
    Rdma {
        /// The host of the bootstrap connection: a name or an address, IPv6 without brackets.
        host: String,
        /// The TCP port of the bootstrap connection.
        port: u16,
        /// Which NIC of this machine to use.
        nic: VerbsConfig,
    },
}

/// The TCP port where none is given.
pub const RDMA_PORT: u16 = 7471;

impl FromStr for Address {
    type Err = FabricError;

    fn from_str(text: &str) -> Result<Self, FabricError> {
        let bad = |reason: &str| FabricError::BadAddress { address: text.into(), reason: reason.into() };
        let (scheme, rest) = text
            .split_once(':')
            .ok_or_else(|| bad("an address has a scheme: shm:/path/to/socket or rdma://host:port"))?;
        match scheme {
            "shm" if rest.is_empty() => {
                Err(bad("shm: needs the path of a socket, as in shm:/tmp/locus.sock"))
            }
            // sockaddr_un holds 108 bytes, one of them the terminating zero.
            "shm" if rest.len() > 107 => Err(bad("the path of a Unix socket has at most 107 bytes")),
            "shm" => Ok(Self::Shm(rest.into())),
            "rdma" => parse_rdma(rest).map_err(|reason| bad(&reason)),
            "sim" => Err(bad("a simulated world is entered by locus sim, and reached from nowhere else")),
            _ => Err(bad("unknown scheme; known: shm:/path/to/socket, rdma://host:port")),
        }
    }
}

/// Understands what follows `rdma:`.
fn parse_rdma(rest: &str) -> Result<Address, String> {
    let rest = rest.strip_prefix("//").ok_or("rdma: is written rdma://host:port")?;
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, port) = match place.strip_prefix('[') {
        Some(bracketed) => {
            let (host, behind) = bracketed.split_once(']').ok_or("the bracket of an IPv6 address is open")?;
            host.parse::<Ipv6Addr>().map_err(|_| format!("{host:?} is no IPv6 address"))?;
            (host, behind.strip_prefix(':').or(behind.is_empty().then_some("")))
        }
        None => {
            let (host, port) = place.split_once(':').unwrap_or((place, ""));
            if port.contains(':') {
                return Err("an IPv6 address goes in brackets: rdma://[fd00::1]:7471".into());
            }
            (host, Some(port))
        }
    };
    let port = match port.ok_or("behind the bracket comes a colon and the port")? {
        "" => RDMA_PORT,
        port => port.parse().map_err(|_| format!("{port:?} is no TCP port"))?,
    };
    if host.is_empty() {
        return Err("it needs a host, as in rdma://10.0.0.1:7471".into());
    }
    let mut nic = VerbsConfig::default();
    for option in options.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("device", name)) if !name.is_empty() => nic.device = Some(name.into()),
            Some(("port", number)) => {
                nic.port = Some(number.parse().map_err(|_| format!("port={number} is no port of a device"))?);
            }
            Some(("gid", gid)) => nic.gid = Some(parse_gid(gid)?),
            _ => {
                return Err(format!(
                    "unknown option {option:?}; known: device=NAME, port=NUMBER, gid=INDEX|ADDRESS"
                ));
            }
        }
    }
    Ok(Address::Rdma { host: host.into(), port, nic })
}

fn parse_gid(text: &str) -> Result<GidChoice, String> {
    if let Ok(index) = text.parse() {
        return Ok(GidChoice::Index(index));
    }
    let address = text.parse().map_err(|_| format!("gid={text} is neither an index nor an IP address"))?;
    Ok(GidChoice::Address(address))
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm(path) => write!(out, "shm:{}", path.display()),
            Self::Sim(name) => write!(out, "sim:{name}"),
            Self::Rdma { host, port, nic } => {
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(out, "rdma://{open}{host}{close}:{port}")?;
                let options = [
                    nic.device.as_ref().map(|name| format!("device={name}")),
                    nic.port.map(|port| format!("port={port}")),
                    nic.gid.as_ref().map(|gid| match gid {
                        GidChoice::Index(index) => format!("gid={index}"),
                        GidChoice::Address(address) => format!("gid={address}"),
                    }),
                ];
                for (option, mark) in
                    options.iter().flatten().zip(std::iter::once('?').chain(std::iter::repeat('&')))
                {
                    write!(out, "{mark}{option}")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_written() {
        for text in [
            "shm:/tmp/locus.sock",
            "rdma://10.0.0.1:7471",
            "rdma://node-1:1?device=rxe0&port=2&gid=3",
            "rdma://[fd00::1]:7471?gid=fd00::2",
            "rdma://h:65535?gid=10.0.0.1",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("rdma://h".parse::<Address>().unwrap().to_string(), "rdma://h:7471");
        assert_eq!("rdma://[::1]".parse::<Address>().unwrap().to_string(), "rdma://[::1]:7471");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, says) in [
            ("/tmp/locus.sock", "scheme"),
            ("shm:", "path of a socket"),
            ("rdma:host", "rdma://host:port"),
            ("rdma://:1", "host"),
            ("rdma://h:x", "TCP port"),
            ("rdma://h:70000", "TCP port"),
            ("rdma://fd00::1", "brackets"),
            ("rdma://[fd00::1", "open"),
            ("rdma://[h]:1", "IPv6"),
            ("rdma://[::1]7", "colon"),
            ("rdma://h?speed=1", "known: device"),
            ("rdma://h?gid=x", "neither"),
            ("sim:apt", "simulated world"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
