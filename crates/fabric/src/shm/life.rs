//! The life word: how peers learn of a death by a plain load, before anybody can take the dead process's place.
//!
//! A parked thread, the lifeline, holds the word of the control area as the kernel's robust futexes define it
//! (Documentation/locking/robust-futex-ABI): the word is the thread's id, and the thread's robust list names the word.
//! However the process ends, `kill -9` included, the kernel walks that list and stores `FUTEX_OWNER_DIED`.
//!
//! Why the word turns before a successor can listen: a listener holds a `flock` on its address for as long as its open
//! file exists, and a successor must get that lock first. When a process ends, every thread runs the kernel's
//! `do_exit`, which calls `exit_mm` (whose `exit_mm_release` walks the robust list) before `exit_files`. The table of
//! open files belongs to all threads together and is closed by the last one that leaves it, so not before the lifeline
//! itself has left it, which is after its list was walked. The locks are released when the files are closed. An `exec`
//! walks the list too, before it closes files.

use super::control::Control;
use crate::FabricError;
use rustix::process::Pid;
use std::{
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
        mpsc,
    },
};

/// The bit that the kernel sets in the word of a dead owner.
const OWNER_DIED: u64 = 1 << 30;
/// The bits that hold the owner's thread id.
const OWNER_MASK: u64 = (1 << 30) - 1;

/// Whether the process that owns this life word lives.
#[inline(always)]
pub(crate) fn lives(word: &AtomicU64) -> bool {
    // Acquire: whoever sees the death also sees what came before it, for instance the tokens that were taken back.
    let word = word.load(Ordering::Acquire);
    word & OWNER_DIED == 0 && word & OWNER_MASK != 0
}

/// The kernel's `struct robust_list_head`, with room for the one entry of the list.
#[repr(C)]
struct RobustList {
    /// Points to `entry`, the first and only one.
    first: *const *const RobustList,
    /// How far the futex word is from its entry, in bytes.
    futex_offset: isize,
    /// An entry that is just being locked: none.
    pending: *const (),
    /// The entry: it points back to the head, which ends the list.
    entry: *const RobustList,
}

/// Starts the lifeline of this process, which holds the area's life word until the process ends.
pub(crate) fn start(control: &Arc<Control>) -> Result<(), FabricError> {
    let system = |what| move |source| FabricError::System { what, source };
    let (ready, held) = mpsc::channel();
    let control = control.clone();
    let lifeline = move || {
        let _ = ready.send(hold(&control));
        loop {
            std::thread::park();
        }
    };
    // The lifeline takes no signals: those are for the threads of the program.
    let result = with_signals_blocked(|| {
        std::thread::Builder::new().name("locus-lifeline".into()).stack_size(64 << 10).spawn(lifeline)
    });
    result.map_err(system("starting the lifeline thread"))?;
    held.recv()
        .unwrap_or_else(|_| Err(std::io::Error::other("the lifeline thread ended")))
        .map_err(system("holding the life word"))
}

/// Makes the calling thread hold the life word.
fn hold(control: &Control) -> std::io::Result<()> {
    let thread: Pid = rustix::thread::gettid();
    let word: *const AtomicU64 = control.life();
    // It must be there when the thread ends: it is never freed.
    let list: &'static mut RobustList = Box::leak(Box::new(RobustList {
        first: ptr::null(),
        futex_offset: 0,
        pending: ptr::null(),
        entry: ptr::null(),
    }));
    list.first = (&raw const list.entry).cast();
    list.entry = list;
    list.futex_offset = word as isize - (&raw const list.entry) as isize;
    let head_bytes = 3 * size_of::<usize>();
    // SAFETY: the list is leaked, has the layout that the kernel documents, and names a word in a mapping that is never
    // unmapped, since the control area lives as long as the process. This thread locks no robust mutex of the C
    // library, whose list this replaces: it only parks.
    let result = unsafe { libc::syscall(libc::SYS_set_robust_list, &raw const *list, head_bytes) };
    if result != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // On little-endian machines the lower half of the word is its first four bytes: the futex word. The upper half
    // stays zero.
    control.life().store(thread.as_raw_nonzero().get() as u64, Ordering::Release);
    Ok(())
}

/// Runs something with all signals blocked; threads started meanwhile keep them blocked.
fn with_signals_blocked<T>(run: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are written by the calls before they are read; only this thread's mask changes.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = run();
    // SAFETY: `before` was filled by the call above.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
    }
    result
}

// The kernel's futex word and the half that is read here must be the same bytes.
const _: () = assert!(cfg!(target_endian = "little") && size_of::<AtomicU32>() * 2 == size_of::<AtomicU64>());
