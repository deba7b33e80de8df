//! Messages for which the receiver has posted no RECV: RC waits or fails, as configured; UC and UD drop and go on.

use crate::{
    Case,
    fixture::{Fixture, bytes_of, local, pattern, read, remote, slice, wait, write, write_immediate},
    list,
};
use locus_fabric::{
    Access, Nic, Opcode, Payload, QueuePair, QueuePairConfig, QueuePairState, ReceiverNotReady, Region,
    SendRequest, Status, Transport, Transport::*, Verb,
};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "rc::send_waits_for_a_receive" => send_waits_for_a_receive,
        "rc::write_with_immediate_waits_for_a_receive" => write_with_immediate_waits_for_a_receive,
        "rc::what_follows_a_waiting_send_completes_after_it" => what_follows_a_waiting_send_completes_after_it,
        "rc::a_waiting_send_does_not_stop_the_other_direction" => a_waiting_send_does_not_stop_the_other_direction,
        "rc::send_fails_where_waiting_is_not_wanted" => send_fails_where_waiting_is_not_wanted,
        "rc::write_with_immediate_fails_where_waiting_is_not_wanted" => write_with_immediate_fails,
        "uc::a_message_without_a_receive_is_dropped" => |f| a_message_without_a_receive_is_dropped(f, Uc),
        "ud::a_message_without_a_receive_is_dropped" => |f| a_message_without_a_receive_is_dropped(f, Ud),
        "uc::write_with_immediate_without_a_receive_is_dropped" => write_with_immediate_is_dropped,
        "uc::a_receiver_that_never_polls_stops_nobody" => |f| a_receiver_that_never_polls_stops_nobody(f, Uc),
        "ud::a_receiver_that_never_polls_stops_nobody" => |f| a_receiver_that_never_polls_stops_nobody(f, Ud),
        "rc::more_waiting_bytes_than_any_buffer_arrive_in_order" => more_waiting_bytes_than_any_buffer,
        "rc::an_unsignaled_send_that_nobody_wants_says_so" => an_unsignaled_send_that_nobody_wants_says_so,
        "rc::a_queue_full_of_waiting_sends_arrives_in_order" => a_queue_full_of_waiting_sends_arrives_in_order,
    ]
}

fn send_waits_for_a_receive<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(Rc);
    for round in 0..20 {
        duo.send_inline(round, b"patience");
        duo.is_well();
        duo.far.receive(round, &region, 0, 64);
        duo.received_well(round, 8, None);
        duo.sent_well(round, Opcode::Send);
    }
    // A SEND of nothing needs a RECV, too.
    duo.send(50, Payload::Inline(&[]), None);
    duo.is_well();
    duo.far.receive(51, &region, 0, 0);
    duo.received_well(51, 0, None);
    duo.sent_well(50, Opcode::Send);
}

fn write_with_immediate_waits_for_a_receive<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&region);
    let mut duo = fixture.duo(Rc);
    duo.near.post(&write_immediate(1, Payload::Inline(&[b"data"]), remote(&shared, 0), 3));
    duo.is_well();
    duo.far.receive(2, &region, 64, 0);
    let received = duo.received();
    assert_eq!((received.id, received.opcode, received.immediate), (2, Opcode::ReceiveWrite, Some(3)));
    assert_eq!(bytes_of(&region, 0, 4), b"data");
    duo.sent_well(1, Opcode::Write);
}

fn what_follows_a_waiting_send_completes_after_it<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    theirs.copy_in(0, b"readable");
    let mut duo = fixture.duo(Rc);
    duo.send_inline(1, b"first");
    duo.near.post(&read(2, local(&ours, 0, 8), remote(&shared, 0)));
    duo.near.post(&write(3, slice(&ours, 0, 8), remote(&shared, 100)));
    duo.is_well();
    duo.far.receive(9, &theirs, 2048, 64);
    duo.sent_well(1, Opcode::Send);
    duo.sent_well(2, Opcode::Read);
    duo.sent_well(3, Opcode::Write);
    assert_eq!(bytes_of(&ours, 0, 8), b"readable");
    duo.received_well(9, 5, None);
}

fn a_waiting_send_does_not_stop_the_other_direction<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&region);
    let mut duo = fixture.duo(Rc);
    // Both ends wait for each other's RECV; each still gets what it is ready for, whatever its own sends wait for.
    for id in 0..3 {
        duo.send_inline(id, b"from near");
    }
    let verb = Verb::Send { payload: Payload::Inline(&[b"from far"]), immediate: None, to: None };
    duo.far.post(&SendRequest { id: 7, verb, signaled: true });
    duo.is_well();
    duo.near.receive(8, &region, 0, 64);
    let received = wait("the message of the far end", || {
        duo.pump();
        duo.near.take_received()
    });
    assert_eq!((received.id, received.status, received.bytes), (8, Status::Success, 8));
    for id in 0..3 {
        duo.far.receive(id, &region, 100, 64);
        duo.received_well(id, 9, None);
        duo.sent_well(id, Opcode::Send);
    }
    duo.near.post(&write(9, Payload::Inline(&[b"ok"]), remote(&shared, 0)));
    duo.sent_well(9, Opcode::Write);
}

fn impatient<N: Nic>(fixture: &Fixture<N>) -> QueuePairConfig {
    QueuePairConfig { receiver_not_ready: ReceiverNotReady::Fail, ..fixture.config(Rc) }
}

fn send_fails_where_waiting_is_not_wanted<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::Local);
    // It is the sender that does not want to wait; the receiver's own sends would.
    let mut duo = fixture.duo_of(&impatient(fixture), &fixture.config(Rc));
    duo.far.receive(1, &region, 0, 64);
    duo.send_inline(2, b"welcome");
    duo.received_well(1, 7, None);
    duo.sent_well(2, Opcode::Send);
    duo.send_inline(3, b"not welcome");
    duo.sent_badly(3, Status::ReceiverNotReady);
    assert_eq!(duo.near.queue_pair.state(), QueuePairState::Error);
    duo.send_inline(4, b"too late");
    duo.sent_badly(4, Status::Flushed);
}

fn write_with_immediate_fails<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&region);
    let mut duo = fixture.duo_of(&impatient(fixture), &fixture.config(Rc));
    duo.near.post(&write(1, Payload::Inline(&[b"needs no RECV"]), remote(&shared, 0)));
    duo.sent_well(1, Opcode::Write);
    duo.near.post(&write_immediate(2, Payload::Inline(&[b"needs one"]), remote(&shared, 0), 3));
    duo.sent_badly(2, Status::ReceiverNotReady);
    assert_eq!(duo.near.queue_pair.state(), QueuePairState::Error);
}

fn a_message_without_a_receive_is_dropped<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(transport);
    for id in 0..2 {
        duo.far.receive(id, &region, id as usize * 64, 64);
    }
    for id in 0..5 {
        duo.send_inline(id, &[id as u8; 9]);
        duo.sent_well(id, Opcode::Send);
    }
    duo.received_well(0, 9, None);
    duo.received_well(1, 9, None);
    duo.is_well();
    // Messages 2, 3 and 4 are lost; the next RECV gets the next message.
    duo.far.receive(2, &region, 128, 64);
    duo.is_well();
    duo.send_inline(5, &[5; 9]);
    duo.sent_well(5, Opcode::Send);
    duo.received_well(2, 9, None);
    assert_eq!(bytes_of(&region, 128 + duo.grh(), 9), [5; 9]);
    duo.is_well();
}

fn write_with_immediate_is_dropped<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&region);
    let mut duo = fixture.duo(Uc);
    duo.near.post(&write_immediate(1, Payload::Inline(&[b"unheard"]), remote(&shared, 0), 3));
    duo.sent_well(1, Opcode::Write);
    duo.is_well();
    duo.far.receive(2, &region, 64, 0);
    duo.is_well();
    duo.near.post(&write_immediate(3, Payload::Inline(&[b"heard"]), remote(&shared, 32), 4));
    duo.sent_well(3, Opcode::Write);
    let received = duo.received();
    assert_eq!((received.id, received.immediate), (2, Some(4)));
    assert_eq!(bytes_of(&region, 32, 5), b"heard");
}

fn a_receiver_that_never_polls_stops_nobody<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(16 << 10, Access::Local);
    let config = QueuePairConfig { send_depth: 8, receive_depth: 8, ..fixture.config(transport) };
    let mut duo = fixture.duo_with(&config);
    for id in 0..4 {
        duo.far.receive(id, &region, id as usize * 128, 128);
    }
    let count = 2000;
    for id in 0..count {
        duo.send(id, Payload::Inline(&[&id.to_le_bytes()]), None);
        let sent = duo.near.sent();
        assert_eq!((sent.id, sent.status), (id, Status::Success));
    }
    // What arrived is whole, in order, and each message at most once.
    duo.settle();
    let mut last = None;
    for id in 0..4 {
        duo.received_well(id, 8, None);
        let bytes = bytes_of(&region, id as usize * 128 + duo.grh(), 8);
        let message = u64::from_le_bytes(bytes.try_into().unwrap());
        assert!(message < count && last < Some(message), "{message} after {last:?}");
        last = Some(message);
    }
    duo.is_well();
}

fn a_queue_full_of_waiting_sends_arrives_in_order<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(16 << 10, Access::Local);
    // The receiver has far fewer places than the sender has messages.
    let near = QueuePairConfig { send_depth: 64, ..fixture.config(Rc) };
    let far = QueuePairConfig { receive_depth: 2, ..fixture.config(Rc) };
    let mut duo = fixture.duo_of(&near, &far);
    for id in 0..64 {
        duo.send(id, Payload::Inline(&[&id.to_le_bytes()]), None);
    }
    duo.is_well();
    for id in 0..64_u64 {
        duo.far.receive(id, &region, 0, 64);
        duo.received_well(id, 8, None);
        assert_eq!(bytes_of(&region, 0, 8), id.to_le_bytes());
        duo.sent_well(id, Opcode::Send);
    }
    duo.is_well();
}

fn more_waiting_bytes_than_any_buffer<N: Nic>(fixture: &mut Fixture<N>) {
    // A hundred long messages and a READ among them, posted at once: whatever lies between the two has to fill up.
    const COUNT: u64 = 100;
    let config = fixture.config(Rc);
    let bytes = config.message_bytes;
    let ours = fixture.region(COUNT as usize * bytes, Access::Local);
    let theirs = fixture.region(2 * bytes, Access::RemoteRead);
    let shared = fixture.share(&theirs);
    theirs.copy_in(bytes, b"in between");
    let target = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo_with(&config);
    for id in 0..COUNT {
        let at = id as usize * bytes;
        ours.copy_in(at, &pattern(id, bytes));
        if id == 50 {
            duo.near.queue(&read(1000, local(&target, 0, 10), remote(&shared, bytes)));
        }
        duo.try_send(id, slice(&ours, at, bytes), Some(id as u32)).unwrap();
    }
    duo.near.queue_pair.ring().unwrap();
    duo.is_well();
    for id in 0..COUNT {
        duo.far.receive(id, &theirs, 0, bytes);
        duo.received_well(id, bytes, Some(id as u32));
        assert!(bytes_of(&theirs, 0, bytes) == pattern(id, bytes), "message {id}");
        if id == 50 {
            duo.sent_well(1000, Opcode::Read);
            assert_eq!(bytes_of(&target, 0, 10), b"in between");
        }
        duo.sent_well(id, Opcode::Send);
    }
    duo.is_well();
}

fn an_unsignaled_send_that_nobody_wants_says_so<N: Nic>(fixture: &mut Fixture<N>) {
    let mut duo = fixture.duo_of(&impatient(fixture), &fixture.config(Rc));
    for id in 1..=2 {
        let verb = Verb::Send { payload: Payload::Inline(&[b"hush"]), immediate: None, to: None };
        duo.near.queue(&SendRequest { id, verb, signaled: false });
    }
    duo.near.queue_pair.ring().unwrap();
    duo.sent_badly(1, Status::ReceiverNotReady);
    duo.sent_badly(2, Status::Flushed);
}
