//! Which verb is legal on which transport (Mitchell Table 2.1, Kalia Table 1), and what is checked when posting: a
//! refused request leaves the queue pair as it was.

use crate::{
    Case,
    fixture::{
        Duo, End, Fixture, compare_swap, fetch_add, local, read, remote, slice, unsignaled, write,
        write_immediate,
    },
    list,
};
use locus_fabric::{
    Access, Atomicity, FabricError, Nic, Opcode, Payload, PostError, QueuePair, QueuePairConfig,
    QueuePairState, Region, SendRequest, Transport, Transport::*, Verb,
};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "rc::every_verb_is_legal" => every_verb_is_legal,
        "uc::write_and_send_are_legal" => write_and_send_are_legal,
        "uc::read_and_atomics_are_illegal" => |f| read_and_atomics_are_illegal(f, Uc),
        "ud::read_and_atomics_are_illegal" => |f| read_and_atomics_are_illegal(f, Ud),
        "ud::write_is_illegal" => write_is_illegal,
        "ud::send_needs_an_address" => send_needs_an_address,
        "rc::send_takes_no_address" => |f| send_takes_no_address(f, Rc),
        "uc::send_takes_no_address" => |f| send_takes_no_address(f, Uc),
        "rc::nothing_is_sent_before_connecting" => |f| nothing_is_sent_before_connecting(f, Rc),
        "uc::nothing_is_sent_before_connecting" => |f| nothing_is_sent_before_connecting(f, Uc),
        "rc::a_receive_may_be_posted_before_connecting" => |f| a_receive_may_be_posted_before_connecting(f, Rc),
        "uc::a_receive_may_be_posted_before_connecting" => |f| a_receive_may_be_posted_before_connecting(f, Uc),
        "rc::connects_once_and_has_no_addresses" => |f| connects_once_and_has_no_addresses(f, Rc),
        "uc::connects_once_and_has_no_addresses" => |f| connects_once_and_has_no_addresses(f, Uc),
        "ud::activates_and_does_not_connect" => activates_and_does_not_connect,
        "rc::does_not_connect_with_another_transport" => does_not_connect_with_another_transport,
        "rc::local_ranges_are_checked" => |f| local_ranges_are_checked(f, Rc),
        "uc::local_ranges_are_checked" => |f| local_ranges_are_checked(f, Uc),
        "ud::local_ranges_are_checked" => |f| local_ranges_are_checked(f, Ud),
        "rc::local_ranges_of_reads_and_atomics_are_checked" => local_ranges_of_reads_and_atomics_are_checked,
        "rc::a_transfer_over_the_limit_is_refused" => a_transfer_over_the_limit_is_refused,
        "rc::a_message_over_the_limit_is_refused" => |f| a_message_over_the_limit_is_refused(f, Rc),
        "uc::a_message_over_the_limit_is_refused" => |f| a_message_over_the_limit_is_refused(f, Uc),
        "ud::a_message_over_the_limit_is_refused" => |f| a_message_over_the_limit_is_refused(f, Ud),
        "limits::of_queue_pairs_are_checked" => limits_of_queue_pairs_are_checked,
        "limits::of_completion_queues_are_checked" => limits_of_completion_queues_are_checked,
        "limits::the_largest_queues_can_be_made" => the_largest_queues_can_be_made,
    ]
}

/// Asserts that a request is refused as illegal and that the queue pair works on as before.
pub fn is_illegal<N: Nic>(end: &mut End<N>, request: &SendRequest<'_, N>) {
    let refusal = end.refused(request);
    assert!(matches!(refusal, PostError::Illegal(_)), "{refusal:?}");
    assert_eq!(end.queue_pair.state(), QueuePairState::Ready);
}

fn every_verb_is_legal<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    duo.far.receive(100, &theirs, 0, 64);
    duo.far.receive(101, &theirs, 0, 64);
    let bytes: &[&[u8]] = &[b"inline"];
    duo.near.post(&read(1, local(&ours, 0, 8), remote(&shared, 0)));
    duo.near.post(&write(2, slice(&ours, 0, 8), remote(&shared, 8)));
    duo.near.post(&write(3, Payload::Inline(bytes), remote(&shared, 8)));
    duo.near.post(&write_immediate(4, slice(&ours, 0, 8), remote(&shared, 8), 5));
    duo.send(5, slice(&ours, 0, 8), Some(6));
    for (id, opcode) in
        [Opcode::Read, Opcode::Write, Opcode::Write, Opcode::Write, Opcode::Send].iter().enumerate()
    {
        duo.sent_well(id as u64 + 1, *opcode);
    }
    assert_eq!(duo.received().opcode, Opcode::ReceiveWrite);
    assert_eq!(duo.received().opcode, Opcode::Receive);
    let swap = compare_swap(6, local(&ours, 0, 8), remote(&shared, 0), 0, 1);
    let add = fetch_add(7, local(&ours, 0, 8), remote(&shared, 0), 1);
    if fixture.nic.properties().atomics == Atomicity::None {
        is_illegal(&mut duo.near, &swap);
        is_illegal(&mut duo.near, &add);
    } else {
        duo.near.post(&swap);
        duo.near.post(&add);
        duo.sent_well(6, Opcode::Atomic);
        duo.sent_well(7, Opcode::Atomic);
    }
    duo.is_well();
}

fn write_and_send_are_legal<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Uc);
    duo.far.receive(100, &theirs, 0, 64);
    duo.far.receive(101, &theirs, 0, 64);
    duo.near.post(&write(1, slice(&ours, 0, 8), remote(&shared, 8)));
    duo.near.post(&write(2, Payload::Inline(&[b"inline"]), remote(&shared, 8)));
    duo.near.post(&write_immediate(3, slice(&ours, 0, 8), remote(&shared, 8), 5));
    duo.send(4, slice(&ours, 0, 8), Some(6));
    for (id, opcode) in [Opcode::Write, Opcode::Write, Opcode::Write, Opcode::Send].iter().enumerate() {
        duo.sent_well(id as u64 + 1, *opcode);
    }
    assert_eq!(duo.received().opcode, Opcode::ReceiveWrite);
    assert_eq!(duo.received().opcode, Opcode::Receive);
    duo.is_well();
}

fn read_and_atomics_are_illegal<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(transport);
    is_illegal(&mut duo.near, &read(1, local(&ours, 0, 8), remote(&shared, 0)));
    is_illegal(&mut duo.near, &unsignaled(read(1, local(&ours, 0, 8), remote(&shared, 0))));
    is_illegal(&mut duo.near, &compare_swap(2, local(&ours, 0, 8), remote(&shared, 0), 0, 1));
    is_illegal(&mut duo.near, &fetch_add(3, local(&ours, 0, 8), remote(&shared, 0), 1));
    still_sends(&mut duo, &theirs);
}

fn write_is_illegal<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Ud);
    is_illegal(&mut duo.near, &write(1, slice(&ours, 0, 8), remote(&shared, 0)));
    is_illegal(&mut duo.near, &write(2, Payload::Inline(&[b"inline"]), remote(&shared, 0)));
    is_illegal(&mut duo.near, &write_immediate(3, slice(&ours, 0, 8), remote(&shared, 0), 1));
    still_sends(&mut duo, &theirs);
}

fn send_needs_an_address<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(Ud);
    let verb = Verb::Send { payload: Payload::Inline(&[b"to nobody"]), immediate: None, to: None };
    is_illegal(&mut duo.near, &SendRequest { id: 1, verb, signaled: true });
    still_sends(&mut duo, &region);
}

fn send_takes_no_address<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::Local);
    let datagrams = fixture.duo(Ud);
    let mut duo = fixture.duo(transport);
    let payload = Payload::Inline(&[b"to somebody"]);
    let verb = Verb::Send { payload, immediate: None, to: datagrams.address.as_ref() };
    is_illegal(&mut duo.near, &SendRequest { id: 1, verb, signaled: true });
    still_sends(&mut duo, &region);
}

/// Asserts that refused requests left no trace: the next message is the first that arrives.
fn still_sends<N: Nic>(duo: &mut Duo<N>, region: &N::Region) {
    duo.far.receive(7, region, 0, 256);
    duo.send_inline(8, b"the first");
    duo.sent_well(8, Opcode::Send);
    duo.received_well(7, 9, None);
    duo.is_well();
}

fn nothing_is_sent_before_connecting<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let mut end = End::new(&fixture.nic, &fixture.near, &fixture.config(transport));
    assert_eq!(end.queue_pair.state(), QueuePairState::Init);
    let verb = Verb::Send { payload: Payload::Inline(&[b"too early"]), immediate: None, to: None };
    assert_eq!(end.refused(&SendRequest { id: 1, verb, signaled: true }), PostError::NotReady);
    end.poll();
    assert!(end.is_quiet());
    assert_eq!(end.queue_pair.state(), QueuePairState::Init);
}

fn a_receive_may_be_posted_before_connecting<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::Local);
    let config = fixture.config(transport);
    let mut near = End::new(&fixture.nic, &fixture.near, &config);
    let mut far = End::new(&fixture.nic, &fixture.far, &config);
    far.receive(1, &region, 0, 64);
    let (near_facts, far_facts) =
        (near.queue_pair.facts(&near.link).unwrap(), far.queue_pair.facts(&far.link).unwrap());
    far.queue_pair.connect(near_facts).unwrap();
    near.queue_pair.connect(far_facts).unwrap();
    let mut duo = Duo { near, far, address: None };
    duo.send_inline(2, b"early bird");
    duo.sent_well(2, Opcode::Send);
    duo.received_well(1, 10, None);
}

fn connects_once_and_has_no_addresses<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(transport);
    let other = End::new(&fixture.nic, &fixture.far, &fixture.config(transport));
    assert!(duo.near.queue_pair.activate().is_err());
    let facts = other.queue_pair.facts(&fixture.far).unwrap();
    assert!(duo.near.queue_pair.connect(facts).is_err());
    let facts = other.queue_pair.facts(&fixture.far).unwrap();
    assert!(duo.near.queue_pair.address(&fixture.near, facts).is_err());
    still_sends(&mut duo, &region);
}

fn activates_and_does_not_connect<N: Nic>(fixture: &mut Fixture<N>) {
    let config = fixture.config(Ud);
    let mut end = End::new(&fixture.nic, &fixture.near, &config);
    let other = End::new(&fixture.nic, &fixture.far, &config);
    assert_eq!(end.queue_pair.state(), QueuePairState::Init);
    assert!(end.queue_pair.connect(other.queue_pair.facts(&fixture.far).unwrap()).is_err());
    end.queue_pair.activate().expect("a UD queue pair becomes ready alone");
    assert_eq!(end.queue_pair.state(), QueuePairState::Ready);
    assert!(end.queue_pair.connect(other.queue_pair.facts(&fixture.far).unwrap()).is_err());
}

fn does_not_connect_with_another_transport<N: Nic>(fixture: &mut Fixture<N>) {
    for theirs in [Uc, Ud] {
        let mut end = End::new(&fixture.nic, &fixture.near, &fixture.config(Rc));
        let other = End::new(&fixture.nic, &fixture.far, &fixture.config(theirs));
        assert!(end.queue_pair.connect(other.queue_pair.facts(&fixture.far).unwrap()).is_err(), "{theirs:?}");
        assert_ne!(end.queue_pair.state(), QueuePairState::Ready);
    }
}

/// Offset and length of ranges that are outside a region of `bytes`, some of them so that their end overflows.
fn outside(bytes: usize) -> [(usize, usize); 7] {
    [
        (0, bytes + 1),
        (1, bytes),
        (bytes - 7, 8),
        (bytes, 1),
        (bytes + 8, 8),
        (usize::MAX - 7, 8),
        (usize::MAX, 1),
    ]
}

fn local_ranges_are_checked<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let (ours, theirs) = (fixture.region(256, Access::Local), fixture.region(1 << 20, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut config = fixture.config(transport);
    // One page is a message on every NIC but the smallest UD ones.
    config.message_bytes = config.message_bytes.min(fixture.nic.properties().datagram_bytes_max);
    let mut duo = fixture.duo_with(&config);
    for (offset, bytes) in outside(ours.bytes()) {
        let refusal =
            duo.try_send(1, slice(&ours, offset, bytes), None).expect_err("a range outside is refused");
        let too_long = bytes > fixture.nic.properties().datagram_bytes_max;
        let expected = |refusal| match refusal {
            PostError::LocalRange => true,
            PostError::TooLong(asked, _) => too_long && asked == bytes,
            _ => false,
        };
        assert!(expected(refusal), "SEND {offset} {bytes}: {refusal:?}");
        if transport != Ud {
            let refusal = duo.near.refused(&write(2, slice(&ours, offset, bytes), remote(&shared, 0)));
            assert_eq!(refusal, PostError::LocalRange, "WRITE {offset} {bytes}");
        }
        assert_eq!(duo.far.receive_refused(3, &ours, offset, bytes), PostError::LocalRange);
    }
    still_sends(&mut duo, &theirs);
}

fn local_ranges_of_reads_and_atomics_are_checked<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(256, Access::Local), fixture.region(1 << 20, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    for (offset, bytes) in outside(ours.bytes()) {
        let refusal = duo.near.refused(&read(1, local(&ours, offset, bytes), remote(&shared, 0)));
        assert_eq!(refusal, PostError::LocalRange, "READ {offset} {bytes}");
    }
    let beyond = ours.bytes();
    let swap = compare_swap(2, local(&ours, beyond, 8), remote(&shared, 0), 0, 1);
    let add = fetch_add(3, local(&ours, usize::MAX - 7, 8), remote(&shared, 0), 1);
    if fixture.nic.properties().atomics == Atomicity::None {
        is_illegal(&mut duo.near, &swap);
        is_illegal(&mut duo.near, &add);
    } else {
        assert_eq!(duo.near.refused(&swap), PostError::LocalRange);
        assert_eq!(duo.near.refused(&add), PostError::LocalRange);
    }
    assert_eq!(theirs.words()[0].load(std::sync::atomic::Ordering::Relaxed), 0);
    still_sends(&mut duo, &theirs);
}

fn a_transfer_over_the_limit_is_refused<N: Nic>(fixture: &mut Fixture<N>) {
    let limit = fixture.nic.properties().transfer_bytes_max;
    let theirs = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    // Where a transfer of that size would need more memory than any machine spares, its range is outside as well.
    let affordable = limit < 64 << 20;
    let ours = fixture.region(if affordable { limit + 1 } else { 4096 }, Access::Local);
    let refusals = [
        duo.near.refused(&read(1, local(&ours, 0, limit + 1), remote(&shared, 0))),
        duo.near.refused(&write(2, slice(&ours, 0, limit + 1), remote(&shared, 0))),
    ];
    for refusal in refusals {
        let too_long = refusal == PostError::TooLong(limit + 1, limit);
        assert!(too_long || (!affordable && refusal == PostError::LocalRange), "{refusal:?}");
    }
    still_sends(&mut duo, &theirs);
}

fn a_message_over_the_limit_is_refused<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let properties = fixture.nic.properties();
    let limit = if transport == Ud { properties.datagram_bytes_max } else { properties.message_bytes_max };
    let ours = fixture.region(limit + 1, Access::Local);
    let mut duo = fixture.duo_with(&QueuePairConfig { message_bytes: limit, ..fixture.config(transport) });
    let refusal =
        duo.try_send(1, slice(&ours, 0, limit + 1), None).expect_err("a message over the limit is refused");
    assert_eq!(refusal, PostError::TooLong(limit + 1, limit));
    still_sends(&mut duo, &ours);
}

fn limits_of_queue_pairs_are_checked<N: Nic>(fixture: &mut Fixture<N>) {
    let properties = fixture.nic.properties().clone();
    let config = fixture.config(Rc);
    let queue = fixture.nic.create_completion_queue(16).unwrap();
    let refused = |config: QueuePairConfig, over: usize| {
        let made = fixture.nic.create_queue_pair(&fixture.near, &config, &queue, &queue);
        match made.err() {
            Some(FabricError::Limit { asked, limit, .. }) => {
                assert_eq!((asked, limit), (over, over - 1), "{config:?}")
            }
            other => panic!("{config:?} gave {other:?}"),
        }
    };
    let over = properties.queue_depth_max + 1;
    refused(QueuePairConfig { send_depth: over, ..config.clone() }, over);
    refused(QueuePairConfig { receive_depth: over, ..config.clone() }, over);
    let over = properties.inline_bytes_max + 1;
    refused(QueuePairConfig { inline_bytes: over, ..config.clone() }, over);
    let over = properties.reads_outstanding_max + 1;
    refused(QueuePairConfig { reads_outstanding: over, ..config.clone() }, over);
    let over = properties.message_bytes_max + 1;
    refused(QueuePairConfig { message_bytes: over, ..config.clone() }, over);
    assert!(fixture.nic.create_queue_pair(&fixture.near, &config, &queue, &queue).is_ok());
}

fn limits_of_completion_queues_are_checked<N: Nic>(fixture: &mut Fixture<N>) {
    let over = fixture.nic.properties().completions_max + 1;
    match fixture.nic.create_completion_queue(over).err() {
        Some(FabricError::Limit { asked, limit, .. }) => assert_eq!((asked, limit), (over, over - 1)),
        other => panic!("a completion queue of {over} gave {other:?}"),
    }
    assert!(fixture.nic.create_completion_queue(0).is_err(), "a completion queue without room");
}

fn the_largest_queues_can_be_made<N: Nic>(fixture: &mut Fixture<N>) {
    let properties = fixture.nic.properties().clone();
    let region = fixture.region(4096, Access::Local);
    let queue = fixture.nic.create_completion_queue(properties.completions_max);
    assert!(queue.is_ok(), "a completion queue as deep as declared");
    let config = QueuePairConfig {
        send_depth: properties.queue_depth_max,
        receive_depth: properties.queue_depth_max,
        inline_bytes: properties.inline_bytes_max,
        reads_outstanding: properties.reads_outstanding_max,
        ..fixture.config(Rc)
    };
    let mut duo = fixture.duo_with(&config);
    still_sends(&mut duo, &region);
}
