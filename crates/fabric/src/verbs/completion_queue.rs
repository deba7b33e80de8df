//! Completion queues: where completions are polled from the device, and how a core sleeps on the queue's channel.

use super::{
    ffi,
    handle::{CompletionChannel, Completions, Device},
    opening::Opening,
    queue_pair::Core,
};
use crate::{Completion, CompletionQueue, FabricError};
use locus_runtime::Park;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec},
    fd::{AsFd, BorrowedFd, OwnedFd},
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
    polled: RefCell<Polled>,
    depth: usize,
    members: RefCell<Vec<Member>>,
    /// Completions that were found when looking again before a sleep, or made for an ill device.
    found: RefCell<VecDeque<Completion>>,
    channel: Rc<Channel>,
    /// Whether an event of the channel is asked for and has not come.
    armed: Cell<bool>,
    /// After how many empty polls broken queue pairs are flushed once more; zero: none broke lately.
    unsettled: Cell<u32>,
}

/// The device's queue, and room for what it gives, kept so that it need not be cleared for each poll.
struct Polled {
    completions: Arc<Completions>,
    batch: [ffi::Wc; BATCH],
}

/// What the queues that one core sleeps on have in common.
struct Channel {
    events: RefCell<Arc<CompletionChannel>>,
    waker: Arc<OwnedFd>,
    queues: RefCell<Vec<Weak<Queue>>>,
    /// The device was taken away: it raises no events any more.
    gone: Cell<bool>,
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
        let waker = Arc::new(waker);
        let channel = Channel {
            events: RefCell::new(Arc::new(CompletionChannel::new(device, &waker)?)),
            waker,
            queues: RefCell::default(),
            gone: Cell::new(false),
        };
        Self::on(&Rc::new(channel), depth)
    }

    /// Another queue that the same core sleeps on.
    pub(crate) fn beside(&self, depth: usize) -> Result<Self, FabricError> {
        Self::on(&self.queue.channel, depth)
    }

    fn on(channel: &Rc<Channel>, depth: usize) -> Result<Self, FabricError> {
        let queue = Rc::new(Queue {
            polled: RefCell::new(Polled {
                completions: Arc::new(Completions::new(&channel.events.borrow(), depth)?),
                batch: [ffi::Wc::default(); BATCH],
            }),
            depth,
            members: RefCell::default(),
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
    pub(crate) fn shared(&self) -> Arc<Completions> {
        self.polled.borrow().completions.clone()
    }

    /// Moves to the device as it is open now, with all queues beside this one, if it was taken away meanwhile. What was
    /// posted to queue pairs of before is flushed here.
    pub(crate) fn follow(&self, opening: &Opening) -> Result<(), FabricError> {
        let (device, ours) = (&opening.chosen().device, self.shared());
        if ours.device().is(device) {
            return Ok(());
        }
        if !ours.device().is_gone() {
            return Err(FabricError::State("a completion queue belongs to the NIC that made it"));
        }
        self.channel.follow(device).map_err(|error| opening.explain(error))
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
            let (members, mut found) = (self.members.borrow(), self.found.borrow_mut());
            let cores = members.iter().filter_map(|member| member.core.upgrade());
            cores.for_each(|core| core.borrow_mut().settle(self, |flushed| found.push_back(flushed)));
        }
    }

    /// Takes completions that were found before.
    fn take_found(&self, into: &mut [Completion]) -> usize {
        let mut found = self.found.borrow_mut();
        let taken = found.len().min(into.len());
        into.iter_mut().zip(found.drain(..taken)).for_each(|(place, completion)| *place = completion);
        taken
    }

    /// Takes completions from the device.
    #[inline]
    fn take(&self, into: &mut [Completion]) -> usize {
        let mut polled = self.polled.borrow_mut();
        let Polled { completions, batch } = &mut *polled;
        let mut taken = 0;
        while taken < into.len() {
            let wanted = (into.len() - taken).min(BATCH);
            let count = completions.poll(&mut batch[..wanted]);
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
        drop(polled);
        if taken == 0 {
            self.look_after(1);
        }
        taken
    }

    /// Looks after queue pairs that broke or have trouble, after so many polls.
    #[inline]
    fn look_after(&self, polls: u32) {
        if self.polled.borrow().completions.was_disturbed() {
            self.unsettle();
        }
        if self.unsettled.get() > 0 {
            self.settle(polls);
        }
    }

    /// Asks for an event unless that was done, looks again, and says whether there was nothing new.
    fn arm(&self) -> bool {
        if !self.armed.replace(true) {
            self.polled.borrow().completions.request_notice();
        }
        // What was found before and not fetched is nothing new: a queue that nobody polls keeps nobody awake.
        let before = self.found.borrow().len();
        self.look_after(SETTLE_POLLS);
        let mut completion = [Completion::EMPTY; 1];
        if self.found.borrow().is_empty() && self.take(&mut completion) == 1 {
            self.found.borrow_mut().push_back(completion[0]);
        }
        self.found.borrow().len() == before
    }
}

impl Channel {
    fn each(&self, action: impl FnMut(Rc<Queue>)) {
        self.queues.borrow().iter().filter_map(Weak::upgrade).for_each(action);
    }

    /// Moves to a device that came in the place of one that is gone.
    fn follow(&self, device: &Device) -> Result<(), FabricError> {
        let events = Arc::new(CompletionChannel::new(device, &self.waker)?);
        let queues: Vec<_> = self.queues.borrow().iter().filter_map(Weak::upgrade).collect();
        // All are made before any is replaced.
        let anew = queues.iter().map(|queue| Completions::new(&events, queue.depth).map(Arc::new));
        let anew: Vec<_> = anew.collect::<Result<_, _>>()?;
        for (queue, completions) in queues.iter().zip(anew) {
            queue.polled.borrow_mut().completions = completions;
            queue.armed.set(false);
            // Those of before may have been told of their end already, where nobody listens any more.
            queue.unsettle();
        }
        self.events.replace(events);
        self.gone.set(false);
        Ok(())
    }

    /// Takes the events that are there. Each queue raises one at most until it is asked again.
    fn clear(&self) {
        let events = self.events.borrow();
        let mut channel = [PollFd::from_borrowed_fd(events.descriptor(), PollFlags::IN)];
        while rustix::event::poll(&mut channel, Some(&Timespec::default())) == Ok(1) {
            let Some(element) = events.take_event() else { return };
            self.each(|queue| {
                if queue.polled.borrow().completions.is(element) {
                    queue.armed.set(false);
                }
            });
        }
    }

    fn sleep(&self, timeout: Duration) {
        let events = self.events.borrow();
        let expected = (!self.gone.get()).then(|| events.descriptor());
        match sleep_on(expected, &self.waker, timeout) {
            Slept::Events => self.clear(),
            Slept::Gone => {
                self.gone.set(true);
                self.each(|queue| queue.polled.borrow().completions.disturb());
            }
            Slept::Nothing => {}
        }
    }
}

/// What ended a sleep, beside the waker.
#[derive(Debug, PartialEq, Eq)]
enum Slept {
    Nothing,
    Events,
    /// The device was taken away, and the descriptor of events is ready for ever.
    Gone,
}

/// Sleeps until there are events, if any are expected, the waker is rung or the time has passed.
fn sleep_on(events: Option<BorrowedFd<'_>>, waker: &OwnedFd, timeout: Duration) -> Slept {
    // A year is as good as for ever, and nothing overflows.
    let seconds = timeout.as_secs().min(365 * 24 * 3600) as i64;
    let timeout = Timespec { tv_sec: seconds, tv_nsec: i64::from(timeout.subsec_nanos()) };
    let mut ready = [
        PollFd::new(waker, PollFlags::IN),
        PollFd::from_borrowed_fd(events.unwrap_or(waker.as_fd()), PollFlags::IN),
    ];
    let count = 1 + usize::from(events.is_some());
    if matches!(rustix::event::poll(&mut ready[..count], Some(&timeout)), Ok(0) | Err(_)) {
        return Slept::Nothing;
    }
    if ready[0].revents().contains(PollFlags::IN) {
        let _ = rustix::io::read(waker, &mut [0; 8]);
    }
    let heard = ready[1..count].first().map_or(PollFlags::empty(), PollFd::revents);
    if heard.contains(PollFlags::IN) {
        Slept::Events
    } else if heard.is_empty() {
        Slept::Nothing
    } else {
        Slept::Gone
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
        let taken = self.queue.take_found(into);
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;

    #[test]
    fn a_sleeper_is_woken_by_a_device_that_is_taken_away_once_and_by_its_waker_for_ever() {
        let long = Duration::from_secs(30);
        let waker = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let (events, device) = pipe().unwrap();
        rustix::io::write(&device, b"event").unwrap();
        assert_eq!(sleep_on(Some(events.as_fd()), &waker, long), Slept::Events);
        rustix::io::read(&events, &mut [0; 5]).unwrap();
        drop(device);
        assert_eq!(sleep_on(Some(events.as_fd()), &waker, long), Slept::Gone);
        let short = Duration::from_millis(1);
        let begun = std::time::Instant::now();
        assert_eq!(sleep_on(None, &waker, short), Slept::Nothing);
        assert!(begun.elapsed() >= short, "it did not sleep");
        rustix::io::write(&waker, &1u64.to_ne_bytes()).unwrap();
        assert_eq!(sleep_on(None, &waker, long), Slept::Nothing);
        assert!(rustix::io::read(&waker, &mut [0; 8]).is_err(), "the waker was heard");
    }
}
