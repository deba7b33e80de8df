//! Bare echoes: every message is answered, whatever its length and however many are under way.

use crate::{
    Case,
    fixture::{Fixture, PATIENCE, wait},
    list,
};
use locus_fabric::{
    Access, CompletionQueue, FabricError, Link, Nic, PagePolicy, Payload, QueuePair, QueuePairConfig,
    RemoteSlice, SendRequest, Verb,
    echo::{ECHO_BYTES_MAX, ECHO_WINDOW, EchoClient, EchoEnd, EchoServer, EchoVerb},
};
use locus_runtime::{Idle, IdlePolicy, Rest};
use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "echo::sends_are_answered" => |f| are_answered(f, EchoVerb::Send),
        "echo::writes_are_answered" => |f| are_answered(f, EchoVerb::Write),
        "echo::calls_that_are_given_up_leave_room" => given_up,
        "echo::a_message_of_another_kind_ends_an_echo_of_sends" => a_strange_send,
        "echo::garbage_is_no_message_of_an_echo_of_writes" => garbage,
        "echo::a_client_that_takes_no_answers_lets_the_server_sleep" => takes_no_answers,
        "echo::a_call_ends_when_the_peer_is_gone" => |f| {
            ends_with_the_peer(f, EchoVerb::Send);
            ends_with_the_peer(&mut f.another(), EchoVerb::Write);
        },
    ]
}

fn end<N: Nic>(fixture: &Fixture<N>, link: &N::Link, verb: EchoVerb) -> EchoEnd<N> {
    let queue = fixture.nic.create_completion_queue(EchoEnd::<N>::COMPLETIONS).unwrap();
    EchoEnd::new(&fixture.nic, link, queue, verb).unwrap()
}

fn ends<N: Nic>(fixture: &Fixture<N>, verb: EchoVerb) -> (EchoClient<N>, EchoServer<N>) {
    let (mut near, mut far) = (end(fixture, &fixture.near, verb), end(fixture, &fixture.far, verb));
    let (near_facts, far_facts) = (near.facts().unwrap(), far.facts().unwrap());
    far.connect(near_facts).unwrap();
    near.connect(far_facts).unwrap();
    (EchoClient::new(near), EchoServer::new(far))
}

type Call<'a> = Pin<Box<dyn Future<Output = Result<(), FabricError>> + 'a>>;

fn once(call: &mut Call<'_>) -> Option<Result<(), FabricError>> {
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

fn are_answered<N: Nic>(fixture: &mut Fixture<N>, verb: EchoVerb) {
    let (client, mut server) = ends(fixture, verb);
    let sizes = [0, 16, 17, 64, 256, 257, 1000, ECHO_BYTES_MAX, ECHO_BYTES_MAX + 1];
    let (mut asked, mut answered) = (0, 0);
    // More calls than may be under way: some wait.
    for window in [1, 7, ECHO_WINDOW, ECHO_WINDOW + 5] {
        let size = |number: usize| sizes[number % sizes.len()];
        let mut calls: Vec<Call<'_>> = (0..3 * window)
            .map(|number| Box::pin(client.call(size(number), size(number / 3))) as Call<'_>)
            .collect();
        asked += calls.len();
        wait("every call to be answered", || {
            // Only the first `window` are polled, and those that are done make room for others.
            let mut place = 0;
            while place < calls.len().min(window) {
                match once(&mut calls[place]) {
                    Some(done) => {
                        done.unwrap();
                        drop(calls.remove(place));
                    }
                    None => place += 1,
                }
            }
            answered += server.turn().unwrap() as usize;
            calls.is_empty().then_some(())
        });
        assert_eq!(answered, asked);
    }
}

fn given_up<N: Nic>(fixture: &mut Fixture<N>) {
    let (client, mut server) = ends(fixture, EchoVerb::Send);
    for _ in 0..3 * ECHO_WINDOW {
        let mut call: Call<'_> = Box::pin(client.call(64, 64));
        assert!(once(&mut call).is_none());
        drop(call);
        server.turn().unwrap();
    }
    let mut call: Call<'_> = Box::pin(client.call(64, 64));
    wait("the last call", || {
        server.turn().unwrap();
        once(&mut call)
    })
    .unwrap();
}

fn a_strange_send<N: Nic>(fixture: &mut Fixture<N>) {
    let mut far = end(fixture, &fixture.far, EchoVerb::Send);
    let queue = fixture.nic.create_completion_queue(4).unwrap();
    let config =
        QueuePairConfig { send_depth: 2, receive_depth: 2, ..fixture.config(locus_fabric::Transport::Rc) };
    let mut pair = fixture.nic.create_queue_pair(&fixture.near, &config, &queue, &queue).unwrap();
    let theirs = far.facts().unwrap();
    far.connect(vec![pair.facts(&fixture.near).unwrap()]).unwrap();
    pair.connect(theirs.into_iter().next().unwrap()).unwrap();
    let verb = Verb::Send { payload: Payload::Inline(&[&[0xFF; 24]]), immediate: None, to: None };
    pair.post_send(&SendRequest { id: 1, verb, signaled: true }).unwrap();
    pair.ring().unwrap();
    let mut server = EchoServer::new(far);
    wait("the echo to end", || server.turn().err());
}

/// Its answers find no RECV, so that the server's send queue fills up while further messages wait.
fn takes_no_answers<N: Nic>(fixture: &mut Fixture<N>) {
    let mut far = end(fixture, &fixture.far, EchoVerb::Send);
    let mut queue = fixture.nic.create_completion_queue(512).unwrap();
    let config =
        QueuePairConfig { send_depth: 256, receive_depth: 1, ..fixture.config(locus_fabric::Transport::Rc) };
    let mut pair = fixture.nic.create_queue_pair(&fixture.near, &config, &queue, &queue).unwrap();
    let theirs = far.facts().unwrap();
    far.connect(vec![pair.facts(&fixture.near).unwrap()]).unwrap();
    pair.connect(theirs.into_iter().next().unwrap()).unwrap();
    let mut server = EchoServer::new(far);
    for number in 1..=200u64 {
        let (first, last) = ((number | 16 << 32 | 16 << 48).to_le_bytes(), number.to_le_bytes());
        let verb = Verb::Send { payload: Payload::Inline(&[&first, &last]), immediate: None, to: None };
        pair.post_send(&SendRequest { id: number, verb, signaled: false }).unwrap();
    }
    pair.ring().unwrap();
    // The first answers are under way, and RECVs that were posted again take more messages than can be answered.
    let mut answered = 0;
    wait("the server's send queue to fill up", || {
        let now = server.turn().unwrap();
        answered += now;
        queue.poll(&mut [locus_fabric::Completion::EMPTY; 16]);
        (now == 0 && answered >= 2 * ECHO_WINDOW as u32).then_some(())
    });
    assert_eq!(answered, 2 * ECHO_WINDOW as u32);
    let policy = IdlePolicy { spins: 0, yields: 0, tick: Duration::from_millis(1) };
    let mut idle = Idle::new(policy);
    wait("the server to sleep, again and again", || {
        let mut rests = (0..100).map(|_| {
            assert_eq!(server.turn().unwrap(), 0);
            idle.step(server.queue())
        });
        rests.all(|rest| rest == Rest::Slept).then_some(())
    });
}

fn garbage<N: Nic>(fixture: &mut Fixture<N>) {
    let mut far = end(fixture, &fixture.far, EchoVerb::Write);
    let queue = fixture.nic.create_completion_queue(4).unwrap();
    let config = fixture.config(locus_fabric::Transport::Rc);
    let mut pair = fixture.nic.create_queue_pair(&fixture.near, &config, &queue, &queue).unwrap();
    let region = fixture.nic.register(4096, Access::RemoteWrite, PagePolicy::Base).unwrap();
    let mut theirs = far.facts().unwrap().into_iter();
    far.connect(vec![pair.facts(&fixture.near).unwrap(), fixture.near.grant(&region).unwrap()]).unwrap();
    pair.connect(theirs.next().unwrap()).unwrap();
    let remote = fixture.near.import(theirs.next().unwrap()).unwrap();
    let mut server = EchoServer::new(far);
    // Number 1 with lengths that no message has: longer than a slot, no whole words, none.
    for (bytes, reply_bytes) in [(0xFFF8u64, 16u64), (16, 0xFFF8), (17, 16), (0, 0)] {
        let word = (1 | bytes << 32 | reply_bytes << 48).to_le_bytes();
        let to = RemoteSlice { region: &remote, offset: ECHO_BYTES_MAX };
        let verb = Verb::Write { payload: Payload::Inline(&[&word]), to, immediate: None };
        pair.post_send(&SendRequest { id: 1, verb, signaled: false }).unwrap();
        pair.ring().unwrap();
        for _ in 0..1000 {
            assert_eq!(server.turn().unwrap(), 0);
        }
    }
}

fn ends_with_the_peer<N: Nic>(fixture: &mut Fixture<N>, verb: EchoVerb) {
    let (client, server) = ends(fixture, verb);
    let mut call: Call<'_> = Box::pin(client.call(64, 64));
    assert!(once(&mut call).is_none());
    drop(server);
    fixture.far.close();
    assert!(fixture.near.receive(PATIENCE).is_err(), "the link is closed");
    wait("the call to end", || {
        fixture.near.check();
        once(&mut call).map(|ended| ended.expect_err("nobody answered"))
    });
}
