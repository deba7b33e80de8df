//! A firewall that drops what goes to the bootstrap port, before a connection and during one, while what goes over RDMA
//! passes; and a name service that does not answer.

use crate::{
    SOON,
    faults::{is_flushed, soon},
    filter::Firewall,
    peer::{Peer, nic, wait},
};
use locus_fabric::{
    Address, FabricError, Link, Listener, Nic, Status,
    Transport::{Rc, Uc, Ud},
    verbs::{Probe, probe},
};
use std::time::{Duration, Instant};

/// Longer than connecting ever takes: five seconds, and some for a crowded machine.
const CONNECT_MAX: Duration = Duration::from_secs(8);

pub fn nobody_gets_through(device: &str) {
    let nic = nic();
    let listener = nic.listen(&format!("rdma://{device}:0").parse().unwrap()).unwrap();
    let address = listener.address();
    let Address::Rdma { port, .. } = address else { panic!("an address of rdma") };
    let firewall = Firewall::drops(port, false);
    let start = Instant::now();
    let error = nic.connect(&address).err().expect("nothing gets through");
    println!("after {} ms: {error}", start.elapsed().as_millis());
    assert!(start.elapsed() < CONNECT_MAX, "it took {:?}", start.elapsed());
    assert!(matches!(error, FabricError::NotServed { .. }), "{error:?}");
    let error = error.to_string();
    let named =
        [format!("{device}:{port}"), "no answer within 5s".into(), "no firewall drops the port".into()];
    assert!(named.iter().all(|named| error.contains(named)), "{error}");
    assert_eq!(probe(device, port, SOON).unwrap()[0].1, Probe::Silent);
    drop(firewall);
    std::thread::scope(|scope| {
        scope.spawn(|| wait("a link", || listener.accept(SOON).unwrap()));
        nic.connect(&address).expect("the way is free");
    });
}

/// Whichever way is cut, each side is lost to the other.
pub fn cuts_off_those_who_are_connected(device: &str) {
    let nic = nic();
    for (transport, both) in [(Rc, false), (Rc, true), (Uc, true), (Ud, true)] {
        let listener = nic.listen(&format!("rdma://{device}:0").parse().unwrap()).unwrap();
        let Address::Rdma { port, .. } = listener.address() else { panic!("an address of rdma") };
        let (mut peer, mut end) = Peer::come(&nic, &listener, transport);
        assert_eq!(end.read(), Status::Success);
        let firewall = Firewall::drops(port, both);
        soon(&format!("{transport:?}: the end of the link"), || (!end.link.alive()).then_some(()));
        soon("the peer's notice", || peer.0.try_wait().unwrap().map(|ended| assert!(ended.success())));
        if transport != Ud {
            is_flushed(&mut end);
        }
        drop(firewall);
        let (_peer, mut end) = Peer::come(&nic, &listener, transport);
        assert_eq!(end.read(), Status::Success);
    }
}

/// The name service is at an address where nobody is. The machine is thrown away after the tests, and so is its file.
pub fn a_silent_name_service(device: &str) {
    let elsewhere = device.rsplit_once('.').expect("an IPv4 address").0.to_owned() + ".77";
    std::fs::write("/etc/resolv.conf", format!("nameserver {elsewhere}\noptions timeout:10 attempts:2\n"))
        .unwrap();
    let start = Instant::now();
    let error =
        nic().connect(&"rdma://nowhere.example:7471".parse().unwrap()).err().expect("nobody has the name");
    println!("after {} ms: {error}", start.elapsed().as_millis());
    assert!(start.elapsed() < CONNECT_MAX, "it took {:?}", start.elapsed());
    let error = error.to_string();
    assert!(
        error.contains("nowhere.example:7471") && error.contains("name service does not answer"),
        "{error}"
    );
}
