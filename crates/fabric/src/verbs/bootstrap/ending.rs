//! How a connection ended, and who is told of it.

use super::socket::lock;
use crate::FabricError;
use std::sync::{
    Mutex, OnceLock, Weak,
    atomic::{AtomicBool, Ordering},
};

/// Wants to know when a connection ends.
pub(crate) trait Ended: Send + Sync {
    /// The connection has ended. Called once, by whichever thread notices, the thread that watches all connections
    /// included: it must neither block nor panic.
    fn ended(&self);
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// This process closed it.
    Closed,
    /// The peer closed it, was silent for too long, or its process or the network ended.
    Lost,
    /// The peer left messages unread for longer than a sender waits.
    Unread,
    /// The peer sent what no peer sends.
    Garbage(&'static str),
}

impl Ending {
    pub(super) fn explain(self, peer: &str) -> FabricError {
        let peer = peer.to_string();
        match self {
            Self::Closed | Self::Lost => FabricError::PeerLost { peer },
            Self::Unread => {
                let what = format!("it left its messages unread for {:?}", super::wire::SEND_TIMEOUT);
                FabricError::Protocol { peer, what }
            }
            Self::Garbage(what) => FabricError::Protocol { peer, what: what.into() },
        }
    }
}

/// Whether and how a connection ended, and who is to be told.
#[derive(Default)]
pub(super) struct End {
    /// Apart from `ending`, to be read with one plain load.
    ended: AtomicBool,
    ending: OnceLock<Ending>,
    audience: Mutex<Audience>,
}

#[derive(Default)]
struct Audience {
    members: Vec<Weak<dyn Ended>>,
    /// How many members there may be before those that are gone are removed.
    prune_at: usize,
}

/// Below this many members nobody looks for those that are gone.
const AUDIENCE_MIN: usize = 16;

impl End {
    #[inline]
    pub(super) fn came(&self) -> bool {
        // Acquire: whoever sees the end also sees what was done before it.
        self.ended.load(Ordering::Acquire)
    }

    pub(super) fn ending(&self) -> Option<Ending> {
        self.ending.get().copied()
    }

    /// Marks the end; false if it had come before. [`End::tell`] must follow.
    pub(super) fn mark(&self, ending: Ending) -> bool {
        let first = self.ending.set(ending).is_ok();
        if first {
            self.ended.store(true, Ordering::Release);
        }
        first
    }

    /// Tells everybody. The caller holds no lock: those who are told may use the connection.
    pub(super) fn tell(&self) {
        let members = std::mem::take(&mut lock(&self.audience).members);
        members.iter().filter_map(Weak::upgrade).for_each(|member| member.ended());
    }

    /// Tells somebody when the end comes, or at once if it has come.
    pub(super) fn register(&self, member: Weak<dyn Ended>) {
        let mut audience = lock(&self.audience);
        // Under the lock: either this sees the end, or `tell`, which comes after it, sees the member.
        if self.came() {
            drop(audience);
            if let Some(member) = member.upgrade() {
                member.ended();
            }
            return;
        }
        if audience.members.len() >= audience.prune_at {
            // The weak references would hold the memory of those that are gone. At most every other one is.
            audience.members.retain(|member| member.strong_count() > 0);
            audience.prune_at = AUDIENCE_MIN.max(2 * audience.members.len());
        }
        audience.members.push(member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, atomic::AtomicUsize};

    struct Count(AtomicUsize);

    impl Ended for Count {
        fn ended(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn count() -> Arc<Count> {
        Arc::new(Count(AtomicUsize::new(0)))
    }

    fn weak(member: &Arc<Count>) -> Weak<dyn Ended> {
        let member: Weak<Count> = Arc::downgrade(member);
        member
    }

    #[test]
    fn members_that_are_gone_do_not_pile_up() {
        let end = End::default();
        let kept: Vec<_> = std::iter::repeat_with(count).take(100).collect();
        kept.iter().for_each(|member| end.register(weak(member)));
        for _ in 0..10_000 {
            end.register(weak(&count()));
        }
        assert!(lock(&end.audience).members.len() <= 200);
        assert!(end.mark(Ending::Lost) && !end.mark(Ending::Closed));
        end.tell();
        end.tell();
        assert!(kept.iter().all(|member| member.0.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn everybody_is_told_once_however_late() {
        for _ in 0..200 {
            let end = End::default();
            let members: Vec<_> = std::iter::repeat_with(count).take(20).collect();
            std::thread::scope(|scope| {
                scope.spawn(|| members.iter().for_each(|member| end.register(weak(member))));
                end.mark(Ending::Lost);
                end.tell();
            });
            assert!(members.iter().all(|member| member.0.load(Ordering::Relaxed) == 1));
        }
    }
}
