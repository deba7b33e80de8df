//! What two processes do for each other, and what a hostile one cannot do to the other.

use crate::roles::{Actor, Client, Place, READABLE_BYTES, copy, wait};
use locus_fabric::{
    Address, Completion, CompletionQueue, Facts, Link, LocalSlice, Payload, QueuePair, SendRequest, Verb,
};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{FallocateFlags, MemfdFlags, SealFlags},
    mm::{MapFlags, ProtFlags},
};
use std::{
    fs::{File, OpenOptions},
    os::{fd::AsRawFd, unix::fs::FileExt},
    sync::atomic::{AtomicU64, Ordering},
};

pub fn serve_each_other() {
    let place = Place::new();
    let _server = Actor::serve(&place);
    let mut clients: Vec<_> = (0..3).map(|_| Client::connect(&place.address())).collect();
    for round in 0..5000_usize {
        for client in &mut clients {
            client.read(round * 24 % READABLE_BYTES).expect("a READ");
            client.echo(round as u64).expect("an echo");
        }
    }
}

/// Opens what a descriptor stands for anew, for writing: how a peer would try to get around its rights.
fn reopened(handle: &OwnedFd) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

pub fn cannot_write_what_they_may_only_read() {
    let place = Place::new();
    let _server = Actor::serve(&place);
    let mut client = Client::connect(&place.address());
    assert!(!client.readable_facts.handles.is_empty());
    for handle in &client.readable_facts.handles {
        let files = [handle.try_clone().map(File::from), reopened(handle)];
        for file in files.into_iter().flatten() {
            assert!(file.write_at(b"mine now", 0).is_err(), "a peer wrote to a file that it may only read");
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a fresh mapping at an address of the kernel's choice, which nobody touches.
            let mapped = unsafe {
                rustix::mm::mmap(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED, file.as_fd(), 0)
            };
            assert!(mapped.is_err(), "a peer mapped a file for stores that it may only read");
            let punched =
                rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096);
            assert!(punched.is_err(), "a peer punched a hole");
        }
    }
    (0..READABLE_BYTES).step_by(8).for_each(|offset| client.read(offset).expect("a READ"));
}

pub fn cannot_shrink_what_they_were_given() {
    let place = Place::new();
    let _server = Actor::serve(&place);
    let mut handles = Vec::new();
    let mut client = Client::connect_showing(&place.address(), |facts| handles.extend(copy(facts).handles));
    handles.extend(copy(&client.readable_facts).handles);
    for handle in &handles {
        for file in [handle.try_clone().map(File::from), reopened(handle)].into_iter().flatten() {
            let Ok(bytes) = file.metadata().map(|metadata| metadata.len()) else { continue };
            // Whoever still reads what was cut off would get a SIGBUS. Descriptors of something else cannot be cut.
            assert!(bytes == 0 || file.set_len(0).is_err(), "a peer shrank shared memory");
        }
    }
    client.echo(1).expect("an echo");
}

/// A memfd with these seals, reserved or not.
fn forged(bytes: u64, reserved: bool, seals: SealFlags) -> OwnedFd {
    let file = rustix::fs::memfd_create(c"forged", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    if reserved {
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes).unwrap();
    }
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

pub fn forged_memory_is_refused() {
    let place = Place::new();
    let _server = Actor::serve(&place);
    let client = Client::connect(&place.address());
    let (bytes, sealed) = (READABLE_BYTES as u64, SealFlags::SHRINK | SealFlags::GROW);
    // Memory that could raise a SIGBUS in whoever reads it: it can shrink, is shorter than it says, or has holes.
    for (what, handle) in [
        ("not sealed", forged(bytes, true, SealFlags::empty())),
        ("sealed against growing alone", forged(bytes, true, SealFlags::GROW)),
        ("shorter", forged(bytes - 4096, true, sealed)),
        ("longer", forged(bytes + 4096, true, sealed)),
        ("empty", forged(0, false, sealed)),
        ("with holes", forged(bytes, false, sealed | SealFlags::WRITE)),
    ] {
        let facts = Facts { bytes: client.readable_facts.bytes.clone(), handles: vec![handle] };
        assert!(client.link.import(facts).is_err(), "memory that is {what}");
    }
    let again = client.link.import(copy(&client.readable_facts));
    assert!(again.is_ok(), "true facts can be taken twice");
}

pub fn scribbling_over_rings_harms_only_the_scribbler() {
    let place = Place::new();
    let mut server = Actor::serve(&place);
    let mut client = Client::connect(&place.address());
    let mut scribbler = Actor::start("scribble", &place.path());
    let mut word = 0;
    scribbler.says("scribbling");
    wait("the scribbler to have done its worst", || {
        word += 1;
        client.echo(word).expect("an echo beside the scribbler");
        client.read(word as usize * 8 % READABLE_BYTES).expect("a READ beside the scribbler");
        (!scribbler.runs()).then_some(())
    });
    scribbler.ends_well();
    assert!(server.runs(), "the server did not survive");
    Client::connect(&place.address()).echo(1).expect("an echo for a newcomer");
}

/// A mapping of whatever a descriptor stands for, if it can be mapped for stores.
struct Scratch {
    words: *mut AtomicU64,
    count: usize,
}

impl Scratch {
    fn new(handle: &OwnedFd) -> Option<Self> {
        let bytes =
            usize::try_from(rustix::fs::fstat(handle).ok()?.st_size).ok().filter(|&bytes| bytes >= 4096)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice; memory of peers cannot shrink.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, handle, 0) };
        Some(Self { words: base.ok()?.cast(), count: bytes / 8 })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has that many words, lives as long as the process, and everybody's access is atomic.
        unsafe { std::slice::from_raw_parts(self.words, self.count) }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A value that may pass for an index, a length, an offset or a state, or for none of them.
    fn value(&mut self, before: u64) -> u64 {
        match self.next() % 8 {
            0 => 0,
            1 => u64::MAX,
            2 => before.wrapping_add(1),
            3 => before.wrapping_sub(1),
            4 => self.next() % 256,
            5 => 1 << (self.next() % 64),
            6 => before ^ 1 << (self.next() % 64),
            _ => self.next(),
        }
    }
}

/// The role of a client that stores garbage wherever it can, into its own queue pair's memory and into the server's,
/// amid traffic. Neither side may crash or hang on what it finds there; what comes of the traffic does not matter.
pub fn scribble(address: &Address) {
    println!("scribbling");
    for seed in 0..60 {
        let mut random = Random(seed);
        let mut scratches = Vec::new();
        let mut client = Client::connect_showing(address, |facts| {
            scratches.extend(facts.handles.iter().filter_map(Scratch::new));
        });
        for id in 0..200 {
            let buffer = LocalSlice { region: &client.buffers, offset: 0, bytes: 1024 };
            let _ = client.queue_pair.post_receive(id, buffer);
            let verb = Verb::Send { payload: Payload::Inline(&[b"amid garbage"]), immediate: None, to: None };
            let _ = client.queue_pair.post_send(&SendRequest { id, verb, signaled: true });
            let _ = client.queue_pair.ring();
            for scratch in &scratches {
                // Mostly near the start, where the descriptors of a ring are likely to be.
                let reach =
                    if random.next().is_multiple_of(4) { scratch.count } else { scratch.count.min(128) };
                let place = (random.next() % reach as u64) as usize;
                let word = &scratch.words()[place];
                word.store(random.value(word.load(Ordering::Relaxed)), Ordering::Relaxed);
                // What was a descriptor somewhere may well pass for one at the start of another line, but for its
                // length and flags.
                let model = scratch.words()[..reach].iter().map(|word| word.load(Ordering::Relaxed));
                if let Some(model) = model.filter(|&word| word != 0).nth((random.next() % 4) as usize) {
                    let line = &scratch.words()[place & !7];
                    line.store(model ^ (random.next() & random.next() & 0xFF_FFFF), Ordering::Relaxed);
                }
            }
            for _ in 0..20 {
                client.queue.poll(&mut [Completion::EMPTY; 8]);
            }
        }
    }
}
