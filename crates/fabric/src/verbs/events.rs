//! What a device tells of itself: a completion queue that overflowed, a queue pair that failed with nothing posted, a
//! port that went down. A thread listens, and breaks the queue pairs concerned.

use super::{ffi, handle::Device, queue_pair::Breakable};
use crate::FabricError;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags},
    fd::OwnedFd,
};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The queue pairs of a NIC, for the thread that listens; it ends with this.
pub(crate) struct Events {
    pairs: Arc<Mutex<Vec<Weak<Breakable>>>>,
    stop: Arc<OwnedFd>,
}

impl Events {
    /// Starts to listen.
    pub(crate) fn listen(device: &Device) -> Result<Self, FabricError> {
        let system = |what| move |source| FabricError::System { what, source };
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| system("making an eventfd")(errno.into()))?;
        let (pairs, stop) = (Arc::default(), Arc::new(stop));
        let (device, heard, ended) = (device.clone(), Arc::clone(&pairs), stop.clone());
        std::thread::Builder::new()
            .name("locus-verbs-events".into())
            .spawn(move || run(&device, &heard, &ended))
            .map_err(system("starting a thread"))?;
        Ok(Self { pairs, stop })
    }

    /// Adds a queue pair.
    pub(crate) fn add(&self, pair: &Arc<Breakable>) {
        let mut pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.retain(|pair| pair.strong_count() > 0);
        pairs.push(Arc::downgrade(pair));
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
    }
}

fn run(device: &Device, pairs: &Mutex<Vec<Weak<Breakable>>>, stop: &OwnedFd) {
    loop {
        let mut ready =
            [PollFd::from_borrowed_fd(device.events(), PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        let polled = rustix::event::poll(&mut ready, None);
        if !ready[1].revents().is_empty() {
            return;
        }
        if polled.is_ok() && ready[0].revents().contains(PollFlags::IN) {
            // Found before the event is acknowledged, since its object may be gone after that; let go of after it, since
            // an object that waits for the acknowledgement cannot be given back.
            let concerned = device.take_event(|event| concerned(event, pairs));
            for (concerned, pair) in concerned.into_iter().flatten() {
                if concerned {
                    pair.break_it();
                }
            }
        } else if polled.is_ok() {
            // The device was taken away: there is nothing more to hear.
            return;
        }
    }
}

/// All queue pairs, and whether the event is about them. Also the others must be let go of after the acknowledgement.
fn concerned(event: &ffi::AsyncEvent, pairs: &Mutex<Vec<Weak<Breakable>>>) -> Vec<(bool, Arc<Breakable>)> {
    let pairs = pairs.lock().unwrap_or_else(PoisonError::into_inner);
    pairs.iter().filter_map(Weak::upgrade).map(|pair| (pair.concerns(event), pair)).collect()
}
