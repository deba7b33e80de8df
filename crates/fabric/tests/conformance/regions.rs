//! Registered memory of this process: what it is when fresh, how its bytes and words lie, and what is refused.

use crate::{
    Case,
    fixture::{Fixture, Random, bytes_of, pattern},
    list,
};
use locus_fabric::{Access, FabricError, Nic, PagePolicy, Pages, Region};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::Ordering,
};

pub fn cases<N: Nic>() -> Vec<Case<N>> {
    list![
        "regions::are_zeroed_and_whole_pages" => are_zeroed_and_whole_pages,
        "regions::report_their_pages" => report_their_pages,
        "regions::are_zeroed_again_when_memory_is_reused" => are_zeroed_again,
        "regions::of_no_bytes_are_refused" => of_no_bytes_are_refused,
        "regions::over_any_memory_are_refused" => over_any_memory_are_refused,
        "regions::words_are_little_endian" => words_are_little_endian,
        "regions::copies_keep_what_is_around" => copies_keep_what_is_around,
        "regions::ranges_outside_panic" => ranges_outside_panic,
        "regions::slices_borrow_the_bytes" => slices_borrow_the_bytes,
        "regions::clones_share_the_memory" => clones_share_the_memory,
    ]
}

const ACCESSES: [Access; 3] = [Access::Local, Access::RemoteRead, Access::RemoteWrite];
const POLICIES: [PagePolicy; 2] = [PagePolicy::Base, PagePolicy::PreferHuge];

fn are_zeroed_and_whole_pages<N: Nic>(fixture: &mut Fixture<N>) {
    for access in ACCESSES {
        for policy in POLICIES {
            for bytes in [1, 8, 4095, 4096, 4097, 100_000, (2 << 20) - 1, (2 << 20) + 1] {
                let region = fixture.nic.register(bytes, access, policy).expect("memory");
                assert!(
                    region.bytes() >= bytes && region.bytes().is_multiple_of(4096),
                    "{bytes} became {}",
                    region.bytes()
                );
                assert!(region.bytes() < bytes + (4 << 20), "{bytes} became {}", region.bytes());
                assert_eq!((region.access(), region.words().len()), (access, region.bytes() / 8));
                assert!(region.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
            }
        }
    }
}

fn report_their_pages<N: Nic>(fixture: &mut Fixture<N>) {
    let base = fixture.nic.register(4 << 20, Access::RemoteRead, PagePolicy::Base).unwrap();
    assert!(matches!(base.pages(), Pages::Base(reason) if !reason.is_empty()));
    let huge = fixture.nic.register(4 << 20, Access::RemoteRead, PagePolicy::PreferHuge).unwrap();
    match huge.pages() {
        Pages::Huge => {
            assert_eq!(huge.words().as_ptr() as usize % (2 << 20), 0, "a huge page starts at its multiple")
        }
        Pages::Base(reason) => assert!(!reason.is_empty(), "why the system refused"),
    }
}

fn are_zeroed_again<N: Nic>(fixture: &mut Fixture<N>) {
    for round in 0..20 {
        let region = fixture.region(64 << 10, ACCESSES[round % 3]);
        assert!(bytes_of(&region, 0, 64 << 10).iter().all(|&byte| byte == 0), "round {round}");
        region.copy_in(0, &pattern(1, 64 << 10));
    }
}

fn of_no_bytes_are_refused<N: Nic>(fixture: &mut Fixture<N>) {
    for access in ACCESSES {
        for policy in POLICIES {
            assert!(fixture.nic.register(0, access, policy).is_err());
        }
    }
}

fn over_any_memory_are_refused<N: Nic>(fixture: &mut Fixture<N>) {
    for bytes in [1 << 50, 1 << 62, usize::MAX - 4096, usize::MAX] {
        for access in ACCESSES {
            match fixture.nic.register(bytes, access, PagePolicy::PreferHuge).err() {
                Some(FabricError::OutOfMemory { .. } | FabricError::Limit { .. }) => {}
                other => panic!("{bytes} bytes gave {other:?}"),
            }
        }
    }
    // The process is as well as before.
    fixture.region(4096, Access::RemoteRead);
}

fn words_are_little_endian<N: Nic>(fixture: &mut Fixture<N>) {
    for access in ACCESSES {
        let region = fixture.region(4096, access);
        region.store(2, 0x0807_0605_0403_0201);
        region.release();
        assert_eq!(bytes_of(&region, 15, 10), [0, 1, 2, 3, 4, 5, 6, 7, 8, 0]);
        region.copy_in(8, &[0xA1, 0xA2, 0xA3]);
        assert_eq!(region.words()[1].load(Ordering::Relaxed), 0xA3_A2A1);
        let last = region.words().len() - 1;
        region.store(last, 7);
        assert_eq!(bytes_of(&region, region.bytes() - 8, 8), [7, 0, 0, 0, 0, 0, 0, 0]);
    }
}

fn copies_keep_what_is_around<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::RemoteRead);
    let mut model = pattern(1, region.bytes());
    region.copy_in(0, &model);
    let mut random = Random(2);
    for round in 0..5000 {
        let offset = random.below(region.bytes() + 1);
        let longest = if round % 50 == 0 { region.bytes() } else { 40 };
        let bytes = random.below((region.bytes() - offset).min(longest) + 1);
        let written = pattern(round, bytes);
        region.copy_in(offset, &written);
        model[offset..offset + bytes].copy_from_slice(&written);
        let (from, to) = (offset.saturating_sub(9), (offset + bytes + 9).min(region.bytes()));
        assert_eq!(bytes_of(&region, from, to - from), model[from..to], "{bytes} bytes at {offset}");
    }
    assert!(bytes_of(&region, 0, region.bytes()) == model);
}

fn ranges_outside_panic<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::RemoteWrite);
    let bytes = region.bytes();
    let panics = |body: &dyn Fn()| catch_unwind(AssertUnwindSafe(body)).is_err();
    for (offset, length) in
        [(bytes, 1), (bytes - 7, 8), (0, bytes + 1), (usize::MAX, 1), (usize::MAX - 7, 16)]
    {
        assert!(panics(&|| region.copy_in(offset, &vec![1; length])), "copy_in of {length} at {offset}");
        assert!(
            panics(&|| region.copy_out(offset, &mut vec![1; length])),
            "copy_out of {length} at {offset}"
        );
    }
    for index in [bytes / 8, 1 << 61, usize::MAX] {
        assert!(panics(&|| region.store(index, 1)), "word {index}");
    }
    region.copy_in(bytes, &[]);
    region.copy_out(bytes, &mut []);
    assert!(bytes_of(&region, 0, bytes).iter().all(|&byte| byte == 0));
}

fn slices_borrow_the_bytes<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::RemoteRead);
    region.copy_in(3, b"borrowed");
    // SAFETY: no other thread, verb or peer knows this region, and nothing is stored while the borrow lives.
    let (slice, empty) = unsafe { (region.slice(2, 10), region.slice(region.bytes(), 0)) };
    assert_eq!((slice, empty.len()), (b"\0borrowed\0".as_slice(), 0));
}

fn clones_share_the_memory<N: Nic>(fixture: &mut Fixture<N>) {
    let region = fixture.region(4096, Access::RemoteRead);
    let clone = region.clone();
    region.store(1, 11);
    assert_eq!(clone.words()[1].load(Ordering::Relaxed), 11);
    let thread = std::thread::spawn(move || clone.store(2, 22));
    thread.join().unwrap();
    drop(region.clone());
    assert_eq!(region.words()[2].load(Ordering::Relaxed), 22);
}
