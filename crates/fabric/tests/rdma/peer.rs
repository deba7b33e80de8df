//! Two processes that meet: one listens, the other is started with `--role` and stays until its link ends.

use locus_fabric::{
    Access, Address, Completion, CompletionQueue, Link, Listener, LocalSlice, Nic, PagePolicy, QueuePair,
    QueuePairConfig, RemoteSlice, SendRequest, Status, Transport, Verb,
    verbs::{VerbsConfig, VerbsNic},
};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Command};

use crate::ill;
pub use crate::wait::{PATIENCE, wait};

type Of<N> = <N as Nic>::CompletionQueue;

/// How many RECVs each side posts.
pub const RECEIVES: usize = 8;
const BUFFER_BYTES: usize = 128;

pub fn nic() -> VerbsNic {
    VerbsNic::open(&VerbsConfig::default()).expect("an RDMA device")
}

/// One end of a queue pair, with RECVs posted, and of another one for READs.
pub struct End {
    pub link: <VerbsNic as Nic>::Link,
    pub pair: <VerbsNic as Nic>::QueuePair,
    pub queue: Of<VerbsNic>,
    pub reader: <VerbsNic as Nic>::QueuePair,
    pub reads: Of<VerbsNic>,
    pub buffer: <VerbsNic as Nic>::Region,
    pub remote: <VerbsNic as Nic>::RemoteRegion,
}

impl End {
    /// Connects with an end that the peer makes in the same way.
    pub fn new(nic: &VerbsNic, link: <VerbsNic as Nic>::Link, transport: Transport) -> Self {
        let config =
            QueuePairConfig { transport, receive_depth: RECEIVES, message_bytes: 64, ..Default::default() };
        let queue = nic.create_completion_queue(256).unwrap();
        let mut pair = nic.create_queue_pair(&link, &config, &queue, &queue).unwrap();
        let reads = nic.create_completion_queue(256).unwrap();
        let mut reader = nic.create_queue_pair(&link, &Default::default(), &reads, &reads).unwrap();
        let buffer = nic.register(4096, Access::RemoteRead, PagePolicy::Base).unwrap();
        for id in 0..RECEIVES {
            let into = LocalSlice { region: &buffer, offset: id * BUFFER_BYTES, bytes: BUFFER_BYTES };
            pair.post_receive(id as u64, into).unwrap();
        }
        let ours =
            vec![pair.facts(&link).unwrap(), reader.facts(&link).unwrap(), link.grant(&buffer).unwrap()];
        link.send(b"facts", ours).unwrap();
        let (_, theirs) = link.receive(PATIENCE).unwrap().expect("the peer's facts");
        let [pair_facts, reader_facts, region] = <[_; 3]>::try_from(theirs).expect("three facts");
        match transport {
            Transport::Ud => pair.activate().unwrap(),
            _ => pair.connect(pair_facts).unwrap(),
        }
        reader.connect(reader_facts).unwrap();
        let remote = link.import(region).unwrap();
        link.send(b"connected", Vec::new()).unwrap();
        link.receive(PATIENCE).unwrap().expect("the peer's word");
        Self { link, pair, queue, reader, reads, buffer, remote }
    }

    /// Starts a READ.
    pub fn post_read(&mut self) {
        let into = LocalSlice { region: &self.buffer, offset: 2048, bytes: 64 };
        let verb = Verb::Read { into, from: RemoteSlice { region: &self.remote, offset: 0 } };
        let _ = self.reader.post_send(&SendRequest { id: 77, verb, signaled: true });
        let _ = self.reader.ring();
    }

    /// Carries out a READ and says how it ended.
    pub fn read(&mut self) -> Status {
        self.post_read();
        wait("a READ to end", || take(&mut self.reads)).status
    }
}

/// The next completion.
pub fn take(queue: &mut Of<VerbsNic>) -> Option<Completion> {
    let mut completion = [Completion::EMPTY];
    (queue.poll(&mut completion) == 1).then_some(completion[0])
}

/// Another process. It is killed when this is dropped.
pub struct Peer(pub Child);

impl Peer {
    /// Starts one and meets it.
    pub fn meet(nic: &VerbsNic, device: &str, transport: Transport) -> (Self, End) {
        let listener = nic.listen(&format!("rdma://{device}:0").parse().unwrap()).unwrap();
        Self::come(nic, &listener, transport)
    }

    /// Starts one that comes to a listener.
    pub fn come(nic: &VerbsNic, listener: &<VerbsNic as Nic>::Listener, transport: Transport) -> (Self, End) {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--role", &listener.address().to_string(), &format!("{transport:?}")])
            .spawn()
            .unwrap();
        let peer = Self(child);
        let (end, _) = accept(nic, listener);
        (peer, end)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Meets the next peer that comes, over the transport that it asks for.
pub fn accept(nic: &VerbsNic, listener: &<VerbsNic as Nic>::Listener) -> (End, Transport) {
    let link = listener.accept(PATIENCE).unwrap().expect("a peer comes");
    let (wish, _) = link.receive(PATIENCE).unwrap().expect("the peer says how");
    let transport = transport(std::str::from_utf8(&wish).unwrap());
    (End::new(nic, link, transport), transport)
}

fn transport(name: &str) -> Transport {
    [Transport::Rc, Transport::Uc, Transport::Ud]
        .into_iter()
        .find(|transport| format!("{transport:?}") == name)
        .expect("a transport")
}

/// What the other process does: it polls for nothing, and ends when its link does.
pub fn play(arguments: &[String]) {
    let [address, transport] = arguments else { panic!("--role ADDRESS TRANSPORT") };
    if address == ill::ROLE {
        return ill::play(transport);
    }
    stay(&nic(), &address.parse().unwrap(), transport);
}

/// Meets whoever listens at an address, and stays until the link ends.
pub fn stay(nic: &VerbsNic, address: &Address, wish: &str) {
    let link = wait("the other side to listen", || nic.connect(address).ok());
    link.send(wish.as_bytes(), Vec::new()).unwrap();
    let end = End::new(nic, link, transport(wish));
    // Nothing more is said; an error is the end.
    while end.link.receive(PATIENCE).is_ok() {}
}
