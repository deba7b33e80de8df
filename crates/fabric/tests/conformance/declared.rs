//! What a NIC declares of itself holds: probes that race a NIC with the processor, and look for what must not be seen.
//!
//! A probe cannot prove an order, but a NIC that declares more than it does fails it soon. Where less is declared, the
//! weaker promise is asserted: that each aligned word is one that was stored.

use crate::{
    Case,
    fixture::{Duo, Fixture, bytes_of, local, pattern, read, remote, slice, wait, write},
    list,
};
use locus_fabric::{Access, Nic, Opcode, Payload, QueuePair, ReadOrder, Region, Transport, Transport::*};
use locus_runtime::{thread, world};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "properties::are_sane" => properties_are_sane,
        "properties::words_are_never_torn_by_read" => words_are_never_torn_by_read,
        "properties::read_atomicity_is_as_declared" => read_atomicity_is_as_declared,
        "properties::read_order_is_as_declared" => read_order_is_as_declared,
        "properties::write_order_is_as_declared_over_rc" => |f| write_order_is_as_declared(f, Rc),
        "properties::write_order_is_as_declared_over_uc" => |f| write_order_is_as_declared(f, Uc),
        "properties::writes_beside_each_other_both_stay" => writes_beside_each_other_both_stay,
    ]
}

fn properties_are_sane<N: Nic>(fixture: &mut Fixture<N>) {
    let properties = fixture.nic.properties();
    assert!(["shm", "verbs", "sim"].contains(&properties.provider));
    assert!(properties.read_atomicity_bytes.is_power_of_two());
    assert!(properties.inline_bytes_max >= 32, "a slot's trailing word and a small message");
    assert!((256..=64 << 10).contains(&properties.datagram_bytes_max), "an MTU");
    assert!(properties.message_bytes_max >= properties.datagram_bytes_max);
    assert!(properties.transfer_bytes_max >= properties.message_bytes_max);
    assert!(properties.queue_depth_max >= 128 && properties.completions_max >= properties.queue_depth_max);
    assert!(properties.reads_outstanding_max >= 1);
}

/// How many READs or WRITEs a probe makes at least, how many of them must overlap with what the other thread does, and
/// how many it makes at most, where the machine does not run the two threads at the same time.
const ROUNDS: u64 = 2000;
const OVERLAPS: u64 = 2000;
const ROUNDS_MAX: u64 = 200_000;

/// Decides how long a probe goes on.
struct Overlap<'a> {
    /// What the other thread has done so far.
    other: &'a AtomicU64,
    seen: u64,
    overlaps: u64,
    rounds: u64,
}

impl<'a> Overlap<'a> {
    fn with(other: &'a AtomicU64) -> Self {
        Self { other, seen: 0, overlaps: 0, rounds: 0 }
    }

    /// Whether another round is needed. To be called once a round.
    fn next(&mut self) -> bool {
        let now = self.other.load(Ordering::Relaxed);
        self.overlaps += u64::from(now != self.seen);
        self.seen = now;
        self.rounds += 1;
        self.rounds <= ROUNDS || (self.overlaps < OVERLAPS && self.rounds <= ROUNDS_MAX)
    }
}

/// Stores the same two halves into each word.
fn doubled(round: u64) -> u64 {
    round << 32 | round
}

/// Takes the two equal halves apart. None of a word that is torn, which is an error where words are atomic.
fn halved(word: u64, atomic: bool) -> Option<u64> {
    let whole = word >> 32 == word & 0xFFFF_FFFF;
    assert!(whole || !atomic, "a torn word: {word:016x}");
    whole.then_some(word >> 32)
}

/// Whether READs and WRITEs of this NIC carry words whole.
fn words_are_atomic<N: Nic>(fixture: &Fixture<N>) -> bool {
    fixture.nic.properties().read_atomicity_bytes >= 8
}

/// READs `bytes` at an offset many times while another thread stores round after round through `store_round`, and
/// shows the rounds of each READ's whole words to `check`, with the last round that was begun. A word that was torn, on
/// NICs that may do that, has no round.
fn race_reads<N: Nic>(
    fixture: &Fixture<N>,
    (from, into, bytes): (usize, usize, usize),
    store_round: impl Fn(&N::Region, u64) + Send,
    check: impl Fn(&[Option<u64>], u64),
) {
    let atomic = words_are_atomic(fixture);
    let (ours, theirs) =
        (fixture.region(16 << 10, Access::Local), fixture.region(16 << 10, Access::RemoteRead));
    let shared = fixture.share(&theirs);
    let mut duo: Duo<N> = fixture.duo(Rc);
    let (begun, done) = (AtomicU64::new(0), AtomicBool::new(false));
    crate::scope::scope(|scope| {
        let (begun, done) = (&begun, &done);
        scope.spawn(move || {
            for round in 1.. {
                begun.store(round, Ordering::Release);
                store_round(&theirs, round);
                if done.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        // Ends the writer also when a check fails.
        let _end = End(done);
        wait("the writer", || (begun.load(Ordering::Acquire) > 2).then_some(()));
        let mut overlap = Overlap::with(begun);
        while overlap.next() {
            let id = overlap.rounds;
            // What is declared holds for both kinds of READ.
            let theirs_at = remote(&shared, from);
            let mut copy = vec![0; bytes];
            let at_once = id % 2 == 1 && duo.near.queue_pair.read_at_once(&mut copy, &theirs_at);
            if !at_once {
                duo.near.post(&read(id, local(&ours, into, bytes), theirs_at));
                duo.sent_well(id, Opcode::Read);
            }
            let last = begun.load(Ordering::Acquire);
            if !at_once {
                copy = bytes_of(&ours, into, bytes);
            }
            let words = copy[from.wrapping_neg() % 8..].as_chunks::<8>().0;
            let rounds: Vec<_> = words.iter().map(|word| halved(u64::from_le_bytes(*word), atomic)).collect();
            check(&rounds, last);
        }
    });
}

/// Simulated threads take turns: one that neither polls nor stores has to make way.
fn breathe() {
    if world::is_simulated() {
        thread::yield_now();
    }
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn words_are_never_torn_by_read<N: Nic>(fixture: &mut Fixture<N>) {
    for shape in [(0, 0, 512), (8, 16, 8), (3, 0, 301), (64, 5, 200), (61, 62, 77), (4, 4, 12)] {
        let store_round =
            |region: &N::Region, round| (0..80).for_each(|index| region.store(index, doubled(round)));
        race_reads(fixture, shape, store_round, |rounds, last| {
            assert!(rounds.iter().flatten().all(|&round| round <= last), "words from the future");
        });
    }
}

fn read_atomicity_is_as_declared<N: Nic>(fixture: &mut Fixture<N>) {
    let words_a_piece = (fixture.nic.properties().read_atomicity_bytes / 8).max(1);
    let bytes = words_a_piece * 8 * 8;
    // Words are stored in increasing order, so at any instant the words of a piece are some of this round followed by
    // the rest of the round before.
    let store_round = |region: &N::Region, round| {
        for index in 0..bytes / 8 {
            region.store(index, doubled(round));
            region.release();
        }
    };
    race_reads(fixture, (0, 0, bytes), store_round, |rounds, _| {
        for piece in rounds.chunks_exact(words_a_piece) {
            let whole: Vec<u64> = piece.iter().copied().flatten().collect();
            assert!(whole.is_sorted_by(|left, right| left >= right), "{piece:?}");
            assert!(whole.is_empty() || whole[0] - whole[whole.len() - 1] <= 1, "{piece:?}");
        }
    });
}

fn read_order_is_as_declared<N: Nic>(fixture: &mut Fixture<N>) {
    let increasing = fixture.nic.properties().read_order == ReadOrder::Increasing;
    for bytes in [64, 1024, 8192] {
        // Words are stored from the last to the first: whoever samples from the first to the last never sees a word
        // that is older than the one before it.
        let store_round = |region: &N::Region, round| {
            for index in (0..bytes / 8).rev() {
                region.store(index, doubled(round));
                region.release();
            }
        };
        race_reads(fixture, (0, 0, bytes), store_round, |rounds, last| {
            let rounds: Vec<u64> = rounds.iter().copied().flatten().collect();
            assert!(rounds.iter().all(|&round| round <= last), "words from the future");
            assert!(!increasing || rounds.is_sorted(), "sampled out of order: {rounds:?}");
        });
    }
}

fn write_order_is_as_declared<N: Nic>(fixture: &mut Fixture<N>, transport: Transport) {
    const WORDS: usize = 512;
    let (in_order, atomic) = (fixture.nic.properties().write_in_order, words_are_atomic(fixture));
    let (ours, theirs) = (fixture.region(4096, Access::Local), fixture.region(4096, Access::RemoteWrite));
    let shared = fixture.share(&theirs);
    let mut duo = fixture.duo(transport);
    let (begun, looks, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    crate::scope::scope(|scope| {
        let (begun, looks, done) = (&begun, &looks, &done);
        let observer = scope.spawn(move || {
            while !done.load(Ordering::Acquire) {
                // Looking from the last word to the first, no word may be older than the one behind it.
                let mut behind = 0;
                for word in theirs.words()[..WORDS].iter().rev() {
                    let Some(round) = halved(word.load(Ordering::Acquire), atomic) else { continue };
                    assert!(!in_order || round >= behind, "round {round} before round {behind}");
                    behind = round;
                }
                assert!(behind <= begun.load(Ordering::Acquire), "a word from the future");
                breathe();
                looks.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _end = End(done);
        let mut overlap = Overlap::with(looks);
        while overlap.next() && !observer.is_finished() {
            let round = overlap.rounds;
            begun.store(round, Ordering::Release);
            (0..WORDS).for_each(|index| ours.store(index, doubled(round)));
            duo.near.post(&write(round, slice(&ours, 0, WORDS * 8), remote(&shared, 0)));
            duo.sent_well(round, Opcode::Write);
        }
        done.store(true, Ordering::Release);
        observer.join().expect("the observer saw what was declared");
    });
}

fn writes_beside_each_other_both_stay<N: Nic>(fixture: &mut Fixture<N>) {
    // Two peers write the bytes of the same words, each its own: neither may write back old bytes of the other.
    let theirs = fixture.region(4096, Access::RemoteWrite);
    let shares = [(0, 13), (13, 22)];
    let progress = [AtomicU64::new(0), AtomicU64::new(0)];
    crate::scope::scope(|scope| {
        for (index, (from, to)) in shares.into_iter().enumerate() {
            let (other, theirs, progress) = (fixture.another(), theirs.clone(), &progress);
            scope.spawn(move || {
                let shared = other.share(&theirs);
                let mut duo = other.duo(Rc);
                let mut overlap = Overlap::with(&progress[1 - index]);
                while overlap.next() {
                    let round = overlap.rounds;
                    let bytes = pattern(round, to - from);
                    duo.near.post(&write(round, Payload::Inline(&[&bytes]), remote(&shared, from)));
                    duo.sent_well(round, Opcode::Write);
                    assert_eq!(bytes_of(&theirs, from, bytes.len()), bytes, "round {round}");
                    progress[index].store(round, Ordering::Relaxed);
                }
            });
        }
    });
    for (progress, (from, to)) in progress.iter().zip(shares) {
        let last = pattern(progress.load(Ordering::Relaxed), to - from);
        assert_eq!(bytes_of(&theirs, from, to - from), last);
    }
    assert_eq!(bytes_of(&theirs, 22, 100), vec![0; 100]);
}
