//! Runs a batch of like futures in turns on one core, so that the memory accesses of one hide behind the others'
//! (Kalia §4.1.1's request pipeline, as coroutines). No allocation: the futures lie in the caller's frame.
//!
//! Each future lives in a pinned `Option` of its own and is reached through an array of pinned references, since safe
//! code cannot pin the elements of an array. That and the refilling of places cost 1 to 2 ns per poll over an unsafe loop
//! over an array when everything is in the cache, and nothing that can be measured when memory is not.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

/// At most so many futures take turns at once.
pub const LANES_MAX: usize = 32;

/// The places of the futures under way.
struct Lanes<'a, F> {
    places: [Pin<&'a mut Option<F>>; LANES_MAX],
    /// Which item each place works on.
    items: [usize; LANES_MAX],
    /// A bit for each place in use.
    live: u32,
}

/// Pins [`LANES_MAX`] empty places in the caller's frame.
macro_rules! lanes {
    ($future:ty) => {
        Lanes {
            places: lanes!(@ $future; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31),
            items: [0; LANES_MAX],
            live: 0,
        }
    };
    (@ $future:ty; $($n:literal)*) => { [$({ let _ = $n; pin!(None::<$future>) }),*] };
}

impl<F: Future> Lanes<'_, F> {
    /// Fills empty places among the first `lanes`.
    #[inline]
    fn fill(&mut self, lanes: usize, futures: &mut impl Iterator<Item = F>, next: &mut usize) {
        for lane in 0..lanes.clamp(1, LANES_MAX) {
            if self.live & (1 << lane) == 0 {
                let Some(future) = futures.next() else { return };
                self.places[lane].set(Some(future));
                self.items[lane] = *next;
                self.live |= 1 << lane;
                *next += 1;
            }
        }
    }

    /// Polls each future once, and says whether any finished; a place that becomes free takes the next future.
    #[inline]
    fn turn(
        &mut self,
        context: &mut Context<'_>,
        futures: &mut impl Iterator<Item = F>,
        next: &mut usize,
        done: &mut impl FnMut(usize, F::Output),
    ) -> bool {
        let (mut left, mut any) = (self.live, false);
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            left &= left - 1;
            let Some(future) = self.places[lane].as_mut().as_pin_mut() else { continue };
            let Poll::Ready(output) = future.poll(context) else { continue };
            any = true;
            done(self.items[lane], output);
            let following = futures.next();
            if following.is_some() {
                self.items[lane] = *next;
                *next += 1;
            } else {
                self.live &= !(1 << lane);
            }
            self.places[lane].set(following);
        }
        any
    }
}

/// Runs all futures to their end, `lanes` (1 to [`LANES_MAX`]) of them in turns, without ever idling: for traversals
/// over memory that answers when polled again. `done` gets the number of each future and its output, in the order in
/// which they finish.
#[inline]
pub fn interleave<F: Future>(
    lanes: usize,
    futures: impl IntoIterator<Item = F>,
    done: impl FnMut(usize, F::Output),
) {
    interleave_idling(lanes, futures, done, |_| ());
}

/// The same, where futures may wait for a peer: `fruitless` is called after each turn in which none finished, with how
/// many such turns there were in a row, and may idle.
#[inline]
pub fn interleave_idling<F: Future>(
    lanes: usize,
    futures: impl IntoIterator<Item = F>,
    mut done: impl FnMut(usize, F::Output),
    mut fruitless: impl FnMut(u32),
) {
    let (mut futures, mut next, mut turns) = (futures.into_iter(), 0, 0);
    let mut context = Context::from_waker(Waker::noop());
    let mut places = lanes!(F);
    places.fill(lanes, &mut futures, &mut next);
    while places.live != 0 {
        if places.turn(&mut context, &mut futures, &mut next, &mut done) {
            turns = 0;
        } else {
            turns += 1;
            fruitless(turns);
        }
    }
}

/// The same as a future: after each turn it is pending, so that the caller may do other things or idle. For futures
/// that wait for a peer.
pub async fn interleave_async<F: Future>(
    lanes: usize,
    futures: impl IntoIterator<Item = F>,
    mut done: impl FnMut(usize, F::Output),
) {
    let (mut futures, mut next) = (futures.into_iter(), 0);
    let mut places = lanes!(F);
    places.fill(lanes, &mut futures, &mut next);
    poll_fn(|context| {
        if places.live != 0 && places.turn(context, &mut futures, &mut next, &mut done) {
            // Something was done: not a reason to idle.
            context.waker().wake_by_ref();
        }
        if places.live == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Idle, ThreadPark, block_on, yield_now};
    use std::cell::{Cell, RefCell};

    async fn yields(times: usize, name: usize, trace: &RefCell<Vec<usize>>) -> usize {
        for _ in 0..times {
            trace.borrow_mut().push(name);
            yield_now().await;
        }
        name * 10
    }

    #[test]
    fn takes_turns_and_reports_each_as_it_finishes() {
        let (trace, mut outputs) = (RefCell::default(), Vec::new());
        interleave(8, [2, 1, 3].into_iter().enumerate().map(|(i, n)| yields(n, i, &trace)), |i, out| {
            outputs.push((i, out));
        });
        assert_eq!(*trace.borrow(), [0, 1, 2, 0, 2, 2]);
        assert_eq!(outputs, [(1, 10), (0, 0), (2, 20)]);
    }

    #[test]
    fn lanes_bound_how_many_are_under_way() {
        let (running, most, finished) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let one = || async {
            running.set(running.get() + 1);
            most.set(most.get().max(running.get()));
            yield_now().await;
            running.set(running.get() - 1);
        };
        for lanes in [0, 1, 3, 32, 99] {
            most.set(0);
            interleave(lanes, (0..100).map(|_| one()), |_, ()| finished.set(finished.get() + 1));
            assert_eq!(most.get(), lanes.clamp(1, LANES_MAX));
        }
        assert_eq!(finished.get(), 500);
        interleave(4, std::iter::empty::<std::future::Ready<()>>(), |_, ()| unreachable!());
    }

    #[test]
    fn as_a_future_it_finishes_too() {
        let (trace, mut sum) = (RefCell::default(), 0);
        let all = interleave_async(4, (0..40).map(|i| yields(i % 5, i, &trace)), |i, out| {
            assert_eq!(out, i * 10);
            sum += i;
        });
        block_on(all, &ThreadPark::new(), &mut Idle::default());
        assert_eq!(sum, 780);
    }
}
