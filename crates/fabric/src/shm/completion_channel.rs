//! How a core sleeps: what it announces, what wakes it, and which completion queues it looks at.

use super::{
    ShmNic,
    completion_queue::Queue,
    control::Sleeper,
    link::{LinkInner, timespec},
    sleep,
};
use crate::FabricError;
use rustix::{
    buffer::spare_capacity,
    event::{EventfdFlags, epoll},
    fd::{AsFd, OwnedFd},
    io::Errno,
    net::{AddressFamily, RecvFlags, SocketFlags, SocketType},
};
use std::{
    cell::RefCell,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

/// What an event of the epoll set is about, when it is not about a bell.
const WAKER: u64 = u64::MAX;
const LINK: u64 = u64::MAX - 1;
/// How many events are taken at once.
const EVENTS_MAX: usize = 64;

/// What the completion queues of one core share: a core that sleeps on one sleeps on all.
pub(crate) struct CompletionChannel {
    pub(crate) sleeper: Sleeper,
    heavy_fence: bool,
    epoll: OwnedFd,
    waker: Arc<OwnedFd>,
    /// Our ends of the bells that peers ring; the place is the number of the epoll event.
    bells: RefCell<Vec<Option<OwnedFd>>>,
    queues: RefCell<Vec<Weak<Queue>>>,
}

fn system(what: &'static str) -> impl Fn(Errno) -> FabricError {
    move |errno| FabricError::System { what, source: errno.into() }
}

impl CompletionChannel {
    pub(crate) fn new(nic: &ShmNic) -> Result<Self, FabricError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("making an epoll set"))?;
        let waker = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let waker = waker.map_err(system("making an eventfd"))?;
        epoll::add(&epoll, &waker, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)
            .map_err(system("watching an eventfd"))?;
        Ok(Self {
            sleeper: nic.control().take_sleeper()?,
            heavy_fence: nic.membarrier(),
            epoll,
            waker: Arc::new(waker),
            bells: RefCell::default(),
            queues: RefCell::default(),
        })
    }

    /// Takes a queue in.
    pub(crate) fn add(&self, queue: &Rc<Queue>) {
        let mut queues = self.queues.borrow_mut();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Rc::downgrade(queue));
    }

    /// Makes a bell that wakes the sleeper: its number, and the end that a peer rings.
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

    /// Announces a sleep and looks again: true if there is nothing to stay awake for.
    pub(crate) fn prepare(&self, called: impl Fn() -> bool) -> bool {
        sleep::announce(self.sleeper.flag());
        super::heavy_fence(self.heavy_fence);
        let mut news = false;
        self.queues.borrow().iter().filter_map(Weak::upgrade).for_each(|queue| news |= queue.look_again());
        let quiet = !news && !called();
        if !quiet {
            sleep::withdraw(self.sleeper.flag());
        }
        quiet
    }

    pub(crate) fn park(&self, timeout: Duration) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let timeout = timespec(timeout);
        let waited = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout));
        sleep::withdraw(self.sleeper.flag());
        if waited.is_ok() {
            self.hear(&events);
        }
    }

    pub(crate) fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let waker = self.waker.clone();
        Arc::new(move || {
            // It fails only when it was rung 2^64 times before, and then the sleeper wakes anyway.
            let _ = rustix::io::write(&*waker, &1u64.to_ne_bytes());
        })
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
