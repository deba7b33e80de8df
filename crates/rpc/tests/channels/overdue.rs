//! Servers that are there and do not answer: calls end when they have waited as long as they may, and what comes of them after
//! that harms no other.

use crate::{
    calls::{BothStagings, staging},
    fixture::{Fixture, SESSION, config, once, pair, pends, read, whole, write},
};
use locus_rpc::{Batch, ChannelConfig, RpcError};
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
    time::{Duration, Instant},
};

on_every_pair! {
    a_call_without_an_answer_ends_and_its_slot_waits_for_the_answer,
    a_call_that_cannot_be_sent_ends,
    a_client_that_was_held_up_waits_on,
}

const TIMEOUT: Duration = Duration::from_millis(20);

fn impatient(window: usize) -> ChannelConfig {
    ChannelConfig { window, timeout: TIMEOUT, ..config() }
}

/// Polls a future until it is done, however often.
fn ends<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    let begun = Instant::now();
    loop {
        if let Poll::Ready(output) = once(future.as_mut()) {
            return output;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the call does not end");
    }
}

/// The same with a server that answers, also what is sent again since the answer was lost.
fn served<F: Future>(fixture: &mut Fixture, mut future: Pin<&mut F>) -> F::Output {
    let mut requests = Batch::new();
    ends(pin!(poll_fn(|context| {
        fixture.server.poll(&mut requests);
        requests.drain().for_each(|request| fixture.echo(&request));
        future.as_mut().poll(context)
    })))
}

/// How a call ends, which must be for want of an answer: whether it may change something yet.
#[track_caller]
fn overdue<T: std::fmt::Debug>(result: Result<T, RpcError>) -> bool {
    match result {
        Err(RpcError::Unanswered { limit: TIMEOUT, change_pending, .. }) => change_pending,
        other => panic!("{other:?}"),
    }
}

fn a_call_without_an_answer_ends_and_its_slot_waits_for_the_answer() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(impatient(1), SESSION);
    let begun = Instant::now();
    let mut change = pin!(whole(&channel, write(b"key", b"value")));
    assert!(once(change.as_mut()).is_pending());
    let request = fixture.request_of(b"key");
    assert!(overdue(ends(change)), "the change was sent");
    assert!(begun.elapsed() >= TIMEOUT);
    // There is no other slot: those who wait for it have their limit too.
    assert!(!overdue(ends(pin!(whole(&channel, write(b"another", b"value"))))), "it was never sent");
    assert!(channel.lost().is_none(), "the connection stays");
    fixture.echo(&request);
    // The late reply frees the slot, and the next call gets it.
    let next = served(&mut fixture, pin!(whole(&channel, read(b"next"))));
    assert!(next.is_ok(), "{next:?}");
    assert_eq!(channel.counters().unclaimed_replies, 1);
}

fn a_call_that_cannot_be_sent_ends() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(impatient(3), SESSION);
    let BothStagings { client, region: _region, passive: _passive } =
        staging(&fixture, pair().request.is_lossy());
    channel.set_staging(client);
    let value = vec![7; 100_000];
    let mut first = pin!(whole(&channel, write(b"first", &value)));
    let mut second = pin!(whole(&channel, write(b"second", &value)));
    let mut third = pin!(whole(&channel, write(b"third", &value)));
    // Both places of the staging area are taken until the first is answered.
    assert!(once(first.as_mut()).is_pending() && once(second.as_mut()).is_pending());
    pends(third.as_mut());
    assert_eq!(channel.counters().requests, 2);
    assert!(!overdue(ends(third)), "it was never sent");
    assert!(overdue(ends(first)) && overdue(ends(second)));
    assert_eq!(channel.counters().requests, 2);
}

/// It cannot tell how long the server had.
fn a_client_that_was_held_up_waits_on() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(impatient(2), SESSION);
    let mut call = pin!(whole(&channel, read(b"key")));
    pends(call.as_mut());
    // The length of this pause is what the test is about: nobody polls meanwhile, for longer than a call may wait.
    std::thread::sleep(3 * TIMEOUT);
    pends(call.as_mut());
    let request = fixture.request_of(b"key");
    fixture.echo(&request);
    assert!(ends(call).is_ok());
}
