//! Devices that are taken away while they are in use: a NIC that is pulled, a driver that ends, `rdma link delete`.
//!
//! Drivers of most NICs cut their users off: all calls fail from then on, and the descriptors of events hang up. A few,
//! SoftRoCE among them, cannot: the kernel hides the device, tells nobody, and whoever removes it waits until its last user
//! has closed it. So somebody looks whether the device's entry in sysfs is there, which the kernel removes first, and then
//! this process is cut off here, as the kernel would do it: in place of the device's descriptors comes a pipe that has
//! ended, and in place of its queues in memory come zeroes, that is, queues that are empty and take nothing. All that was
//! made from the device stays until it is dropped, and fails.

use crate::FabricError;
use rustix::{
    fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd},
    fs::{Mode, OFlags},
    io::{DupFlags, Errno},
    mm::{MapFlags, ProtFlags},
    pipe::PipeFlags,
};
use std::{
    io::{Read, Result},
    mem::ManuallyDrop,
    sync::RwLock,
};

/// How often somebody looks whether a device is there, in milliseconds: as often as heartbeats tell of peers.
pub(crate) const LOOK_MS: u32 = 200;

/// Held for writing while mappings are replaced, and for reading by whoever has the library map or unmap something: what
/// lies at an address must not change between the look and the replacement.
pub(crate) static MAPPINGS: RwLock<()> = RwLock::new(());

/// A device's entry in sysfs, which stays this device's also if another one takes its name.
pub(crate) struct Entry(OwnedFd);

impl Entry {
    /// The entry of the device behind a descriptor.
    pub(crate) fn of(device: BorrowedFd<'_>) -> std::result::Result<Self, FabricError> {
        let opened = rustix::fs::fstat(device).and_then(|stat| {
            let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
            let path = format!("/sys/dev/char/{major}:{minor}/dev");
            rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        });
        let what = "opening an RDMA device's entry in /sys";
        opened.map(Self).map_err(|errno| FabricError::System { what, source: errno.into() })
    }

    /// Whether the device was taken away.
    pub(crate) fn is_gone(&self) -> bool {
        rustix::io::pread(&self.0, &mut [0; 1], 0) == Err(Errno::NODEV)
    }
}

/// What comes in place of descriptors.
pub(crate) fn ended_pipe() -> std::result::Result<OwnedFd, FabricError> {
    let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
    pipe.map(|(end, _)| end)
        .map_err(|errno| FabricError::System { what: "making a pipe", source: errno.into() })
}

/// Cuts this process off from the device behind `command`, whose events arrive at `events`.
///
/// # Safety
/// The descriptors are the device's, and whoever closes them does so once and expects them to fail. Nobody but this crate
/// has queues of the device mapped in this process, and expects anything of what they hold.
pub(crate) unsafe fn cut_off(command: RawFd, events: &[RawFd], pipe: &OwnedFd) -> Result<()> {
    let _alone = MAPPINGS.write().unwrap_or_else(std::sync::PoisonError::into_inner);
    // SAFETY: the descriptor is open until this returns.
    let file = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(command) })?;
    let device = (rustix::fs::major(file.st_dev), rustix::fs::minor(file.st_dev), file.st_ino);
    let mut maps = String::new();
    std::fs::File::open("/proc/self/maps")?.read_to_string(&mut maps)?;
    for (start, bytes) in maps.lines().filter_map(|line| mapped(line, device)) {
        // SAFETY: the range is mapped from the device and stays so while the lock is held. As the caller vouches nobody
        // relies on what it holds.
        unsafe {
            let (rights, how) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
            rustix::mm::mmap_anonymous(std::ptr::without_provenance_mut(start), bytes, rights, how)?;
        }
    }
    // The command descriptor last: should anything fail before, it still tells which mappings are the device's.
    for &descriptor in events.iter().chain([&command]) {
        // SAFETY: it is not closed here, only what it stands for changes.
        let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(descriptor) });
        rustix::io::dup3(pipe, &mut place, DupFlags::CLOEXEC)?;
    }
    Ok(())
}

/// Where a line of `/proc/self/maps` says that a file is mapped, and how many bytes, if it is this file: major and minor
/// number of its file system, and inode.
fn mapped(line: &str, (major, minor, inode): (u32, u32, u64)) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (range, mut numbers) = (words.next()?, words.skip(2));
    let (theirs, node) = (numbers.next()?.split_once(':')?, numbers.next()?);
    let hexadecimal = |text| u32::from_str_radix(text, 16).ok();
    let same = hexadecimal(theirs.0)? == major && hexadecimal(theirs.1)? == minor;
    if !same || node.parse() != Ok(inode) {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::{
        event::{PollFd, PollFlags, Timespec},
        fd::{AsFd, AsRawFd},
    };
    use std::{fs::File, io::Write};

    #[test]
    fn only_what_is_mapped_from_the_device_is_replaced() {
        let line = "7f01a000-7f01c000 rw-s 00001000 00:1a 4711        /dev/infiniband/uverbs0 (deleted)";
        assert_eq!(mapped(line, (0, 0x1a, 4711)), Some((0x7f01_a000, 0x2000)));
        for other in [(1, 0x1a, 4711), (0, 0x1b, 4711), (0, 0x1a, 4712)] {
            assert_eq!(mapped(line, other), None);
        }
        assert_eq!(mapped("7ffd-7ffe rw-p 00000000 00:00 0", (0, 0x1a, 4711)), None);
        assert_eq!(mapped("", (0, 0, 0)), None);
    }

    /// A file stands for the device, and an event descriptor for its events.
    #[test]
    fn whoever_is_cut_off_finds_empty_queues_and_descriptors_that_have_ended() {
        let path = std::env::temp_dir().join(format!("locus-cut-off-{}", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(&[7; 8192]).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (rights, how) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let map = |file: &File| {
            // SAFETY: the kernel chooses a place that is free.
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), 8192, rights, how, file, 0) }
                .unwrap()
                .cast::<u8>()
        };
        let (first, second) = (map(&file), map(&file));
        let events = rustix::event::eventfd(1, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let pipe = ended_pipe().unwrap();
        // SAFETY: the mappings are ours, and so are the descriptors.
        unsafe {
            assert_eq!((*first, *second.add(8191)), (7, 7));
            cut_off(file.as_raw_fd(), &[events.as_raw_fd()], &pipe).unwrap();
            assert_eq!((*first, *second.add(8191)), (0, 0));
            *first = 1;
            assert_eq!(*second, 0, "nothing is shared any more");
        }
        for descriptor in [file.as_fd(), events.as_fd()] {
            let mut ready = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
            assert_eq!(rustix::event::poll(&mut ready, Some(&Timespec::default())), Ok(1));
            assert_eq!(ready[0].revents(), PollFlags::HUP);
            assert_eq!(rustix::io::write(descriptor, &[0; 8]), Err(Errno::BADF));
        }
    }
}
