//! READs that are carried out at once, past the completion queue, where the NIC declares that it can. Where it does not,
//! they are refused and change nothing, which is what these cases then assert. A refusal tells no reason: posting does.

use crate::{
    Case,
    fixture::{Duo, End, Fixture, bytes_of, local, pattern, read, remote, wait},
    list,
};
use locus_fabric::{
    Access, Link, Nic, Opcode, QueuePair, QueuePairState, Region, RemoteRegion, Status, Transport,
    Transport::*,
};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "rc::read_at_once_returns_what_was_stored" => returns_what_was_stored,
        "rc::read_at_once_waits_for_nothing_posted" => waits_for_nothing_posted,
        "rc::read_at_once_is_refused_outside_of_regions" => is_refused_outside_of_regions,
        "rc::read_at_once_is_refused_after_revoking" => is_refused_after_revoking,
        "rc::read_at_once_is_refused_over_another_link" => is_refused_over_another_link,
        "rc::read_at_once_is_refused_by_a_broken_queue_pair" => is_refused_by_a_broken_queue_pair,
        "rc::read_at_once_is_refused_before_connecting" => is_refused_before_connecting,
        "uc::read_at_once_is_refused" => |f| is_refused_without_reads(f, Uc),
        "ud::read_at_once_is_refused" => |f| is_refused_without_reads(f, Ud),
    ]
}

/// Tries a READ at once and says whether it was carried out. It raises no completion in any case.
fn at_once<N: Nic>(end: &mut End<N>, into: &mut [u8], theirs: &N::RemoteRegion, from: usize) -> bool {
    let state = end.queue_pair.state();
    let done = end.queue_pair.read_at_once(into, &remote(theirs, from));
    assert!(!done || end.nic.properties().reads_at_once, "a NIC does what it does not declare");
    assert_eq!(end.queue_pair.state(), state);
    done
}

fn returns_what_was_stored<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(64 << 10, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    let stored = pattern(1, theirs.bytes());
    theirs.copy_in(0, &stored);
    let declared = fixture.nic.properties().reads_at_once;
    let mut duo = fixture.duo(Rc);
    for bytes in [0, 1, 3, 7, 8, 9, 16, 31, 32, 63, 64, 65, 100, 1000, 1024, 4096, 40_001] {
        for (at, from) in [(0, 0), (8, 16), (1, 0), (0, 1), (3, 5), (7, 7), (64, 4093)] {
            let mut into = pattern(2, bytes + 128);
            let mut expected = into.clone();
            assert_eq!(at_once(&mut duo.near, &mut into[at..at + bytes], &shared, from), declared);
            if declared {
                expected[at..at + bytes].copy_from_slice(&stored[from..from + bytes]);
            }
            assert!(into == expected, "READ of {bytes} from {from} to {at}");
        }
    }
    // What the owner stored before is what is read: nothing stale, and the other kind of READ goes beside it.
    for round in 0..1000 {
        theirs.store(3, round);
        let mut word = [0; 8];
        if at_once(&mut duo.near, &mut word, &shared, 24) {
            assert_eq!(word, round.to_le_bytes());
        }
        if round % 10 == 0 {
            duo.near.post(&read(round, local(&ours, 8, 8), remote(&shared, 24)));
            duo.sent_well(round, Opcode::Read);
            assert_eq!(bytes_of(&ours, 8, 8), round.to_le_bytes());
        }
    }
    duo.is_well();
}

fn waits_for_nothing_posted<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    // It would overtake a SEND that waits for its RECV.
    duo.send_inline(1, b"before");
    assert!(!at_once(&mut duo.near, &mut [0; 8], &shared, 0));
    duo.is_well();
    assert!(!at_once(&mut duo.near, &mut [0; 8], &shared, 0));
    duo.far.receive(2, &ours, 1024, 64);
    duo.received_well(2, 6, None);
    duo.sent_well(1, Opcode::Send);
    assert_eq!(at_once(&mut duo.near, &mut [0; 8], &shared, 0), fixture.nic.properties().reads_at_once);
}

fn is_refused_outside_of_regions<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(8192, Access::Local), fixture.region(4096, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    let far = shared.bytes();
    let mut into = vec![0; far + 1];
    for (from, bytes) in [
        (far, 1),
        (far - 7, 8),
        (far + 8, 8),
        (1 << 40, 8),
        (usize::MAX - 7, 8),
        (usize::MAX, 1),
        (0, far + 1),
    ] {
        assert!(!at_once(&mut duo.near, &mut into[..bytes], &shared, from), "{bytes} bytes from {from}");
    }
    assert_eq!(into, vec![0; far + 1]);
    duo.is_well();
    // Posting says why.
    duo.near.post(&read(1, local(&ours, 0, 8), remote(&shared, far)));
    duo.sent_badly(1, Status::RemoteAccess);
}

fn is_refused_after_revoking<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    at_once(&mut duo.near, &mut [0; 8], &shared, 0);
    theirs.revoke();
    assert!(!at_once(&mut duo.near, &mut [0; 8], &shared, 0));
    duo.near.post(&read(1, local(&ours, 0, 8), remote(&shared, 0)));
    duo.sent_badly(1, Status::RemoteAccess);
}

fn is_refused_over_another_link<N: Nic>(fixture: &mut Fixture<N>) {
    let theirs = fixture.region(4096, Access::RemoteRead);
    let shared = fixture.another().share(&theirs);
    let mut duo = fixture.duo(Rc);
    assert!(!at_once(&mut duo.near, &mut [0; 8], &shared, 0));
    duo.is_well();
}

fn is_refused_by_a_broken_queue_pair<N: Nic>(fixture: &mut Fixture<N>) {
    let theirs = fixture.region(4096, Access::RemoteRead);
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    duo.near.queue_pair.fail();
    assert!(!at_once(&mut duo.near, &mut [0; 8], &shared, 0));
    // And by one whose peer is gone, as soon as it knows: whoever must know at once asks the link.
    let mut duo = fixture.duo(Rc);
    fixture.far.close();
    wait("READs to be refused", || {
        duo.near.poll();
        (!at_once(&mut duo.near, &mut [0; 8], &shared, 0)).then_some(())
    });
    wait("the queue pair to know", || {
        duo.near.poll();
        (duo.near.queue_pair.state() == QueuePairState::Error).then_some(())
    });
}

fn is_refused_before_connecting<N: Nic>(fixture: &mut Fixture<N>) {
    let theirs = fixture.region(4096, Access::RemoteRead);
    let shared = fixture.share(&theirs);
    let mut end = End::new(&fixture.nic, &fixture.near, &fixture.config(Rc));
    assert!(!at_once(&mut end, &mut [0; 8], &shared, 0));
}

fn is_refused_without_reads<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let theirs = fixture.region(4096, Access::RemoteRead);
    let shared = fixture.share(&theirs);
    let mut duo: Duo<N> = fixture.duo(transport);
    assert!(!at_once(&mut duo.near, &mut [0; 8], &shared, 0));
    duo.is_well();
}
