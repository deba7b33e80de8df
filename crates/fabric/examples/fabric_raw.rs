//! What the fabric costs by itself, between two processes: a lone READ, overlapped READs, dependent READs over a region
//! of any size, and an echo of SENDs. Compares the READ with a bare copy from the same mapping.
//!
//! `cargo run --release -p locus-fabric --example fabric_raw -- [region MiB] [READ bytes] [base|huge]`

use locus_fabric::{
    Access, Address, Completion, CompletionQueue, Link, Listener, LocalSlice, Nic, PagePolicy, Payload,
    QueuePair, QueuePairConfig, Region, RemoteSlice, SendRequest, Status, Verb,
    shm::{ShmCompletionQueue, ShmLink, ShmNic, ShmQueuePair, ShmRegion, ShmRemoteRegion},
};
use std::{
    error::Error,
    hint::black_box,
    io::Read,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How often each thing is measured. Rounds are short, so that some are undisturbed on a busy machine.
const ROUNDS: usize = 201;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |index: usize, default: usize| -> Outcome<usize> {
        Ok(arguments.get(index).map_or(Ok(default), |text| text.parse())?)
    };
    if arguments.get(1).is_some_and(|first| first == "serve") {
        return serve(&arguments[2].parse()?, number(3, 0)?, &arguments[4]);
    }
    let (mebibytes, bytes) = (number(1, 256)?, number(2, 32)?);
    let pages = arguments.get(3).map_or("huge", String::as_str);
    let path = std::env::temp_dir().join(format!("fabric_raw-{}.sock", std::process::id()));
    let address = Address::Shm(path);
    let mut server = Command::new(std::env::current_exe()?)
        .args(["serve", &address.to_string(), &mebibytes.to_string(), pages])
        .stdout(Stdio::piped())
        .spawn()?;
    // One byte says that it listens.
    server.stdout.take().ok_or("no pipe")?.read_exact(&mut [0])?;
    let outcome = measure(&address, bytes);
    server.kill()?;
    server.wait()?;
    outcome
}

fn policy(pages: &str) -> PagePolicy {
    if pages == "base" { PagePolicy::Base } else { PagePolicy::PreferHuge }
}

/// One end of a connection.
struct End {
    link: ShmLink,
    queue: ShmCompletionQueue,
    pair: ShmQueuePair,
    buffers: ShmRegion,
}

impl End {
    fn new(nic: &ShmNic, link: ShmLink) -> Outcome<Self> {
        let queue = nic.create_completion_queue(1024)?;
        let mut pair = nic.create_queue_pair(&link, &QueuePairConfig::default(), &queue, &queue)?;
        link.send(b"queue pair", vec![pair.facts(&link)?])?;
        let (_, mut facts) = link.receive(PATIENCE)?.ok_or("no queue pair")?;
        pair.connect(facts.remove(0))?;
        let buffers = nic.register(1 << 20, Access::Local, PagePolicy::Base)?;
        Ok(Self { link, queue, pair, buffers })
    }

    fn expect(&mut self, slot: usize) -> Outcome<()> {
        let buffer = LocalSlice { region: &self.buffers, offset: slot * 128, bytes: 128 };
        Ok(self.pair.post_receive(slot as u64, buffer)?)
    }
}

fn serve(address: &Address, mebibytes: usize, pages: &str) -> Outcome<()> {
    let nic = ShmNic::open()?;
    let region = nic.register(mebibytes << 20, Access::RemoteRead, policy(pages))?;
    for index in 0..region.words().len() {
        region.store(index, index as u64);
    }
    let listener = nic.listen(address)?;
    print!(".");
    std::io::Write::flush(&mut std::io::stdout())?;
    let link = listener.accept(PATIENCE)?.ok_or("nobody came")?;
    link.send(format!("{:?}", region.pages()).as_bytes(), vec![link.grant(&region)?])?;
    let mut end = End::new(&nic, link)?;
    for slot in 0..64 {
        end.expect(slot)?;
    }
    let buffers = end.buffers.clone();
    let mut completions = [Completion::EMPTY; 16];
    let mut answered = 0u64;
    while end.link.alive() {
        let count = end.queue.poll(&mut completions);
        for done in &completions[..count] {
            if done.status != Status::Success {
                return Ok(());
            }
            if done.opcode == locus_fabric::Opcode::Receive {
                let slot = done.id as usize;
                answered += 1;
                let answer = LocalSlice { region: &buffers, offset: slot * 128, bytes: done.bytes as usize };
                let verb = Verb::Send { payload: Payload::Slice(answer), immediate: None, to: None };
                end.pair.post_send(&SendRequest {
                    id: 1 << 40,
                    verb,
                    signaled: answered.is_multiple_of(32),
                })?;
                let buffer = LocalSlice { region: &buffers, offset: slot * 128, bytes: 128 };
                end.pair.post_receive(done.id, buffer)?;
            }
        }
        if count == 0 {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

/// Nanoseconds per operation: the median of all rounds and the best.
struct Cost(f64, f64);

impl std::fmt::Display for Cost {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:.1} ns (best {:.1})", self.0, self.1)
    }
}

/// Runs something often.
fn cost(operations: usize, mut run: impl FnMut() -> Outcome<()>) -> Outcome<Cost> {
    let mut nanoseconds = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        run()?;
        nanoseconds.push(start.elapsed().as_nanos() as f64 / operations as f64);
    }
    nanoseconds.sort_by(f64::total_cmp);
    Ok(Cost(nanoseconds[ROUNDS / 2], nanoseconds[0]))
}

fn measure(address: &Address, bytes: usize) -> Outcome<()> {
    let nic = ShmNic::open()?;
    let link = nic.connect(address)?;
    let (pages, mut facts) = link.receive(PATIENCE)?.ok_or("no region")?;
    let remote = link.import(facts.remove(0))?;
    println!("{}; {}", nic.capabilities(), link.peer());
    println!("region: server {}; client {:?}", String::from_utf8_lossy(&pages), remote.pages());
    let mut end = End::new(&nic, link)?;
    for slot in 512..576 {
        end.expect(slot)?;
    }
    reads(&mut end, &remote, bytes)?;
    polls(&mut end)?;
    echo(&mut end)
}

fn read(
    end: &mut End,
    buffers: &ShmRegion,
    remote: &ShmRemoteRegion,
    slot: usize,
    offset: usize,
    bytes: usize,
) -> Outcome<()> {
    let into = LocalSlice { region: buffers, offset: slot * bytes, bytes };
    let verb = Verb::Read { into, from: RemoteSlice { region: remote, offset } };
    Ok(end.pair.post_send(&SendRequest { id: slot as u64, verb, signaled: true })?)
}

fn reads(end: &mut End, remote: &ShmRemoteRegion, bytes: usize) -> Outcome<()> {
    use locus_fabric::RemoteRegion;
    const OPERATIONS: usize = 1 << 12;
    let buffers = end.buffers.clone();
    let mut completions = [Completion::EMPTY; 16];
    let places = remote.bytes() / 64 - bytes.div_ceil(64);
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) as usize % places) * 64
    };
    let hot = cost(OPERATIONS, || {
        for turn in 0..OPERATIONS {
            read(end, &buffers, remote, 0, (turn % 16) * 64, bytes)?;
            if end.queue.poll(&mut completions) != 1 {
                return Err("a lone READ completes at once".into());
            }
            black_box(buffers.words()[0].load(std::sync::atomic::Ordering::Relaxed));
        }
        Ok(())
    })?;
    let source: Vec<std::sync::atomic::AtomicU64> = (0..2048).map(Into::into).collect();
    let bare = cost(OPERATIONS, || {
        for turn in 0..OPERATIONS {
            let from = &black_box(&source)[(turn % 16) * 8..][..bytes / 8];
            for (into, from) in buffers.words().iter().zip(from) {
                into.store(
                    from.load(std::sync::atomic::Ordering::Acquire),
                    std::sync::atomic::Ordering::Relaxed,
                );
            }
            black_box(buffers.words()[0].load(std::sync::atomic::Ordering::Relaxed));
        }
        Ok(())
    })?;
    let at_once = cost(OPERATIONS, || {
        let mut into = vec![0; bytes];
        for turn in 0..OPERATIONS {
            let from = RemoteSlice { region: remote, offset: (turn % 16) * 64 };
            if !end.pair.read_at_once(&mut into, &from) {
                return Err("a lone READ is carried out at once".into());
            }
            black_box(&into);
        }
        Ok(())
    })?;
    let dependent = cost(OPERATIONS, || {
        let mut mix = 0usize;
        for _ in 0..OPERATIONS {
            // The next place depends on what the last READ brought.
            read(end, &buffers, remote, 0, random() ^ (mix & 64), bytes)?;
            end.queue.poll(&mut completions);
            mix = buffers.words()[0].load(std::sync::atomic::Ordering::Relaxed) as usize;
        }
        Ok(())
    })?;
    let overlapped = cost(OPERATIONS, || {
        for _ in 0..OPERATIONS / 16 {
            for slot in 0..16 {
                read(end, &buffers, remote, slot, random(), bytes)?;
            }
            end.pair.ring()?;
            if end.queue.poll(&mut completions) != 16 {
                return Err("READs complete on the next poll".into());
            }
        }
        Ok(())
    })?;
    println!("READ of {bytes} bytes, cached: posted and polled {hot}; at once {at_once}; a bare copy {bare}");
    println!(
        "READ of {bytes} bytes, random, posted and polled: one by one {dependent}; 16 overlapped {overlapped} each"
    );
    Ok(())
}

fn polls(end: &mut End) -> Outcome<()> {
    const OPERATIONS: usize = 1 << 14;
    let mut completions = [Completion::EMPTY; 16];
    let idle = cost(OPERATIONS, || {
        for _ in 0..OPERATIONS {
            black_box(end.queue.poll(&mut completions));
        }
        Ok(())
    })?;
    println!("poll of an idle queue pair: {idle}");
    Ok(())
}

fn echo(end: &mut End) -> Outcome<()> {
    const OPERATIONS: usize = 1 << 10;
    let buffers = end.buffers.clone();
    let mut completions = [Completion::EMPTY; 16];
    let message = [7u8; 64];
    for window in [1, 16] {
        let nanoseconds = cost(OPERATIONS, || {
            let (mut sent, mut received) = (0, 0);
            while received < OPERATIONS {
                while sent < OPERATIONS && sent - received < window {
                    sent += 1;
                    let verb =
                        Verb::Send { payload: Payload::Inline(&[&message]), immediate: None, to: None };
                    end.pair.post_send(&SendRequest {
                        id: 1 << 40,
                        verb,
                        signaled: sent.is_multiple_of(32),
                    })?;
                }
                let count = end.queue.poll(&mut completions);
                for done in &completions[..count] {
                    if done.status != Status::Success {
                        return Err(format!("{done:?}").into());
                    }
                    if done.opcode == locus_fabric::Opcode::Receive {
                        received += 1;
                        let buffer =
                            LocalSlice { region: &buffers, offset: done.id as usize * 128, bytes: 128 };
                        end.pair.post_receive(done.id, buffer)?;
                    }
                }
                if count == 0 {
                    std::hint::spin_loop();
                }
            }
            Ok(())
        })?;
        println!("echo of 64 bytes, window {window}: {nanoseconds} each");
    }
    Ok(())
}
