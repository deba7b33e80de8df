//! Runs one future on this thread.

use crate::{Idle, Park, signal::Signal};
use std::{
    cell::Cell,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

thread_local! {
    /// Kept between calls, so that a call allocates nothing.
    static SIGNAL: Cell<Option<(Arc<Signal>, Waker)>> = const { Cell::new(None) };
}

/// Polls the future until it is done and idles in between.
///
/// Futures of the data path poll the fabric themselves whenever they are polled, and register no waker; so a pending
/// future is polled again after each idle step. One that wakes its waker is polled again at once, and counts as work.
pub fn block_on<F: Future>(future: F, park: &(impl Park + ?Sized), idle: &mut Idle) -> F::Output {
    // A nested call finds none and makes its own.
    let (signal, waker) = SIGNAL.take().unwrap_or_else(Signal::new);
    let mut future = pin!(future);
    let mut context = Context::from_waker(&waker);
    idle.reset();
    let output = loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => break output,
            Poll::Pending if signal.take() => idle.reset(),
            Poll::Pending => signal.rest(idle, park, Duration::MAX),
        }
    };
    signal.take();
    SIGNAL.set(Some((signal, waker)));
    output
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ThreadPark, yield_now};
    use std::{
        future::poll_fn,
        sync::atomic::{AtomicBool, Ordering},
    };

    #[test]
    fn polls_again_without_a_waker() {
        let mut polls = 0;
        let counting = poll_fn(|_| {
            polls += 1;
            if polls == 500 { Poll::Ready(polls) } else { Poll::Pending }
        });
        // The policy would let it sleep, so that the tick is what brings it on: kept short here.
        let mut idle = Idle::new(crate::IdlePolicy { tick: Duration::from_micros(1), ..Default::default() });
        assert_eq!(block_on(counting, &ThreadPark::new(), &mut idle), 500);
    }

    #[test]
    fn a_wake_by_another_thread_ends_a_long_sleep() {
        let policy = crate::IdlePolicy { spins: 0, yields: 0, tick: Duration::from_secs(3600) };
        let flag = Arc::new(AtomicBool::new(false));
        let setter = flag.clone();
        let mut started = None;
        let waiting = poll_fn(|context| {
            if started.is_none() {
                let (waker, setter) = (context.waker().clone(), setter.clone());
                started = Some(std::thread::spawn(move || {
                    setter.store(true, Ordering::Release);
                    waker.wake();
                }));
            }
            if flag.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
        });
        block_on(waiting, &ThreadPark::new(), &mut Idle::new(policy));
        started.unwrap().join().unwrap();
    }

    #[test]
    fn calls_nest_and_a_wake_counts_as_work() {
        // Sleeping would take an hour: yield_now must not lead there.
        let policy = || crate::IdlePolicy { spins: 0, yields: 0, tick: Duration::from_secs(3600) };
        let park = ThreadPark::new();
        let total = block_on(
            async {
                let mut sum = 0;
                for _ in 0..3 {
                    yield_now().await;
                    sum += block_on(
                        async {
                            yield_now().await;
                            1
                        },
                        &park,
                        &mut Idle::new(policy()),
                    );
                    yield_now().await;
                }
                sum
            },
            &park,
            &mut Idle::new(policy()),
        );
        assert_eq!(total, 3);
    }
}
