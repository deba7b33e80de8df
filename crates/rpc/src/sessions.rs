//! At-most-once execution: what the server remembers of its clients' mutations, across reconnects.
//!
//! A session has `window` slots; slot `i` carries the requests whose sequence is `i` modulo the stride (the window, or the
//! next power of two), one at a time.
//! So the reply of the last mutation in each slot is all that a repeated request can ask for again, and anything older
//! is a violation.

use locus_runtime::mistakes::{Mistake, planted};
use std::collections::BTreeMap;

/// Names a session: random, and known to its client alone.
pub type SessionId = u128;

/// How far apart the sequences of one slot are.
pub(crate) fn stride(window: usize) -> u64 {
    window.max(1).next_power_of_two() as u64
}

/// What to do with a request that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Execute it.
    Execute,
    /// A mutation that was executed: answer this.
    Repeat {
        /// The status that was answered.
        status: u8,
        /// The record version that was answered.
        version: u64,
    },
    /// A mutation that is being executed: its reply will go to the session's present channel.
    UnderWay,
    /// Older than the last of its slot: no honest client sends that.
    Violation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing yet, or a read: may be executed again.
    Repeatable,
    Executing,
    Executed {
        status: u8,
        version: u64,
    },
}

#[derive(Clone, Debug)]
struct Slot {
    sequence: u64,
    state: State,
}

/// The slots of one session.
#[derive(Clone, Debug)]
pub struct Slots {
    slots: Box<[Slot]>,
    window: usize,
    /// `stride - 1`.
    mask: u64,
}

impl Slots {
    /// A session's fresh slots. The first sequence of slot `i` is `i` and the stride.
    pub fn new(window: usize) -> Self {
        let stride = stride(window);
        let slot = |sequence| Slot { sequence, state: State::Repeatable };
        Self { slots: (0..stride).map(slot).collect(), window, mask: stride - 1 }
    }

    /// How many requests may be under way.
    pub fn window(&self) -> usize {
        self.window
    }

    /// Judges a request that arrived, and notes a mutation as being executed. A sequence may skip some of its slot: those
    /// were never sent.
    #[inline]
    pub fn arrived(&mut self, sequence: u64, mutation: bool) -> Verdict {
        let slot = &mut self.slots[(sequence & self.mask) as usize];
        if sequence < slot.sequence {
            return Verdict::Violation;
        }
        if sequence > slot.sequence {
            // The client sends a new request in a slot only when it needs no more of the last one.
            slot.sequence = sequence;
            slot.state = if mutation { State::Executing } else { State::Repeatable };
            return Verdict::Execute;
        }
        match slot.state {
            // The sequences below the stride are those of no request.
            State::Repeatable if mutation || sequence <= self.mask => Verdict::Violation,
            State::Repeatable => Verdict::Execute,
            _ if !mutation => Verdict::Violation,
            State::Executing => Verdict::UnderWay,
            State::Executed { .. } if planted(Mistake::RetriedPutExecutedTwice) => Verdict::Execute,
            State::Executed { status, version } => Verdict::Repeat { status, version },
        }
    }

    /// Notes the outcome of a mutation.
    #[inline]
    pub fn executed(&mut self, sequence: u64, status: u8, version: u64) {
        let slot = &mut self.slots[(sequence & self.mask) as usize];
        if slot.sequence == sequence {
            slot.state = State::Executed { status, version };
        }
    }
}

/// The limits of what is remembered of clients that are not connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// How long, in nanoseconds.
    pub kept_ns: u64,
    /// How many; beyond, those disconnected longest are forgotten first.
    pub kept_max: usize,
}

impl Default for SessionLimits {
    /// A minute; 1,024 sessions, which with a window of 16 take about 400 bytes each.
    fn default() -> Self {
        Self { kept_ns: 60_000_000_000, kept_max: 1 << 10 }
    }
}

/// The sessions of clients that are not connected.
#[derive(Debug, Default)]
pub struct Kept {
    limits: SessionLimits,
    sessions: BTreeMap<SessionId, (Slots, u64)>,
}

impl Kept {
    /// None yet.
    pub fn new(limits: SessionLimits) -> Self {
        Self { limits, sessions: BTreeMap::new() }
    }

    /// Keeps the slots of a session whose client was lost. Gives back whether another had to be forgotten for it.
    pub fn keep(&mut self, id: SessionId, slots: Slots, now_ns: u64) -> bool {
        if self.limits.kept_max == 0 {
            return true;
        }
        let mut forgot = false;
        if self.sessions.len() >= self.limits.kept_max
            && let Some(oldest) = self.sessions.iter().min_by_key(|(_, (_, since))| *since).map(|(id, _)| *id)
        {
            self.sessions.remove(&oldest);
            forgot = true;
        }
        self.sessions.insert(id, (slots, now_ns));
        forgot
    }

    /// The slots of a kept session.
    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Slots> {
        self.sessions.get_mut(&id).map(|(slots, _)| slots)
    }

    /// Takes a session that its client comes back to.
    pub fn resume(&mut self, id: SessionId) -> Option<Slots> {
        self.sessions.remove(&id).map(|(slots, _)| slots)
    }

    /// Forgets sessions whose time is over, and says how many.
    pub fn expire(&mut self, now_ns: u64) -> usize {
        let before = self.sessions.len();
        let kept_ns = self.limits.kept_ns;
        self.sessions.retain(|_, (_, since)| now_ns.saturating_sub(*since) < kept_ns);
        before - self.sessions.len()
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_mutation_is_executed_once_and_then_repeated() {
        let mut slots = Slots::new(4);
        assert_eq!(slots.arrived(5, true), Verdict::Execute);
        assert_eq!(slots.arrived(5, true), Verdict::UnderWay);
        slots.executed(5, 3, 77);
        assert_eq!(slots.arrived(5, true), Verdict::Repeat { status: 3, version: 77 });
        // The slot moves on; the old one is a violation from then on.
        assert_eq!(slots.arrived(9, true), Verdict::Execute);
        assert_eq!(slots.arrived(5, true), Verdict::Violation);
        // A late outcome of what the slot no longer holds changes nothing.
        slots.executed(5, 1, 1);
        assert_eq!(slots.arrived(9, true), Verdict::UnderWay);
    }

    #[test]
    fn reads_are_executed_again_and_never_pass_for_mutations() {
        let mut slots = Slots::new(4);
        assert_eq!(slots.arrived(6, false), Verdict::Execute);
        assert_eq!(slots.arrived(6, false), Verdict::Execute);
        assert_eq!(slots.arrived(6, true), Verdict::Violation);
        assert_eq!(slots.arrived(10, true), Verdict::Execute);
        assert_eq!(slots.arrived(10, false), Verdict::Violation);
        for never_used in 0..4 {
            assert_eq!(Slots::new(4).arrived(never_used, false), Verdict::Violation);
            assert_eq!(Slots::new(4).arrived(never_used, true), Verdict::Violation);
        }
    }

    #[test]
    fn kept_sessions_expire_and_the_oldest_makes_room() {
        let mut kept = Kept::new(SessionLimits { kept_ns: 100, kept_max: 2 });
        assert!(!kept.keep(1, Slots::new(1), 10));
        assert!(!kept.keep(2, Slots::new(2), 5));
        assert!(kept.keep(3, Slots::new(4), 20));
        assert!(kept.resume(2).is_none());
        assert_eq!(kept.expire(109), 0);
        assert_eq!(kept.expire(110), 1);
        assert_eq!(kept.resume(3).map(|slots| slots.window()), Some(4));
        assert_eq!(kept.len(), 0);
    }

    proptest! {
        /// However requests are repeated and lost, no mutation is executed twice.
        #[test]
        fn no_mutation_is_executed_twice(steps in proptest::collection::vec((0..64u64, any::<bool>()), 1..300)) {
            let mut slots = Slots::new(8);
            let mut executed = std::collections::HashSet::new();
            for (sequence, finish) in steps {
                if slots.arrived(sequence, true) == Verdict::Execute {
                    prop_assert!(executed.insert(sequence));
                    if finish {
                        slots.executed(sequence, 0, sequence);
                    }
                }
            }
        }
    }
}
