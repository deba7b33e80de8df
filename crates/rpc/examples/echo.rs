//! What a call costs: a server thread that answers 32-byte requests with their value, and one client.
//!
//! `cargo run --release -p locus-rpc --example echo`

use locus_fabric::{Nic, shm::ShmNic};
use locus_rpc::{Accepted, Answer, Channel, ChannelConfig, Hub, Request, Server, ServerConfig};
use locus_runtime::{Idle, block_on, interleave_async};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Instant,
};

type Error = Box<dyn std::error::Error + Send + Sync>;

const WINDOW: usize = 16;
const CALLS: usize = 1_000_000;
const RUNS: usize = 5;

fn serve(
    nic: &ShmNic,
    link: &<ShmNic as Nic>::Link,
    facts: locus_fabric::Facts,
) -> Result<(Server<ShmNic>, Accepted), Error> {
    let mut server = Server::new(nic, 1, ServerConfig::default())?;
    let accepted = server.accept(link, facts, 1, WINDOW)?;
    Ok((server, accepted))
}

fn answer(mut server: Server<ShmNic>, stop: &AtomicBool) {
    let (mut idle, mut requests) = (Idle::default(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        if server.poll(&mut requests) == 0 {
            idle.step(server.park());
            continue;
        }
        idle.reset();
        for request in requests.drain(..) {
            server.reply(&request, &Answer { status: 1, version: 1 }, &[request.value()]);
        }
        server.flush();
    }
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

fn main() -> Result<(), Error> {
    let nic = ShmNic::open()?;
    let (client_link, server_link) = nic.pair()?;
    let hub = Hub::new(&nic, 1 << 10)?;
    let channel =
        Channel::new(&hub, &client_link, ChannelConfig { window: WINDOW, ..ChannelConfig::default() })?;
    let facts = channel.facts()?;
    let stop = Arc::new(AtomicBool::new(false));
    let (send, receive) = mpsc::channel();
    let (server_nic, stopped) = (nic.clone(), stop.clone());
    let server = std::thread::spawn(move || -> Result<(), Error> {
        let (server, accepted) = serve(&server_nic, &server_link, facts)?;
        send.send(accepted)?;
        answer(server, &stopped);
        Ok(())
    });
    let accepted = receive.recv()?;
    channel.connect(accepted.facts, &accepted.greeting)?;
    let value = [7; 32];
    let request =
        Request { opcode: 1, mutates: false, partition: 0, map_epoch: 0, key: b"8 bytes.", value: &value };
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
    println!("{:?}", channel.counters());
    stop.store(true, Ordering::Relaxed);
    server.join().map_err(|_| "the server thread panicked")?
}
