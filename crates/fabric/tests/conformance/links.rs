//! Links: control messages with facts both ways, their limit, time-outs, and set-up through them.

use crate::{
    Case,
    fixture::{End, Fixture, PATIENCE, bytes_of, local, pattern, read, remote, wait},
    list,
};
use locus_fabric::{Access, FabricError, Facts, Link, Nic, Opcode, QueuePair, Region, Status, Transport::*};
use locus_runtime::MonotonicClock;
use std::time::Duration;

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "links::carry_messages_both_ways_in_order" => carry_messages_both_ways_in_order,
        "links::carry_facts_of_regions_and_queue_pairs" => carry_facts_of_regions_and_queue_pairs,
        "links::carry_the_largest_message" => carry_the_largest_message,
        "links::refuse_messages_over_the_limit" => refuse_messages_over_the_limit,
        "links::give_nothing_when_the_time_has_passed" => give_nothing_when_the_time_has_passed,
        "links::carry_large_messages_both_ways_at_once" => carry_large_messages_both_ways_at_once,
        "links::clones_share_the_connection" => clones_share_the_connection,
        "links::receive_ends_when_the_peer_closes" => receive_ends_when_the_peer_closes,
        "links::name_their_peer" => name_their_peer,
        "links::one_region_for_many_peers" => one_region_for_many_peers,
    ]
}

/// The next message, which must come.
fn next<L: Link>(link: &L) -> (Vec<u8>, Vec<Facts>) {
    link.receive(PATIENCE).expect("the link lives").expect("a message within the case's patience")
}

fn carry_messages_both_ways_in_order<N: Nic>(fixture: &mut Fixture<N>) {
    for round in 0..300 {
        let there = pattern(round, round as usize * 7 % 1500);
        let back = pattern(!round, round as usize * 11 % 1500);
        fixture.near.send(&there, Vec::new()).unwrap();
        fixture.near.send(b"and another", Vec::new()).unwrap();
        fixture.far.send(&back, Vec::new()).unwrap();
        assert!(next(&fixture.far).0 == there, "round {round}");
        assert_eq!(next(&fixture.far).0, b"and another");
        let (message, facts) = next(&fixture.near);
        assert!(message == back && facts.is_empty(), "round {round}");
    }
}

fn carry_facts_of_regions_and_queue_pairs<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteRead));
    let second = fixture.region(8192, Access::RemoteRead);
    theirs.copy_in(0, b"first");
    second.copy_in(0, b"second");
    let config = fixture.config(Rc);
    let mut near = End::new(&fixture.nic, &fixture.near, &config);
    let mut far = End::new(&fixture.nic, &fixture.far, &config);
    // Several facts in one message keep their order; facts without handles and empty ones travel as well.
    let facts = vec![
        fixture.far.grant(&theirs).unwrap(),
        Facts { bytes: b"words of the protocol above".to_vec(), handles: Vec::new() },
        far.queue_pair.facts(&fixture.far).unwrap(),
        Facts::default(),
        fixture.far.grant(&second).unwrap(),
    ];
    let sizes: Vec<_> = facts.iter().map(|facts| (facts.bytes.len(), facts.handles.len())).collect();
    fixture.far.send(b"all of it", facts).unwrap();
    let (message, facts) = next(&fixture.near);
    assert_eq!(message, b"all of it");
    assert_eq!(facts.iter().map(|facts| (facts.bytes.len(), facts.handles.len())).collect::<Vec<_>>(), sizes);
    let mut facts = facts.into_iter();
    let first = fixture.near.import(facts.next().unwrap()).unwrap();
    assert_eq!(facts.next().unwrap().bytes, b"words of the protocol above");
    near.queue_pair.connect(facts.next().unwrap()).unwrap();
    let second = fixture.near.import(facts.nth(1).unwrap()).unwrap();
    fixture.near.send(b"", vec![near.queue_pair.facts(&fixture.near).unwrap()]).unwrap();
    let (message, mut facts) = next(&fixture.far);
    assert_eq!((message.len(), facts.len()), (0, 1));
    far.queue_pair.connect(facts.remove(0)).unwrap();
    near.post(&read(1, local(&ours, 0, 6), remote(&first, 0)));
    assert_eq!(near.sent().status, Status::Success);
    assert_eq!(bytes_of(&ours, 0, 6), b"first\0");
    near.post(&read(2, local(&ours, 0, 6), remote(&second, 0)));
    assert_eq!(near.sent().status, Status::Success);
    assert_eq!(bytes_of(&ours, 0, 6), b"second");
}

fn carry_the_largest_message<N: Nic>(fixture: &mut Fixture<N>) {
    let limit = <N::Link as Link>::MESSAGE_BYTES_MAX;
    let message = pattern(1, limit);
    // The facts' bytes count.
    let (shorter, facts) = (pattern(2, limit - 1000), pattern(3, 1000));
    crate::scope::scope(|scope| {
        scope.spawn(|| {
            fixture.near.send(&message, Vec::new()).expect("the largest message");
            let facts = Facts { bytes: facts.clone(), handles: Vec::new() };
            fixture.near.send(&shorter, vec![facts]).expect("the largest message with facts");
        });
        assert!(next(&fixture.far).0 == message);
        let (received, with) = next(&fixture.far);
        assert!(received == shorter && with.len() == 1 && with[0].bytes == facts);
    });
}

fn refuse_messages_over_the_limit<N: Nic>(fixture: &mut Fixture<N>) {
    let limit = <N::Link as Link>::MESSAGE_BYTES_MAX;
    let too_long = [
        fixture.near.send(&vec![1; limit + 1], Vec::new()),
        fixture.near.send(&vec![1; limit], vec![Facts { bytes: vec![2], handles: Vec::new() }]),
        fixture.near.send(&[], vec![Facts { bytes: vec![2; limit + 1], handles: Vec::new() }]),
    ];
    for refused in too_long {
        assert!(matches!(refused, Err(FabricError::Limit { .. })), "{refused:?}");
    }
    fixture.near.send(b"short", Vec::new()).expect("the link is as well as before");
    assert_eq!(next(&fixture.far).0, b"short");
}

fn give_nothing_when_the_time_has_passed<N: Nic>(fixture: &mut Fixture<N>) {
    for time in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(20)] {
        let start = MonotonicClock::new();
        assert!(fixture.near.receive(time).expect("the link lives").is_none());
        assert!(start.elapsed() >= time);
    }
    assert!(fixture.near.alive() && fixture.near.check());
    fixture.far.send(b"late", Vec::new()).unwrap();
    assert_eq!(next(&fixture.near).0, b"late");
}

fn carry_large_messages_both_ways_at_once<N: Nic>(fixture: &mut Fixture<N>) {
    // Neither end may wait for its message to leave before it takes the other's, given a thread for each.
    let message = pattern(1, 700_000);
    crate::scope::scope(|scope| {
        for link in [&fixture.near, &fixture.far] {
            let message = &message;
            scope.spawn(move || (0..5).for_each(|_| link.send(message, Vec::new()).unwrap()));
            scope.spawn(move || (0..5).for_each(|_| assert!(next(link).0 == *message)));
        }
    });
}

fn clones_share_the_connection<N: Nic>(fixture: &mut Fixture<N>) {
    let clone = fixture.near.clone();
    clone.send(b"from the clone", Vec::new()).unwrap();
    drop(clone);
    assert_eq!(next(&fixture.far).0, b"from the clone");
    assert!(fixture.near.alive(), "a clone that is dropped closes nothing");
    fixture.far.send(b"to the other", Vec::new()).unwrap();
    assert_eq!(next(&fixture.near.clone()).0, b"to the other");
}

fn receive_ends_when_the_peer_closes<N: Nic>(fixture: &mut Fixture<N>) {
    crate::scope::scope(|scope| {
        let waiting = scope.spawn(|| fixture.far.receive(2 * PATIENCE));
        let start = MonotonicClock::new();
        fixture.near.close();
        let received = waiting.join().unwrap();
        assert!(matches!(received, Err(FabricError::PeerLost { .. })), "{received:?}");
        assert!(start.elapsed() < PATIENCE, "the end of a link is not a time-out");
    });
    let own = fixture.near.receive(Duration::from_millis(1));
    assert!(own.is_err(), "a link that this side has closed");
}

fn name_their_peer<N: Nic>(fixture: &mut Fixture<N>) {
    assert!(!fixture.near.peer().is_empty() && !fixture.far.peer().is_empty());
}

fn one_region_for_many_peers<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteRead));
    theirs.copy_in(0, b"to all");
    let others: Vec<_> = (0..30).map(|_| fixture.another()).collect();
    let mut duos: Vec<_> = others.iter().map(|other| (other.share(&theirs), other.duo(Rc))).collect();
    for (shared, duo) in &mut duos {
        duo.near.post(&read(1, local(&ours, 0, 6), remote(shared, 0)));
    }
    for (_, duo) in &mut duos {
        duo.sent_well(1, Opcode::Read);
    }
    assert_eq!(bytes_of(&ours, 0, 6), b"to all");
    wait("all links to be well", || others.iter().all(|other| other.near.check()).then_some(()));
}
