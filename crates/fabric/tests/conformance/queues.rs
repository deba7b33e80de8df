//! The send, receive and completion queues: occupancy, order, unsignaled requests, overflow (Mitchell §2.1.4).

use crate::{
    Case,
    fixture::{
        Duo, End, Fixture, bytes_of, compare_swap, fetch_add, local, read, remote, slice, unsignaled, wait,
        write,
    },
    list,
};
use locus_fabric::{
    Access, Atomicity, Completion, CompletionQueue, Nic, Opcode, Payload, PostError, QueuePair,
    QueuePairConfig, QueuePairState, SendRequest, Status, Transport, Transport::*, Verb,
};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "rc::completions_come_in_posting_order" => completions_come_in_posting_order,
        "rc::unsignaled_success_is_silent" => |f| unsignaled_success_is_silent(f, Rc),
        "uc::unsignaled_success_is_silent" => |f| unsignaled_success_is_silent(f, Uc),
        "ud::unsignaled_success_is_silent" => |f| unsignaled_success_is_silent(f, Ud),
        "rc::unsignaled_failure_speaks" => unsignaled_failure_speaks,
        "rc::the_send_queue_fills" => |f| the_send_queue_fills(f, Rc),
        "uc::the_send_queue_fills" => |f| the_send_queue_fills(f, Uc),
        "ud::the_send_queue_fills" => |f| the_send_queue_fills(f, Ud),
        "rc::unsignaled_places_are_freed_by_a_later_completion" => |f| unsignaled_places_are_freed(f, Rc),
        "uc::unsignaled_places_are_freed_by_a_later_completion" => |f| unsignaled_places_are_freed(f, Uc),
        "ud::unsignaled_places_are_freed_by_a_later_completion" => |f| unsignaled_places_are_freed(f, Ud),
        "rc::unsignaled_requests_alone_fill_the_queue" => |f| unsignaled_requests_alone_fill_the_queue_for_good(f, Rc),
        "uc::unsignaled_requests_alone_fill_the_queue" => |f| unsignaled_requests_alone_fill_the_queue_for_good(f, Uc),
        "ud::unsignaled_requests_alone_fill_the_queue" => |f| unsignaled_requests_alone_fill_the_queue_for_good(f, Ud),
        "rc::one_completion_frees_only_what_precedes_it" => one_completion_frees_only_what_precedes_it,
        "rc::the_receive_queue_fills" => |f| the_receive_queue_fills(f, Rc),
        "uc::the_receive_queue_fills" => |f| the_receive_queue_fills(f, Uc),
        "ud::the_receive_queue_fills" => |f| the_receive_queue_fills(f, Ud),
        "rc::poll_takes_no_more_than_it_has_room_for" => poll_takes_no_more_than_it_has_room_for,
        "rc::queue_pairs_share_a_completion_queue" => queue_pairs_share_a_completion_queue,
        "rc::sends_and_receives_share_a_completion_queue" => sends_and_receives_share_a_completion_queue,
        "rc::an_overflown_queue_of_sends_breaks_its_queue_pair" => an_overflown_queue_of_sends_breaks_its_queue_pair,
        "rc::an_overflown_queue_of_receives_breaks_its_queue_pair" => an_overflown_queue_of_receives_breaks,
        "rc::a_queue_pair_outlives_its_completion_queues" => a_queue_pair_outlives_its_completion_queues,
        "rc::numbers_are_unique" => numbers_are_unique,
    ]
}

fn completions_come_in_posting_order<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) =
        (fixture.region(64 << 10, Access::Local), fixture.region(64 << 10, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let atomics = fixture.nic.properties().atomics != Atomicity::None;
    let mut duo = fixture.duo(Rc);
    for id in 0..16 {
        duo.far.receive(id, &theirs, 60_000, 64);
    }
    // Long and short ones of every kind: none overtakes another.
    let mut expected = Vec::new();
    for id in 0..64_u64 {
        let opcode = match id % 6 {
            0 => {
                duo.near.queue(&read(id, local(&ours, 0, 30_000), remote(&shared, 0)));
                Opcode::Read
            }
            1 => {
                duo.near.queue(&write(id, Payload::Inline(&[b"x"]), remote(&shared, 50_000)));
                Opcode::Write
            }
            2 if atomics => {
                duo.near.queue(&compare_swap(id, local(&ours, 32_000, 8), remote(&shared, 40_000), 0, 0));
                Opcode::Atomic
            }
            3 => {
                duo.try_send(id, Payload::Inline(&[b"message"]), None).unwrap();
                Opcode::Send
            }
            4 if atomics => {
                duo.near.queue(&fetch_add(id, local(&ours, 32_008, 8), remote(&shared, 40_008), 1));
                Opcode::Atomic
            }
            _ => {
                duo.near.queue(&write(id, slice(&ours, 0, 20_000), remote(&shared, 0)));
                Opcode::Write
            }
        };
        expected.push(opcode);
    }
    duo.near.queue_pair.ring().unwrap();
    for (id, opcode) in expected.into_iter().enumerate() {
        duo.sent_well(id as u64, opcode);
    }
    for id in 0..11 {
        duo.received_well(id, 7, None);
    }
    duo.is_well();
}

fn unsignaled_success_is_silent<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(64 << 10, Access::Local);
    let mut duo = fixture.duo(transport);
    for id in 0..20 {
        duo.far.receive(id, &region, id as usize * 128, 128);
    }
    for id in 0..20 {
        let payload = Payload::Inline(&[b"silence"]);
        let verb = Verb::Send { payload, immediate: None, to: duo.address.as_ref() };
        duo.near.queue(&SendRequest { id, verb, signaled: id == 19 });
    }
    duo.near.queue_pair.ring().unwrap();
    for id in 0..20 {
        duo.received_well(id, 7, None);
    }
    duo.sent_well(19, Opcode::Send);
    duo.is_well();
}

fn unsignaled_failure_speaks<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    duo.near.queue(&unsignaled(read(1, local(&ours, 0, 8), remote(&shared, 0))));
    duo.near.queue(&unsignaled(read(2, local(&ours, 0, 8), remote(&shared, 1 << 30))));
    duo.near.queue(&unsignaled(read(3, local(&ours, 0, 8), remote(&shared, 0))));
    duo.near.queue_pair.ring().unwrap();
    duo.sent_badly(2, Status::RemoteAccess);
    duo.sent_badly(3, Status::Flushed);
    assert_eq!(duo.near.queue_pair.state(), QueuePairState::Error);
}

/// A small configuration, so that queues fill.
fn small<N: Nic>(fixture: &Fixture<N>, transport: Transport) -> QueuePairConfig {
    QueuePairConfig { send_depth: 5, receive_depth: 5, ..fixture.config(transport) }
}

fn the_send_queue_fills<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo_with(&small(fixture, transport));
    for round in 0..50 {
        for id in 0..5 {
            duo.far.receive(id, &region, 0, 128);
        }
        for id in 0..5 {
            duo.try_send(round * 10 + id, Payload::Inline(&[b"fill"]), None).unwrap();
        }
        // A place is taken until the completion was polled, and the NIC does not round the depth up.
        for _ in 0..3 {
            assert_eq!(duo.try_send(99, Payload::Inline(&[b"full"]), None), Err(PostError::SendQueueFull(5)));
        }
        duo.near.queue_pair.ring().unwrap();
        for id in 0..5 {
            duo.sent_well(round * 10 + id, Opcode::Send);
            duo.received_well(id, 4, None);
        }
    }
    duo.is_well();
}

/// Posts an unsignaled or signaled SEND, without ringing.
fn quiet<N: Nic>(duo: &mut Duo<N>, id: u64, signaled: bool) -> Result<(), PostError> {
    let verb = Verb::Send { payload: Payload::Inline(&[b"fill"]), immediate: None, to: duo.address.as_ref() };
    duo.near.queue_pair.post_send(&SendRequest { id, verb, signaled })
}

fn unsignaled_places_are_freed<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo_with(&small(fixture, transport));
    for round in 0..50 {
        for id in 0..5 {
            duo.far.receive(id, &region, 0, 128);
        }
        for id in 0..5 {
            quiet(&mut duo, round * 10 + id, id == 4).expect("a place");
        }
        duo.near.queue_pair.ring().unwrap();
        for id in 0..5 {
            duo.received_well(id, 4, None);
        }
        duo.sent_well(round * 10 + 4, Opcode::Send);
    }
    duo.is_well();
}

fn unsignaled_requests_alone_fill_the_queue_for_good<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo_with(&small(fixture, transport));
    for id in 0..5 {
        duo.far.receive(id, &region, 0, 128);
    }
    for id in 0..5 {
        quiet(&mut duo, id, false).expect("a place");
    }
    duo.near.queue_pair.ring().unwrap();
    for id in 0..5 {
        duo.received_well(id, 4, None);
    }
    duo.is_well();
    // All have arrived, but no completion has said so, and none ever will: a program that forgets to signal must learn
    // it on every NIC.
    assert_eq!(quiet(&mut duo, 5, false), Err(PostError::SendQueueFull(5)));
    assert_eq!(quiet(&mut duo, 6, true), Err(PostError::SendQueueFull(5)));
}

fn one_completion_frees_only_what_precedes_it<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&region);
    let mut duo = fixture.duo_with(&small(fixture, Rc));
    let quiet = |id| unsignaled(write::<N>(id, Payload::Inline(&[b"w"]), remote(&shared, 0)));
    duo.near.queue(&quiet(1));
    duo.near.queue(&write(2, Payload::Inline(&[b"w"]), remote(&shared, 0)));
    duo.near.queue(&quiet(3));
    duo.near.queue(&quiet(4));
    duo.near.queue(&quiet(5));
    duo.near.queue_pair.ring().unwrap();
    duo.sent_well(2, Opcode::Write);
    duo.settle();
    // The first two places are free; 3, 4 and 5 are done but nothing has said so.
    duo.near.queue(&quiet(6));
    duo.near.queue(&quiet(7));
    assert_eq!(duo.near.refused(&quiet(8)), PostError::SendQueueFull(5));
}

fn the_receive_queue_fills<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo_with(&small(fixture, transport));
    for id in 0..5 {
        duo.far.receive(id, &region, 0, 128);
    }
    for round in 5..60 {
        assert_eq!(duo.far.receive_refused(99, &region, 0, 128), PostError::ReceiveQueueFull(5));
        duo.send_inline(round, b"next");
        duo.received_well(round - 5, 4, None);
        duo.far.receive(round, &region, 0, 128);
        duo.sent_well(round, Opcode::Send);
    }
    duo.is_well();
}

fn poll_takes_no_more_than_it_has_room_for<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&region);
    let mut duo = fixture.duo(Rc);
    for id in 0..10 {
        duo.near.queue(&write(id, Payload::Inline(&[b"w"]), remote(&shared, 0)));
    }
    duo.near.queue_pair.ring().unwrap();
    assert_eq!(duo.near.sends.poll(&mut []), 0);
    let untouched = Completion { id: 4711, ..Completion::EMPTY };
    let mut room = [untouched; 4];
    for id in 0..10 {
        let count =
            wait("one completion", || Some(duo.near.sends.poll(&mut room[..1])).filter(|&count| count > 0));
        assert_eq!((count, room[0].id), (1, id));
        assert_eq!(room[1..], [untouched; 3]);
    }
    assert_eq!(duo.near.sends.poll(&mut room), 0);
}

fn queue_pairs_share_a_completion_queue<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&region);
    let config = fixture.config(Rc);
    let mut queue = fixture.nic.create_completion_queue(64).unwrap();
    let mut peers = Vec::new();
    let mut queue_pairs: Vec<_> = (0..4)
        .map(|_| {
            let mut ours = fixture.nic.create_queue_pair(&fixture.near, &config, &queue, &queue).unwrap();
            let mut peer = End::new(&fixture.nic, &fixture.far, &config);
            ours.connect(peer.queue_pair.facts(&fixture.far).unwrap()).unwrap();
            peer.queue_pair.connect(ours.facts(&fixture.near).unwrap()).unwrap();
            peers.push(peer);
            ours
        })
        .collect();
    for id in 0..10 {
        for ours in &mut queue_pairs {
            ours.post_send(&write(id, Payload::Inline(&[b"w"]), remote(&shared, 0))).unwrap();
            ours.ring().unwrap();
        }
    }
    let mut next = [0; 4];
    let mut room = [Completion::EMPTY; 3];
    wait("all completions", || {
        let count = queue.poll(&mut room);
        for completion in &room[..count] {
            let from = queue_pairs.iter().position(|ours| ours.number() == completion.queue_pair);
            let from = from.expect("a queue pair of this queue");
            assert_eq!((completion.id, completion.status), (next[from], Status::Success));
            next[from] += 1;
        }
        (next == [10; 4]).then_some(())
    });
}

fn sends_and_receives_share_a_completion_queue<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::Local);
    let config = fixture.config(Rc);
    let mut queue = fixture.nic.create_completion_queue(64).unwrap();
    let mut ours = fixture.nic.create_queue_pair(&fixture.near, &config, &queue, &queue).unwrap();
    let mut theirs = fixture.nic.create_queue_pair(&fixture.far, &config, &queue, &queue).unwrap();
    ours.connect(theirs.facts(&fixture.far).unwrap()).unwrap();
    theirs.connect(ours.facts(&fixture.near).unwrap()).unwrap();
    let mut got = Vec::new();
    theirs.post_receive(1, local(&region, 0, 64)).unwrap();
    let verb = Verb::Send { payload: Payload::Inline(&[b"around"]), immediate: None, to: None };
    ours.post_send(&SendRequest { id: 2, verb, signaled: true }).unwrap();
    ours.ring().unwrap();
    wait("both completions", || {
        let mut room = [Completion::EMPTY; 4];
        let count = queue.poll(&mut room);
        got.extend_from_slice(&room[..count]);
        (got.len() == 2).then_some(())
    });
    got.sort_by_key(|completion| completion.id);
    assert_eq!((got[0].id, got[0].queue_pair, got[0].opcode), (1, theirs.number(), Opcode::Receive));
    assert_eq!((got[1].id, got[1].queue_pair, got[1].opcode), (2, ours.number(), Opcode::Send));
    assert_eq!(bytes_of(&region, 0, 6), b"around");
}

/// Asserts that these are successes of the first requests, in order, followed by failures of later ones, in order.
fn is_a_sound_history(completions: &[Completion]) {
    let good = completions.iter().take_while(|completion| completion.status == Status::Success).count();
    assert!(completions[..good].iter().enumerate().all(|(index, completion)| completion.id == index as u64));
    assert!(
        completions[good..].iter().all(|completion| completion.status != Status::Success),
        "{completions:?}"
    );
    assert!(completions.is_sorted_by(|left, right| left.id < right.id), "{completions:?}");
}

fn an_overflown_queue_of_sends_breaks_its_queue_pair<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    let config = fixture.config(Rc);
    // A queue for four, of which a NIC may make more, and a hundred completions.
    let mut sends = fixture.nic.create_completion_queue(4).unwrap();
    let mut receives = fixture.nic.create_completion_queue(16).unwrap();
    let mut near = fixture.nic.create_queue_pair(&fixture.near, &config, &sends, &receives).unwrap();
    let mut far = End::new(&fixture.nic, &fixture.far, &config);
    near.connect(far.queue_pair.facts(&fixture.far).unwrap()).unwrap();
    far.queue_pair.connect(near.facts(&fixture.near).unwrap()).unwrap();
    for id in 0..100 {
        near.post_send(&read(id, local(&ours, 0, 8), remote(&shared, 0)))
            .expect("posting never panics nor fails");
        near.ring().expect("nor does the doorbell");
    }
    wait("the queue pair to break", || {
        far.poll();
        // Drives a software NIC, and leaves the small queue as it is.
        receives.poll(&mut [Completion::EMPTY; 4]);
        (near.state() == QueuePairState::Error).then_some(())
    });
    let mut room = [Completion::EMPTY; 128];
    let mut got = Vec::new();
    for _ in 0..500 {
        let count = sends.poll(&mut room);
        got.extend_from_slice(&room[..count]);
    }
    is_a_sound_history(&got);
    // Whatever shared neither the queue nor the queue pair works on.
    let mut duo = fixture.duo(Rc);
    duo.near.post(&read(1, local(&ours, 0, 8), remote(&shared, 0)));
    duo.sent_well(1, Opcode::Read);
}

fn an_overflown_queue_of_receives_breaks<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::Local);
    let config = fixture.config(Rc);
    let mut small = fixture.nic.create_completion_queue(4).unwrap();
    let mut others = fixture.nic.create_completion_queue(256).unwrap();
    let mut far = fixture.nic.create_queue_pair(&fixture.far, &config, &others, &small).unwrap();
    let mut near = End::new(&fixture.nic, &fixture.near, &config);
    near.queue_pair.connect(far.facts(&fixture.far).unwrap()).unwrap();
    far.connect(near.queue_pair.facts(&fixture.near).unwrap()).unwrap();
    for id in 0..100 {
        far.post_receive(id, local(&region, 0, 64)).unwrap();
        let verb = Verb::Send { payload: Payload::Inline(&[b"flood"]), immediate: None, to: None };
        near.post(&SendRequest { id, verb, signaled: true });
    }
    // Polling another queue of the same thread drives a software NIC, and nobody polls the small one.
    let mut room = [Completion::EMPTY; 128];
    let mut waits = 0;
    while far.state() != QueuePairState::Error && waits < 20_000 {
        near.poll();
        assert_eq!(others.poll(&mut room), 0, "the far end sent nothing");
        waits += 1;
    }
    let broken = far.state() == QueuePairState::Error;
    let mut got = Vec::new();
    for _ in 0..500 {
        near.poll();
        let count = small.poll(&mut room[..1]);
        got.extend_from_slice(&room[..count]);
    }
    is_a_sound_history(&got);
    // A NIC that carries messages only when their queue is polled cannot overflow it; then all of them are there.
    assert!(broken || (got.len() == 100 && got[99].status == Status::Success), "{} completions", got.len());
}

fn a_queue_pair_outlives_its_completion_queues<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&region);
    let Duo { near, mut far, .. } = fixture.duo(Rc);
    let End { mut queue_pair, sends, receives, .. } = near;
    queue_pair.post_receive(1, local(&region, 0, 64)).unwrap();
    drop((sends, receives));
    // Nobody can see what becomes of these, but they are memory of this process all the same.
    let written =
        queue_pair.post_send(&unsignaled(write(2, Payload::Inline(&[b"blind"]), remote(&shared, 64))));
    assert!(written.is_ok() && queue_pair.ring().is_ok());
    let verb = Verb::Send { payload: Payload::Inline(&[b"to the blind"]), immediate: None, to: None };
    far.post(&SendRequest { id: 3, verb, signaled: true });
    far.poll();
    queue_pair.fail();
    drop(queue_pair);
    // The peer finds out like any other whose peer is gone.
    let completion = far.sent();
    assert!(completion.id == 3, "{completion:?}");
}

fn numbers_are_unique<N: Nic>(fixture: &mut Fixture<N>) {
    let duos: Vec<_> = [Rc, Uc, Ud, Rc].into_iter().map(|transport| fixture.duo(transport)).collect();
    let mut numbers: Vec<_> =
        duos.iter().flat_map(|duo| [duo.near.queue_pair.number(), duo.far.queue_pair.number()]).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 8);
}
