//! Peers that die: what a death shows, how soon, and what it leaves. `kill -9` is the test's, at any moment.

use crate::roles::{Actor, Client, PATIENCE, Place, READABLE_BYTES, serve_client, wait, word_at};
use locus_fabric::{
    Access, Completion, CompletionQueue, FabricError, Link, Listener, Nic, PagePolicy, Park, QueuePair,
    QueuePairState, Region, Status, shm::ShmNic,
};
use std::time::Duration;

/// Asserts that everything of a client whose server is gone is flushed in order, and that it can say so.
fn is_lost(client: &mut Client, receives: impl IntoIterator<Item = u64>) {
    wait("the death to show", || (!client.link.alive()).then_some(()));
    for id in receives {
        let completion = client.completion();
        let lost = matches!(completion.status, Status::Flushed | Status::PeerLost);
        assert!(completion.id == id && lost, "RECV {id}: {completion:?}");
    }
    assert!(!client.link.check());
    assert_eq!(client.queue_pair.state(), QueuePairState::Error);
    client.post_read(77, 0, 8);
    let completion = client.completion();
    assert!(matches!(completion.status, Status::Flushed | Status::PeerLost), "{completion:?}");
    client.post_send(78, 0);
    let completion = client.completion();
    assert!(matches!(completion.status, Status::Flushed | Status::PeerLost), "{completion:?}");
    let sent = client.link.send(b"anybody?", Vec::new());
    assert!(sent.is_err(), "a message to the dead");
    let refused = client.nic.create_queue_pair(
        &client.link,
        &crate::roles::config(locus_fabric::Transport::Rc),
        &client.queue,
        &client.queue,
    );
    assert!(matches!(refused.err(), Some(FabricError::PeerLost { .. })));
}

pub fn a_killed_server_is_noticed_amid_traffic() {
    for round in 0..10 {
        let place = Place::new();
        let mut server = Actor::serve(&place);
        let mut client = Client::connect(&place.address());
        for word in 0..100 + round * 37 {
            client.echo(word).expect("an echo");
        }
        server.kill();
        let mut word = 0;
        wait("the traffic to end", || {
            word += 1;
            client.read(word as usize * 8 % READABLE_BYTES).and_then(|()| client.echo(word)).err()
        });
        // Half an echo may be left: the RECV whose message never came, or the rest of what failed.
        wait("the death to show", || (!client.link.alive()).then_some(()));
        while client.queue.poll(&mut [Completion::EMPTY; 8]) > 0 {}
        is_lost(&mut client, []);
    }
}

pub fn a_killed_server_is_noticed_between_messages() {
    for _ in 0..10 {
        let place = Place::new();
        let mut server = Actor::serve(&place);
        let mut client = Client::connect(&place.address());
        client.echo(1).expect("an echo");
        for id in 10..20 {
            client.post_receive(id);
        }
        assert!(client.link.alive() && client.link.check());
        server.kill();
        // No look at the link and no verb, only plain polling.
        is_lost(&mut client, 10..20);
    }
}

pub fn a_killed_server_wakes_a_sleeping_client() {
    let place = Place::new();
    let mut server = Actor::serve(&place);
    let (ready, asleep) = std::sync::mpsc::channel();
    let address = place.address();
    let sleeper = std::thread::spawn(move || {
        let mut client = Client::connect(&address);
        client.post_receive(9);
        ready.send(client.link.clone()).unwrap();
        let mut room = [Completion::EMPTY; 4];
        loop {
            if client.queue.poll(&mut room) > 0 {
                return room[0];
            }
            if client.queue.prepare() {
                client.queue.park(Duration::from_secs(3600));
            }
        }
    });
    let link = asleep.recv().expect("the sleeper's link");
    server.kill();
    // This is the housekeeping thread of the client's process.
    wait("the link to be seen dead", || (!link.check()).then_some(()));
    wait("the sleeper to wake", || sleeper.is_finished().then_some(()));
    let completion = sleeper.join().expect("the sleeper's own assertions");
    assert_eq!(completion.id, 9);
    assert_ne!(completion.status, Status::Success);
}

pub fn a_server_that_exits_is_noticed() {
    let place = Place::new();
    let mut server = Actor::serve(&place);
    let mut client = Client::connect(&place.address());
    client.echo(1).expect("an echo");
    client.post_receive(10);
    server.tell("exit");
    server.ends_well();
    is_lost(&mut client, [10]);
}

/// A server in this process, with a region that clients can read.
fn server(place: &Place) -> (ShmNic, <ShmNic as Nic>::Listener, <ShmNic as Nic>::Region) {
    let nic = ShmNic::open().expect("shared memory");
    let region = nic.register(READABLE_BYTES, Access::RemoteRead, PagePolicy::Base).expect("memory");
    (0..READABLE_BYTES / 8).for_each(|index| region.store(index, word_at(index * 8)));
    let listener = nic.listen(&place.address()).expect("the address is free");
    (nic, listener, region)
}

pub fn a_killed_client_is_noticed_and_others_go_on() {
    let place = Place::new();
    let (nic, listener, region) = server(&place);
    std::thread::scope(|scope| {
        let mut clients: Vec<_> = (0..2).map(|_| Actor::start("traffic", &place.path())).collect();
        let links: Vec<_> = clients
            .iter()
            .map(|_| {
                let link = listener.accept(PATIENCE).expect("the listener works").expect("a client");
                let served = (nic.clone(), link.clone(), region.clone());
                scope.spawn(move || serve_client(&served.0, &served.1, &served.2));
                link
            })
            .collect();
        clients.iter_mut().for_each(|client| client.says("running"));
        assert!(links.iter().all(|link| link.check()));
        clients[0].kill();
        wait("a death to show", || links.iter().any(|link| !link.alive()).then_some(()));
        let living = links.iter().find(|link| link.alive()).expect("one client lives");
        assert!(living.check());
        // The other one's traffic does not stop: each of its READs and echoes is checked by itself.
        let mut newcomer = Actor::start("traffic", &place.path());
        let link = listener.accept(PATIENCE).expect("the listener works").expect("a client");
        scope.spawn({
            let (nic, region) = (nic.clone(), region.clone());
            move || serve_client(&nic, &link, &region)
        });
        newcomer.says("running");
        assert!(clients[1].runs() && living.check());
        // The serving threads end when their clients do.
        drop((clients, newcomer));
    });
}

pub fn a_killed_client_leaves_nothing_behind() {
    let place = Place::new();
    let (nic, listener, region) = server(&place);
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("/proc").count();
    let serve_one = || {
        let mut client = Actor::start("traffic", &place.path());
        let link = listener.accept(PATIENCE).expect("the listener works").expect("a client");
        std::thread::scope(|scope| {
            scope.spawn(|| serve_client(&nic, &link, &region));
            client.says("running");
            client.kill();
        });
        assert!(!link.alive());
    };
    // Other tests of this process open and close descriptors meanwhile: what would leak would add up beyond them.
    serve_one();
    let before = descriptors();
    (0..20).for_each(|_| serve_one());
    wait("descriptors to be closed", || (descriptors() < before + 20).then_some(()));
}

pub fn a_successor_listens_only_after_the_death_shows() {
    let place = Place::new();
    let nic = ShmNic::open().expect("shared memory");
    for round in 0..30 {
        let mut server = Actor::serve(&place);
        let mut client = Client::connect(&place.address());
        for word in 0..round * 11 {
            client.echo(word).expect("an echo");
        }
        assert!(matches!(nic.listen(&place.address()).err(), Some(FabricError::Taken { .. })));
        server.kill();
        let successor = wait("the address", || nic.listen(&place.address()).ok());
        // At this very moment, with no system call in between: the predecessor is seen to be dead.
        assert!(!client.link.alive(), "round {round}: a successor listens, and its predecessor seems alive");
        drop(successor);
    }
}

pub fn reads_fail_soon_after_a_death() {
    for _ in 0..10 {
        let place = Place::new();
        let mut server = Actor::serve(&place);
        let mut client = Client::connect(&place.address());
        server.kill();
        // READs alone, which need nothing of the server. Whoever must know at once asks the link.
        wait("READs to fail", || client.read(8).err());
        is_lost(&mut client, []);
    }
}
