//! Completion queues: where completions are polled from the device, and how a core sleeps on the queue's channel.

use super::{
    ffi,
    handle::{CompletionChannel, Completions, Device},
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
    channel: Rc<Channel>,
    /// Whether an event of the channel is asked for and has not come.
    armed: Cell<bool>,
    /// After how many empty polls broken queue pairs are flushed once more; zero: none broke lately.
    unsettled: Cell<u32>,
}

/// What the queues that one core sleeps on have in common.
struct Channel {
    events: Arc<CompletionChannel>,
    waker: Arc<OwnedFd>,
    queues: RefCell<Vec<Weak<Queue>>>,
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
        let channel = Channel {
            events: Arc::new(CompletionChannel::new(device)?),
            waker: Arc::new(waker),
            queues: RefCell::default(),
        };
        Self::on(&Rc::new(channel), depth)
    }

    /// Another queue that the same core sleeps on.
    pub(crate) fn beside(&self, depth: usize) -> Result<Self, FabricError> {
        Self::on(&self.queue.channel, depth)
    }

    fn on(channel: &Rc<Channel>, depth: usize) -> Result<Self, FabricError> {
        let queue = Rc::new(Queue {
            completions: Arc::new(Completions::new(&channel.events, depth)?),
            members: RefCell::default(),
            batch: RefCell::new([ffi::Wc::default(); BATCH]),
            found: RefCell::default(),
            channel: channel.clone(),
            armed: Cell::new(false),
            unsettled: Cell::new(0),
        });
        let mut queues = channel.queues.borrow_mut();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Rc::downgrade(&queue));
        Ok(Self { queue })
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
            if count == 0 {
                break;
            }
            // What the device stored before it completed is there for plain loads.
            fence(Ordering::Acquire);
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

    /// Asks for an event unless that was done, looks again, and says whether there was nothing new.
    fn arm(&self) -> bool {
        if !self.armed.replace(true) {
            self.completions.request_notice();
        }
        if self.unsettled.get() > 0 {
            self.settle(SETTLE_POLLS);
        }
        // What was found before and not fetched is nothing new: a queue that nobody polls keeps nobody awake.
        let mut found = self.found.borrow_mut();
        let mut completion = [Completion::EMPTY; 1];
        if found.is_empty() && self.take(&mut completion) == 1 {
            found.push_back(completion[0]);
            return false;
        }
        true
    }
}

impl Channel {
    fn each(&self, action: impl FnMut(Rc<Queue>)) {
        self.queues.borrow().iter().filter_map(Weak::upgrade).for_each(action);
    }

    /// Takes the events that are there. Each queue raises one at most until it is asked again.
    fn clear(&self) {
        let mut channel = [PollFd::from_borrowed_fd(self.events.descriptor(), PollFlags::IN)];
        while rustix::event::poll(&mut channel, Some(&Timespec::default())) == Ok(1) {
            let Some(element) = self.events.take_event() else { return };
            self.each(|queue| {
                if queue.completions.is(element) {
                    queue.armed.set(false);
                }
            });
        }
    }

    fn sleep(&self, timeout: Duration) {
        let mut events = [
            PollFd::from_borrowed_fd(self.events.descriptor(), PollFlags::IN),
            PollFd::new(&*self.waker, PollFlags::IN),
        ];
        // A year is as good as for ever, and nothing overflows.
        let seconds = timeout.as_secs().min(365 * 24 * 3600) as i64;
        let timeout = Timespec { tv_sec: seconds, tv_nsec: i64::from(timeout.subsec_nanos()) };
        if matches!(rustix::event::poll(&mut events, Some(&timeout)), Ok(0) | Err(Errno::INTR)) {
            return;
        }
        let [channel, waker] = events.map(|event| event.revents().contains(PollFlags::IN));
        if channel {
            self.clear();
        }
        if waker {
            let _ = rustix::io::read(&*self.waker, &mut [0; 8]);
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

/// Events are asked for, then the queues looked at again: what completes after the look raises an event (Dekker's
/// pattern, kept by the device).
impl Park for VerbsCompletionQueue {
    fn prepare(&self) -> bool {
        self.queue.channel.clear();
        let mut quiet = true;
        self.queue.channel.each(|queue| quiet &= queue.arm());
        quiet && self.queue.found.borrow().is_empty()
    }

    fn park(&self, timeout: Duration) {
        self.queue.channel.sleep(timeout);
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let waker = self.queue.channel.waker.clone();
        Arc::new(move || {
            // It fails only when it was rung 2^64 times before, and then the sleeper wakes anyway.
            let _ = rustix::io::write(&*waker, &1u64.to_ne_bytes());
        })
    }
}
