//! The sleep flag: how a core sleeps without a fence on anybody's fast path, and without a lost wake-up.
//!
//! The sleeper stores an odd number in its flag, passes a heavy fence, looks at all its rings once more, and only then
//! sleeps. A sender publishes its message and then loads the flag. Store, then load, on both sides: this is Dekker's
//! pattern, and it needs both stores to be ordered before the loads, or each may miss the other. The heavy fence of the
//! sleeper is `membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)`, which makes every thread of every registered process that
//! runs at that moment pass a full fence somewhere between two of its instructions. If the sender's fence falls after it
//! published, the sleeper sees the message when it looks; if it falls before, the sender loads the flag after the fence
//! and sees it odd. Threads that do not run then have passed a fence when they were switched out. So the sender pays no
//! fence, only the compiler must keep the order. Where either process lacks membarrier, the sender passes a real fence.
//!
//! The flag is odd while its owner is asleep or about to be, and never has the same odd value twice, so a sender wakes
//! each sleep at most once. The byte it sends is read by the sleeper after the sleep that it was sent for is over and
//! before the next one is announced, so it is never lost either.

use super::word::Word;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Announces that the owner is about to sleep. A heavy fence must follow, and then a last look.
#[inline]
pub(crate) fn announce<W: Word>(flag: &W) {
    flag.store(flag.load(Relaxed) | 1, Relaxed);
}

/// Withdraws the announcement.
#[inline]
pub(crate) fn withdraw<W: Word>(flag: &W) {
    let now = flag.load(Relaxed);
    // The next announcement gets a value that was never there: the lowest bit goes, and one is added above it.
    flag.store((now | 1).wrapping_add(1), Release);
}

/// Whether the sleeper that a flag belongs to must be woken; `woken` is the last flag that was. A light fence must
/// precede, which itself follows the publication that the sleeper might miss.
#[inline(always)]
pub(crate) fn must_wake<W: Word>(flag: &W, woken: &mut u64) -> bool {
    let now = flag.load(Relaxed);
    now & 1 == 1 && now != *woken && {
        *woken = now;
        true
    }
}
