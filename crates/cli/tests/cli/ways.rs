//! What `locus info ADDRESS` says of the way to a server.

use crate::harness::{Place, locus};
use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::Duration,
};

fn info(address: &str) -> String {
    locus(&["info", address]).done().text()
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    words.iter().for_each(|word| assert!(text.contains(word), "no {word:?} in {text}"));
}

#[test]
fn a_port_that_nobody_listens_at_and_one_that_drops_what_comes_are_told_apart() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let local = listener.local_addr().unwrap();
    let (address, dport) = (format!("rdma://{local}"), format!("dport {}", local.port()));
    // A queue that is full drops what arrives, as a firewall does.
    rustix::net::listen(&listener, 0).unwrap();
    let mut fill = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&local, Duration::from_millis(300)) {
        fill.push(stream);
        assert!(fill.len() < 10, "the queue is never full");
    }
    let silent = info(&address);
    says(
        &silent,
        &["no answer", "a firewall drops TCP port", &dport, "ufw allow", "firewall-cmd", "this firewall"],
    );
    drop((listener, fill));
    let refused = info(&address);
    says(
        &refused,
        &["refused", "no server listens there, or a firewall rejects", "locus serve --listen", &dport],
    );
}

#[test]
fn what_listens_and_is_no_server_is_told() {
    let mute = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    says(&info(&format!("rdma://{}", mute.local_addr().unwrap())), &["no hello", "stopped or overloaded"]);
    says(&info("rdma://there.is.no.such.host.invalid:7471"), &["is not known", "host name"]);
}

#[test]
fn a_server_on_shared_memory_is_found_or_not() {
    let place = Place::new();
    says(&info(&place.address()), &["! served", "locus serve --listen shm:"]);
    let _server = place.serve(&[]);
    let found = info(&place.address());
    assert!(found.contains("\n  served ") && !found.contains("! served"), "{found}");
    locus(&["info", "nonsense"]).said(2, &["scheme"]);
}
