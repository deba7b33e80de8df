//! Lost connections and servers: what is sent again, what is executed again, and what the caller is told.

use crate::fixture::{
    Fixture, INCARNATION, SESSION, WINDOW, config, finish, once, pends, read, server_config, until, whole,
    write,
};
use locus_fabric::Link;
use locus_rpc::{Batch, ChannelConfig, Loss, RpcError, Server, ServerConfig, SessionLimits};
use std::pin::pin;

on_every_pair! {
    a_mutation_whose_reply_was_lost_is_answered_and_not_executed_again,
    a_mutation_under_way_is_answered_over_the_new_connection,
    a_mutation_that_ends_while_its_client_is_away_is_remembered,
    a_request_that_never_arrived_is_sent_again_and_executed,
    another_server_makes_sent_mutations_unknown_and_reads_new,
    a_session_that_was_forgotten_makes_sent_mutations_unknown,
    when_the_server_is_lost_calls_end_and_say_what_is_known,
    held_calls_wait_until_the_channel_is_closed,
    abandoned_calls_do_not_come_back_after_a_reconnect,
    completions_of_a_connection_that_is_gone_are_ignored,
    requests_of_a_channel_that_is_gone_are_ignored,
}

fn holding() -> ChannelConfig {
    ChannelConfig { hold_calls: true, ..config() }
}

fn a_mutation_whose_reply_was_lost_is_answered_and_not_executed_again() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(holding(), SESSION);
    let mut call = pin!(whole(&channel, write(b"key", b"value")));
    assert!(once(call.as_mut()).is_pending());
    let requests = fixture.requests(1);
    // Executed and answered, but the connection is replaced before the client looks.
    fixture.echo(&requests[0]);
    assert!(fixture.reconnect(&channel, SESSION));
    pends(call.as_mut());
    fixture.poll_until(|counters| counters.duplicates > 0);
    // The status and version as they were; the value is not remembered.
    assert_eq!(finish(call).unwrap(), (2, 9, Vec::new()));
    assert_eq!(fixture.server.counters().requests, 1);
    assert_eq!(channel.counters().resent, 1);
}

fn a_mutation_under_way_is_answered_over_the_new_connection() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(holding(), SESSION);
    let mut call = pin!(whole(&channel, write(b"key", b"value")));
    assert!(once(call.as_mut()).is_pending());
    let requests = fixture.requests(1);
    assert!(fixture.reconnect(&channel, SESSION));
    pends(call.as_mut());
    fixture.poll_until(|counters| counters.duplicates_under_way > 0);
    fixture.echo(&requests[0]);
    assert_eq!(finish(call).unwrap().0, 2);
}

fn a_mutation_that_ends_while_its_client_is_away_is_remembered() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(holding(), SESSION);
    let mut call = pin!(whole(&channel, write(b"key", b"value")));
    assert!(once(call.as_mut()).is_pending());
    let requests = fixture.requests(1);
    fixture.server.end(requests[0].channel(), Loss::PeerGone);
    fixture.echo(&requests[0]);
    assert_eq!(fixture.server.counters().undelivered, 1);
    assert!(fixture.reconnect(&channel, SESSION));
    pends(call.as_mut());
    fixture.poll_until(|counters| counters.duplicates > 0);
    assert_eq!(finish(call).unwrap().0, 2);
}

fn a_request_that_never_arrived_is_sent_again_and_executed() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(holding(), SESSION);
    let mut sent = pin!(whole(&channel, write(b"sent", b"value")));
    assert!(once(sent.as_mut()).is_pending());
    // The server never polled; what it had received goes with its queue pair.
    assert!(fixture.reconnect(&channel, SESSION));
    let mut unsent = pin!(whole(&channel, read(b"unsent")));
    assert!(once(sent.as_mut()).is_pending() && once(unsent.as_mut()).is_pending());
    let requests = fixture.requests(2);
    requests.iter().for_each(|request| fixture.echo(request));
    assert_eq!(finish(sent).unwrap().0, 2);
    assert_eq!(finish(unsent).unwrap().0, 1);
}

fn another_server_makes_sent_mutations_unknown_and_reads_new() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(holding(), SESSION);
    let mut mutation = pin!(whole(&channel, write(b"key", b"value")));
    let mut reading = pin!(whole(&channel, read(b"key")));
    assert!(once(mutation.as_mut()).is_pending() && once(reading.as_mut()).is_pending());
    let config = server_config();
    fixture.server = Server::new(&fixture.nic, INCARNATION + 1, config).unwrap();
    assert!(!fixture.reconnect(&channel, SESSION));
    // A mutation that was never sent is sent to the new server.
    let mut unsent = pin!(whole(&channel, write(b"unsent", b"value")));
    assert!(once(unsent.as_mut()).is_pending());
    let result = finish(mutation);
    assert!(matches!(result, Err(RpcError::OutcomeUnknown)), "{result:?}");
    assert!(once(reading.as_mut()).is_pending());
    let requests = fixture.requests(2);
    requests.iter().for_each(|request| fixture.echo(request));
    assert!(finish(reading).is_ok() && finish(unsent).is_ok());
}

fn a_session_that_was_forgotten_makes_sent_mutations_unknown() {
    let sessions = SessionLimits { kept_ns: 1_000, ..SessionLimits::default() };
    let mut fixture = Fixture::with(ServerConfig { sessions, ..server_config() });
    let channel = fixture.channel(holding(), SESSION);
    let mut mutation = pin!(whole(&channel, write(b"key", b"value")));
    assert!(once(mutation.as_mut()).is_pending());
    let requests = fixture.requests(1);
    fixture.server.housekeep(500);
    fixture.server.end(requests[0].channel(), Loss::PeerGone);
    fixture.server.housekeep(1_499);
    assert_eq!(fixture.server.sessions_kept(), 1);
    fixture.server.housekeep(1_500);
    assert_eq!((fixture.server.sessions_kept(), fixture.server.counters().forgotten), (0, 1));
    assert!(!fixture.reconnect(&channel, SESSION));
    let result = finish(mutation);
    assert!(matches!(result, Err(RpcError::OutcomeUnknown)), "{result:?}");
}

fn when_the_server_is_lost_calls_end_and_say_what_is_known() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(config(), SESSION);
    let mut mutation = pin!(whole(&channel, write(b"key", b"value")));
    let mut reading = pin!(whole(&channel, read(b"key")));
    assert!(once(mutation.as_mut()).is_pending() && once(reading.as_mut()).is_pending());
    fixture.server_link.close();
    let result = finish(mutation);
    assert!(matches!(result, Err(RpcError::OutcomeUnknown)), "{result:?}");
    let result = finish(reading);
    assert!(matches!(result, Err(RpcError::ServerLost { .. })), "{result:?}");
    let result = finish(pin!(whole(&channel, write(b"later", b"value"))));
    assert!(matches!(result, Err(RpcError::ServerLost { .. })), "{result:?}");
    assert!(channel.lost().is_some());
    // And goes on when it is connected again.
    fixture.reconnect(&channel, SESSION);
    let mut again = pin!(whole(&channel, read(b"again")));
    assert!(once(again.as_mut()).is_pending());
    let requests = fixture.requests(1);
    fixture.echo(&requests[0]);
    assert!(finish(again).is_ok());
}

fn held_calls_wait_until_the_channel_is_closed() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(holding(), SESSION);
    let mut mutation = pin!(whole(&channel, write(b"key", b"value")));
    let mut reading = pin!(whole(&channel, read(b"key")));
    assert!(once(mutation.as_mut()).is_pending() && once(reading.as_mut()).is_pending());
    fixture.server_link.close();
    until(|| {
        channel.poll();
        channel.lost().is_some()
    });
    pends(mutation.as_mut());
    pends(reading.as_mut());
    channel.close();
    let result = finish(mutation);
    assert!(matches!(result, Err(RpcError::OutcomeUnknown)), "{result:?}");
    let result = finish(reading);
    assert!(matches!(result, Err(RpcError::ServerLost { .. })), "{result:?}");
}

fn abandoned_calls_do_not_come_back_after_a_reconnect() {
    let mut fixture = Fixture::new();
    let channel = fixture.channel(holding(), SESSION);
    for _ in 0..3 * WINDOW {
        let mut call = Box::pin(whole(&channel, write(b"dropped", b"value")));
        assert!(once(call.as_mut()).is_pending());
        drop(call);
        assert!(fixture.reconnect(&channel, SESSION));
    }
    let mut call = pin!(whole(&channel, write(b"kept", b"value")));
    assert!(once(call.as_mut()).is_pending());
    let requests = fixture.requests(1);
    assert_eq!(requests[0].key(), b"kept");
    fixture.echo(&requests[0]);
    assert!(finish(call).is_ok());
}

/// A reply to the connection before lies in the channel's mailbox when that is replaced: it must not be taken for a
/// completion of the new queue pair.
fn completions_of_a_connection_that_is_gone_are_ignored() {
    let mut fixture = Fixture::new();
    let (one, two) = (fixture.channel(holding(), 1), fixture.channel(holding(), 2));
    let mut first = pin!(whole(&one, write(b"k", b"first")));
    assert!(once(first.as_mut()).is_pending());
    let requests = fixture.requests(1);
    fixture.echo(&requests[0]);
    // The second channel's poll takes the completion from the queue.
    assert!(!two.poll());
    fixture.reconnect(&one, 1);
    assert!(once(first.as_mut()).is_pending());
    assert_eq!(one.counters().replies, 0);
    assert_eq!(one.lost(), None);
    fixture.poll_until(|counters| counters.duplicates > 0);
    assert_eq!(finish(first).unwrap().0, 2);
}

/// Requests of a channel that is gone are still in the completion queue when another takes its place.
fn requests_of_a_channel_that_is_gone_are_ignored() {
    let mut fixture = Fixture::new();
    let one = fixture.channel(ChannelConfig { window: 64, ..holding() }, 1);
    let mut calls: Vec<_> = (0..64).map(|_| Box::pin(whole(&one, write(b"old", b"value")))).collect();
    for call in &mut calls {
        assert!(once(call.as_mut()).is_pending());
    }
    // One poll takes no more than a batch; the others wait in the queue.
    let mut requests = Batch::new();
    fixture.server.poll(&mut requests);
    assert_eq!(requests.len(), locus_rpc::BATCH_MAX);
    fixture.server.end(requests[0].channel(), Loss::PeerGone);
    let two = fixture.channel(config(), 2);
    let mut call = pin!(whole(&two, write(b"new", b"value")));
    assert!(once(call.as_mut()).is_pending());
    let requests = fixture.requests(1);
    assert_eq!(requests[0].key(), b"new");
    fixture.echo(&requests[0]);
    assert!(finish(call).is_ok());
}
