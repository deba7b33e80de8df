//! How a core sleeps until there is work for it: announce, look again, sleep (Dekker's pattern, so no wake-up is lost).

use std::{sync::Arc, time::Duration};

/// How a core sleeps until something arrives on its queue pairs. The fences that this needs are on the sleeper's side.
pub trait Park {
    /// Announces that the core is about to sleep, then looks again: false if something arrived meanwhile, in which case
    /// the announcement is withdrawn.
    fn prepare(&self) -> bool;
    /// Sleeps until something arrives or the timeout passes, then withdraws the announcement.
    fn park(&self, timeout: Duration);
    /// Something that any thread can hold to wake the sleeper.
    fn waker(&self) -> Arc<dyn Fn() + Send + Sync>;
}
