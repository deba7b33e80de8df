//! Broken queue pairs and lost peers: what was posted is flushed in order, nothing panics, nobody else is touched.

use crate::{
    Case,
    fixture::{Duo, End, Fixture, bytes_of, local, pattern, read, remote, unsignaled, wait, write},
    list,
};
use locus_fabric::{
    Access, Completion, FabricError, Link, Nic, Opcode, Payload, QueuePair, QueuePairState, SendRequest,
    Status, Transport, Transport::*, Verb,
};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "rc::fail_flushes_everything_in_order" => |f| fail_flushes_everything_in_order(f, Rc),
        "uc::fail_flushes_everything_in_order" => |f| fail_flushes_everything_in_order(f, Uc),
        "ud::fail_flushes_everything_in_order" => |f| fail_flushes_everything_in_order(f, Ud),
        "rc::posting_to_a_broken_queue_pair_flushes" => |f| posting_to_a_broken_queue_pair_flushes(f, Rc),
        "uc::posting_to_a_broken_queue_pair_flushes" => |f| posting_to_a_broken_queue_pair_flushes(f, Uc),
        "ud::posting_to_a_broken_queue_pair_flushes" => |f| posting_to_a_broken_queue_pair_flushes(f, Ud),
        "rc::fail_before_connecting_flushes_receives" => fail_before_connecting_flushes_receives,
        "rc::the_peer_of_a_failed_queue_pair_notices" => |f| the_peer_of_a_gone_queue_pair_notices(f, false),
        "rc::the_peer_of_a_dropped_queue_pair_notices" => |f| the_peer_of_a_gone_queue_pair_notices(f, true),
        "rc::what_arrived_before_the_failure_is_delivered" => what_arrived_before_the_failure_is_delivered,
        "rc::closing_flushes_both_ends" => |f| closing_flushes_both_ends(f, Rc),
        "uc::closing_flushes_both_ends" => |f| closing_flushes_both_ends(f, Uc),
        "ud::closing_spares_datagrams_of_others" => closing_spares_datagrams_of_others,
        "rc::reads_of_a_lost_peer_fail" => reads_of_a_lost_peer_fail,
        "links::a_closed_link_is_dead_on_both_ends" => a_closed_link_is_dead_on_both_ends,
        "links::a_closed_link_makes_no_queue_pairs" => a_closed_link_makes_no_queue_pairs,
        "links::closing_one_spares_the_others" => closing_one_spares_the_others,
    ]
}

/// Takes the next completions of a queue and asserts that they are failures of these requests, in order.
fn are_flushed(what: &str, ids: impl IntoIterator<Item = u64>, mut take: impl FnMut() -> Option<Completion>) {
    for id in ids {
        let completion = wait(what, &mut take);
        let lost = matches!(completion.status, Status::Flushed | Status::PeerLost);
        assert!(completion.id == id && lost, "{what} {id}: {completion:?}");
    }
}

/// Fills both queues of both ends with work that cannot complete.
fn stuck<N: Nic>(fixture: &Fixture<N>, transport: Transport, region: &N::Region) -> Duo<N> {
    let mut duo = fixture.duo(transport);
    for id in 0..20 {
        duo.near.receive(100 + id, region, 0, 128);
        duo.far.receive(200 + id, region, 0, 128);
    }
    duo
}

fn fail_flushes_everything_in_order<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(transport);
    for id in 0..20 {
        duo.near.receive(100 + id, &region, 0, 128);
    }
    if transport == Rc {
        // Nobody receives these, so they wait; signaled or not, each is flushed.
        for id in 0..20 {
            let verb = Verb::Send { payload: Payload::Inline(&[b"stuck"]), immediate: None, to: None };
            duo.near.queue(&SendRequest { id, verb, signaled: id % 3 == 0 });
        }
        duo.near.queue_pair.ring().unwrap();
        duo.is_well();
    }
    duo.near.queue_pair.fail();
    assert_eq!(duo.near.queue_pair.state(), QueuePairState::Error);
    let sends = if transport == Rc { 20 } else { 0 };
    for id in 0..sends {
        let sent = duo.near.sent();
        assert_eq!((sent.id, sent.status), (id, Status::Flushed));
    }
    for id in 0..20 {
        let received = duo.near.received();
        assert_eq!((received.id, received.status), (100 + id, Status::Flushed));
        assert_eq!(received.queue_pair, duo.near.queue_pair.number());
    }
    duo.settle();
    assert!(duo.near.is_quiet(), "more completions than requests");
    // To break what is broken changes nothing.
    duo.near.queue_pair.fail();
    duo.settle();
    assert!(duo.near.is_quiet());
}

fn posting_to_a_broken_queue_pair_flushes<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&region);
    let mut duo = fixture.duo(transport);
    duo.near.queue_pair.fail();
    for round in 0..500 {
        duo.send_inline(round, b"flushed");
        duo.near.receive(round, &region, 0, 128);
        let (sent, received) = (duo.near.sent(), duo.near.received());
        assert_eq!((sent.id, sent.status), (round, Status::Flushed));
        assert_eq!((received.id, received.status), (round, Status::Flushed));
    }
    if transport != Ud {
        duo.near.post(&unsignaled(write(7, Payload::Inline(&[b"flushed"]), remote(&shared, 0))));
        assert_eq!(duo.near.sent().status, Status::Flushed);
        assert_eq!(bytes_of(&region, 0, 7), [0; 7]);
    }
    // The limits hold for a broken queue pair, too.
    let depth = duo.near.config.send_depth as u64;
    for id in 0..depth {
        duo.try_send(id, Payload::Inline(&[b"x"]), None).unwrap();
    }
    duo.near.queue_pair.ring().unwrap();
    assert!(duo.try_send(depth, Payload::Inline(&[b"x"]), None).is_err());
    for id in 0..depth {
        assert_eq!(duo.near.sent().id, id);
    }
}

fn fail_before_connecting_flushes_receives<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::Local);
    let mut end = End::new(&fixture.nic, &fixture.near, &fixture.config(Rc));
    end.receive(1, &region, 0, 64);
    end.receive(2, &region, 0, 64);
    end.queue_pair.fail();
    assert_eq!(end.queue_pair.state(), QueuePairState::Error);
    assert_eq!((end.received().id, end.received().id), (1, 2));
}

fn the_peer_of_a_gone_queue_pair_notices<N: Nic>(fixture: &mut Fixture<N>, dropped: bool) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    let Duo { mut near, mut far, .. } = fixture.duo(Rc);
    for id in 0..5 {
        near.receive(id, &ours, 0, 64);
    }
    if dropped {
        drop(far);
    } else {
        far.queue_pair.fail();
    }
    // The next message tells at the latest: nobody acknowledges it any more.
    let verb = Verb::Send { payload: Payload::Inline(&[b"hello?"]), immediate: None, to: None };
    near.post(&SendRequest { id: 9, verb, signaled: true });
    near.post(&read(10, local(&ours, 0, 8), remote(&shared, 0)));
    are_flushed("the send", [9, 10], || {
        near.poll();
        near.take_sent()
    });
    are_flushed("the RECV", 0..5, || {
        near.poll();
        near.take_received()
    });
    assert_eq!(near.queue_pair.state(), QueuePairState::Error);
    // It was only this queue pair: the link and other queue pairs live.
    assert!(fixture.near.alive() && fixture.far.alive());
    fixture.duo(Rc).is_well();
}

fn what_arrived_before_the_failure_is_delivered<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(Rc);
    for id in 0..5 {
        duo.far.receive(id, &region, id as usize * 64, 64);
    }
    for id in 0..3 {
        duo.send_inline(id, &pattern(id, 16));
        duo.sent_well(id, Opcode::Send);
    }
    // These three were acknowledged, so they are the receiver's whatever happens next.
    duo.near.queue_pair.fail();
    for id in 0..3 {
        duo.received_well(id, 16, None);
        assert_eq!(bytes_of(&region, id as usize * 64, 16), pattern(id, 16));
    }
}

fn closing_flushes_both_ends<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    for by_near in [true, false] {
        let fixture = fixture.another();
        let region = fixture.region(4096, Access::Local);
        let mut duo = stuck(&fixture, transport, &region);
        let mut second = stuck(&fixture, transport, &region);
        duo.is_well();
        if by_near {
            fixture.near.close()
        } else {
            fixture.far.close()
        }
        for duo in [&mut duo, &mut second] {
            // The other end may need its housekeeping thread to look; here the case looks for it.
            are_flushed("a RECV of the near end", 100..120, || {
                fixture.near.check();
                duo.near.poll();
                duo.near.take_received()
            });
            are_flushed("a RECV of the far end", 200..220, || {
                fixture.far.check();
                duo.far.poll();
                duo.far.take_received()
            });
            assert_eq!(duo.near.queue_pair.state(), QueuePairState::Error);
            assert_eq!(duo.far.queue_pair.state(), QueuePairState::Error);
            duo.send_inline(300, b"too late");
            are_flushed("a SEND", [300], || {
                duo.near.poll();
                duo.near.take_sent()
            });
        }
    }
}

fn closing_spares_datagrams_of_others<N: Nic>(fixture: &mut Fixture<N>) {
    // A UD queue pair speaks with anybody; the link that it was made with is only its first.
    let region = fixture.region(4096, Access::Local);
    let Duo { mut near, mut far, address } = fixture.duo(Ud);
    let other = fixture.another();
    let mut sender = End::new(&other.nic, &other.near, &other.config(Ud));
    sender.queue_pair.activate().unwrap();
    let facts = far.queue_pair.facts(&other.far).unwrap();
    let living = sender.queue_pair.address(&other.near, facts).unwrap();
    for id in 0..10 {
        far.receive(id, &region, 0, 128);
    }
    let gone = address.unwrap();
    fixture.far.close();
    wait("the near end to see that its peer is gone", || (!fixture.near.check()).then_some(()));
    for id in 0..3 {
        let (end, to) = if id == 1 { (&mut near, &gone) } else { (&mut sender, &living) };
        let verb = Verb::Send { payload: Payload::Inline(&[b"to all"]), immediate: None, to: Some(to) };
        end.post(&SendRequest { id, verb, signaled: true });
        // Nobody answers a datagram, so none fails.
        assert_eq!(end.sent().status, Status::Success);
    }
    assert_eq!((far.received().status, far.received().status), (Status::Success, Status::Success));
    assert_eq!(far.queue_pair.state(), QueuePairState::Ready);
}

fn reads_of_a_lost_peer_fail<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    duo.near.post(&read(1, local(&ours, 0, 8), remote(&shared, 0)));
    duo.sent_well(1, Opcode::Read);
    fixture.far.close();
    // Before long; whoever must know at once asks the link.
    wait("READs to fail", || {
        duo.near.post(&read(2, local(&ours, 8, 8), remote(&shared, 0)));
        let sent = duo.near.sent();
        if sent.status == Status::Success {
            return None;
        }
        assert!(matches!(sent.status, Status::Flushed | Status::PeerLost), "{sent:?}");
        Some(())
    });
    assert!(!fixture.near.alive());
    assert_eq!(duo.near.queue_pair.state(), QueuePairState::Error);
}

fn a_closed_link_is_dead_on_both_ends<N: Nic>(fixture: &mut Fixture<N>) {
    assert!(fixture.near.alive() && fixture.far.alive() && fixture.near.check() && fixture.far.check());
    let clone = fixture.near.clone();
    fixture.near.close();
    assert!(!fixture.near.alive() && !fixture.near.check() && !clone.alive());
    wait("the far end to see that its peer is gone", || (!fixture.far.check()).then_some(()));
    assert!(!fixture.far.alive());
    fixture.near.close();
    fixture.far.close();
    assert!(fixture.near.send(b"anybody?", Vec::new()).is_err());
    let region = fixture.region(4096, Access::RemoteRead);
    // Granting to nobody may work or not, but nothing panics.
    let _ = fixture.near.grant(&region);
}

fn a_closed_link_makes_no_queue_pairs<N: Nic>(fixture: &mut Fixture<N>) {
    let queue = fixture.nic.create_completion_queue(16).unwrap();
    fixture.near.close();
    wait("the far end to see that its peer is gone", || (!fixture.far.check()).then_some(()));
    for link in [&fixture.near, &fixture.far] {
        match fixture.nic.create_queue_pair(link, &fixture.config(Rc), &queue, &queue).err() {
            Some(FabricError::PeerLost { .. }) => {}
            other => panic!("a queue pair with a lost peer gave {other:?}"),
        }
    }
}

fn closing_one_spares_the_others<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::RemoteRead);
    let others: Vec<_> = (0..3).map(|_| fixture.another()).collect();
    let mut duos: Vec<_> = others.iter().map(|other| (other.duo(Rc), other.share(&region))).collect();
    let mut lost = stuck(fixture, Rc, &region);
    fixture.far.close();
    are_flushed("a RECV", 100..120, || {
        fixture.near.check();
        lost.near.poll();
        lost.near.take_received()
    });
    for ((duo, shared), other) in duos.iter_mut().zip(&others) {
        let ours = other.region(64, Access::Local);
        duo.near.post(&read(1, local(&ours, 0, 8), remote(shared, 0)));
        duo.sent_well(1, Opcode::Read);
        duo.far.receive(2, &ours, 8, 32);
        duo.send_inline(3, b"we live");
        duo.received_well(2, 7, None);
        duo.sent_well(3, Opcode::Send);
        assert!(other.near.check() && other.far.check());
        duo.is_well();
    }
}
