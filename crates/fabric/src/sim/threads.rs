//! Simulated threads: coroutines of the one thread that runs the world, which takes them up one at a time.

use super::{
    events::Event,
    state::{State, try_with, with},
};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use locus_runtime::world::{ThreadNumber, World};
use std::{cell::Cell, ptr::NonNull};

/// A suspended or running simulated thread.
pub(crate) type Body = Coroutine<(), (), ()>;

thread_local! {
    /// Whether the running thread is being unwound from outside: then nothing waits.
    static ENDING: Cell<bool> = const { Cell::new(false) };
}

/// All threads of a world. The number of a thread is its place.
#[derive(Default)]
pub(crate) struct Threads {
    all: Vec<Thread>,
    running: Option<ThreadNumber>,
}

struct Thread {
    name: String,
    process: usize,
    /// The core of its host that it is on, where they are counted.
    core: Option<usize>,
    /// None while it runs, and when it has ended.
    body: Option<Body>,
    /// How its body suspends itself; known from its first turn on.
    yielder: Option<NonNull<Yielder<(), ()>>>,
    /// Counts its turns, so that an event meant for an earlier one is known.
    turn: u64,
    parked: bool,
    /// Somebody unparked it while it did not park.
    token: bool,
    /// Processor time that it has used and not yet waited for, in nanoseconds.
    debt_ns: u64,
    /// Somebody keeps it from running, and whether its turn came meanwhile.
    held: Option<bool>,
    ended: bool,
}

impl Threads {
    fn running(&self) -> ThreadNumber {
        self.running.expect("a simulated thread runs")
    }

    fn get(&mut self, thread: ThreadNumber) -> &mut Thread {
        &mut self.all[thread as usize]
    }

    /// The process of the running thread.
    pub(crate) fn process(&self) -> usize {
        self.all[self.running() as usize].process
    }

    /// Whether it is the turn that an event was meant for.
    pub(crate) fn begin_turn(&mut self, thread: ThreadNumber, turn: u64) -> bool {
        let thread = self.get(thread);
        let due = !thread.ended && thread.turn == turn;
        if due && let Some(missed) = &mut thread.held {
            *missed = true;
            return false;
        }
        if due {
            thread.turn += 1;
            thread.parked = false;
        }
        due
    }

    /// The n-th thread of this name that a process started, if it has not ended.
    fn find(&self, process: usize, name: &str, nth: usize) -> Option<ThreadNumber> {
        let named = |thread: &Thread| thread.process == process && thread.name == name;
        let found = (0..).zip(&self.all).filter(|(_, thread)| named(thread)).nth(nth);
        found.filter(|(_, thread)| !thread.ended).map(|(number, _)| number)
    }

    /// The threads of a process that have not ended, the youngest first: what they were started by may lend them its
    /// stack.
    pub(crate) fn of_process(&self, process: Option<usize>) -> Vec<ThreadNumber> {
        let all = self.all.iter().enumerate().rev();
        all.filter(|(_, thread)| !thread.ended && process.is_none_or(|process| thread.process == process))
            .map(|(number, _)| number as ThreadNumber)
            .collect()
    }

    pub(crate) fn has_ended(&self, thread: ThreadNumber) -> bool {
        self.all[thread as usize].ended
    }

    pub(crate) fn name(&self, thread: ThreadNumber) -> &str {
        &self.all[thread as usize].name
    }
}

impl State {
    /// Starts a thread of a process.
    pub(crate) fn start_thread(
        &mut self,
        name: &str,
        process: usize,
        body: Box<dyn FnOnce()>,
    ) -> ThreadNumber {
        let number = self.threads.all.len() as ThreadNumber;
        let body = Coroutine::new(move |yielder: &Yielder<(), ()>, ()| {
            with(|state| state.threads.get(number).yielder = Some(NonNull::from(yielder)));
            body();
        });
        let core = self.place_thread(process);
        self.threads.all.push(Thread {
            name: name.to_owned(),
            process,
            core,
            body: Some(body),
            yielder: None,
            turn: 0,
            parked: true,
            token: false,
            debt_ns: 0,
            held: None,
            ended: false,
        });
        self.after(0, Event::Resume { thread: number, turn: 0 });
        number
    }

    /// Ends a thread's parking, or the next one if it does not park now.
    pub(crate) fn unpark(&mut self, thread: ThreadNumber) {
        let found = self.threads.get(thread);
        if found.ended {
            return;
        }
        if !found.parked {
            found.token = true;
            return;
        }
        let turn = found.turn;
        self.after(0, Event::Resume { thread, turn });
    }

    /// Keeps a thread of a process from running, wherever it is: see [`State::let_go`]. None if there is none to be held.
    pub(crate) fn hold(&mut self, process: usize, name: &str, nth: usize) -> Option<ThreadNumber> {
        let number = self.threads.find(process, name, nth)?;
        let held = &mut self.threads.get(number).held;
        held.is_none().then(|| *held = Some(false))?;
        Some(number)
    }

    /// Lets a thread that was held go on.
    pub(crate) fn let_go(&mut self, thread: ThreadNumber) {
        let found = self.threads.get(thread);
        if found.held.take() == Some(true) {
            let turn = found.turn;
            self.after(0, Event::Resume { thread, turn });
        }
    }

    /// What the running thread has worked and not yet waited for, in nanoseconds.
    fn debt_ns(&mut self) -> u64 {
        let running = self.threads.running();
        self.threads.get(running).debt_ns
    }

    /// The running thread used the processor for a while.
    pub(crate) fn charge(&mut self, ns: u64) {
        let running = self.threads.running();
        self.threads.get(running).debt_ns += ns;
    }

    /// Prepares the suspension of the running thread until somebody unparks it or a moment comes; none if it must not.
    fn begin_parking(&mut self, until_ns: Option<u64>) -> Option<NonNull<Yielder<(), ()>>> {
        let running = self.threads.running();
        let thread = self.threads.get(running);
        if std::mem::take(&mut thread.token) {
            return None;
        }
        thread.parked = true;
        let turn = thread.turn;
        let yielder = thread.yielder;
        if let Some(until_ns) = until_ns {
            self.at(until_ns.max(self.now_ns), Event::Resume { thread: running, turn });
        }
        yielder
    }

    /// Prepares the suspension of the running thread for the processor time that it has used, and `ns` more.
    fn begin_working(&mut self, ns: u64) -> Option<NonNull<Yielder<(), ()>>> {
        let running = self.threads.running();
        let thread = self.threads.get(running);
        let debt_ns = std::mem::take(&mut thread.debt_ns) + ns;
        if debt_ns == 0 {
            return None;
        }
        let (turn, yielder, process, core) = (thread.turn, thread.yielder, thread.process, thread.core);
        let until_ns = self.use_core(process, core, debt_ns);
        self.at(until_ns, Event::Resume { thread: running, turn });
        yielder
    }
}

/// Whether the running thread must not wait any more.
pub(crate) fn is_ending() -> bool {
    ENDING.get() || std::thread::panicking()
}

fn suspend(yielder: Option<NonNull<Yielder<(), ()>>>) {
    if let Some(yielder) = yielder {
        // SAFETY: a yielder lives on the stack of its coroutine as long as the coroutine's body runs, and this is called
        // by that body: it is the running thread's own.
        unsafe { yielder.as_ref() }.suspend(());
    }
}

/// Lets the time pass that the running thread has used, and `ns` more.
pub(crate) fn work(ns: u64) {
    if !is_ending() {
        suspend(with(|state| state.begin_working(ns)));
    }
}

/// Suspends the running thread until somebody unparks it or a moment comes.
pub(crate) fn park(until_ns: Option<u64>) {
    if is_ending() {
        return;
    }
    work(0);
    suspend(with(|state| state.begin_parking(until_ns)));
}

/// How a turn of a thread ended.
pub(crate) enum Turn {
    Suspended,
    Returned,
    Panicked(String),
}

/// Lets a thread run until it suspends itself.
pub(crate) fn take_turn(thread: ThreadNumber) -> Turn {
    let mut body = with(|state| {
        state.threads.running = Some(thread);
        state.threads.get(thread).body.take().expect("a thread that does not run")
    });
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body.resume(())));
    with(|state| {
        state.threads.running = None;
        let found = state.threads.get(thread);
        match result {
            Ok(CoroutineResult::Yield(())) => {
                found.body = Some(body);
                return Turn::Suspended;
            }
            Ok(CoroutineResult::Return(())) => found.ended = true,
            Err(panic) => {
                found.ended = true;
                let words = panic.downcast_ref::<String>().map(String::as_str);
                let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
                return Turn::Panicked(words.unwrap_or("a panic without words").to_owned());
            }
        }
        Turn::Returned
    })
}

/// Ends a thread where it is: its stack is unwound, and nothing on it waits for anything.
pub(crate) fn end_thread(thread: ThreadNumber) {
    let (body, before) = with(|state| {
        let found = state.threads.get(thread);
        found.ended = true;
        (found.body.take(), state.threads.running.replace(thread))
    });
    let ending = ENDING.replace(true);
    drop(body);
    ENDING.set(ending);
    try_with(|state| state.threads.running = before);
}

/// The world that [`locus_runtime`] asks.
pub(crate) struct Simulated;

impl World for Simulated {
    /// What the running thread has worked since it last waited has passed for itself, if not yet for others.
    fn now_ns(&self) -> u64 {
        with(|state| state.now_ns + state.debt_ns())
    }

    fn random(&self) -> u64 {
        with(|state| state.chance.number())
    }

    fn thread(&self) -> ThreadNumber {
        with(|state| state.threads.running())
    }

    fn is_ending(&self) -> bool {
        is_ending()
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce()>) -> ThreadNumber {
        with(|state| {
            let process = state.threads.process();
            state.start_thread(name, process, body)
        })
    }

    fn park(&self, until_ns: Option<u64>) {
        park(until_ns);
    }

    fn unpark(&self, thread: ThreadNumber) {
        with(|state| state.unpark(thread));
    }
}
