//! What only this provider does: the same world from the same seed, virtual time, ends of worlds and of processes.

use super::*;
use crate::{
    Completion, CompletionQueue, LocalSlice, Payload, QueuePair, ReceiverNotReady, SendRequest, Status,
    Transport, Verb,
};
use locus_runtime::{Clock, MonotonicClock, thread};
use std::{rc::Rc, time::Duration};

#[test]
fn virtual_time_costs_no_real_time() {
    let outcome = simulate(SimulationConfig::default(), || {
        let clock = MonotonicClock::new();
        thread::sleep(Duration::from_secs(3600));
        clock.now_ns()
    });
    assert_eq!(outcome.unwrap().value, 3_600_000_000_000);
}

#[test]
fn a_world_in_which_all_wait_says_so() {
    let error = simulate(SimulationConfig::default(), || {
        let (_sender, receiver) = locus_runtime::channel::channel::<()>();
        let _ = receiver.receive();
    });
    assert_eq!(error.err(), Some(SimulationError::Stuck { at_ns: 0 }));
}

#[test]
fn a_panic_ends_the_world_and_says_where() {
    let error = simulate(SimulationConfig::default(), || {
        let other = thread::spawn("other", || {
            thread::sleep(Duration::from_nanos(7));
            panic!("on purpose");
        });
        let _ = other.unwrap().join();
        thread::sleep(Duration::from_secs(1));
    });
    let panicked =
        SimulationError::Panicked { thread: "other".into(), at_ns: 7, message: "on purpose".into() };
    assert_eq!(error.err(), Some(panicked));
}

#[test]
fn an_endless_world_reaches_its_limit() {
    let config = SimulationConfig { events_max: 1000, ..SimulationConfig::default() };
    let error = simulate(config, || {
        loop {
            thread::yield_now();
        }
    });
    assert!(matches!(error, Err::<Outcome<()>, _>(SimulationError::Exhausted { limit: 1000, .. })));
}

#[test]
fn a_killed_process_drops_what_it_held_and_its_peer_notices() {
    let outcome = simulate(SimulationConfig::default(), || {
        let nic = SimNic::open();
        let address = Address::Sim("victim".into());
        let victim = SimProcess::spawn("victim", {
            let address = address.clone();
            move || {
                let listener = SimNic::open().listen(&address).unwrap();
                let link = crate::Listener::accept(&listener, Duration::from_secs(1)).unwrap().unwrap();
                let _ = crate::Link::receive(&link, Duration::from_secs(3600));
                unreachable!("it is killed before");
            }
        });
        thread::sleep(Duration::from_micros(10));
        assert!(nic.listen(&address).is_err(), "the address is taken");
        let link = nic.connect(&address).unwrap();
        assert!(crate::Link::alive(&link));
        victim.kill();
        victim.join();
        assert!(!crate::Link::alive(&link));
        assert!(crate::Link::receive(&link, Duration::from_secs(1)).is_err());
        drop(nic.listen(&address).expect("the address is free"));
    });
    outcome.unwrap();
}

#[test]
fn a_keeper_keeps_what_it_made_until_it_is_killed() {
    let outcome = simulate(SimulationConfig::default(), || {
        let kept = Rc::new(());
        let keeper = SimProcess::spawn_keeper(SimHost::add("keeper", 0), "keeper", {
            let kept = kept.clone();
            move || {
                thread::sleep(Duration::from_micros(10));
                [kept.clone(), kept]
            }
        });
        assert_eq!(Rc::strong_count(&kept), 3, "it is made");
        thread::sleep(Duration::from_secs(3600));
        assert_eq!(Rc::strong_count(&kept), 3, "it is kept");
        keeper.kill();
        assert_eq!(Rc::strong_count(&kept), 1, "it is dropped");
    });
    outcome.unwrap();
}

/// Sends numbered datagrams and gives those that arrived.
fn datagrams(adversary: Adversary) -> (Vec<u32>, SimulationCounters) {
    const COUNT: u32 = 500;
    let outcome = simulate(SimulationConfig { adversary, ..SimulationConfig::default() }, || {
        let nic = SimNic::open();
        let (near, far) = nic.pair().unwrap();
        let region = nic.register(1 << 20, Access::Local, PagePolicy::Base).unwrap();
        let mut queue = nic.create_completion_queue(4096).unwrap();
        let depth = COUNT as usize;
        let config = QueuePairConfig {
            transport: Transport::Ud,
            send_depth: depth,
            receive_depth: depth,
            message_bytes: 64,
            ..QueuePairConfig::default()
        };
        let mut from = nic.create_queue_pair(&near, &config, &queue, &queue).unwrap();
        let mut to = nic.create_queue_pair(&far, &config, &queue, &queue).unwrap();
        from.activate().unwrap();
        to.activate().unwrap();
        let address = from.address(&near, to.facts(&far).unwrap()).unwrap();
        for number in 0..COUNT {
            let buffer = LocalSlice { region: &region, offset: number as usize * 64, bytes: 64 };
            to.post_receive(number.into(), buffer).unwrap();
            let bytes = number.to_le_bytes();
            let payload = Payload::Inline(&[&bytes]);
            let verb = Verb::Send { payload, immediate: Some(number), to: Some(&address) };
            from.post_send(&SendRequest { id: 0, verb, signaled: false }).unwrap();
        }
        from.ring().unwrap();
        thread::sleep(Duration::from_millis(10));
        let mut completions = vec![Completion::EMPTY; 4096];
        let count = queue.poll(&mut completions);
        completions[..count].iter().filter_map(|completion| completion.immediate).collect::<Vec<u32>>()
    });
    let outcome = outcome.unwrap();
    (outcome.value, outcome.counters)
}

#[test]
fn datagrams_are_lost_and_overtake_each_other_only_where_chance_may() {
    let (quiet, _) = datagrams(Adversary { delay_ns: 5000, ..Adversary::none() });
    assert!(quiet.len() == 500 && quiet.is_sorted());
    let (lossy, counters) = datagrams(Adversary { loses: 0.2, ..Adversary::none() });
    assert!((50..150).contains(&counters.lost) && lossy.len() as u64 == 500 - counters.lost);
    let (late, counters) = datagrams(Adversary { delay_ns: 5000, reorders: true, ..Adversary::none() });
    assert!(late.len() == 500 && !late.is_sorted() && counters.overtook > 0);
    let (unready, counters) = datagrams(Adversary { unready: 0.2, unready_ns: 5000, ..Adversary::none() });
    assert!((50..150).contains(&counters.unready) && counters.lost == counters.unready);
    assert_eq!(unready.len() as u64, 500 - counters.lost);
}

/// Sends a few messages over RC to a receiver that has RECVs for all, and gives how each ended and when all had.
fn messages(unready: f64, receiver_not_ready: ReceiverNotReady) -> (Vec<Status>, u64, SimulationCounters) {
    const COUNT: usize = 50;
    let adversary = Adversary { unready, unready_ns: 5000, ..Adversary::none() };
    let outcome = simulate(SimulationConfig { adversary, ..SimulationConfig::default() }, move || {
        let nic = SimNic::open();
        let (near, far) = nic.pair().unwrap();
        let region = nic.register(1 << 16, Access::Local, PagePolicy::Base).unwrap();
        let mut queues = [(); 2].map(|()| nic.create_completion_queue(256).unwrap());
        let config = QueuePairConfig { receiver_not_ready, message_bytes: 64, ..QueuePairConfig::default() };
        let mut from = nic.create_queue_pair(&near, &config, &queues[0], &queues[0]).unwrap();
        let mut to = nic.create_queue_pair(&far, &config, &queues[1], &queues[1]).unwrap();
        let facts = from.facts(&near).unwrap();
        from.connect(to.facts(&far).unwrap()).unwrap();
        to.connect(facts).unwrap();
        for number in 0..COUNT {
            let buffer = LocalSlice { region: &region, offset: number * 64, bytes: 64 };
            to.post_receive(number as u64, buffer).unwrap();
            let verb = Verb::Send { payload: Payload::Inline(&[b"text"]), immediate: None, to: None };
            from.post_send(&SendRequest { id: number as u64, verb, signaled: true }).unwrap();
        }
        from.ring().unwrap();
        let (mut statuses, mut completions) = (Vec::new(), [Completion::EMPTY; 256]);
        while statuses.len() < COUNT {
            let count = queues[0].poll(&mut completions);
            statuses.extend(completions[..count].iter().map(|completion| completion.status));
        }
        statuses
    });
    let outcome = outcome.unwrap();
    (outcome.value, outcome.virtual_ns, outcome.counters)
}

#[test]
fn a_receiver_that_is_late_makes_messages_wait_or_fail() {
    let all_well = |statuses: &[Status]| statuses.iter().all(|status| *status == Status::Success);
    let (statuses, at_once_ns, counters) = messages(0.0, ReceiverNotReady::Wait);
    assert!(all_well(&statuses) && counters.unready == 0);
    let (statuses, late_ns, counters) = messages(0.5, ReceiverNotReady::Wait);
    assert!(all_well(&statuses) && counters.unready > 10 && counters.lost == 0, "{counters:?}");
    assert!(late_ns > at_once_ns + 10_000, "{late_ns} ns, and {at_once_ns} at once");
    let (statuses, ..) = messages(0.5, ReceiverNotReady::Fail);
    let failed = statuses.iter().find(|status| **status != Status::Success);
    assert_eq!(failed, Some(&Status::ReceiverNotReady), "{statuses:?}");
}
