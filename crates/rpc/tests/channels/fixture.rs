//! A client core and a server core in one thread.

use locus_fabric::{Nic, shm::ShmNic};
use locus_rpc::{
    Accepted, Answer, Batch, Channel, ChannelConfig, Hub, Incoming, Pair, Request, RequestHeader, RpcError,
    Server, ServerConfig, ServerCounters, fold,
};
use std::{
    cell::Cell,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

pub type ShmLink = <ShmNic as Nic>::Link;

pub const WINDOW: usize = 4;
pub const SESSION: u128 = 0x5e55_1011;
/// Of the fixture's first server.
pub const INCARNATION: u64 = 0x1234_5678_9abc_def0;
/// More polls than any exchange takes: a test that reaches it hangs.
const POLLS_MAX: usize = 1_000_000;

thread_local! {
    static PAIR: Cell<Pair> = Cell::new(Pair::default());
}

/// How messages travel in the present test.
pub fn pair() -> Pair {
    PAIR.get()
}

/// Messages of the present test travel so.
pub fn set_pair(pair: Pair) {
    PAIR.set(pair);
}

/// Runs a test over every pair of verbs.
pub fn on_every_pair(test: fn()) {
    for pair in Pair::all() {
        PAIR.set(pair);
        println!("{pair}");
        test();
    }
}

pub fn config() -> ChannelConfig {
    ChannelConfig { window: WINDOW, pair: pair(), ..ChannelConfig::default() }
}

pub fn server_config() -> ServerConfig {
    ServerConfig { channels_max: 4, pair: pair(), ..ServerConfig::default() }
}

/// Both sides and the links between them.
pub struct Fixture {
    pub nic: ShmNic,
    pub client_link: ShmLink,
    pub server_link: ShmLink,
    pub hub: Hub<ShmNic>,
    pub server: Server<ShmNic>,
}

impl Fixture {
    pub fn new() -> Self {
        Self::with(server_config())
    }

    pub fn with(config: ServerConfig) -> Self {
        Self::with_hub(config, 1 << 10)
    }

    pub fn with_hub(config: ServerConfig, hub_depth: usize) -> Self {
        let nic = ShmNic::open().expect("shared memory");
        let (client_link, server_link) = nic.pair().expect("a pair of links");
        let hub = Hub::new(&nic, hub_depth).expect("a hub");
        let server = Server::new(&nic, INCARNATION, config).expect("a server");
        Self { nic, client_link, server_link, hub, server }
    }

    /// A connected channel.
    pub fn channel(&mut self, config: ChannelConfig, session: u128) -> Channel<ShmNic> {
        let window = config.window;
        let channel = Channel::new(&self.hub, &self.client_link, config).expect("a channel");
        let facts = channel.facts().expect("facts");
        let accepted = self.server.accept(&self.server_link, facts, session, window).expect("accepted");
        channel.connect(accepted.facts, &accepted.greeting).expect("connected");
        channel
    }

    /// Connects a channel again over new links, and says whether the session was resumed.
    pub fn reconnect(&mut self, channel: &Channel<ShmNic>, session: u128) -> bool {
        (self.client_link, self.server_link) = self.nic.pair().expect("a pair of links");
        let facts = channel.reconnect(&self.client_link).expect("facts");
        let Accepted { facts, greeting, .. } =
            self.server.accept(&self.server_link, facts, session, WINDOW).expect("accepted");
        channel.connect(facts, &greeting).expect("connected");
        greeting.resumed
    }

    /// Polls the server until it has so many requests.
    pub fn requests(&mut self, count: usize) -> Vec<Incoming> {
        let mut requests = Batch::new();
        for _ in 0..POLLS_MAX {
            self.server.poll(&mut requests);
            if requests.len() >= count {
                break;
            }
        }
        assert_eq!(requests.len(), count, "requests at the server");
        requests.drain().collect()
    }

    /// Polls the server until it has the request of a key. Others that wait for their replies may come again meanwhile where
    /// requests or replies may be lost, and only there.
    pub fn request_of(&mut self, key: &[u8]) -> Incoming {
        let mut requests = Batch::new();
        for _ in 0..POLLS_MAX {
            self.server.poll(&mut requests);
            if let Some(place) = requests.iter().position(|request| request.key() == key) {
                assert!(requests.len() == 1 || pair().is_lossy(), "{} requests", requests.len());
                return requests.get_mut(place).unwrap().take();
            }
        }
        panic!("no request of {key:?}");
    }

    /// Polls the server, which must give out no request, until its counters are as they should be.
    pub fn poll_until(&mut self, done: impl Fn(&ServerCounters) -> bool) {
        let mut none = Batch::new();
        for _ in 0..POLLS_MAX {
            self.server.poll(&mut none);
            assert!(none.is_empty(), "a request was given out");
            if done(&self.server.counters()) {
                return self.server.flush();
            }
        }
        panic!("the server's counters stay {:?}", self.server.counters());
    }

    /// Polls the server until it has dropped a channel.
    pub fn dropped(&mut self) -> locus_rpc::Dropped {
        let mut requests = Batch::new();
        for _ in 0..POLLS_MAX {
            self.server.poll(&mut requests);
            if let Some(dropped) = self.server.take_dropped() {
                return dropped;
            }
        }
        panic!("the server dropped no channel");
    }

    /// Answers with the request's own value, and its opcode as the status.
    pub fn echo(&mut self, request: &Incoming) {
        let answer = Answer { status: request.opcode(), version: u64::from(request.map_epoch()) };
        self.server.reply(request, &answer, request.value());
        self.server.flush();
    }
}

pub fn read(key: &[u8]) -> Request<'_> {
    Request { opcode: 1, mutates: false, partition: 7, map_epoch: 9, key, value: &[] }
}

pub fn write<'a>(key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    Request { opcode: 2, mutates: true, partition: 7, map_epoch: 9, key, value }
}

/// A call that gives the reply's status, version and value.
pub async fn whole(channel: &Channel<ShmNic>, request: Request<'_>) -> Result<(u8, u64, Vec<u8>), RpcError> {
    channel.call(&request, |reply| (reply.status, reply.version, reply.value.to_vec())).await
}

/// What a request begins with that changes something and holds nothing.
pub fn header(sequence: u64) -> RequestHeader {
    RequestHeader {
        opcode: 1,
        mutates: true,
        staged: false,
        key_bytes: 0,
        value_bytes: 0,
        incarnation: fold(INCARNATION),
        sequence,
        partition: 0,
        map_epoch: 0,
    }
}

/// Another client's call goes through.
pub fn others_go_on(fixture: &mut Fixture, other: &Channel<ShmNic>) {
    let mut call = pin!(whole(other, read(b"other")));
    assert!(once(call.as_mut()).is_pending());
    let requests = fixture.requests(1);
    assert_eq!(requests[0].key(), b"other");
    fixture.echo(&requests[0]);
    assert!(finish(call).is_ok());
}

/// Polls a future once.
pub fn once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls a future until it is done.
pub fn finish<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    for _ in 0..POLLS_MAX {
        if let Poll::Ready(output) = once(future.as_mut()) {
            return output;
        }
    }
    panic!("the call does not end");
}

/// Polls a future, which must stay pending, so often that whatever was to happen has happened.
pub fn pends<F: Future>(mut future: Pin<&mut F>) {
    for _ in 0..100 {
        assert!(once(future.as_mut()).is_pending(), "the call ended early");
    }
}

/// Repeats a step until it says that it is done.
pub fn until(mut step: impl FnMut() -> bool) {
    for _ in 0..POLLS_MAX {
        if step() {
            return;
        }
    }
    panic!("it never comes about");
}
