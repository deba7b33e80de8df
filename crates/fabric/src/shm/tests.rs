//! What the conformance suite cannot see from outside: seals, signals, locks, death.

use super::*;
use crate::{
    Completion, CompletionQueue, Link, LocalSlice, Payload, QueuePair, Region, RemoteSlice, SendRequest,
    Status, Verb,
};

type Slice<'a> = LocalSlice<'a, ShmNic>;

struct End {
    queue: ShmCompletionQueue,
    pair: ShmQueuePair,
}

fn duo(nic: &ShmNic, near: &ShmLink, far: &ShmLink, config: &QueuePairConfig) -> (End, End) {
    let make = |link| {
        let queue = nic.create_completion_queue(1024).unwrap();
        let pair = nic.create_queue_pair(link, config, &queue, &queue).unwrap();
        End { queue, pair }
    };
    let (mut a, mut b) = (make(near), make(far));
    a.pair.connect(b.pair.facts(far).unwrap()).unwrap();
    b.pair.connect(a.pair.facts(near).unwrap()).unwrap();
    (a, b)
}

fn poll(end: &mut End) -> Option<Completion> {
    let mut completions = [Completion::EMPTY];
    (end.queue.poll(&mut completions) == 1).then_some(completions[0])
}

#[test]
fn a_read_and_an_echo() {
    let nic = ShmNic::open().unwrap();
    let (near, far) = nic.pair().unwrap();
    let (mut a, mut b) = duo(&nic, &near, &far, &QueuePairConfig::default());
    let theirs = nic.register(4096, Access::RemoteRead, PagePolicy::Base).unwrap();
    theirs.copy_in(100, b"hello over there");
    let ours = nic.register(4096, Access::Local, PagePolicy::Base).unwrap();
    let imported = near.import(far.grant(&theirs).unwrap()).unwrap();

    let read = |id| SendRequest {
        id,
        verb: Verb::Read {
            into: Slice { region: &ours, offset: 3, bytes: 16 },
            from: RemoteSlice { region: &imported, offset: 100 },
        },
        signaled: true,
    };
    a.pair.post_send(&read(7)).unwrap();
    let done = poll(&mut a).unwrap();
    assert_eq!((done.id, done.status), (7, Status::Success));
    let mut bytes = [0; 16];
    ours.copy_out(3, &mut bytes);
    assert_eq!(&bytes, b"hello over there");

    b.pair.post_receive(1, Slice { region: &ours, offset: 64, bytes: 64 }).unwrap();
    let verb = Verb::Send { payload: Payload::Inline(&[b"ab", b"cde"]), immediate: Some(9), to: None };
    a.pair.post_send(&SendRequest { id: 8, verb, signaled: true }).unwrap();
    assert_eq!(poll(&mut a), None);
    let received = poll(&mut b).unwrap();
    assert_eq!((received.bytes, received.immediate), (5, Some(9)));
    assert_eq!(poll(&mut a).unwrap().id, 8);

    theirs.revoke();
    a.pair.post_send(&read(10)).unwrap();
    assert_eq!(poll(&mut a).unwrap().status, Status::RemoteAccess);
}

#[test]
fn a_peer_sees_huge_pages_where_the_owner_has_them() {
    let nic = ShmNic::open().unwrap();
    let (near, far) = nic.pair().unwrap();
    for access in [Access::RemoteRead, Access::RemoteWrite] {
        let region = nic.register(3 << 20, access, PagePolicy::PreferHuge).unwrap();
        let imported = near.import(far.grant(&region).unwrap()).unwrap();
        match region.pages() {
            crate::Pages::Huge => {
                assert_eq!(region.bytes(), 4 << 20, "whole huge pages");
                assert_eq!(imported.pages(), crate::Pages::Huge);
            }
            // The system refuses; the reason must be there for people.
            crate::Pages::Base(reason) => assert!(reason.contains("bytes with huge pages"), "{reason}"),
        }
        let base = nic.register(4 << 20, access, PagePolicy::Base).unwrap();
        let imported = near.import(far.grant(&base).unwrap()).unwrap();
        assert!(matches!(imported.pages(), crate::Pages::Base(_)), "nobody asked for huge pages");
    }
}

#[test]
fn more_memory_than_there_is_is_an_error() {
    let nic = ShmNic::open().unwrap();
    for access in [Access::Local, Access::RemoteRead, Access::RemoteWrite] {
        for bytes in [1 << 46, usize::MAX - 5000, usize::MAX] {
            match nic.register(bytes, access, PagePolicy::PreferHuge).err() {
                Some(FabricError::OutOfMemory { bytes: said, .. }) => {
                    assert!(said >= bytes, "{said} {bytes}")
                }
                other => panic!("{bytes} bytes gave {other:?}"),
            }
        }
    }
}

/// Whoever gets the descriptor of a region that may only be read cannot store to it by any way there is.
#[test]
fn a_readable_region_cannot_be_written_by_any_way() {
    use rustix::{
        fs::{FallocateFlags, Mode, OFlags},
        mm::{MapFlags, ProtFlags},
    };
    let nic = ShmNic::open().unwrap();
    let region = nic.register(8192, Access::RemoteRead, PagePolicy::Base).unwrap();
    region.copy_in(0, b"mine");
    let handle = region.grant().unwrap().handles.remove(0);
    let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&handle));
    let reopened = rustix::fs::open(again, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    for file in [&handle, &reopened] {
        assert!(rustix::io::pwrite(file, b"theirs", 0).is_err());
        assert!(rustix::fs::ftruncate(file, 0).is_err() && rustix::fs::ftruncate(file, 1 << 20).is_err());
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert!(rustix::fs::fallocate(file, punch, 0, 4096).is_err());
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice, which nobody uses.
        let mapped =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED, file, 0) };
        assert!(mapped.is_err());
    }
    let mut bytes = [0; 4];
    region.copy_out(0, &mut bytes);
    assert_eq!(&bytes, b"mine");
}

/// A peer that makes old headers valid again, lap after lap, does not hold whoever polls.
#[test]
fn an_endless_ring_ends_a_poll() {
    let nic = ShmNic::open().unwrap();
    let (near, far) = nic.pair().unwrap();
    let config = QueuePairConfig { transport: crate::Transport::Uc, ..QueuePairConfig::default() };
    let queue = nic.create_completion_queue(16).unwrap();
    let mut pair = nic.create_queue_pair(&near, &config, &queue, &queue).unwrap();
    let other = nic.create_queue_pair(&far, &config, &queue, &queue).unwrap();
    pair.connect(other.facts(&far).unwrap()).unwrap();
    // As a peer would: every line of the ring begins with the header of an empty SEND.
    let facts = pair.facts(&near).unwrap();
    let bytes = rustix::fs::fstat(&facts.handles[0]).unwrap().st_size as usize;
    let ring =
        mapping::import(std::os::fd::AsFd::as_fd(&facts.handles[0]), bytes, mapping::Rights::Store).unwrap();
    let header = message::Header {
        bytes: 0,
        write: false,
        immediate: None,
        fail_if_not_ready: false,
        acknowledge: false,
    };
    for line in ring.words()[ring::HEAD_WORDS..].chunks(ring::LINE_WORDS) {
        line[0].store(header.encode(), Ordering::Relaxed);
    }
    let mut queue = queue;
    for _ in 0..10 {
        assert_eq!(queue.poll(&mut [Completion::EMPTY]), 0);
    }
    assert_eq!(pair.state(), crate::QueuePairState::Ready);
}

/// A header that no peer writes breaks the queue pair that it came to, and no other.
#[test]
fn a_bad_header_breaks_its_queue_pair_alone() {
    let nic = ShmNic::open().unwrap();
    let (near, far) = nic.pair().unwrap();
    let (mut bad, _peer) = duo(&nic, &near, &far, &QueuePairConfig::default());
    let (mut good, mut other) = duo(&nic, &near, &far, &QueuePairConfig::default());
    let ours = nic.register(4096, Access::Local, PagePolicy::Base).unwrap();
    bad.pair.post_receive(1, Slice { region: &ours, offset: 0, bytes: 64 }).unwrap();
    bad.pair.post_receive(2, Slice { region: &ours, offset: 64, bytes: 64 }).unwrap();
    let facts = bad.pair.facts(&near).unwrap();
    let bytes = rustix::fs::fstat(&facts.handles[0]).unwrap().st_size as usize;
    let ring =
        mapping::import(std::os::fd::AsFd::as_fd(&facts.handles[0]), bytes, mapping::Rights::Store).unwrap();
    ring.words()[ring::HEAD_WORDS].store(u64::MAX, Ordering::Relaxed);
    let accused = poll(&mut bad).unwrap();
    assert_eq!((accused.id, accused.status), (1, Status::ProtocolViolation));
    assert_eq!(poll(&mut bad).map(|done| (done.id, done.status)), Some((2, Status::Flushed)));
    assert_eq!(bad.pair.state(), crate::QueuePairState::Error);

    other.pair.post_receive(3, Slice { region: &ours, offset: 0, bytes: 64 }).unwrap();
    let verb = Verb::Send { payload: Payload::Inline(&[b"well"]), immediate: None, to: None };
    good.pair.post_send(&SendRequest { id: 4, verb, signaled: true }).unwrap();
    assert_eq!(poll(&mut other).unwrap().status, Status::Success);
    assert_eq!(poll(&mut good).unwrap().status, Status::Success);
}

/// The memory of a region that is dropped while a READ into it waits stays until the READ is over; then a sweep gives it
/// up although the queue pair used it.
#[test]
fn posted_verbs_keep_memory_and_idle_queue_pairs_do_not() {
    let nic = ShmNic::open().unwrap();
    let (near, far) = nic.pair().unwrap();
    let (mut a, _b) = duo(&nic, &near, &far, &QueuePairConfig::default());
    let theirs = nic.register(4096, Access::RemoteRead, PagePolicy::Base).unwrap();
    let imported = near.import(far.grant(&theirs).unwrap()).unwrap();
    let ours = nic.register(4096, Access::Local, PagePolicy::Base).unwrap();
    let mapping = Arc::downgrade(ours.mapping());
    let verb = Verb::Read {
        into: Slice { region: &ours, offset: 0, bytes: 64 },
        from: RemoteSlice { region: &imported, offset: 0 },
    };
    a.pair.post_send(&SendRequest { id: 1, verb, signaled: true }).unwrap();
    drop(ours);
    assert!(mapping.upgrade().is_some());
    assert_eq!(poll(&mut a).unwrap().status, Status::Success);
    for _ in 0..2 * 4096 {
        assert_eq!(poll(&mut a), None);
    }
    assert!(mapping.upgrade().is_none(), "an idle queue pair keeps a dropped region");
}
