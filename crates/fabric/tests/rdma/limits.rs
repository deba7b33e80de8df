//! What befalls a process that may lock little memory (`vm/softroce --memlock 8192`).

use crate::{peer::nic, test};
use libtest_mimic::Trial;
use locus_fabric::{Access, Link, Nic, PagePolicy};

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
    // What fits goes on, and so does the link.
    far.import(near.grant(&small).unwrap()).unwrap();
    assert!(near.alive() && far.alive());
}
