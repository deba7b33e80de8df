//! Clients that break the rules: each is dropped and counted, and another client never notices.

use crate::fixture::{
    Fixture, INCARNATION, SESSION, WINDOW, config, header, once, others_go_on, read, until, whole,
};
use locus_fabric::{
    Access, Completion, CompletionQueue, LocalSlice, Nic, PagePolicy, Payload, QueuePair, QueuePairConfig,
    SendRequest, Verb, shm::ShmNic,
};
use locus_rpc::{
    Batch, Channel, ChannelConfig, FRAME_BYTES_MAX, FrameError, Loss, RequestHeader, RpcError, ServerConfig,
    fold,
};
use proptest::prelude::*;
use std::pin::pin;

/// A client that sends whatever bytes it is told to.
struct Raw {
    pair: <ShmNic as Nic>::QueuePair,
    queue: <ShmNic as Nic>::CompletionQueue,
    buffers: <ShmNic as Nic>::Region,
}

impl Raw {
    fn connect(fixture: &mut Fixture, session: u128) -> Self {
        let queue = fixture.nic.create_completion_queue(256).unwrap();
        let config = QueuePairConfig { message_bytes: 2 * FRAME_BYTES_MAX, ..QueuePairConfig::default() };
        let mut pair = fixture.nic.create_queue_pair(&fixture.client_link, &config, &queue, &queue).unwrap();
        let facts = pair.facts(&fixture.client_link).unwrap();
        let accepted = fixture.server.accept(&fixture.server_link, vec![facts], session, WINDOW).unwrap();
        pair.connect(accepted.facts.into_iter().next().unwrap()).unwrap();
        let buffers = fixture.nic.register(FRAME_BYTES_MAX * 8, Access::Local, PagePolicy::Base).unwrap();
        Self { pair, queue, buffers }
    }

    /// Sends a message of up to the inline limit, and makes room for the next.
    fn send(&mut self, message: &[u8]) {
        let payload = Payload::Inline(&[message]);
        let verb = Verb::Send { payload, immediate: None, to: None };
        let posted = self.pair.post_send(&SendRequest { id: 1, verb, signaled: true });
        assert_eq!(posted, Ok(()));
        self.pair.ring().unwrap();
        self.queue.poll(&mut [Completion::EMPTY; 16]);
    }

    /// Posts a RECV.
    fn receive(&mut self) {
        let slice = LocalSlice { region: &self.buffers, offset: 0, bytes: FRAME_BYTES_MAX };
        self.pair.post_receive(2, slice).unwrap();
    }
}

fn dropped_for(fixture: &mut Fixture, cause: Loss) {
    let dropped = fixture.dropped();
    assert_eq!((dropped.cause, dropped.session), (cause, SESSION));
    assert_eq!(fixture.server.counters().dropped[cause.kind()], 1);
    assert_eq!(fixture.server.channels(), 1);
}

#[test]
fn a_malformed_frame_drops_its_channel_alone() {
    let mut fixture = Fixture::new();
    let other = fixture.channel(config(), 1);
    let mut raw = Raw::connect(&mut fixture, SESSION);
    raw.send(&[0xff; 50]);
    let said = usize::from(u16::MAX);
    dropped_for(&mut fixture, Loss::Malformed(FrameError::Length { arrived: 50, said }));
    others_go_on(&mut fixture, &other);
}

#[test]
fn another_incarnation_drops_the_channel() {
    let mut fixture = Fixture::new();
    let other = fixture.channel(config(), 1);
    let mut raw = Raw::connect(&mut fixture, SESSION);
    raw.send(&RequestHeader { incarnation: fold(INCARNATION + 1), ..header(WINDOW as u64) }.encode());
    dropped_for(&mut fixture, Loss::WrongIncarnation);
    others_go_on(&mut fixture, &other);
}

#[test]
fn an_old_sequence_drops_the_channel() {
    let mut fixture = Fixture::new();
    let other = fixture.channel(config(), 1);
    let mut raw = Raw::connect(&mut fixture, SESSION);
    let window = WINDOW as u64;
    raw.send(&header(2 * window + 1).encode());
    raw.send(&header(window + 1).encode());
    let mut requests = Batch::new();
    until(|| {
        fixture.server.poll(&mut requests);
        fixture.server.channels() == 1
    });
    assert_eq!(requests.len(), 1);
    dropped_for(&mut fixture, Loss::Sequence);
    // What it had sent before is still answered, to nobody.
    fixture.echo(&requests[0]);
    others_go_on(&mut fixture, &other);
}

#[test]
fn a_client_that_takes_no_replies_is_held_back_and_then_dropped() {
    let mut fixture = Fixture::new();
    let other = fixture.channel(config(), 1);
    let mut raw = Raw::connect(&mut fixture, SESSION);
    // It posts no RECV and asks for the same reply again and again.
    let message = header(WINDOW as u64).encode();
    raw.send(&message);
    let requests = fixture.requests(1);
    fixture.echo(&requests[0]);
    let mut none = Batch::new();
    let mut sent = 0;
    while fixture.server.channels() == 2 {
        sent += 1;
        assert!(sent < 1000, "never dropped");
        raw.send(&message);
        fixture.server.poll(&mut none);
        others_go_on(&mut fixture, &other);
    }
    assert!(fixture.server.counters().backpressure > 0);
    dropped_for(&mut fixture, Loss::Stalled);
    others_go_on(&mut fixture, &other);
}

#[test]
fn replies_that_were_held_back_arrive_when_the_client_takes_them() {
    let mut fixture = Fixture::new();
    let mut raw = Raw::connect(&mut fixture, SESSION);
    let message = header(WINDOW as u64).encode();
    raw.send(&message);
    let requests = fixture.requests(1);
    fixture.echo(&requests[0]);
    let mut none = Batch::new();
    let mut expected = 1;
    until(|| {
        raw.send(&message);
        expected += 1;
        fixture.server.poll(&mut none);
        fixture.server.counters().backpressure > 0
    });
    let before = fixture.server.counters().duplicates;
    let mut arrived = 0;
    let mut completions = [Completion::EMPTY; 16];
    for _ in 0..1_000_000 {
        if arrived == expected {
            break;
        }
        raw.receive();
        let count = raw.queue.poll(&mut completions);
        arrived += completions[..count].iter().filter(|completion| completion.id == 2).count();
        fixture.server.poll(&mut none);
    }
    assert!(before < expected as u64, "{before} repeats of {expected} requests");
    assert_eq!(arrived, expected);
    assert_eq!(fixture.server.channels(), 1);
}

#[test]
fn the_limit_of_channels_is_an_error_that_names_it() {
    let mut fixture = Fixture::with(ServerConfig { channels_max: 2, ..ServerConfig::default() });
    let _channels = [fixture.channel(config(), 1), fixture.channel(config(), 2)];
    let refused = |fixture: &mut Fixture, window: usize| {
        let channel = Channel::new(&fixture.hub, &fixture.client_link, config()).unwrap();
        let facts = channel.facts().unwrap();
        fixture.server.accept(&fixture.server_link, facts, 3, window).unwrap_err()
    };
    let error = refused(&mut fixture, WINDOW);
    assert!(matches!(error, RpcError::Limit { what: "channels of a server core", limit: 2 }), "{error}");
    let error = refused(&mut fixture, 1 << 20);
    assert!(matches!(error, RpcError::Limit { what: "the window", .. }), "{error}");
    let error = refused(&mut fixture, 0);
    assert!(matches!(error, RpcError::Limit { what: "the window", .. }), "{error}");
    // A session that comes back takes the place of its own channel.
    let replaced = fixture.channel(config(), 2);
    assert_eq!(fixture.dropped().cause, Loss::Replaced);
    others_go_on(&mut fixture, &replaced);
}

#[test]
fn a_hub_says_how_many_channels_it_takes() {
    let fixture = Fixture::new();
    let config = ChannelConfig { window: 64, ..ChannelConfig::default() };
    let mut channels = Vec::new();
    let error = loop {
        match Channel::new(&fixture.hub, &fixture.client_link, config.clone()) {
            Ok(channel) => channels.push(channel),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, RpcError::Limit { limit: 1024, .. }), "{error}");
    assert!(channels.len() > 1);
    // A channel that is dropped makes room.
    channels.pop();
    assert!(Channel::new(&fixture.hub, &fixture.client_link, config).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever one client sends, the server lives and the other client's calls go through.
    #[test]
    fn whatever_a_client_sends_others_go_on(
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..20),
        plausible in proptest::collection::vec(any::<(bool, u8, u8)>(), 20),
    ) {
        let mut fixture = Fixture::new();
        let other = fixture.channel(config(), 1);
        let mut raw = Raw::connect(&mut fixture, SESSION);
        let mut requests = Batch::new();
        for (message, (honest, at, change)) in messages.iter().zip(plausible) {
            if fixture.server.channels() == 1 {
                raw = Raw::connect(&mut fixture, SESSION);
            }
            raw.receive();
            if honest {
                // A good frame with one byte changed.
                let value_bytes = message.len() as u16;
                let sequence = WINDOW as u64 + u64::from(change);
                let mut frame = RequestHeader { value_bytes, ..header(sequence) }.encode().to_vec();
                frame.extend(message);
                frame[usize::from(at) % 24] ^= change & 1;
                raw.send(&frame);
            } else {
                raw.send(message);
            }
            fixture.server.poll(&mut requests);
            for request in requests.drain() {
                prop_assert!(request.key().len() + request.value().len() <= 200);
                fixture.echo(&request);
            }
        }
        // Whatever is left arrives before the other client's request does, or with it.
        let mut call = pin!(whole(&other, read(b"other")));
        prop_assert!(once(call.as_mut()).is_pending());
        until(|| {
            fixture.server.poll(&mut requests);
            for request in requests.drain() {
                fixture.echo(&request);
            }
            once(call.as_mut()).is_ready()
        });
    }
}
