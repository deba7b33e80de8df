//! What a device tells of itself: a completion queue that overflowed, a queue pair that failed with nothing posted, a
//! port that went down. A thread listens, and breaks the queue pairs concerned. It also looks whether the device is there,
//! since not every one tells when it is taken away; if it is, all queue pairs and links are at an end.

use super::{ffi, handle::Device, link::LinkInner, queue_pair::Breakable, removal::LOOK_MS};
use crate::FabricError;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec},
    fd::{BorrowedFd, OwnedFd},
    io::Errno,
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// The queue pairs and links of a NIC, for the thread that listens; it ends with this, or with the device.
pub(crate) struct Events {
    device: Device,
    members: Arc<Mutex<Members>>,
    stop: Arc<OwnedFd>,
}

#[derive(Default)]
struct Members {
    pairs: Vec<Weak<Breakable>>,
    links: Vec<Weak<LinkInner>>,
}

fn lock(members: &Mutex<Members>) -> MutexGuard<'_, Members> {
    members.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Events {
    /// Starts to listen.
    pub(crate) fn listen(device: &Device) -> Result<Self, FabricError> {
        let system = |what| move |source| FabricError::System { what, source };
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| system("making an eventfd")(errno.into()))?;
        let (members, stop) = (Arc::default(), Arc::new(stop));
        let (heard, concerned, ended) = (device.clone(), Arc::clone(&members), stop.clone());
        std::thread::Builder::new()
            .name("locus-verbs-events".into())
            .spawn(move || run(&heard, &concerned, &ended))
            .map_err(system("starting a thread"))?;
        Ok(Self { device: device.clone(), members, stop })
    }

    /// Adds a queue pair.
    pub(crate) fn add(&self, pair: &Arc<Breakable>) {
        let mut members = lock(&self.members);
        members.pairs.retain(|pair| pair.strong_count() > 0);
        members.pairs.push(Arc::downgrade(pair));
        drop(members);
        // It was let go of before those who were there were told: either this sees that, or the queue pair was there.
        if self.device.is_gone() {
            pair.abandon();
        }
    }

    /// Adds a link.
    pub(crate) fn add_link(&self, link: &Arc<LinkInner>) {
        let mut members = lock(&self.members);
        members.links.retain(|link| link.strong_count() > 0);
        members.links.push(Arc::downgrade(link));
        drop(members);
        if self.device.is_gone() {
            link.connection.close();
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
    }
}

fn run(device: &Device, members: &Mutex<Members>, stop: &OwnedFd) {
    loop {
        match wait(device.events(), stop) {
            Heard::Nothing if device.is_taken_away() => {
                if lose(device, members, stop) {
                    return;
                }
            }
            Heard::Nothing => {}
            Heard::Stop => return,
            Heard::Event => {
                // Found before the event is acknowledged, since its object may be gone after that; let go of after it,
                // since an object that waits for the acknowledgement cannot be given back.
                let heard = device.take_event(|event| {
                    (event.event_type == ffi::EVENT_DEVICE_FATAL, concerned(event, members))
                });
                let Some((fatal, pairs)) = heard else { continue };
                if fatal && lose(device, members, stop) {
                    return;
                }
                pairs.iter().filter(|(concerned, _)| *concerned).for_each(|(_, pair)| pair.break_it());
            }
            Heard::Gone => {
                if lose(device, members, stop) {
                    return;
                }
            }
        }
    }
}

/// Lets go of the device, and then tells all that were made from it. False if the system was short of something, and it is
/// to be done again.
fn lose(device: &Device, members: &Mutex<Members>, stop: &OwnedFd) -> bool {
    let done = device.let_go().is_ok();
    let members = lock(members);
    let pairs: Vec<_> = members.pairs.iter().filter_map(Weak::upgrade).collect();
    let links: Vec<_> = members.links.iter().filter_map(Weak::upgrade).collect();
    // Whoever is dropped last here must find the lock free.
    drop(members);
    pairs.iter().for_each(|pair| pair.abandon());
    links.iter().for_each(|link| link.connection.close());
    if !done {
        // No longer than until the NIC is closed, which is for `wait` to find out.
        let _ = rustix::event::poll(&mut [PollFd::new(stop, PollFlags::IN)], Some(&milliseconds(PAUSE_MS)));
    }
    done
}

/// How long is waited after a failure of the kernel's, in milliseconds.
const PAUSE_MS: u32 = 10;

/// A limit of less than a second.
fn milliseconds(count: u32) -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: i64::from(count) * 1_000_000 }
}

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

/// Waits for an event, or for the end, or until it is time to look whether the device is there.
fn wait(events: BorrowedFd<'_>, stop: &OwnedFd) -> Heard {
    let mut ready = [PollFd::from_borrowed_fd(events, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
    match rustix::event::poll(&mut ready, Some(&milliseconds(LOOK_MS))) {
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
            std::thread::sleep(Duration::from_millis(PAUSE_MS.into()));
            Heard::Nothing
        }
    }
}

/// All queue pairs, and whether the event is about them. Also the others must be let go of after the acknowledgement.
fn concerned(event: &ffi::AsyncEvent, members: &Mutex<Members>) -> Vec<(bool, Arc<Breakable>)> {
    let members = lock(members);
    members.pairs.iter().filter_map(Weak::upgrade).map(|pair| (pair.concerns(event), pair)).collect()
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
