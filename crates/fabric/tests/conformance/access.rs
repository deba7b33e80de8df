//! What remote regions allow: ranges, rights, revocation. A verb that they do not allow fails with
//! [`Status::RemoteAccess`], breaks its queue pair, and changes nothing.

use crate::{
    Case,
    fixture::{
        Duo, Fixture, bytes_of, compare_swap, fetch_add, local, pattern, read, remote, slice, unsignaled,
        wait, write, write_immediate,
    },
    list,
};
use locus_fabric::{
    Access, Atomicity, Link, Nic, Opcode, PagePolicy, Payload, QueuePair, QueuePairState, Region,
    SendRequest, Status, Transport::*,
};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "rc::read_outside_the_region_fails" => read_outside_the_region_fails,
        "rc::write_outside_the_region_fails" => write_outside_the_region_fails,
        "rc::atomics_outside_the_region_fail" => atomics_outside_the_region_fail,
        "rc::a_read_only_region_cannot_be_written" => a_read_only_region_cannot_be_written,
        "uc::write_outside_the_region_changes_nothing" => write_outside_over_uc_changes_nothing,
        "uc::a_read_only_region_cannot_be_written" => a_read_only_region_cannot_be_written_over_uc,
        "regions::a_local_region_cannot_be_granted" => a_local_region_cannot_be_granted,
        "rc::what_follows_a_failure_is_flushed_and_not_done" => what_follows_a_failure_is_flushed_and_not_done,
        "rc::write_with_immediate_that_fails_is_not_announced" => failed_write_is_not_announced,
        "rc::a_revoked_region_cannot_be_reached" => a_revoked_region_cannot_be_reached,
        "rc::a_read_that_waits_fails_when_its_region_is_revoked" => a_read_that_waits_fails_when_revoked,
        "rc::revoking_one_region_spares_the_others" => revoking_one_region_spares_the_others,
        "rc::revoking_reaches_all_peers" => revoking_reaches_all_peers,
        "rc::a_dropped_region_is_old_bytes_or_an_error" => a_dropped_region_is_old_bytes_or_an_error,
        "rc::a_region_is_reached_over_its_own_link_alone" => a_region_is_reached_over_its_own_link_alone,
        "rc::a_failure_spares_other_queue_pairs_of_the_link" => a_failure_spares_other_queue_pairs,
    ]
}

/// Asserts that a request fails with a remote access error, and that its queue pair is broken and flushes.
fn is_denied<N: Nic>(fixture: &Fixture<N>, request: &SendRequest<'_, N>) {
    let mut duo = fixture.duo(Rc);
    // A NIC may look for the RECV of a WRITE with immediate before it looks at the range.
    let region = duo.far.nic.register(64, Access::Local, PagePolicy::Base).unwrap();
    duo.far.receive(1000, &region, 0, 64);
    duo.near.post(request);
    duo.sent_badly(request.id, Status::RemoteAccess);
    assert_eq!(duo.near.queue_pair.state(), QueuePairState::Error);
    is_flushing(&mut duo);
}

/// Asserts that whatever is posted to the near end is flushed.
fn is_flushing<N: Nic>(duo: &mut Duo<N>) {
    let region = duo.near.nic.register(64, Access::Local, PagePolicy::Base).unwrap();
    duo.send_inline(1001, b"too late");
    duo.sent_badly(1001, Status::Flushed);
    duo.near.receive(1002, &region, 0, 64);
    let received = wait("the flushed RECV", || {
        duo.pump();
        duo.near.take_received()
    });
    assert_eq!((received.id, received.status), (1002, Status::Flushed));
}

/// Offset and length of ranges that are outside a region of `bytes`, some of them so that their end overflows.
fn outside(bytes: usize) -> [(usize, usize); 9] {
    [
        (bytes, 1),
        (bytes - 1, 2),
        (bytes - 7, 8),
        (bytes - 63, 64),
        (bytes + 8, 8),
        (1 << 40, 8),
        (usize::MAX - 7, 8),
        (usize::MAX, 1),
        (0, bytes + 1),
    ]
}

fn read_outside_the_region_fails<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(16 << 10, Access::Local), fixture.region(4096, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    theirs.copy_in(0, &pattern(1, 4096));
    for (offset, bytes) in outside(theirs.bytes()) {
        if bytes <= ours.bytes() {
            is_denied(fixture, &read(1, local(&ours, 0, bytes), remote(&shared, offset)));
        }
    }
}

fn write_outside_the_region_fails<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(16 << 10, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    ours.copy_in(0, &pattern(1, 16 << 10));
    for (offset, bytes) in outside(theirs.bytes()) {
        if bytes <= ours.bytes() {
            is_denied(fixture, &write(1, slice(&ours, 0, bytes), remote(&shared, offset)));
        }
    }
    is_denied(fixture, &write(2, Payload::Inline(&[b"inline"]), remote(&shared, theirs.bytes() - 5)));
    assert_eq!(
        bytes_of(&theirs, 0, theirs.bytes()),
        vec![0; theirs.bytes()],
        "a WRITE that failed left bytes"
    );
}

fn atomics_outside_the_region_fail<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    for offset in [theirs.bytes(), theirs.bytes() + 8, 1 << 40, usize::MAX - 7] {
        let swap = compare_swap(1, local(&ours, 0, 8), remote(&shared, offset), 0, 1);
        let add = fetch_add(2, local(&ours, 0, 8), remote(&shared, offset), 1);
        if fixture.nic.properties().atomics == Atomicity::None {
            crate::legality::is_illegal(&mut fixture.duo(Rc).near, &swap);
            crate::legality::is_illegal(&mut fixture.duo(Rc).near, &add);
        } else {
            is_denied(fixture, &swap);
            is_denied(fixture, &add);
        }
    }
    assert_eq!(bytes_of(&theirs, 0, theirs.bytes()), vec![0; theirs.bytes()]);
}

fn a_read_only_region_cannot_be_written<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    let stored = pattern(1, 4096);
    theirs.copy_in(0, &stored);
    is_denied(fixture, &write(1, slice(&ours, 0, 100), remote(&shared, 0)));
    is_denied(fixture, &write(2, Payload::Inline(&[b"inline"]), remote(&shared, 8)));
    is_denied(fixture, &write_immediate(3, slice(&ours, 0, 100), remote(&shared, 0), 1));
    if fixture.nic.properties().atomics != Atomicity::None {
        is_denied(fixture, &compare_swap(4, local(&ours, 0, 8), remote(&shared, 0), 0, 1));
        is_denied(fixture, &fetch_add(5, local(&ours, 0, 8), remote(&shared, 0), 1));
    }
    assert_eq!(bytes_of(&theirs, 0, 4096), stored);
    // It still can be read.
    let mut duo = fixture.duo(Rc);
    duo.near.post(&read(6, local(&ours, 0, 4096), remote(&shared, 0)));
    duo.sent_well(6, Opcode::Read);
    assert_eq!(bytes_of(&ours, 0, 4096), stored);
}

fn write_outside_over_uc_changes_nothing<N: Nic>(fixture: &mut Fixture<N>) {
    let theirs = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&theirs);
    for offset in [theirs.bytes() - 3, theirs.bytes(), 1 << 40, usize::MAX - 1] {
        let mut duo = fixture.duo(Uc);
        duo.near.post(&write(1, Payload::Inline(&[b"lost"]), remote(&shared, offset)));
        // Nobody answers over UC, so the sender cannot know.
        duo.sent_well(1, Opcode::Write);
        duo.settle();
        assert_eq!(duo.near.queue_pair.state(), QueuePairState::Ready);
        assert_eq!(bytes_of(&theirs, 0, theirs.bytes()), vec![0; theirs.bytes()]);
    }
}

fn a_read_only_region_cannot_be_written_over_uc<N: Nic>(fixture: &mut Fixture<N>) {
    let theirs = fixture.region(4096, Access::RemoteRead);
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Uc);
    duo.near.post(&write(1, Payload::Inline(&[b"lost"]), remote(&shared, 0)));
    duo.sent_well(1, Opcode::Write);
    duo.settle();
    assert_eq!(bytes_of(&theirs, 0, 4096), vec![0; 4096]);
    assert_eq!(duo.near.queue_pair.state(), QueuePairState::Ready);
}

fn a_local_region_cannot_be_granted<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::Local);
    assert!(fixture.near.grant(&region).is_err());
    assert!(fixture.far.grant(&region).is_err());
}

fn what_follows_a_failure_is_flushed_and_not_done<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    for id in 50..53 {
        duo.near.receive(id, &ours, 1024, 64);
        duo.far.receive(id, &theirs, 2048, 64);
    }
    duo.near.queue(&write(1, Payload::Inline(&[b"done"]), remote(&shared, 0)));
    duo.near.queue(&unsignaled(write(2, Payload::Inline(&[b"done"]), remote(&shared, 8))));
    duo.near.queue(&read(3, local(&ours, 0, 8), remote(&shared, theirs.bytes())));
    duo.near.queue(&write(4, Payload::Inline(&[b"not done"]), remote(&shared, 16)));
    duo.near.queue(&unsignaled(read(5, local(&ours, 64, 4), remote(&shared, 0))));
    duo.try_send(6, Payload::Inline(&[b"not sent"]), None).unwrap();
    if fixture.nic.properties().atomics != Atomicity::None {
        duo.near.queue(&fetch_add(7, local(&ours, 0, 8), remote(&shared, 32), 1));
    } else {
        duo.near.queue(&unsignaled(write(7, Payload::Inline(&[b"not done"]), remote(&shared, 32))));
    }
    duo.near.queue_pair.ring().unwrap();
    duo.sent_well(1, Opcode::Write);
    duo.sent_badly(3, Status::RemoteAccess);
    for id in 4..=7 {
        duo.sent_badly(id, Status::Flushed);
    }
    for id in 50..53 {
        let received = wait("a flushed RECV", || {
            duo.pump();
            duo.near.take_received()
        });
        assert_eq!((received.id, received.status), (id, Status::Flushed));
    }
    assert_eq!(duo.near.queue_pair.state(), QueuePairState::Error);
    let mut expected = vec![0; 256];
    expected[..4].copy_from_slice(b"done");
    expected[8..12].copy_from_slice(b"done");
    assert_eq!(bytes_of(&theirs, 0, 256), expected);
    assert_eq!(bytes_of(&ours, 0, 256), vec![0; 256]);
    assert_eq!(bytes_of(&theirs, 2048, 64), vec![0; 64]);
    is_flushing(&mut duo);
}

fn failed_write_is_not_announced<N: Nic>(fixture: &mut Fixture<N>) {
    let theirs = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    duo.far.receive(1, &theirs, 0, 64);
    duo.near.post(&write_immediate(
        2,
        Payload::Inline(&[b"outside"]),
        remote(&shared, theirs.bytes() - 1),
        3,
    ));
    duo.sent_badly(2, Status::RemoteAccess);
    duo.settle();
    if let Some(received) = duo.far.take_received() {
        assert_ne!(received.status, Status::Success);
    }
}

fn a_revoked_region_cannot_be_reached<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    theirs.copy_in(0, b"public");
    let mut duo = fixture.duo(Rc);
    duo.near.post(&read(1, local(&ours, 0, 6), remote(&shared, 0)));
    duo.sent_well(1, Opcode::Read);
    theirs.revoke();
    theirs.copy_in(0, b"secret");
    is_denied(fixture, &read(2, local(&ours, 100, 6), remote(&shared, 0)));
    // Also on the queue pair that has used it before, with a handle that was cloned.
    duo.near.post(&read(3, local(&ours, 100, 6), remote(&shared.clone(), 0)));
    duo.sent_badly(3, Status::RemoteAccess);
    is_denied(fixture, &write(4, Payload::Inline(&[b"broken"]), remote(&shared, 0)));
    if fixture.nic.properties().atomics != Atomicity::None {
        is_denied(fixture, &fetch_add(5, local(&ours, 0, 8), remote(&shared, 8), 1));
        is_denied(fixture, &compare_swap(6, local(&ours, 0, 8), remote(&shared, 8), 0, 1));
    }
    // What the buffer of a READ that failed holds is undefined; what earlier ones brought stays.
    assert_eq!(bytes_of(&ours, 0, 6), b"public");
    // The owner goes on using it, twice revoked or not.
    theirs.revoke();
    assert_eq!(bytes_of(&theirs, 0, 16), b"secret\0\0\0\0\0\0\0\0\0\0");
}

fn a_read_that_waits_fails_when_revoked<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    // The READ waits behind a SEND that nobody receives yet.
    duo.send_inline(1, b"hold");
    duo.near.post(&read(2, local(&ours, 0, 8), remote(&shared, 0)));
    duo.is_well();
    theirs.revoke();
    duo.far.receive(3, &ours, 1024, 64);
    duo.sent_well(1, Opcode::Send);
    duo.sent_badly(2, Status::RemoteAccess);
}

fn revoking_one_region_spares_the_others<N: Nic>(fixture: &mut Fixture<N>) {
    let ours = fixture.region(4096, Access::Local);
    let theirs = [fixture.region(4096, Access::RemoteRead), fixture.region(4096, Access::RemoteRead)];
    let shared = [fixture.share(&theirs[0]), fixture.share(&theirs[1])];
    theirs[1].copy_in(0, b"still here");
    theirs[0].revoke();
    let mut duo = fixture.duo(Rc);
    duo.near.post(&read(1, local(&ours, 0, 10), remote(&shared[1], 0)));
    duo.sent_well(1, Opcode::Read);
    assert_eq!(bytes_of(&ours, 0, 10), b"still here");
    is_denied(fixture, &read(2, local(&ours, 0, 10), remote(&shared[0], 0)));
}

fn revoking_reaches_all_peers<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteRead));
    let others: Vec<_> = (0..5).map(|_| fixture.another()).collect();
    let shared: Vec<_> = others.iter().map(|other| other.share(&theirs)).collect();
    for (other, shared) in others.iter().zip(&shared) {
        let mut duo = other.duo(Rc);
        duo.near.post(&read(1, local(&ours, 0, 8), remote(shared, 0)));
        duo.sent_well(1, Opcode::Read);
    }
    theirs.revoke();
    for (other, shared) in others.iter().zip(&shared) {
        is_denied(other, &read(1, local(&ours, 0, 8), remote(shared, 0)));
    }
}

fn a_dropped_region_is_old_bytes_or_an_error<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) =
        (fixture.region(64 << 10, Access::Local), fixture.region(64 << 10, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    let stored = pattern(1, 64 << 10);
    theirs.copy_in(0, &stored);
    drop(theirs);
    // New memory must not show through where the old was.
    let next = fixture.region(64 << 10, Access::RemoteRead);
    next.copy_in(0, &[0xDD; 64 << 10]);
    let mut duo = fixture.duo(Rc);
    duo.near.post(&read(1, local(&ours, 0, 64 << 10), remote(&shared, 0)));
    match duo.sent().status {
        Status::Success => assert!(bytes_of(&ours, 0, 64 << 10) == stored),
        status => assert_eq!(status, Status::RemoteAccess),
    }
}

fn a_region_is_reached_over_its_own_link_alone<N: Nic>(fixture: &mut Fixture<N>) {
    // A grant is to one peer; whoever else learns of it (or guesses an rkey) gets nothing.
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let other = fixture.another();
    let shared = other.share(&theirs);
    is_denied(fixture, &read(1, local(&ours, 0, 8), remote(&shared, 0)));
    is_denied(fixture, &write(2, slice(&ours, 0, 8), remote(&shared, 0)));
    let mut duo = other.duo(Rc);
    duo.near.post(&read(3, local(&ours, 0, 8), remote(&shared, 0)));
    duo.sent_well(3, Opcode::Read);
}

fn a_failure_spares_other_queue_pairs<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    let mut spared = fixture.duo(Rc);
    is_denied(fixture, &read(1, local(&ours, 0, 8), remote(&shared, 1 << 30)));
    spared.near.post(&read(2, local(&ours, 0, 8), remote(&shared, 0)));
    spared.sent_well(2, Opcode::Read);
    assert!(fixture.near.alive() && fixture.far.alive());
    spared.is_well();
}
