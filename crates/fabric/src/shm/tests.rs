//! What the conformance suite cannot see from outside: seals, signals, locks, death.

use super::*;
use crate::{
    Completion, CompletionQueue, Link, LocalSlice, Payload, QueuePair, Region, RemoteSlice, SendRequest,
    Status, Verb,
};

type Slice<'a> = LocalSlice<'a, ShmNic>;

struct End {
    queue: ShmCompletionQueue,
    pair: ShmQueuePair,
}

fn duo(nic: &ShmNic, near: &ShmLink, far: &ShmLink, config: &QueuePairConfig) -> (End, End) {
    let make = |link| {
        let queue = nic.create_completion_queue(1024).unwrap();
        let pair = nic.create_queue_pair(link, config, &queue, &queue).unwrap();
        End { queue, pair }
    };
    let (mut a, mut b) = (make(near), make(far));
    a.pair.connect(b.pair.facts(far).unwrap()).unwrap();
    b.pair.connect(a.pair.facts(near).unwrap()).unwrap();
    (a, b)
}

fn poll(end: &mut End) -> Option<Completion> {
    let mut completions = [Completion::EMPTY];
    (end.queue.poll(&mut completions) == 1).then_some(completions[0])
}

#[test]
fn a_read_and_an_echo() {
    let nic = ShmNic::open().unwrap();
    let (near, far) = nic.pair().unwrap();
    let (mut a, mut b) = duo(&nic, &near, &far, &QueuePairConfig::default());
    let theirs = nic.register(4096, Access::RemoteRead, PagePolicy::Base).unwrap();
    theirs.copy_in(100, b"hello over there");
    let ours = nic.register(4096, Access::Local, PagePolicy::Base).unwrap();
    let imported = near.import(far.grant(&theirs).unwrap()).unwrap();

    let read = |id| SendRequest {
        id,
        verb: Verb::Read {
            into: Slice { region: &ours, offset: 3, bytes: 16 },
            from: RemoteSlice { region: &imported, offset: 100 },
        },
        signaled: true,
    };
    a.pair.post_send(&read(7)).unwrap();
    let done = poll(&mut a).unwrap();
    assert_eq!((done.id, done.status), (7, Status::Success));
    let mut bytes = [0; 16];
    ours.copy_out(3, &mut bytes);
    assert_eq!(&bytes, b"hello over there");

    b.pair.post_receive(1, Slice { region: &ours, offset: 64, bytes: 64 }).unwrap();
    let verb = Verb::Send { payload: Payload::Inline(&[b"ab", b"cde"]), immediate: Some(9), to: None };
    a.pair.post_send(&SendRequest { id: 8, verb, signaled: true }).unwrap();
    assert_eq!(poll(&mut a), None);
    let received = poll(&mut b).unwrap();
    assert_eq!((received.bytes, received.immediate), (5, Some(9)));
    assert_eq!(poll(&mut a).unwrap().id, 8);

    theirs.revoke();
    a.pair.post_send(&read(10)).unwrap();
    assert_eq!(poll(&mut a).unwrap().status, Status::RemoteAccess);
}
