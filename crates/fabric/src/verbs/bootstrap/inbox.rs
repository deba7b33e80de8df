//! Messages that arrived and were not received yet: a queue with a limit in bytes, beyond which the watch stops reading
//! from the socket, so that TCP holds back the peer. Nothing is ever dropped.

use super::{frame::Message, socket::lock};
use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex},
    time::Duration,
};

/// At how many bytes of waiting messages the watch stops reading.
pub(super) const INBOX_BYTES_MAX: usize = 4 << 20;
/// What a message or a fact costs beside its bytes, so that empty ones are no way around the limit.
const OVERHEAD_BYTES: usize = 64;

/// What [`Inbox::receive`] found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Message {
        message: Message,
        /// The inbox was full and is not any more: the watch may read again.
        made_room: bool,
    },
    /// The time has passed.
    Nothing,
    /// Nothing will ever arrive again.
    Finished,
}

#[derive(Default)]
pub(super) struct Inbox {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    cost: usize,
    finished: bool,
}

impl Inbox {
    pub(super) fn is_full(&self) -> bool {
        lock(&self.queue).cost >= INBOX_BYTES_MAX
    }

    /// Adds a message, even where the inbox is full: what has been read must be kept.
    pub(super) fn push(&self, message: Message) {
        let mut queue = lock(&self.queue);
        if !queue.finished {
            queue.cost += cost(&message);
            queue.messages.push_back(message);
            self.changed.notify_one();
        }
    }

    /// Nothing more will arrive; what has arrived can still be received.
    pub(super) fn finish(&self) {
        lock(&self.queue).finished = true;
        self.changed.notify_all();
    }

    pub(super) fn receive(&self, timeout: Duration) -> Found {
        let waits = |queue: &mut Queue| queue.messages.is_empty() && !queue.finished;
        let waited = self.changed.wait_timeout_while(lock(&self.queue), timeout, waits);
        let (mut queue, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        match queue.messages.pop_front() {
            Some(message) => {
                let was_full = queue.cost >= INBOX_BYTES_MAX;
                queue.cost -= cost(&message);
                Found::Message { message, made_room: was_full && queue.cost < INBOX_BYTES_MAX }
            }
            None if queue.finished => Found::Finished,
            None => Found::Nothing,
        }
    }
}

fn cost((message, facts): &Message) -> usize {
    OVERHEAD_BYTES + message.len() + facts.iter().map(|fact| OVERHEAD_BYTES + fact.len()).sum::<usize>()
}
