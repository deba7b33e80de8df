//! Facts are a peer's bytes: whatever they are, taking them is an error or works; nothing panics, hangs or crashes, and
//! the link and everything beside it goes on. The random bytes are the same on every run.

use crate::{
    Case,
    fixture::{Duo, End, Fixture, Random, bytes_of, local, pattern, read, remote},
    list,
};
use locus_fabric::{
    Access, FabricError, Facts, Link, Nic, Park, Payload, QueuePair, Region, RemoteRegion, Status, Transport,
    Transport::*,
};
use std::{fs::File, os::fd::OwnedFd};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "hostile::random_facts_are_refused" => random_facts_are_refused,
        "hostile::shortened_facts_are_refused" => shortened_facts_are_refused,
        "hostile::facts_without_their_handles_are_refused" => facts_without_their_handles_are_refused,
        "hostile::facts_with_foreign_handles_do_no_harm" => facts_with_foreign_handles_do_no_harm,
        "hostile::facts_of_another_kind_are_refused" => facts_of_another_kind_are_refused,
        "hostile::changed_facts_of_regions_do_no_harm" => changed_facts_of_regions_do_no_harm,
        "hostile::changed_facts_of_queue_pairs_do_no_harm" => changed_facts_of_queue_pairs_do_no_harm,
        "hostile::a_bad_fact_leaves_the_link_alive" => a_bad_fact_leaves_the_link_alive,
    ]
}

/// What facts are of.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Region,
    QueuePair(Transport),
}

const KINDS: [Kind; 4] = [Kind::Region, Kind::QueuePair(Rc), Kind::QueuePair(Uc), Kind::QueuePair(Ud)];

/// Gives facts to whoever takes facts of this kind, as if the far end had sent them.
fn take<N: Nic>(fixture: &Fixture<N>, kind: Kind, facts: Facts) -> Result<(), FabricError> {
    match kind {
        Kind::Region => fixture.near.import(facts).map(drop),
        Kind::QueuePair(Ud) => {
            let mut end = End::new(&fixture.nic, &fixture.near, &fixture.config(Ud));
            end.queue_pair.activate().unwrap();
            end.queue_pair.address(&fixture.near, facts).map(drop)
        }
        Kind::QueuePair(transport) => {
            End::new(&fixture.nic, &fixture.near, &fixture.config(transport)).queue_pair.connect(facts)
        }
    }
}

/// Makes true facts of this kind at the far end, with whatever must live for them to stay true.
fn make<N: Nic>(fixture: &Fixture<N>, kind: Kind) -> (Facts, Option<End<N>>, N::Region) {
    let region = fixture.region(4096, Access::RemoteWrite);
    match kind {
        Kind::Region => (fixture.far.grant(&region).unwrap(), None, region),
        Kind::QueuePair(transport) => {
            let mut end = End::new(&fixture.nic, &fixture.far, &fixture.config(transport));
            if transport == Ud {
                end.queue_pair.activate().unwrap();
            }
            (end.queue_pair.facts(&fixture.far).unwrap(), Some(end), region)
        }
    }
}

/// Asserts that ordinary work still goes.
fn all_is_well<N: Nic>(fixture: &Fixture<N>) {
    assert!(fixture.near.check() && fixture.far.check());
    let region = fixture.region(4096, Access::RemoteRead);
    let shared = fixture.share(&region);
    let mut duo = fixture.duo(Rc);
    duo.near.post(&read(1, local(&region, 0, 8), remote(&shared, 8)));
    assert_eq!(duo.sent().status, Status::Success);
}

fn random_facts_are_refused<N: Nic>(fixture: &mut Fixture<N>) {
    let mut random = Random(4);
    for kind in KINDS {
        for round in 0..200 {
            let bytes = pattern(random.next(), random.below(if round % 20 == 0 { 5000 } else { 100 }));
            let handles = (0..random.below(4)).map(|_| null()).collect();
            assert!(take(fixture, kind, Facts { bytes, handles }).is_err(), "{kind:?} round {round}");
        }
    }
    all_is_well(fixture);
}

/// A descriptor of something else.
fn null() -> OwnedFd {
    File::open("/dev/null").expect("/dev/null").into()
}

fn shortened_facts_are_refused<N: Nic>(fixture: &mut Fixture<N>) {
    for kind in KINDS {
        let bytes = make(fixture, kind).0.bytes.len();
        for bytes in 0..bytes {
            let (mut facts, _alive, _region) = make(fixture, kind);
            facts.bytes.truncate(bytes);
            assert!(take(fixture, kind, facts).is_err(), "{kind:?} cut to {bytes} bytes");
        }
        let (mut facts, _alive, _region) = make(fixture, kind);
        facts.bytes.extend_from_slice(&[0; 9]);
        assert!(take(fixture, kind, facts).is_err(), "{kind:?} with bytes behind");
        let (facts, _alive, _region) = make(fixture, kind);
        take(fixture, kind, facts).expect("true facts are taken");
    }
    all_is_well(fixture);
}

fn facts_without_their_handles_are_refused<N: Nic>(fixture: &mut Fixture<N>) {
    for kind in KINDS {
        let count = make(fixture, kind).0.handles.len();
        for kept in 0..count {
            let (mut facts, _alive, _region) = make(fixture, kind);
            facts.handles.truncate(kept);
            assert!(take(fixture, kind, facts).is_err(), "{kind:?} with {kept} handles of {count}");
        }
    }
    all_is_well(fixture);
}

fn facts_with_foreign_handles_do_no_harm<N: Nic>(fixture: &mut Fixture<N>) {
    let foreign: [fn() -> OwnedFd; 3] = [
        null,
        || File::open("/").expect("the root").into(),
        || File::open(std::env::current_exe().expect("this program")).expect("this program").into(),
    ];
    for kind in KINDS {
        let count = make(fixture, kind).0.handles.len();
        for place in 0..count {
            for foreign in foreign {
                let (mut facts, far, _region) = make(fixture, kind);
                facts.handles[place] = foreign();
                match far {
                    None => {
                        assert!(take(fixture, kind, facts).is_err(), "{kind:?} with a foreign handle {place}")
                    }
                    // A handle that only serves to wake the one who gave it may be anything.
                    Some(far) => use_queue_pair(fixture, far, facts, true),
                }
            }
        }
    }
    all_is_well(fixture);
}

/// Connects with these facts and a message is tried: it arrives, is lost, or breaks the queue pair, as values.
fn use_queue_pair<N: Nic>(fixture: &Fixture<N>, mut far: End<N>, facts: Facts, thorough: bool) {
    let region = fixture.region(4096, Access::Local);
    let transport = far.config.transport;
    let mut near = End::new(&fixture.nic, &fixture.near, &fixture.config(transport));
    let address = if transport == Ud {
        near.queue_pair.activate().unwrap();
        near.queue_pair.address(&fixture.near, facts).map(Some)
    } else {
        let own = near.queue_pair.facts(&fixture.near).unwrap();
        near.queue_pair.connect(facts).and_then(|()| far.queue_pair.connect(own)).map(|()| None)
    };
    let Ok(address) = address else { return };
    far.receive(1, &region, 0, 128);
    let mut duo = Duo { near, far, address };
    // The facts may have said that the peer takes no message of this length.
    let _ = duo.try_send(2, Payload::Inline(&[b"through changed facts"]), None);
    let _ = duo.near.queue_pair.ring();
    duo.pump();
    if thorough {
        duo.settle();
        duo.far.receives.prepare();
        duo.far.receives.park(std::time::Duration::ZERO);
    }
}

fn facts_of_another_kind_are_refused<N: Nic>(fixture: &mut Fixture<N>) {
    for made in KINDS {
        for taken in KINDS.into_iter().filter(|&taken| taken != made) {
            let (facts, _alive, _region) = make(fixture, made);
            assert!(take(fixture, taken, facts).is_err(), "facts of {made:?} for {taken:?}");
        }
    }
    all_is_well(fixture);
}

/// Changes the bytes of facts.
type Change = Box<dyn Fn(&mut [u8])>;

/// True facts of this kind with one bit changed for every bit, and some with whole words changed.
fn changes<N: Nic>(fixture: &Fixture<N>, kind: Kind) -> Vec<Change> {
    let bytes = make(fixture, kind).0.bytes.len();
    let mut changes: Vec<Change> = Vec::new();
    for bit in 0..bytes * 8 {
        changes.push(Box::new(move |facts| facts[bit / 8] ^= 1 << (bit % 8)));
    }
    for at in 0..bytes {
        for value in [0, 0x7F, 0xFF] {
            changes
                .push(Box::new(move |facts| facts[at..].iter_mut().take(8).for_each(|byte| *byte = value)));
        }
    }
    changes
}

fn changed_facts_of_regions_do_no_harm<N: Nic>(fixture: &mut Fixture<N>) {
    let ours = fixture.region(4096, Access::Local);
    for change in changes(fixture, Kind::Region) {
        let (mut facts, _, theirs) = make(fixture, Kind::Region);
        theirs.copy_in(0, &pattern(1, 4096));
        change(&mut facts.bytes);
        let Ok(shared) = fixture.near.import(facts) else { continue };
        // What was taken all the same is within the memory that is there.
        for offset in [0, 4088, shared.bytes().wrapping_sub(8), shared.bytes()] {
            shared.ahead(offset, 64).start();
            let mut duo = fixture.duo(Rc);
            duo.near.post(&read(1, local(&ours, 0, 8), remote(&shared, offset)));
            match duo.sent().status {
                Status::Success if offset == 0 => assert_eq!(bytes_of(&ours, 0, 8), pattern(1, 8)),
                Status::Success => assert!(offset + 8 <= theirs.bytes(), "a READ at {offset}"),
                status => assert_eq!(status, Status::RemoteAccess),
            }
        }
    }
    all_is_well(fixture);
}

fn changed_facts_of_queue_pairs_do_no_harm<N: Nic>(fixture: &mut Fixture<N>) {
    for transport in [Rc, Uc, Ud] {
        for (round, change) in changes(fixture, Kind::QueuePair(transport)).into_iter().enumerate() {
            let (mut facts, far, _region) = make(fixture, Kind::QueuePair(transport));
            change(&mut facts.bytes);
            use_queue_pair(fixture, far.expect("the far end"), facts, round % 16 == 0);
        }
    }
    all_is_well(fixture);
}

fn a_bad_fact_leaves_the_link_alive<N: Nic>(fixture: &mut Fixture<N>) {
    let mut duo = fixture.duo(Rc);
    for kind in KINDS {
        let (mut facts, _alive, _region) = make(fixture, kind);
        facts.bytes.clear();
        let refused = take(fixture, kind, facts);
        assert!(matches!(refused, Err(FabricError::Protocol { .. })), "{kind:?} gave {refused:?}");
    }
    duo.is_well();
    all_is_well(fixture);
}
