//! A device that does as it is told no more: all that the process asks of it fails, as after its driver was taken away.
//! The system calls of one thread are made to fail for that, which cannot be undone: it happens in a process of its own.

use crate::peer::{nic, take, wait};
use locus_fabric::{
    Access, CompletionQueue, LocalSlice, Nic, PagePolicy, Park, Payload, QueuePair, QueuePairConfig,
    QueuePairState, SendRequest, Status, Verb,
};
use std::{collections::BTreeSet, process::Command};

/// What the process of its own is started with.
pub const ROLE: &str = "ill";
const RECEIVES: u64 = 8;

pub fn everything_is_flushed(_: &str) {
    for how in ["polls", "sleeps", DOORBELLS] {
        let ran =
            Command::new(std::env::current_exe().unwrap()).args(["--role", ROLE, how]).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{how}: {said}");
    }
}

/// Only doorbells fail, and the device still flushes what it sees.
const DOORBELLS: &str = "doorbells";

/// The length of SoftRoCE's, by which it differs from other commands that are written.
const DOORBELL_BYTES: u32 = 32;

/// Posts before the device is ill and afterwards; everything must come back.
pub fn play(how: &str) {
    let nic = nic();
    let (near, far) = nic.pair().unwrap();
    let config = QueuePairConfig { receive_depth: 16, send_depth: 16, ..Default::default() };
    let mut queue = nic.create_completion_queue(64).unwrap();
    let mut pair = nic.create_queue_pair(&near, &config, &queue, &queue).unwrap();
    let others = nic.create_completion_queue(64).unwrap();
    let mut other = nic.create_queue_pair(&far, &config, &others, &others).unwrap();
    other.connect(pair.facts(&near).unwrap()).unwrap();
    pair.connect(other.facts(&far).unwrap()).unwrap();
    let buffer = nic.register(4096, Access::Local, PagePolicy::Base).unwrap();
    let into = || LocalSlice { region: &buffer, offset: 0, bytes: 64 };
    other.post_receive(0, into()).unwrap();
    (0..RECEIVES).for_each(|id| pair.post_receive(id, into()).unwrap());
    let mut send = |id: u64, signaled: bool| {
        let verb = Verb::Send { payload: Payload::Inline(&[b"message"]), immediate: None, to: None };
        pair.post_send(&SendRequest { id, verb, signaled }).unwrap();
        pair.ring().unwrap();
    };
    send(100, true);
    assert_eq!(wait("a SEND", || take(&mut queue)).status, Status::Success);
    refuse(how == DOORBELLS);
    [(101, true), (102, false), (103, true)].into_iter().for_each(|(id, signaled)| send(id, signaled));
    assert_eq!(pair.state(), QueuePairState::Error);
    pair.post_receive(RECEIVES, into()).unwrap();
    let mut left: BTreeSet<u64> = (0..=RECEIVES).chain([101, 102, 103]).collect();
    while !left.is_empty() {
        if how == "sleeps" {
            // A sleeper finds them when it looks again, and is not kept awake once it has them.
            let quiet = queue.prepare();
            let mut completions = [locus_fabric::Completion::EMPTY; 64];
            let count = queue.poll(&mut completions);
            assert!(!quiet || count == 0, "a sleeper would not have woken");
            for completion in &completions[..count] {
                assert_eq!(completion.status, Status::Flushed);
                assert!(left.remove(&completion.id), "{completion:?} once more");
            }
        } else {
            let completion = wait("what was posted to come back", || take(&mut queue));
            assert_eq!(completion.status, Status::Flushed);
            assert!(left.remove(&completion.id), "{completion:?} once more");
        }
    }
    // What is posted later comes back, too.
    let verb = Verb::Send { payload: Payload::Inline(&[b"late"]), immediate: None, to: None };
    pair.post_send(&SendRequest { id: 200, verb, signaled: true }).unwrap();
    pair.ring().unwrap();
    let late = wait("a late SEND", || take(&mut queue));
    assert_eq!((late.id, late.status), (200, Status::Flushed));
    // Nothing can be given back to such a device.
    std::process::exit(0);
}

/// Has every call of this thread to the device fail from now on, or those of doorbells alone.
fn refuse(doorbells: bool) {
    let device = std::fs::read_dir("/proc/self/fd").unwrap().flatten().find_map(|entry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        target.to_str()?.starts_with("/dev/infiniband/uverbs").then(|| entry.file_name())
    });
    let device: u32 = device.expect("the device is open").to_str().unwrap().parse().unwrap();
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let (load, equal, end) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET,
    );
    let (refused, allowed) = (libc::SECCOMP_RET_ERRNO | libc::EIO as u32, libc::SECCOMP_RET_ALLOW);
    // Of `seccomp_data`: the call's number at 0, the low halves of its first argument at 16 and of its third at 32.
    let mut program = [
        instruction(load, 0, 0, 0),
        instruction(equal, 1, 0, libc::SYS_write as u32),
        instruction(equal, 0, 5, libc::SYS_ioctl as u32),
        instruction(load, 0, 0, 16),
        instruction(equal, 0, 3, device),
        instruction(load, 0, 0, 32),
        instruction(equal, 0, 2, DOORBELL_BYTES),
        instruction(end, 0, 0, refused),
        instruction(end, 0, 0, allowed),
        instruction(end, 0, 0, if doorbells { allowed } else { refused }),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the filter and its program live until the calls return.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    assert!(set, "{}", std::io::Error::last_os_error());
}
