//! Reads by READs against an interface that the test controls: when they post, when they poll, whose buffers are whose.

mod scripted;

use locus_fabric::{
    Facts, LocalSlice, Nic, Park, QueuePair, QueuePairConfig, Region, RemoteSlice, SendRequest, Status, Verb,
};
use locus_memory::testing::{HeapRegion, block_on, ready};
use locus_memory::{BufferPool, Memory, MemoryError, Pointer, RegionId, Remote, RemoteConfig};
use scripted::{Call, Remotely, ScriptedLink, ScriptedNic};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};
use std::task::{Context, Poll, Wake, Waker};

fn id(number: usize) -> RegionId {
    RegionId::new(number).unwrap()
}

fn at(offset: usize) -> Pointer {
    Pointer::new(id(3), offset)
}

/// The byte at an offset of the region that [`connected`] lets be read.
fn byte(offset: usize) -> u8 {
    (offset as u32).wrapping_mul(0x9e37_79b9).to_be_bytes()[0]
}

fn bytes(offset: usize, count: usize) -> Vec<u8> {
    (offset..offset + count).map(byte).collect()
}

const REGION_BYTES: usize = 1 << 20;

fn connected(nic: &ScriptedNic, config: RemoteConfig) -> Remote<ScriptedNic> {
    let region = HeapRegion::new(REGION_BYTES);
    region.copy_in(0, &bytes(0, REGION_BYTES));
    let mut remote = Remote::new(nic, &ScriptedLink(nic.clone()), config).unwrap();
    assert_eq!(ready(remote.read(at(0), 8)).err(), Some(MemoryError::UnknownRegion(id(3))));
    assert!(!remote.region_known(id(3)));
    remote.add_region(id(3), Remotely(region, nic.script.clone()));
    assert!(remote.region_known(id(3)));
    assert_eq!(
        ready(remote.read(at(0), 8)).err(),
        Some(MemoryError::Failed(Status::Flushed)),
        "not connected"
    );
    remote.connect(Facts::default()).unwrap();
    nic.calls();
    remote
}

fn once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_lone_read_completes_at_once() {
    let nic = ScriptedNic::new(1 << 30);
    let remote = connected(&nic, RemoteConfig::default());
    for count in [0, 1, 32, 4096, 4097, 100_000, 500_000] {
        assert_eq!(*ready(remote.read(at(4096), count)).unwrap(), bytes(4096, count));
    }
    nic.calls();
    ready(remote.read(at(16), 32)).unwrap();
    assert_eq!(nic.calls(), [Call::Post, Call::Ring, Call::Poll(1)]);
    assert_eq!(remote.counters().reads, 7);
    assert_eq!(remote.counters().bytes, 32 + 1 + 32 + 4096 + 4097 + 600_000);
    assert!(remote.prepare(), "nothing is under way");
}

#[test]
fn a_lone_read_is_carried_out_at_once_where_that_can_be() {
    let nic = ScriptedNic::at_once(3000);
    let remote = connected(&nic, RemoteConfig::default());
    assert_eq!(*ready(remote.read(at(16), 100)).unwrap(), bytes(16, 100));
    assert_eq!(nic.calls(), [Call::AtOnce]);
    assert_eq!((remote.counters().reads, remote.counters().bytes), (1, 100));
    assert_eq!(*ready(remote.read(at(0), 3001)).unwrap(), bytes(0, 3001));
    assert_eq!(nic.calls(), [Call::Post, Call::Post, Call::Ring, Call::Poll(2)], "too long for one READ");
    {
        let _overlap = remote.overlap();
        let (mut first, mut second) = (pin!(remote.read(at(0), 8)), pin!(remote.read(at(16), 8)));
        assert!(once(first.as_mut()).is_pending() && once(second.as_mut()).is_pending());
        assert_eq!(nic.calls(), [Call::Prefetch(0, 8), Call::Prefetch(16, 8)]);
        assert_eq!(*ready(second).unwrap(), bytes(16, 8));
        assert_eq!(*ready(first).unwrap(), bytes(0, 8));
        assert_eq!(nic.calls(), [Call::AtOnce, Call::AtOnce]);
    }
    nic.script().status = Status::RemoteAccess;
    assert_eq!(ready(remote.read(at(0), 8)).err(), Some(MemoryError::Revoked(id(3))));
}

#[test]
fn overlapping_reads_all_post_before_any_polls() {
    let nic = ScriptedNic::new(1 << 30);
    let remote = connected(&nic, RemoteConfig::default());
    let overlap = remote.overlap();
    let mut reads: Vec<_> = (0..5).map(|number| Box::pin(remote.read(at(number * 64), 64))).collect();
    for read in &mut reads {
        assert!(once(read.as_mut()).is_pending());
    }
    assert_eq!(nic.calls(), [Call::Post; 5]);
    let done: Vec<_> = reads.iter_mut().map(|read| ready(read.as_mut()).unwrap()).collect();
    assert_eq!(nic.calls(), [Call::Ring, Call::Poll(5)]);
    for (number, found) in done.iter().enumerate() {
        assert_eq!(**found, bytes(number * 64, 64));
    }
    drop(overlap);
    ready(remote.read(at(0), 8)).expect("a read is alone again");
}

#[test]
fn a_core_that_goes_to_sleep_starts_its_reads_first() {
    let nic = ScriptedNic::new(1 << 30);
    let remote = connected(&nic, RemoteConfig::default());
    let _overlap = remote.overlap();
    let mut read = pin!(remote.read(at(0), 64));
    assert!(once(read.as_mut()).is_pending());
    assert!(!remote.prepare(), "the READ is under way");
    assert_eq!(nic.calls(), [Call::Post, Call::Ring]);
    assert_eq!(*ready(read).unwrap(), bytes(0, 64));
    assert_eq!(nic.calls(), [Call::Poll(1)], "the doorbell was rung");
}

#[test]
fn completions_are_a_reason_to_stay_awake() {
    let nic = ScriptedNic::new(1 << 30);
    let remote = connected(&nic, RemoteConfig::default());
    nic.script().allowed = 0;
    let (mut first, mut second) = (pin!(remote.read(at(0), 64)), pin!(remote.read(at(64), 64)));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert_eq!(woken.0.swap(0, SeqCst), 0, "nothing has happened");
    nic.script().allowed = 1;
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert_eq!(woken.0.swap(0, SeqCst), 1, "the first has its bytes and may go on");
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_second_read_lets_the_first_be_under_way() {
    let nic = ScriptedNic::new(1 << 30);
    let remote = connected(&nic, RemoteConfig::default());
    nic.script().allowed = 0;
    let (mut first, mut second) = (pin!(remote.read(at(0), 64)), pin!(remote.read(at(64), 64)));
    assert!(once(first.as_mut()).is_pending());
    assert!(once(second.as_mut()).is_pending());
    assert_eq!(nic.calls(), [Call::Post, Call::Ring, Call::Poll(0), Call::Post]);
    assert_eq!(remote.counters().empty_polls, 1);
    nic.script().allowed = 1;
    assert!(once(second.as_mut()).is_pending(), "the first READ completes first");
    assert_eq!(*ready(first).unwrap(), bytes(0, 64));
    nic.script().allowed = 1;
    assert_eq!(*ready(second).unwrap(), bytes(64, 64));
}

#[test]
fn a_read_given_up_keeps_its_buffer_until_its_read_completed() {
    let nic = ScriptedNic::new(1 << 30);
    let remote = connected(&nic, RemoteConfig { window: 1, ..RemoteConfig::default() });
    nic.script().allowed = 0;
    {
        let mut given_up = pin!(remote.read(at(0), 64));
        assert!(once(given_up.as_mut()).is_pending());
    }
    assert_eq!(ready(remote.read(at(64), 64)).err(), Some(MemoryError::NoBuffer(64)));
    // The next read looks for the completion of the one given up; then the buffer is free.
    nic.script().allowed = usize::MAX;
    assert_eq!(*block_on(remote.read(at(64), 64)).unwrap(), bytes(64, 64));
    let held = ready(remote.read(at(64), 64)).unwrap();
    assert_eq!(ready(remote.read(at(0), 64)).err(), Some(MemoryError::NoBuffer(64)));
    assert_eq!(*held, bytes(64, 64));
    drop(held);
    ready(remote.read(at(0), 64)).expect("the buffer is free again");
}

#[test]
fn large_objects_are_read_in_parts_and_wait_for_a_buffer() {
    let nic = ScriptedNic::new(3000);
    let remote = connected(&nic, RemoteConfig { window: 4, object_bytes_max: 300_000 });
    for count in [2999, 3000, 3001, 4096, 65_536, 70_001, 300_000] {
        assert_eq!(*block_on(remote.read(at(160), count)).unwrap(), bytes(160, count), "{count} bytes");
    }
    assert_eq!(ready(remote.read(at(0), 300_001)).err(), Some(MemoryError::NoBuffer(300_001)));
    let held: Vec<_> = (0..2).map(|_| block_on(remote.read(at(0), 100_000)).unwrap()).collect();
    let mut waiting = pin!(remote.read(at(16), 100_000));
    for _ in 0..3 {
        assert!(once(waiting.as_mut()).is_pending());
    }
    drop(held);
    assert_eq!(*block_on(waiting).unwrap(), bytes(16, 100_000));
}

#[test]
fn a_part_that_fails_fails_the_read() {
    let nic = ScriptedNic::new(3000);
    let remote = connected(&nic, RemoteConfig { window: 4, object_bytes_max: 300_000 });
    nic.script().allowed = 2;
    let mut read = pin!(remote.read(at(0), 10_000));
    assert!(once(read.as_mut()).is_pending());
    assert!(once(read.as_mut()).is_pending(), "two of four parts are no object");
    nic.script().status = Status::RemoteAccess;
    nic.script().allowed = 1;
    assert!(once(read.as_mut()).is_pending());
    nic.script().status = Status::Success;
    nic.script().allowed = 1;
    assert_eq!(ready(read).err(), Some(MemoryError::Revoked(id(3))));
}

#[test]
fn failures_have_names_and_a_reset_recovers() {
    let nic = ScriptedNic::new(1 << 30);
    let mut remote = connected(&nic, RemoteConfig::default());
    for (offset, count) in [(0, REGION_BYTES + 1), (REGION_BYTES, 1), (16, usize::MAX), (1 << 35, 1)] {
        let place = at(offset);
        remote.prefetch(place, count);
        assert_eq!(ready(remote.read(place, count)).err(), Some(MemoryError::OutOfRange(place, count)));
    }
    assert!(!nic.calls().contains(&Call::Post), "nothing was posted");
    nic.script().status = Status::RemoteAccess;
    assert_eq!(ready(remote.read(at(0), 8)).err(), Some(MemoryError::Revoked(id(3))));
    nic.script().status = Status::Flushed;
    assert_eq!(ready(remote.read(at(0), 8)).err(), Some(MemoryError::OwnerLost));
    assert!(remote.broken());
    remote.reset().unwrap();
    nic.script().status = Status::Success;
    remote.connect(Facts::default()).unwrap();
    assert!(!remote.broken());
    assert_eq!(*ready(remote.read(at(0), 8)).unwrap(), bytes(0, 8));

    assert_eq!(remote.current(), Ok(()));
    nic.alive.store(false, SeqCst);
    assert_eq!(remote.current(), Err(MemoryError::OwnerLost));
    nic.script().status = Status::Flushed;
    assert_eq!(ready(remote.read(at(0), 8)).err(), Some(MemoryError::OwnerLost));
}

#[test]
fn a_window_over_the_limit_is_refused() {
    let nic = ScriptedNic::new(1 << 30);
    let config = RemoteConfig { window: 5000, ..RemoteConfig::default() };
    assert!(Remote::new(&nic, &ScriptedLink(nic.clone()), config).is_err());
}

/// A pool whose only buffer has a READ under way; then the test goes on with it and the completion's fields.
#[test]
fn completions_of_others_are_not_ours() {
    let nic = ScriptedNic::new(1 << 30);
    let link = ScriptedLink(nic.clone());
    let mut queue = nic.create_completion_queue(4).unwrap();
    let mut pair = nic.create_queue_pair(&link, &QueuePairConfig::default(), &queue, &queue).unwrap();
    pair.connect(Facts::default()).unwrap();
    let pool = BufferPool::new(&nic, 1, 100, 9).unwrap();
    assert_eq!(pool.buffer_bytes(), 128);
    let region = Remotely(HeapRegion::new(4096), nic.script.clone());
    region.0.copy_in(0, b"bytes");
    let mut buffer = pool.take().unwrap();
    assert!(pool.take().is_none());
    let number = pair.number();
    let read = |id, into: LocalSlice<'_, ScriptedNic>| {
        let from = RemoteSlice { region: &region, offset: 0 };
        pair.post_send(&SendRequest { id, verb: Verb::Read { into, from }, signaled: true })
    };
    buffer.post(number, 0, 5, read).unwrap();
    assert_eq!(buffer.outcome(), None);
    let mut completions = [locus_fabric::Completion::EMPTY; 1];
    assert_eq!(locus_fabric::CompletionQueue::poll(&mut queue, &mut completions), 1);
    let [completion] = completions;
    assert!(pool.posted(completion.id) && !pool.posted(completion.id ^ 1 << 32));
    for other in [
        locus_fabric::Completion { id: completion.id ^ 1 << 32, ..completion },
        locus_fabric::Completion { id: completion.id + 1, ..completion },
        locus_fabric::Completion { queue_pair: number + 1, ..completion },
    ] {
        assert!(!pool.complete(&other));
    }
    assert!(
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| buffer.len())).is_err(),
        "read too early"
    );
    assert!(pool.complete(&completion));
    assert!(!pool.complete(&completion), "once only");
    assert_eq!((&*buffer, buffer.outcome()), (&b"bytes"[..], Some(Ok(()))));
    drop(buffer);
    assert!(pool.take().unwrap().is_empty(), "what was there before is not shown");
}
