//! Both sides on threads of their own: many calls, clients that come back in the middle, and counts that must agree.

use crate::fixture::{INCARNATION, pair, read, whole, write};
use locus_fabric::{Facts, Nic, shm::ShmNic};
use locus_rpc::{Accepted, Answer, Batch, Channel, ChannelConfig, Hub, Request, Server, ServerConfig};
use locus_runtime::{Core, Idle, MonotonicClock, Park, block_on, interleave_async};
use std::{
    collections::HashMap,
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::Poll,
};

type Link = <ShmNic as Nic>::Link;

/// What the server thread is asked to accept.
struct Knock {
    link: Link,
    facts: Vec<Facts>,
    session: u128,
    window: usize,
    answer: mpsc::Sender<Accepted>,
}

/// A server thread that adds each mutation's value to its key's sum, and answers reads with it.
struct Running {
    knocks: mpsc::Sender<Knock>,
    wake: Arc<dyn Fn() + Send + Sync>,
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<(HashMap<Vec<u8>, u64>, locus_rpc::ServerCounters)>,
}

fn start(nic: &ShmNic) -> Running {
    let pair = pair();
    let (knocks, knocked) = mpsc::channel::<Knock>();
    let (send_wake, wake) = mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let (nic, stopped) = (nic.clone(), stop.clone());
    let thread = std::thread::spawn(move || {
        let mut server =
            Server::new(&nic, INCARNATION, ServerConfig { pair, ..ServerConfig::default() }).unwrap();
        send_wake.send(server.park().waker()).unwrap();
        let (mut idle, mut sums, mut requests) = (Idle::default(), HashMap::new(), Batch::new());
        while !stopped.load(Ordering::Acquire) {
            for knock in knocked.try_iter() {
                let accepted = server.accept(&knock.link, knock.facts, knock.session, knock.window).unwrap();
                knock.answer.send(accepted).unwrap();
            }
            if server.poll(&mut requests) == 0 {
                idle.step(server.park());
                continue;
            }
            idle.reset();
            for request in requests.drain() {
                let sum: &mut u64 = sums.entry(request.key().to_vec()).or_default();
                if request.mutates() {
                    *sum += u64::from_le_bytes(request.value().try_into().unwrap());
                }
                server.reply(&request, &Answer { status: 1, version: *sum }, &sum.to_le_bytes());
            }
        }
        (sums, server.counters())
    });
    Running { knocks, wake: wake.recv().unwrap(), stop, thread }
}

impl Running {
    fn accept(&self, link: &Link, facts: Vec<Facts>, session: u128, window: usize) -> Accepted {
        let (answer, answered) = mpsc::channel();
        self.knocks.send(Knock { link: link.clone(), facts, session, window, answer }).ok().unwrap();
        (self.wake)();
        answered.recv().unwrap()
    }

    fn stop(self) -> (HashMap<Vec<u8>, u64>, locus_rpc::ServerCounters) {
        self.stop.store(true, Ordering::Release);
        (self.wake)();
        self.thread.join().unwrap()
    }
}

on_every_pair! {
    calls_of_many_windows_and_sizes_add_up,
    every_mutation_is_executed_once_however_often_the_connection_breaks,
}

fn calls_of_many_windows_and_sizes_add_up() {
    const CALLS: u64 = 600;
    let pair = pair();
    let nic = ShmNic::open().unwrap();
    let running = start(&nic);
    let clients: Vec<_> = [1, 3, 16]
        .into_iter()
        .map(|window| {
            let (client_link, server_link) = nic.pair().unwrap();
            let hub_nic = nic.clone();
            let (send_facts, facts) = mpsc::channel();
            let (send_accepted, accepted) = mpsc::channel::<Accepted>();
            let thread = std::thread::spawn(move || {
                let hub = Hub::new(&hub_nic, 1 << 10).unwrap();
                let config = ChannelConfig { window, pair, ..ChannelConfig::default() };
                let channel = Channel::new(&hub, &client_link, config).unwrap();
                send_facts.send(channel.facts().unwrap()).unwrap();
                let accepted = accepted.recv().unwrap();
                channel.connect(accepted.facts, &accepted.greeting).unwrap();
                let key = window.to_le_bytes();
                let calls = (1..=CALLS).map(|value| {
                    let channel = &channel;
                    async move {
                        let value = value.to_le_bytes();
                        channel.call(&write(&key, &value), |reply| reply.version).await.unwrap()
                    }
                });
                let mut count = 0;
                let all = interleave_async(window, calls, |_, _| count += 1);
                block_on(all, &hub, &mut Idle::default());
                assert_eq!(count, CALLS);
                let last = block_on(whole(&channel, read(&key)), &hub, &mut Idle::default()).unwrap();
                assert_eq!(last.1, CALLS * (CALLS + 1) / 2);
                channel.counters()
            });
            let accepted = running.accept(&server_link, facts.recv().unwrap(), window as u128, window);
            send_accepted.send(accepted).unwrap();
            thread
        })
        .collect();
    let counters: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    let (sums, server) = running.stop();
    assert!(sums.values().all(|sum| *sum == CALLS * (CALLS + 1) / 2));
    assert!(counters.iter().all(|client| client.replies == CALLS + 1));
    if !pair.is_lossy() {
        assert_eq!((server.requests, server.replies), (3 * (CALLS + 1), 3 * (CALLS + 1)));
        assert!(counters.iter().all(|client| client.foreign_replies == 0));
    }
}

/// The client's connection is replaced again and again while mutations are under way: each is executed exactly once.
fn every_mutation_is_executed_once_however_often_the_connection_breaks() {
    const CALLS: u64 = 600;
    const WINDOW: usize = 8;
    let nic = ShmNic::open().unwrap();
    let running = start(&nic);
    let hub = Hub::new(&nic, 1 << 10).unwrap();
    let config = ChannelConfig { window: WINDOW, hold_calls: true, pair: pair(), ..ChannelConfig::default() };
    let (mut client_link, mut server_link) = nic.pair().unwrap();
    let channel = Channel::new(&hub, &client_link, config).unwrap();
    let accepted = running.accept(&server_link, channel.facts().unwrap(), 1, WINDOW);
    channel.connect(accepted.facts, &accepted.greeting).unwrap();
    let calls = (1..=CALLS).map(|value| {
        let channel = &channel;
        async move {
            let value = value.to_le_bytes();
            let request: Request<'_> = write(b"sum", &value);
            channel.call(&request, |reply| reply.status).await.unwrap()
        }
    });
    let mut all = pin!(interleave_async(WINDOW, calls, |_, status| assert_eq!(status, 1)));
    let (mut polls, mut breaks) = (0_u64, 0);
    let breaking = poll_fn(|context| {
        polls += 1;
        assert!(polls < 1_000_000_000, "the calls never end");
        // Not without end: on a busy machine the server would get nothing done between two.
        if polls % 29 == 5 && breaks < 30 {
            breaks += 1;
            (client_link, server_link) = nic.pair().unwrap();
            let facts = channel.reconnect(&client_link).unwrap();
            let accepted = running.accept(&server_link, facts, 1, WINDOW);
            assert!(accepted.greeting.resumed);
            channel.connect(accepted.facts, &accepted.greeting).unwrap();
        }
        match all.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    });
    Core::new(MonotonicClock::new(), 1).run(breaking, &hub, &mut Idle::default());
    let (sums, server) = running.stop();
    assert_eq!(sums[&b"sum"[..]], CALLS * (CALLS + 1) / 2);
    assert_eq!(server.requests, CALLS);
    assert!(server.dropped.iter().sum::<u64>() > 0, "{server:?}");
    assert!(channel.counters().resent > 0, "{:?}", channel.counters());
}
