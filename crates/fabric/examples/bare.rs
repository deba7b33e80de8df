//! What bare verbs take between two processes, one at a time: a READ, an echo by WRITE and an echo by SEND, without anything
//! above the fabric. Over RDMA these are the figures to hold against perftest's ib_read_lat, and twice those of
//! ib_write_lat and ib_send_lat.
//!
//! `cargo run --release -p locus-fabric --example bare -- ADDRESS [bytes]`, where ADDRESS is `shm:/a/path` or
//! `rdma://HOST:PORT`: the program serves there from a second process of its own.

use locus_fabric::{
    Access, Address, Completion, CompletionQueue, Facts, Link, Listener, LocalSlice, Nic, PagePolicy,
    QueuePair, QueuePairConfig, RemoteSlice, SendRequest, Status, Verb,
    echo::{EchoClient, EchoEnd, EchoServer, EchoVerb},
    shm::ShmNic,
    verbs::VerbsNic,
};
use std::{
    error::Error,
    io::{Read, Write},
    pin::pin,
    process::{Command, Stdio},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const OPERATIONS: usize = 5000;
const ROUNDS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let address = arguments.get(1).ok_or("usage: bare ADDRESS [bytes]")?;
    let bytes = arguments.get(2).map_or(Ok(64), |text| text.parse())?;
    let serves = arguments.get(3).is_some_and(|last| last == "serve");
    match address.parse()? {
        address @ Address::Rdma { .. } => {
            let Address::Rdma { nic, .. } = &address else { unreachable!() };
            run(&VerbsNic::open(nic)?, &address, bytes, serves)
        }
        address => run(&ShmNic::open()?, &address, bytes, serves),
    }
}

fn run<N: Nic>(nic: &N, address: &Address, bytes: usize, serves: bool) -> Outcome<()> {
    if serves {
        return serve(nic, address);
    }
    let mut server = Command::new(std::env::current_exe()?)
        .args([address.to_string(), bytes.to_string(), "serve".into()])
        .stdout(Stdio::piped())
        .spawn()?;
    // One byte says that it listens.
    server.stdout.take().ok_or("no pipe")?.read_exact(&mut [0])?;
    let link = nic.connect(address)?;
    let outcome = measure(nic, &link, bytes);
    link.close();
    server.wait()?;
    outcome
}

/// Sends what the peer must know, and receives the same.
fn exchange<L: Link>(link: &L, ours: Vec<Facts>) -> Outcome<Vec<Facts>> {
    link.send(b"facts", ours)?;
    Ok(link.receive(PATIENCE)?.ok_or("the peer says nothing")?.1)
}

/// Neither side sends before both are connected.
fn agree<L: Link>(link: &L) -> Outcome<()> {
    exchange(link, Vec::new()).map(drop)
}

fn end<N: Nic>(nic: &N, link: &N::Link, verb: EchoVerb) -> Outcome<EchoEnd<N>> {
    let queue = nic.create_completion_queue(EchoEnd::<N>::COMPLETIONS)?;
    let mut end = EchoEnd::new(nic, link, queue, verb)?;
    let theirs = exchange(link, end.facts()?)?;
    end.connect(theirs)?;
    agree(link)?;
    Ok(end)
}

fn reader<N: Nic>(nic: &N, link: &N::Link, region: Option<&N::Region>) -> Outcome<Reader<N>> {
    let queue = nic.create_completion_queue(16)?;
    let config = QueuePairConfig { send_depth: 16, receive_depth: 1, inline_bytes: 0, ..Default::default() };
    let mut pair = nic.create_queue_pair(link, &config, &queue, &queue)?;
    let mut facts = vec![pair.facts(link)?];
    facts.extend(region.map(|region| link.grant(region)).transpose()?);
    let mut theirs = exchange(link, facts)?.into_iter();
    pair.connect(theirs.next().ok_or("no facts")?)?;
    let remote = theirs.next().map(|facts| link.import(facts)).transpose()?;
    agree(link)?;
    Ok(Reader { pair, queue, remote })
}

struct Reader<N: Nic> {
    pair: N::QueuePair,
    queue: N::CompletionQueue,
    remote: Option<N::RemoteRegion>,
}

fn serve<N: Nic>(nic: &N, address: &Address) -> Outcome<()> {
    let listener = nic.listen(address)?;
    print!(".");
    std::io::stdout().flush()?;
    let link = listener.accept(PATIENCE)?.ok_or("nobody came")?;
    let region = nic.register(1 << 20, Access::RemoteRead, PagePolicy::Base)?;
    let _reader = reader(nic, &link, Some(&region))?;
    for verb in [EchoVerb::Write, EchoVerb::Send] {
        let mut echo = EchoServer::new(end(nic, &link, verb)?);
        let mut left = ROUNDS * OPERATIONS;
        while left > 0 && link.alive() {
            left -= echo.turn()? as usize;
        }
        agree(&link)?;
    }
    Ok(())
}

fn measure<N: Nic>(nic: &N, link: &N::Link, bytes: usize) -> Outcome<()> {
    println!(
        "{} bytes, over {}, to {}; microseconds, medians of {OPERATIONS} in {ROUNDS} rounds",
        bytes,
        nic.properties().provider,
        link.peer()
    );
    let Reader { mut pair, mut queue, remote } = reader(nic, link, None)?;
    let region = remote.ok_or("no region")?;
    let buffer = nic.register(bytes, Access::Local, PagePolicy::Base)?;
    let mut completions = [Completion::EMPTY; 4];
    rounds("READ", || {
        let into = LocalSlice { region: &buffer, offset: 0, bytes };
        let verb = Verb::Read { into, from: RemoteSlice { region: &region, offset: 0 } };
        pair.post_send(&SendRequest { id: 1, verb, signaled: true })?;
        pair.ring()?;
        while queue.poll(&mut completions) == 0 {}
        if completions[0].status == Status::Success {
            Ok(())
        } else {
            Err(format!("{:?}", completions[0]).into())
        }
    })?;
    for (name, verb) in [("WRITE echo", EchoVerb::Write), ("SEND echo", EchoVerb::Send)] {
        let echo = EchoClient::new(end(nic, link, verb)?);
        rounds(name, || {
            let mut call = pin!(echo.call(bytes, bytes));
            let mut context = Context::from_waker(Waker::noop());
            loop {
                if let Poll::Ready(done) = call.as_mut().poll(&mut context) {
                    return Ok(done?);
                }
            }
        })?;
        agree(link)?;
    }
    Ok(())
}

fn rounds(name: &str, mut operation: impl FnMut() -> Outcome<()>) -> Outcome<()> {
    let mut medians = Vec::new();
    for _ in 0..ROUNDS {
        let mut times = Vec::with_capacity(OPERATIONS);
        for _ in 0..OPERATIONS {
            let start = Instant::now();
            operation()?;
            times.push(start.elapsed());
        }
        times.sort();
        medians.push(times[OPERATIONS / 2]);
    }
    let text: Vec<String> =
        medians.iter().map(|time| format!("{:.2}", time.as_nanos() as f64 / 1000.0)).collect();
    medians.sort();
    println!("{name:12} {:8.2}   ({})", medians[ROUNDS / 2].as_nanos() as f64 / 1000.0, text.join(" "));
    Ok(())
}
