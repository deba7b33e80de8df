//! Inline payloads are gathered and copied while posting, up to the queue pair's limit (Mitchell §2.1.4).

use crate::{
    Case,
    fixture::{Duo, Fixture, bytes_of, pattern, remote, slice, unsignaled, wait, write, write_immediate},
    list,
};
use locus_fabric::{
    Access, Nic, Opcode, Payload, PostError, QueuePair, QueuePairConfig, Region, Transport, Transport::*,
};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "rc::inline_send_memory_is_free_at_once" => |f| send_memory_is_free_at_once(f, Rc),
        "uc::inline_send_memory_is_free_at_once" => |f| send_memory_is_free_at_once(f, Uc),
        "ud::inline_send_memory_is_free_at_once" => |f| send_memory_is_free_at_once(f, Ud),
        "rc::inline_write_memory_is_free_at_once" => |f| write_memory_is_free_at_once(f, Rc),
        "uc::inline_write_memory_is_free_at_once" => |f| write_memory_is_free_at_once(f, Uc),
        "rc::inline_send_that_waits_keeps_its_bytes" => send_that_waits_keeps_its_bytes,
        "rc::inline_gathers_slices" => |f| gathers_slices(f, Rc),
        "uc::inline_gathers_slices" => |f| gathers_slices(f, Uc),
        "ud::inline_gathers_slices" => |f| gathers_slices(f, Ud),
        "rc::inline_of_any_size_up_to_the_limit" => |f| of_any_size_up_to_the_limit(f, Rc),
        "uc::inline_of_any_size_up_to_the_limit" => |f| of_any_size_up_to_the_limit(f, Uc),
        "ud::inline_of_any_size_up_to_the_limit" => |f| of_any_size_up_to_the_limit(f, Ud),
        "rc::inline_over_the_limit_is_refused" => |f| over_the_limit_is_refused(f, Rc),
        "uc::inline_over_the_limit_is_refused" => |f| over_the_limit_is_refused(f, Uc),
        "ud::inline_over_the_limit_is_refused" => |f| over_the_limit_is_refused(f, Ud),
        "rc::inline_limit_of_zero_refuses_all_bytes" => limit_of_zero_refuses_all_bytes,
    ]
}

fn send_memory_is_free_at_once<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(transport);
    let mut memory = [0; 24];
    for id in 0..8_u64 {
        duo.far.receive(id, &region, id as usize * 100, 100);
    }
    for id in 0..8_u64 {
        memory.copy_from_slice(&pattern(id, 24));
        duo.try_send(id, Payload::Inline(&[&memory]), None).unwrap();
        memory.fill(0xEE);
    }
    duo.near.queue_pair.ring().unwrap();
    for id in 0..8_u64 {
        duo.received_well(id, 24, None);
        assert_eq!(bytes_of(&region, id as usize * 100 + duo.grh(), 24), pattern(id, 24));
        duo.sent_well(id, Opcode::Send);
    }
}

fn write_memory_is_free_at_once<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&region);
    let mut duo = fixture.duo(transport);
    let mut memory = [0; 24];
    duo.far.receive(9, &region, 4000, 0);
    for id in 0..8_u64 {
        memory.copy_from_slice(&pattern(id, 24));
        duo.near.queue(&unsignaled(write(
            id,
            Payload::Inline(&[&memory]),
            remote(&shared, id as usize * 33),
        )));
        memory.fill(0xEE);
    }
    duo.near.post(&write_immediate(8, Payload::Inline(&[]), remote(&shared, 0), 1));
    assert_eq!(duo.received().id, 9);
    for id in 0..8_u64 {
        assert_eq!(bytes_of(&region, id as usize * 33, 24), pattern(id, 24));
    }
}

fn send_that_waits_keeps_its_bytes<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo(Rc);
    let mut memory = pattern(1, 24);
    duo.send_inline(1, &memory);
    memory.fill(0xEE);
    duo.settle();
    duo.far.receive(2, &region, 0, 24);
    duo.received_well(2, 24, None);
    duo.sent_well(1, Opcode::Send);
    assert_eq!(bytes_of(&region, 0, 24), pattern(1, 24));
}

/// Sends inline and checks what arrives.
fn arrives<N: Nic>(duo: &mut Duo<N>, region: &N::Region, slices: &[&[u8]]) {
    let expected = slices.concat();
    duo.far.receive(1, region, 8, duo.grh() + expected.len());
    duo.send(2, Payload::Inline(slices), None);
    duo.sent_well(2, Opcode::Send);
    duo.received_well(1, expected.len(), None);
    assert_eq!(bytes_of(region, 8 + duo.grh(), expected.len()), expected);
}

fn gathers_slices<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::RemoteWrite);
    let mut duo = fixture.duo(transport);
    arrives(&mut duo, &region, &[]);
    arrives(&mut duo, &region, &[b""]);
    arrives(&mut duo, &region, &[b"", b"a", b"", b"bc", b""]);
    arrives(&mut duo, &region, &[b"header ", b"key", b" value of some length"]);
    let many: Vec<&[u8]> = (0..30).map(|_| b"x".as_slice()).collect();
    arrives(&mut duo, &region, &many);
    if transport == Ud {
        return;
    }
    let shared = fixture.share(&region);
    duo.near.post(&write(1, Payload::Inline(&[b"one ", b"", b"two ", b"three"]), remote(&shared, 1001)));
    duo.sent_well(1, Opcode::Write);
    wait("the bytes of a WRITE", || {
        duo.pump();
        (bytes_of(&region, 1000, 15) == b"\0one two three\0").then_some(())
    });
}

fn of_any_size_up_to_the_limit<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(64 << 10, Access::Local);
    let config = fixture.config(transport);
    let largest = fixture.nic.properties().inline_bytes_max.min(config.message_bytes);
    let mut duo = fixture.duo_with(&QueuePairConfig { inline_bytes: largest, ..config });
    for bytes in 0..=largest {
        let message = pattern(bytes as u64, bytes);
        arrives(&mut duo, &region, &[&message]);
    }
    duo.is_well();
}

fn over_the_limit_is_refused<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let region = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&region);
    let config = QueuePairConfig { inline_bytes: 32, ..fixture.config(transport) };
    let mut duo = fixture.duo_with(&config);
    let refused = PostError::InlineTooLong(33, 32);
    assert_eq!(duo.try_send(1, Payload::Inline(&[&[1; 33]]), None), Err(refused));
    assert_eq!(duo.try_send(1, Payload::Inline(&[&[1; 16], &[2; 17]]), None), Err(refused));
    if transport != Ud {
        assert_eq!(duo.near.refused(&write(1, Payload::Inline(&[&[1; 33]]), remote(&shared, 0))), refused);
    }
    arrives(&mut duo, &region, &[&[3; 16], &[4; 16]]);
    duo.is_well();
}

fn limit_of_zero_refuses_all_bytes<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::Local);
    let mut duo = fixture.duo_with(&QueuePairConfig { inline_bytes: 0, ..fixture.config(Rc) });
    assert_eq!(duo.try_send(1, Payload::Inline(&[b"x"]), None), Err(PostError::InlineTooLong(1, 0)));
    // The same bytes from a region go.
    region.copy_in(0, b"x");
    duo.far.receive(1, &region, 8, 1);
    duo.send(2, slice(&region, 0, 1), None);
    duo.received_well(1, 1, None);
    duo.sent_well(2, Opcode::Send);
    assert_eq!(bytes_of(&region, 8, 1), b"x");
}
