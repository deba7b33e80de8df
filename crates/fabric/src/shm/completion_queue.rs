//! Completion queues: where completions wait to be polled, and which queue pairs a poll drives.

use super::{ShmNic, completion_channel::CompletionChannel, queue_pair::Core};
use crate::{Completion, CompletionQueue, FabricError};
use locus_runtime::Park;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

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
    /// What `tail` was when a sleeper last looked.
    seen: Cell<usize>,
    overflowed: Cell<bool>,
    members: RefCell<Vec<Rc<RefCell<Core>>>>,
    pub(crate) channel: Rc<CompletionChannel>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Queue").field("depth", &self.depth).field("overflowed", &self.overflowed).finish()
    }
}

impl ShmCompletionQueue {
    pub(crate) fn create(nic: &ShmNic, depth: usize) -> Result<Self, FabricError> {
        Ok(Self::on(&Rc::new(CompletionChannel::new(nic)?), depth))
    }

    /// Another queue that the same core sleeps on.
    pub(crate) fn beside(&self, depth: usize) -> Self {
        Self::on(&self.queue.channel, depth)
    }

    fn on(channel: &Rc<CompletionChannel>, depth: usize) -> Self {
        let queue = Rc::new(Queue {
            completions: vec![Cell::new(Completion::EMPTY); depth.next_power_of_two()].into(),
            depth,
            head: Cell::new(0),
            tail: Cell::new(0),
            seen: Cell::new(0),
            overflowed: Cell::new(false),
            members: RefCell::default(),
            channel: channel.clone(),
        });
        channel.add(&queue);
        Self { queue }
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

    /// Looks before a sleep, and says whether anything came that was not there when a sleeper last looked. What a queue
    /// holds that nobody polls keeps nobody awake.
    pub(crate) fn look_again(&self) -> bool {
        self.drive(true);
        let tail = self.tail.get();
        self.seen.replace(tail) != tail && self.waiting() > 0
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
        self.queue.channel.prepare(|| self.queue.waiting() > 0)
    }

    fn park(&self, timeout: Duration) {
        self.queue.channel.park(timeout);
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.queue.channel.waker()
    }
}
