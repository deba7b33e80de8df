//! What a device tells of itself: a completion queue that overflowed, a queue pair that failed with nothing posted, a
//! port that went down. A thread listens, and breaks the queue pairs concerned: all, when the device is taken away.

use super::{ffi, handle::Device, queue_pair::Breakable};
use crate::FabricError;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags},
    fd::{BorrowedFd, OwnedFd},
    io::Errno,
};
use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

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
        match wait(device.events(), stop) {
            Heard::Nothing => {}
            Heard::Stop => return,
            Heard::Event => {
                // Found before the event is acknowledged, since its object may be gone after that; let go of after it,
                // since an object that waits for the acknowledgement cannot be given back.
                let concerned = device.take_event(|event| concerned(event, pairs));
                for (concerned, pair) in concerned.into_iter().flatten() {
                    if concerned {
                        pair.break_it();
                    }
                }
            }
            Heard::Gone => {
                let pairs = pairs.lock().unwrap_or_else(PoisonError::into_inner);
                let all: Vec<_> = pairs.iter().filter_map(Weak::upgrade).collect();
                // Whoever is dropped last here must find the lock free.
                drop(pairs);
                all.iter().for_each(|pair| pair.break_it());
                return;
            }
        }
    }
}

/// How long is waited after a failure of the kernel's.
const PAUSE: Duration = Duration::from_millis(10);

/// What the device's descriptor says.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    /// The NIC was closed.
    Stop,
    Event,
    /// The device was taken away: there will never be anything more to hear.
    Gone,
}

/// Waits for an event, or for the end.
fn wait(events: BorrowedFd<'_>, stop: &OwnedFd) -> Heard {
    let mut ready = [PollFd::from_borrowed_fd(events, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
    match rustix::event::poll(&mut ready, None) {
        Ok(_) => match ready.map(|ready| ready.revents()) {
            [_, stop] if !stop.is_empty() => Heard::Stop,
            [events, _] if events.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) => {
                // Also what may still wait to be heard does not matter any more.
                Heard::Gone
            }
            [events, _] if events.contains(PollFlags::IN) => Heard::Event,
            _ => Heard::Nothing,
        },
        Err(Errno::INTR) => Heard::Nothing,
        Err(_) => {
            // The kernel is out of memory: look again, but not in a hurry.
            std::thread::sleep(PAUSE);
            Heard::Nothing
        }
    }
}

/// All queue pairs, and whether the event is about them. Also the others must be let go of after the acknowledgement.
fn concerned(event: &ffi::AsyncEvent, pairs: &Mutex<Vec<Weak<Breakable>>>) -> Vec<(bool, Arc<Breakable>)> {
    let pairs = pairs.lock().unwrap_or_else(PoisonError::into_inner);
    pairs.iter().filter_map(Weak::upgrade).map(|pair| (pair.concerns(event), pair)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::{fd::AsFd, pipe::pipe};

    #[test]
    fn a_device_that_is_taken_away_is_heard_of_once_and_for_all() {
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let (events, device) = pipe().unwrap();
        rustix::io::write(&device, b"event").unwrap();
        assert_eq!(wait(events.as_fd(), &stop), Heard::Event);
        rustix::io::read(&events, &mut [0; 5]).unwrap();
        std::thread::scope(|scope| {
            let listener = scope.spawn(|| wait(events.as_fd(), &stop));
            drop(device);
            assert_eq!(listener.join().unwrap(), Heard::Gone);
        });
        assert_eq!(wait(events.as_fd(), &stop), Heard::Gone);
        rustix::io::write(&stop, &1_u64.to_ne_bytes()).unwrap();
        assert_eq!(wait(events.as_fd(), &stop), Heard::Stop);
    }
}
