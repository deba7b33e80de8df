//! One completion queue for all channels of a client core, so that the core can sleep on all of them at once.
//!
//! Whoever polls takes its own completions and puts those of others into their mailboxes.

use crate::{RpcError, slots::Arrivals};
use locus_fabric::{Completion, CompletionQueue, FabricError, Nic, Park};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

/// A completion queue that channels share. Clones are handles of the same one; it stays on the thread that made it.
pub struct Hub<N: Nic> {
    nic: N,
    inner: Rc<RefCell<Inner<N>>>,
    /// How often the core has slept.
    slept: Rc<Cell<u64>>,
}

struct Inner<N: Nic> {
    queue: N::CompletionQueue,
    /// How many completions the queue can hold, and how many its members may have outstanding.
    depth: usize,
    promised: usize,
    mailboxes: Vec<Mailbox>,
    watches: Vec<Option<Watch<N>>>,
    connections: u16,
    batch: [Completion; 16],
    /// How many completions lie in mailboxes.
    waiting: usize,
    /// Whether mail came since the hub was last prepared for sleep.
    news: bool,
}

/// What of a member raises no completion.
pub(crate) struct Watch<N: Nic> {
    /// Where replies are WRITten.
    pub arrivals: Option<Rc<Arrivals<N>>>,
    /// The longest sleep while requests are under way.
    pub nap: Option<Duration>,
    /// How many are.
    pub busy: Rc<Cell<usize>>,
}

impl<N: Nic> Watch<N> {
    fn is_busy(&self) -> bool {
        self.busy.get() > 0
    }
}

#[derive(Default)]
struct Mailbox {
    /// What this member may have outstanding; zero if the place is free.
    promised: usize,
    mail: VecDeque<Completion>,
}

impl<N: Nic> Clone for Hub<N> {
    fn clone(&self) -> Self {
        Self { nic: self.nic.clone(), inner: self.inner.clone(), slept: self.slept.clone() }
    }
}

impl<N: Nic> Hub<N> {
    /// A hub for the calling thread, whose channels may have `depth` work requests outstanding together.
    pub fn new(nic: &N, depth: usize) -> Result<Self, FabricError> {
        let inner = Inner {
            queue: nic.create_completion_queue(depth)?,
            depth,
            promised: 0,
            mailboxes: Vec::new(),
            watches: Vec::new(),
            connections: 0,
            batch: [Completion::EMPTY; 16],
            waiting: 0,
            news: false,
        };
        Ok(Self { nic: nic.clone(), inner: Rc::new(RefCell::new(inner)), slept: Rc::default() })
    }

    /// The NIC.
    pub fn nic(&self) -> &N {
        &self.nic
    }

    /// Makes room for a member that may have so many work requests outstanding.
    pub(crate) fn join(&self, promised: usize) -> Result<u16, RpcError> {
        let inner = &mut *self.inner.borrow_mut();
        if inner.promised + promised > inner.depth {
            return Err(RpcError::Limit {
                what: "work requests of all channels of a hub",
                limit: inner.depth,
            });
        }
        let place = match inner.mailboxes.iter().position(|mailbox| mailbox.promised == 0) {
            Some(place) => place,
            None if inner.mailboxes.len() > usize::from(u16::MAX) => {
                return Err(RpcError::Limit { what: "channels of a hub", limit: usize::from(u16::MAX) });
            }
            None => {
                inner.mailboxes.push(Mailbox::default());
                inner.watches.push(None);
                inner.mailboxes.len() - 1
            }
        };
        inner.promised += promised;
        inner.mailboxes[place] = Mailbox { promised, mail: VecDeque::with_capacity(promised) };
        Ok(place as u16)
    }

    pub(crate) fn leave(&self, member: u16) {
        let inner = &mut *self.inner.borrow_mut();
        inner.watches[usize::from(member)] = None;
        let mailbox = std::mem::take(&mut inner.mailboxes[usize::from(member)]);
        inner.promised -= mailbox.promised;
        inner.waiting -= mailbox.mail.len();
    }

    /// Looks after what raises no completion, before and between sleeps, while requests are under way.
    pub(crate) fn watch(&self, member: u16, watch: Option<Watch<N>>) {
        self.inner.borrow_mut().watches[usize::from(member)] = watch;
    }

    /// How often the core has slept.
    pub(crate) fn slept(&self) -> Rc<Cell<u64>> {
        self.slept.clone()
    }

    /// A number that no recent connection of this hub had.
    pub(crate) fn connection(&self) -> u16 {
        let inner = &mut *self.inner.borrow_mut();
        inner.connections = inner.connections.wrapping_add(1);
        inner.connections
    }

    /// The queue, to make a queue pair with, or another queue beside it.
    pub fn with_queue<R>(&self, action: impl FnOnce(&N::CompletionQueue) -> R) -> R {
        action(&self.inner.borrow().queue)
    }

    /// Whether completions of a member wait in its mailbox.
    #[inline]
    pub(crate) fn has_mail(&self, member: u16) -> bool {
        let inner = self.inner.borrow();
        inner.waiting > 0 && !inner.mailboxes[usize::from(member)].mail.is_empty()
    }

    /// Something has happened that a core looks at before it sleeps.
    #[inline]
    pub(crate) fn note_news(&self) {
        self.inner.borrow_mut().news = true;
    }

    /// Puts what has completed into the mailboxes, and says whether there was any news since this was asked last.
    fn sort(&self) -> bool {
        let inner = &mut *self.inner.borrow_mut();
        let count = inner.queue.poll(&mut inner.batch);
        for number in 0..count {
            inner.deliver(inner.batch[number]);
        }
        std::mem::take(&mut inner.news)
    }

    /// Polls, hands the member's completions to `handle`, and says whether there were any.
    #[inline]
    pub(crate) fn drain(&self, member: u16, mut handle: impl FnMut(&Completion)) -> bool {
        let inner = &mut *self.inner.borrow_mut();
        let mut any = false;
        if inner.waiting > 0 {
            while let Some(completion) = inner.mailboxes[usize::from(member)].mail.pop_front() {
                inner.waiting -= 1;
                any = true;
                handle(&completion);
            }
        }
        let count = inner.queue.poll(&mut inner.batch);
        let mut others = false;
        for completion in &inner.batch[..count] {
            let owner = crate::tag::owner(completion.id);
            if owner == usize::from(member) {
                any = true;
                handle(completion);
            } else {
                others = true;
            }
        }
        if others {
            for number in 0..count {
                if crate::tag::owner(inner.batch[number].id) != usize::from(member) {
                    inner.deliver(inner.batch[number]);
                }
            }
        }
        any
    }
}

impl<N: Nic> Inner<N> {
    /// Puts a completion into its member's mailbox, if there is such a member.
    fn deliver(&mut self, completion: Completion) {
        if let Some(mailbox) = self.mailboxes.get_mut(crate::tag::owner(completion.id))
            && mailbox.promised > 0
        {
            mailbox.mail.push_back(completion);
            self.waiting += 1;
            self.news = true;
        }
    }
}

impl<N: Nic> Park for Hub<N> {
    /// Mail that came since the last time is a reason to look once more. Mail that nobody took then (the flushed RECVs of a
    /// channel that has no call under way) is none to stay awake for ever.
    fn prepare(&self) -> bool {
        if self.sort() || !self.inner.borrow().queue.prepare() {
            return false;
        }
        // Announced first, then looked at: a WRITE that comes in between rings.
        let inner = self.inner.borrow();
        let written = |watch: &Watch<N>| watch.arrivals.as_ref().is_some_and(|arrivals| arrivals.has_news());
        if !inner.watches.iter().flatten().any(|watch| watch.is_busy() && written(watch)) {
            return true;
        }
        inner.queue.park(Duration::ZERO);
        false
    }
    fn park(&self, timeout: Duration) {
        self.slept.set(self.slept.get() + 1);
        let inner = self.inner.borrow();
        let naps = inner.watches.iter().flatten().filter(|watch| watch.is_busy());
        let nap = naps.filter_map(|watch| watch.nap).min().unwrap_or(Duration::MAX);
        inner.queue.park(timeout.min(nap));
    }
    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.inner.borrow().queue.waker()
    }
}
