//! Stand-ins for tests of this crate and those above it: memory without any network interface.

mod heap_region;
mod interleaved;

pub use heap_region::HeapRegion;
pub use interleaved::{Interleaved, SampleOrder, SharedRegions};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// What a future yields that must not wait, such as a traversal over [`Local`](crate::Local).
///
/// # Panics
/// When it waits.
pub fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits"),
    }
}

/// What a future yields that makes progress whenever it is polled, as all on the data path do.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        std::hint::spin_loop();
    }
}
