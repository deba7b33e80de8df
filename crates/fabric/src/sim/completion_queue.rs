//! Completion queues, and the channels that threads sleep on.

use super::{
    state::{State, try_with, with},
    threads,
};
use crate::{Completion, Status};
use locus_runtime::world::{self, ThreadNumber};
use std::{collections::VecDeque, rc::Rc, sync::Arc, time::Duration};

/// Where completions of a simulated NIC arrive.
#[derive(Debug)]
pub struct SimCompletionQueue {
    pub(crate) handle: Rc<Handle>,
}

/// What the queue pairs of a queue keep of it.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) number: usize,
    pub(crate) channel: usize,
}

impl Drop for SimCompletionQueue {
    fn drop(&mut self) {
        try_with(|state| state.queues[self.handle.number] = None);
    }
}

/// A queue as the world knows it.
#[derive(Debug)]
pub(crate) struct Queue {
    depth: usize,
    channel: usize,
    waiting: VecDeque<Waiting>,
    overflown: bool,
    /// The queue pairs that feed it.
    pub(crate) pairs: Vec<u32>,
}

/// A completion that nobody polled yet.
#[derive(Debug)]
struct Waiting {
    completion: Completion,
    frees: Frees,
}

/// Which places of its queue pair are free once a completion was polled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Frees {
    Sends(usize),
    Receive,
}

/// What the queues of one core share: a core that sleeps on one sleeps on all.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    /// Completions that were not polled, and are no reason yet why its sleeper did not sleep.
    news: usize,
    /// The waker was called since the last sleep ended.
    called: bool,
    sleeper: Option<ThreadNumber>,
}

impl SimCompletionQueue {
    pub(crate) fn create(depth: usize, beside: Option<&Self>) -> Self {
        with(|state| {
            let channel = beside.map_or_else(
                || {
                    state.channels.push(Channel::default());
                    state.channels.len() - 1
                },
                |queue| queue.handle.channel,
            );
            let number = state.queues.len();
            let (waiting, pairs) = (VecDeque::new(), Vec::new());
            state.queues.push(Some(Queue { depth, channel, waiting, overflown: false, pairs }));
            Self { handle: Rc::new(Handle { number, channel }) }
        })
    }
}

impl crate::CompletionQueue for SimCompletionQueue {
    fn poll(&mut self, into: &mut [Completion]) -> usize {
        if threads::is_ending() {
            return 0;
        }
        let poll_ns = with(|state| state.poll_ns(self.handle.number));
        threads::work(poll_ns);
        with(|state| state.poll(self.handle.number, into))
    }
}

impl locus_runtime::Park for SimCompletionQueue {
    fn prepare(&self) -> bool {
        with(|state| std::mem::take(&mut state.channels[self.handle.channel].news) == 0)
    }

    fn park(&self, timeout: Duration) {
        let Some(world) = world::current() else { return };
        let until_ns = world.now_ns().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let thread = world.thread();
        let sleeps = with(|state| {
            let channel = &mut state.channels[self.handle.channel];
            let awake = std::mem::take(&mut channel.called) || channel.news > 0;
            channel.sleeper = (!awake).then_some(thread);
            !awake
        });
        if sleeps {
            world.park(Some(until_ns));
            with(|state| {
                let channel = &mut state.channels[self.handle.channel];
                (channel.sleeper, channel.called) = (None, false);
            });
        }
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let channel = self.handle.channel;
        Arc::new(move || try_with(|state| state.call(channel)).unwrap_or(()))
    }
}

impl State {
    fn call(&mut self, channel: usize) {
        let channel = &mut self.channels[channel];
        channel.called = true;
        if let Some(sleeper) = channel.sleeper.take() {
            self.unpark(sleeper);
        }
    }

    /// Something arrived that the core of a queue should look at.
    pub(crate) fn ring_bell(&mut self, queue: usize) {
        let Some(queue) = &self.queues[queue] else { return };
        let channel = &mut self.channels[queue.channel];
        channel.news += 1;
        if let Some(sleeper) = channel.sleeper.take() {
            self.unpark(sleeper);
        }
    }

    /// How long the running thread takes to look at a queue.
    fn poll_ns(&self, number: usize) -> u64 {
        let Some(nic) = &self.hosts[self.processes[self.threads.process()].host].nic else {
            return self.config.times.poll_ns;
        };
        let holds = self.queues[number].as_ref().is_some_and(|queue| !queue.waiting.is_empty());
        let costs = &nic.machine.processor;
        if holds { costs.poll_hit_ns.whole_ns() } else { costs.poll_miss_ns.whole_ns() }
    }

    fn poll(&mut self, number: usize, into: &mut [Completion]) -> usize {
        let mut count = 0;
        while count < into.len() {
            let Some(queue) = &mut self.queues[number] else { break };
            let Some(Waiting { completion, frees }) = queue.waiting.pop_front() else { break };
            into[count] = completion;
            count += 1;
            if let Some(pair) = &mut self.pairs[completion.queue_pair as usize] {
                match frees {
                    Frees::Sends(places) => pair.send_places -= places,
                    Frees::Receive => pair.receive_places -= 1,
                }
            }
        }
        if let Some(queue) = &self.queues[number] {
            let channel = &mut self.channels[queue.channel];
            channel.news = channel.news.saturating_sub(count);
        }
        count
    }

    /// Adds a completion. A queue that has no room breaks the queue pairs that feed it.
    pub(crate) fn complete(&mut self, queue: usize, completion: Completion, frees: Frees) {
        let Some(found) = &mut self.queues[queue] else { return };
        // What is flushed is bounded by the depths of the queue pairs, and always has room.
        if completion.status == Status::Success && found.waiting.len() >= found.depth {
            if !std::mem::replace(&mut found.overflown, true) {
                for pair in found.pairs.clone() {
                    self.break_pair(pair, Status::Flushed);
                }
            }
            return;
        }
        found.waiting.push_back(Waiting { completion, frees });
        self.ring_bell(queue);
    }
}
