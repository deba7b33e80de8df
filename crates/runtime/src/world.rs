//! The seam at which a simulated world takes the place of the machine's: time, threads and chance.
//!
//! Code above this crate asks [`MonotonicClock`](crate::MonotonicClock) for the time, [`thread`](crate::thread) for
//! threads, [`channel`](crate::channel) for queues between them, and [`random`] for chance. While a world
//! is entered on the calling thread, all of them ask that world, in which every simulated thread is a coroutine of this
//! one thread. So the same code runs in both, and in a simulated world it runs alike every time.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// A simulated thread, by number.
pub type ThreadNumber = u64;

/// What a simulation provides.
pub trait World {
    /// Nanoseconds since the world began.
    fn now_ns(&self) -> u64;
    /// The next random number.
    fn random(&self) -> u64;
    /// The simulated thread that runs now.
    fn thread(&self) -> ThreadNumber;
    /// Whether the running thread is being ended from outside or by a panic: then it must not wait for anything.
    fn is_ending(&self) -> bool;
    /// Starts a simulated thread, which belongs to the same process as the running one.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce()>) -> ThreadNumber;
    /// Ends the running thread's turn until somebody unparks it or the time has come. Returns at once if it was unparked
    /// since it last parked, and may return early.
    fn park(&self, until_ns: Option<u64>);
    /// Ends a thread's parking, or the next one if it does not park now.
    fn unpark(&self, thread: ThreadNumber);
}

thread_local! {
    static SIMULATED: Cell<bool> = const { Cell::new(false) };
    static WORLD: RefCell<Option<Rc<dyn World>>> = const { RefCell::new(None) };
}

/// Whether the calling thread is in a simulated world.
#[inline]
pub fn is_simulated() -> bool {
    SIMULATED.get()
}

/// The world that the calling thread is in; none if that is the machine's.
pub fn current() -> Option<Rc<dyn World>> {
    if is_simulated() { WORLD.with_borrow(Clone::clone) } else { None }
}

/// Enters a world with the calling thread, until the returned value is dropped.
///
/// # Panics
/// When the thread is in one: worlds do not nest.
pub fn enter(world: Rc<dyn World>) -> Inside {
    assert!(!is_simulated(), "this thread is in a simulated world already");
    WORLD.set(Some(world));
    SIMULATED.set(true);
    Inside(())
}

/// See [`enter`].
#[derive(Debug)]
pub struct Inside(());

impl Drop for Inside {
    fn drop(&mut self) {
        SIMULATED.set(false);
        WORLD.set(None);
    }
}

/// Random bits that nobody can guess; in a simulated world, the next ones of its seed.
pub fn random() -> std::io::Result<u128> {
    if let Some(world) = current() {
        return Ok(u128::from(world.random()) << 64 | u128::from(world.random()));
    }
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}
