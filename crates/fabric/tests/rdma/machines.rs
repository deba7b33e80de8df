//! What befalls a peer on another machine: machine 1 stands still, without a word, as when its power fails.

use crate::{
    SOON,
    peer::{accept, nic, stay, take, wait},
    test,
};
use libtest_mimic::Trial;
use locus_fabric::{Link, Listener, Nic, Status, Transport};
use std::{
    path::{Path, PathBuf},
    time::Instant,
};

pub fn tests(machine: usize) -> Vec<Trial> {
    match machine {
        0 => vec![test("a_machine_that_stands_still_shows_soon", a_machine_that_stands_still)],
        _ => vec![test("a_machine_that_stood_still_finds_its_links_ended", stand_still)],
    }
}

/// The folder that the machines and their keeper share.
fn shared() -> PathBuf {
    std::env::var("SOFTROCE_OUT").expect("SOFTROCE_OUT").into()
}

/// Makes a file that appears as a whole.
fn write(path: &Path, text: &str) {
    let half = path.with_extension("half");
    std::fs::write(&half, text).unwrap();
    std::fs::rename(half, path).unwrap();
}

fn a_machine_that_stands_still() {
    let nic = nic();
    let listener = nic.listen(&"rdma://10.99.100.1:0".parse().unwrap()).unwrap();
    write(&shared().join("address"), &listener.address().to_string());
    let mut ends: Vec<_> = (0..3).map(|_| accept(&nic, &listener)).collect();
    ends.iter_mut().for_each(|(end, _)| assert_eq!(end.read(), Status::Success));
    write(&shared().join("pause-1"), "");
    // It is noticed by what it does not say; when it fell silent, nobody here knows, but after this.
    wait("the machine to be paused", || (!shared().join("pause-1").exists()).then_some(()));
    let start = Instant::now();
    ends.iter_mut().for_each(|(end, _)| end.post_read());
    wait("all links to end", || ends.iter().all(|(end, _)| !end.link.alive()).then_some(()));
    let took = start.elapsed();
    println!("three links with a machine that stands still ended after {} ms", took.as_millis());
    for (end, transport) in &mut ends {
        assert_ne!(wait("the READ to end", || take(&mut end.reads)).status, Status::Success);
        if *transport != Transport::Ud {
            assert_eq!(wait("a RECV to be flushed", || take(&mut end.queue)).status, Status::Flushed);
        }
    }
    write(&shared().join("resume-1"), "");
    assert!(took < SOON, "it took {took:?}");
}

fn stand_still() {
    let address = wait("the address", || std::fs::read_to_string(shared().join("address")).ok());
    let address = address.parse().unwrap();
    std::thread::scope(|scope| {
        for transport in ["Rc", "Uc", "Ud"] {
            scope.spawn(|| stay(&nic(), &address, transport));
        }
    });
}
