//! The other processes: how a test starts one, and what each of them does.

use locus_fabric::{
    Access, Address, Completion, CompletionQueue, Facts, Link, Listener, LocalSlice, Nic, PagePolicy,
    Payload, QueuePair, QueuePairConfig, Region, RemoteSlice, SendRequest, Status, Transport, Verb,
    shm::{ShmCompletionQueue, ShmLink, ShmNic, ShmQueuePair, ShmRegion, ShmRemoteRegion},
};
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
};

pub use crate::wait::{PATIENCE, wait};

/// The length of the region that a server lets its clients read, in bytes.
pub const READABLE_BYTES: usize = 64 << 10;

/// A directory for the sockets of one test, removed at its end.
pub struct Place(PathBuf);

impl Place {
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("locus-fabric-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a directory for sockets");
        Self(path)
    }

    pub fn path(&self) -> PathBuf {
        self.0.join("socket")
    }

    pub fn address(&self) -> Address {
        Address::Shm(self.path())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Another process that plays a role; killed when dropped.
pub struct Actor {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Actor {
    /// Starts one.
    pub fn start(role: &str, socket: &Path) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut process = Command::new(program)
            .args(["--role", role])
            .arg(socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process");
        let stdin = process.stdin.take().expect("its input");
        let stdout = BufReader::new(process.stdout.take().expect("its output"));
        Self { process, stdin, stdout }
    }

    /// Starts a server and waits until it listens.
    pub fn serve(place: &Place) -> Self {
        let mut server = Self::start("serve", &place.path());
        server.says("listening");
        server
    }

    /// Waits for a line of it.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("its output");
        line.trim_end().into()
    }

    /// Waits for a certain line of it.
    pub fn says(&mut self, expected: &str) {
        assert_eq!(self.line(), expected);
    }

    /// Gives it a line.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("its input");
    }

    /// Kills it, as `kill -9` does, without waiting for its end.
    pub fn kill(&mut self) {
        self.process.kill().expect("it is ours to kill");
    }

    /// Waits until it has ended by itself, successfully.
    pub fn ends_well(mut self) {
        let status = wait("another process to end", || self.process.try_wait().expect("its status"));
        assert!(status.success(), "{status}");
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.process.try_wait().expect("its status").is_none()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One end of a link with a queue pair, a region for its buffers and what the server grants.
pub struct Client {
    pub nic: ShmNic,
    pub link: ShmLink,
    pub queue_pair: ShmQueuePair,
    pub queue: ShmCompletionQueue,
    pub buffers: ShmRegion,
    pub readable: ShmRemoteRegion,
    /// With what `readable` was imported, for forgers.
    pub readable_facts: Facts,
}

/// The configuration of all queue pairs here.
pub fn config(transport: Transport) -> QueuePairConfig {
    QueuePairConfig {
        transport,
        send_depth: 64,
        receive_depth: 64,
        message_bytes: 1024,
        ..Default::default()
    }
}

/// Copies facts, descriptors and all.
pub fn copy(facts: &Facts) -> Facts {
    let handles = facts.handles.iter().map(|handle| handle.try_clone().expect("a descriptor")).collect();
    Facts { bytes: facts.bytes.clone(), handles }
}

impl Client {
    /// Connects with a [`serve`] role.
    pub fn connect(address: &Address) -> Self {
        Self::connect_showing(address, |_| {})
    }

    /// Connects, and shows the facts of both queue pairs on their way.
    pub fn connect_showing(address: &Address, mut show: impl FnMut(&Facts)) -> Self {
        let nic = ShmNic::open().expect("shared memory");
        let link = nic.connect(address).expect("the server is there");
        let queue = nic.create_completion_queue(256).expect("a completion queue");
        let mut queue_pair =
            nic.create_queue_pair(&link, &config(Transport::Rc), &queue, &queue).expect("a queue pair");
        let ours = queue_pair.facts(&link).expect("facts");
        show(&ours);
        link.send(b"hello", vec![ours]).expect("the server listens");
        let (_, facts) = link.receive(PATIENCE).expect("the link lives").expect("the server answers");
        let [theirs, readable_facts] = <[Facts; 2]>::try_from(facts).expect("a queue pair and a region");
        show(&theirs);
        queue_pair.connect(theirs).expect("the queue pair connects");
        let readable = link.import(copy(&readable_facts)).expect("the region");
        let buffers = nic.register(64 << 10, Access::Local, PagePolicy::Base).expect("memory");
        Self { nic, link, queue_pair, queue, buffers, readable, readable_facts }
    }

    /// Posts a READ of the server's region.
    pub fn post_read(&mut self, id: u64, offset: usize, bytes: usize) {
        let into = LocalSlice { region: &self.buffers, offset: 0, bytes };
        let from = RemoteSlice { region: &self.readable, offset };
        let request = SendRequest { id, verb: Verb::Read { into, from }, signaled: true };
        self.queue_pair.post_send(&request).expect("the READ is taken");
        self.queue_pair.ring().expect("the doorbell rings");
    }

    /// Posts a SEND of one word.
    pub fn post_send(&mut self, id: u64, word: u64) {
        let payload = Payload::Inline(&[&word.to_le_bytes()]);
        let verb = Verb::Send { payload, immediate: None, to: None };
        self.queue_pair.post_send(&SendRequest { id, verb, signaled: true }).expect("the SEND is taken");
        self.queue_pair.ring().expect("the doorbell rings");
    }

    /// Posts a RECV into the second half of the buffers.
    pub fn post_receive(&mut self, id: u64) {
        let buffer = LocalSlice { region: &self.buffers, offset: 32 << 10, bytes: 1024 };
        self.queue_pair.post_receive(id, buffer).expect("the RECV is taken");
    }

    /// The next completion.
    pub fn completion(&mut self) -> Completion {
        wait("a completion", || {
            let mut room = [Completion::EMPTY; 1];
            (self.queue.poll(&mut room) == 1).then_some(room[0])
        })
    }

    /// READs a place of the server's region and checks what it holds; the status if it failed.
    pub fn read(&mut self, offset: usize) -> Result<(), Status> {
        self.post_read(1, offset, 8);
        let completion = self.completion();
        if completion.status != Status::Success {
            return Err(completion.status);
        }
        let mut word = [0; 8];
        self.buffers.copy_out(0, &mut word);
        assert_eq!(u64::from_le_bytes(word), word_at(offset), "at {offset}");
        Ok(())
    }

    /// Sends a word and waits for its echo; the first bad status if that failed.
    pub fn echo(&mut self, word: u64) -> Result<(), Status> {
        self.post_receive(word);
        self.post_send(word, word);
        for _ in 0..2 {
            let completion = self.completion();
            if completion.status != Status::Success {
                return Err(completion.status);
            }
            assert_eq!(completion.id, word);
        }
        let mut echo = [0; 8];
        self.buffers.copy_out(32 << 10, &mut echo);
        assert_eq!(u64::from_le_bytes(echo), word);
        Ok(())
    }
}

/// What a server's region holds at an aligned place.
pub fn word_at(offset: usize) -> u64 {
    (offset as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Plays a role: its name, then the path of a socket.
pub fn play(arguments: &[String]) {
    let [role, socket] = arguments else { panic!("a role has a name and a socket: {arguments:?}") };
    // A panic on any thread is a failure of the whole: a peer must not be able to cause one.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        hook(panic);
        std::process::abort();
    }));
    // Ends with the test that started it, however that ends.
    std::thread::spawn(|| {
        let mut line = String::new();
        let mut stdin = std::io::stdin().lock();
        while stdin.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            if line == "exit\n" {
                std::process::exit(0);
            }
            line.clear();
        }
        std::process::exit(3);
    });
    let address = Address::Shm(socket.into());
    match role.as_str() {
        "serve" => serve(&address),
        "traffic" => traffic(&address),
        "compete" => compete(&address),
        "scribble" => crate::peers::scribble(&address),
        _ => panic!("no role {role}"),
    }
}

fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().expect("the test reads");
}

/// Listens, and serves each client on a thread of its own: a region to read, and an echo of each message.
fn serve(address: &Address) {
    // The socket's mode must not depend on this.
    rustix::process::umask(rustix::fs::Mode::empty());
    let nic = ShmNic::open().expect("shared memory");
    let region = nic.register(READABLE_BYTES, Access::RemoteRead, PagePolicy::Base).expect("memory");
    (0..READABLE_BYTES / 8).for_each(|index| region.store(index, word_at(index * 8)));
    let listener = nic.listen(address).expect("the address is free");
    say("listening");
    loop {
        // An error is of one stranger, and the listener goes on.
        if let Ok(Some(link)) = listener.accept(PATIENCE) {
            let (nic, region) = (nic.clone(), region.clone());
            std::thread::spawn(move || serve_client(&nic, &link, &region));
        }
    }
}

/// Serves one client until it is gone.
pub fn serve_client(nic: &ShmNic, link: &ShmLink, region: &ShmRegion) {
    let Ok(Some((message, facts))) = link.receive(PATIENCE) else { return };
    assert_eq!(message, b"hello");
    let mut queue = nic.create_completion_queue(256).expect("a completion queue");
    let mut queue_pair =
        nic.create_queue_pair(link, &config(Transport::Rc), &queue, &queue).expect("a queue pair");
    let buffers = nic.register(64 << 10, Access::Local, PagePolicy::Base).expect("memory");
    for id in 0..32 {
        let buffer = LocalSlice { region: &buffers, offset: id as usize * 1024, bytes: 1024 };
        queue_pair.post_receive(id, buffer).expect("the RECV is taken");
    }
    let own =
        vec![queue_pair.facts(link).expect("facts"), link.grant(region).expect("the region is granted")];
    let connected = facts.into_iter().next().is_some_and(|facts| queue_pair.connect(facts).is_ok());
    if !connected || link.send(b"welcome", own).is_err() {
        return;
    }
    let mut room = [Completion::EMPTY; 16];
    while link.check() {
        for _ in 0..1000 {
            let count = queue.poll(&mut room);
            for completion in &room[..count] {
                if completion.status == Status::Success && completion.opcode == locus_fabric::Opcode::Receive
                {
                    reply(&mut queue_pair, &buffers, completion);
                }
            }
            if count == 0 {
                std::thread::yield_now();
            }
        }
    }
}

/// Sends a message back and posts its RECV again.
fn reply(queue_pair: &mut ShmQueuePair, buffers: &ShmRegion, received: &Completion) {
    let offset = received.id as usize * 1024;
    let mut message = vec![0; (received.bytes as usize).min(1024)];
    buffers.copy_out(offset, &mut message);
    let inline = &message[..message.len().min(256)];
    let verb = Verb::Send { payload: Payload::Inline(&[inline]), immediate: None, to: None };
    // A client that does not take its replies loses them, and its server goes on.
    let _ = queue_pair.post_send(&SendRequest { id: 1, verb, signaled: true });
    let _ = queue_pair.ring();
    let buffer = LocalSlice { region: buffers, offset, bytes: 1024 };
    let _ = queue_pair.post_receive(received.id, buffer);
}

/// A client whose READs and messages never end.
fn traffic(address: &Address) {
    let mut client = Client::connect(address);
    for round in 0_usize.. {
        client.read(round * 8 % READABLE_BYTES).expect("a READ");
        client.echo(round as u64).expect("an echo");
        if round == 1000 {
            say("running");
        }
    }
}

/// Listens if it can, and says whether it could.
fn compete(address: &Address) {
    let nic = ShmNic::open().expect("shared memory");
    let listener = nic.listen(address);
    say(if listener.is_ok() { "won" } else { "lost" });
    loop {
        std::thread::park();
    }
}
