//! Clients that may WRITE into the server's memory, and UD queue pairs that anybody may send to: what breaks the rules is
//! dropped, and another client never notices.

use crate::fixture::{
    Fixture, INCARNATION, SESSION, WINDOW, config, header, once, others_go_on, pair, read, server_config,
    set_pair, until, whole,
};
use locus_fabric::{
    Access, Completion, CompletionQueue, Facts, Link, LocalSlice, Nic, PagePolicy, Payload, QueuePair,
    QueuePairConfig, RemoteRegion, RemoteSlice, SendRequest, Status, Transport, Verb, shm::ShmNic,
};
use locus_memory::checksum;
use locus_rpc::{
    Batch, Channel, FRAME_BYTES_MAX, FrameError, Loss, Pair, RequestHeader, RpcError, ServerConfig, Way, fold,
};
use proptest::prelude::*;
use std::pin::pin;

const SLOT_BYTES: usize = (FRAME_BYTES_MAX.next_multiple_of(8) + 16).next_multiple_of(64);

/// A client that WRITEs whatever bytes it is told to, wherever.
struct Writer {
    pair: <ShmNic as Nic>::QueuePair,
    queue: <ShmNic as Nic>::CompletionQueue,
    slots: <ShmNic as Nic>::RemoteRegion,
    _buffers: <ShmNic as Nic>::Region,
}

impl Writer {
    fn connect(fixture: &mut Fixture) -> Self {
        let queue = fixture.nic.create_completion_queue(256).unwrap();
        let transport = pair().request.transport;
        let config = QueuePairConfig { transport, inline_bytes: 4096, ..QueuePairConfig::default() };
        let mut queue_pair =
            fixture.nic.create_queue_pair(&fixture.client_link, &config, &queue, &queue).unwrap();
        let buffers = fixture.nic.register(1 << 16, Access::RemoteWrite, PagePolicy::Base).unwrap();
        for _ in 0..WINDOW {
            let slice = LocalSlice { region: &buffers, offset: 0, bytes: 8192 };
            queue_pair.post_receive(2, slice).unwrap();
        }
        let mut facts = vec![queue_pair.facts(&fixture.client_link).unwrap()];
        if pair().reply.carrier == locus_rpc::Carrier::Write {
            facts.push(fixture.client_link.grant(&buffers).unwrap());
        }
        let accepted = fixture.server.accept(&fixture.server_link, facts, SESSION, WINDOW).unwrap();
        let [theirs, slots] = <[Facts; 2]>::try_from(accepted.facts).unwrap();
        queue_pair.connect(theirs).unwrap();
        let slots = fixture.client_link.import(slots).unwrap();
        Self { pair: queue_pair, queue, slots, _buffers: buffers }
    }

    fn write(&mut self, offset: usize, bytes: &[u8], immediate: Option<u32>) {
        let payload = Payload::Inline(&[bytes]);
        let to = RemoteSlice { region: &self.slots, offset };
        let verb = Verb::Write { payload, to, immediate };
        assert_eq!(self.pair.post_send(&SendRequest { id: 1, verb, signaled: true }), Ok(()));
        self.pair.ring().unwrap();
    }

    /// Puts a frame into a slot as an honest client does, without a checksum.
    fn put(&mut self, slot: usize, frame: &[u8], mark: u64, immediate: Option<u32>) {
        let mut bytes = frame.to_vec();
        bytes.resize(frame.len().next_multiple_of(8), 0);
        bytes.extend(mark.to_le_bytes());
        self.write((slot + 1) * SLOT_BYTES - bytes.len(), &bytes, immediate);
    }

    fn status(&mut self) -> Option<Status> {
        let mut completions = [Completion::EMPTY; 16];
        let count = self.queue.poll(&mut completions);
        completions[..count].iter().find(|completion| completion.id == 1).map(|completion| completion.status)
    }
}

fn mark(sequence: u64, bytes: usize) -> u64 {
    sequence << 24 | bytes as u64
}

/// A server, an honest client, and one that WRITEs.
fn with_writer(request: Way, reply: Way) -> (Fixture, Channel<ShmNic>, Writer) {
    set_pair(Pair { request, reply });
    let mut fixture = Fixture::new();
    let other = fixture.channel(config(), 1);
    let writer = Writer::connect(&mut fixture);
    (fixture, other, writer)
}

fn dropped_for(fixture: &mut Fixture, other: &Channel<ShmNic>, cause: Loss) {
    let dropped = fixture.dropped();
    assert_eq!((dropped.cause, dropped.session), (cause, SESSION));
    assert_eq!(fixture.server.channels(), 1);
    others_go_on(fixture, other);
}

#[test]
fn a_mark_that_names_an_impossible_length_drops_its_channel_alone() {
    // Among them those that a slot has room for, since it is rounded up, and the longest frame's buffer has not.
    for bytes in (FRAME_BYTES_MAX + 1..=SLOT_BYTES).chain([0, 0xffff]) {
        let (mut fixture, other, mut writer) = with_writer(Way::RC_WRITE, Way::RC_WRITE);
        writer.put(0, &header(4).encode(), mark(4, bytes), None);
        let cause = Loss::Malformed(FrameError::Mark { bytes, slot_bytes: SLOT_BYTES });
        dropped_for(&mut fixture, &other, cause);
    }
}

#[test]
fn a_frame_of_another_length_than_its_mark_drops_its_channel_alone() {
    let (mut fixture, other, mut writer) = with_writer(Way::RC_WRITE, Way::RC_SEND);
    writer.put(0, &header(4).encode(), mark(4, 32), None);
    // So many bytes from the right end: the header is not where the frame begins.
    assert!(matches!(fixture.dropped().cause, Loss::Malformed(FrameError::Length { arrived: 32, .. })));
    others_go_on(&mut fixture, &other);
}

#[test]
fn old_sequences_and_other_incarnations_drop_their_channel_alone() {
    let (mut fixture, other, mut writer) = with_writer(Way::RC_WRITE, Way::RC_WRITE);
    writer.put(1, &header(9).encode(), mark(9, 24), None);
    // In another slot than its own: only the sequence counts.
    writer.put(2, &header(5).encode(), mark(5, 24), None);
    let mut requests = Batch::new();
    until(|| {
        fixture.server.poll(&mut requests);
        fixture.server.channels() == 1
    });
    assert_eq!(requests.len(), 1);
    dropped_for(&mut fixture, &other, Loss::Sequence);
    // What it had sent before is still answered, to nobody.
    fixture.echo(&requests[0]);
    let (mut fixture, other, mut writer) = with_writer(Way::RC_WRITE, Way::RC_WRITE);
    let stranger = RequestHeader { incarnation: fold(INCARNATION + 1), ..header(4) };
    writer.put(0, &stranger.encode(), mark(4, 24), None);
    dropped_for(&mut fixture, &other, Loss::WrongIncarnation);
}

#[test]
fn a_client_may_write_to_its_own_slots_and_nowhere_else() {
    let (mut fixture, other, mut writer) = with_writer(Way::RC_WRITE, Way::RC_WRITE);
    let end = writer.slots.bytes();
    assert!(end < 2 * WINDOW * SLOT_BYTES, "no more than its slots");
    writer.write(end - 8, &[7; 16], None);
    let mut status = None;
    until(|| {
        status = writer.status();
        status.is_some()
    });
    assert_eq!(status, Some(Status::RemoteAccess));
    drop(writer);
    fixture.dropped();
    others_go_on(&mut fixture, &other);
}

#[test]
fn an_immediate_that_names_no_frame_drops_its_channel_alone() {
    for slot in [0, 3, 4, u32::MAX - 1] {
        let (mut fixture, other, mut writer) = with_writer(Way::RC_WRITE_IMMEDIATE, Way::RC_SEND);
        writer.put(0, &header(4).encode(), mark(4, 24), Some(0));
        let requests = fixture.requests(1);
        fixture.echo(&requests[0]);
        // Of a frame that was taken, of an empty slot, and of none.
        writer.write(0, &[], Some(slot));
        dropped_for(&mut fixture, &other, Loss::Malformed(FrameError::Immediate(slot)));
    }
}

/// Where a checksum is needed, a frame counts once all of it is there, in whatever order it comes.
#[test]
fn a_frame_is_taken_when_it_is_whole() {
    let (mut fixture, _other, mut writer) = with_writer(Way::UC_WRITE, Way::UC_WRITE);
    let mut bytes = header(4).encode().to_vec();
    bytes.extend(mark(4, 24).to_le_bytes());
    bytes.extend(checksum(&bytes).to_le_bytes());
    let start = SLOT_BYTES - bytes.len();
    let mut requests = Batch::new();
    // The mark and the checksum first, the beginning of the frame last.
    for at in (0..bytes.len()).step_by(8).rev() {
        for _ in 0..10 {
            fixture.server.poll(&mut requests);
            assert!(requests.is_empty(), "taken before byte {at} was there");
        }
        writer.write(start + at, &bytes[at..at + 8], None);
    }
    assert!(fixture.requests(1)[0].mutates());
    assert_eq!(fixture.server.counters().requests, 1);
}

/// A mark that never gets its frame takes no client with it, and over UC not even its own: it may be a part that came.
#[test]
fn a_frame_that_never_becomes_whole_harms_nobody() {
    let (mut fixture, other, mut writer) = with_writer(Way::UC_WRITE, Way::UC_WRITE);
    let mut bytes = mark(4, 24).to_le_bytes().to_vec();
    bytes.extend([9; 8]);
    writer.write(SLOT_BYTES - 16, &bytes, None);
    let mut none = Batch::new();
    for _ in 0..200_000 {
        fixture.server.poll(&mut none);
    }
    assert!(none.is_empty() && fixture.server.channels() == 2);
    others_go_on(&mut fixture, &other);
}

/// Datagrams of strangers are counted; whoever knows a channel's token can harm that channel alone.
#[test]
fn datagrams_without_a_token_harm_nobody() {
    set_pair(Pair { request: Way::UD_SEND, reply: Way::UD_SEND });
    let mut fixture = Fixture::new();
    let other = fixture.channel(config(), 1);
    let queue = fixture.nic.create_completion_queue(256).unwrap();
    let config =
        QueuePairConfig { transport: Transport::Ud, message_bytes: 4096, ..QueuePairConfig::default() };
    let mut raw = fixture.nic.create_queue_pair(&fixture.client_link, &config, &queue, &queue).unwrap();
    raw.activate().unwrap();
    let facts = raw.facts(&fixture.client_link).unwrap();
    let mut accepted = fixture.server.accept(&fixture.server_link, vec![facts], SESSION, WINDOW).unwrap();
    let to = raw.address(&fixture.client_link, accepted.facts.pop().unwrap()).unwrap();
    let token = accepted.greeting.token;
    let mut send = |token: u64, frame: &[u8]| {
        let payload: [&[u8]; 2] = [&token.to_le_bytes(), frame];
        let verb = Verb::Send { payload: Payload::Inline(&payload), immediate: None, to: Some(&to) };
        raw.post_send(&SendRequest { id: 1, verb, signaled: false }).unwrap();
        raw.ring().unwrap();
    };
    // A guess that names the other's place, a place that nobody has, and too few bytes for a token.
    let strays = [(token ^ 1, &header(4).encode()[..]), (token | 0xffff, &[1, 2, 3]), (1 << 16, &[])];
    for (number, (guess, frame)) in (1..).zip(strays) {
        send(guess, frame);
        fixture.poll_until(|counters| counters.stray == number);
    }
    assert_eq!(fixture.server.channels(), 2);
    others_go_on(&mut fixture, &other);
    send(token, &[0xff; 50]);
    let cause = fixture.dropped().cause;
    assert!(matches!(cause, Loss::Malformed(FrameError::Length { arrived: 50, .. })), "{cause}");
    others_go_on(&mut fixture, &other);
}

/// One UD queue pair serves them all; one more is refused by an error that names the limit.
#[test]
fn a_thousand_clients_share_one_queue_pair_of_the_server() {
    const CLIENTS: usize = 1000;
    set_pair(Pair { request: Way::UD_SEND, reply: Way::UD_SEND });
    let limits = ServerConfig { channels_max: CLIENTS, ..server_config() };
    let mut fixture = Fixture::with_hub(limits, 60_000);
    let narrow = || locus_rpc::ChannelConfig { window: 2, ..config() };
    let channels: Vec<_> =
        (0..CLIENTS).map(|number| fixture.channel(narrow(), SESSION + number as u128)).collect();
    let keys: Vec<[u8; 8]> = (0..CLIENTS as u64).map(u64::to_le_bytes).collect();
    for _ in 0..3 {
        let calls = channels.iter().zip(&keys).map(|(channel, key)| Box::pin(whole(channel, read(key))));
        let mut calls: Vec<_> = calls.collect();
        let mut served = std::collections::HashSet::new();
        let mut requests = Batch::new();
        // What finds no RECV is lost, and sent again.
        until(|| {
            calls.retain_mut(|call| once(call.as_mut()).is_pending());
            fixture.server.poll(&mut requests);
            for request in requests.drain() {
                served.insert(request.key().to_vec());
                fixture.echo(&request);
            }
            calls.is_empty()
        });
        assert_eq!(served.len(), CLIENTS);
    }
    let one_more = Channel::new(&fixture.hub, &fixture.client_link, narrow()).unwrap();
    let facts = one_more.facts().unwrap();
    let refused = fixture.server.accept(&fixture.server_link, facts, 1, 2);
    assert!(
        matches!(refused, Err(RpcError::Limit { what: "channels of a server core", limit: CLIENTS })),
        "{refused:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever one client WRITEs, wherever in its slots, the server lives and the other client's calls go through.
    #[test]
    fn whatever_a_client_writes_others_go_on(
        writes in proptest::collection::vec((0..WINDOW, any::<u64>(), 0..64usize, any::<[u8; 3]>()), 1..20),
    ) {
        let (mut fixture, other, mut writer) = with_writer(Way::RC_WRITE, Way::RC_WRITE);
        let mut requests = Batch::new();
        for (slot, noise, bytes, [kind, at, change]) in writes {
            if fixture.server.channels() == 1 {
                writer = Writer::connect(&mut fixture);
            }
            let sequence = WINDOW as u64 + (noise & 31);
            match kind % 3 {
                0 => writer.put(slot, &vec![change; bytes], noise, None),
                1 => {
                    // A good frame with one byte changed.
                    let mut frame = header(sequence).encode();
                    frame[usize::from(at) % 24] ^= change & 1;
                    writer.put(slot, &frame, mark(sequence, 24), None);
                }
                _ => writer.write(noise as usize % (WINDOW * SLOT_BYTES - 64), &vec![change; bytes], None),
            }
            fixture.server.poll(&mut requests);
            for request in requests.drain() {
                fixture.echo(&request);
            }
        }
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
