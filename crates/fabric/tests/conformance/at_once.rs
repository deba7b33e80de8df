//! READs and WRITEs that are carried out at once, past the queues, where the NIC declares that it can. Where it does not,
//! they are refused and change nothing, which is what these cases then assert. A refusal tells no reason: posting does.

use crate::{
    Case,
    fixture::{Duo, End, Fixture, bytes_of, local, pattern, read, remote, wait, write},
    list,
};
use locus_fabric::{
    Access, Link, Nic, Opcode, Payload, QueuePair, QueuePairState, Region, RemoteRegion, Status, Transport,
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
        "rc::write_at_once_stores_what_it_is_given" => |f| stores_what_it_is_given(f, Rc),
        "uc::write_at_once_stores_what_it_is_given" => |f| stores_what_it_is_given(f, Uc),
        "rc::write_at_once_overtakes_nothing" => overtakes_nothing,
        "rc::write_at_once_is_refused_where_posting_fails" => |f| write_is_refused_where_posting_fails(f, Rc),
        "uc::write_at_once_is_refused_where_posting_fails" => |f| write_is_refused_where_posting_fails(f, Uc),
        "rc::write_at_once_is_refused_unless_ready" => |f| write_is_refused_unless_ready(f, Rc),
        "uc::write_at_once_is_refused_unless_ready" => |f| write_is_refused_unless_ready(f, Uc),
        "ud::write_at_once_is_refused" => write_is_refused_on_ud,
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

/// Tries a WRITE at once and says whether it was carried out. It raises no completion in any case.
fn write_at_once<N: Nic>(end: &mut End<N>, from: &[u8], theirs: &N::RemoteRegion, to: usize) -> bool {
    let state = end.queue_pair.state();
    let (front, back) = from.split_at(from.len() / 3);
    let done = end.queue_pair.write_at_once(&[front, &[], back], &remote(theirs, to));
    assert!(!done || end.nic.properties().writes_at_once, "a NIC does what it does not declare");
    assert_eq!(end.queue_pair.state(), state);
    done
}

fn stores_what_it_is_given<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let theirs = fixture.region(64 << 10, Access::RemoteWrite);
    let shared = fixture.share(&theirs);
    let declared = fixture.nic.properties().writes_at_once;
    let mut duo = fixture.duo(transport);
    let mut expected = pattern(1, theirs.bytes());
    theirs.copy_in(0, &expected);
    for (seed, bytes) in
        [0, 1, 3, 7, 8, 9, 16, 31, 32, 63, 64, 65, 100, 1000, 4096, 40_001].into_iter().enumerate()
    {
        for to in [0, 1, 3, 8, 61, 4093] {
            let from = pattern(2 + seed as u64, bytes);
            assert_eq!(write_at_once(&mut duo.near, &from, &shared, to), declared);
            if declared {
                expected[to..to + bytes].copy_from_slice(&from);
            }
            // The bytes around it are as they were.
            assert!(bytes_of(&theirs, 0, theirs.bytes()) == expected, "WRITE of {bytes} to {to}");
        }
    }
    // The other kind of WRITE goes beside it, in order.
    for round in 0..1000u64 {
        let word = round.to_le_bytes();
        if round % 10 == 0 {
            duo.near.post(&write(round, Payload::Inline(&[&word]), remote(&shared, 24)));
            duo.sent_well(round, Opcode::Write);
        } else if !write_at_once(&mut duo.near, &word, &shared, 24) {
            assert!(!declared);
            continue;
        }
        if transport == Rc || declared {
            assert_eq!(bytes_of(&theirs, 24, 8), word);
        }
    }
    duo.is_well();
}

fn overtakes_nothing<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    // It would overtake a SEND that waits for its RECV.
    duo.send_inline(1, b"before");
    assert!(!write_at_once(&mut duo.near, &[1; 8], &shared, 0));
    assert_eq!(bytes_of(&theirs, 0, 8), [0; 8]);
    duo.far.receive(2, &ours, 1024, 64);
    duo.received_well(2, 6, None);
    duo.sent_well(1, Opcode::Send);
    let declared = fixture.nic.properties().writes_at_once;
    assert_eq!(write_at_once(&mut duo.near, &[1; 8], &shared, 0), declared);
}

fn write_is_refused_where_posting_fails<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let theirs = fixture.region(4096, Access::RemoteWrite);
    let sealed = fixture.region(4096, Access::RemoteRead);
    let foreign = fixture.region(4096, Access::RemoteWrite);
    let revoked = fixture.region(4096, Access::RemoteWrite);
    let (shared, shared_sealed) = (fixture.share(&theirs), fixture.share(&sealed));
    let shared_foreign = fixture.another().share(&foreign);
    let shared_revoked = fixture.share(&revoked);
    revoked.revoke();
    let mut duo = fixture.duo(transport);
    let far = shared.bytes();
    for to in [far, far - 7, far + 8, 1 << 40, usize::MAX - 7, usize::MAX] {
        assert!(!write_at_once(&mut duo.near, &[1; 8], &shared, to), "8 bytes to {to}");
    }
    assert!(!write_at_once(&mut duo.near, &vec![1; far + 8], &shared, 0), "a WRITE longer than the region");
    for other in [&shared_sealed, &shared_foreign, &shared_revoked] {
        assert!(!write_at_once(&mut duo.near, &[1; 8], other, 0));
    }
    for region in [&theirs, &sealed, &foreign, &revoked] {
        assert_eq!(bytes_of(region, 0, region.bytes()), vec![0; region.bytes()]);
    }
    duo.is_well();
    if transport == Rc {
        duo.near.post(&write(1, Payload::Inline(&[&[1; 8]]), remote(&shared, far)));
        duo.sent_badly(1, Status::RemoteAccess);
    }
}

fn write_is_refused_unless_ready<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let theirs = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&theirs);
    let mut end = End::new(&fixture.nic, &fixture.near, &fixture.config(transport));
    assert!(!write_at_once(&mut end, &[1; 8], &shared, 0), "before connecting");
    let mut duo = fixture.duo(transport);
    duo.near.queue_pair.fail();
    assert!(!write_at_once(&mut duo.near, &[1; 8], &shared, 0), "broken");
    assert_eq!(bytes_of(&theirs, 0, 8), [0; 8]);
}

fn write_is_refused_on_ud<N: Nic>(fixture: &mut Fixture<N>) {
    let theirs = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&theirs);
    let mut duo: Duo<N> = fixture.duo(Ud);
    assert!(!write_at_once(&mut duo.near, &[1; 8], &shared, 0));
    assert_eq!(bytes_of(&theirs, 0, 8), [0; 8]);
    duo.is_well();
}
