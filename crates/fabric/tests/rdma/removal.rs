//! A device that is taken away from those who use it, and given back.

use crate::{
    SOON,
    device::{Interface, Removal, is_active},
    faults::{is_flushed, soon},
    peer::{PATIENCE, Peer, nic, take, wait},
};
use locus_fabric::{
    Access, Completion, CompletionQueue, FabricError, Link, Listener, LocalSlice, Nic, PagePolicy, Park,
    QueuePair, QueuePairState, Status,
    Transport::{Rc, Uc, Ud},
    verbs::VerbsNic,
};
use std::time::{Duration, Instant};

/// Both sides have the same device here, so both lose it.
pub fn taken_away(device: &str) {
    let nic = nic();
    let interface = Interface::of(device);
    let listener = nic.listen(&format!("rdma://{device}:0").parse().unwrap()).unwrap();
    let mut old = Vec::new();
    for _ in 0..2 {
        let mut all: Vec<_> = [Rc, Uc, Ud].map(|transport| Peer::meet(&nic, device, transport)).into();
        all.iter_mut().for_each(|(_, end)| assert_eq!(end.read(), Status::Success));
        let mut removal = Removal::begin();
        for (_, end) in &mut all {
            soon("a READ that fails", || (end.read() != Status::Success).then_some(()));
            is_flushed(end);
            soon("the end of the link", || (!end.link.alive()).then_some(()));
        }
        for (peer, _) in &mut all {
            let ended = wait("the peer to notice, too", || peer.0.try_wait().unwrap());
            assert!(ended.success(), "{ended}");
        }
        // The ends of before are still there, and hold up nobody.
        soon("the device to be let go of", || removal.is_done().then_some(()));
        for (_, end) in &all {
            assert!(end.link.peer().contains("rxe0, which was taken away"), "{}", end.link.peer());
        }
        nothing_is_made(&nic, &listener);
        removal.undo(&interface);
        wait("the port to be active again", || is_active().then_some(()));
        old.append(&mut all);
    }
    let (_peer, mut end) = Peer::meet(&nic, device, Rc);
    assert_eq!(end.read(), Status::Success);
    // Nothing of before comes back to life.
    for (_, end) in &mut old {
        assert_ne!(end.read(), Status::Success);
        assert_eq!((end.pair.state(), take(&mut end.queue)), (QueuePairState::Error, None));
    }
    drop(old);
    assert_eq!(end.read(), Status::Success);
}

/// Whatever is asked for says why there is none.
fn nothing_is_made(nic: &VerbsNic, listener: &<VerbsNic as Nic>::Listener) {
    let says = |what: &str, error: Option<FabricError>| {
        let error = error.unwrap_or_else(|| panic!("{what} without a device")).to_string();
        assert!(
            error.contains("the RDMA device rxe0 was taken away") && error.contains("once it is back"),
            "{error}"
        );
    };
    says("a completion queue", nic.create_completion_queue(16).err());
    says("a link", nic.connect(&listener.address()).err());
    let (near, _far) = nic.pair().unwrap();
    let region = nic.register(4096, Access::RemoteRead, PagePolicy::Base).unwrap();
    says("a grant", near.grant(&region).err());
}

/// A core that sleeps wakes up and finds what it posted flushed, also if it posted to nobody's knowledge; and it sleeps
/// again after that. One queue serves before and after.
pub fn sleepers(device: &str) {
    let nic = nic();
    let interface = Interface::of(device);
    let mut queue = nic.create_completion_queue(64).unwrap();
    let buffer = nic.register(4096, Access::Local, PagePolicy::Base).unwrap();
    let config = Default::default();
    for _ in 0..2 {
        let (near, far) = nic.pair().unwrap();
        let mut pair = nic.create_queue_pair(&near, &config, &queue, &queue).unwrap();
        let others = nic.create_completion_queue(16).unwrap();
        let mut other = nic.create_queue_pair(&far, &config, &others, &others).unwrap();
        other.connect(pair.facts(&near).unwrap()).unwrap();
        pair.connect(other.facts(&far).unwrap()).unwrap();
        pair.post_receive(7, LocalSlice { region: &buffer, offset: 0, bytes: 64 }).unwrap();
        let mut removal = Removal::begin();
        let start = Instant::now();
        let mut turns = 0;
        let mut flushed = [Completion::EMPTY];
        while queue.poll(&mut flushed) == 0 {
            turns += 1;
            if queue.prepare() {
                queue.park(PATIENCE);
            }
        }
        println!("awake after {} ms and {turns} turns", start.elapsed().as_millis());
        assert_eq!((flushed[0].id, flushed[0].status), (7, Status::Flushed));
        assert!(start.elapsed() < SOON && turns < 20, "{:?}, {turns} turns", start.elapsed());
        soon("the device to be let go of", || removal.is_done().then_some(()));
        // Nobody is kept awake by what is gone.
        let start = Instant::now();
        let nap = Duration::from_millis(100);
        for _ in 0..6 {
            assert!(queue.prepare());
            queue.park(nap);
        }
        assert!(start.elapsed() >= 4 * nap, "it is busy: {:?}", start.elapsed());
        removal.undo(&interface);
        wait("the port to be active again", || is_active().then_some(()));
    }
}
