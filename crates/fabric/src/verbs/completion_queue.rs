//! Completion queues: where completions are polled from the device, and how a core sleeps on the queue's channel.

use super::{
    ffi,
    handle::{Completions, Device},
    queue_pair::Core,
};
use crate::{Completion, CompletionQueue, FabricError};
use locus_runtime::Park;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec},
    fd::OwnedFd,
    io::Errno,
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::{Rc, Weak},
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
    time::Duration,
};

/// How many completions are taken from the device at a time.
const BATCH: usize = 32;
/// How many empty polls pass before what was posted to a breaking queue pair is flushed.
const SETTLE_POLLS: u32 = 1000;
/// A member's number: its place in the low bits, above them how often the place was used before. Completions of a queue
/// pair that is gone are told by that from those of its successor.
const PLACE_BITS: u32 = 20;
const MEMBER_BITS: u32 = 31;

/// Where completions arrive. Stays on the thread that made it.
pub struct VerbsCompletionQueue {
    pub(crate) queue: Rc<Queue>,
}

/// What the handle and the queue pairs that feed the queue share.
pub(crate) struct Queue {
    completions: Arc<Completions>,
    members: RefCell<Vec<Member>>,
    /// Room for what the device gives, kept so that it need not be cleared for each poll.
    batch: RefCell<[ffi::Wc; BATCH]>,
    /// Completions that were found when looking again before a sleep.
    found: RefCell<VecDeque<Completion>>,
    waker: Arc<OwnedFd>,
    /// Whether an event of the channel is asked for and has not come.
    armed: Cell<bool>,
    /// After how many empty polls broken queue pairs are flushed once more; zero: none broke lately.
    unsettled: Cell<u32>,
}

/// A queue pair that feeds the queue, or the place of one that did.
struct Member {
    uses: u32,
    core: Weak<RefCell<Core>>,
    taken: bool,
}

impl VerbsCompletionQueue {
    pub(crate) fn create(device: &Device, depth: usize) -> Result<Self, FabricError> {
        let waker = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let waker =
            waker.map_err(|errno| FabricError::System { what: "making an eventfd", source: errno.into() })?;
        let queue = Queue {
            completions: Arc::new(Completions::new(device, depth)?),
            members: RefCell::default(),
            batch: RefCell::new([ffi::Wc::default(); BATCH]),
            found: RefCell::default(),
            waker: Arc::new(waker),
            armed: Cell::new(false),
            unsettled: Cell::new(0),
        };
        Ok(Self { queue: Rc::new(queue) })
    }
}

impl Queue {
    pub(crate) fn raw(&self) -> &Completions {
        &self.completions
    }

    pub(crate) fn shared(&self) -> Arc<Completions> {
        self.completions.clone()
    }

    /// Takes a queue pair in, and gives its number.
    pub(crate) fn attach(&self, core: &Rc<RefCell<Core>>) -> u32 {
        let mut members = self.members.borrow_mut();
        let place = members.iter().position(|member| !member.taken).unwrap_or_else(|| {
            members.push(Member { uses: 0, core: Weak::new(), taken: false });
            members.len() - 1
        });
        let member = &mut members[place];
        *member = Member { uses: member.uses.wrapping_add(1), core: Rc::downgrade(core), taken: true };
        number(place, member.uses)
    }

    /// Lets a queue pair go.
    pub(crate) fn detach(&self, number: u32) {
        if let Some(member) = self.members.borrow_mut().get_mut(number as usize & ((1 << PLACE_BITS) - 1)) {
            (member.core, member.taken) = (Weak::new(), false);
        }
    }

    /// A queue pair of the queue broke. What was posted while it did may have escaped SoftRoCE's flush; but to flush at
    /// once would keep it from telling the peer what was wrong.
    pub(crate) fn unsettle(&self) {
        self.unsettled.set(SETTLE_POLLS);
    }

    #[cold]
    fn settle(&self, polls: u32) {
        self.unsettled.set(self.unsettled.get().saturating_sub(polls));
        if self.unsettled.get() == 0 {
            let members = self.members.borrow();
            members.iter().filter_map(|member| member.core.upgrade()).for_each(|core| core.borrow().settle());
        }
    }

    /// Takes completions from the device.
    #[inline]
    fn take(&self, into: &mut [Completion]) -> usize {
        let batch = &mut *self.batch.borrow_mut();
        let mut taken = 0;
        while taken < into.len() {
            let wanted = (into.len() - taken).min(BATCH);
            let count = self.completions.poll(&mut batch[..wanted]);
            if count > 0 {
                // What the device stored before it completed is there for plain loads.
                fence(Ordering::Acquire);
            }
            let members = self.members.borrow();
            for wc in &batch[..count] {
                if let Some(completion) = understand(&members, wc) {
                    into[taken] = completion;
                    taken += 1;
                }
            }
            if count < wanted {
                break;
            }
        }
        if taken == 0 && self.unsettled.get() > 0 {
            self.settle(1);
        }
        taken
    }

    /// Takes the event off the channel if there is one.
    fn clear_channel(&self) {
        let mut channel = [PollFd::from_borrowed_fd(self.completions.channel(), PollFlags::IN)];
        if rustix::event::poll(&mut channel, Some(&Timespec::default())) == Ok(1) {
            self.completions.take_event();
            self.armed.set(false);
        }
    }
}

fn number(place: usize, uses: u32) -> u32 {
    (uses << PLACE_BITS | place as u32) & ((1 << MEMBER_BITS) - 1)
}

#[inline]
fn understand(members: &[Member], wc: &ffi::Wc) -> Option<Completion> {
    let member = (wc.wr_id >> 32) as u32 & ((1 << MEMBER_BITS) - 1);
    let place = member as usize & ((1 << PLACE_BITS) - 1);
    let Member { uses, core, .. } = members.get(place)?;
    if number(place, *uses) != member {
        return None;
    }
    core.upgrade()?.borrow_mut().complete(wc)
}

impl CompletionQueue for VerbsCompletionQueue {
    #[inline]
    fn poll(&mut self, into: &mut [Completion]) -> usize {
        let mut found = self.queue.found.borrow_mut();
        let mut taken = 0;
        while taken < into.len()
            && let Some(completion) = found.pop_front()
        {
            into[taken] = completion;
            taken += 1;
        }
        taken + self.queue.take(&mut into[taken..])
    }
}

/// An event of the channel is asked for, then the queue looked at again: what completes after the look raises the event
/// (Dekker's pattern, kept by the device).
impl Park for VerbsCompletionQueue {
    fn prepare(&self) -> bool {
        if self.queue.armed.get() {
            self.queue.clear_channel();
        }
        if !self.queue.armed.get() {
            self.queue.completions.request_notice();
            self.queue.armed.set(true);
        }
        if self.queue.unsettled.get() > 0 {
            self.queue.settle(SETTLE_POLLS);
        }
        let mut found = [Completion::EMPTY; 1];
        let mut waiting = self.queue.found.borrow_mut();
        if waiting.is_empty() && self.queue.take(&mut found) == 1 {
            waiting.push_back(found[0]);
        }
        waiting.is_empty()
    }

    fn park(&self, timeout: Duration) {
        let mut events = [
            PollFd::from_borrowed_fd(self.queue.completions.channel(), PollFlags::IN),
            PollFd::new(&*self.queue.waker, PollFlags::IN),
        ];
        // A year is as good as for ever, and nothing overflows.
        let seconds = timeout.as_secs().min(365 * 24 * 3600) as i64;
        let timeout = Timespec { tv_sec: seconds, tv_nsec: i64::from(timeout.subsec_nanos()) };
        if matches!(rustix::event::poll(&mut events, Some(&timeout)), Ok(0) | Err(Errno::INTR)) {
            return;
        }
        let [channel, waker] = events.map(|event| event.revents().contains(PollFlags::IN));
        if channel {
            self.queue.completions.take_event();
            self.queue.armed.set(false);
        }
        if waker {
            let _ = rustix::io::read(&*self.queue.waker, &mut [0; 8]);
        }
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let waker = self.queue.waker.clone();
        Arc::new(move || {
            // It fails only when it was rung 2^64 times before, and then the sleeper wakes anyway.
            let _ = rustix::io::write(&*waker, &1u64.to_ne_bytes());
        })
    }
}
