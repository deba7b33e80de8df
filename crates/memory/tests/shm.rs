//! Reads by READs over shared memory, with the owner in the same process.

use locus_fabric::shm::{ShmLink, ShmNic, ShmQueuePair, ShmRegion};
use locus_fabric::{Access, CompletionQueue, Link, Nic, PagePolicy, QueuePair, QueuePairConfig, Region};
use locus_memory::testing::block_on;
use locus_memory::{
    Arena, Memory, MemoryError, Pointer, Purpose, RegionId, Remote, RemoteConfig, checksum, checksum_row,
};
use locus_runtime::interleave;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

fn id(number: usize) -> RegionId {
    RegionId::new(number).unwrap()
}

/// The owner's end of a connection.
struct Owner {
    nic: ShmNic,
    link: ShmLink,
    queue: <ShmNic as Nic>::CompletionQueue,
    pair: Option<ShmQueuePair>,
}

fn linked() -> (Owner, ShmLink) {
    let nic = ShmNic::open().unwrap();
    let (link, client) = nic.pair().unwrap();
    let queue = nic.create_completion_queue(16).unwrap();
    (Owner { nic, link, queue, pair: None }, client)
}

impl Owner {
    /// Connects a queue pair with that of a client.
    fn accept(&mut self, remote: &mut Remote<ShmNic>, client: &ShmLink) {
        let config = QueuePairConfig::default();
        let mut pair = self.nic.create_queue_pair(&self.link, &config, &self.queue, &self.queue).unwrap();
        let ours = pair.facts(&self.link).unwrap();
        pair.connect(remote.facts(client).unwrap()).unwrap();
        remote.connect(ours).unwrap();
        assert_eq!(self.queue.poll(&mut []), 0);
        self.pair = Some(pair);
    }

    fn add_region(
        &self,
        arena: &mut Arena<ShmRegion>,
        number: usize,
        bytes: usize,
        client: (&Remote<ShmNic>, &ShmLink),
    ) {
        let region = self.nic.register(bytes, Access::RemoteRead, PagePolicy::Base).unwrap();
        let facts = self.link.grant(&region).unwrap();
        client.0.add_region(id(number), client.1.import(facts).unwrap());
        arena.add_region(id(number), region, Purpose::Tables).unwrap();
    }
}

#[test]
fn reads_what_the_owner_wrote() {
    let (mut owner, client) = linked();
    let mut remote = Remote::new(&owner.nic, &client, RemoteConfig::default()).unwrap();
    owner.accept(&mut remote, &client);
    let mut arena = Arena::new();
    owner.add_region(&mut arena, 0, 16 << 20, (&remote, &client));
    let mut objects: Vec<(Pointer, u64)> = Vec::new();
    for bytes in [1usize, 8, 15, 16, 17, 31, 100, 112, 1000, 4096, 4097, 65_537, 1 << 20, 4 << 20] {
        let at = arena.allocate(Purpose::Tables, bytes).unwrap();
        let content: Vec<u8> = (0..bytes).map(|index| (index * 7 + bytes) as u8).collect();
        arena.writer().store_bytes(at, &[&content[..bytes / 3], &content[bytes / 3..]]);
        objects.push((at, bytes as u64));
        let found = block_on(remote.read(at, bytes)).unwrap();
        assert!(*found == content, "{bytes} bytes");
        assert_eq!(checksum(&found), checksum(arena.local().slice(at, bytes).unwrap()));
    }
    let overlap = remote.overlap();
    let mut sum = 0;
    let reads = objects.iter().cycle().take(1000).map(|(at, bytes)| async {
        remote.prefetch(*at, *bytes as usize);
        remote.read(*at, *bytes as usize).await.unwrap().len() as u64
    });
    interleave(32, reads, |number, bytes| {
        assert_eq!(bytes, objects[number % objects.len()].1);
        sum += bytes;
    });
    drop(overlap);
    assert_eq!(sum, objects.iter().cycle().take(1000).map(|(_, bytes)| bytes).sum());
}

/// Rows change under a reader in another thread. Whatever verifies is a row that was written.
#[test]
fn a_row_that_verifies_was_written() {
    let (mut owner, client) = linked();
    let mut remote = Remote::new(&owner.nic, &client, RemoteConfig::default()).unwrap();
    owner.accept(&mut remote, &client);
    let mut arena = Arena::new();
    owner.add_region(&mut arena, 0, 1 << 20, (&remote, &client));
    let at = arena.allocate(Purpose::Tables, 32).unwrap();
    let row = |number: u64| {
        let words = [number, !number, number.wrapping_mul(3)];
        [words[0], words[1], words[2], checksum_row(words, at, 7)]
    };
    arena.writer().store_words(at, &row(0));
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !stop.load(Relaxed) {
                number += 1;
                arena.writer().store_words(at, &row(number));
                written.store(number, Relaxed);
            }
        });
        let (mut verified, mut latest) = (0, 0);
        while verified < 10_000 || written.load(Relaxed) < 10_000 {
            let found = block_on(remote.read(at, 32)).unwrap();
            let (words, _) = found.as_chunks::<8>();
            let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
            if words[3] == checksum_row([words[0], words[1], words[2]], at, 7) {
                assert_eq!(words, row(words[0]));
                assert!(words[0] >= latest, "a row older than one that was read");
                (verified, latest) = (verified + 1, words[0]);
            }
        }
        stop.store(true, Relaxed);
    });
}

#[test]
fn a_revoked_region_breaks_the_queue_pair_and_a_reset_recovers() {
    let (mut owner, client) = linked();
    let mut remote = Remote::new(&owner.nic, &client, RemoteConfig::default()).unwrap();
    owner.accept(&mut remote, &client);
    let mut arena = Arena::new();
    owner.add_region(&mut arena, 0, 1 << 16, (&remote, &client));
    owner.add_region(&mut arena, 1, 1 << 16, (&remote, &client));
    let (first, second) = (Pointer::new(id(0), 0), Pointer::new(id(1), 0));
    block_on(remote.read(first, 64)).unwrap();
    arena.region(id(0)).unwrap().revoke();
    assert_eq!(block_on(remote.read(first, 64)).err(), Some(MemoryError::Revoked(id(0))));
    assert!(remote.broken());
    assert!(block_on(remote.read(second, 64)).is_err(), "a broken queue pair reads nothing");
    remote.reset().unwrap();
    owner.accept(&mut remote, &client);
    block_on(remote.read(second, 64)).expect("the other region is still granted");
    assert_eq!(remote.current(), Ok(()));
    owner.link.close();
    while client.check() {}
    assert_eq!(remote.current(), Err(MemoryError::OwnerLost));
}
