//! The allocator against a model: nothing overlaps, everything is aligned, little is wasted, all sums agree.

use locus_fabric::Region;
use locus_memory::testing::HeapRegion;
use locus_memory::{AddRegionError, AllocateError, Arena, Pointer, Purpose, RegionId};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn region(number: usize) -> RegionId {
    RegionId::new(number).unwrap()
}

fn arena(bytes: usize) -> Arena<HeapRegion> {
    let mut arena = Arena::new();
    arena.add_region(region(0), HeapRegion::new(bytes), Purpose::Extents).unwrap();
    arena
}

/// What is allocated: bytes by place.
#[derive(Default)]
struct Model {
    objects: BTreeMap<(usize, usize), usize>,
    regions: usize,
}

impl Model {
    fn insert(&mut self, purpose: Purpose, at: Pointer, bytes: usize) {
        assert!(at.offset().is_multiple_of(purpose.alignment()));
        let place = (at.region().index(), at.offset());
        if let Some((before, length)) = self.objects.range(..=place).next_back() {
            assert!(before.0 < place.0 || before.1 + length <= place.1, "{at:?} overlaps the one before");
        }
        if let Some((after, _)) = self.objects.range(place..).next() {
            assert!(after.0 > place.0 || place.1 + bytes <= after.1, "{at:?} overlaps the one behind");
        }
        self.objects.insert(place, bytes);
    }

    fn remove(&mut self, index: usize) -> Option<(Pointer, usize)> {
        let place = *self.objects.keys().nth(index % self.objects.len().max(1))?;
        let bytes = self.objects.remove(&place)?;
        Some((Pointer::new(region(place.0), place.1), bytes))
    }

    /// Allocates as an owner does, who adds a region when there is need.
    fn allocate(&mut self, arena: &mut Arena<HeapRegion>, purpose: Purpose, bytes: usize) {
        let at = arena.allocate(purpose, bytes).or_else(|error| {
            let AllocateError::NeedRegion { bytes: need, .. } = error else { panic!("{error}") };
            arena.add_region(region(self.regions), HeapRegion::new(need.max(1 << 20)), purpose).unwrap();
            self.regions += 1;
            arena.allocate(purpose, bytes)
        });
        let at = at.expect("a region as large as was asked for has room");
        assert!(at.offset() + bytes <= arena.region(at.region()).unwrap().bytes());
        self.insert(purpose, at, bytes);
    }
}

/// Mostly small, some of pages, few large.
fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 1usize..300, 4 => 300usize..5000, 2 => 5000usize..40_000, 1 => 40_000usize..600_000]
}

proptest! {
    #[test]
    fn against_a_model(
        purpose in prop_oneof![Just(Purpose::Extents), Just(Purpose::Tables)],
        steps in proptest::collection::vec((prop::bool::weighted(0.6), sizes(), any::<usize>()), 1..400),
    ) {
        let (mut arena, mut model) = (Arena::new(), Model::default());
        for (index, (allocates, bytes, victim)) in steps.into_iter().enumerate() {
            if allocates {
                model.allocate(&mut arena, purpose, bytes);
            } else if let Some((at, bytes)) = model.remove(victim) {
                arena.free(purpose, at, bytes);
            }
            if index % 16 == 0 {
                arena.audit();
            }
        }
        arena.audit();
        let usage = arena.usage(purpose);
        prop_assert_eq!(usage.objects, model.objects.len());
        prop_assert_eq!(usage.region_bytes, usage.slab_bytes + usage.large_bytes + usage.free_page_bytes);
        let rounded = |bytes: &usize| match purpose {
            Purpose::Extents => *bytes,
            _ => bytes.next_multiple_of(64),
        };
        prop_assert_eq!(usage.requested_bytes, model.objects.values().map(rounded).sum::<usize>());
        prop_assert_eq!(usage.free_page_bytes, arena.available(purpose));
        let in_slabs: usize = arena.classes(purpose).iter().map(|class| class.objects * class.object_bytes).sum();
        prop_assert_eq!(usage.reserved_bytes, in_slabs + usage.large_bytes);

        while let Some((at, bytes)) = model.remove(0) {
            arena.free(purpose, at, bytes);
        }
        arena.audit();
        let usage = arena.usage(purpose);
        prop_assert_eq!((usage.objects, usage.requested_bytes, usage.reserved_bytes), (0, 0, 0));
    }
}

#[test]
fn wastes_less_than_an_eighth_at_every_size() {
    let mut arena = arena(1 << 20);
    for bytes in 1..=64 << 10 {
        let at = arena.allocate(Purpose::Extents, bytes).unwrap();
        let reserved = arena.usage(Purpose::Extents).reserved_bytes;
        let units = bytes.next_multiple_of(Pointer::UNIT);
        assert!(reserved >= bytes && (reserved - units) * 8 < reserved, "{reserved} bytes for {bytes}");
        arena.free(Purpose::Extents, at, bytes);
    }
    arena.audit();
}

#[test]
fn what_was_freed_last_comes_first() {
    let mut arena = arena(1 << 20);
    let places: Vec<Pointer> = (0..10).map(|_| arena.allocate(Purpose::Extents, 100).unwrap()).collect();
    for at in &places {
        arena.free(Purpose::Extents, *at, 100);
    }
    for at in places.iter().rev() {
        assert_eq!(arena.allocate(Purpose::Extents, 100).unwrap(), *at);
    }
}

/// All memory goes to one size, then all of it to another, up and down.
#[test]
fn memory_moves_between_classes() {
    let mut arena = arena(4 << 20);
    for bytes in [16, 100_000, 112, 1024, 3000, 32 << 10, 48, 4 << 20, 17, 20_000] {
        let mut places = Vec::new();
        let error = loop {
            match arena.allocate(Purpose::Extents, bytes) {
                Ok(at) => places.push(at),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, AllocateError::NeedRegion { bytes: need, .. } if need >= bytes));
        let used = places.len() * bytes.next_multiple_of(Pointer::UNIT);
        assert!(used * 100 >= (4 << 20) * 80, "{} objects of {bytes} bytes fill {used}", places.len());
        arena.audit();
        // In an order that is neither that of allocation nor its reverse.
        let step =
            (1..).map(|odd| places.len() / 2 + odd).find(|step| gcd(*step, places.len()) == 1).unwrap();
        for index in 0..places.len() {
            arena.free(Purpose::Extents, places[index * step % places.len()], bytes);
        }
        arena.audit();
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[test]
fn limits_and_purposes() {
    let mut arena = arena(1 << 20);
    for purpose in Purpose::ALL {
        let bytes = purpose.bytes_max() + 1;
        assert_eq!(arena.allocate(purpose, bytes), Err(AllocateError::TooLarge { purpose, bytes }));
    }
    let need = arena.allocate(Purpose::Tables, 32);
    assert!(
        matches!(need, Err(AllocateError::NeedRegion { purpose: Purpose::Tables, .. })),
        "extents are no tables"
    );
    assert_eq!(
        arena.add_region(region(0), HeapRegion::new(4096), Purpose::Tables),
        Err(AddRegionError::Taken(region(0)))
    );
    arena.add_region(region(7), HeapRegion::new(1 << 20), Purpose::Tables).unwrap();
    assert_eq!(arena.allocate(Purpose::Tables, 32).unwrap().region(), region(7));
    assert!(arena.longest(Purpose::Tables) <= arena.available(Purpose::Tables));
    let at = arena.allocate(Purpose::Extents, 0).expect("an empty object has a place too");
    arena.free(Purpose::Extents, at, 0);
    arena.audit();
}

#[test]
#[should_panic]
fn freeing_twice_is_a_bug_that_shows() {
    let mut arena = arena(1 << 20);
    let at = arena.allocate(Purpose::Extents, 100_000).unwrap();
    arena.free(Purpose::Extents, at, 100_000);
    arena.free(Purpose::Extents, at, 100_000);
}
