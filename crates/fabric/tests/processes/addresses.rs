//! Who may listen at a path, and what becomes of files that are already there.

use crate::roles::{Actor, Client, PATIENCE, Place, wait};
use locus_fabric::{Address, FabricError, Link, Listener, Nic, shm::ShmNic};
use std::{
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::UnixListener,
    },
    time::Duration,
};

fn nic() -> ShmNic {
    ShmNic::open().expect("shared memory")
}

/// Asserts that an address is refused as taken, with words.
fn is_taken(address: &Address) {
    match nic().listen(address).err() {
        Some(error @ FabricError::Taken { .. }) => {
            let words = error.to_string();
            assert!(words.contains(&address.to_string()), "{words}");
        }
        other => panic!("listening at {address} gave {other:?}"),
    }
}

pub fn a_second_listener_is_refused() {
    let place = Place::new();
    let _server = Actor::serve(&place);
    is_taken(&place.address());
    // The first one is as well as before.
    Client::connect(&place.address()).echo(1).expect("an echo");
    let mut second = Actor::start("compete", &place.path());
    second.says("lost");
    Client::connect(&place.address()).echo(2).expect("an echo");
    // Nor does a process get its own address twice.
    let own = Place::new();
    let _listener = nic().listen(&own.address()).expect("the address is free");
    is_taken(&own.address());
}

pub fn a_stale_socket_is_replaced() {
    let place = Place::new();
    let mut server = Actor::serve(&place);
    Client::connect(&place.address()).echo(1).expect("an echo");
    server.kill();
    drop(server);
    assert!(place.path().exists(), "a killed server leaves its socket behind");
    let refused = nic().connect(&place.address()).err();
    assert!(matches!(refused, Some(FabricError::NotServed { .. })), "{refused:?}");
    let _successor = Actor::serve(&place);
    Client::connect(&place.address()).echo(2).expect("an echo of the successor");
}

pub fn a_file_that_is_no_socket_is_left_alone() {
    let place = Place::new();
    std::fs::write(place.path(), b"a year of work").unwrap();
    is_taken(&place.address());
    assert_eq!(std::fs::read(place.path()).unwrap(), b"a year of work");
    let refused = nic().connect(&place.address()).err();
    assert!(matches!(refused, Some(FabricError::NotServed { .. })), "{refused:?}");
    let directory = Place::new();
    std::fs::create_dir(directory.path()).unwrap();
    is_taken(&directory.address());
    assert!(directory.path().is_dir());
    // A link is not followed to what it may point to.
    let link = Place::new();
    std::os::unix::fs::symlink(place.path(), link.path()).unwrap();
    assert!(nic().listen(&link.address()).is_err());
    assert_eq!(std::fs::read(place.path()).unwrap(), b"a year of work");
}

pub fn a_socket_of_another_program_is_left_alone() {
    let place = Place::new();
    let foreign = UnixListener::bind(place.path()).unwrap();
    foreign.set_nonblocking(true).unwrap();
    is_taken(&place.address());
    assert!(std::fs::symlink_metadata(place.path()).unwrap().file_type().is_socket());
    while foreign.accept().is_ok() {}
    // The other program still gets its clients.
    let _client = std::os::unix::net::UnixStream::connect(place.path()).expect("the other program listens");
    foreign.accept().expect("the other program's client");
}

pub fn the_socket_is_for_its_owner_alone() {
    // The server's process has an umask that hides nothing.
    let place = Place::new();
    let _server = Actor::serve(&place);
    let metadata = std::fs::symlink_metadata(place.path()).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    for entry in std::fs::read_dir(place.path().parent().unwrap()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{:?}", entry.path());
    }
}

pub fn nobody_is_an_error_that_says_so() {
    let place = Place::new();
    for path in [place.path(), place.path().join("deeper"), "/dev/null".into(), "/".into()] {
        let address = Address::Shm(path);
        match nic().connect(&address).err() {
            Some(error @ FabricError::NotServed { .. }) => {
                assert!(error.to_string().contains(&address.to_string()), "{error}");
            }
            other => panic!("connecting to {address} gave {other:?}"),
        }
    }
    assert!(
        nic().listen(&Address::Shm(place.path().join("deeper"))).is_err(),
        "a directory that is not there"
    );
}

pub fn a_dropped_listener_frees_its_address() {
    let place = Place::new();
    let nic = nic();
    for _ in 0..5 {
        let listener = nic.listen(&place.address()).expect("the address is free");
        assert_eq!(listener.address(), place.address());
        assert!(listener.accept(Duration::from_millis(1)).expect("the listener works").is_none());
    }
    // A link that was accepted keeps the address until it is closed, since its peer believes in it as long.
    let listener = nic.listen(&place.address()).expect("the address is free");
    let connecting = {
        let (nic, address) = (nic.clone(), place.address());
        std::thread::spawn(move || nic.connect(&address).expect("the listener is there"))
    };
    let accepted = listener.accept(PATIENCE).expect("the listener works").expect("a client");
    let client = connecting.join().expect("the client's own assertions");
    drop(listener);
    assert!(client.alive() && accepted.alive());
    let gone = nic.connect(&place.address()).err();
    assert!(matches!(gone, Some(FabricError::NotServed { .. })), "{gone:?}");
    is_taken(&place.address());
    accepted.close();
    let _next = wait("the address", || nic.listen(&place.address()).ok());
    assert!(!client.alive());
}

pub fn many_processes_compete_for_one_address() {
    for round in 0..3 {
        let place = Place::new();
        if round > 0 {
            // A stale socket is there, which each of them wants to replace.
            let mut server = Actor::serve(&place);
            server.kill();
        }
        let mut actors: Vec<_> = (0..6).map(|_| Actor::start("compete", &place.path())).collect();
        let won = actors.iter_mut().map(Actor::line).filter(|line| line == "won").count();
        assert_eq!(won, 1, "round {round}");
        is_taken(&place.address());
    }
}
