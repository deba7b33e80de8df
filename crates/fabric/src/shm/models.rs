//! Model checks of what x86 hides: the ring, the sleep flag and revocation under every order of events and every value
//! that the memory model lets a load return.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p locus-fabric --lib models`, best with a target directory of its own
//!
//! Each model is also run with the piece taken out that it is about, and must then fail. Loom knows no membarrier, so it
//! stands here as a sequentially consistent fence on both sides, which is what it amounts to: the sleeper's system call is
//! a full fence on its own processor, and makes the sender's processor pass one somewhere between two instructions. The
//! model puts that one between the sender's store and its load; anywhere else in the sender it is before the store, when
//! the sender's load comes after it too and sees the flag, or after the load, when the store is before it too and is
//! seen.

use super::{
    control,
    ring::{Consumer, HEAD_WORDS, LINE_WORDS, Producer, Ring},
    sleep,
    word::Word,
};
use loom::{
    sync::{
        Arc, Notify,
        atomic::{AtomicU64, fence},
    },
    thread,
};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The lengths of the messages, in lines: with four lines in the ring the last one wraps.
const LENGTHS: [u64; 3] = [1, 2, 2];
const LINES: u64 = 4;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn words() -> Arc<Vec<AtomicU64>> {
    Arc::new((0..HEAD_WORDS + LINES as usize * LINE_WORDS).map(|_| AtomicU64::new(0)).collect())
}

/// A header that says which message it is and how long; every word of a payload looks like one.
fn header(message: usize) -> u64 {
    (message as u64 + 1) << 8 | LENGTHS[message]
}

fn payload(message: usize, word: usize) -> u64 {
    0xF00 + (message * 16 + word) as u64
}

fn payload_words(message: usize) -> usize {
    LENGTHS[message] as usize * LINE_WORDS - 1
}

/// What the model takes out.
#[derive(Clone, Copy, PartialEq)]
enum Broken {
    Nothing,
    /// The zero behind a message.
    Zero,
    /// Waiting for the line of the next header, besides those of the message.
    Room,
}

fn send(ring: &Ring<'_, AtomicU64>, producer: &mut Producer, message: usize, broken: Broken) {
    let lines = LENGTHS[message];
    let room = if broken == Broken::Room { lines - 1 } else { lines };
    while !producer.reserve(ring, room).unwrap() {
        thread::yield_now();
    }
    let start = ring.word_of(producer.position());
    for word in 0..payload_words(message) {
        let place = (start + 1 + word) & (ring.data.len() - 1);
        ring.data[place].store(payload(message, word), Relaxed);
    }
    if broken == Broken::Zero {
        producer.publish_without_zero(ring, lines, header(message));
    } else {
        producer.publish(ring, lines, header(message));
    }
}

fn receive(ring: &Ring<'_, AtomicU64>, consumer: &mut Consumer, message: usize) {
    let found = loop {
        match consumer.peek(ring) {
            0 => thread::yield_now(),
            found => break found,
        }
    };
    assert_eq!(found, header(message), "a header");
    let start = ring.word_of(consumer.position());
    for word in 0..payload_words(message) {
        let place = (start + 1 + word) & (ring.data.len() - 1);
        assert_eq!(ring.data[place].load(Relaxed), payload(message, word), "a payload");
    }
    consumer.advance(LENGTHS[message]);
    consumer.publish(ring);
}

fn ring_model(broken: Broken) {
    check(move || {
        let words = words();
        let theirs = words.clone();
        let sender = thread::spawn(move || {
            let ring = Ring::new(&theirs, LINES);
            let mut producer = Producer::default();
            (0..LENGTHS.len()).for_each(|message| send(&ring, &mut producer, message, broken));
        });
        let ring = Ring::new(&words, LINES);
        let mut consumer = Consumer::default();
        (0..LENGTHS.len()).for_each(|message| receive(&ring, &mut consumer, message));
        assert_eq!(consumer.peek(&ring), 0, "nothing follows the last message");
        sender.join().unwrap();
    });
}

#[test]
fn the_ring_delivers_every_message_as_it_was_sent() {
    ring_model(Broken::Nothing);
}

#[test]
#[should_panic(expected = "nothing follows")]
fn the_ring_needs_the_zero_behind_a_message() {
    ring_model(Broken::Zero);
}

#[test]
#[should_panic]
fn the_ring_needs_room_for_the_next_header() {
    ring_model(Broken::Room);
}

/// Two messages to a sleeper: a lost wake-up is a deadlock, which loom reports.
fn sleep_model(sender_fence: bool, sleeper_fence: bool) {
    check(move || {
        let words = words();
        let flag = Arc::new(AtomicU64::new(0));
        let bell = Arc::new(Notify::new());
        let (their_words, their_flag, their_bell) = (words.clone(), flag.clone(), bell.clone());
        let sender = thread::spawn(move || {
            let ring = Ring::new(&their_words, LINES);
            let (mut producer, mut woken) = (Producer::default(), 0);
            for message in 0..2 {
                assert!(producer.reserve(&ring, 1).unwrap());
                producer.publish(&ring, 1, message + 1);
                if sender_fence {
                    fence(SeqCst);
                }
                if sleep::must_wake(&*their_flag, &mut woken) {
                    their_bell.notify();
                }
            }
        });
        let ring = Ring::new(&words, LINES);
        let mut consumer = Consumer::default();
        let mut received = 0;
        while received < 2 {
            if consumer.peek(&ring) == 0 {
                sleep::announce(&*flag);
                if sleeper_fence {
                    fence(SeqCst);
                }
                if consumer.peek(&ring) == 0 {
                    bell.wait();
                }
                sleep::withdraw(&*flag);
                continue;
            }
            received += 1;
            assert_eq!(consumer.peek(&ring), received);
            consumer.advance(1);
            consumer.publish(&ring);
        }
        sender.join().unwrap();
    });
}

#[test]
fn no_wake_up_is_lost() {
    sleep_model(true, true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_wake_up_is_lost_without_the_fence_of_the_sleeper() {
    sleep_model(true, false);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_wake_up_is_lost_without_the_fence_of_the_sender() {
    sleep_model(false, true);
}

const SECRET: u64 = 2;
const TOKEN: u64 = 9;

/// An owner takes a region back and uses its memory anew; a peer READs meanwhile.
fn revocation_model(take_back: fn(&AtomicU64), look: fn(&AtomicU64) -> bool) {
    check(move || {
        let words = Arc::new((AtomicU64::new(TOKEN), AtomicU64::new(1)));
        let theirs = words.clone();
        let owner = thread::spawn(move || {
            take_back(&theirs.0);
            theirs.1.store(SECRET, Relaxed);
        });
        let data = words.1.load(Relaxed);
        assert!(!(look(&words.0) && data == SECRET), "a READ of revoked memory succeeded");
        owner.join().unwrap();
    });
}

#[test]
fn no_read_of_revoked_memory_succeeds() {
    revocation_model(control::revoke, |word| control::stands(word, TOKEN));
}

#[test]
#[should_panic(expected = "succeeded")]
fn revocation_needs_the_fence_of_the_owner() {
    revocation_model(|word| Word::store(word, 0, Relaxed), |word| control::stands(word, TOKEN));
}

#[test]
#[should_panic(expected = "succeeded")]
fn revocation_needs_the_fence_of_the_peer() {
    revocation_model(control::revoke, |word| Word::load(word, Relaxed) == TOKEN);
}
