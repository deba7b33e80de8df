//! What befalls peers and the device of one machine.

use crate::{
    SOON,
    device::{Interface, OBJECTS, held, is_active},
    firewall, gids, ill,
    peer::{End, PATIENCE, Peer, RECEIVES, nic, take, wait},
    removal, test,
};
use libtest_mimic::Trial;
use locus_fabric::{
    Access, Address, Link, Listener, Nic, PagePolicy, Payload, PostError, QueuePair, QueuePairState, Region,
    SendRequest, Status,
    Transport::{self, Rc, Uc, Ud},
    Verb,
    verbs::{Probe, probe},
};
use rustix::process::Signal;
use std::{collections::BTreeMap, process::Command, time::Instant};

pub fn tests(device: &str) -> Vec<Trial> {
    let mut tests = Vec::new();
    for transport in [Rc, Uc, Ud] {
        for (name, signal) in [("killed", Signal::KILL), ("stopped", Signal::STOP)] {
            let device = device.to_owned();
            tests.push(test(format!("a_{name}_peer_shows_soon_over_{transport:?}"), move || {
                a_lost_peer_shows_soon(&device, transport, signal);
            }));
        }
    }
    let mut add = |name: &str, run: fn(&str)| {
        let device = device.to_owned();
        tests.push(test(name, move || run(&device)));
    };
    add("reads_fail_soon_after_a_death", reads_fail_soon_after_a_death);
    add("a_port_that_goes_down_breaks_queue_pairs_until_it_is_up_again", a_port_goes_down);
    add("a_device_that_is_taken_away_ends_all_that_uses_it_until_it_is_back", removal::taken_away);
    add("a_device_that_is_taken_away_wakes_those_who_sleep", removal::sleepers);
    add("a_peer_that_never_polls_harms_one_queue_pair", a_peer_that_never_polls);
    add("a_full_send_queue_is_no_failure", a_full_send_queue);
    add("asking_for_a_region_again_registers_nothing", asking_again);
    add("nobody_gets_through_a_firewall_that_drops_the_port", firewall::nobody_gets_through);
    add("a_firewall_cuts_off_those_who_are_connected", firewall::cuts_off_those_who_are_connected);
    add("a_name_service_that_is_silent_holds_up_nobody_for_long", firewall::a_silent_name_service);
    add("what_keeps_clients_from_a_server_is_told_apart", what_is_found);
    add("the_gid_is_chosen_by_index_or_address_of_either_family", gids::chosen);
    add("gids_of_two_families_are_an_error_that_says_so", gids::of_two_families);
    add("what_an_ill_device_never_completes_is_flushed", ill::everything_is_flushed);
    add("hundreds_of_connections_leave_nothing", hundreds_of_connections);
    tests
}

/// Measures how long something takes that must happen soon.
pub fn soon(what: &str, event: impl FnMut() -> Option<()>) {
    let start = Instant::now();
    wait(what, event);
    let took = start.elapsed();
    println!("{what}: {} ms", took.as_millis());
    assert!(took < SOON, "{what} took {took:?}");
}

/// Everything that was posted comes back.
pub fn is_flushed(end: &mut End) {
    for id in 0..RECEIVES as u64 {
        let flushed = wait("a RECV to be flushed", || take(&mut end.queue));
        assert_eq!((flushed.id, flushed.status), (id, Status::Flushed));
    }
    assert_eq!(end.pair.state(), QueuePairState::Error);
}

fn a_lost_peer_shows_soon(device: &str, transport: Transport, signal: Signal) {
    let nic = nic();
    let (mut peer, mut end) = Peer::meet(&nic, device, transport);
    assert_eq!(end.read(), Status::Success);
    peer.signal(signal);
    soon(&format!("{transport:?}: the end of the link"), || (!end.link.alive()).then_some(()));
    match transport {
        // Speaks with anybody, and therefore outlives the link.
        Ud => assert_eq!(end.pair.state(), QueuePairState::Ready),
        Rc | Uc => is_flushed(&mut end),
    }
    if signal == Signal::STOP {
        peer.signal(Signal::CONT);
        let ended = wait("the peer to notice, too", || peer.0.try_wait().unwrap());
        assert!(ended.success(), "{ended}");
    }
}

fn reads_fail_soon_after_a_death(device: &str) {
    let nic = nic();
    let (peer, mut end) = Peer::meet(&nic, device, Rc);
    for _ in 0..100 {
        assert_eq!(end.read(), Status::Success);
    }
    peer.signal(Signal::KILL);
    soon("a READ that fails", || (end.read() != Status::Success).then_some(()));
    soon("the end of the link", || (!end.link.alive()).then_some(()));
    // Another peer is met with the same NIC.
    let (_peer, mut end) = Peer::meet(&nic, device, Rc);
    assert_eq!(end.read(), Status::Success);
}

fn a_port_goes_down(device: &str) {
    let nic = nic();
    let interface = Interface::of(device);
    for _ in 0..2 {
        let (_peer, mut end) = Peer::meet(&nic, device, Rc);
        assert_eq!(end.read(), Status::Success);
        interface.set("down");
        soon("a READ that fails", || (end.read() != Status::Success).then_some(()));
        soon("the queue pairs to break", || (end.pair.state() == QueuePairState::Error).then_some(()));
        is_flushed(&mut end);
        interface.set("up");
        wait("the port to be active again", || is_active().then_some(()));
    }
    let (_peer, mut end) = Peer::meet(&nic, device, Rc);
    assert_eq!(end.read(), Status::Success);
}

/// Posts a SEND.
fn post(end: &mut End, id: u64) -> Result<(), PostError> {
    let verb = Verb::Send { payload: Payload::Inline(&[b"unread"]), immediate: None, to: None };
    end.pair.post_send(&SendRequest { id, verb, signaled: true })?;
    end.pair.ring()
}

/// Its RECVs fill up; what is sent beyond waits, or ends the queue pair, and nothing else.
fn a_peer_that_never_polls(device: &str) {
    let nic = nic();
    let (_peer, mut end) = Peer::meet(&nic, device, Rc);
    for id in 0..2 * RECEIVES as u64 {
        post(&mut end, id).unwrap();
    }
    for id in 0..RECEIVES as u64 {
        let sent = wait("a SEND", || take(&mut end.queue));
        assert_eq!((sent.id, sent.status), (id, Status::Success));
    }
    let start = Instant::now();
    let mut last = None;
    // Longer than any number of retries takes.
    while start.elapsed() < SOON && last.is_none() {
        assert_eq!(end.read(), Status::Success, "another queue pair with the same peer");
        last = take(&mut end.queue);
    }
    if let Some(sent) = last {
        println!("a SEND without a RECV ended after {} ms: {:?}", start.elapsed().as_millis(), sent.status);
        assert_ne!(sent.status, Status::Success);
    }
    assert_eq!(end.read(), Status::Success);
    assert!(end.link.alive());
}

fn a_full_send_queue(device: &str) {
    let nic = nic();
    let (_peer, mut end) = Peer::meet(&nic, device, Rc);
    let mut id = 0;
    let refused = loop {
        match post(&mut end, id) {
            Ok(()) => id += 1,
            Err(error) => break error,
        }
    };
    // The default of a queue pair.
    assert_eq!((refused, id), (PostError::SendQueueFull(128), 128));
    let sent = wait("a SEND", || take(&mut end.queue));
    assert_eq!((sent.id, sent.status), (0, Status::Success));
    post(&mut end, id).expect("there is room again");
}

/// A peer that asks for the same region over and over must not have the device pin it over and over.
fn asking_again(_: &str) {
    let nic = nic();
    let (near, far) = nic.pair().unwrap();
    let region = nic.register(1 << 20, Access::RemoteRead, PagePolicy::Base).unwrap();
    let first = near.grant(&region).unwrap().bytes;
    let before = held();
    for _ in 0..1000 {
        assert_eq!(near.grant(&region).unwrap().bytes, first);
    }
    assert_eq!(held(), before);
    assert_ne!(far.grant(&region).unwrap().bytes, first, "another peer has a key of its own");
    region.revoke();
    assert!(near.grant(&region).is_err());
}

fn hundreds_of_connections(device: &str) {
    const CONNECTIONS: usize = 500;
    let nic = nic();
    let listener = nic.listen(&format!("rdma://{device}:0").parse().unwrap()).unwrap();
    let address = listener.address();
    let connect = || {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let link = listener.accept(PATIENCE).unwrap().expect("the other side");
                let mut end = End::new(&nic, link, Rc);
                assert_eq!(end.read(), Status::Success);
                end.link.receive(PATIENCE).unwrap();
            });
            let mut end = End::new(&nic, nic.connect(&address).unwrap(), Rc);
            assert_eq!(end.read(), Status::Success);
            end.link.send(b"enough", Vec::new()).unwrap();
            other.join().unwrap();
        });
    };
    // The device's objects are given back on threads of their own, so that it takes a moment until all are.
    let empty = held();
    let settled = |held: &BTreeMap<String, usize>| OBJECTS.iter().all(|kind| held[*kind] == empty[*kind]);
    // The first ones start threads that stay.
    (0..3).for_each(|_| connect());
    let before = wait("the first ones to be given back", || Some(held()).filter(settled));
    (0..CONNECTIONS).for_each(|_| connect());
    wait("everything to be given back", || {
        let now = held();
        (settled(&now) && now.iter().all(|(kind, count)| *count <= before[kind])).then_some(())
    });
    println!("{CONNECTIONS} connections, held before and after: {before:?}");
}

/// The kernel answers for routes as it does for firewalls that reject; the device's network is a dummy, which drops what is
/// sent to others on it, as a firewall does.
fn what_is_found(device: &str) {
    for (kind, network) in
        [("unreachable", "10.98.1.0/24"), ("prohibit", "10.98.2.0/24"), ("blackhole", "10.98.3.0/24")]
    {
        let done = Command::new("ip").args(["route", "add", kind, network]).status().unwrap();
        assert!(done.success());
    }
    let nic = nic();
    let listener = nic.listen(&format!("rdma://{device}:0").parse().unwrap()).unwrap();
    let Address::Rdma { port, .. } = listener.address() else { panic!("an address of rdma") };
    let found = |host: &str| {
        let start = Instant::now();
        let found = probe(host, port, SOON).unwrap()[0].1.clone();
        println!("{host}: {found:?} after {} ms", start.elapsed().as_millis());
        assert!(start.elapsed() < 2 * SOON);
        found
    };
    std::thread::scope(|scope| {
        scope.spawn(|| listener.accept(PATIENCE).unwrap());
        assert_eq!(found(device), Probe::Serves);
    });
    let other = device.rsplit_once('.').expect("an IPv4 address").0.to_owned() + ".77";
    assert_eq!(found(&other), Probe::Silent);
    assert!(matches!(found("10.98.1.1"), Probe::Unreachable(_)));
    assert!(matches!(found("10.98.2.1"), Probe::Forbidden(_)));
    assert!(matches!(found("10.98.3.1"), Probe::Forbidden(_)));
    drop(listener);
    assert_eq!(found(device), Probe::Refused);
}
