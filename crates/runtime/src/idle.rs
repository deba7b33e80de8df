//! What a core does when there is nothing to do: it spins, then yields the processor, then sleeps.
//!
//! Spinning answers soonest. Yielding comes before sleeping so that two busy processes share two cores without paying
//! for a sleep and a wake-up per message. Sleeping is bounded, so that whatever raises no event is still seen.
//!
//! A yield that takes long has let somebody else run on this core: perhaps the very peer that this core waits for. While
//! that is so, it spins hardly at all, since it would only keep the peer from answering. A yield that takes no time was for
//! nothing, and the core spins a little before the next one.

use crate::{Park, world};
use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

/// A yield that takes longer has let somebody else run: two switches between threads take more, and a yield on a core
/// that nobody else wants takes a fraction. At least, and at least so many times the simplest system call, which is what
/// counts where the processor is emulated.
const CROWDED_YIELD: Duration = Duration::from_nanos(1500);
const CROWDED_YIELD_CALLS: u32 = 8;
/// The empty polls that a core spins through after there was work, while others want it.
const CROWDED_SPINS: u32 = 4;
/// The first empty polls after there was work come without a pause of the processor in between, which takes about as long as
/// a poll: an answer that is on its way is seen so much sooner.
const EAGER_SPINS: u32 = 32;
/// The empty polls between two yields while nobody wants the core: together they take longer than a yield.
const QUIET_SPINS: u32 = 64;

/// How long a core stays awake without work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdlePolicy {
    /// How many empty polls it spins through before it yields.
    pub spins: u32,
    /// How often it then yields the processor before it sleeps.
    pub yields: u32,
    /// The longest sleep.
    pub tick: Duration,
}

impl Default for IdlePolicy {
    /// Spins for ten or twenty microseconds (many round trips: to yield takes as long as a message), yields now and
    /// then for a few hundred (a few times what a sleep and a wake-up cost), and then looks ten times a second, which takes far less
    /// than 1% of a core.
    fn default() -> Self {
        Self { spins: 512, yields: 128, tick: Duration::from_millis(100) }
    }
}

/// What one idle step was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// A pause of the processor, or nothing.
    Spun,
    /// The processor was offered to others.
    Yielded,
    /// The core wanted to sleep and found that something had arrived.
    Called,
    /// The core slept.
    Slept,
}

/// The state of a core that idles by a policy.
#[derive(Clone, Debug)]
pub struct Idle {
    policy: IdlePolicy,
    /// The empty polls that it spins through before it rests again.
    spins_left: u32,
    /// With fewer left than this, it pauses after each.
    pauses_below: u32,
    /// How often it has yielded since there was work.
    yielded: u32,
    /// The longest sleep while sources of requests exist that raise no event.
    nap: Option<Duration>,
    /// Whether the last yield let somebody else run.
    crowded: bool,
    /// In a simulated world a core that waits only looks when there is something to see, which spares an event per poll.
    simulated: bool,
}

impl Idle {
    /// Starts awake.
    pub fn new(policy: IdlePolicy) -> Self {
        let simulated = world::is_simulated();
        let mut idle =
            Self { policy, spins_left: 0, pauses_below: 0, yielded: 0, nap: None, crowded: false, simulated };
        idle.reset();
        idle
    }

    /// There was work: the next empty poll is the first.
    #[inline]
    pub fn reset(&mut self) {
        self.yielded = 0;
        self.spins_left = match () {
            () if self.simulated => 0,
            () if self.crowded => self.policy.spins.min(CROWDED_SPINS),
            () => self.policy.spins,
        };
        self.pauses_below = match self.crowded {
            true => u32::MAX,
            false => self.spins_left.saturating_sub(EAGER_SPINS),
        };
    }

    /// While a core polls requests that raise no event (a WRITE into its memory), no sleep is longer than this; `None`
    /// when there are no such requests any more.
    pub fn naps(&mut self, longest: Option<Duration>) {
        self.nap = longest;
    }

    /// To be called after a poll that found nothing.
    #[inline]
    pub fn step(&mut self, park: &(impl Park + ?Sized)) -> Rest {
        self.step_at_most(park, Duration::MAX)
    }

    /// The same, where the core has something to do after `longest` in any case.
    #[inline]
    pub fn step_at_most(&mut self, park: &(impl Park + ?Sized), longest: Duration) -> Rest {
        if self.spins_left > 0 {
            self.spins_left -= 1;
            if self.spins_left < self.pauses_below {
                std::hint::spin_loop();
            }
            return Rest::Spun;
        }
        self.rest(park, longest)
    }

    /// Whether the next [`Idle::step`] may sleep.
    pub fn drowsy(&self) -> bool {
        self.simulated || self.spins_left == 0 && self.yielded >= self.policy.yields
    }

    #[cold]
    fn rest(&mut self, park: &(impl Park + ?Sized), longest: Duration) -> Rest {
        if !self.drowsy() {
            self.yielded += 1;
            let start = Instant::now();
            std::thread::yield_now();
            self.crowded = start.elapsed() > crowded_yield();
            let last = self.yielded == self.policy.yields;
            self.pauses_below = u32::MAX;
            self.spins_left = if self.crowded || last { 0 } else { self.policy.spins.min(QUIET_SPINS) };
            return Rest::Yielded;
        }
        if !park.prepare() {
            self.reset();
            return Rest::Called;
        }
        park.park(longest.min(self.policy.tick).min(self.nap.unwrap_or(Duration::MAX)));
        Rest::Slept
    }
}

/// A yield that takes longer has let somebody else run.
fn crowded_yield() -> Duration {
    static LIMIT: OnceLock<Duration> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let call = || {
            let start = Instant::now();
            std::hint::black_box(std::os::unix::process::parent_id());
            start.elapsed()
        };
        let quickest = (0..16).map(|_| call()).min().unwrap_or_default();
        CROWDED_YIELD.max(quickest * CROWDED_YIELD_CALLS)
    })
}

impl Default for Idle {
    fn default() -> Self {
        Self::new(IdlePolicy::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::RefCell, sync::Arc};

    /// Notes how long it was asked to sleep, and sleeps not.
    #[derive(Default)]
    struct Notes {
        arrived: bool,
        slept: RefCell<Vec<Duration>>,
    }

    impl Park for Notes {
        fn prepare(&self) -> bool {
            !self.arrived
        }
        fn park(&self, timeout: Duration) {
            self.slept.borrow_mut().push(timeout);
        }
        fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
            Arc::new(|| ())
        }
    }

    fn policy() -> IdlePolicy {
        IdlePolicy { spins: 2, yields: 3, tick: Duration::from_millis(7) }
    }

    #[test]
    fn spins_then_yields_then_sleeps_until_work_comes() {
        use Rest::*;
        let (mut idle, park) = (Idle::new(policy()), Notes::default());
        let mut steps: Vec<Rest> = (0..11).map(|_| idle.step(&park)).collect();
        assert_eq!(steps[..3], [Spun, Spun, Yielded]);
        // A loaded machine makes yields slow, and there are no spins after such a one.
        let mut spins = 0;
        steps.retain(|rest| {
            *rest != Spun || {
                spins += 1;
                spins <= 2
            }
        });
        assert!(spins <= 2 + 2 * 2, "{spins} spins");
        assert_eq!(steps[..7], [Spun, Spun, Yielded, Yielded, Yielded, Slept, Slept]);
        idle.reset();
        assert_eq!(idle.step(&park), Spun);
    }

    #[test]
    fn does_not_sleep_when_something_has_arrived() {
        let (mut idle, park) = (Idle::new(policy()), Notes { arrived: true, ..Notes::default() });
        let last = (0..20).map(|_| idle.step(&park)).find(|rest| *rest == Rest::Called);
        assert_eq!(last, Some(Rest::Called));
        assert!(park.slept.borrow().is_empty());
        assert_eq!(idle.step(&park), Rest::Spun);
    }

    #[test]
    fn sleeps_are_bounded_by_tick_nap_and_deadline() {
        let park = Notes::default();
        let mut idle = Idle::new(IdlePolicy { spins: 0, yields: 0, ..policy() });
        idle.step(&park);
        idle.naps(Some(Duration::from_micros(50)));
        idle.step(&park);
        idle.step_at_most(&park, Duration::from_micros(20));
        idle.naps(None);
        idle.step(&park);
        let ms = Duration::from_millis(7);
        assert_eq!(*park.slept.borrow(), [ms, Duration::from_micros(50), Duration::from_micros(20), ms]);
    }
}
