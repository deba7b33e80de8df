//! Simulated threads that borrow from the one that starts them, as [`std::thread::scope`] has real ones.

use super::{
    state::with,
    threads::{end_thread, is_ending},
};
use locus_runtime::{
    thread::Panicked,
    world::{self, ThreadNumber},
};
use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    rc::Rc,
};

/// Where borrowing threads are started.
pub struct Scope<'scope, 'env: 'scope> {
    threads: RefCell<Vec<ThreadNumber>>,
    /// The thread that waits for them all.
    owner: ThreadNumber,
    lifetimes: PhantomData<(&'scope mut &'scope (), &'env mut &'env ())>,
}

/// A thread of a scope.
pub struct ScopedThread<'scope, T> {
    thread: ThreadNumber,
    output: Rc<Cell<Option<T>>>,
    owner: ThreadNumber,
    lifetime: PhantomData<&'scope ()>,
}

/// Runs `body`, which may start threads that borrow what outlives the scope, and waits for all of them.
pub fn scope<'env, T>(body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    let owner = world::current().expect("within a simulation").thread();
    let scope = Scope { threads: RefCell::default(), owner, lifetimes: PhantomData };
    // Also when `body` panics: no thread of the scope may outlive what it borrows.
    let end = End(&scope.threads);
    let output = body(&scope);
    drop(end);
    output
}

struct End<'a>(&'a RefCell<Vec<ThreadNumber>>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        for &thread in self.0.borrow().iter() {
            wait_for(thread);
            if !with(|state| state.threads.has_ended(thread)) {
                end_thread(thread);
            }
        }
    }
}

/// Waits until a thread has ended, or the caller must not wait.
fn wait_for(thread: ThreadNumber) {
    let Some(world) = world::current() else { return };
    while !with(|state| state.threads.has_ended(thread)) && !is_ending() {
        world.park(None);
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread.
    pub fn spawn<T: 'scope>(&'scope self, body: impl FnOnce() -> T + 'scope) -> ScopedThread<'scope, T> {
        let world = world::current().expect("within a simulation");
        let output = Rc::new(Cell::new(None));
        let (place, owner) = (output.clone(), self.owner);
        let body: Box<dyn FnOnce() + 'scope> = Box::new(move || {
            let _wake = Wake(owner);
            place.set(Some(body()));
        });
        // SAFETY: what the body borrows lives as long as 'scope, and the thread has ended before that does: `End` waits
        // for it, or ends it where waiting is not possible; and a world that ends threads ends the youngest first, so this
        // one before the one whose stack it borrows.
        let body =
            unsafe { std::mem::transmute::<Box<dyn FnOnce() + 'scope>, Box<dyn FnOnce() + 'static>>(body) };
        let thread = world.spawn("of a scope", body);
        self.threads.borrow_mut().push(thread);
        ScopedThread { thread, output, owner, lifetime: PhantomData }
    }
}

/// Wakes the owner of the scope at the end of a thread, however it comes.
struct Wake(ThreadNumber);

impl Drop for Wake {
    fn drop(&mut self) {
        if let Some(world) = world::current() {
            world.unpark(self.0);
        }
    }
}

impl<T> ScopedThread<'_, T> {
    /// Waits for the thread's end and gives its output.
    pub fn join(self) -> Result<T, Panicked> {
        debug_assert_eq!(
            world::current().map(|world| world.thread()),
            Some(self.owner),
            "its owner joins it"
        );
        wait_for(self.thread);
        self.output.take().ok_or(Panicked)
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        with(|state| state.threads.has_ended(self.thread))
    }
}
