//! SEND and RECV, and WRITE with immediate: what arrives, where, in which order, and what its completion says.

use crate::{
    Case,
    fixture::{
        Fixture, Random, bytes_of, local, pattern, read, remote, slice, unsignaled, wait, write,
        write_immediate,
    },
    list,
};
use locus_fabric::{
    Access, Completion, Nic, Opcode, Payload, QueuePair, QueuePairConfig, QueuePairState, Region,
    SendRequest, Status, Transport, Transport::*, Verb,
};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "rc::send_delivers_any_size" => |f| send_delivers_any_size(f, Rc),
        "uc::send_delivers_any_size" => |f| send_delivers_any_size(f, Uc),
        "ud::send_delivers_any_size" => |f| send_delivers_any_size(f, Ud),
        "rc::send_delivers_the_largest_message" => |f| send_delivers_the_largest_message(f, Rc),
        "uc::send_delivers_the_largest_message" => |f| send_delivers_the_largest_message(f, Uc),
        "ud::send_delivers_the_largest_message" => |f| send_delivers_the_largest_message(f, Ud),
        "rc::send_carries_an_immediate" => |f| send_carries_an_immediate(f, Rc),
        "uc::send_carries_an_immediate" => |f| send_carries_an_immediate(f, Uc),
        "ud::send_carries_an_immediate" => |f| send_carries_an_immediate(f, Ud),
        "rc::receives_are_consumed_in_order" => |f| receives_are_consumed_in_order(f, Rc),
        "uc::receives_are_consumed_in_order" => |f| receives_are_consumed_in_order(f, Uc),
        "ud::receives_are_consumed_in_order" => |f| receives_are_consumed_in_order(f, Ud),
        "rc::a_long_stream_arrives_whole" => |f| a_long_stream_arrives_whole(f, Rc),
        "uc::a_long_stream_arrives_whole" => |f| a_long_stream_arrives_whole(f, Uc),
        "ud::a_long_stream_arrives_whole" => |f| a_long_stream_arrives_whole(f, Ud),
        "rc::write_with_immediate_consumes_a_receive" => |f| write_with_immediate_consumes_a_receive(f, Rc),
        "uc::write_with_immediate_consumes_a_receive" => |f| write_with_immediate_consumes_a_receive(f, Uc),
        "rc::write_without_immediate_consumes_none" => |f| write_without_immediate_consumes_none(f, Rc),
        "uc::write_without_immediate_consumes_none" => |f| write_without_immediate_consumes_none(f, Uc),
        "rc::a_message_longer_than_its_receive_breaks_both_ends" => a_message_longer_than_its_receive_breaks_both_ends,
        "rc::an_unsignaled_message_that_is_too_long_says_so" => an_unsignaled_message_that_is_too_long_says_so,
        "uc::a_message_longer_than_its_receive_is_not_delivered" => |f| too_long_is_not_delivered(f, Uc),
        "ud::a_message_longer_than_its_receive_is_not_delivered" => |f| too_long_is_not_delivered(f, Ud),
        "rc::posted_memory_outlives_its_region" => posted_memory_outlives_its_region,
        "rc::posted_reads_outlive_their_handles" => posted_reads_outlive_their_handles,
        "rc::the_limit_of_a_message_is_its_receivers" => |f| the_limit_of_a_message_is_its_receivers(f, Rc),
        "uc::the_limit_of_a_message_is_its_receivers" => |f| the_limit_of_a_message_is_its_receivers(f, Uc),
        "rc::messages_go_both_ways_at_once" => |f| messages_go_both_ways_at_once(f, Rc),
        "uc::messages_go_both_ways_at_once" => |f| messages_go_both_ways_at_once(f, Uc),
    ]
}

fn send_delivers_any_size<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(64 << 10, Access::Local);
    let mut duo = fixture.duo(transport);
    let largest = duo.near.config.message_bytes;
    let sizes = [
        0, 1, 2, 7, 8, 9, 31, 63, 64, 65, 100, 255, 256, 257, 1000, 1023, 1024, 2048, 4000, 4096, 8191, 8192,
    ];
    for bytes in sizes.into_iter().filter(|&bytes| bytes <= largest) {
        for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 5), (8, 16), (13, 64)] {
            let (from, to) = (from, (32 << 10) + to);
            // Room behind the message in the RECV's buffer and behind the buffer: both stay as they are.
            let room = duo.grh() + bytes + 8;
            let before = pattern(5, room + 16);
            region.copy_in(to, &before);
            region.copy_in(from, &pattern(bytes as u64, bytes));
            duo.far.receive(1, &region, to, room);
            duo.send(2, slice(&region, from, bytes), None);
            duo.received_well(1, bytes, None);
            duo.sent_well(2, Opcode::Send);
            let start = duo.grh();
            assert_eq!(
                bytes_of(&region, to + start, bytes),
                pattern(bytes as u64, bytes),
                "{bytes} {from} {to}"
            );
            let behind = bytes_of(&region, to + start + bytes, 24);
            assert_eq!(behind, before[start + bytes..], "behind {bytes} {from} {to}");
        }
    }
    duo.is_well();
}

fn send_delivers_the_largest_message<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let properties = fixture.nic.properties();
    let largest = if transport == Ud { properties.datagram_bytes_max } else { properties.message_bytes_max };
    let config = QueuePairConfig {
        message_bytes: largest,
        send_depth: 4,
        receive_depth: 4,
        ..fixture.config(transport)
    };
    let (ours, theirs) =
        (fixture.region(largest, Access::Local), fixture.region(largest + 40, Access::Local));
    let mut duo = fixture.duo_with(&config);
    for round in 0..6 {
        let message = pattern(round, largest);
        ours.copy_in(0, &message);
        duo.far.receive(round, &theirs, 0, largest + duo.grh());
        duo.send(round, slice(&ours, 0, largest), None);
        duo.received_well(round, largest, None);
        duo.sent_well(round, Opcode::Send);
        assert!(bytes_of(&theirs, duo.grh(), largest) == message, "round {round}");
    }
    duo.is_well();
}

fn send_carries_an_immediate<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(transport);
    // No immediate is something else than one of zero.
    for immediate in [None, Some(0), Some(1), Some(0x0102_0304), Some(u32::MAX), None] {
        duo.far.receive(1, &region, 0, 64);
        duo.send(2, Payload::Inline(&[b"bytes"]), immediate);
        duo.received_well(1, 5, immediate);
        duo.sent_well(2, Opcode::Send);
        duo.far.receive(3, &region, 0, duo.grh());
        duo.send(4, Payload::Inline(&[]), immediate);
        duo.received_well(3, 0, immediate);
        duo.sent_well(4, Opcode::Send);
    }
    duo.is_well();
}

fn receives_are_consumed_in_order<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(16 << 10, Access::Local);
    let mut duo = fixture.duo(transport);
    // Buffers that lie in no particular order, and ids that do not tell their place.
    let place = |index: u64| ((index * 7 + 3) % 16) as usize * 128;
    for index in 0..16 {
        duo.far.receive(!index, &region, place(index), 128);
    }
    for index in 0..10_u64 {
        duo.send_inline(index, &pattern(index, 20));
    }
    for index in 0..10_u64 {
        duo.received_well(!index, 20, None);
        assert_eq!(bytes_of(&region, place(index) + duo.grh(), 20), pattern(index, 20));
        duo.sent_well(index, Opcode::Send);
    }
    for index in 10..16 {
        assert_eq!(bytes_of(&region, place(index), 128), [0; 128], "the buffer of a RECV that waits");
    }
    duo.is_well();
}

fn a_long_stream_arrives_whole<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    const SLOT: usize = 2048;
    let depth = 16;
    let config = QueuePairConfig { send_depth: depth, receive_depth: depth, ..fixture.config(transport) };
    let longest = config.message_bytes.min(SLOT - 40);
    let (ours, theirs) =
        (fixture.region(depth * SLOT, Access::Local), fixture.region(depth * SLOT, Access::Local));
    let mut duo = fixture.duo_with(&config);
    let mut random = Random(1);
    let sizes: Vec<usize> = (0..3000).map(|_| random.below(longest + 1)).collect();
    let slot = |index: usize| index % depth * SLOT;
    for index in 0..depth {
        duo.far.receive(index as u64, &theirs, slot(index), SLOT);
    }
    // Half a queue of messages is on the way at any time, so that every queue wraps many times at every offset.
    for index in 0..sizes.len() + depth / 2 {
        if let Some(&bytes) = sizes.get(index) {
            ours.copy_in(slot(index), &pattern(index as u64, bytes));
            duo.send(index as u64, slice(&ours, slot(index), bytes), Some(index as u32));
        }
        let Some(arrived) = index.checked_sub(depth / 2) else { continue };
        duo.received_well(arrived as u64, sizes[arrived], Some(arrived as u32));
        let bytes = bytes_of(&theirs, slot(arrived) + duo.grh(), sizes[arrived]);
        assert!(bytes == pattern(arrived as u64, sizes[arrived]), "message {arrived}");
        duo.far.receive((arrived + depth) as u64, &theirs, slot(arrived), SLOT);
        duo.sent_well(arrived as u64, Opcode::Send);
    }
    duo.is_well();
}

fn write_with_immediate_consumes_a_receive<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let (ours, theirs) = (fixture.region(8192, Access::Local), fixture.region(8192, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(transport);
    for (round, bytes) in [0, 1, 8, 13, 100, 4000].into_iter().enumerate() {
        let (id, immediate) = (round as u64, round as u32 * 0x0101_0101);
        theirs.copy_in(0, &vec![0; 8192]);
        ours.copy_in(0, &pattern(id, bytes));
        // The RECV's own buffer is left alone, however short it is.
        duo.far.receive(id, &theirs, 8000, round % 3);
        duo.near.post(&write_immediate(id, slice(&ours, 0, bytes), remote(&shared, 3), immediate));
        let expected = Completion {
            id,
            queue_pair: duo.far.queue_pair.number(),
            status: Status::Success,
            opcode: Opcode::ReceiveWrite,
            bytes: bytes as u32,
            immediate: Some(immediate),
        };
        assert_eq!(duo.received(), expected);
        duo.sent_well(id, Opcode::Write);
        assert_eq!(bytes_of(&theirs, 3, bytes), pattern(id, bytes));
        assert_eq!(bytes_of(&theirs, 3 + bytes, 8192 - 3 - bytes), vec![0; 8192 - 3 - bytes]);
    }
    duo.is_well();
}

fn write_without_immediate_consumes_none<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let theirs = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(transport);
    duo.far.receive(1, &theirs, 2048, 100);
    for id in 0..50 {
        duo.near.post(&write(id, Payload::Inline(&[b"quiet"]), remote(&shared, 0)));
        duo.sent_well(id, Opcode::Write);
    }
    duo.is_well();
    duo.send_inline(2, b"loud");
    duo.received_well(1, 4, None);
    assert_eq!(bytes_of(&theirs, 2048, 4), b"loud");
}

fn a_message_longer_than_its_receive_breaks_both_ends<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    duo.far.receive(1, &theirs, 0, 64);
    duo.far.receive(2, &theirs, 64, 15);
    duo.far.receive(3, &theirs, 128, 64);
    duo.near.queue(&unsignaled(read(10, local(&ours, 0, 8), remote(&shared, 0))));
    duo.send_inline(11, &[1; 16]);
    duo.send_inline(12, &[2; 16]);
    duo.send_inline(13, &[3; 16]);
    duo.near.queue(&unsignaled(read(14, local(&ours, 0, 8), remote(&shared, 0))));
    duo.near.queue_pair.ring().unwrap();
    duo.received_well(1, 16, None);
    let failed = duo.received();
    assert_eq!((failed.id, failed.status), (2, Status::LocalLength));
    let flushed = duo.received();
    assert_eq!((flushed.id, flushed.status), (3, Status::Flushed));
    duo.sent_well(11, Opcode::Send);
    duo.sent_badly(12, Status::RemoteInvalidRequest);
    duo.sent_badly(13, Status::Flushed);
    duo.sent_badly(14, Status::Flushed);
    assert_eq!(duo.near.queue_pair.state(), QueuePairState::Error);
    assert_eq!(duo.far.queue_pair.state(), QueuePairState::Error);
    assert_eq!(bytes_of(&theirs, 64 + 15, 200), vec![0; 200], "bytes behind the RECV's buffer");
}

fn an_unsignaled_message_that_is_too_long_says_so<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(Rc);
    duo.far.receive(1, &region, 0, 64);
    duo.far.receive(2, &region, 0, 15);
    for id in 11..=13 {
        let payload = Payload::Inline(&[&[7; 16]]);
        let verb = Verb::Send { payload, immediate: None, to: None };
        duo.near.queue(&SendRequest { id, verb, signaled: false });
    }
    duo.near.queue_pair.ring().unwrap();
    // Nothing is said of the first, which arrived.
    duo.sent_badly(12, Status::RemoteInvalidRequest);
    duo.sent_badly(13, Status::Flushed);
    duo.received_well(1, 16, None);
    assert_eq!(duo.received().status, Status::LocalLength);
    duo.settle();
    assert!(duo.near.is_quiet() && duo.far.is_quiet());
}

fn too_long_is_not_delivered<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(transport);
    duo.far.receive(1, &region, 0, duo.grh() + 15);
    duo.send_inline(10, &[7; 16]);
    duo.sent_well(10, Opcode::Send);
    duo.settle();
    // The sender never learns. The receiver either drops the message and keeps the RECV, or breaks; a NIC may do
    // either (IBTA volume 1, §9.9.3: classes D and E), but none delivers a part of a message.
    assert_eq!(duo.near.queue_pair.state(), QueuePairState::Ready);
    assert_eq!(bytes_of(&region, duo.grh() + 15, 200), vec![0; 200], "bytes behind the RECV's buffer");
    match duo.far.queue_pair.state() {
        QueuePairState::Ready => {
            duo.send_inline(11, b"shorter");
            duo.received_well(1, 7, None);
            duo.sent_well(11, Opcode::Send);
            duo.is_well();
        }
        QueuePairState::Error => {
            let failed = duo.received();
            assert_eq!((failed.id, failed.status), (1, Status::LocalLength));
        }
        QueuePairState::Init => panic!("a queue pair does not go back"),
    }
}

fn posted_memory_outlives_its_region<N: Nic>(fixture: &mut Fixture<N>) {
    let (source, target) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::Local));
    let mut duo = fixture.duo(Rc);
    source.copy_in(0, &pattern(1, 1000));
    duo.send(1, slice(&source, 0, 1000), None);
    drop(source);
    duo.settle();
    duo.far.receive(2, &target, 0, 1000);
    let copy = target.clone();
    drop(target);
    duo.received_well(2, 1000, None);
    duo.sent_well(1, Opcode::Send);
    assert_eq!(bytes_of(&copy, 0, 1000), pattern(1, 1000));
    // A RECV whose region nobody else holds any more.
    let target = fixture.region(4096, Access::Local);
    duo.far.receive(3, &target, 0, 1000);
    drop(target);
    duo.send_inline(4, b"into memory that only the RECV holds");
    duo.received_well(3, 36, None);
    duo.sent_well(4, Opcode::Send);
}

fn posted_reads_outlive_their_handles<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    theirs.copy_in(0, b"held");
    let mut duo = fixture.duo(Rc);
    duo.send_inline(1, b"hold");
    duo.near.post(&read(2, local(&ours, 0, 4), remote(&shared, 0)));
    drop(shared);
    let copy = ours.clone();
    drop(ours);
    duo.settle();
    duo.far.receive(3, &copy, 1024, 64);
    duo.sent_well(1, Opcode::Send);
    duo.sent_well(2, Opcode::Read);
    assert_eq!(bytes_of(&copy, 0, 4), b"held");
}

fn the_limit_of_a_message_is_its_receivers<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(8192, Access::Local);
    let small = QueuePairConfig { message_bytes: 64, ..fixture.config(transport) };
    let large = QueuePairConfig { message_bytes: 2048, ..fixture.config(transport) };
    for (near, far, bytes) in [(&small, &large, 2048), (&large, &small, 64)] {
        let mut duo = fixture.duo_of(near, far);
        region.copy_in(0, &pattern(1, bytes));
        duo.far.receive(1, &region, 4096, bytes);
        duo.send(2, slice(&region, 0, bytes), None);
        duo.received_well(1, bytes, None);
        duo.sent_well(2, Opcode::Send);
        assert_eq!(bytes_of(&region, 4096, bytes), pattern(1, bytes));
    }
}

fn messages_go_both_ways_at_once<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(transport);
    for round in 0..300_u64 {
        duo.near.receive(1, &region, 0, 64);
        duo.far.receive(2, &region, 64, 64);
        duo.send_inline(3, &pattern(round, 30));
        let reply = pattern(!round, 31);
        let verb = Verb::Send { payload: Payload::Inline(&[&reply]), immediate: Some(1), to: None };
        duo.far.post(&SendRequest { id: 4, verb, signaled: true });
        duo.received_well(2, 30, None);
        let received = wait("the reply", || {
            duo.pump();
            duo.near.take_received()
        });
        assert_eq!((received.id, received.bytes, received.immediate), (1, 31, Some(1)));
        assert_eq!(bytes_of(&region, 0, 31), reply);
        assert_eq!(bytes_of(&region, 64, 30), pattern(round, 30));
        duo.sent_well(3, Opcode::Send);
        let sent = wait("the completion of the reply", || {
            duo.pump();
            duo.far.take_sent()
        });
        assert_eq!((sent.id, sent.status), (4, Status::Success));
    }
    duo.is_well();
}
