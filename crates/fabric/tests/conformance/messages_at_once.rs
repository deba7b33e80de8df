//! Messages that are sent and taken at once, past the queues, where the NIC declares that it can. Where it does not, they are refused
//! and nothing changes, which is what these cases then assert.

use crate::{
    Case,
    fixture::{Duo, End, Fixture, bytes_of, pattern, remote, wait, write_immediate},
    list,
};
use locus_fabric::{
    Access, Nic, Opcode, Payload, QueuePair, QueuePairConfig, Status, Transport, Transport::*,
};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "rc::send_at_once_arrives_like_a_send" => |f| arrives_like_a_send(f, Rc),
        "uc::send_at_once_arrives_like_a_send" => |f| arrives_like_a_send(f, Uc),
        "rc::send_at_once_overtakes_nothing" => overtakes_nothing,
        "rc::send_at_once_is_refused_where_there_is_no_room" => is_refused_where_there_is_no_room,
        "rc::send_at_once_is_refused_where_posting_fails" => |f| is_refused_where_posting_fails(f, Rc),
        "uc::send_at_once_is_refused_where_posting_fails" => |f| is_refused_where_posting_fails(f, Uc),
        "rc::receive_at_once_takes_what_was_sent" => |f| takes_what_was_sent(f, Rc),
        "uc::receive_at_once_takes_what_was_sent" => |f| takes_what_was_sent(f, Uc),
        "rc::receive_at_once_leaves_its_recv_posted" => |f| leaves_its_recv_posted(f, Rc),
        "uc::receive_at_once_leaves_its_recv_posted" => |f| leaves_its_recv_posted(f, Uc),
        "rc::receive_at_once_leaves_what_is_more_than_bytes" => leaves_what_is_more_than_bytes,
        "rc::receive_at_once_takes_nothing_without_a_recv" => takes_nothing_without_a_recv,
        "rc::receive_at_once_leaves_messages_too_long" => leaves_messages_too_long,
        "ud::messages_at_once_are_refused" => are_refused_on_ud,
    ]
}

/// Sends at once from the near end, and says whether it was done. It raises no completion in any case.
fn send_at_once<N: Nic>(duo: &mut Duo<N>, pieces: &[&[u8]]) -> bool {
    let done = duo.near.queue_pair.send_at_once(pieces);
    assert!(!done || duo.near.nic.properties().messages_at_once, "a NIC does what it does not declare");
    done
}

/// Takes a message at the far end at once, if there is one.
fn receive_at_once<N: Nic>(duo: &mut Duo<N>, into: &mut [u8]) -> Option<usize> {
    let taken = duo.far.queue_pair.receive_at_once(into);
    assert!(taken.is_none() || duo.far.nic.properties().messages_at_once);
    taken
}

/// Sends somehow: at once where that is possible.
fn send<N: Nic>(duo: &mut Duo<N>, id: u64, bytes: &[u8]) {
    if !send_at_once(duo, &[bytes]) {
        duo.send_inline(id, bytes);
        duo.sent_well(id, Opcode::Send);
    }
}

fn arrives_like_a_send<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let ours = fixture.region(4096, Access::Local);
    let declared = fixture.nic.properties().messages_at_once;
    let mut duo = fixture.duo(transport);
    for (id, bytes) in [0, 1, 7, 8, 55, 56, 57, 64, 100, 1000].into_iter().enumerate() {
        let sent = pattern(id as u64, bytes);
        let (front, back) = sent.split_at(bytes / 3);
        duo.far.receive(id as u64, &ours, 1024, 1024);
        if send_at_once(&mut duo, &[front, back]) {
            duo.received_well(id as u64, bytes, None);
            assert!(bytes_of(&ours, 1024, bytes) == sent, "{bytes} bytes");
        } else {
            assert!(!declared);
            duo.is_well();
        }
    }
    duo.is_well();
}

fn overtakes_nothing<N: Nic>(fixture: &mut Fixture<N>) {
    let ours = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(Rc);
    // It goes behind a SEND that waits for its RECV, and a SEND behind it.
    duo.send_inline(1, b"posted before");
    let second = send_at_once(&mut duo, &[b"at once"]);
    duo.send_inline(3, b"posted after");
    let mut expected = vec![&b"posted before"[..], b"posted after"];
    if second {
        expected.insert(1, b"at once");
    }
    for (id, bytes) in expected.into_iter().enumerate() {
        duo.far.receive(id as u64, &ours, 64 * id, 64);
        duo.received_well(id as u64, bytes.len(), None);
        assert_eq!(bytes_of(&ours, 64 * id, bytes.len()), bytes);
    }
    duo.sent_well(1, Opcode::Send);
    duo.sent_well(3, Opcode::Send);
    duo.is_well();
}

/// Without a RECV messages wait for one, and then there is no room for more: they are refused, one that is posted waits, and none
/// is lost or overtaken.
fn is_refused_where_there_is_no_room<N: Nic>(fixture: &mut Fixture<N>) {
    const LIMIT: u64 = 1 << 20;
    let ours = fixture.region(4096, Access::Local);
    let declared = fixture.nic.properties().messages_at_once;
    let mut duo = fixture.duo(Rc);
    let sent = (0..LIMIT).find(|number: &u64| !send_at_once(&mut duo, &[&number.to_le_bytes()])).unwrap();
    assert_eq!(sent > 0, declared);
    duo.send_inline(sent, &sent.to_le_bytes());
    assert!(!send_at_once(&mut duo, &[b"overtakes"]));
    duo.far.receive(0, &ours, 0, 64);
    let mut into = [0; 64];
    for number in 0..=sent {
        if declared {
            let taken = wait("a message", || {
                duo.near.poll();
                receive_at_once(&mut duo, &mut into)
            });
            assert_eq!(taken, 8);
        } else {
            duo.received_well(0, 8, None);
            into[..8].copy_from_slice(&bytes_of(&ours, 0, 8));
        }
        assert_eq!(into[..8], number.to_le_bytes());
    }
    duo.sent_well(sent, Opcode::Send);
    assert_eq!(send_at_once(&mut duo, &[b"room"]), declared);
}

fn is_refused_where_posting_fails<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let mut end = End::new(&fixture.nic, &fixture.near, &fixture.config(transport));
    assert!(!end.queue_pair.send_at_once(&[b"before connecting"]));
    assert_eq!(end.queue_pair.receive_at_once(&mut [0; 64]), None);
    let far = QueuePairConfig { message_bytes: 64, ..fixture.config(transport) };
    let ours = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo_of(&fixture.config(transport), &far);
    duo.far.receive(1, &ours, 0, 64);
    assert!(!send_at_once(&mut duo, &[&[1; 65]]), "longer than the peer takes");
    duo.is_well();
    duo.near.queue_pair.fail();
    assert!(!send_at_once(&mut duo, &[b"broken"]));
    duo.far.queue_pair.fail();
    assert_eq!(receive_at_once(&mut duo, &mut [0; 64]), None);
}

fn takes_what_was_sent<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let ours = fixture.region(4096, Access::Local);
    let declared = fixture.nic.properties().messages_at_once;
    let mut duo = fixture.duo(transport);
    duo.far.receive(0, &ours, 0, 1024);
    let mut into = vec![0; 2048];
    assert_eq!(receive_at_once(&mut duo, &mut into), None);
    for (number, bytes) in [0, 1, 7, 8, 55, 56, 57, 64, 100].into_iter().cycle().take(2000).enumerate() {
        let (id, sent) = (number as u64, pattern(number as u64, bytes));
        // Past the queues, or through the sender's.
        let posted = number % 2 == 0 || !send_at_once(&mut duo, &[&sent]);
        if posted {
            duo.send_inline(id, &sent);
        }
        if declared {
            assert_eq!(receive_at_once(&mut duo, &mut into), Some(bytes));
            assert!(into[..bytes] == sent, "{bytes} bytes");
            assert_eq!(receive_at_once(&mut duo, &mut into), None);
        } else {
            duo.received_well(0, bytes, None);
            assert_eq!(receive_at_once(&mut duo, &mut into), None);
            duo.far.receive(0, &ours, 0, 1024);
        }
        if posted {
            duo.sent_well(id, Opcode::Send);
        }
    }
    duo.is_well();
}

fn leaves_its_recv_posted<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let ours = fixture.region(4096, Access::Local);
    let declared = fixture.nic.properties().messages_at_once;
    let mut duo = fixture.duo(transport);
    duo.far.receive(7, &ours, 0, 64);
    if send_at_once(&mut duo, &[b"first"]) {
        assert_eq!(receive_at_once(&mut duo, &mut [0; 64]), Some(5));
    } else {
        assert!(!declared);
    }
    send(&mut duo, 8, b"second");
    duo.received_well(7, 6, None);
    assert_eq!(bytes_of(&ours, 0, 6), b"second");
    // What a poll has taken is not taken once more.
    assert_eq!(receive_at_once(&mut duo, &mut [0; 64]), None);
    duo.is_well();
}

fn leaves_what_is_more_than_bytes<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    duo.far.receive(1, &ours, 0, 64);
    duo.send(2, Payload::Inline(&[b"with an immediate"]), Some(3));
    assert_eq!(receive_at_once(&mut duo, &mut [0; 64]), None);
    duo.received_well(1, 17, Some(3));
    duo.sent_well(2, Opcode::Send);
    duo.far.receive(4, &ours, 0, 64);
    duo.near.post(&write_immediate(5, Payload::Inline(&[&[6; 8]]), remote(&shared, 0), 7));
    assert_eq!(receive_at_once(&mut duo, &mut [0; 64]), None);
    let completion = duo.received();
    assert_eq!((completion.id, completion.immediate), (4, Some(7)));
    assert_eq!(completion.opcode, Opcode::ReceiveWrite);
    assert_eq!(bytes_of(&theirs, 0, 8), [6; 8]);
    duo.sent_well(5, Opcode::Write);
    duo.is_well();
}

fn takes_nothing_without_a_recv<N: Nic>(fixture: &mut Fixture<N>) {
    let ours = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(Rc);
    duo.send_inline(1, b"waits");
    assert_eq!(receive_at_once(&mut duo, &mut [0; 64]), None);
    duo.far.receive(2, &ours, 0, 64);
    duo.received_well(2, 5, None);
    duo.sent_well(1, Opcode::Send);
    duo.is_well();
}

fn leaves_messages_too_long<N: Nic>(fixture: &mut Fixture<N>) {
    let ours = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(Rc);
    duo.far.receive(1, &ours, 0, 64);
    duo.send_inline(2, &[3; 32]);
    assert_eq!(receive_at_once(&mut duo, &mut [0; 31]), None, "longer than the buffer");
    duo.received_well(1, 32, None);
    duo.sent_well(2, Opcode::Send);
    // Longer than the RECV: it breaks the queue pair when polled, as ever.
    duo.far.receive(4, &ours, 0, 16);
    duo.send_inline(5, &[3; 32]);
    assert_eq!(receive_at_once(&mut duo, &mut [0; 64]), None);
    let completion = duo.received();
    assert_eq!((completion.id, completion.status), (4, Status::LocalLength));
}

fn are_refused_on_ud<N: Nic>(fixture: &mut Fixture<N>) {
    let ours = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(Ud);
    duo.far.receive(1, &ours, 0, 1024);
    assert!(!send_at_once(&mut duo, &[b"to nobody"]));
    duo.send_inline(2, b"a datagram");
    assert_eq!(receive_at_once(&mut duo, &mut [0; 64]), None);
    duo.received_well(1, 10, None);
    duo.sent_well(2, Opcode::Send);
    duo.is_well();
}
