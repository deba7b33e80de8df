//! Which layouts of an object a reader may trust on which NIC: versions at the front and the back (Cell, Mitchell §4.3)
//! need READs in increasing order, versions per line (FaRM) need READs that are atomic per line, checksums need neither.

use locus_fabric::{
    Access, Completion, CompletionQueue, Link, LocalSlice, Nic, PagePolicy, QueuePair, QueuePairConfig,
    ReadOrder, Region, RemoteSlice, SendRequest, Status, Verb,
    sim::{Adversary, NicModel, SimNic, SimRegion, SimulationConfig, simulate},
};
use locus_memory::checksum;
use locus_runtime::thread;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const LINES: usize = 4;
const LINE_WORDS: usize = 8;
const WORDS: usize = LINES * LINE_WORDS;

/// How an object tells whether it is whole.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    FrontAndBack,
    PerLine,
    Checksum,
}

/// A version while its line is being written.
const LOCKED: u64 = u64::MAX;

impl Layout {
    /// Which words are data: all others hold versions or the checksum.
    fn is_data(self, index: usize) -> bool {
        match self {
            Self::FrontAndBack => index != 0 && index != WORDS - 1,
            Self::PerLine => !index.is_multiple_of(LINE_WORDS),
            Self::Checksum => index != WORDS - 1,
        }
    }

    /// Writes a value, all of whose data words are alike.
    fn store(self, region: &SimRegion, value: u64) {
        let data = |range: std::ops::Range<usize>| {
            range.filter(|index| self.is_data(*index)).for_each(|index| region.store(index, value));
        };
        match self {
            // A reader that goes from the front to the back meets them the other way round.
            Self::FrontAndBack => {
                region.store(WORDS - 1, value);
                data(0..WORDS);
                region.store(0, value);
            }
            Self::PerLine => {
                for line in 0..LINES {
                    region.store(line * LINE_WORDS, LOCKED);
                    data(line * LINE_WORDS..(line + 1) * LINE_WORDS);
                    region.store(line * LINE_WORDS, value);
                }
            }
            Self::Checksum => {
                data(0..WORDS);
                region.store(WORDS - 1, sum_of(&[value; WORDS - 1]));
            }
        }
    }

    /// Whether the object says that it is whole.
    fn trusts(self, words: &[u64]) -> bool {
        match self {
            Self::FrontAndBack => words[0] == words[WORDS - 1],
            Self::PerLine => {
                words[0] != LOCKED && words.iter().step_by(LINE_WORDS).all(|version| *version == words[0])
            }
            Self::Checksum => sum_of(&words[..WORDS - 1]) == words[WORDS - 1],
        }
    }

    /// Whether it is.
    fn is_whole(self, words: &[u64]) -> bool {
        let mut data =
            words.iter().enumerate().filter(|(index, _)| self.is_data(*index)).map(|(_, word)| *word);
        let first = data.next();
        data.all(|word| Some(word) == first)
    }
}

fn sum_of(words: &[u64]) -> u64 {
    checksum(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())
}

/// What came of READs: how many were trusted, and how many of those were torn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Seen {
    trusted: u64,
    deceived: u64,
}

const READS: u64 = 400;

/// READs an object while it is written over and over.
fn race(layout: Layout) -> Seen {
    let nic = SimNic::open();
    let region = nic.register(4096, Access::RemoteRead, PagePolicy::Base).unwrap();
    layout.store(&region, 1);
    let done = Arc::new(AtomicBool::new(false));
    let writer = thread::spawn("writer", {
        let (region, done) = (region.clone(), done.clone());
        move || {
            for value in 2.. {
                layout.store(&region, value);
                thread::sleep(Duration::from_nanos(300));
                if done.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    });
    let seen = read_often(&nic, &region, layout);
    done.store(true, Ordering::Relaxed);
    writer.unwrap().join().unwrap();
    seen
}

fn read_often(nic: &SimNic, region: &SimRegion, layout: Layout) -> Seen {
    let (near, far) = nic.pair().unwrap();
    let ours = nic.register(4096, Access::Local, PagePolicy::Base).unwrap();
    let shared = near.import(far.grant(region).unwrap()).unwrap();
    let mut queue = nic.create_completion_queue(16).unwrap();
    let config = QueuePairConfig::default();
    let mut asks = nic.create_queue_pair(&near, &config, &queue, &queue).unwrap();
    let mut answers = nic.create_queue_pair(&far, &config, &queue, &queue).unwrap();
    let (near_facts, far_facts) = (asks.facts(&near).unwrap(), answers.facts(&far).unwrap());
    asks.connect(far_facts).unwrap();
    answers.connect(near_facts).unwrap();
    let mut seen = Seen::default();
    for id in 0..READS {
        let into = LocalSlice { region: &ours, offset: 0, bytes: WORDS * 8 };
        let from = RemoteSlice { region: &shared, offset: 0 };
        asks.post_send(&SendRequest { id, verb: Verb::Read { into, from }, signaled: true }).unwrap();
        asks.ring().unwrap();
        let mut completion = [Completion::EMPTY];
        while queue.poll(&mut completion) == 0 {}
        assert_eq!(completion[0].status, Status::Success);
        let words: Vec<u64> = ours.words()[..WORDS].iter().map(|word| word.load(Ordering::Relaxed)).collect();
        if layout.trusts(&words) {
            seen.trusted += 1;
            seen.deceived += u64::from(!layout.is_whole(&words));
        }
    }
    seen
}

fn seen_on(layout: Layout, nic: &NicModel) -> Seen {
    let mut all = Seen::default();
    for seed in 0..10 {
        let config = SimulationConfig {
            seed,
            nic: nic.clone(),
            adversary: Adversary { preempts: 0.1, pause_ns: 500, ..Adversary::of_memory() },
            ..SimulationConfig::default()
        };
        let seen = simulate(config, move || race(layout)).unwrap().value;
        all = Seen { trusted: all.trusted + seen.trusted, deceived: all.deceived + seen.deceived };
    }
    // What always says no is of no use.
    assert!(all.trusted > 10 * READS / 100, "{layout:?} on {nic:?}: {all:?}");
    all
}

#[test]
fn each_layout_is_right_on_just_the_nics_that_it_needs() {
    for read_order in [ReadOrder::Increasing, ReadOrder::Unordered] {
        for read_atomicity_bytes in [8, 64] {
            let nic = NicModel { read_order, read_atomicity_bytes, ..NicModel::default() };
            for layout in [Layout::FrontAndBack, Layout::PerLine, Layout::Checksum] {
                let seen = seen_on(layout, &nic);
                println!("{layout:?} on {nic:?}: {seen:?}");
                let right = match layout {
                    Layout::FrontAndBack => read_order == ReadOrder::Increasing,
                    Layout::PerLine => read_atomicity_bytes == 64,
                    Layout::Checksum => true,
                };
                assert_eq!(seen.deceived == 0, right, "{layout:?} on {nic:?}: {seen:?}");
            }
        }
    }
}
