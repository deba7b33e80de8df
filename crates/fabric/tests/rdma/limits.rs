//! What befalls a process that may lock little memory (`vm/softroce --memlock 8192`).

use crate::{peer::nic, test};
use libtest_mimic::Trial;
use locus_fabric::{Access, Link, LocalSlice, Nic, PagePolicy, PostError, QueuePair, QueuePairState};

pub fn tests() -> Vec<Trial> {
    vec![test("too_little_locked_memory_is_an_error_that_says_so", too_little_locked_memory)]
}

fn too_little_locked_memory() {
    let nic = nic();
    let (near, far) = nic.pair().unwrap();
    let small = nic.register(64 << 10, Access::RemoteRead, PagePolicy::Base).unwrap();
    let large = nic.register(16 << 20, Access::RemoteRead, PagePolicy::Base).unwrap();
    let error = near.grant(&large).expect_err("more than may be locked").to_string();
    println!("{error}");
    assert!(error.contains("memory is locked") && error.contains("ulimit -l"), "{error}");
    // A verb with memory of which too much would be locked is refused, and the queue pair is as it was.
    let queue = nic.create_completion_queue(4).unwrap();
    let mut pair = nic.create_queue_pair(&near, &Default::default(), &queue, &queue).unwrap();
    let into = LocalSlice { region: &large, offset: 0, bytes: 64 };
    assert_eq!(pair.post_receive(1, into), Err(PostError::Unregistered));
    let into = LocalSlice { region: &small, offset: 0, bytes: 64 };
    pair.post_receive(2, into).unwrap();
    assert_eq!(pair.state(), QueuePairState::Init);
    // What fits goes on, and so does the link.
    far.import(near.grant(&small).unwrap()).unwrap();
    assert!(near.alive() && far.alive());
}
