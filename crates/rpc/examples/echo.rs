//! What a call costs: a server that answers 32-byte requests with their value, and one client. First both sides take
//! turns on one thread, which gives the processor time of a call with nothing to wait for; then each has a thread.
//!
//! `cargo run --release -p locus-rpc --example echo [REQUEST REPLY]`, such as `rc-write rc-write`

use locus_fabric::{Nic, shm::ShmNic};
use locus_rpc::{Accepted, Answer, Batch, Channel, ChannelConfig, Hub, Pair, Request, Server, ServerConfig};
use locus_runtime::{Idle, block_on, interleave_async};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::{Context, Waker},
    time::{Duration, Instant},
};

type Error = Box<dyn std::error::Error + Send + Sync>;

const WINDOW: usize = 16;
const CALLS: usize = 1_000_000;
/// For each run of both sides on one thread.
const WORK_CALLS: usize = 50_000;
const RUNS: usize = 5;
const IDLE: Duration = Duration::from_secs(5);

fn serve(
    nic: &ShmNic,
    pair: Pair,
    link: &<ShmNic as Nic>::Link,
    facts: Vec<locus_fabric::Facts>,
) -> Result<(Server<ShmNic>, Accepted), Error> {
    let mut server = Server::new(nic, 1, ServerConfig { pair, ..ServerConfig::default() })?;
    let accepted = server.accept(link, facts, 1, WINDOW)?;
    Ok((server, accepted))
}

fn answer(mut server: Server<ShmNic>, stop: &AtomicBool) {
    let (mut idle, mut requests) = (Idle::default(), Batch::new());
    while !stop.load(Ordering::Relaxed) {
        if server.poll(&mut requests) == 0 {
            idle.step(server.park());
            continue;
        }
        idle.reset();
        for request in requests.iter() {
            server.reply(request, &Answer { status: 1, version: 1 }, request.value());
        }
        requests.clear();
        server.flush();
    }
}

/// Nanoseconds of both sides' work per call, on one thread, with `window` calls under way.
fn work(nic: &ShmNic, pair: Pair, request: &Request<'_>, window: usize) -> Result<f64, Error> {
    let (client_link, server_link) = nic.pair()?;
    let hub = Hub::new(nic, 1 << 10)?;
    let channel =
        Channel::new(&hub, &client_link, ChannelConfig { window: WINDOW, pair, ..ChannelConfig::default() })?;
    let (mut server, accepted) = serve(nic, pair, &server_link, channel.facts()?)?;
    channel.connect(accepted.facts, &accepted.greeting)?;
    let mut requests = Batch::new();
    let calls = (0..WORK_CALLS).map(|_| channel.call(request, |reply| reply.value.len()));
    let mut calls = pin!(interleave_async(window, calls, |_, _| ()));
    let start = Instant::now();
    while calls.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        server.poll(&mut requests);
        for request in requests.iter() {
            server.reply(request, &Answer { status: 1, version: 1 }, request.value());
        }
        requests.clear();
        server.flush();
    }
    Ok(start.elapsed().as_nanos() as f64 / WORK_CALLS as f64)
}

/// Nanoseconds of each call, one at a time.
fn latencies(channel: &Channel<ShmNic>, request: &Request<'_>) -> Result<Vec<u64>, Error> {
    let mut idle = Idle::default();
    let mut took = Vec::with_capacity(CALLS);
    let mut last = Instant::now();
    for _ in 0..CALLS {
        block_on(channel.call(request, |reply| reply.value.len()), channel.hub(), &mut idle)?;
        let now = Instant::now();
        took.push((now - last).as_nanos() as u64);
        last = now;
    }
    took.sort_unstable();
    Ok(took)
}

/// Calls per second with the whole window under way.
fn rate(channel: &Channel<ShmNic>, request: &Request<'_>) -> f64 {
    let calls = (0..4 * CALLS).map(|_| channel.call(request, |reply| reply.value.len()));
    let start = Instant::now();
    let mut bytes = 0;
    block_on(
        interleave_async(WINDOW, calls, |_, answered| bytes += answered.unwrap_or(0)),
        channel.hub(),
        &mut Idle::default(),
    );
    assert_eq!(bytes, 4 * CALLS * request.value.len());
    4.0 * CALLS as f64 / start.elapsed().as_secs_f64()
}

/// Processor time of this process, user and system (proc(5): fields 14 and 15 of stat).
fn cpu_ticks() -> Result<u64, Error> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').ok_or("no name in /proc/self/stat")?.1.split_whitespace();
    Ok(fields.skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?)
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let pair = match &arguments[..] {
        [] => Pair::default(),
        [request, reply] => Pair { request: request.parse()?, reply: reply.parse()? },
        _ => return Err("two ways for messages, or none".into()),
    };
    println!("{pair}");
    let nic = ShmNic::open()?;
    let value = [7; 32];
    let request =
        Request { opcode: 1, mutates: false, partition: 0, map_epoch: 0, key: b"8 bytes.", value: &value };
    for window in [1, WINDOW] {
        let mut runs = (0..10 * RUNS)
            .map(|_| work(&nic, pair, &request, window))
            .collect::<Result<Vec<f64>, Error>>()?;
        runs.sort_by(f64::total_cmp);
        println!(
            "work of both sides, window {window}: best {:.0} ns, median {:.0} ns",
            runs[0],
            runs[runs.len() / 2]
        );
    }
    let (client_link, server_link) = nic.pair()?;
    let hub = Hub::new(&nic, 1 << 10)?;
    let channel =
        Channel::new(&hub, &client_link, ChannelConfig { window: WINDOW, pair, ..ChannelConfig::default() })?;
    let facts = channel.facts()?;
    let stop = Arc::new(AtomicBool::new(false));
    let (send, receive) = mpsc::channel();
    let (server_nic, stopped) = (nic.clone(), stop.clone());
    let server = std::thread::spawn(move || -> Result<(), Error> {
        let (server, accepted) = serve(&server_nic, pair, &server_link, facts)?;
        send.send(accepted)?;
        answer(server, &stopped);
        Ok(())
    });
    let accepted = receive.recv()?;
    channel.connect(accepted.facts, &accepted.greeting)?;
    for _ in 0..RUNS {
        let took = latencies(&channel, &request)?;
        let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize];
        println!(
            "window 1: p50 {} ns, p99 {} ns, p99.9 {} ns; window {WINDOW}: {:.2} M calls/s",
            at(0.5),
            at(0.99),
            at(0.999),
            rate(&channel, &request) / 1e6
        );
    }
    let mut woken = Vec::new();
    for _ in 0..100 {
        // Long enough for the server to fall asleep.
        std::thread::sleep(Duration::from_millis(5));
        let start = Instant::now();
        block_on(channel.call(&request, |_| ()), &hub, &mut Idle::default())?;
        woken.push(start.elapsed());
    }
    woken.sort();
    println!("a call that wakes the server: p50 {:?}, p99 {:?}", woken[50], woken[99]);
    let before = cpu_ticks()?;
    std::thread::sleep(IDLE);
    println!("idle for {IDLE:?}: {} ticks of 10 ms of processor time", cpu_ticks()? - before);
    println!("{:?}", channel.counters());
    stop.store(true, Ordering::Relaxed);
    server.join().map_err(|_| "the server thread panicked")?
}
