//! UD: messages to any queue pair by address, with the 40-byte GRH in front (Kalia §2.2.2, Mitchell §2.1.3).

use crate::{
    Case,
    fixture::{Duo, End, Fixture, GRH_BYTES, bytes_of, pattern},
    list,
};
use locus_fabric::{
    Access, Link, Nic, Opcode, Payload, QueuePair, QueuePairState, SendRequest, Status, Transport::*, Verb,
};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "ud::the_grh_precedes_the_message" => the_grh_precedes_the_message,
        "ud::a_receive_without_room_for_the_grh_gets_nothing" => a_receive_without_room_for_the_grh_gets_nothing,
        "ud::many_senders_reach_one_queue_pair" => many_senders_reach_one_queue_pair,
        "ud::one_sender_reaches_many_queue_pairs" => one_sender_reaches_many_queue_pairs,
        "ud::a_request_is_answered_by_address" => a_request_is_answered_by_address,
        "ud::an_address_of_a_gone_queue_pair_stops_nobody" => an_address_of_a_gone_queue_pair_stops_nobody,
        "ud::addresses_of_connected_queue_pairs_are_refused" => addresses_of_connected_queue_pairs_are_refused,
    ]
}

fn the_grh_precedes_the_message<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(Ud);
    duo.far.receive(1, &region, 100, GRH_BYTES + 11);
    duo.send_inline(2, b"after forty");
    let received = duo.received();
    assert_eq!((received.id, received.status, received.bytes), (1, Status::Success, 51));
    assert_eq!(bytes_of(&region, 100 + GRH_BYTES, 11), b"after forty");
    assert_eq!(bytes_of(&region, 100 + GRH_BYTES + 11, 50), [0; 50]);
    duo.sent_well(2, Opcode::Send);
}

fn a_receive_without_room_for_the_grh_gets_nothing<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(Ud);
    duo.far.receive(1, &region, 0, GRH_BYTES - 1);
    duo.send(2, Payload::Inline(&[]), None);
    duo.sent_well(2, Opcode::Send);
    duo.settle();
    match duo.far.queue_pair.state() {
        QueuePairState::Error => assert_eq!(duo.received().status, Status::LocalLength),
        _ => assert!(duo.far.is_quiet(), "a message in a buffer that is too short even for its GRH"),
    }
    assert_eq!(duo.near.queue_pair.state(), QueuePairState::Ready);
    assert_eq!(bytes_of(&region, GRH_BYTES - 1, 8), [0; 8]);
}

/// A UD queue pair that is ready.
fn ready<N: Nic>(fixture: &Fixture<N>, link: &N::Link) -> End<N> {
    let mut end = End::new(&fixture.nic, link, &fixture.config(Ud));
    end.queue_pair.activate().expect("a UD queue pair becomes ready alone");
    end
}

/// A SEND to an address.
fn to<'a, N: Nic>(id: u64, bytes: &'a [&'a [u8]], address: &'a N::AddressHandle) -> SendRequest<'a, N> {
    let verb = Verb::Send { payload: Payload::Inline(bytes), immediate: Some(id as u32), to: Some(address) };
    SendRequest { id, verb, signaled: true }
}

fn many_senders_reach_one_queue_pair<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(64 << 10, Access::Local);
    let mut receiver = ready(fixture, &fixture.far);
    // Some senders share the link on which the receiver was made, the others have links of their own.
    let others: Vec<_> = (0..4).map(|_| fixture.another()).collect();
    let links = others.iter().chain([&*fixture, &*fixture]);
    let mut senders: Vec<_> = links
        .map(|fixture| {
            let sender = ready(fixture, &fixture.near);
            let facts = receiver.queue_pair.facts(&fixture.far).expect("facts for any link");
            let address = sender.queue_pair.address(&fixture.near, facts).expect("an address");
            (sender, address)
        })
        .collect();
    for id in 0..60 {
        receiver.receive(id, &region, id as usize * 128, 128);
    }
    for round in 0..10 {
        for (index, (sender, address)) in senders.iter_mut().enumerate() {
            let id = (index * 10 + round) as u64;
            sender.post(&to(id, &[&pattern(id, 16)], address));
            let sent = sender.sent();
            assert_eq!((sent.id, sent.status), (id, Status::Success));
        }
    }
    let mut seen = vec![0; senders.len()];
    for place in 0..60_u64 {
        let received = receiver.received();
        assert_eq!((received.id, received.status, received.bytes), (place, Status::Success, 56));
        let id = received.immediate.expect("each message has its number") as usize;
        assert_eq!(bytes_of(&region, place as usize * 128 + GRH_BYTES, 16), pattern(id as u64, 16));
        assert_eq!(seen[id / 10], id % 10, "messages of one sender stay in order");
        seen[id / 10] += 1;
    }
    assert_eq!(seen, vec![10; 6]);
}

fn one_sender_reaches_many_queue_pairs<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(64 << 10, Access::Local);
    let mut sender = ready(fixture, &fixture.near);
    let others: Vec<_> = (0..4).map(|_| fixture.another()).collect();
    let links = others.iter().chain([&*fixture, &*fixture]);
    let mut receivers: Vec<_> = links
        .map(|fixture| {
            let receiver = ready(fixture, &fixture.far);
            let facts = receiver.queue_pair.facts(&fixture.far).expect("facts");
            let address = sender.queue_pair.address(&fixture.near, facts).expect("an address on any link");
            (receiver, address)
        })
        .collect();
    for (index, (receiver, _)) in receivers.iter_mut().enumerate() {
        for round in 0..5 {
            receiver.receive(round, &region, (index * 5 + round as usize) * 128, 128);
        }
    }
    for round in 0..5 {
        for (index, (_, address)) in receivers.iter().enumerate() {
            let id = (index * 5 + round) as u64;
            // A handle can be cloned and names the same queue pair.
            sender.post(&to(id, &[&pattern(id, 16)], &address.clone()));
            assert_eq!(sender.sent().status, Status::Success);
        }
    }
    for (index, (receiver, _)) in receivers.iter_mut().enumerate() {
        for round in 0..5_u64 {
            let received = receiver.received();
            let id = index as u64 * 5 + round;
            assert_eq!(
                (received.id, received.status, received.immediate),
                (round, Status::Success, Some(id as u32))
            );
            assert_eq!(bytes_of(&region, id as usize * 128 + GRH_BYTES, 16), pattern(id, 16));
        }
        assert!(receiver.is_quiet());
    }
}

fn a_request_is_answered_by_address<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::Local);
    let Duo { mut near, mut far, address } = fixture.duo(Ud);
    let there = address.unwrap();
    let facts = near.queue_pair.facts(&fixture.near).unwrap();
    let back = far.queue_pair.address(&fixture.far, facts).unwrap();
    for round in 0..100 {
        near.receive(round, &region, 0, 128);
        far.receive(round, &region, 128, 128);
        near.post(&to(round, &[b"request"], &there));
        assert_eq!(far.received().immediate, Some(round as u32));
        far.post(&to(round + 1, &[b"reply"], &back));
        assert_eq!(near.received().immediate, Some(round as u32 + 1));
        assert_eq!(bytes_of(&region, GRH_BYTES, 5), b"reply");
        assert_eq!((near.sent().id, far.sent().id), (round, round + 1));
    }
}

fn an_address_of_a_gone_queue_pair_stops_nobody<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::Local);
    let Duo { mut near, far, address } = fixture.duo(Ud);
    let gone = address.unwrap();
    let mut lives = ready(fixture, &fixture.far);
    let facts = lives.queue_pair.facts(&fixture.far).unwrap();
    let living = near.queue_pair.address(&fixture.near, facts).unwrap();
    drop(far);
    lives.receive(1, &region, 0, 128);
    for id in 0..500 {
        near.post(&to(id, &[b"into the void"], &gone));
        assert_eq!(near.sent().status, Status::Success, "nobody answers a datagram");
    }
    near.post(&to(500, &[b"home"], &living));
    assert_eq!((near.sent().status, lives.received().id), (Status::Success, 1));
    assert_eq!(near.queue_pair.state(), QueuePairState::Ready);
    assert!(fixture.near.alive());
}

fn addresses_of_connected_queue_pairs_are_refused<N: Nic>(fixture: &mut Fixture<N>) {
    let datagrams = ready(fixture, &fixture.near);
    for transport in [Rc, Uc] {
        let other = End::new(&fixture.nic, &fixture.far, &fixture.config(transport));
        let facts = other.queue_pair.facts(&fixture.far).unwrap();
        assert!(datagrams.queue_pair.address(&fixture.near, facts).is_err(), "{transport:?}");
    }
}
