//! Sleeping and being woken: no wake-up is lost. A lost one shows as a sleeper that outlasts the case's patience, since
//! every sleep here is longer than that.

use crate::{
    Case,
    fixture::{End, Fixture, PATIENCE, local, wait},
    list,
};
use locus_fabric::{
    Access, Completion, CompletionQueue, Link, Nic, Opcode, PagePolicy, Park, Payload, QueuePair, Region,
    RemoteSlice, SendRequest, Status, Transport, Transport::*, Verb,
};
use locus_runtime::{Clock, MonotonicClock, channel, world};
use std::{
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "park::ends_when_the_time_has_passed" => ends_when_the_time_has_passed,
        "park::prepare_refuses_when_something_has_arrived_over_rc" => |f| prepare_refuses(f, Rc),
        "park::prepare_refuses_when_something_has_arrived_over_uc" => |f| prepare_refuses(f, Uc),
        "park::prepare_refuses_when_something_has_arrived_over_ud" => |f| prepare_refuses(f, Ud),
        "park::ends_at_once_when_something_arrives_after_prepare" => arrives_after_prepare,
        "park::a_message_wakes_a_sleeper" => a_message_wakes_a_sleeper,
        "park::a_write_wakes_a_sleeper_over_rc_as_declared" => |f| a_write_wakes_a_sleeper(f, Rc),
        "park::a_write_wakes_a_sleeper_over_uc_as_declared" => |f| a_write_wakes_a_sleeper(f, Uc),
        "park::a_completion_wakes_a_sleeper" => |f| a_completion_wakes_a_sleeper(f, |end| &end.sends),
        "park::a_completion_wakes_a_sleeper_on_a_queue_beside" =>
            |f| a_completion_wakes_a_sleeper(f, |end| &end.receives),
        "park::a_completion_that_nobody_polls_keeps_nobody_awake" => an_unpolled_completion,
        "park::a_waker_wakes_a_sleeper" => a_waker_wakes_a_sleeper,
        "park::a_waker_called_before_is_not_lost" => a_waker_called_before_is_not_lost,
        "park::closing_wakes_a_sleeper" => closing_wakes_a_sleeper,
    ]
}

/// Longer than any case waits.
const NIGHT: Duration = Duration::from_secs(3600);

/// After so long a message that may be lost is taken to be: so seldom that a case whose messages wake nobody ends late.
const LOST_AFTER: Duration = Duration::from_millis(200);

/// Runs a sleeper on a thread of its own and asserts that it ends within the patience, driven by `meanwhile`.
fn ends_in_time(sleeper: impl FnOnce() + Send, meanwhile: impl FnOnce()) {
    if world::is_simulated() {
        // A world in which nobody is woken any more says so by itself.
        return crate::scope::scope(|scope| {
            let thread = scope.spawn(sleeper);
            meanwhile();
            thread.join().expect("the sleeper's own assertions");
        });
    }
    crate::scope::scope(|scope| {
        let (done, ended) = mpsc::channel();
        let thread = scope.spawn(move || {
            // Sent also when the sleeper panics, by dropping it.
            let _done: mpsc::Sender<()> = done;
            sleeper();
        });
        meanwhile();
        if ended.recv_timeout(2 * PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            // A thread that sleeps cannot be ended, so the process is.
            eprintln!("a sleeper was never woken");
            std::process::abort();
        }
        thread.join().expect("the sleeper's own assertions");
    });
}

/// Polls, and sleeps whenever there is nothing, until `wanted` says that it was found.
fn sleep_until<N: Nic>(end: &mut End<N>, mut wanted: impl FnMut(&mut End<N>) -> bool) {
    loop {
        end.poll();
        if wanted(end) {
            return;
        }
        if end.receives.prepare() {
            end.receives.park(NIGHT);
        }
    }
}

fn ends_when_the_time_has_passed<N: Nic>(fixture: &mut Fixture<N>) {
    let queue = fixture.nic.create_completion_queue(16).unwrap();
    for time in [Duration::ZERO, Duration::from_micros(1), Duration::from_millis(5)] {
        let start = MonotonicClock::new();
        while queue.prepare() {
            queue.park(time);
            if start.elapsed() >= time {
                break;
            }
        }
        assert!(start.elapsed() < PATIENCE);
    }
}

fn prepare_refuses<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(transport);
    for round in 0..50 {
        duo.far.receive(round, &region, 0, 128);
        duo.send_inline(round, b"awake");
        // The message may be on its way, but not for ever.
        wait("prepare to see the message", || {
            let quiet = duo.far.receives.prepare();
            if quiet {
                duo.far.receives.park(Duration::ZERO);
            }
            (!quiet).then_some(())
        });
        duo.received_well(round, 5, None);
        duo.sent_well(round, Opcode::Send);
    }
}

fn arrives_after_prepare<N: Nic>(fixture: &mut Fixture<N>) {
    let config = fixture.config(Rc);
    let (near, far, nic) = (fixture.near.clone(), fixture.far.clone(), fixture.nic.clone());
    ends_in_time(
        || {
            let region = nic.register(4096, Access::Local, PagePolicy::Base).unwrap();
            let mut end = End::connected(&nic, &far, &config);
            for round in 0..200 {
                end.receive(round, &region, 0, 64);
                let announced = end.receives.prepare();
                far.send(b"announced", Vec::new()).unwrap();
                if announced {
                    // Whether the message comes before or during the sleep: it ends it.
                    end.receives.park(NIGHT);
                }
                sleep_until(&mut end, |end| end.take_received().is_some());
            }
        },
        || {
            let mut end = End::connected(&fixture.nic, &near, &config);
            for round in 0..200 {
                assert!(near.receive(PATIENCE).unwrap().is_some());
                end.post(&send(round));
                assert_eq!(end.sent().status, Status::Success);
            }
        },
    );
}

/// An inline SEND of a few bytes.
fn send<N: Nic>(id: u64) -> SendRequest<'static, N> {
    let verb = Verb::Send { payload: Payload::Inline(&[b"wake up"]), immediate: None, to: None };
    SendRequest { id, verb, signaled: true }
}

fn a_message_wakes_a_sleeper<N: Nic>(fixture: &mut Fixture<N>) {
    // Both sides sleep for each other's message: one lost wake-up in all these rounds and neither ever wakes.
    const ROUNDS: u64 = 5_000;
    let config = fixture.config(Rc);
    let (nic, near, far) = (fixture.nic.clone(), fixture.near.clone(), fixture.far.clone());
    let play = |link: &N::Link, first: bool| {
        let region = nic.register(4096, Access::Local, PagePolicy::Base).unwrap();
        let mut end = End::connected(&nic, link, &config);
        for round in 0..ROUNDS {
            end.receive(round, &region, 0, 64);
            if first {
                end.post(&send(round));
            }
            sleep_until(&mut end, |end| end.take_received().is_some());
            if !first {
                end.post(&send(round));
            }
            while end.take_sent().is_some() {}
        }
        link.send(b"bye", Vec::new()).unwrap();
        wait("the other side to end", || {
            end.poll();
            link.receive(Duration::from_millis(1)).unwrap()
        });
    };
    let play = &play;
    ends_in_time(move || play(&far, false), move || play(&near, true));
}

/// Both sides sleep for each other's WRITE, which raises no completion: each announces its sleep and looks at its memory
/// once more.
fn a_write_wakes_a_sleeper<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    const ROUNDS: u64 = 2_000;
    // Where that wakes nobody, one with an immediate must.
    let immediate = (!fixture.nic.properties().writes_wake).then_some(7);
    // What may have been lost is written again, which is the same word at the same place.
    let may_be_lost = transport == Uc && fixture.nic.properties().loses_messages;
    let config = fixture.config(transport);
    let (nic, near, far) = (fixture.nic.clone(), fixture.near.clone(), fixture.far.clone());
    let play = |link: &N::Link, first: bool| {
        let region = nic.register(4096, Access::RemoteWrite, PagePolicy::Base).unwrap();
        link.send(b"memory", vec![link.grant(&region).unwrap()]).unwrap();
        let (_, mut facts) = link.receive(PATIENCE).unwrap().expect("the other's memory");
        let theirs = link.import(facts.pop().expect("its facts")).unwrap();
        let mut end = End::connected(&nic, link, &config);
        let clock = MonotonicClock::new();
        let is_there = |round| region.words()[0].load(Ordering::Acquire) == round;
        (0..ROUNDS.min(64)).for_each(|id| end.receive(id, &region, 64, 64));
        let write = |end: &mut End<N>, word: u64| {
            let payload = Payload::Inline(&[&word.to_le_bytes()]);
            let to = RemoteSlice { region: &theirs, offset: 0 };
            let verb = Verb::Write { payload, to, immediate };
            end.post(&SendRequest { id: word, verb, signaled: true });
        };
        for round in 1..=ROUNDS {
            if first {
                write(&mut end, round);
            }
            let mut waits_from = clock.now_ns();
            loop {
                end.poll();
                if is_there(round) {
                    break;
                }
                if may_be_lost && clock.now_ns() - waits_from > LOST_AFTER.as_nanos() as u64 {
                    while end.take_sent().is_some() {}
                    write(&mut end, if first { round } else { round - 1 });
                    waits_from = clock.now_ns();
                }
                if end.receives.prepare() {
                    let night = if may_be_lost { LOST_AFTER } else { NIGHT };
                    end.receives.park(if is_there(round) { Duration::ZERO } else { night });
                }
            }
            if !first {
                write(&mut end, round);
            }
            while end.take_sent().is_some() {}
            while end.take_received().is_some() {
                end.receive(round, &region, 64, 64);
            }
        }
        link.send(b"bye", Vec::new()).unwrap();
        wait("the other side to end", || {
            end.poll();
            if may_be_lost && !first {
                while end.take_sent().is_some() {}
                write(&mut end, ROUNDS);
            }
            link.receive(Duration::from_millis(1)).unwrap()
        });
    };
    let play = &play;
    ends_in_time(move || play(&far, false), move || play(&near, true));
}

fn a_completion_wakes_a_sleeper<N: Nic>(fixture: &mut Fixture<N>, bed: fn(&End<N>) -> &N::CompletionQueue) {
    // A sender sleeps until its SEND, for which nobody has posted a RECV yet, is acknowledged.
    let config = fixture.config(Rc);
    let (nic, far) = (fixture.nic.clone(), fixture.far.clone());
    let finished = AtomicBool::new(false);
    ends_in_time(
        || {
            let mut end = End::connected(&nic, &far, &config);
            for round in 0..200 {
                end.post(&send(round));
                far.send(b"posted", Vec::new()).unwrap();
                loop {
                    end.poll();
                    if let Some(sent) = end.take_sent() {
                        assert_eq!((sent.id, sent.status), (round, Status::Success));
                        break;
                    }
                    if bed(&end).prepare() {
                        bed(&end).park(NIGHT);
                    }
                }
            }
            finished.store(true, Ordering::Release);
        },
        || {
            let region = fixture.region(4096, Access::Local);
            let mut end = End::connected(&fixture.nic, &fixture.near, &config);
            for round in 0..200 {
                assert!(fixture.near.receive(PATIENCE).unwrap().is_some());
                end.receive(round, &region, 0, 64);
                assert_eq!(end.received().id, round);
            }
            wait("the sleeper to see its last completion", || {
                end.poll();
                finished.load(Ordering::Acquire).then_some(())
            });
        },
    );
}

fn an_unpolled_completion<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(Rc);
    for round in 0..3 {
        duo.far.receive(round, &region, 0, 64);
        duo.near.post(&send(round));
        wait("the SEND to arrive", || {
            duo.far.poll();
            duo.far.take_received()
        });
    }
    // Nobody polls for the SENDs' completions, of which one more may come at any time.
    let mut sleeps = 0;
    wait("a sleep", || {
        if duo.near.receives.prepare() {
            duo.near.receives.park(Duration::from_millis(1));
            sleeps += 1;
        }
        (sleeps == 10).then_some(())
    });
    for round in 0..3 {
        duo.sent_well(round, Opcode::Send);
    }
}

fn a_waker_wakes_a_sleeper<N: Nic>(fixture: &mut Fixture<N>) {
    const ROUNDS: u64 = 5_000;
    let (given, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    let (send_waker, waker) = channel::channel();
    let nic = fixture.nic.clone();
    let (given, taken) = (&given, &taken);
    ends_in_time(
        move || {
            let queue = nic.create_completion_queue(16).unwrap();
            send_waker.send(queue.waker()).unwrap();
            for round in 1..=ROUNDS {
                while given.load(Ordering::Acquire) < round {
                    if queue.prepare() {
                        queue.park(NIGHT);
                    }
                }
                taken.store(round, Ordering::Release);
            }
        },
        || {
            let wake = waker.receive().expect("the sleeper's waker");
            for round in 1..=ROUNDS {
                given.store(round, Ordering::Release);
                wake();
                wait("the sleeper", || (taken.load(Ordering::Acquire) == round).then_some(()));
            }
        },
    );
}

fn a_waker_called_before_is_not_lost<N: Nic>(fixture: &mut Fixture<N>) {
    let nic = fixture.nic.clone();
    ends_in_time(
        move || {
            let mut queue = nic.create_completion_queue(16).unwrap();
            let wake = queue.waker();
            for round in 0..100 {
                // Once or several times, before the announcement or after it: the sleep that follows ends at once.
                if round % 2 == 0 {
                    wake();
                    if queue.prepare() {
                        queue.park(NIGHT);
                    }
                } else if queue.prepare() {
                    wake();
                    wake();
                    queue.park(NIGHT);
                }
                assert_eq!(queue.poll(&mut [Completion::EMPTY; 4]), 0);
            }
        },
        || {},
    );
}

fn closing_wakes_a_sleeper<N: Nic>(fixture: &mut Fixture<N>) {
    for by_peer in [true, false] {
        let fixture = fixture.another();
        let config = fixture.config(Rc);
        let (nic, far) = (fixture.nic.clone(), fixture.far.clone());
        ends_in_time(
            || {
                let region = nic.register(4096, Access::Local, PagePolicy::Base).unwrap();
                let mut end = End::connected(&nic, &far, &config);
                end.queue_pair.post_receive(1, local(&region, 0, 64)).unwrap();
                far.send(b"sleeping", Vec::new()).unwrap();
                sleep_until(&mut end, |end| {
                    end.take_received()
                        .inspect(|received| assert_ne!(received.status, Status::Success))
                        .is_some()
                });
            },
            || {
                let _end = End::connected(&fixture.nic, &fixture.near, &config);
                assert!(fixture.near.receive(PATIENCE).unwrap().is_some());
                if by_peer {
                    fixture.near.close();
                    // The housekeeping thread of the sleeper's process sees it.
                    wait("the far link to see it", || (!fixture.far.check()).then_some(()));
                } else {
                    fixture.far.close();
                }
            },
        );
    }
}
