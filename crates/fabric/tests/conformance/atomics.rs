//! Compare-and-swap and fetch-and-add: what they return and store, alignment, and that none is lost between threads.
//! On a NIC without atomics they are refused, which is what these cases then assert.

use crate::{
    Case,
    fixture::{End, Fixture, bytes_of, compare_swap, fetch_add, local, remote},
    legality::is_illegal,
    list,
};
use locus_fabric::{
    Access, Atomicity, Link, Nic, Opcode, PagePolicy, PostError, QueuePair, QueuePairState, Region, Status,
    Transport::*,
};
use std::sync::atomic::Ordering;

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "rc::compare_swap_swaps_when_equal" => compare_swap_swaps_when_equal,
        "rc::fetch_add_adds_and_wraps" => fetch_add_adds_and_wraps,
        "rc::atomics_work_on_any_aligned_word" => atomics_work_on_any_aligned_word,
        "rc::misaligned_atomics_are_refused" => misaligned_atomics_are_refused,
        "rc::fetch_adds_of_two_threads_all_count" => fetch_adds_of_two_threads_all_count,
        "rc::compare_swaps_of_two_threads_exclude_each_other" => compare_swaps_of_two_threads_exclude_each_other,
        "rc::atomics_with_the_cpu_are_as_declared" => atomics_with_the_cpu_are_as_declared,
    ]
}

/// Where the NIC has no atomics: asserts that it refuses them and says true, so that the case ends.
fn refused<N: Nic>(fixture: &Fixture<N>) -> bool {
    if fixture.nic.properties().atomics != Atomicity::None {
        return false;
    }
    let region = fixture.region(4096, Access::RemoteWrite);
    let shared = fixture.share(&region);
    let mut duo = fixture.duo(Rc);
    is_illegal(&mut duo.near, &compare_swap(1, local(&region, 0, 8), remote(&shared, 0), 0, 1));
    is_illegal(&mut duo.near, &fetch_add(1, local(&region, 0, 8), remote(&shared, 0), 1));
    true
}

fn word_of<R: Region>(region: &R, offset: usize) -> u64 {
    u64::from_le_bytes(bytes_of(region, offset, 8).try_into().unwrap())
}

fn compare_swap_swaps_when_equal<N: Nic>(fixture: &mut Fixture<N>) {
    if refused(fixture) {
        return;
    }
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    let values = [0, 1, u64::MAX, 0x0102_0304_0506_0708, 1 << 63, u64::from(u32::MAX)];
    for old in values {
        for expected in values {
            theirs.store(5, old);
            theirs.store(4, 44);
            theirs.store(6, 66);
            duo.near.post(&compare_swap(1, local(&ours, 16, 8), remote(&shared, 40), expected, 0xD00D));
            duo.sent_well(1, Opcode::Atomic);
            let now = if old == expected { 0xD00D } else { old };
            assert_eq!(theirs.words()[5].load(Ordering::Relaxed), now, "{old:x} {expected:x}");
            assert_eq!(word_of(&ours, 16), old);
            assert_eq!((word_of(&theirs, 32), word_of(&theirs, 48)), (44, 66), "the neighbours");
            assert_eq!((word_of(&ours, 8), word_of(&ours, 24)), (0, 0), "the buffer's neighbours");
        }
    }
    duo.is_well();
}

fn fetch_add_adds_and_wraps<N: Nic>(fixture: &mut Fixture<N>) {
    if refused(fixture) {
        return;
    }
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    let values = [0, 1, u64::MAX, 0x0102_0304_0506_0708, 1 << 63, u64::from(u32::MAX)];
    for old in values {
        for add in values {
            theirs.store(5, old);
            theirs.store(6, 66);
            duo.near.post(&fetch_add(1, local(&ours, 16, 8), remote(&shared, 40), add));
            duo.sent_well(1, Opcode::Atomic);
            assert_eq!(theirs.words()[5].load(Ordering::Relaxed), old.wrapping_add(add));
            assert_eq!(word_of(&ours, 16), old);
            assert_eq!(word_of(&theirs, 48), 66, "a carry must not leave the word");
        }
    }
    duo.is_well();
}

fn atomics_work_on_any_aligned_word<N: Nic>(fixture: &mut Fixture<N>) {
    if refused(fixture) {
        return;
    }
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    for index in 0..512_u64 {
        let at = index as usize * 8;
        duo.near.post(&fetch_add(1, local(&ours, at, 8), remote(&shared, at), index));
        duo.near.post(&compare_swap(2, local(&ours, at, 8), remote(&shared, at), index, index << 20));
        duo.sent_well(1, Opcode::Atomic);
        duo.sent_well(2, Opcode::Atomic);
        assert_eq!(word_of(&ours, at), index);
    }
    for index in 0..512_u64 {
        assert_eq!(word_of(&theirs, index as usize * 8), index << 20);
    }
}

fn misaligned_atomics_are_refused<N: Nic>(fixture: &mut Fixture<N>) {
    if refused(fixture) {
        return;
    }
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(Rc);
    for offset in [1, 2, 4, 7, 9, 4095] {
        let swap = compare_swap(1, local(&ours, 0, 8), remote(&shared, offset), 0, 1);
        assert_eq!(duo.near.refused(&swap), PostError::Misaligned, "word at {offset}");
        let add = fetch_add(1, local(&ours, 0, 8), remote(&shared, offset), 1);
        assert_eq!(duo.near.refused(&add), PostError::Misaligned, "word at {offset}");
    }
    for bytes in [0, 1, 4, 7, 9, 16] {
        let swap = compare_swap(1, local(&ours, 0, bytes), remote(&shared, 0), 0, 1);
        assert_eq!(duo.near.refused(&swap), PostError::Misaligned, "buffer of {bytes}");
        let add = fetch_add(1, local(&ours, 0, bytes), remote(&shared, 0), 1);
        assert_eq!(duo.near.refused(&add), PostError::Misaligned, "buffer of {bytes}");
    }
    assert_eq!(bytes_of(&theirs, 0, 4096), vec![0; 4096]);
    assert_eq!(duo.near.queue_pair.state(), QueuePairState::Ready);
    duo.near.post(&fetch_add(2, local(&ours, 0, 8), remote(&shared, 0), 1));
    duo.sent_well(2, Opcode::Atomic);
}

/// Runs a body on two threads, each with a connected queue pair of its own over a link of its own, and a region of the
/// far end that both reach.
fn on_two_threads<N: Nic>(
    fixture: &Fixture<N>,
    theirs: &N::Region,
    body: impl Fn(&mut End<N>, &N::RemoteRegion, u64) + Sync,
) {
    crate::scope::scope(|scope| {
        for thread in 0..2 {
            let other = fixture.another();
            let body = &body;
            scope.spawn(move || {
                let shared = other.share(theirs);
                // The far end is not polled: atomics need nothing of it.
                let mut duo = other.duo(Rc);
                body(&mut duo.near, &shared, thread);
                assert!(other.near.alive());
            });
        }
    });
}

const ROUNDS: u64 = 20_000;

fn fetch_adds_of_two_threads_all_count<N: Nic>(fixture: &mut Fixture<N>) {
    if refused(fixture) {
        return;
    }
    let theirs = fixture.region(4096, Access::RemoteWrite);
    on_two_threads(fixture, &theirs, |end, shared, thread| {
        let ours = end.nic.register(64, Access::Local, PagePolicy::Base).unwrap();
        let mut last = None;
        for id in 0..ROUNDS {
            end.post(&fetch_add(id, local(&ours, 0, 8), remote(shared, 8), 1 + thread * (1 << 32)));
            assert_eq!(end.sent().status, Status::Success);
            let old = word_of(&ours, 0);
            assert!(last < Some(old), "{old} is not after {last:?}");
            last = Some(old);
        }
    });
    assert_eq!(theirs.words()[1].load(Ordering::Relaxed), ROUNDS * (2 + (1 << 32)));
}

fn compare_swaps_of_two_threads_exclude_each_other<N: Nic>(fixture: &mut Fixture<N>) {
    if refused(fixture) {
        return;
    }
    let theirs = fixture.region(4096, Access::RemoteWrite);
    on_two_threads(fixture, &theirs, |end, shared, _| {
        let ours = end.nic.register(64, Access::Local, PagePolicy::Base).unwrap();
        let (mut swapped, mut seen) = (0, 0);
        while swapped < ROUNDS / 2 {
            end.post(&compare_swap(seen, local(&ours, 0, 8), remote(shared, 16), seen, seen + 1));
            assert_eq!(end.sent().status, Status::Success);
            let old = word_of(&ours, 0);
            swapped += u64::from(old == seen);
            seen = if old == seen { seen + 1 } else { old };
        }
    });
    assert_eq!(theirs.words()[2].load(Ordering::Relaxed), ROUNDS);
}

fn atomics_with_the_cpu_are_as_declared<N: Nic>(fixture: &mut Fixture<N>) {
    if refused(fixture) {
        return;
    }
    let theirs = fixture.region(4096, Access::RemoteWrite);
    let global = fixture.nic.properties().atomics == Atomicity::Global;
    // Among NICs only, the CPU must keep to another word; then both sums are exact.
    let cpu_word = if global { 3 } else { 4 };
    crate::scope::scope(|scope| {
        let words = theirs.clone();
        scope.spawn(move || {
            for _ in 0..ROUNDS {
                words.words()[cpu_word].fetch_add(1 << 32, Ordering::Relaxed);
            }
        });
        on_two_threads(fixture, &theirs, |end, shared, _| {
            let ours = end.nic.register(64, Access::Local, PagePolicy::Base).unwrap();
            for id in 0..ROUNDS {
                end.post(&fetch_add(id, local(&ours, 0, 8), remote(shared, 24), 1));
                assert_eq!(end.sent().status, Status::Success);
            }
        });
    });
    let sum = theirs.words()[3].load(Ordering::Relaxed);
    assert_eq!(sum, 2 * ROUNDS + if global { ROUNDS << 32 } else { 0 });
}
