//! Which device, port and GID: what there is, what is wrong with it, and what is taken by default.

use super::{
    ffi::{self, Gid},
    handle::{Device, Devices},
};
use crate::FabricError;
use std::net::{IpAddr, Ipv6Addr};

/// Which NIC to use; by default the first usable one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VerbsConfig {
    /// The device by name, as `ibv_devices` prints it.
    pub device: Option<String>,
    /// The port of the device, from 1.
    pub port: Option<u8>,
    /// The GID: which of our addresses peers reach us at.
    pub gid: Option<GidChoice>,
}

/// A GID, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum GidChoice {
    /// Its place in the port's table.
    Index(u32),
    /// The address that it stands for.
    Address(IpAddr),
}

/// What kind of GID an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// RoCE v1: Ethernet frames, which no router passes on.
    RoceV1,
    /// RoCE v2: UDP.
    RoceV2,
}

/// An entry of a port's table of GIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidInfo {
    /// Its place in the table.
    pub index: u32,
    /// The address that it stands for.
    pub address: IpAddr,
    /// What kind.
    pub kind: GidKind,
}

/// A port of a device.
#[derive(Clone, Debug)]
pub struct PortInfo {
    /// Its number, from 1.
    pub number: u8,
    /// Whether traffic passes.
    pub active: bool,
    /// The state in words.
    pub state: &'static str,
    /// The path's unit of transfer, in bytes.
    pub mtu_bytes: usize,
    /// Whether it is Ethernet (RoCE) or InfiniBand.
    pub ethernet: bool,
    /// Its table of GIDs.
    pub gids: Vec<GidInfo>,
}

/// A device and what it can do.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Its name.
    pub name: String,
    /// Its ports; or why it cannot be used.
    pub ports: Result<Vec<PortInfo>, String>,
    /// The most queue pairs, memory regions and completion queues.
    pub limits: [(&'static str, u64); 5],
}

/// What the device, the port and the GID in use are.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) device: Device,
    pub(crate) name: String,
    pub(crate) attributes: ffi::DeviceAttr,
    pub(crate) port: PortInfo,
    /// The port's address on InfiniBand.
    pub(crate) lid: u16,
    /// The largest message of the port, in bytes.
    pub(crate) message_bytes_max: usize,
    pub(crate) gid: GidInfo,
}

impl std::fmt::Debug for ffi::DeviceAttr {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("DeviceAttr").finish_non_exhaustive()
    }
}

/// All devices of this machine, with what is wrong with them.
pub fn devices() -> Result<Vec<DeviceInfo>, FabricError> {
    let devices = Devices::list()?;
    let names = devices.names();
    Ok(names.into_iter().enumerate().map(|(index, name)| describe(&devices, index, name)).collect())
}

fn describe(devices: &Devices, index: usize, name: String) -> DeviceInfo {
    let opened = devices.open(index).and_then(|device| Ok((device.attributes()?, ports(&device)?)));
    match opened {
        Ok((attributes, ports)) => {
            let number = |value: i32| u64::try_from(value).unwrap_or(0);
            let limits = [
                ("queue pairs", number(attributes.max_qp)),
                ("requests of a queue", number(attributes.max_qp_wr)),
                ("completions of a queue", number(attributes.max_cqe)),
                ("memory regions", number(attributes.max_mr)),
                ("outstanding READs", number(attributes.max_qp_rd_atom)),
            ];
            DeviceInfo { name, ports: Ok(ports.into_iter().map(|(port, _)| port).collect()), limits }
        }
        Err(error) => DeviceInfo { name, ports: Err(error.to_string()), limits: [("", 0); 5] },
    }
}

/// The ports of a device, also as the library has them.
fn ports(device: &Device) -> Result<Vec<(PortInfo, ffi::PortAttr)>, FabricError> {
    let gids = device.gids()?;
    let count = device.attributes()?.phys_port_cnt;
    let port = |number: u8| {
        let attributes = device.port(number)?;
        let mine = gids.iter().filter(|entry| entry.port_num == u32::from(number));
        let info = PortInfo {
            number,
            active: attributes.state == ffi::PORT_ACTIVE,
            state: ["nothing", "down", "initializing", "armed", "active", "active, deferred"]
                .get(attributes.state as usize)
                .unwrap_or(&"unknown"),
            mtu_bytes: mtu_bytes(attributes.active_mtu),
            ethernet: attributes.link_layer == ffi::LINK_LAYER_ETHERNET,
            gids: mine.map(|entry| gid_info(entry.gid_index, entry.gid, entry.gid_type)).collect(),
        };
        Ok((info, attributes))
    };
    (1..=count).map(port).collect()
}

fn gid_info(index: u32, gid: Gid, kind: u32) -> GidInfo {
    let address = Ipv6Addr::from(gid.0);
    let address = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
    let kind = match kind {
        ffi::GID_TYPE_ROCE_V1 => GidKind::RoceV1,
        ffi::GID_TYPE_ROCE_V2 => GidKind::RoceV2,
        _ => GidKind::InfiniBand,
    };
    GidInfo { index, address, kind }
}

/// The MTU that a code of the library stands for.
pub(crate) fn mtu_bytes(code: u32) -> usize {
    128 << code.clamp(1, 5)
}

/// A GID as the library has it.
pub(crate) fn gid_of(address: IpAddr) -> Gid {
    match address {
        IpAddr::V4(address) => Gid(address.to_ipv6_mapped().octets()),
        IpAddr::V6(address) => Gid(address.octets()),
    }
}

/// Checks that a peer's GID can be reached from ours: RoCE goes by IPv4 or by IPv6, from end to end.
pub(crate) fn meets(ours: &GidInfo, theirs: Gid) -> Result<(), FabricError> {
    let theirs = gid_info(0, theirs, 0).address;
    if ours.kind == GidKind::InfiniBand || ours.address.is_ipv4() == theirs.is_ipv4() {
        return Ok(());
    }
    let family = |address: IpAddr| if address.is_ipv4() { "an IPv4" } else { "an IPv6" };
    Err(FabricError::NoDevice {
        what: "the two sides use RDMA at addresses that do not reach each other".into(),
        reason: format!(
            "one at {}, {} address, the other at {theirs}, {}",
            ours.address,
            family(ours.address),
            family(theirs)
        ),
        advice: "choose GIDs of one family on both sides: ?gid=INDEX or ?gid=ADDRESS, of those that locus info lists"
            .into(),
    })
}

/// Opens the NIC that was asked for, or says what is missing and how to mend it.
pub(crate) fn choose(config: &VerbsConfig) -> Result<Chosen, FabricError> {
    let devices = Devices::list()?;
    let names = devices.names();
    if names.is_empty() {
        return Err(FabricError::NoDevice {
            what: "there is no RDMA device".into(),
            reason: "the library lists none".into(),
            advice:
                "load the NIC's driver, or make a SoftRoCE device: rdma link add rxe0 type rxe netdev eth0"
                    .into(),
        });
    }
    let mut refused = Vec::new();
    for (index, name) in names.iter().enumerate() {
        if config.device.as_ref().is_some_and(|asked| asked != name) {
            continue;
        }
        match devices.open(index).and_then(|device| usable(device, name, config)) {
            Ok(chosen) => return Ok(chosen),
            Err(error) => refused.push(format!("{name}: {error}")),
        }
    }
    Err(match &config.device {
        Some(asked) if refused.is_empty() => FabricError::NoDevice {
            what: format!("there is no RDMA device {asked:?}"),
            reason: format!("there are: {}", names.join(", ")),
            advice: "name one of these, or none to take the first usable one".into(),
        },
        _ => FabricError::NoDevice {
            what: "no RDMA device can be used".into(),
            reason: refused.join("; "),
            advice: "locus info says more".into(),
        },
    })
}

fn usable(device: Device, name: &str, config: &VerbsConfig) -> Result<Chosen, FabricError> {
    let state = |text: String| FabricError::NoDevice {
        what: text,
        reason: "nothing passes there".into(),
        advice: "bring its network interface up: ip link set DEVICE up".into(),
    };
    let all = ports(&device)?;
    let numbered =
        |(port, _): &&(PortInfo, ffi::PortAttr)| config.port.is_none_or(|asked| asked == port.number);
    let (port, raw) = all
        .iter()
        .filter(numbered)
        .find(|(port, _)| port.active)
        .ok_or_else(|| {
            state(match all.iter().find(numbered) {
                Some((port, _)) => format!("port {} is {}", port.number, port.state),
                None => format!("it has no port {}", config.port.unwrap_or(1)),
            })
        })?
        .clone();
    let gid = choose_gid(&port, config.gid.as_ref())?;
    let attributes = device.attributes()?;
    let (lid, message_bytes_max) = (raw.lid, raw.max_msg_sz as usize);
    Ok(Chosen { device, name: name.into(), attributes, port, lid, message_bytes_max, gid })
}

/// The GID that was asked for, or the best one: RoCE v2 before v1, an IPv4 address before a global IPv6 one before one
/// that is valid on its link only.
fn choose_gid(port: &PortInfo, choice: Option<&GidChoice>) -> Result<GidInfo, FabricError> {
    let rank = |gid: &&GidInfo| {
        let kind = match gid.kind {
            GidKind::RoceV2 | GidKind::InfiniBand => 0,
            GidKind::RoceV1 => 1,
        };
        let scope = match gid.address {
            IpAddr::V4(_) => 0,
            IpAddr::V6(address) if address.is_unicast_link_local() => 2,
            IpAddr::V6(_) => 1,
        };
        (kind, scope, gid.index)
    };
    let fits = |gid: &&GidInfo| match choice {
        None => true,
        Some(GidChoice::Index(index)) => gid.index == *index,
        Some(GidChoice::Address(address)) => gid.address == *address,
    };
    port.gids.iter().filter(fits).min_by_key(rank).cloned().ok_or_else(|| FabricError::NoDevice {
        what: match choice {
            Some(GidChoice::Index(index)) => format!("port {} has no GID {index}", port.number),
            Some(GidChoice::Address(address)) => format!("port {} has no GID for {address}", port.number),
            None => format!("port {} has no GID", port.number),
        },
        reason: format!(
            "it has {:?}",
            port.gids.iter().map(|gid| (gid.index, gid.address)).collect::<Vec<_>>()
        ),
        advice: "give its network interface an address: ip address add ADDRESS/24 dev DEVICE".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(gids: &[(u32, &str, GidKind)]) -> PortInfo {
        let gid = |&(index, address, kind): &(u32, &str, GidKind)| {
            gid_info(
                index,
                gid_of(address.parse().unwrap()),
                match kind {
                    GidKind::InfiniBand => 0,
                    GidKind::RoceV1 => 1,
                    GidKind::RoceV2 => 2,
                },
            )
        };
        let gids = gids.iter().map(gid).collect();
        PortInfo { number: 1, active: true, state: "active", mtu_bytes: 4096, ethernet: true, gids }
    }

    #[test]
    fn the_best_gid_is_routable_and_of_version_two() {
        use GidKind::{RoceV1, RoceV2};
        let all = [
            (0, "fe80::1", RoceV1),
            (1, "fe80::1", RoceV2),
            (2, "10.0.0.1", RoceV1),
            (3, "2001:db8::1", RoceV2),
            (4, "10.0.0.1", RoceV2),
        ];
        let index = |count: usize, choice: Option<GidChoice>| {
            choose_gid(&port(&all[..count]), choice.as_ref()).map(|gid| gid.index)
        };
        assert_eq!([1, 2, 3, 4, 5].map(|count| index(count, None).unwrap()), [0, 1, 1, 3, 4]);
        assert_eq!(index(5, Some(GidChoice::Index(2))).unwrap(), 2);
        assert_eq!(index(5, Some(GidChoice::Address("2001:db8::1".parse().unwrap()))).unwrap(), 3);
        assert_eq!(index(5, Some(GidChoice::Address("10.0.0.1".parse().unwrap()))).unwrap(), 4);
        for (count, choice) in [(0, None), (5, Some(GidChoice::Index(9)))] {
            let error = index(count, choice).unwrap_err().to_string();
            assert!(error.contains("no GID") && error.contains("ip address add"), "{error}");
        }
    }
}
