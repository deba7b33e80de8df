//! Calls and replies, windows, dropped futures, staged values.

use crate::fixture::{
    Fixture, SESSION, WINDOW, config, finish, once, pair, pends, read, until, whole, write,
};
use locus_fabric::{Access, Link, Nic, PagePolicy, QueuePair, QueuePairConfig, Region, shm::ShmNic};
use locus_memory::checksum;
use locus_rpc::{
    Ahead, Answer, ChannelConfig, INLINE_VALUE_BYTES_MAX, Incoming, KEY_BYTES_MAX, RpcError, Staging,
};
use std::pin::pin;

on_every_pair! {
    every_field_and_byte_arrives_both_ways,
    an_answer_arrives_as_it_was_given,
    replies_find_their_call_in_whatever_order_they_come,
    a_call_waits_for_a_slot_and_too_many_who_wait_are_refused,
    whoever_comes_later_waits_once_for_those_who_wait,
    the_slot_of_a_dropped_call_stays_in_use_until_its_reply,
    channels_of_one_hub_get_their_own_replies,
    sizes_over_the_limit_are_refused_before_anything_is_sent,
    long_values_lie_in_the_staging_region_when_their_request_arrives,
    a_request_whose_value_cannot_go_ahead_is_not_sent,
    a_repeated_request_finds_its_own_value,
}

fn every_field_and_byte_arrives_both_ways() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(config(), SESSION);
    // A datagram has room for less.
    let longest = if pair().is_lossy() { 2900 } else { INLINE_VALUE_BYTES_MAX };
    for (key_bytes, value_bytes) in [(1, 0), (8, 32), (KEY_BYTES_MAX, longest), (17, 255), (3, 1000), (40, 0)]
    {
        let key: Vec<u8> = (0..key_bytes).map(|byte| byte as u8).collect();
        let value: Vec<u8> = (0..value_bytes).map(|byte| (byte * 7) as u8).collect();
        let mut call = pin!(whole(&channel, write(&key, &value)));
        assert!(once(call.as_mut()).is_pending());
        let requests = fixture.requests(1);
        let request = &requests[0];
        assert_eq!(
            (request.opcode(), request.mutates(), request.partition(), request.map_epoch()),
            (2, true, 7, 9)
        );
        assert_eq!((request.key(), request.value(), request.session()), (&key[..], &value[..], SESSION));
        assert!(request.staged().is_none());
        fixture.echo(request);
        assert_eq!(finish(call).unwrap(), (2, 9, value.clone()));
    }
    let counters = channel.counters();
    assert_eq!((counters.requests, counters.replies, counters.foreign_replies), (6, 6, 0));
}

fn an_answer_arrives_as_it_was_given() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(config(), SESSION);
    let mut call = pin!(whole(&channel, read(b"key")));
    assert!(once(call.as_mut()).is_pending());
    let requests = fixture.requests(1);
    fixture.server.reply(&requests[0], &Answer { status: 3, version: 1 << 40 }, b"abcdefgh");
    fixture.server.flush();
    assert_eq!(finish(call).unwrap(), (3, 1 << 40, b"abcdefgh".to_vec()));
}

fn replies_find_their_call_in_whatever_order_they_come() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(config(), SESSION);
    let keys: Vec<Vec<u8>> = (0..WINDOW as u8).map(|name| vec![name]).collect();
    let mut calls: Vec<_> = keys.iter().map(|key| Box::pin(whole(&channel, write(key, key)))).collect();
    for call in &mut calls {
        assert!(once(call.as_mut()).is_pending());
    }
    for request in fixture.requests(WINDOW).iter().rev() {
        fixture.echo(request);
    }
    for (call, key) in calls.iter_mut().zip(&keys) {
        assert_eq!(finish(call.as_mut()).unwrap().2, *key);
    }
}

fn a_call_waits_for_a_slot_and_too_many_who_wait_are_refused() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(ChannelConfig { waiting_max: 1, ..config() }, SESSION);
    let mut calls: Vec<_> = (0..WINDOW).map(|_| Box::pin(whole(&channel, read(b"key")))).collect();
    for call in &mut calls {
        assert!(once(call.as_mut()).is_pending());
    }
    let mut waiting = Box::pin(whole(&channel, read(b"waits")));
    pends(waiting.as_mut());
    let refused = finish(pin!(whole(&channel, read(b"refused"))));
    assert!(matches!(refused, Err(RpcError::WindowFull(1))), "{refused:?}");
    let requests = fixture.requests(WINDOW);
    fixture.echo(&requests[1]);
    assert!(finish(calls[1].as_mut()).is_ok());
    pends(waiting.as_mut());
    let _request = fixture.request_of(b"waits");
    // Whoever gives up waiting makes room for another.
    let mut gives_up = Box::pin(whole(&channel, read(b"gives up")));
    pends(gives_up.as_mut());
    drop(gives_up);
    pends(pin!(whole(&channel, read(b"waits too"))));
    assert_eq!(channel.counters().slot_waits, 3);
}

fn whoever_comes_later_waits_once_for_those_who_wait() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(ChannelConfig { window: 1, ..config() }, SESSION);
    let mut first = pin!(whole(&channel, read(b"first")));
    assert!(once(first.as_mut()).is_pending());
    let mut waits = pin!(whole(&channel, read(b"waits")));
    pends(waits.as_mut());
    let request = fixture.request_of(b"first");
    fixture.echo(&request);
    assert!(finish(first).is_ok());
    // There is a free slot now, and not for who comes again at once.
    let mut later = pin!(whole(&channel, read(b"later")));
    assert!(once(later.as_mut()).is_pending() && once(waits.as_mut()).is_pending());
    let request = fixture.request_of(b"waits");
    pends(later.as_mut());
    fixture.echo(&request);
    assert!(finish(waits).is_ok());
    // But those who wait may be polled by nobody.
    let mut idle = pin!(whole(&channel, read(b"idle")));
    pends(later.as_mut());
    assert!(once(idle.as_mut()).is_pending());
    let request = fixture.request_of(b"later");
    fixture.echo(&request);
    assert!(finish(later).is_ok());
    let mut last = pin!(whole(&channel, read(b"last")));
    assert!(once(last.as_mut()).is_pending() && once(last.as_mut()).is_pending());
    let request = fixture.request_of(b"last");
    fixture.echo(&request);
    assert!(finish(last).is_ok());
}

fn the_slot_of_a_dropped_call_stays_in_use_until_its_reply() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(ChannelConfig { window: 1, ..config() }, SESSION);
    let mut dropped = Box::pin(whole(&channel, read(b"dropped")));
    assert!(once(dropped.as_mut()).is_pending());
    drop(dropped);
    let mut next = pin!(whole(&channel, read(b"next")));
    pends(next.as_mut());
    let requests = fixture.requests(1);
    assert_eq!(requests[0].key(), b"dropped");
    fixture.echo(&requests[0]);
    assert!(once(next.as_mut()).is_pending());
    until(|| {
        assert!(once(next.as_mut()).is_pending());
        channel.counters().requests == 2
    });
    let requests = fixture.requests(1);
    assert_eq!(requests[0].key(), b"next");
    fixture.echo(&requests[0]);
    assert_eq!(finish(next).unwrap().0, 1);
    assert_eq!(channel.counters().unclaimed_replies, 1);
}

fn channels_of_one_hub_get_their_own_replies() {
    let mut fixture = Fixture::new();
    let (one, two) = (fixture.channel(config(), 1), fixture.channel(config(), 2));
    let mut first = pin!(whole(&one, write(b"k", b"first")));
    let mut second = pin!(whole(&two, write(b"k", b"second")));
    assert!(once(first.as_mut()).is_pending() && once(second.as_mut()).is_pending());
    let requests = fixture.requests(2);
    requests.iter().for_each(|request| fixture.echo(request));
    // The second takes both completions from the queue; the first finds its own in its mailbox.
    assert_eq!(finish(second).unwrap().2, b"second");
    assert_eq!(finish(first).unwrap().2, b"first");
    assert_eq!(one.counters().foreign_replies + two.counters().foreign_replies, 0);
}

fn sizes_over_the_limit_are_refused_before_anything_is_sent() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(config(), SESSION);
    let long_key = vec![0; KEY_BYTES_MAX + 1];
    let result = finish(pin!(whole(&channel, read(&long_key))));
    assert!(matches!(result, Err(RpcError::TooLarge { what: "key", .. })), "{result:?}");
    let long_value = vec![0; INLINE_VALUE_BYTES_MAX + 1];
    let result = finish(pin!(whole(&channel, write(b"k", &long_value))));
    assert!(matches!(result, Err(RpcError::NoStaging)), "{result:?}");
    if pair().request.is_lossy() {
        // One that no value can go ahead to is none for such requests.
        let staging = staging(&fixture, false);
        channel.set_staging(staging.client);
        let result = finish(pin!(whole(&channel, write(b"k", &long_value))));
        assert!(matches!(result, Err(RpcError::NoStaging)), "{result:?}");
    }
    assert_eq!(channel.counters().requests, 0);
}

const PLACE: usize = 1 << 20;

/// Both sides of a staging area of two places.
pub struct BothStagings {
    pub client: Staging<ShmNic>,
    pub region: <ShmNic as Nic>::Region,
    /// Where values that go ahead arrive.
    pub passive: Option<(<ShmNic as Nic>::CompletionQueue, <ShmNic as Nic>::QueuePair)>,
}

pub fn staging(fixture: &Fixture, ahead: bool) -> BothStagings {
    let Fixture { nic, client_link, server_link, hub, .. } = fixture;
    let region = nic.register(2 * PLACE, Access::RemoteWrite, PagePolicy::Base).unwrap();
    let remote = client_link.import(server_link.grant(&region).unwrap()).unwrap();
    let mut ahead = ahead.then(|| Ahead::new(hub, client_link).unwrap());
    let passive = ahead.as_mut().map(|ahead| {
        let queue = nic.create_completion_queue(16).unwrap();
        let config = QueuePairConfig { send_depth: 1, receive_depth: 1, ..QueuePairConfig::default() };
        let mut pair = nic.create_queue_pair(server_link, &config, &queue, &queue).unwrap();
        ahead.connect(pair.facts(server_link).unwrap()).unwrap();
        pair.connect(ahead.facts(client_link).unwrap()).unwrap();
        (queue, pair)
    });
    BothStagings { client: Staging::new(nic, remote, PLACE, ahead).unwrap(), region, passive }
}

/// The value of a request, copied out of the staging area.
fn staged_value(request: &Incoming, region: &<ShmNic as Nic>::Region) -> Vec<u8> {
    let staged = request.staged().expect("a staged value");
    assert!(request.value().is_empty());
    let mut arrived = vec![0; staged.bytes as usize];
    region.copy_out(staged.offset as usize, &mut arrived);
    // On this NIC what comes over the queue pair of the request needs none.
    let checksum = pair().request.is_lossy().then(|| checksum(&arrived));
    assert_eq!(staged.checksum, checksum);
    arrived
}

fn long_values_lie_in_the_staging_region_when_their_request_arrives() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(config(), SESSION);
    let BothStagings { client, region, passive: _passive } = staging(&fixture, pair().request.is_lossy());
    channel.set_staging(client);
    let value = |seed: usize, bytes: usize| (0..bytes).map(|at| (at * seed) as u8).collect::<Vec<u8>>();
    let (one, two, three) = (value(3, PLACE), value(5, INLINE_VALUE_BYTES_MAX + 1), value(7, 100_001));
    let mut first = pin!(whole(&channel, write(b"one", &one)));
    let mut second = Box::pin(whole(&channel, write(b"two", &two)));
    let mut third = pin!(whole(&channel, write(b"three", &three)));
    assert!(once(first.as_mut()).is_pending() && once(second.as_mut()).is_pending());
    // Both places are taken: the third has to wait, also when the second is dropped, until that is answered.
    pends(third.as_mut());
    drop(second);
    let mut requests = fixture.requests(2);
    pends(third.as_mut());
    for (request, value) in requests.drain(..).zip([&one, &two]) {
        assert!(staged_value(&request, &region) == *value, "the value of {:?}", request.key());
        fixture.echo(&request);
    }
    assert!(finish(first).is_ok());
    until(|| {
        assert!(once(third.as_mut()).is_pending());
        channel.counters().requests == 3
    });
    let requests = fixture.requests(1);
    assert!(staged_value(&requests[0], &region) == three);
    let too_long = vec![0; PLACE + 1];
    let result = finish(pin!(whole(&channel, write(b"k", &too_long))));
    assert!(matches!(result, Err(RpcError::TooLarge { what: "value", limit: PLACE, .. })), "{result:?}");
}

/// The queue pair for values takes none: the server is lost, in place of a request that names what never came.
fn a_request_whose_value_cannot_go_ahead_is_not_sent() {
    if !pair().request.is_lossy() {
        return;
    }
    let mut fixture = Fixture::new();
    let channel = fixture.channel(config(), SESSION);
    let BothStagings { region, .. } = staging(&fixture, false);
    let remote = fixture.client_link.import(fixture.server_link.grant(&region).unwrap()).unwrap();
    let unconnected = Ahead::new(&fixture.hub, &fixture.client_link).unwrap();
    channel.set_staging(Staging::new(&fixture.nic, remote, PLACE, Some(unconnected)).unwrap());
    let value = vec![7; 100_000];
    let result = finish(pin!(whole(&channel, write(b"key", &value))));
    assert!(matches!(result, Err(RpcError::ServerLost { .. })), "{result:?}");
    assert_eq!(channel.counters().requests, 0);
}

/// However often it is sent, and although its caller is gone: its place is nobody else's before it is answered.
fn a_repeated_request_finds_its_own_value() {
    if !pair().request.is_lossy() {
        return;
    }
    let mut fixture = Fixture::new();
    let channel = fixture.channel(config(), SESSION);
    let BothStagings { client, region, passive: _passive } = staging(&fixture, true);
    channel.set_staging(client);
    let values = [[1; 9000], [2; 9000], [3; 9000]];
    let mut first = Box::pin(whole(&channel, write(b"0", &values[0])));
    assert!(once(first.as_mut()).is_pending());
    drop(first);
    let mut second = pin!(whole(&channel, write(b"1", &values[1])));
    assert!(once(second.as_mut()).is_pending());
    let mut third = pin!(whole(&channel, write(b"2", &values[2])));
    // Polling repeats what is not answered.
    until(|| {
        assert!(once(second.as_mut()).is_pending() && once(third.as_mut()).is_pending());
        channel.counters().repeated >= 4
    });
    assert_eq!(channel.counters().requests, 2);
    let requests = fixture.requests(2);
    for (request, value) in requests.iter().zip(&values) {
        assert_eq!(staged_value(request, &region), value);
        fixture.echo(request);
    }
    assert!(finish(second).is_ok());
    until(|| {
        assert!(once(third.as_mut()).is_pending());
        channel.counters().requests == 3
    });
    let requests = fixture.requests(1);
    assert_eq!(staged_value(&requests[0], &region), values[2]);
}
