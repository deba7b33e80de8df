//! The two ends on threads of their own, as between processes: each makes its queue pair on the thread that uses it.

use crate::{
    Case,
    fixture::{
        End, Fixture, PATIENCE, Random, bytes_of, local, pattern, read, remote, slice, unsignaled, wait,
        write,
    },
    list,
};
use locus_fabric::{
    Access, Link, Nic, PagePolicy, Payload, QueuePair, QueuePairConfig, QueuePairState, Region, SendRequest,
    Status, Transport, Transport::*, Verb,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "threads::ping_pong_over_rc" => |f| ping_pong(f, Rc),
        "threads::ping_pong_over_uc" => |f| ping_pong(f, Uc),
        "threads::ping_pong_over_ud" => ping_pong_over_ud,
        "threads::a_flood_arrives_whole_and_in_order" => a_flood_arrives_whole_and_in_order,
        "threads::windows_in_both_directions" => windows_in_both_directions,
        "threads::write_precedes_its_message_over_rc" => |f| write_precedes_its_message(f, Rc),
        "threads::write_precedes_its_message_over_uc" => |f| write_precedes_its_message(f, Uc),
        "threads::read_needs_nothing_of_a_sleeping_owner" => read_needs_nothing_of_a_sleeping_owner,
        "threads::no_read_sees_what_was_stored_after_revoking" => no_read_sees_what_was_stored_after_revoking,
        "threads::closing_amid_traffic_ends_it" => |f| ending_amid_traffic(f, Ending::Close),
        "threads::failing_amid_traffic_ends_it" => |f| ending_amid_traffic(f, Ending::Fail),
        "threads::dropping_amid_traffic_ends_it" => |f| ending_amid_traffic(f, Ending::Drop),
        "threads::queue_pairs_come_and_go_beside_traffic" => queue_pairs_come_and_go_beside_traffic,
    ]
}

/// A SEND of a few bytes.
fn message<'a, N: Nic>(
    id: u64,
    bytes: &'a [&'a [u8]],
    to: Option<&'a N::AddressHandle>,
) -> SendRequest<'a, N> {
    SendRequest {
        id,
        verb: Verb::Send { payload: Payload::Inline(bytes), immediate: None, to },
        signaled: true,
    }
}

/// Runs the two sides on a thread each, with the link and the NIC they have.
fn on_both_sides<N: Nic>(
    fixture: &Fixture<N>,
    near: impl FnOnce(&N, &N::Link) + Send,
    far: impl FnOnce(&N, &N::Link) + Send,
) {
    crate::scope::scope(|scope| {
        scope.spawn(|| near(&fixture.nic, &fixture.near));
        scope.spawn(|| far(&fixture.nic, &fixture.far));
    });
}

fn ping_pong<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    const ROUNDS: u64 = 10_000;
    let config = fixture.config(transport);
    let play = |nic: &N, link: &N::Link, first: bool| {
        let region = nic.register(4096, Access::Local, PagePolicy::Base).unwrap();
        let mut end = End::connected(nic, link, &config);
        // A RECV is posted before the message it is for can be sent.
        end.receive(0, &region, 0, 64);
        link.send(b"go", Vec::new()).unwrap();
        assert!(link.receive(PATIENCE).unwrap().is_some());
        for round in 0..ROUNDS {
            let receive = |end: &mut End<N>| {
                let received = end.received();
                assert_eq!((received.id, received.status, received.bytes), (round, Status::Success, 24));
                assert_eq!(bytes_of(&region, 0, 24), pattern(round, 24));
                end.receive(round + 1, &region, 0, 64);
            };
            if !first {
                receive(&mut end);
            }
            end.post(&message(round, &[&pattern(round, 24)], None));
            if first {
                receive(&mut end);
            }
            assert_eq!(end.sent().id, round);
        }
        // Whoever leaves first would break the other's last message.
        link.send(b"bye", Vec::new()).unwrap();
        let bye = wait("the other side to end", || {
            end.poll();
            link.receive(std::time::Duration::from_millis(1)).unwrap()
        });
        assert_eq!(bye.0, b"bye");
    };
    on_both_sides(fixture, |nic, link| play(nic, link, true), |nic, link| play(nic, link, false));
}

fn ping_pong_over_ud<N: Nic>(fixture: &mut Fixture<N>) {
    const ROUNDS: u64 = 5_000;
    let config = fixture.config(Ud);
    let play = |nic: &N, link: &N::Link, first: bool| {
        let region = nic.register(4096, Access::Local, PagePolicy::Base).unwrap();
        let mut end = End::new(nic, link, &config);
        end.queue_pair.activate().unwrap();
        end.receive(0, &region, 0, 128);
        link.send(b"go", vec![end.queue_pair.facts(link).unwrap()]).unwrap();
        let (_, mut facts) = link.receive(PATIENCE).unwrap().expect("the peer's facts");
        let address = end.queue_pair.address(link, facts.remove(0)).unwrap();
        for round in 0..ROUNDS {
            for turn in [true, false] {
                if turn == first {
                    end.post(&message(round, &[&pattern(round, 24)], Some(&address)));
                    assert_eq!(end.sent().status, Status::Success);
                } else {
                    let received = end.received();
                    assert_eq!((received.id, received.status, received.bytes), (round, Status::Success, 64));
                    assert_eq!(bytes_of(&region, 40, 24), pattern(round, 24));
                    end.receive(round + 1, &region, 0, 128);
                }
            }
        }
    };
    on_both_sides(fixture, |nic, link| play(nic, link, true), |nic, link| play(nic, link, false));
}

/// Bytes of a message, by its number.
fn size_of(number: u64, longest: usize) -> usize {
    Random(number).below(longest + 1)
}

fn a_flood_arrives_whole_and_in_order<N: Nic>(fixture: &mut Fixture<N>) {
    const COUNT: u64 = 20_000;
    const SLOT: usize = 1024;
    let config = QueuePairConfig { send_depth: 32, receive_depth: 8, ..fixture.config(Rc) };
    let sender = |nic: &N, link: &N::Link| {
        let region = nic.register(32 * SLOT, Access::Local, PagePolicy::Base).unwrap();
        let mut end = End::connected(nic, link, &config);
        // As fast as the send queue takes them; the receiver has fewer places and is slower, so that many wait.
        let mut completed = 0;
        for id in 0..COUNT {
            if id >= 32 {
                let sent = end.sent();
                assert_eq!((sent.id, sent.status), (completed, Status::Success));
                completed += 1;
            }
            let (at, bytes) = (id as usize % 32 * SLOT, size_of(id, SLOT));
            region.copy_in(at, &pattern(id, bytes));
            let verb =
                Verb::Send { payload: slice(&region, at, bytes), immediate: Some(id as u32), to: None };
            end.post(&SendRequest { id, verb, signaled: true });
        }
        while completed < COUNT {
            assert_eq!(end.sent().id, completed);
            completed += 1;
        }
    };
    let receiver = |nic: &N, link: &N::Link| {
        let region = nic.register(8 * SLOT, Access::Local, PagePolicy::Base).unwrap();
        let mut end = End::connected(nic, link, &config);
        let mut posted = 0;
        for id in 0..COUNT {
            // Sometimes none, sometimes all places are ready.
            while posted <= id || (id % 3 != 0 && posted < (id + 8).min(COUNT)) {
                end.receive(posted, &region, posted as usize % 8 * SLOT, SLOT);
                posted += 1;
            }
            let received = end.received();
            let bytes = size_of(id, SLOT);
            assert_eq!((received.id, received.status, received.bytes), (id, Status::Success, bytes as u32));
            assert_eq!(received.immediate, Some(id as u32));
            assert!(bytes_of(&region, id as usize % 8 * SLOT, bytes) == pattern(id, bytes), "message {id}");
        }
        // The sender still waits for its last completions, which polling here may drive.
        wait("the sender to end", || {
            end.poll();
            link.receive(std::time::Duration::from_millis(1)).unwrap()
        });
    };
    on_both_sides(
        fixture,
        |nic, link| {
            sender(nic, link);
            link.send(b"done", Vec::new()).unwrap();
        },
        receiver,
    );
}

fn windows_in_both_directions<N: Nic>(fixture: &mut Fixture<N>) {
    const COUNT: u64 = 20_000;
    const WINDOW: u64 = 16;
    let config = fixture.config(Rc);
    let play = |nic: &N, link: &N::Link| {
        let region = nic.register(4096, Access::Local, PagePolicy::Base).unwrap();
        let mut end = End::connected(nic, link, &config);
        let (mut sent, mut completed, mut received, mut posted) = (0, 0, 0, 0);
        wait("both windows", || {
            while posted < COUNT && posted < received + 2 * WINDOW {
                end.receive(posted, &region, posted as usize % 32 * 64, 64);
                posted += 1;
            }
            // Mostly unsignaled, as the papers send.
            while sent < COUNT && sent < completed + WINDOW {
                let signaled = sent % 8 == 7 || sent == COUNT - 1;
                end.queue(&SendRequest { signaled, ..message(sent, &[&sent.to_le_bytes()], None) });
                sent += 1;
            }
            end.queue_pair.ring().unwrap();
            end.poll();
            while let Some(completion) = end.take_sent() {
                assert_eq!(completion.status, Status::Success);
                completed = completion.id + 1;
            }
            while let Some(completion) = end.take_received() {
                assert_eq!((completion.id, completion.status), (received, Status::Success));
                assert_eq!(bytes_of(&region, received as usize % 32 * 64, 8), received.to_le_bytes());
                received += 1;
            }
            (completed == COUNT && received == COUNT).then_some(())
        });
        link.send(b"bye", Vec::new()).unwrap();
        wait("the other side to end", || {
            end.poll();
            link.receive(std::time::Duration::from_millis(1)).unwrap()
        });
    };
    on_both_sides(fixture, play, play);
}

fn write_precedes_its_message<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    const ROUNDS: u64 = 3_000;
    let config = fixture.config(transport);
    let writer = |nic: &N, link: &N::Link| {
        let region = nic.register(4096, Access::Local, PagePolicy::Base).unwrap();
        let mut end = End::connected(nic, link, &config);
        let (_, mut facts) = link.receive(PATIENCE).unwrap().expect("the region");
        let shared = link.import(facts.remove(0)).unwrap();
        end.receive(0, &region, 4000, 64);
        link.send(b"go", Vec::new()).unwrap();
        for round in 0..ROUNDS {
            region.copy_in(0, &pattern(round, 1111));
            end.queue(&unsignaled(write(1, slice(&region, 0, 1111), remote(&shared, 5))));
            end.post(&message(2, &[b"written"], None));
            assert_eq!(end.sent().id, 2);
            assert_eq!(end.received().id, round, "the word that it was looked at");
            end.receive(round + 1, &region, 4000, 64);
        }
    };
    let reader = |nic: &N, link: &N::Link| {
        let region = nic.register(4096, Access::RemoteWrite, PagePolicy::Base).unwrap();
        let mut end = End::connected(nic, link, &config);
        end.receive(0, &region, 4000, 64);
        link.send(b"region", vec![link.grant(&region).unwrap()]).unwrap();
        assert!(link.receive(PATIENCE).unwrap().is_some());
        for round in 0..ROUNDS {
            assert_eq!(end.received().id, round);
            assert!(bytes_of(&region, 5, 1111) == pattern(round, 1111), "round {round}");
            end.receive(round + 1, &region, 4000, 64);
            end.post(&message(round, &[b"seen"], None));
            assert_eq!(end.sent().id, round);
        }
    };
    on_both_sides(fixture, writer, reader);
}

fn read_needs_nothing_of_a_sleeping_owner<N: Nic>(fixture: &mut Fixture<N>) {
    let config = fixture.config(Rc);
    let owner = |nic: &N, link: &N::Link| {
        let region = nic.register(1 << 20, Access::RemoteRead, PagePolicy::Base).unwrap();
        region.copy_in(0, &pattern(1, 1 << 20));
        let _end = End::connected(nic, link, &config);
        link.send(b"region", vec![link.grant(&region).unwrap()]).unwrap();
        // Sleeps in the link until the reader is done: nothing is polled here.
        let (message, _) = link.receive(PATIENCE).unwrap().expect("the reader's word");
        assert_eq!(message, b"read");
    };
    let reader = |nic: &N, link: &N::Link| {
        let region = nic.register(4096, Access::Local, PagePolicy::Base).unwrap();
        let mut end = End::connected(nic, link, &config);
        let (_, mut facts) = link.receive(PATIENCE).unwrap().expect("the region");
        let shared = link.import(facts.remove(0)).unwrap();
        let stored = pattern(1, 1 << 20);
        let mut random = Random(3);
        for id in 0..20_000 {
            let (at, bytes) = (random.below((1 << 20) - 200), random.below(200));
            end.post(&read(id, local(&region, 3, bytes), remote(&shared, at)));
            assert_eq!(end.sent().status, Status::Success);
            assert!(bytes_of(&region, 3, bytes) == stored[at..at + bytes], "{bytes} bytes at {at}");
        }
        link.send(b"read", Vec::new()).unwrap();
    };
    on_both_sides(fixture, reader, owner);
}

fn no_read_sees_what_was_stored_after_revoking<N: Nic>(fixture: &mut Fixture<N>) {
    const WORDS: usize = 256;
    for round in 0..200 {
        let theirs = fixture.region(WORDS * 8, Access::RemoteRead);
        (0..WORDS).for_each(|index| theirs.store(index, 1));
        let shared = fixture.share(&theirs);
        let reads = AtomicU64::new(0);
        crate::scope::scope(|scope| {
            let reads = &reads;
            let reader = scope.spawn(|| {
                let ours = fixture.region(WORDS * 8, Access::Local);
                let shared = shared;
                let mut duo = fixture.duo(Rc);
                for id in 0.. {
                    let from = remote(&shared, 0);
                    // Both kinds of READ.
                    let mut copy = [0; WORDS * 8];
                    if id % 2 == 0 || !duo.near.queue_pair.read_at_once(&mut copy, &from) {
                        duo.near.post(&read(id, local(&ours, 0, WORDS * 8), from));
                        let status = duo.sent().status;
                        if status != Status::Success {
                            return status;
                        }
                        ours.copy_out(0, &mut copy);
                    }
                    assert!(
                        copy.as_chunks::<8>().0.iter().all(|word| *word == [1, 0, 0, 0, 0, 0, 0, 0]),
                        "round {round}"
                    );
                    reads.fetch_add(1, Ordering::Relaxed);
                }
                unreachable!("READs go on until they fail")
            });
            wait("some READs", || {
                (reads.load(Ordering::Relaxed) > round % 7 || reader.is_finished()).then_some(())
            });
            theirs.revoke();
            (0..WORDS).for_each(|index| theirs.store(index, 2));
            assert_eq!(reader.join().expect("only old words"), Status::RemoteAccess);
        });
    }
}

/// How one side leaves.
#[derive(Clone, Copy, PartialEq)]
enum Ending {
    Close,
    Fail,
    Drop,
}

fn ending_amid_traffic<N: Nic>(fixture: &mut Fixture<N>, ending: Ending) {
    for round in 0..20 {
        let fixture = fixture.another();
        let config = &fixture.config(Rc);
        let theirs = fixture.region(4096, Access::RemoteWrite);
        let shared = fixture.share(&theirs);
        let (ours, over) = (fixture.region(4096, Access::Local), AtomicBool::new(false));
        let (ours, over) = (&ours, &over);
        let stays = move |nic: &N, link: &N::Link| {
            let mut end = End::connected(nic, link, config);
            let mut id = 0;
            wait("the end of the traffic", || {
                end.queue(&read(id, local(ours, 0, 64), remote(&shared, 0)));
                end.queue(&write(id + 1, slice(ours, 0, 64), remote(&shared, 64)));
                end.post(&message(id + 2, &[b"anybody?"], None));
                id += 3;
                for _ in 0..3 {
                    link.check();
                    if end.sent().status != Status::Success {
                        return Some(());
                    }
                }
                None
            });
            assert_eq!(end.queue_pair.state(), QueuePairState::Error);
            over.store(true, Ordering::Release);
        };
        let leaves = |nic: &N, link: &N::Link| {
            let region = nic.register(4096, Access::Local, PagePolicy::Base).unwrap();
            let mut end = End::connected(nic, link, config);
            for id in 0..20 + round {
                end.receive(id, &region, 0, 64);
                end.received();
            }
            match ending {
                Ending::Close => link.close(),
                Ending::Fail => end.queue_pair.fail(),
                Ending::Drop => {
                    drop(end);
                    return;
                }
            }
            wait("the other side", || {
                end.poll();
                over.load(Ordering::Acquire).then_some(())
            });
        };
        on_both_sides(&fixture, stays, leaves);
        assert_eq!(fixture.near.check(), ending != Ending::Close);
    }
}

fn queue_pairs_come_and_go_beside_traffic<N: Nic>(fixture: &mut Fixture<N>) {
    let theirs = fixture.region(4096, Access::RemoteRead);
    theirs.copy_in(0, &pattern(1, 4096));
    let done = AtomicBool::new(false);
    crate::scope::scope(|scope| {
        let (done, theirs, fixture) = (&done, &theirs, &*fixture);
        let traffic = scope.spawn(move || {
            let (ours, shared) = (fixture.region(4096, Access::Local), fixture.share(theirs));
            let mut duo = fixture.duo(Rc);
            let mut id = 0;
            while !done.load(Ordering::Acquire) {
                duo.far.receive(id, &ours, 2048, 64);
                duo.near.post(&read(id, local(&ours, 0, 1000), remote(&shared, 0)));
                duo.send_inline(id, b"beside");
                duo.received_well(id, 6, None);
                assert_eq!((duo.sent().status, duo.sent().status), (Status::Success, Status::Success));
                assert!(bytes_of(&ours, 0, 1000) == pattern(1, 1000));
                id += 1;
            }
        });
        for round in 0..200 {
            let transport = [Rc, Uc, Ud][round % 3];
            let region = fixture.region(4096, Access::Local);
            let mut duo = fixture.duo(transport);
            duo.far.receive(1, &region, 0, 128);
            duo.send_inline(2, b"short lived");
            duo.received_well(1, 11, None);
        }
        done.store(true, Ordering::Release);
        traffic.join().expect("the traffic went on");
    });
}
