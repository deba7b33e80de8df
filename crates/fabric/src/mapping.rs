//! Mapped memory: pages that are reserved before they are used, shared or private.
//!
//! Shared memory is a memfd whose pages are all reserved before anybody touches them, and which is sealed against
//! shrinking and growing, so that no access can ever raise SIGBUS, whatever the peer does.

use crate::{FabricError, PagePolicy, Pages};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{FallocateFlags, MemfdFlags, SealFlags},
    io::Errno,
    mm::{MapFlags, ProtFlags},
};
use std::{ffi::c_void, ptr, ptr::NonNull, sync::atomic::AtomicU64};

/// The base page size that lengths are rounded to. 64 KiB kernels (aarch64) get the same multiple of it.
pub(crate) fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// A huge page, in bytes.
pub(crate) const HUGE_BYTES: usize = 2 << 20;
/// Memory that is left to the rest of the system when a reservation is checked.
const SPARE_BYTES: u64 = 64 << 20;

/// What `fstatfs` says of a memfd of ordinary memory.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// Who may store through a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// This process loads only; a store would be a fault.
    Load,
    /// This process loads and stores.
    Store,
}

/// A mapping of whole pages, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<AtomicU64>,
    bytes: usize,
    rights: Rights,
}

// SAFETY: the mapping is memory of the process, not of a thread, and all access goes through atomic words.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of a memfd from its start. The caller has made sure that the pages are reserved and that the file
    /// cannot shrink.
    pub(crate) fn of_file(file: BorrowedFd<'_>, bytes: usize, rights: Rights) -> Result<Self, FabricError> {
        let protection = match rights {
            Rights::Load => ProtFlags::READ,
            Rights::Store => ProtFlags::READ | ProtFlags::WRITE,
        };
        let base = reserve_addresses(bytes)?;
        // SAFETY: the range was reserved just now by `reserve_addresses` and nothing else uses it.
        let mapped =
            unsafe { rustix::mm::mmap(base, bytes, protection, MapFlags::SHARED | MapFlags::FIXED, file, 0) };
        finish(base, bytes, rights, mapped)
    }

    /// Maps private memory of this process, whose pages appear when they are first touched.
    pub(crate) fn on_demand(bytes: usize) -> Result<Self, FabricError> {
        let base = reserve_addresses(bytes)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the range was reserved just now by `reserve_addresses` and nothing else uses it.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(base, bytes, protection, MapFlags::PRIVATE | MapFlags::FIXED)
        };
        finish(base, bytes, Rights::Store, mapped)
    }

    /// Maps private memory of this process, with all pages present.
    pub(crate) fn private(bytes: usize, huge: bool) -> Result<Self, FabricError> {
        check_available(bytes, "local memory")?;
        let mapping = Self::on_demand(bytes)?;
        if huge {
            // Only a wish; what came of it is looked up afterwards.
            let _ = mapping.advise(libc::MADV_HUGEPAGE);
        }
        mapping
            .advise(libc::MADV_POPULATE_WRITE)
            .map_err(|source| out_of_memory(bytes, "local memory", source))?;
        Ok(mapping)
    }

    /// Its length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether this process may store.
    pub(crate) fn rights(&self) -> Rights {
        self.rights
    }

    /// All words. Without [`Rights::Store`] they may only be loaded.
    #[inline(always)]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `base` points to `bytes` mapped, page-aligned bytes, which live as long as `self`; every bit pattern
        // is a valid word; other threads and processes access them as atomic words too.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.bytes / 8) }
    }

    /// The first word.
    pub(crate) fn base(&self) -> NonNull<AtomicU64> {
        self.base
    }

    /// Gives the kernel advice about the whole mapping.
    fn advise(&self, advice: i32) -> std::io::Result<()> {
        // SAFETY: the range is ours, and none of the advices used in this file changes what the bytes hold.
        match unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, advice) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// Asks for pages of 2 MiB now. Refusals show in [`Mapping::pages`].
    pub(crate) fn collapse(&self) -> std::io::Result<()> {
        /// Pages that are busy for a moment are tried again, as the manual says for EAGAIN.
        const TRIES: usize = 16;
        let mut result = self.advise(libc::MADV_COLLAPSE);
        for _ in 1..TRIES {
            match &result {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                    result = self.advise(libc::MADV_COLLAPSE);
                }
                _ => break,
            }
        }
        result
    }

    /// Maps every page now, so that no later access faults.
    pub(crate) fn populate(&self) {
        let advice = match self.rights {
            Rights::Load => libc::MADV_POPULATE_READ,
            Rights::Store => libc::MADV_POPULATE_WRITE,
        };
        // Only makes first accesses quicker; a kernel before 5.14 does not know it.
        let _ = self.advise(advice);
    }

    /// Looks up what pages the mapping lies on now.
    pub(crate) fn pages(&self) -> Pages {
        let Ok(maps) = std::fs::read_to_string("/proc/self/smaps") else {
            return Pages::Base("unknown: /proc/self/smaps cannot be read".into());
        };
        let start = self.base.as_ptr() as usize;
        let huge = huge_bytes_between(&maps, start, start + self.bytes);
        if huge == self.bytes {
            Pages::Huge
        } else {
            Pages::Base(format!("the system backs {huge} of {} bytes with huge pages", self.bytes))
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by us and nobody borrows it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Finishes a mapping over reserved addresses, which are given back on failure.
fn finish(
    base: *mut c_void,
    bytes: usize,
    rights: Rights,
    mapped: rustix::io::Result<*mut c_void>,
) -> Result<Mapping, FabricError> {
    match (mapped, NonNull::new(base.cast())) {
        (Ok(_), Some(base)) => Ok(Mapping { base, bytes, rights }),
        (result, _) => {
            // SAFETY: the range is still only reserved and nobody uses it.
            let _ = unsafe { rustix::mm::munmap(base, bytes) };
            Err(out_of_memory(bytes, "a mapping", result.err().unwrap_or(Errno::INVAL).into()))
        }
    }
}

/// Reserves a range of addresses, aligned to a huge page if it can hold one.
fn reserve_addresses(bytes: usize) -> Result<*mut c_void, FabricError> {
    let alignment = if bytes >= HUGE_BYTES { HUGE_BYTES } else { page_bytes() };
    let asked = bytes + alignment - page_bytes();
    // SAFETY: a fresh inaccessible range at an address of the kernel's choice disturbs nobody.
    let start =
        unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), asked, ProtFlags::empty(), MapFlags::PRIVATE) }
            .map_err(|errno| out_of_memory(bytes, "addresses", errno.into()))?;
    let skipped = (start as usize).next_multiple_of(alignment) - start as usize;
    let base = start.wrapping_byte_add(skipped);
    let behind = asked - skipped - bytes;
    // SAFETY: both ranges belong to the reservation made above, outside of what is returned.
    unsafe {
        if skipped > 0 {
            let _ = rustix::mm::munmap(start, skipped);
        }
        if behind > 0 {
            let _ = rustix::mm::munmap(base.wrapping_byte_add(bytes), behind);
        }
    }
    Ok(base)
}

/// Sums what `smaps` says of huge pages between two addresses.
fn huge_bytes_between(smaps: &str, start: usize, end: usize) -> usize {
    let mut inside = false;
    let mut bytes = 0;
    for line in smaps.lines() {
        let first = line.split_ascii_whitespace().next().unwrap_or("");
        if let Some((from, to)) = first.split_once('-') {
            let parse = |text| usize::from_str_radix(text, 16).unwrap_or(0);
            inside = parse(from) < end && start < parse(to);
        } else if inside && matches!(first, "AnonHugePages:" | "ShmemPmdMapped:" | "FilePmdMapped:") {
            let kibibytes = line.split_ascii_whitespace().nth(1).and_then(|text| text.parse::<usize>().ok());
            bytes += kibibytes.unwrap_or(0) * 1024;
        }
    }
    // A neighbouring mapping may have been merged into the same entry.
    bytes.min(end - start)
}

/// Says that memory is short, and what to do.
pub(crate) fn out_of_memory(bytes: usize, what: &'static str, source: std::io::Error) -> FabricError {
    let advice = "give less memory to it, or free some on this machine or in this container";
    FabricError::OutOfMemory { bytes, what, source, advice }
}

/// Refuses a reservation that would drive the machine or the container out of memory: the kernel would kill a process
/// rather than refuse it. Small ones are not worth the look.
fn check_available(bytes: usize, what: &'static str) -> Result<(), FabricError> {
    if bytes < HUGE_BYTES {
        return Ok(());
    }
    let machine = read_named("/proc/meminfo", "MemAvailable:").map(|kibibytes| kibibytes * 1024);
    let room = machine.unwrap_or(u64::MAX).min(container_room().unwrap_or(u64::MAX));
    if bytes as u64 > room.saturating_sub(SPARE_BYTES) {
        return Err(out_of_memory(bytes, what, Errno::NOMEM.into()));
    }
    Ok(())
}

/// How much memory this process's control group still allows, in bytes; files that are only cached count as free.
fn container_room() -> Option<u64> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let read = |name: &str| -> Option<u64> {
        std::fs::read_to_string(format!("/sys/fs/cgroup{group}/{name}")).ok()?.trim().parse().ok()
    };
    let (limit, used) = (read("memory.max")?, read("memory.current")?);
    let named = |name| read_named(&format!("/sys/fs/cgroup{group}/memory.stat"), name).unwrap_or(0);
    let cached = named("file").saturating_sub(named("shmem"));
    Some(limit.saturating_sub(used.saturating_sub(cached)))
}

/// Reads the number behind a name in a file of names and numbers.
fn read_named(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()?.parse().ok())?)
}

/// Makes a memfd of `bytes` whose pages are all reserved. With `huge` they are pages of 2 MiB where the system grants
/// them.
pub(crate) fn create_file(bytes: usize, huge: bool, what: &'static str) -> Result<OwnedFd, FabricError> {
    let system = |what| move |errno: Errno| FabricError::System { what, source: errno.into() };
    debug_assert!(!huge || bytes.is_multiple_of(HUGE_BYTES), "huge pages are whole");
    check_available(bytes, what)?;
    let file = rustix::fs::memfd_create(c"locus", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(system("making a memfd"))?;
    rustix::fs::ftruncate(&file, bytes as u64).map_err(|errno| out_of_memory(bytes, what, errno.into()))?;
    let reserve = |from: usize, bytes: usize| {
        rustix::fs::fallocate(&file, FallocateFlags::empty(), from as u64, bytes as u64)
            .map_err(|errno| out_of_memory(bytes, what, errno.into()))
    };
    if huge {
        // Ranges with a single base page become huge pages at once. Those without any are refused, and base pages everywhere would
        // be cleared and copied one by one, which takes forty times as long.
        (0..bytes).step_by(HUGE_BYTES).try_for_each(|from| reserve(from, page_bytes()))?;
        let mapping = Mapping::of_file(file.as_fd(), bytes, Rights::Store)?;
        let _ = mapping.collapse();
    }
    reserve(0, bytes)?;
    Ok(file)
}

/// Seals a memfd: nobody can change its length any more, and with `read_only` nobody can map it for stores or write to
/// it any more, not even by opening it anew; mappings that exist stay as they are.
pub(crate) fn seal(file: BorrowedFd<'_>, read_only: bool) -> Result<(), FabricError> {
    let mut seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    if read_only {
        seals |= SealFlags::FUTURE_WRITE;
    }
    rustix::fs::fcntl_add_seals(file, seals)
        .map_err(|errno| FabricError::System { what: "sealing a memfd", source: errno.into() })
}

/// Maps `bytes` of a peer's memfd after checking that touching it can never raise a signal: its length is as said and
/// can never change, and its pages are reserved.
pub(crate) fn import(file: BorrowedFd<'_>, bytes: usize, rights: Rights) -> Result<Mapping, &'static str> {
    let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| "its descriptor is not a memfd")?;
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
        return Err("its memory is not sealed against changes of length");
    }
    // Only the memory of tmpfs: a huge page that is missing from hugetlbfs would be a signal.
    let system = rustix::fs::fstatfs(file).map_err(|_| "its descriptor cannot be examined")?;
    if system.f_type != TMPFS_MAGIC {
        return Err("its descriptor is not a memfd of ordinary memory");
    }
    let stat = rustix::fs::fstat(file).map_err(|_| "its descriptor cannot be examined")?;
    if stat.st_size != bytes as i64 || bytes == 0 || !bytes.is_multiple_of(page_bytes()) {
        return Err("its memory is not as long as it says");
    }
    // Unless stores are allowed, the seal on writes forbids to punch holes as well, so this stays true. Where stores
    // are allowed, a hole costs a fault that fetches a fresh page, which counts no more than the page that was there.
    if (stat.st_blocks as u64) * 512 < bytes as u64 {
        return Err("its memory is not reserved");
    }
    Mapping::of_file(file, bytes, rights).map_err(|_| "its memory cannot be mapped")
}

/// What a policy asks for `bytes`: the length to reserve, and whether to try huge pages.
pub(crate) fn plan(bytes: usize, policy: PagePolicy) -> Result<(usize, bool), FabricError> {
    if bytes == 0 {
        return Err(FabricError::State("a region has at least one byte"));
    }
    let huge = policy == PagePolicy::PreferHuge && bytes >= HUGE_BYTES;
    let unit = if huge { HUGE_BYTES } else { page_bytes() };
    let rounded = bytes.checked_next_multiple_of(unit).filter(|&rounded| rounded < isize::MAX as usize);
    let rounded = rounded.ok_or_else(|| out_of_memory(bytes, "a region", Errno::NOMEM.into()))?;
    Ok((rounded, huge))
}

/// Says what pages a mapping lies on, with the reason where they are not huge.
pub(crate) fn describe(
    mapping: &Mapping,
    policy: PagePolicy,
    tried: bool,
    refusal: Option<std::io::Error>,
) -> Pages {
    match (policy, tried, refusal) {
        (PagePolicy::Base, ..) => Pages::Base("asked for".into()),
        (_, false, _) => Pages::Base(format!("the region is smaller than a huge page of {HUGE_BYTES} bytes")),
        (_, true, refusal) => match (mapping.pages(), refusal) {
            (Pages::Base(found), Some(error)) => Pages::Base(format!("{found}: {error}")),
            (pages, _) => pages,
        },
    }
}
