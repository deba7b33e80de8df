//! Completion queues: where completions wait to be polled, which queue pairs a poll drives, and how a core sleeps.

use super::{
    ShmNic,
    control::Sleeper,
    link::{LinkInner, timespec},
    queue_pair::Core,
    sleep,
};
use crate::{Completion, CompletionQueue, FabricError};
use locus_runtime::Park;
use rustix::{
    buffer::spare_capacity,
    event::{EventfdFlags, epoll},
    fd::{AsFd, OwnedFd},
    io::Errno,
    net::{AddressFamily, RecvFlags, SocketFlags, SocketType},
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

/// What an event of the epoll set is about, when it is not about a bell.
const WAKER: u64 = u64::MAX;
const LINK: u64 = u64::MAX - 1;
/// How many events are taken at once.
const EVENTS_MAX: usize = 64;

/// Where completions arrive. Stays on the thread that made it.
#[derive(Debug)]
pub struct ShmCompletionQueue {
    pub(crate) queue: Rc<Queue>,
}

/// What the handle and the queue pairs that feed the queue share.
pub(crate) struct Queue {
    /// A power of two of places, of which `depth` are used; `head` and `tail` count up for ever.
    completions: Box<[Cell<Completion>]>,
    depth: usize,
    head: Cell<usize>,
    tail: Cell<usize>,
    overflowed: Cell<bool>,
    members: RefCell<Vec<Rc<RefCell<Core>>>>,
    pub(crate) sleeper: Sleeper,
    heavy_fence: bool,
    epoll: OwnedFd,
    waker: Arc<OwnedFd>,
    /// Our ends of the bells that peers ring; the place is the number of the epoll event.
    bells: RefCell<Vec<Option<OwnedFd>>>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Queue").field("depth", &self.depth).field("overflowed", &self.overflowed).finish()
    }
}

fn system(what: &'static str) -> impl Fn(Errno) -> FabricError {
    move |errno| FabricError::System { what, source: errno.into() }
}

impl ShmCompletionQueue {
    pub(crate) fn create(nic: &ShmNic, depth: usize) -> Result<Self, FabricError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("making an epoll set"))?;
        let waker = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let waker = waker.map_err(system("making an eventfd"))?;
        epoll::add(&epoll, &waker, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)
            .map_err(system("watching an eventfd"))?;
        let queue = Queue {
            completions: vec![Cell::new(Completion::EMPTY); depth.next_power_of_two()].into(),
            depth,
            head: Cell::new(0),
            tail: Cell::new(0),
            overflowed: Cell::new(false),
            members: RefCell::default(),
            sleeper: nic.control().take_sleeper()?,
            heavy_fence: nic.membarrier(),
            epoll,
            waker: Arc::new(waker),
            bells: RefCell::default(),
        };
        Ok(Self { queue: Rc::new(queue) })
    }
}

impl Queue {
    /// Appends a completion. One too many is lost, and whoever feeds the queue breaks.
    #[inline]
    pub(crate) fn push(&self, completion: Completion) {
        if self.has_room() {
            let tail = self.tail.get();
            self.completions[tail & (self.completions.len() - 1)].set(completion);
            self.tail.set(tail.wrapping_add(1));
        } else {
            self.overflowed.set(true);
        }
    }

    #[inline(always)]
    fn waiting(&self) -> usize {
        self.tail.get().wrapping_sub(self.head.get())
    }

    /// Whether there is room for another completion.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.waiting() < self.depth
    }

    /// Whether a completion was lost: whoever feeds the queue breaks.
    #[inline(always)]
    pub(crate) fn overflowed(&self) -> bool {
        self.overflowed.get()
    }

    /// Lets polls of this queue drive a queue pair.
    pub(crate) fn attach(&self, core: &Rc<RefCell<Core>>) {
        let mut members = self.members.borrow_mut();
        if !members.iter().any(|member| Rc::ptr_eq(member, core)) {
            members.push(core.clone());
        }
    }

    /// The opposite.
    pub(crate) fn detach(&self, core: &Rc<RefCell<Core>>) {
        self.members.borrow_mut().retain(|member| !Rc::ptr_eq(member, core));
    }

    /// Makes a bell that wakes this queue: its number, and the end that a peer rings.
    pub(crate) fn make_bell(&self) -> Result<(usize, OwnedFd), FabricError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(system("making a pair of sockets"))?;
        let mut bells = self.bells.borrow_mut();
        let number = bells.iter().position(Option::is_none).unwrap_or(bells.len());
        epoll::add(&self.epoll, &ours, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)
            .map_err(system("watching a socket"))?;
        match bells.get_mut(number) {
            Some(place) => *place = Some(ours),
            None => bells.push(Some(ours)),
        }
        Ok((number, theirs))
    }

    /// Gives a bell up.
    pub(crate) fn drop_bell(&self, number: usize) {
        if let Some(place) = self.bells.borrow_mut().get_mut(number) {
            *place = None;
        }
    }

    /// Lets the end of a link end a sleep.
    pub(crate) fn watch(&self, link: &LinkInner) -> Result<(), FabricError> {
        // One shot: the end is noticed once, and then what is flushed keeps the sleeper awake.
        let flags = epoll::EventFlags::RDHUP | epoll::EventFlags::ONESHOT;
        let data = epoll::EventData::new_u64(LINK);
        match epoll::add(&self.epoll, link.socket(), data, flags) {
            Err(Errno::EXIST) => epoll::modify(&self.epoll, link.socket(), data, flags),
            other => other,
        }
        .map_err(system("watching a link"))
    }

    /// Moves completions out.
    #[inline(always)]
    fn take(&self, into: &mut [Completion]) -> usize {
        let count = self.waiting().min(into.len());
        let head = self.head.get();
        for (index, place) in into[..count].iter_mut().enumerate() {
            *place = self.completions[head.wrapping_add(index) & (self.completions.len() - 1)].get();
        }
        self.head.set(head.wrapping_add(count));
        count
    }

    /// Drives all queue pairs; with `thorough` also looks after their peers.
    #[inline]
    fn drive(&self, thorough: bool) {
        for member in &*self.members.borrow() {
            member.borrow_mut().drive(thorough);
        }
    }

    /// Takes note of why a sleep ended.
    fn hear(&self, events: &[epoll::Event]) {
        for event in events {
            match event.data.u64() {
                LINK => {}
                WAKER => {
                    let _ = rustix::io::read(&*self.waker, &mut [0; 8]);
                }
                number => self.silence(number as usize),
            }
        }
    }

    /// Reads what was rung. A peer that rings without end gains nothing: the rest is read after the next sleep.
    fn silence(&self, number: usize) {
        let bells = self.bells.borrow();
        let Some(Some(bell)) = bells.get(number) else { return };
        match rustix::net::recv(bell.as_fd(), &mut [0; 512], RecvFlags::DONTWAIT) {
            // The peer shut its end: it will ring no more, and would otherwise wake us for ever.
            Ok((_, 0)) => drop(epoll::delete(&self.epoll, bell)),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => drop(epoll::delete(&self.epoll, bell)),
        }
    }
}

impl CompletionQueue for ShmCompletionQueue {
    #[inline]
    fn poll(&mut self, into: &mut [Completion]) -> usize {
        let taken = self.queue.take(into);
        if taken == into.len() {
            return taken;
        }
        self.queue.drive(false);
        taken + self.queue.take(&mut into[taken..])
    }
}

impl Park for ShmCompletionQueue {
    fn prepare(&self) -> bool {
        sleep::announce(self.queue.sleeper.flag());
        super::heavy_fence(self.queue.heavy_fence);
        self.queue.drive(true);
        let quiet = self.queue.waiting() == 0;
        if !quiet {
            sleep::withdraw(self.queue.sleeper.flag());
        }
        quiet
    }

    fn park(&self, timeout: Duration) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let timeout = timespec(timeout);
        let waited = epoll::wait(&self.queue.epoll, spare_capacity(&mut events), Some(&timeout));
        sleep::withdraw(self.queue.sleeper.flag());
        if waited.is_ok() {
            self.queue.hear(&events);
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
