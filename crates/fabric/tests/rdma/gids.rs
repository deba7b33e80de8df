//! Addresses of the device: chosen by their place in the port's table or by themselves, IPv4 and IPv6, and which of them
//! reach each other.

use crate::peer::{End, PATIENCE, nic};
use locus_fabric::{
    Address, Link, Listener, Nic, QueuePair, Status,
    Transport::{self, Rc, Uc, Ud},
    verbs::{GidChoice, GidInfo, VerbsConfig, VerbsNic, devices},
};
use std::net::{IpAddr, SocketAddr};

/// The first device's GIDs of either family that are valid beyond their link.
fn gids() -> [GidInfo; 2] {
    let gids = devices().unwrap()[0].ports.as_ref().unwrap()[0].gids.clone();
    let find = |fits: fn(&IpAddr) -> bool| {
        gids.iter()
            .find(|gid| fits(&gid.address))
            .unwrap_or_else(|| panic!("no such GID in {gids:?}"))
            .clone()
    };
    let routable =
        |address: &IpAddr| matches!(address, IpAddr::V6(address) if !address.is_unicast_link_local());
    [find(IpAddr::is_ipv4), find(routable)]
}

fn open(gid: Option<GidChoice>) -> VerbsNic {
    VerbsNic::open(&VerbsConfig { gid, ..VerbsConfig::default() }).unwrap()
}

/// Meets at an address, and reads from either side.
fn read(at: IpAddr, [ours, theirs]: &[VerbsNic; 2], transport: Transport) {
    let listener = ours.listen(&format!("rdma://{}", SocketAddr::from((at, 0))).parse().unwrap()).unwrap();
    let address = listener.address();
    let Address::Rdma { host, .. } = &address else { panic!("{address} is an address of rdma") };
    assert_eq!(host.parse(), Ok(at));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut end = End::new(theirs, theirs.connect(&address).unwrap(), transport);
            assert_eq!(end.read(), Status::Success);
            // Until the other one has read, too.
            end.link.receive(PATIENCE).unwrap();
        });
        let mut end = End::new(ours, listener.accept(PATIENCE).unwrap().expect("a link"), transport);
        assert_eq!(end.read(), Status::Success);
        end.link.send(b"enough", Vec::new()).unwrap();
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Whatever the family of the bootstrap connection, RDMA goes by the GID that was chosen.
pub fn chosen(_: &str) {
    let both = gids();
    for gid in &both {
        for choice in [GidChoice::Index(gid.index), GidChoice::Address(gid.address)] {
            let nics = [open(Some(choice.clone())), open(Some(choice.clone()))];
            let text = nics[0].describe();
            assert!(text.contains(&format!("GID {} ({})", gid.index, gid.address)), "{choice:?}: {text}");
            for at in &both {
                [Rc, Uc, Ud].into_iter().for_each(|transport| read(at.address, &nics, transport));
            }
        }
    }
    let absent = VerbsConfig { gid: Some(GidChoice::Index(200)), ..VerbsConfig::default() };
    let error = VerbsNic::open(&absent).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("no GID 200"), "{error}");
    assert!(nic().describe().contains(&both[0].address.to_string()), "by default it is the IPv4 address");
}

/// An IPv4 address does not reach an IPv6 one.
pub fn of_two_families(_: &str) {
    let [four, six] = gids();
    let nics = [four.address, six.address].map(|address| open(Some(GidChoice::Address(address))));
    let ((near, _far), (other, _further)) = (nics[0].pair().unwrap(), nics[1].pair().unwrap());
    let facts = |nic: &VerbsNic, link: &<VerbsNic as Nic>::Link| {
        let queue = nic.create_completion_queue(4).unwrap();
        let pair = nic.create_queue_pair(link, &Default::default(), &queue, &queue).unwrap();
        let facts = pair.facts(link).unwrap();
        (pair, queue, facts)
    };
    let (mut pair, _queue, _) = facts(&nics[0], &near);
    let (_theirs, _queue, theirs) = facts(&nics[1], &other);
    let error = pair.connect(theirs).unwrap_err().to_string();
    let [four, six] = [four, six].map(|gid| gid.address.to_string());
    for say in ["IPv4", "IPv6", "?gid=", &four, &six] {
        assert!(error.contains(say), "no {say:?} in {error}");
    }
}
