//! One-sided READs and WRITEs move exactly the bytes that they name, at any size and offset, in order, and need nothing
//! of the peer's processor (Mitchell §2.1.2, Kalia §2.2.2).

use crate::{
    Case,
    fixture::{
        Fixture, bytes_of, local, pattern, read, remote, slice, unsignaled, wait, write, write_immediate,
    },
    list,
};
use locus_fabric::{
    Access, Link, Nic, Opcode, Payload, QueuePair, QueuePairConfig, Region, RemoteRegion, Status, Transport,
    Transport::*,
};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "rc::read_returns_what_was_stored" => read_returns_what_was_stored,
        "rc::read_of_single_words" => read_of_single_words,
        "rc::write_places_exactly_its_bytes" => |f| write_places_exactly_its_bytes(f, Rc),
        "uc::write_places_exactly_its_bytes" => |f| write_places_exactly_its_bytes(f, Uc),
        "rc::zero_bytes_can_be_read_and_written" => zero_bytes_can_be_read_and_written,
        "uc::zero_bytes_can_be_written" => zero_bytes_can_be_written,
        "rc::the_largest_transfer_works" => the_largest_transfer_works,
        "rc::read_goes_into_a_region_of_any_access" => read_goes_into_a_region_of_any_access,
        "rc::one_sided_verbs_need_nothing_of_the_peer" => |f| one_sided_verbs_need_nothing_of_the_peer(f, Rc),
        "uc::one_sided_verbs_need_nothing_of_the_peer" => |f| one_sided_verbs_need_nothing_of_the_peer(f, Uc),
        "rc::read_sees_an_earlier_write" => read_sees_an_earlier_write,
        "rc::write_precedes_a_later_send" => |f| write_precedes_a_later_message(f, Rc, false),
        "uc::write_precedes_a_later_send" => |f| write_precedes_a_later_message(f, Uc, false),
        "rc::write_precedes_a_later_write_with_immediate" => |f| write_precedes_a_later_message(f, Rc, true),
        "uc::write_precedes_a_later_write_with_immediate" => |f| write_precedes_a_later_message(f, Uc, true),
        "rc::reads_over_the_outstanding_limit_wait" => reads_over_the_outstanding_limit_wait,
        "rc::both_ends_read_and_write_at_once" => both_ends_read_and_write_at_once,
        "rc::several_regions_do_not_mix" => several_regions_do_not_mix,
        "rc::prefetch_is_only_a_hint" => prefetch_is_only_a_hint,
    ]
}

/// Sizes around words, lines, packets and pages.
const SIZES: [usize; 27] = [
    1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 31, 33, 63, 64, 65, 100, 255, 256, 257, 1000, 1024, 2047, 4095,
    4096, 4097,
];
/// Offsets around words, lines and pages.
const OFFSETS: [usize; 9] = [0, 1, 3, 7, 8, 12, 63, 64, 4093];
/// Holds any of the sizes at any of the offsets, with room behind.
const ROOM: usize = 12 << 10;

/// Every size at every pair of offsets, and some large ones.
fn shapes() -> impl Iterator<Item = (usize, usize, usize)> {
    let small = SIZES.into_iter().flat_map(|bytes| {
        OFFSETS.into_iter().flat_map(move |ours| OFFSETS.into_iter().map(move |theirs| (bytes, ours, theirs)))
    });
    let large = [(65_535, 1, 2), (65_536, 0, 0), (65_537, 8, 3), (1 << 20, 0, 0), ((1 << 20) - 5, 3, 11)];
    small.chain(large)
}

fn read_returns_what_was_stored<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) =
        (fixture.region(2 << 20, Access::Local), fixture.region(2 << 20, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    assert_eq!(shared.bytes(), theirs.bytes());
    let stored = pattern(1, theirs.bytes());
    theirs.copy_in(0, &stored);
    let mut duo = fixture.duo(Rc);
    for (bytes, at, from) in shapes() {
        // What lies around the target must stay as it is.
        let room = if bytes > 8 << 10 { ours.bytes() } else { ROOM };
        let mut expected = pattern(2, room);
        ours.copy_in(0, &expected);
        expected[at..at + bytes].copy_from_slice(&stored[from..from + bytes]);
        duo.near.post(&read(3, local(&ours, at, bytes), remote(&shared, from)));
        duo.sent_well(3, Opcode::Read);
        assert!(bytes_of(&ours, 0, room) == expected, "READ of {bytes} from {from} to {at}");
    }
    assert!(bytes_of(&theirs, 0, theirs.bytes()) == stored, "a READ changed what it read");
    duo.is_well();
}

fn read_of_single_words<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    // What the owner stored before posting is what a READ returns: there is no stale copy anywhere.
    for round in 0..1000_u64 {
        let index = round as usize % 512;
        theirs.store(index, round << 32 | 0x5A5A);
        duo.near.post(&read(round, local(&ours, 8, 8), remote(&shared, index * 8)));
        duo.sent_well(round, Opcode::Read);
        assert_eq!(bytes_of(&ours, 8, 8), (round << 32 | 0x5A5A).to_le_bytes());
    }
}

fn write_places_exactly_its_bytes<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let (ours, theirs) =
        (fixture.region(2 << 20, Access::Local), fixture.region(2 << 20, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let source = pattern(1, ours.bytes());
    ours.copy_in(0, &source);
    let mut duo = fixture.duo(transport);
    for (round, (bytes, from, to)) in shapes().enumerate() {
        let room = if bytes > 8 << 10 { theirs.bytes() } else { ROOM };
        let mut expected = pattern(round as u64, room);
        // No byte is there by chance before the WRITE is.
        let other: Vec<u8> = source[from..from + bytes].iter().map(|byte| !byte).collect();
        expected[to..to + bytes].copy_from_slice(&other);
        theirs.copy_in(0, &expected);
        expected[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
        duo.near.post(&write(3, slice(&ours, from, bytes), remote(&shared, to)));
        duo.sent_well(3, Opcode::Write);
        // Over UC the completion only says that the bytes have left.
        let target = theirs.clone();
        wait("the bytes of a WRITE", || {
            duo.pump();
            (transport == Rc || bytes_of(&target, 0, room) == expected).then_some(())
        });
        assert!(bytes_of(&theirs, 0, room) == expected, "WRITE of {bytes} from {from} to {to}");
    }
    assert!(bytes_of(&ours, 0, ours.bytes()) == source, "a WRITE changed its source");
    duo.is_well();
}

fn zero_bytes_can_be_read_and_written<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let before = pattern(1, 4096);
    ours.copy_in(0, &before);
    theirs.copy_in(0, &before);
    let mut duo = fixture.duo(Rc);
    for (id, offset) in [0, 5, 4096].into_iter().enumerate() {
        let id = id as u64 * 10;
        duo.near.post(&read(id + 1, local(&ours, offset, 0), remote(&shared, offset)));
        duo.near.post(&write(id + 2, slice(&ours, offset, 0), remote(&shared, offset)));
        duo.near.post(&write(id + 3, Payload::Inline(&[]), remote(&shared, offset)));
        duo.near.post(&write(id + 4, Payload::Inline(&[b"", b""]), remote(&shared, offset)));
        duo.sent_well(id + 1, Opcode::Read);
        duo.sent_well(id + 2, Opcode::Write);
        duo.sent_well(id + 3, Opcode::Write);
        duo.sent_well(id + 4, Opcode::Write);
    }
    assert_eq!(bytes_of(&ours, 0, 4096), before);
    assert_eq!(bytes_of(&theirs, 0, 4096), before);
    duo.is_well();
}

fn zero_bytes_can_be_written<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Uc);
    duo.far.receive(9, &theirs, 0, 0);
    duo.near.post(&write(1, slice(&ours, 8, 0), remote(&shared, 8)));
    duo.near.post(&write(2, Payload::Inline(&[]), remote(&shared, 4096)));
    duo.near.post(&write_immediate(3, Payload::Inline(&[]), remote(&shared, 0), 77));
    for id in 1..=3 {
        duo.sent_well(id, Opcode::Write);
    }
    let received = duo.received();
    assert_eq!((received.id, received.bytes, received.immediate), (9, 0, Some(77)));
    assert_eq!(bytes_of(&theirs, 0, 4096), vec![0; 4096]);
    duo.is_well();
}

fn the_largest_transfer_works<N: Nic>(fixture: &mut Fixture<N>) {
    // A NIC may take more than a test should reserve.
    let bytes = fixture.nic.properties().transfer_bytes_max.min(64 << 20);
    let (ours, theirs) = (fixture.region(bytes, Access::Local), fixture.region(bytes, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let stored = pattern(1, bytes);
    theirs.copy_in(0, &stored);
    let mut duo = fixture.duo(Rc);
    duo.near.post(&read(1, local(&ours, 0, bytes), remote(&shared, 0)));
    duo.sent_well(1, Opcode::Read);
    assert!(bytes_of(&ours, 0, bytes) == stored, "READ of {bytes}");
    let written = pattern(2, bytes);
    ours.copy_in(0, &written);
    duo.near.post(&write(2, slice(&ours, 0, bytes), remote(&shared, 0)));
    duo.sent_well(2, Opcode::Write);
    assert!(bytes_of(&theirs, 0, bytes) == written, "WRITE of {bytes}");
}

fn read_goes_into_a_region_of_any_access<N: Nic>(fixture: &mut Fixture<N>) {
    let theirs = fixture.region(4096, Access::RemoteRead);
    let shared = fixture.share(&theirs);
    theirs.copy_in(0, b"for everybody");
    let mut duo = fixture.duo(Rc);
    for access in [Access::Local, Access::RemoteRead, Access::RemoteWrite] {
        let ours = fixture.region(4096, access);
        duo.near.post(&read(1, local(&ours, 3, 13), remote(&shared, 0)));
        duo.sent_well(1, Opcode::Read);
        assert_eq!(bytes_of(&ours, 3, 13), b"for everybody", "{access:?}");
    }
}

fn one_sided_verbs_need_nothing_of_the_peer<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(transport);
    // The far end is never polled here, for many times the depth of any queue.
    for round in 0..2000_u64 {
        let word = round.to_le_bytes();
        duo.near.post(&write(round, Payload::Inline(&[&word]), remote(&shared, 16)));
        assert_eq!(duo.near.sent().status, Status::Success);
        wait("the bytes of a WRITE", || {
            duo.near.poll();
            (bytes_of(&theirs, 16, 8) == word).then_some(())
        });
        if transport == Rc {
            duo.near.post(&read(round, local(&ours, 0, 8), remote(&shared, 16)));
            assert_eq!(duo.near.sent().status, Status::Success);
            assert_eq!(bytes_of(&ours, 0, 8), word);
        }
    }
    duo.is_well();
}

fn read_sees_an_earlier_write<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    for round in 0..500_u64 {
        let bytes = pattern(round, 32);
        duo.near.queue(&unsignaled(write(1, Payload::Inline(&[&bytes]), remote(&shared, 5))));
        duo.near.post(&read(2, local(&ours, 0, 32), remote(&shared, 5)));
        duo.sent_well(2, Opcode::Read);
        assert_eq!(bytes_of(&ours, 0, 32), bytes);
    }
}

fn write_precedes_a_later_message<N: Nic>(fixture: &mut Fixture<N>, transport: Transport, by_write: bool) {
    let (ours, theirs) =
        (fixture.region(64 << 10, Access::Local), fixture.region(64 << 10, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(transport);
    for round in 0..300_u64 {
        let bytes = pattern(round, 20_001);
        ours.copy_in(0, &bytes);
        duo.far.receive(round, &theirs, 60_000, 16);
        duo.near.queue(&unsignaled(write(1, slice(&ours, 0, bytes.len()), remote(&shared, 3))));
        if by_write {
            duo.near.post(&write_immediate(2, Payload::Inline(&[b"!"]), remote(&shared, 50_000), 9));
        } else {
            duo.send_inline(2, b"look");
        }
        assert_eq!(duo.received().id, round);
        assert!(
            bytes_of(&theirs, 3, bytes.len()) == bytes,
            "the message came before the WRITE, round {round}"
        );
        assert_eq!(duo.sent().id, 2);
    }
    duo.is_well();
}

fn reads_over_the_outstanding_limit_wait<N: Nic>(fixture: &mut Fixture<N>) {
    let config = QueuePairConfig { reads_outstanding: 2, send_depth: 64, ..fixture.config(Rc) };
    let (ours, theirs) =
        (fixture.region(64 << 10, Access::Local), fixture.region(64 << 10, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    let stored = pattern(4, theirs.bytes());
    theirs.copy_in(0, &stored);
    let mut duo = fixture.duo_with(&config);
    for id in 0..64 {
        let at = id as usize * 1000;
        duo.near.queue(&read(id, local(&ours, at, 1000), remote(&shared, at)));
    }
    duo.near.queue_pair.ring().unwrap();
    for id in 0..64 {
        duo.sent_well(id, Opcode::Read);
    }
    assert!(bytes_of(&ours, 0, 64_000) == stored[..64_000]);
}

fn both_ends_read_and_write_at_once<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) =
        (fixture.region(4096, Access::RemoteWrite), fixture.region(4096, Access::RemoteWrite));
    let to_theirs = fixture.share(&theirs);
    let to_ours = fixture.far.import(fixture.near.grant(&ours).unwrap()).unwrap();
    let mut duo = fixture.duo(Rc);
    for round in 0..200_u64 {
        let (from_near, from_far) = (pattern(round, 32), pattern(!round, 32));
        duo.near.post(&write(1, Payload::Inline(&[&from_near]), remote(&to_theirs, 0)));
        duo.far.post(&write(2, Payload::Inline(&[&from_far]), remote(&to_ours, 0)));
        duo.near.post(&read(3, local(&ours, 1000, 32), remote(&to_theirs, 0)));
        duo.far.post(&read(4, local(&theirs, 1000, 32), remote(&to_ours, 0)));
        duo.sent_well(1, Opcode::Write);
        duo.sent_well(3, Opcode::Read);
        assert_eq!((duo.far.sent().id, duo.far.sent().id), (2, 4));
        assert_eq!(bytes_of(&ours, 1000, 32), from_near);
        assert_eq!(bytes_of(&theirs, 1000, 32), from_far);
    }
    duo.is_well();
}

fn several_regions_do_not_mix<N: Nic>(fixture: &mut Fixture<N>) {
    let ours = fixture.region(4096, Access::Local);
    let theirs: Vec<_> = (0..20).map(|_| fixture.region(4096, Access::RemoteRead)).collect();
    let shared: Vec<_> = theirs.iter().map(|region| fixture.share(region)).collect();
    let mut duo = fixture.duo(Rc);
    for (index, region) in theirs.iter().enumerate() {
        region.copy_in(0, &pattern(index as u64, 4096));
    }
    for (index, region) in shared.iter().enumerate().rev() {
        duo.near.post(&read(1, local(&ours, 0, 4096), remote(region, 0)));
        duo.sent_well(1, Opcode::Read);
        assert!(bytes_of(&ours, 0, 4096) == pattern(index as u64, 4096), "region {index}");
    }
}

fn prefetch_is_only_a_hint<N: Nic>(fixture: &mut Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    let stored = pattern(1, 4096);
    theirs.copy_in(0, &stored);
    for offset in [0, 1, 63, 4000, 4095, 4096, 4097, 1 << 40, usize::MAX - 63, usize::MAX] {
        for bytes in [0, 1, 64, 4096, 1 << 30, usize::MAX] {
            shared.ahead(offset, bytes).start();
        }
    }
    let mut duo = fixture.duo(Rc);
    duo.near.post(&read(1, local(&ours, 0, 4096), remote(&shared, 0)));
    duo.sent_well(1, Opcode::Read);
    assert_eq!(bytes_of(&ours, 0, 4096), stored);
    duo.is_well();
}
