//! What was opened and closed leaves nothing behind: no descriptors, no mappings. These cases run alone, since they
//! count what the whole process holds.

use crate::{
    Case,
    fixture::{End, Fixture, local, read, remote, wait},
};
use locus_fabric::{Access, Link, Nic, Opcode, QueuePair, Region, Transport::*};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    vec![
        Case {
            name: "resources::links_and_queue_pairs_leave_nothing",
            alone: true,
            run: links_leave_nothing,
        },
        Case { name: "resources::closed_links_leave_nothing", alone: true, run: closed_links_leave_nothing },
        Case { name: "resources::regions_leave_nothing", alone: true, run: regions_leave_nothing },
        Case {
            name: "resources::refused_facts_leave_nothing",
            alone: true,
            run: refused_facts_leave_nothing,
        },
        Case { name: "resources::many_at_once_work", alone: true, run: many_at_once_work },
    ]
}

/// How many descriptors and mappings the process holds.
fn held() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("/proc").count();
    let mappings = std::fs::read_to_string("/proc/self/maps").expect("/proc").lines().count();
    (descriptors, mappings)
}

/// Asserts that after some warming up, many rounds of a body leave no descriptors and no mappings.
fn leaves_nothing(mut body: impl FnMut()) {
    const ROUNDS: usize = 100;
    (0..10).for_each(|_| body());
    let (descriptors, mappings) = held();
    (0..ROUNDS).for_each(|_| body());
    // Far fewer than one a round: the allocator may take a mapping or two, and threads that end take a moment.
    wait("what was opened to be closed", || {
        let now = held();
        let over = (now.0.saturating_sub(descriptors), now.1.saturating_sub(mappings));
        (over.0 == 0 && over.1 < ROUNDS / 5).then_some(())
    });
}

fn use_all<N: Nic>(fixture: &Fixture<N>) {
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    for transport in [Rc, Uc, Ud] {
        let mut duo = fixture.duo(transport);
        duo.far.receive(1, &theirs, 0, 128);
        duo.send_inline(2, b"used");
        duo.received_well(1, 4, None);
        if transport == Rc {
            duo.sent_well(2, Opcode::Send);
            duo.near.post(&read(3, local(&ours, 0, 8), remote(&shared, 0)));
            duo.sent_well(3, Opcode::Read);
        }
        // Left with something posted.
        duo.far.receive(4, &theirs, 0, 128);
    }
}

fn links_leave_nothing<N: Nic>(fixture: &mut Fixture<N>) {
    leaves_nothing(|| use_all(&fixture.another()));
}

fn closed_links_leave_nothing<N: Nic>(fixture: &mut Fixture<N>) {
    let mut round = 0;
    leaves_nothing(|| {
        round += 1;
        let other = fixture.another();
        use_all(&other);
        let mut duo = other.duo(Rc);
        other
            .near
            .send(b"never received", vec![other.near.grant(&other.region(64, Access::RemoteRead)).unwrap()])
            .unwrap();
        // A message nobody receives waits in its queue when everything goes.
        duo.send_inline(1, b"never received");
        if round % 2 == 0 {
            other.near.close()
        } else {
            other.far.close()
        }
        duo.pump();
    });
}

fn regions_leave_nothing<N: Nic>(fixture: &mut Fixture<N>) {
    leaves_nothing(|| {
        for access in [Access::Local, Access::RemoteRead, Access::RemoteWrite] {
            let region = fixture.region(64 << 10, access);
            if access != Access::Local {
                let shared = fixture.share(&region);
                let again = shared.clone();
                drop(shared);
                if access == Access::RemoteRead {
                    region.revoke();
                }
                drop(again);
            }
        }
    });
}

fn refused_facts_leave_nothing<N: Nic>(fixture: &mut Fixture<N>) {
    leaves_nothing(|| {
        let region = fixture.region(4096, Access::RemoteRead);
        let mut facts = fixture.far.grant(&region).unwrap();
        facts.bytes.pop();
        assert!(fixture.near.import(facts).is_err());
        let mut end = End::new(&fixture.nic, &fixture.near, &fixture.config(Rc));
        let other = End::new(&fixture.nic, &fixture.far, &fixture.config(Rc));
        let mut facts = other.queue_pair.facts(&fixture.far).unwrap();
        facts.bytes.pop();
        assert!(end.queue_pair.connect(facts).is_err());
    });
}

fn many_at_once_work<N: Nic>(fixture: &mut Fixture<N>) {
    let before = held().0;
    let others: Vec<_> = (0..40).map(|_| fixture.another()).collect();
    let mut duos: Vec<_> =
        others.iter().flat_map(|other| [other.duo(Rc), other.duo(Uc), other.duo(Ud)]).collect();
    let region = fixture.region(64 << 10, Access::Local);
    for (index, duo) in duos.iter_mut().enumerate() {
        duo.far.receive(index as u64, &region, index * 128, 128);
    }
    for duo in &mut duos {
        duo.send_inline(1, b"to one of many");
    }
    for (index, duo) in duos.iter_mut().enumerate().rev() {
        duo.received_well(index as u64, 14, None);
        duo.sent_well(1, Opcode::Send);
    }
    drop((duos, others));
    wait("what was opened to be closed", || (held().0 <= before).then_some(()));
}
