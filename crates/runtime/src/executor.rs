//! An executor of tasks that stay on one core.
//!
//! Ours and not a crate's, for two reasons. Futures of the data path poll the fabric themselves and register no waker, so
//! every task must be polled on every turn, where a general executor polls only what was woken; and the simulator needs
//! turns that it can drive, in an order that never changes. It is also the quickest: of 16 tasks that only yield, a poll
//! takes 9 ns here, 28 ns in `futures::executor::LocalPool` and 63 ns in `async_executor::LocalExecutor`; in
//! [`interleave`](crate::interleave()), which allocates nothing, 2 ns (`cargo run --release -p locus-runtime --example
//! executors`).

use crate::{Clock, Idle, Park, Timers, TimersFull, signal::Signal};
use std::{
    cell::{Cell, RefCell},
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

/// The core has as many tasks as it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this core has {0} tasks, which is the limit")]
pub struct TooManyTasks(pub usize);

type Running = Pin<Box<dyn Future<Output = ()>>>;

/// The tasks of one core. Clones are handles of the same core; tasks hold them to spawn and to sleep.
pub struct Core<C> {
    inner: Rc<Inner<C>>,
}

struct Inner<C> {
    clock: C,
    /// Polled in this order, every one on every turn.
    tasks: RefCell<Vec<Running>>,
    /// Spawned since the last turn began, since `tasks` is borrowed during a turn.
    incoming: RefCell<Vec<Running>>,
    count: Cell<usize>,
    tasks_max: usize,
    timers: RefCell<Timers<()>>,
    signal: Arc<Signal>,
    waker: Waker,
}

impl<C> Clone for Core<C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<C: Clock + 'static> Core<C> {
    /// A core without tasks, which takes at most `tasks_max`, and as many sleeps.
    pub fn new(clock: C, tasks_max: usize) -> Self {
        let (signal, waker) = Signal::new();
        Self {
            inner: Rc::new(Inner {
                clock,
                tasks: RefCell::default(),
                incoming: RefCell::default(),
                count: Cell::new(0),
                tasks_max,
                timers: RefCell::new(Timers::new(tasks_max)),
                signal,
                waker,
            }),
        }
    }

    /// The core's clock.
    pub fn clock(&self) -> &C {
        &self.inner.clock
    }

    /// Adds a task, which is first polled on the next turn. Dropping the handle lets the task go on by itself.
    pub fn spawn<T: 'static>(
        &self,
        future: impl Future<Output = T> + 'static,
    ) -> Result<Task<T>, TooManyTasks> {
        let inner = &self.inner;
        if inner.count.get() >= inner.tasks_max {
            return Err(TooManyTasks(inner.tasks_max));
        }
        inner.count.set(inner.count.get() + 1);
        let output = Rc::new(Cell::new(None));
        let slot = output.clone();
        inner.incoming.borrow_mut().push(Box::pin(async move { slot.set(Some(future.await)) }));
        inner.waker.wake_by_ref();
        Ok(Task { output })
    }

    /// Polls every task once and says whether there was work: a task finished, was spawned, woke the core, or a sleep
    /// ended.
    pub fn turn(&self) -> bool {
        let inner = &self.inner;
        let mut tasks = inner.tasks.borrow_mut();
        tasks.append(&mut inner.incoming.borrow_mut());
        let mut worked = self.expire() | inner.signal.take();
        let mut context = Context::from_waker(&inner.waker);
        let before = tasks.len();
        // `retain_mut` keeps the order.
        tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
        let finished = before - tasks.len();
        inner.count.set(inner.count.get() - finished);
        worked |= finished > 0;
        worked | inner.signal.take()
    }

    /// Takes turns until one finds no work: what a simulation does before it moves the clock.
    pub fn run_until_idle(&self) {
        while self.turn() {}
    }

    /// Runs the future and all tasks until the future is done; idles when there is no work.
    pub fn run<F: Future>(&self, future: F, park: &(impl Park + ?Sized), idle: &mut Idle) -> F::Output {
        let inner = &self.inner;
        let mut future = pin!(future);
        let mut context = Context::from_waker(&inner.waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            if self.turn() {
                idle.reset();
            } else {
                inner.signal.rest(idle, park, self.until_next());
            }
        }
    }

    /// When the earliest sleep ends, by the core's clock.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.inner.timers.borrow().next()
    }

    /// How many tasks have not finished.
    pub fn tasks(&self) -> usize {
        self.inner.count.get()
    }

    /// A future that is done when so much time has passed since this call.
    pub fn sleep(&self, time: Duration) -> Result<Sleep<C>, TimersFull> {
        let at_ns = self.clock().now_ns().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        // So that the core wakes in time; the future itself looks at the clock.
        self.inner.timers.borrow_mut().add(at_ns, ())?;
        Ok(Sleep { inner: self.inner.clone(), at_ns })
    }

    /// Forgets deadlines that have come, and says whether there were any.
    fn expire(&self) -> bool {
        let mut timers = self.inner.timers.borrow_mut();
        if timers.is_empty() {
            return false;
        }
        let now_ns = self.clock().now_ns();
        let mut any = false;
        while timers.due(now_ns).is_some() {
            any = true;
        }
        any
    }

    fn until_next(&self) -> Duration {
        let left = |at_ns: u64| Duration::from_nanos(at_ns.saturating_sub(self.clock().now_ns()));
        self.next_deadline_ns().map_or(Duration::MAX, left)
    }
}

/// The handle of a task; as a future it gives the task's output.
pub struct Task<T> {
    output: Rc<Cell<Option<T>>>,
}

impl<T> Task<T> {
    /// The output, once, if the task is done.
    pub fn take(&self) -> Option<T> {
        self.output.take()
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        self.take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// See [`Core::sleep`].
pub struct Sleep<C> {
    inner: Rc<Inner<C>>,
    at_ns: u64,
}

impl<C: Clock> Future for Sleep<C> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.inner.clock.now_ns() >= self.at_ns { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Lets the other futures of the core have a turn.
pub fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// See [`yield_now`].
#[derive(Debug)]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IdlePolicy, ManualClock, MonotonicClock, ThreadPark};

    #[test]
    fn tasks_take_turns_in_the_order_they_were_spawned() {
        let core = Core::new(ManualClock::new(), 8);
        let trace = Rc::new(RefCell::new(Vec::new()));
        for name in 0..3 {
            let trace = trace.clone();
            core.spawn(async move {
                for _ in 0..=name {
                    trace.borrow_mut().push(name);
                    yield_now().await;
                }
            })
            .unwrap();
        }
        core.run_until_idle();
        assert_eq!(*trace.borrow(), [0, 1, 2, 1, 2, 2]);
        assert_eq!(core.tasks(), 0);
    }

    #[test]
    fn sleeps_follow_the_clock_and_nothing_else() {
        let clock = ManualClock::new();
        let core = Core::new(clock.clone(), 8);
        let handle = core.clone();
        let task = core
            .spawn(async move {
                handle.sleep(Duration::from_secs(3600)).unwrap().await;
                handle.sleep(Duration::from_nanos(5)).unwrap().await;
                handle.clock().now_ns()
            })
            .unwrap();
        let mut steps = 0;
        loop {
            core.run_until_idle();
            if let Some(now_ns) = task.take() {
                assert_eq!(now_ns, 3_600_000_000_005);
                break;
            }
            clock.advance_to(core.next_deadline_ns().unwrap());
            steps += 1;
        }
        assert_eq!(steps, 2);
    }

    #[test]
    fn tasks_spawn_tasks_up_to_the_limit_and_are_awaited() {
        let core = Core::new(ManualClock::new(), 2);
        let handle = core.clone();
        let outer = core.spawn(async move { handle.spawn(async { 7 }).unwrap().await + 1 }).unwrap();
        core.run_until_idle();
        assert_eq!(outer.take(), Some(8));
        for _ in 0..2 {
            core.spawn(std::future::pending::<()>()).unwrap();
        }
        assert_eq!(core.spawn(async {}).err(), Some(TooManyTasks(2)));
    }

    #[test]
    fn a_core_sleeps_no_longer_than_to_its_next_deadline() {
        // An hour's tick: only the deadline, or the wake by another thread, can end the sleep.
        let policy = IdlePolicy { spins: 0, yields: 0, tick: Duration::from_secs(3600) };
        let core = Core::new(MonotonicClock::new(), 8);
        let sleep = core.sleep(Duration::from_millis(2)).unwrap();
        core.run(sleep, &ThreadPark::new(), &mut Idle::new(policy));
        assert!(core.clock().now_ns() >= 2_000_000);
    }
}
