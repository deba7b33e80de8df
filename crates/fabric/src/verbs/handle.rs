//! Handles of the library's objects, each given back when dropped, after everything that it was made from. All calls
//! into C are here.

use super::{
    ffi::{self, Gid, GidEntry},
    library::{Library, library},
    removal::{self, Entry, MAPPINGS},
};
use crate::{FabricError, mapping::Mapping};
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::{
    ffi::{CStr, c_int, c_uint},
    fmt,
    io::Error,
    ptr::{self, NonNull},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLockReadGuard,
        atomic::{AtomicBool, Ordering, fence},
    },
};

/// Says that a call failed.
fn failed(what: &'static str) -> FabricError {
    FabricError::System { what, source: Error::last_os_error() }
}

/// Understands a result that is an error number.
fn checked(what: &'static str, result: c_int) -> Result<(), FabricError> {
    match result {
        0 => Ok(()),
        // Some calls give -1 and leave the number in `errno`, some give the number itself.
        -1 => Err(failed(what)),
        number => Err(FabricError::System { what, source: Error::from_raw_os_error(number.abs()) }),
    }
}

/// The devices of this machine: their names, and the handles while the list lives.
pub(crate) struct Devices {
    library: &'static Library,
    list: NonNull<*mut ffi::Device>,
    count: usize,
}

impl Devices {
    /// Looks for them; there may be none.
    pub(crate) fn list() -> Result<Self, FabricError> {
        let library = library()?;
        let mut count = 0;
        // SAFETY: `count` is written before the call returns.
        let list = unsafe { (library.get_device_list)(&raw mut count) };
        let list = NonNull::new(list).ok_or_else(|| match Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOSYS) => FabricError::NoDevice {
                what: "this system's kernel has no RDMA".into(),
                reason: "its module ib_uverbs is not loaded".into(),
                advice: "load it and the NIC's driver: modprobe ib_uverbs".into(),
            },
            source => FabricError::System { what: "listing RDMA devices", source },
        })?;
        Ok(Self { library, list, count: usize::try_from(count).unwrap_or(0) })
    }

    fn device(&self, index: usize) -> *mut ffi::Device {
        assert!(index < self.count);
        // SAFETY: the list has `count` entries and lives as long as `self`.
        unsafe { *self.list.as_ptr().add(index) }
    }

    /// What they are called.
    pub(crate) fn names(&self) -> Vec<String> {
        let name = |index| {
            // SAFETY: the device is on the list, and its name is a C string that lives as long.
            unsafe { CStr::from_ptr((self.library.get_device_name)(self.device(index))) }
        };
        (0..self.count).map(|index| name(index).to_string_lossy().into_owned()).collect()
    }

    /// Opens one of them.
    pub(crate) fn open(&self, index: usize) -> Result<Device, FabricError> {
        // SAFETY: the device is on the list.
        let context = unsafe { (self.library.open_device)(self.device(index)) };
        let context = NonNull::new(context).ok_or_else(|| failed("opening an RDMA device"))?;
        let close = Context { library: self.library, raw: context };
        // SAFETY: the descriptors are open as long as the context is.
        let (command, events) = unsafe {
            let context = context.as_ref();
            (BorrowedFd::borrow_raw(context.cmd_fd), BorrowedFd::borrow_raw(context.async_fd))
        };
        never_block(events)?;
        let opened = Opened {
            entry: Entry::of(command)?,
            pipe: removal::ended_pipe()?,
            gone: AtomicBool::new(false),
            channels: Mutex::default(),
            context: close,
        };
        Ok(Device { opened: Arc::new(opened) })
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // SAFETY: the list is ours and nobody uses it any more; devices that were opened stay.
        unsafe { (self.library.free_device_list)(self.list.as_ptr()) };
    }
}

/// An opened device.
#[derive(Clone)]
pub(crate) struct Device {
    opened: Arc<Opened>,
}

struct Opened {
    context: Context,
    entry: Entry,
    /// What comes in place of the device's descriptors when it is taken away.
    pipe: OwnedFd,
    /// The device was taken away.
    gone: AtomicBool,
    /// The completion channels: their descriptors, and what wakes those who sleep there.
    channels: Mutex<Vec<(RawFd, Arc<OwnedFd>)>>,
}

struct Context {
    library: &'static Library,
    raw: NonNull<ffi::Context>,
}

// SAFETY: the library's objects may be used by every thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        let _still = still();
        // SAFETY: everything that was made from the context held it and is gone.
        unsafe { (self.library.close_device)(self.raw.as_ptr()) };
    }
}

impl Opened {
    fn channels(&self) -> MutexGuard<'_, Vec<(RawFd, Arc<OwnedFd>)>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rings an eventfd.
fn wake(waker: &OwnedFd) {
    // It fails only where the count is full, and then the sleeper wakes anyway.
    let _ = rustix::io::write(waker, &1u64.to_ne_bytes());
}

/// While this is held the library may map and unmap queues.
fn still() -> RwLockReadGuard<'static, ()> {
    MAPPINGS.read().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Device {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Device").finish_non_exhaustive()
    }
}

impl Device {
    fn raw(&self) -> *mut ffi::Context {
        self.opened.context.raw.as_ptr()
    }

    fn library(&self) -> &'static Library {
        self.opened.context.library
    }

    /// Whether both are of one opening of a device.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.opened, &other.opened)
    }

    /// Whether this process was cut off from the device, or is about to be.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.opened.gone.load(Ordering::Relaxed)
    }

    /// Whether the system has taken the device away. A system call.
    pub(crate) fn is_taken_away(&self) -> bool {
        self.opened.entry.is_gone()
    }

    /// Lets go of the device for good. Whatever was made from it fails from now on, and its queues are empty.
    pub(crate) fn let_go(&self) -> Result<(), FabricError> {
        // Before anything is replaced: whoever reads of a replaced queue sees this, too (`Completions::poll`).
        self.opened.gone.store(true, Ordering::SeqCst);
        // SAFETY: the context is open.
        let (command, events) = unsafe { ((*self.raw()).cmd_fd, (*self.raw()).async_fd) };
        // Locked, so that no channel is closed meanwhile, and its descriptor another's.
        let channels = self.opened.channels();
        let descriptors: Vec<_> = channels.iter().map(|(channel, _)| *channel).chain([events]).collect();
        // SAFETY: the descriptors are the context's, which is open, and the channels', and the library closes them. All that is
        // read of queues after this is thrown away.
        let done = unsafe { removal::cut_off(command, &descriptors, &self.opened.pipe) };
        // Whoever sleeps on a descriptor holds on to what it stood for.
        channels.iter().for_each(|(_, waker)| wake(waker));
        done.map_err(|source| FabricError::System { what: "letting go of an RDMA device", source })
    }

    /// Its limits.
    pub(crate) fn attributes(&self) -> Result<ffi::DeviceAttr, FabricError> {
        // SAFETY: plain numbers, for which zeroes are valid.
        let mut attributes: ffi::DeviceAttr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and the structure is as long as the library's.
        let result = unsafe { (self.library().query_device)(self.raw(), &raw mut attributes) };
        checked("asking a device for its limits", result).map(|()| attributes)
    }

    /// The state of a port. Ports count from 1.
    pub(crate) fn port(&self, port: u8) -> Result<ffi::PortAttr, FabricError> {
        // SAFETY: plain numbers, for which zeroes are valid.
        let mut attributes: ffi::PortAttr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open; the library writes at most the length of this structure.
        let result = unsafe { (self.library().query_port)(self.raw(), port, &raw mut attributes) };
        checked("asking a device for a port", result).map(|()| attributes)
    }

    /// What to wait for before an event is taken.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the context is, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.raw()).async_fd) }
    }

    /// Takes an event, shows it to `hear`, and acknowledges it: until then the object that it is about cannot be given
    /// back. None if there is no event.
    pub(crate) fn take_event<T>(&self, hear: impl FnOnce(&ffi::AsyncEvent) -> T) -> Option<T> {
        let mut event = ffi::AsyncEvent { element: 0, event_type: c_uint::MAX };
        // SAFETY: the context is open, and what it gives is acknowledged once.
        unsafe {
            if (self.library().get_async_event)(self.raw(), &raw mut event) != 0 {
                return None;
            }
            let heard = hear(&event);
            (self.library().ack_async_event)(&raw mut event);
            Some(heard)
        }
    }

    /// The valid GIDs of all ports.
    pub(crate) fn gids(&self) -> Result<Vec<GidEntry>, FabricError> {
        const ENTRIES_MAX: usize = 1024;
        let mut entries = vec![GidEntry::default(); ENTRIES_MAX];
        // SAFETY: there is room for so many entries of this size.
        let count = unsafe {
            let (table, bytes) = (entries.as_mut_ptr(), size_of::<GidEntry>());
            (self.library().query_gid_table)(self.raw(), table, ENTRIES_MAX, 0, bytes)
        };
        let count = usize::try_from(count).map_err(|_| FabricError::System {
            what: "asking a device for its GIDs",
            source: Error::from_raw_os_error(i32::try_from(-count).unwrap_or(0)),
        })?;
        entries.truncate(count);
        Ok(entries)
    }
}

/// A protection domain: queue pairs of one reach only memory that was registered with it.
pub(crate) struct Domain {
    device: Device,
    raw: NonNull<ffi::Pd>,
    /// Whether the link that it was made for has ended.
    ended: AtomicBool,
}

// SAFETY: the library's objects may be used by every thread.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    pub(crate) fn new(device: &Device) -> Result<Arc<Self>, FabricError> {
        // SAFETY: the context is open.
        let raw = unsafe { (device.library().alloc_pd)(device.raw()) };
        let raw = NonNull::new(raw).ok_or_else(|| failed("making a protection domain"))?;
        Ok(Arc::new(Self { device: device.clone(), raw, ended: AtomicBool::new(false) }))
    }

    fn library(&self) -> &'static Library {
        self.device.library()
    }

    /// Nothing new is to be made in it.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: everything that was made in the domain held it and is gone.
        unsafe { (self.library().dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// Memory registered with a protection domain; kept mapped as long.
pub(crate) struct Registration {
    domain: Arc<Domain>,
    _mapping: Arc<Mapping>,
    raw: NonNull<ffi::Mr>,
}

// SAFETY: the library's objects may be used by every thread.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers all of a mapping with access rights. Requests name its bytes by their offset, so that no peer learns
    /// where it lies.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        mapping: &Arc<Mapping>,
        rights: c_uint,
    ) -> Result<Self, FabricError> {
        let (base, bytes) = (mapping.base().as_ptr().cast(), mapping.bytes());
        // SAFETY: the mapping is ours and lives as long as the registration; its words are atomic, and whoever borrows
        // bytes of it vouches that no verb targets them.
        let raw =
            unsafe { (domain.library().reg_mr_iova)(domain.raw.as_ptr(), base, bytes, 0, rights as c_int) };
        let Some(raw) = NonNull::new(raw) else {
            let source = Error::last_os_error();
            let advice = match source.raw_os_error() {
                Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM) => {
                    "registered memory is locked: raise the limit (ulimit -l, or LimitMEMLOCK= of a service)"
                }
                _ => "see the kernel's log",
            };
            return Err(FabricError::OutOfMemory { bytes, what: "registered memory", source, advice });
        };
        Ok(Self { domain: domain.clone(), _mapping: mapping.clone(), raw })
    }

    /// Names the memory in requests of this process.
    pub(crate) fn local_key(&self) -> u32 {
        // SAFETY: the structure lives as long as `self`, and nobody changes it.
        unsafe { (*self.raw.as_ptr()).lkey }
    }

    /// Names the memory in requests of the peer.
    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.raw.as_ptr()).rkey }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: the registration is ours; requests that still name it fail.
        unsafe { (self.domain.library().dereg_mr)(self.raw.as_ptr()) };
    }
}

/// Makes reads of a descriptor return when there is nothing.
fn never_block(descriptor: BorrowedFd<'_>) -> Result<(), FabricError> {
    let set = rustix::fs::fcntl_getfl(descriptor)
        .and_then(|flags| rustix::fs::fcntl_setfl(descriptor, flags | rustix::fs::OFlags::NONBLOCK));
    set.map_err(|errno| FabricError::System { what: "preparing a descriptor", source: errno.into() })
}

/// What tells a sleeper of completions: the queues made on it raise events there.
pub(crate) struct CompletionChannel {
    device: Device,
    waker: Arc<OwnedFd>,
    raw: NonNull<ffi::CompChannel>,
}

// SAFETY: the library's objects may be used by every thread.
unsafe impl Send for CompletionChannel {}
// SAFETY: as above.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    /// A channel whose sleepers an eventfd wakes, too.
    pub(crate) fn new(device: &Device, waker: &Arc<OwnedFd>) -> Result<Self, FabricError> {
        // SAFETY: the context is open.
        let raw = unsafe { (device.library().create_comp_channel)(device.raw()) };
        let raw = NonNull::new(raw).ok_or_else(|| failed("making a completion channel"))?;
        let channel = Self { device: device.clone(), waker: waker.clone(), raw };
        never_block(channel.descriptor())?;
        let descriptor = channel.descriptor().as_raw_fd();
        let mut channels = device.opened.channels();
        // Under the lock: either this sees that the device is let go of, or `Device::let_go` sees the channel.
        let gone = device.is_gone();
        if !gone {
            channels.push((descriptor, waker.clone()));
        }
        drop(channels);
        if gone { Err(FabricError::State("the RDMA device was taken away")) } else { Ok(channel) }
    }

    /// What to wait for.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel is, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }

    /// Takes an event if there is one (with a queue that is destroyed its events go, also after they were seen). Gives what
    /// [`Completions::is`] knows its queue by.
    pub(crate) fn take_event(&self) -> Option<usize> {
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        let library = self.device.library();
        // SAFETY: the channel is ours. The queue is one that was made on it and lives, since the device forgets a queue's
        // events when the queue is destroyed.
        unsafe {
            if (library.get_cq_event)(self.raw.as_ptr(), &raw mut queue, &raw mut context) != 0 {
                return None;
            }
            (library.ack_cq_events)(queue, 1);
        }
        Some(queue as usize)
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        let descriptor = self.descriptor().as_raw_fd();
        // Locked until it is closed: see `Device::let_go`.
        let mut channels = self.device.opened.channels();
        channels.retain(|(other, _)| *other != descriptor);
        // SAFETY: the queues made on it held it and are gone.
        let result = unsafe { (self.device.library().destroy_comp_channel)(self.raw.as_ptr()) };
        if result != 0 && self.device.is_gone() {
            // The library counts queues on it that it could not give back to a device that is gone.
            // SAFETY: the library did not close it, and never will: it knows the channel no more.
            drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }
}

/// A completion queue.
pub(crate) struct Completions {
    /// Dropped after the queue, which raises events on it.
    channel: Arc<CompletionChannel>,
    device: Device,
    raw: NonNull<ffi::Cq>,
    disturbed: AtomicBool,
    poll: unsafe extern "C" fn(*mut ffi::Cq, c_int, *mut ffi::Wc) -> c_int,
    request_notice: unsafe extern "C" fn(*mut ffi::Cq, c_int) -> c_int,
}

// SAFETY: the library's objects may be used by every thread.
unsafe impl Send for Completions {}
// SAFETY: as above.
unsafe impl Sync for Completions {}

impl Completions {
    pub(crate) fn new(channel: &Arc<CompletionChannel>, depth: usize) -> Result<Self, FabricError> {
        let device = channel.device.clone();
        // SAFETY: the context is open.
        let operations = unsafe { &(*device.raw()).ops };
        let absent = FabricError::Unsupported("the device's driver has no completion queues");
        let (Some(poll), Some(request_notice)) = (operations.poll_cq, operations.req_notify_cq) else {
            return Err(absent);
        };
        let depth = c_int::try_from(depth).unwrap_or(c_int::MAX);
        let create = device.library().create_cq;
        let _still = still();
        // SAFETY: context and channel are open; no queue context is given.
        let raw = unsafe { create(device.raw(), depth, ptr::null_mut(), channel.raw.as_ptr(), 0) };
        let raw = NonNull::new(raw).ok_or_else(|| failed("making a completion queue"))?;
        let (channel, disturbed) = (channel.clone(), AtomicBool::new(false));
        Ok(Self { channel, device, raw, disturbed, poll, request_notice })
    }

    /// Takes completions; never blocks.
    #[inline]
    pub(crate) fn poll(&self, into: &mut [ffi::Wc]) -> usize {
        // SAFETY: the queue is ours, and there is room for so many.
        let count = unsafe { (self.poll)(self.raw.as_ptr(), into.len() as c_int, into.as_mut_ptr()) };
        // Negative: the queue is broken, which its queue pairs tell.
        let count = usize::try_from(count).unwrap_or(0).min(into.len());
        // The queue's memory may have been replaced while it was read, and what was read be zeroes in part. Replacing it
        // goes through a barrier on all processors (their address translations are shot down), and the flag was set before
        // that: a read of the new memory is followed by a load that sees the flag.
        if count > 0 {
            fence(Ordering::Acquire);
            if self.device.is_gone() {
                return 0;
            }
        }
        count
    }

    /// The device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Has the next completion raise an event on the channel.
    pub(crate) fn request_notice(&self) {
        // SAFETY: the queue is ours.
        unsafe { (self.request_notice)(self.raw.as_ptr(), 0) };
    }

    /// Tells whoever polls the queue to look after its queue pairs: one of them has trouble that raises no completion.
    pub(crate) fn disturb(&self) {
        self.disturbed.store(true, Ordering::Release);
    }

    /// Wakes whoever sleeps on the queue's channel.
    pub(crate) fn wake(&self) {
        wake(&self.channel.waker);
    }

    /// Whether that was told since this was asked last.
    #[inline]
    pub(crate) fn was_disturbed(&self) -> bool {
        // Two steps, since almost always there is nothing to change.
        self.disturbed.load(Ordering::Relaxed) && self.disturbed.swap(false, Ordering::Acquire)
    }

    /// Whether an event is about this queue.
    pub(crate) fn is(&self, element: usize) -> bool {
        self.raw.as_ptr() as usize == element
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        let _still = still();
        // SAFETY: queue pairs that feed the queue held it and are gone; all events were acknowledged.
        unsafe { (self.device.library().destroy_cq)(self.raw.as_ptr()) };
    }
}

/// A queue pair of the device. Its completion queues must outlive it: whoever holds it holds them.
pub(crate) struct Pair {
    domain: Arc<Domain>,
    raw: NonNull<ffi::Qp>,
    post_send: unsafe extern "C" fn(*mut ffi::Qp, *mut ffi::SendWr, *mut *mut ffi::SendWr) -> c_int,
    post_receive: unsafe extern "C" fn(*mut ffi::Qp, *mut ffi::RecvWr, *mut *mut ffi::RecvWr) -> c_int,
}

// SAFETY: the library's objects may be used by every thread.
unsafe impl Send for Pair {}
// SAFETY: as above.
unsafe impl Sync for Pair {}

impl Pair {
    /// Makes a queue pair that gives its completions to these queues.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        kind: c_uint,
        capacity: ffi::QpCap,
        (send, receive): (&Completions, &Completions),
    ) -> Result<Self, FabricError> {
        let mut asked = ffi::QpInitAttr {
            qp_context: ptr::null_mut(),
            send_cq: send.raw.as_ptr(),
            recv_cq: receive.raw.as_ptr(),
            srq: ptr::null_mut(),
            cap: capacity,
            qp_type: kind,
            sq_sig_all: 0,
        };
        let _still = still();
        // SAFETY: domain and queues are of one device and open.
        let raw = unsafe { (domain.library().create_qp)(domain.raw.as_ptr(), &raw mut asked) };
        let raw = NonNull::new(raw).ok_or_else(|| failed("making a queue pair"))?;
        // SAFETY: the context is open.
        let operations = unsafe { &(*domain.device.raw()).ops };
        let (Some(post_send), Some(post_receive)) = (operations.post_send, operations.post_recv) else {
            return Err(FabricError::Unsupported("the device's driver has no queue pairs"));
        };
        Ok(Self { domain: domain.clone(), raw, post_send, post_receive })
    }

    /// Whether an event is about this queue pair.
    pub(crate) fn is(&self, element: usize) -> bool {
        self.raw.as_ptr() as usize == element
    }

    /// Its number, unique on the device.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the structure lives as long as `self`, and nobody changes its number.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    /// Changes its state and whatever the mask names.
    pub(crate) fn modify(
        &self,
        what: &'static str,
        mut attributes: ffi::QpAttr,
        mask: c_int,
    ) -> Result<(), FabricError> {
        // SAFETY: the queue pair is ours.
        let result =
            unsafe { (self.domain.library().modify_qp)(self.raw.as_ptr(), &raw mut attributes, mask) };
        checked(what, result)
    }

    /// Posts linked requests to the send queue.
    ///
    /// # Safety
    /// The requests are linked by valid pointers, and so are their lists of buffers; what the buffers' keys name stays
    /// registered until the requests have completed, and nobody relies on the bytes meanwhile.
    #[inline]
    pub(crate) unsafe fn post_send(&self, first: *mut ffi::SendWr) -> c_int {
        let mut refused = ptr::null_mut();
        // SAFETY: as the caller vouches.
        unsafe { (self.post_send)(self.raw.as_ptr(), first, &raw mut refused) }
    }

    /// Posts a request to the receive queue.
    ///
    /// # Safety
    /// As with [`Pair::post_send`].
    #[inline]
    pub(crate) unsafe fn post_receive(&self, request: *mut ffi::RecvWr) -> c_int {
        let mut refused = ptr::null_mut();
        // SAFETY: as the caller vouches.
        unsafe { (self.post_receive)(self.raw.as_ptr(), request, &raw mut refused) }
    }

    /// The domain.
    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _still = still();
        // SAFETY: the queue pair is ours and nobody posts any more.
        unsafe { (self.domain.library().destroy_qp)(self.raw.as_ptr()) };
    }
}

/// Where a datagram goes: a port.
pub(crate) struct Destination {
    domain: Arc<Domain>,
    raw: NonNull<ffi::Ah>,
}

// SAFETY: the library's objects may be used by every thread.
unsafe impl Send for Destination {}
// SAFETY: as above.
unsafe impl Sync for Destination {}

impl Destination {
    pub(crate) fn new(domain: &Arc<Domain>, mut attributes: ffi::AhAttr) -> Result<Self, FabricError> {
        // SAFETY: the domain is open.
        let raw = unsafe { (domain.library().create_ah)(domain.raw.as_ptr(), &raw mut attributes) };
        let raw = NonNull::new(raw).ok_or_else(|| failed("making an address handle"))?;
        Ok(Self { domain: domain.clone(), raw })
    }

    pub(crate) fn raw(&self) -> *mut ffi::Ah {
        self.raw.as_ptr()
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        // SAFETY: posted datagrams that name it held it and are gone.
        unsafe { (self.domain.library().destroy_ah)(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::net::Ipv6Addr::from(self.0).fmt(out)
    }
}
