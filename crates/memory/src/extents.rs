//! The allocator of registered memory: objects of 16 bytes to many pages, with at most an eighth of each wasted.
//!
//! Objects up to 32 KiB come from slabs, runs of pages cut in up to 256 equal objects (J. Bonwick, "The Slab
//! Allocator", USENIX 1994); larger ones are runs of pages. What was freed last is allocated first: the newest freed
//! objects of a class wait in a small stack, so that a store that replaces objects touches no slab at all. An empty
//! slab goes back to the pages, so that memory moves between classes. All bookkeeping lies outside the registered
//! memory, since its bytes belong to readers: one cache line to a slab, less than a byte to an object of 100.

use crate::pages::{Owner, PAGE_BYTES, Pages};
use crate::{Pointer, RegionId, size_class};

/// The largest object that comes from a slab.
const SLAB_OBJECT_BYTES_MAX: usize = 32 << 10;
const CLASSES: usize = 8 + (11 - 3) * 8;
const OBJECTS_MAX: usize = 256;
/// The pages of the largest slab, in bytes: no smaller region serves every size.
pub(crate) const REGION_BYTES_MIN: usize = 64 << 10;
const NONE: u32 = u32::MAX;
/// How many freed objects of a class wait outside their slabs, at most,
const RECENT_MAX: usize = 16;
/// and how many bytes of them.
const RECENT_BYTES_MAX: usize = 64 << 10;

/// Bytes of the objects of a class.
pub(crate) const fn object_bytes(class: usize) -> usize {
    size_class::units(class) as usize * Pointer::UNIT
}

/// How many objects a slab holds: as many as make the slab whole pages, with nothing left over.
const fn objects(class: usize) -> usize {
    OBJECTS_MAX >> size_class::step_shift(class)
}

const fn slab_pages(class: usize) -> u32 {
    (objects(class) * object_bytes(class) / PAGE_BYTES) as u32
}

/// The bookkeeping of a slab, one cache line.
#[repr(align(64))]
struct Slab {
    /// A bit to an object: 1 is free.
    free: [u64; OBJECTS_MAX / 64],
    /// How many bits are 1.
    free_count: u16,
    /// The word of `free` to look into first: where an object was freed last.
    hint: u8,
    class: u8,
    region: u16,
    first_page: u32,
    /// Neighbours in the class's list of slabs that have both free and used objects, or (next) in that of unused entries.
    next: u32,
    previous: u32,
}

impl Slab {
    fn new(class: usize, region: usize, first_page: u32) -> Self {
        let mut free = [0; _];
        for object in 0..objects(class) {
            free[object / 64] |= 1 << (object % 64);
        }
        let (class, region, free_count) = (class as u8, region as u16, objects(class) as u16);
        Self { free, free_count, hint: 0, class, region, first_page, next: NONE, previous: NONE }
    }

    fn place(&self, object: usize) -> (usize, usize) {
        (self.region.into(), self.first_page as usize * PAGE_BYTES + object * object_bytes(self.class.into()))
    }

    fn take(&mut self) -> usize {
        let words = self.free.len();
        let word =
            (0..words).map(|word| (word + usize::from(self.hint)) % words).find(|word| self.free[*word] != 0);
        let word = word.expect("a listed slab has a free object");
        let bit = self.free[word].trailing_zeros() as usize;
        self.free[word] &= self.free[word] - 1;
        self.free_count -= 1;
        self.hint = word as u8;
        word * 64 + bit
    }

    fn give(&mut self, object: usize) {
        let bit = 1 << (object % 64);
        assert!(self.free[object / 64] & bit == 0, "an object was freed twice");
        self.free[object / 64] |= bit;
        self.free_count += 1;
        self.hint = (object / 64) as u8;
    }
}

/// What a class keeps.
struct Class {
    /// The first slab that has a free object, or `NONE`.
    head: u32,
    /// How many slabs the class has, full ones included.
    slabs: u32,
    /// How many of `recent` are filled, from the front.
    recent_count: u32,
    /// Objects freed last, which their slabs count as used.
    recent: [Pointer; RECENT_MAX],
}

/// Bytes and objects of one purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of its regions: the sum of slabs, large objects and free pages.
    pub region_bytes: usize,
    /// Objects allocated.
    pub objects: usize,
    /// The bytes that they were asked for.
    pub requested_bytes: usize,
    /// The bytes that they take: those of their size classes, or whole pages.
    pub reserved_bytes: usize,
    /// Bytes of slabs, free objects in them included.
    pub slab_bytes: usize,
    /// Bytes of large objects.
    pub large_bytes: usize,
    /// Bytes of free pages.
    pub free_page_bytes: usize,
}

/// Objects of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassUsage {
    /// Bytes of each.
    pub object_bytes: usize,
    /// How many are allocated.
    pub objects: usize,
    /// Bytes of the slabs that they lie in.
    pub slab_bytes: usize,
}

/// The allocator of the regions of one purpose.
pub(crate) struct Extents {
    /// By region number.
    regions: Vec<Option<Pages>>,
    /// The numbers of those there are.
    numbers: Vec<u16>,
    /// Where in `numbers` pages were found last.
    found: usize,
    slabs: Vec<Slab>,
    /// The first entry of `slabs` that is unused, or `NONE`.
    unused: u32,
    classes: Vec<Class>,
    usage: Usage,
}

impl Extents {
    pub(crate) fn new() -> Self {
        let class =
            || Class { head: NONE, slabs: 0, recent_count: 0, recent: [Pointer::from_bits(0); RECENT_MAX] };
        Self {
            regions: Vec::new(),
            numbers: Vec::new(),
            found: 0,
            slabs: Vec::new(),
            unused: NONE,
            classes: (0..CLASSES).map(|_| class()).collect(),
            usage: Usage::default(),
        }
    }

    pub(crate) fn add_region(&mut self, id: RegionId, bytes: usize) {
        if self.regions.len() <= id.index() {
            self.regions.resize_with(id.index() + 1, || None);
        }
        let pages = Pages::new((bytes / PAGE_BYTES) as u32);
        self.usage.region_bytes += pages.count() as usize * PAGE_BYTES;
        self.usage.free_page_bytes += pages.count() as usize * PAGE_BYTES;
        self.regions[id.index()] = Some(pages);
        self.found = self.numbers.len();
        self.numbers.push(id.index() as u16);
    }

    /// An object of at least so many bytes, or `None` when no region has room.
    #[inline]
    pub(crate) fn allocate(&mut self, bytes: usize) -> Option<Pointer> {
        let (at, reserved) = if bytes <= SLAB_OBJECT_BYTES_MAX {
            let class = class_of(bytes);
            let recent = &mut self.classes[class];
            let at = if recent.recent_count > 0 {
                recent.recent_count -= 1;
                recent.recent[recent.recent_count as usize % RECENT_MAX]
            } else {
                self.take_from_slab(class)?
            };
            (at, object_bytes(class))
        } else {
            let pages = bytes.div_ceil(PAGE_BYTES);
            let (region, page) = self.take_pages(pages as u32, |region, pages| region.take_large(pages))?;
            self.usage.large_bytes += pages * PAGE_BYTES;
            (pointer(region, page as usize * PAGE_BYTES), pages * PAGE_BYTES)
        };
        self.usage.objects += 1;
        self.usage.requested_bytes += bytes;
        self.usage.reserved_bytes += reserved;
        Some(at)
    }

    /// Frees what `allocate(bytes)` gave.
    #[inline]
    pub(crate) fn free(&mut self, at: Pointer, bytes: usize) {
        let reserved = if bytes <= SLAB_OBJECT_BYTES_MAX {
            let class = class_of(bytes);
            let keep = recent_max(class);
            if self.classes[class].recent_count as usize == keep {
                self.return_recent(class, keep.div_ceil(2));
            }
            let recent = &mut self.classes[class];
            debug_assert!(
                !recent.recent[..recent.recent_count as usize].contains(&at),
                "an object was freed twice"
            );
            recent.recent[recent.recent_count as usize % RECENT_MAX] = at;
            recent.recent_count += 1;
            object_bytes(class)
        } else {
            self.free_large(at, bytes)
        };
        self.usage.objects -= 1;
        self.usage.requested_bytes -= bytes;
        self.usage.reserved_bytes -= reserved;
    }

    fn free_large(&mut self, at: Pointer, bytes: usize) -> usize {
        let pages = bytes.div_ceil(PAGE_BYTES);
        let region = self.pages_of(at);
        let first = (at.offset() / PAGE_BYTES) as u32;
        assert_eq!(region.owner(first), Owner::Large(pages as u32), "{bytes} bytes freed at {at:?}");
        region.give(first, pages as u32);
        self.usage.large_bytes -= pages * PAGE_BYTES;
        self.usage.free_page_bytes += pages * PAGE_BYTES;
        pages * PAGE_BYTES
    }

    fn pages_of(&mut self, at: Pointer) -> &mut Pages {
        self.regions.get_mut(at.region().index()).and_then(Option::as_mut).expect("a region of this purpose")
    }

    fn take_from_slab(&mut self, class: usize) -> Option<Pointer> {
        let mut number = self.classes[class].head;
        if number == NONE {
            number = self.add_slab(class)?;
        }
        let slab = &mut self.slabs[number as usize];
        let object = slab.take();
        let (region, offset) = slab.place(object);
        if slab.free_count == 0 {
            self.unlist(number);
        }
        Some(pointer(region, offset))
    }

    /// Returns the `count` objects that have waited longest to their slabs.
    #[inline(never)]
    fn return_recent(&mut self, class: usize, count: usize) {
        let kept = self.classes[class].recent_count as usize - count;
        for index in 0..count {
            self.return_to_slab(class, self.classes[class].recent[index]);
        }
        self.classes[class].recent.copy_within(count..count + kept, 0);
        self.classes[class].recent_count = kept as u32;
    }

    fn return_to_slab(&mut self, class: usize, at: Pointer) {
        let page = (at.offset() / PAGE_BYTES) as u32;
        let Owner::Slab(number) = self.pages_of(at).owner(page) else { panic!("no object at {at:?}") };
        let slab = &mut self.slabs[number as usize];
        let offset = (at.offset() - slab.first_page as usize * PAGE_BYTES) as u32;
        let size = object_bytes(class) as u32;
        assert!(
            usize::from(slab.class) == class && offset.is_multiple_of(size),
            "no object of {size} at {at:?}"
        );
        slab.give((offset / size) as usize);
        match usize::from(slab.free_count) {
            1 => self.list(number),
            // The last slab with room stays, or a class that allocates and frees one object would make slabs all day.
            free if free == objects(class) && !self.only_one_listed(number) => self.remove_slab(number),
            _ => (),
        }
    }

    fn only_one_listed(&self, number: u32) -> bool {
        let slab = &self.slabs[number as usize];
        slab.next == NONE && slab.previous == NONE
    }

    #[inline(never)]
    fn add_slab(&mut self, class: usize) -> Option<u32> {
        let number = if self.unused == NONE { self.slabs.len() as u32 } else { self.unused };
        let (region, page) =
            self.take_pages(slab_pages(class), |region, pages| region.take_slab(pages, number))?;
        let slab = Slab::new(class, region, page);
        if number as usize == self.slabs.len() {
            self.slabs.push(slab);
        } else {
            self.unused = self.slabs[number as usize].next;
            self.slabs[number as usize] = slab;
        }
        self.list(number);
        self.classes[class].slabs += 1;
        self.usage.slab_bytes += slab_pages(class) as usize * PAGE_BYTES;
        Some(number)
    }

    fn remove_slab(&mut self, number: u32) {
        self.unlist(number);
        let slab = &mut self.slabs[number as usize];
        let (class, region, page) = (usize::from(slab.class), usize::from(slab.region), slab.first_page);
        slab.next = self.unused;
        self.unused = number;
        let pages = slab_pages(class);
        self.regions[region].as_mut().expect("a slab's region").give(page, pages);
        self.classes[class].slabs -= 1;
        self.usage.slab_bytes -= pages as usize * PAGE_BYTES;
        self.usage.free_page_bytes += pages as usize * PAGE_BYTES;
    }

    /// Puts a slab in front of its class's list.
    fn list(&mut self, number: u32) {
        let class = usize::from(self.slabs[number as usize].class);
        let next = std::mem::replace(&mut self.classes[class].head, number);
        self.slabs[number as usize].next = next;
        self.slabs[number as usize].previous = NONE;
        if next != NONE {
            self.slabs[next as usize].previous = number;
        }
    }

    fn unlist(&mut self, number: u32) {
        let slab = &self.slabs[number as usize];
        let (class, next, previous) = (usize::from(slab.class), slab.next, slab.previous);
        match previous {
            NONE => self.classes[class].head = next,
            previous => self.slabs[previous as usize].next = next,
        }
        if next != NONE {
            self.slabs[next as usize].previous = previous;
        }
    }

    /// Takes a run of pages from any region, after giving back what the classes hold idle if need be.
    fn take_pages(
        &mut self,
        count: u32,
        take: impl Fn(&mut Pages, u32) -> Option<u32>,
    ) -> Option<(usize, u32)> {
        let found = self.try_pages(count, &take).or_else(|| {
            self.return_idle();
            self.try_pages(count, &take)
        })?;
        self.usage.free_page_bytes -= count as usize * PAGE_BYTES;
        Some(found)
    }

    fn try_pages(
        &mut self,
        count: u32,
        take: impl Fn(&mut Pages, u32) -> Option<u32>,
    ) -> Option<(usize, u32)> {
        for step in 0..self.numbers.len() {
            let index = (self.found + step) % self.numbers.len();
            let region = usize::from(self.numbers[index]);
            let pages = self.regions[region].as_mut().expect("a numbered region");
            if pages.free() >= count
                && let Some(page) = take(pages, count)
            {
                self.found = index;
                return Some((region, page));
            }
        }
        None
    }

    /// Gives back all that waits: recently freed objects and slabs kept though empty.
    fn return_idle(&mut self) {
        for class in 0..CLASSES {
            self.return_recent(class, self.classes[class].recent_count as usize);
            let head = self.classes[class].head;
            if head != NONE && usize::from(self.slabs[head as usize].free_count) == objects(class) {
                self.remove_slab(head);
            }
        }
    }

    /// The longest object that surely fits into one of the regions.
    pub(crate) fn longest_bytes(&self) -> usize {
        let longest = self.regions.iter().flatten().map(Pages::longest).max();
        longest.unwrap_or(0) as usize * PAGE_BYTES
    }

    #[inline]
    pub(crate) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The classes that have slabs.
    pub(crate) fn classes(&self) -> Vec<ClassUsage> {
        let mut usage: Vec<ClassUsage> = (0..CLASSES)
            .map(|class| ClassUsage {
                object_bytes: object_bytes(class),
                objects: self.classes[class].slabs as usize * objects(class)
                    - self.classes[class].recent_count as usize,
                slab_bytes: (self.classes[class].slabs * slab_pages(class)) as usize * PAGE_BYTES,
            })
            .collect();
        for (class, usage) in usage.iter_mut().enumerate() {
            for slab in self.listed(class) {
                usage.objects -= usize::from(self.slabs[slab as usize].free_count);
            }
        }
        usage.retain(|class| class.slab_bytes > 0);
        usage
    }

    fn listed(&self, class: usize) -> impl Iterator<Item = u32> {
        let slab = |number: u32| (number != NONE).then_some(number);
        let next = move |number: &u32| slab(self.slabs[*number as usize].next);
        std::iter::successors(slab(self.classes[class].head), next)
    }

    /// Panics unless every page belongs to exactly one thing and all sums agree.
    pub(crate) fn audit(&self) {
        let mut seen = vec![false; self.slabs.len()];
        let mut sums = Usage {
            objects: self.usage.objects,
            requested_bytes: self.usage.requested_bytes,
            ..Usage::default()
        };
        let (mut large, mut slab_objects) = (0, 0);
        for number in &self.numbers {
            let pages = self.regions[usize::from(*number)].as_ref().expect("a numbered region");
            sums.region_bytes += pages.count() as usize * PAGE_BYTES;
            let of_slab = |slab: u32| slab_pages(self.slabs[slab as usize].class.into());
            pages.audit(of_slab, |page, owner| match owner {
                Owner::Free(pages) => sums.free_page_bytes += pages as usize * PAGE_BYTES,
                Owner::Large(pages) => {
                    large += 1;
                    sums.large_bytes += pages as usize * PAGE_BYTES;
                }
                Owner::Slab(number_of_slab) => {
                    let slab = &self.slabs[number_of_slab as usize];
                    assert_eq!((slab.region, slab.first_page), (*number, page), "a slab's place");
                    assert!(
                        !std::mem::replace(&mut seen[number_of_slab as usize], true),
                        "a slab at two places"
                    );
                    slab_objects += self.audit_slab(slab);
                    sums.slab_bytes += of_slab(number_of_slab) as usize * PAGE_BYTES;
                    sums.reserved_bytes += (objects(slab.class.into()) - usize::from(slab.free_count))
                        * object_bytes(slab.class.into());
                }
            });
        }
        for (class, held) in self.classes.iter().enumerate() {
            self.audit_class(class, &seen);
            slab_objects -= held.recent_count as usize;
            sums.reserved_bytes -= held.recent_count as usize * object_bytes(class);
        }
        sums.reserved_bytes += sums.large_bytes;
        assert_eq!(sums, self.usage, "sums (left) and counters (right)");
        assert_eq!(large + slab_objects, self.usage.objects, "objects found and counted");
    }

    /// Returns how many objects of the slab are used or wait.
    fn audit_slab(&self, slab: &Slab) -> usize {
        let free: u32 = slab.free.iter().map(|word| word.count_ones()).sum();
        assert_eq!(free, slab.free_count.into(), "free objects of a slab");
        objects(slab.class.into()) - free as usize
    }

    fn audit_class(&self, class: usize, seen: &[bool]) {
        let of_class = |number: &usize| seen[*number] && usize::from(self.slabs[*number].class) == class;
        let slabs: Vec<usize> = (0..seen.len()).filter(of_class).collect();
        assert_eq!(slabs.len(), self.classes[class].slabs as usize, "slabs of a class");
        let mut listed: Vec<usize> = self.listed(class).map(|number| number as usize).collect();
        listed.sort_unstable();
        let with_room: Vec<usize> =
            slabs.into_iter().filter(|slab| self.slabs[*slab].free_count > 0).collect();
        assert_eq!(listed, with_room, "the slabs with room are the listed ones");
        let recent = &self.classes[class].recent[..self.classes[class].recent_count as usize];
        for (index, at) in recent.iter().enumerate() {
            assert!(!recent[..index].contains(at), "an object waits twice");
            let region = self.regions[at.region().index()].as_ref().expect("a region of this purpose");
            let Owner::Slab(number) = region.owner((at.offset() / PAGE_BYTES) as u32) else {
                panic!("{at:?} has no slab")
            };
            let slab = &self.slabs[number as usize];
            let object = (at.offset() - slab.first_page as usize * PAGE_BYTES) / object_bytes(class);
            assert!(usize::from(slab.class) == class && slab.free[object / 64] >> (object % 64) & 1 == 0);
        }
    }
}

#[inline]
fn class_of(bytes: usize) -> usize {
    size_class::holding((bytes as u32).div_ceil(Pointer::UNIT as u32).max(1))
}

#[inline]
fn recent_max(class: usize) -> usize {
    (RECENT_BYTES_MAX / object_bytes(class)).clamp(1, RECENT_MAX)
}

#[inline]
fn pointer(region: usize, offset: usize) -> Pointer {
    Pointer::new(RegionId::new(region).expect("a region that was added"), offset)
}

const _: () = {
    assert!(std::mem::size_of::<Slab>() == 64, "one cache line to a slab");
    assert!(object_bytes(CLASSES - 1) == SLAB_OBJECT_BYTES_MAX);
    let mut class = 0;
    while class < CLASSES {
        assert!(slab_pages(class) as usize * PAGE_BYTES == objects(class) * object_bytes(class));
        assert!(objects(class) >= 1);
        class += 1;
    }
};
