//! Queue pairs. Requests are linked while they are posted and handed to the device together when the doorbell rings:
//! with SoftRoCE that is a system call, with a NIC a write over PCIe (doorbell batching, Kalia §2.2.2).

use super::{
    VerbsNic, VerbsRemoteRegion,
    completion_queue::Queue,
    facts::PairFacts,
    ffi,
    handle::{Completions, Destination, Pair, Registration},
    link::{LinkInner, VerbsLink},
    opening::Opening,
    region::Memory,
    requests::{Requests, Slot},
};
use crate::{
    Completion, FabricError, Facts, LocalSlice, Opcode, Payload, PostError, QueuePair, QueuePairConfig,
    QueuePairState, ReceiverNotReady, RemoteSlice, SendRequest, Status, Transport, Verb,
    checks::{self, Limits},
};
use std::{
    cell::RefCell,
    ptr,
    rc::Rc,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU8, Ordering, fence},
    },
};

/// How often an unanswered request is sent again, and how long is waited for the answer: `4.096 us * 2^TIMEOUT`, here
/// 67 ms. Together half a second, after which the peer counts as lost. Not 7, which SoftRoCE takes for ever.
const RETRIES: u8 = 6;
const TIMEOUT: u8 = 14;
/// How long a sender waits that found no RECV, as the table in InfiniBand has it: 10 us.
const RNR_TIMER: u8 = 1;
const RNR_RETRIES_FOR_EVER: u8 = 7;
/// Datagrams carry it: those with another one are dropped.
const QKEY: u32 = 0x4c6f_6375;
/// How many regions a queue pair finds the keys of without a lock.
const KEYS: usize = 16;
/// Of the sequence numbers of packets.
const PSN_MASK: u32 = 0xFF_FFFF;

/// A queue pair. Stays on the thread that made it.
pub struct VerbsQueuePair {
    core: Rc<RefCell<Core>>,
}

/// Names a UD queue pair of a peer.
#[derive(Clone)]
pub struct VerbsAddress {
    destination: Arc<Destination>,
    number: u32,
    qkey: u32,
}

/// The part that another thread may break.
pub(crate) struct Breakable {
    pair: Pair,
    state: AtomicU8,
    /// The device did not even flush: nothing that is posted will complete.
    ill: AtomicBool,
    /// Whether the end of the link is the end of the queue pair: not on UD, which speaks with anybody.
    bound: bool,
    // Dropped after the queue pair, which feeds them.
    queues: [Arc<Completions>; 2],
}

const INIT: u8 = 0;
const READY: u8 = 1;
const ERROR: u8 = 2;

impl Breakable {
    fn state(&self) -> QueuePairState {
        match self.state.load(Ordering::Acquire) {
            INIT => QueuePairState::Init,
            READY => QueuePairState::Ready,
            _ => QueuePairState::Error,
        }
    }

    /// Whether an event of the device is the end of the queue pair.
    pub(crate) fn concerns(&self, event: &ffi::AsyncEvent) -> bool {
        match event.event_type {
            ffi::EVENT_CQ_ERR => self.queues.iter().any(|queue| queue.is(event.element)),
            ffi::EVENT_QP_FATAL | ffi::EVENT_QP_REQ_ERR | ffi::EVENT_QP_ACCESS_ERR => {
                self.pair.is(event.element)
            }
            ffi::EVENT_DEVICE_FATAL | ffi::EVENT_PORT_ERR => true,
            _ => false,
        }
    }

    /// Takes note that the device broke it.
    fn note_error(&self) {
        self.state.store(ERROR, Ordering::Release);
    }

    /// Has the device flush whatever is posted, now and later.
    pub(crate) fn break_it(&self) {
        if self.state.swap(ERROR, Ordering::AcqRel) != ERROR {
            self.flush();
        }
    }

    /// The device is gone and flushes nothing: whoever polls the queues does.
    pub(crate) fn abandon(&self) {
        self.ill.store(true, Ordering::Release);
        self.note_error();
        for queue in &self.queues {
            queue.disturb();
            queue.wake();
        }
    }

    /// Has the device flush what is posted. A NIC does so by itself once a queue pair is in error; SoftRoCE does not see
    /// what is posted after that until it is told again. Where the device refuses, whoever polls the queues flushes.
    pub(crate) fn flush(&self) {
        let attributes = ffi::QpAttr { qp_state: ffi::QPS_ERR, ..Default::default() };
        if self.pair.modify("breaking a queue pair", attributes, ffi::QP_STATE).is_err() {
            self.ill.store(true, Ordering::Release);
            self.queues.iter().for_each(|queue| queue.disturb());
        }
    }
}

impl super::bootstrap::Ended for Breakable {
    fn ended(&self) {
        if self.bound {
            self.break_it();
        }
    }
}

/// All of a queue pair that its thread uses; the handle and the completion queues share it.
pub(crate) struct Core {
    breakable: Arc<Breakable>,
    config: QueuePairConfig,
    limits: Limits,
    link: Arc<LinkInner>,
    opening: Arc<Opening>,
    sends: Requests,
    receives: Requests,
    /// What completions carry besides the number of the request: which queue pair of the queue this is.
    send_member: u32,
    receive_member: u32,
    queues: [Rc<Queue>; 2],
    /// Posted and not handed over yet: so many requests, each with its buffer, linked.
    chain: Box<[ffi::SendWr]>,
    buffers: Box<[ffi::Sge]>,
    linked: usize,
    /// Inline payloads, by the place of their requests.
    inline: Box<[u8]>,
    keys: [Option<(u64, Weak<Registration>)>; KEYS],
    first_psn: u32,
}

/// In the number of a request: it is a RECV.
pub(crate) const RECEIVE: u64 = 1 << 63;

impl VerbsQueuePair {
    pub(crate) fn create(
        nic: &VerbsNic,
        link: &VerbsLink,
        config: &QueuePairConfig,
        send: &Rc<Queue>,
        receive: &Rc<Queue>,
    ) -> Result<Self, FabricError> {
        let link = &link.inner;
        if !link.alive() {
            return Err(link.gone());
        }
        let kind = match config.transport {
            Transport::Rc => ffi::QPT_RC,
            Transport::Uc => ffi::QPT_UC,
            Transport::Ud => ffi::QPT_UD,
        };
        let capacity = ffi::QpCap {
            max_send_wr: config.send_depth.max(1) as u32,
            max_recv_wr: config.receive_depth.max(1) as u32,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: config.inline_bytes as u32,
        };
        let (opening, domain) = link.port()?;
        send.follow(opening)?;
        receive.follow(opening)?;
        let queues = [send.shared(), receive.shared()];
        let pair = Pair::new(domain, kind, capacity, (&queues[0], &queues[1]))
            .map_err(|error| opening.explain(error))?;
        initialize(&pair, opening, config).map_err(|error| opening.explain(error))?;
        let breakable = Arc::new(Breakable {
            pair,
            state: AtomicU8::new(INIT),
            ill: AtomicBool::new(false),
            bound: config.transport != Transport::Ud,
            queues,
        });
        let sends = Requests::new(config.send_depth);
        let places = sends.slots.len();
        let core = Core {
            breakable: breakable.clone(),
            config: config.clone(),
            limits: nic.limits(),
            link: link.clone(),
            opening: opening.clone(),
            sends,
            receives: Requests::new(config.receive_depth),
            send_member: 0,
            receive_member: 0,
            queues: [send.clone(), receive.clone()],
            chain: vec![ffi::SendWr::EMPTY; config.send_depth.max(1)].into(),
            buffers: vec![ffi::Sge::default(); config.send_depth.max(1)].into(),
            linked: 0,
            inline: vec![0; places * config.inline_bytes].into(),
            keys: [const { None }; KEYS],
            first_psn: nic.random() & PSN_MASK,
        };
        let core = Rc::new(RefCell::new(core));
        {
            let mut core_mut = core.borrow_mut();
            core_mut.send_member = send.attach(&core);
            core_mut.receive_member =
                if Rc::ptr_eq(send, receive) { core_mut.send_member } else { receive.attach(&core) };
        }
        opening.events().add(&breakable);
        let ended: Arc<dyn super::bootstrap::Ended> = breakable;
        link.connection.on_end(Arc::downgrade(&ended));
        Ok(Self { core })
    }
}

/// What a device requires of a fresh queue pair.
fn initialize(pair: &Pair, opening: &Opening, config: &QueuePairConfig) -> Result<(), FabricError> {
    let access = ffi::ACCESS_REMOTE_READ | ffi::ACCESS_REMOTE_WRITE | ffi::ACCESS_REMOTE_ATOMIC;
    let mut attributes = ffi::QpAttr {
        qp_state: ffi::QPS_INIT,
        port_num: opening.chosen().port.number,
        qkey: QKEY,
        ..Default::default()
    };
    let mut mask = ffi::QP_STATE | ffi::QP_PKEY_INDEX | ffi::QP_PORT;
    match config.transport {
        Transport::Rc => (attributes.qp_access_flags, mask) = (access, mask | ffi::QP_ACCESS_FLAGS),
        Transport::Uc => {
            (attributes.qp_access_flags, mask) = (ffi::ACCESS_REMOTE_WRITE, mask | ffi::QP_ACCESS_FLAGS);
        }
        Transport::Ud => mask |= ffi::QP_QKEY,
    }
    pair.modify("preparing a queue pair", attributes, mask)
}

impl Core {
    fn state(&self) -> QueuePairState {
        self.breakable.state()
    }

    /// Connects: ready to receive, then ready to send.
    fn connect(&mut self, theirs: &PairFacts) -> Result<(), FabricError> {
        self.link.check_gid(theirs.gid)?;
        let opening = &self.opening;
        let reliable = self.config.transport == Transport::Rc;
        let mut attributes = ffi::QpAttr {
            qp_state: ffi::QPS_RTR,
            path_mtu: theirs.mtu.min(opening.mtu_code()),
            dest_qp_num: theirs.number,
            rq_psn: theirs.first_psn,
            max_dest_rd_atomic: opening.reads_answered_max(),
            min_rnr_timer: RNR_TIMER,
            ah_attr: opening.route(theirs),
            ..Default::default()
        };
        let mut mask = ffi::QP_STATE | ffi::QP_AV | ffi::QP_PATH_MTU | ffi::QP_DEST_QPN | ffi::QP_RQ_PSN;
        if reliable {
            mask |= ffi::QP_MAX_DEST_RD_ATOMIC | ffi::QP_MIN_RNR_TIMER;
        }
        self.breakable.pair.modify("connecting a queue pair", attributes, mask)?;
        attributes.qp_state = ffi::QPS_RTS;
        attributes.sq_psn = self.first_psn;
        attributes.timeout = TIMEOUT;
        attributes.retry_cnt = RETRIES;
        attributes.rnr_retry = match self.config.receiver_not_ready {
            ReceiverNotReady::Wait => RNR_RETRIES_FOR_EVER,
            ReceiverNotReady::Fail => 0,
        };
        attributes.max_rd_atomic = theirs.reads_answered.min(self.config.reads_outstanding.min(255) as u8);
        let mut mask = ffi::QP_STATE | ffi::QP_SQ_PSN;
        if reliable {
            mask |= ffi::QP_TIMEOUT | ffi::QP_RETRY_CNT | ffi::QP_RNR_RETRY | ffi::QP_MAX_QP_RD_ATOMIC;
        }
        self.breakable.pair.modify("making a queue pair ready", attributes, mask)?;
        self.become_ready()
    }

    fn activate(&mut self) -> Result<(), FabricError> {
        let mut attributes = ffi::QpAttr { qp_state: ffi::QPS_RTR, ..Default::default() };
        self.breakable.pair.modify("activating a queue pair", attributes, ffi::QP_STATE)?;
        (attributes.qp_state, attributes.sq_psn) = (ffi::QPS_RTS, self.first_psn);
        let mask = ffi::QP_STATE | ffi::QP_SQ_PSN;
        self.breakable.pair.modify("making a queue pair ready", attributes, mask)?;
        self.become_ready()
    }

    /// Unless it was broken meanwhile, and then the device must hear of that again.
    fn become_ready(&self) -> Result<(), FabricError> {
        let changed = self.breakable.state.compare_exchange(INIT, READY, Ordering::AcqRel, Ordering::Acquire);
        if changed.is_err() {
            self.breakable.flush();
            return Err(self.link.gone());
        }
        Ok(())
    }

    /// The registration of a region in the domain of this queue pair.
    #[inline]
    fn registration(&mut self, memory: &Arc<Memory>) -> Option<Arc<Registration>> {
        let place = memory.id as usize % KEYS;
        if let Some((id, registration)) = &self.keys[place]
            && *id == memory.id
            && let Some(registration) = registration.upgrade()
        {
            return Some(registration);
        }
        let registration = memory.local(self.breakable.pair.domain()).ok()?;
        self.keys[place] = Some((memory.id, Arc::downgrade(&registration)));
        Some(registration)
    }

    #[inline]
    fn buffer(&mut self, slice: &LocalSlice<'_, VerbsNic>) -> Option<(ffi::Sge, Arc<Registration>)> {
        let registration = self.registration(&slice.region.memory)?;
        let buffer = ffi::Sge {
            addr: slice.offset as u64,
            length: slice.bytes as u32,
            lkey: registration.local_key(),
        };
        Some((buffer, registration))
    }

    /// Copies an inline payload to the place of its request.
    #[inline]
    fn stash(&mut self, place: usize, pieces: &[&[u8]]) -> ffi::Sge {
        let room = &mut self.inline[place * self.config.inline_bytes..][..self.config.inline_bytes];
        let addr = room.as_ptr() as u64;
        let mut bytes = 0;
        for piece in pieces {
            room[bytes..bytes + piece.len()].copy_from_slice(piece);
            bytes += piece.len();
        }
        ffi::Sge { addr, length: bytes as u32, lkey: 0 }
    }

    #[inline]
    fn post_send(&mut self, request: &SendRequest<'_, VerbsNic>) -> Result<(), PostError> {
        let opcode = checks::legal(&request.verb, self.config.transport)?;
        if self.state() == QueuePairState::Init {
            return Err(PostError::NotReady);
        }
        if self.sends.is_full() {
            return Err(PostError::SendQueueFull(self.config.send_depth));
        }
        checks::operands(&request.verb, self.config.inline_bytes, &self.limits)?;
        let number = self.sends.tail;
        let place = self.sends.place(number);
        let mut slot = Slot { id: request.id, opcode: Some(opcode), ..Slot::default() };
        let Some((mut wr, buffer)) = self.translate(&request.verb, place, &mut slot) else {
            return Err(PostError::Unregistered);
        };
        wr.wr_id = u64::from(self.send_member) << 32 | u64::from(number);
        wr.send_flags |= if request.signaled { ffi::SEND_SIGNALED } else { 0 };
        self.sends.slots[place] = slot;
        self.sends.tail = number.wrapping_add(1);
        self.link_request(wr, buffer);
        Ok(())
    }

    /// A verb as the device takes it.
    #[inline]
    fn translate(
        &mut self,
        verb: &Verb<'_, VerbsNic>,
        place: usize,
        slot: &mut Slot,
    ) -> Option<(ffi::SendWr, ffi::Sge)> {
        let mut wr = ffi::SendWr::EMPTY;
        let with_immediate = |immediate: &Option<u32>, plain, with| match immediate {
            Some(immediate) => (with, immediate.to_be()),
            None => (plain, 0),
        };
        let buffer = match verb {
            Verb::Read { into, from } => {
                wr.opcode = ffi::WR_RDMA_READ;
                wr.wr.rdma = self.remote(from);
                self.held(into, slot)?
            }
            Verb::Write { payload, to, immediate } => {
                (wr.opcode, wr.imm_data) =
                    with_immediate(immediate, ffi::WR_RDMA_WRITE, ffi::WR_RDMA_WRITE_WITH_IMM);
                wr.wr.rdma = self.remote(to);
                self.carried(payload, place, slot, &mut wr)?
            }
            Verb::Send { payload, immediate, to } => {
                (wr.opcode, wr.imm_data) = with_immediate(immediate, ffi::WR_SEND, ffi::WR_SEND_WITH_IMM);
                if let Some(VerbsAddress { destination, number, qkey }) = to {
                    wr.wr.ud = ffi::Ud { ah: destination.raw(), remote_qpn: *number, remote_qkey: *qkey };
                    slot.destination = Some(destination.clone());
                }
                self.carried(payload, place, slot, &mut wr)?
            }
            Verb::CompareSwap { into, at, expected, desired } => {
                wr.opcode = ffi::WR_ATOMIC_CMP_AND_SWP;
                let ffi::Rdma { remote_addr, rkey } = self.remote(at);
                wr.wr.atomic = ffi::Atomic { remote_addr, compare_add: *expected, swap: *desired, rkey };
                self.held(into, slot)?
            }
            Verb::FetchAdd { into, at, add } => {
                wr.opcode = ffi::WR_ATOMIC_FETCH_AND_ADD;
                let ffi::Rdma { remote_addr, rkey } = self.remote(at);
                wr.wr.atomic = ffi::Atomic { remote_addr, compare_add: *add, swap: 0, rkey };
                self.held(into, slot)?
            }
        };
        wr.num_sge = i32::from(buffer.length > 0);
        Some((wr, buffer))
    }

    #[inline]
    fn held(&mut self, slice: &LocalSlice<'_, VerbsNic>, slot: &mut Slot) -> Option<ffi::Sge> {
        let (buffer, registration) = self.buffer(slice)?;
        slot.memory = Some(registration);
        Some(buffer)
    }

    #[inline]
    fn carried(
        &mut self,
        payload: &Payload<'_, VerbsNic>,
        place: usize,
        slot: &mut Slot,
        wr: &mut ffi::SendWr,
    ) -> Option<ffi::Sge> {
        match payload {
            Payload::Inline(pieces) => {
                wr.send_flags = ffi::SEND_INLINE;
                Some(self.stash(place, pieces))
            }
            Payload::Slice(slice) => self.held(slice, slot),
        }
    }

    /// A place in the peer's memory. Another peer's key might by chance open something here, so it is not sent.
    #[inline]
    fn remote(&self, slice: &RemoteSlice<'_, VerbsNic>) -> ffi::Rdma {
        let VerbsRemoteRegion { key, link, .. } = *slice.region;
        ffi::Rdma { remote_addr: slice.offset as u64, rkey: if link == self.link.id { key } else { 0 } }
    }

    /// Adds a request to those that the doorbell hands over.
    #[inline]
    fn link_request(&mut self, wr: ffi::SendWr, buffer: ffi::Sge) {
        if self.linked == self.chain.len() {
            self.ring();
        }
        let place = self.linked;
        self.buffers[place] = buffer;
        self.chain[place] = wr;
        self.linked += 1;
    }

    /// Hands over what is linked.
    #[inline]
    fn ring(&mut self) {
        let count = std::mem::take(&mut self.linked);
        if count == 0 {
            return;
        }
        if self.sends.refused {
            self.queues[0].unsettle();
            return;
        }
        // The pointers are made from the boxes' own, in one place, right before they are used.
        let (requests, buffers) = (self.chain.as_mut_ptr(), self.buffers.as_mut_ptr());
        for place in 0..count {
            self.chain[place].sg_list = buffers.wrapping_add(place);
            self.chain[place].next =
                if place + 1 < count { requests.wrapping_add(place + 1) } else { ptr::null_mut() };
        }
        // What was stored to regions with plain stores must be there before the device looks.
        fence(Ordering::Release);
        // SAFETY: the first `count` requests are linked to each other and to their buffers, whose registrations the
        // slots hold until the requests have completed. Regions are made of atomic words, whose readers expect anything,
        // and inline payloads are copied before the call returns.
        let result = unsafe { self.breakable.pair.post_send(self.chain.as_mut_ptr()) };
        if result != 0 {
            // The limits were checked, so the device is ill. What it did not take it will not flush.
            self.sends.refused = true;
            self.breakable.break_it();
            self.queues[0].unsettle();
        } else if self.state() == QueuePairState::Error {
            self.breakable.flush();
        }
    }

    #[inline]
    fn post_receive(&mut self, id: u64, buffer: &LocalSlice<'_, VerbsNic>) -> Result<(), PostError> {
        checks::range(buffer)?;
        if self.receives.is_full() {
            return Err(PostError::ReceiveQueueFull(self.config.receive_depth));
        }
        let number = self.receives.tail;
        let (mut sge, registration) = self.buffer(buffer).ok_or(PostError::Unregistered)?;
        let place = self.receives.place(number);
        self.receives.slots[place] = Slot { id, opcode: None, memory: Some(registration), destination: None };
        self.receives.tail = number.wrapping_add(1);
        if self.receives.refused {
            self.queues[1].unsettle();
            return Ok(());
        }
        let mut request = ffi::RecvWr {
            wr_id: RECEIVE | u64::from(self.receive_member) << 32 | u64::from(number),
            next: ptr::null_mut(),
            sg_list: &raw mut sge,
            num_sge: i32::from(sge.length > 0),
        };
        // SAFETY: the request names one buffer, whose registration the slot holds until it has completed.
        let result = unsafe { self.breakable.pair.post_receive(&raw mut request) };
        if result != 0 {
            self.receives.refused = true;
            self.breakable.break_it();
            self.queues[1].unsettle();
        } else if self.state() == QueuePairState::Error {
            self.breakable.flush();
        }
        Ok(())
    }

    /// Has the device flush what was posted while it was breaking the queue pair. What an ill device will never flush, or
    /// never took, is flushed here: `flushed` is given the completions for `queue`. Should the device complete one of these
    /// after all, it is not heard: each request completes once.
    pub(crate) fn settle(&mut self, queue: &Queue, mut flushed: impl FnMut(Completion)) {
        // Whoever tells the queue pair of that may come later than a queue that has moved to another device.
        if self.breakable.queues[0].device().is_gone() {
            self.breakable.note_error();
            self.breakable.ill.store(true, Ordering::Release);
        }
        if self.state() != QueuePairState::Error {
            return;
        }
        self.breakable.flush();
        let ill = self.breakable.ill.load(Ordering::Acquire);
        let queue_pair = self.breakable.pair.number();
        for (requests, feeds) in [&mut self.sends, &mut self.receives].into_iter().zip(&self.queues) {
            if !ptr::eq(&**feeds, queue) || !(ill || requests.refused) {
                continue;
            }
            while let Some((id, opcode)) = requests.abandon() {
                let opcode = opcode.unwrap_or(Opcode::Receive);
                flushed(Completion { id, queue_pair, status: Status::Flushed, opcode, ..Completion::EMPTY });
            }
        }
    }

    /// Understands a completion; none if it is of nothing that was posted.
    #[inline]
    pub(crate) fn complete(&mut self, wc: &ffi::Wc) -> Option<Completion> {
        let number = wc.wr_id as u32;
        let requests = if wc.wr_id & RECEIVE == 0 { &mut self.sends } else { &mut self.receives };
        let (id, opcode) = requests.complete(number)?;
        let of_receive = opcode.is_none();
        let status = status_of(wc.status, of_receive);
        if status != Status::Success {
            self.breakable.note_error();
            self.queues[1].unsettle();
        }
        let received =
            if wc.opcode == ffi::WC_RECV_RDMA_WITH_IMM { Opcode::ReceiveWrite } else { Opcode::Receive };
        let immediate = (wc.wc_flags & ffi::WC_WITH_IMM != 0).then(|| u32::from_be(wc.imm_data));
        Some(Completion {
            id,
            queue_pair: self.breakable.pair.number(),
            status,
            opcode: opcode.unwrap_or(received),
            bytes: if of_receive { wc.byte_len } else { 0 },
            immediate: immediate.filter(|_| of_receive),
        })
    }
}

/// How a request ended, in the fabric's terms. SoftRoCE says of a message that is longer than its RECV what InfiniBand
/// says of requests that make no sense: at the RECV "local operation error", at the SEND "remote operation error". And it
/// says "local operation error" of requests that it cannot send since its network interface is down.
fn status_of(status: u32, of_receive: bool) -> Status {
    match status {
        ffi::WC_LOC_QP_OP_ERR if of_receive => Status::LocalLength,
        ffi::WC_REM_OP_ERR => Status::RemoteInvalidRequest,
        ffi::WC_SUCCESS => Status::Success,
        ffi::WC_WR_FLUSH_ERR => Status::Flushed,
        ffi::WC_LOC_LEN_ERR => Status::LocalLength,
        ffi::WC_REM_ACCESS_ERR => Status::RemoteAccess,
        ffi::WC_REM_INV_REQ_ERR => Status::RemoteInvalidRequest,
        ffi::WC_RNR_RETRY_EXC_ERR => Status::ReceiverNotReady,
        ffi::WC_RETRY_EXC_ERR | ffi::WC_LOC_QP_OP_ERR => Status::PeerLost,
        _ => Status::ProtocolViolation,
    }
}

impl QueuePair for VerbsQueuePair {
    type Nic = VerbsNic;

    fn number(&self) -> u32 {
        self.core.borrow().breakable.pair.number()
    }

    fn state(&self) -> QueuePairState {
        self.core.borrow().state()
    }

    fn facts(&self, link: &VerbsLink) -> Result<Facts, FabricError> {
        let core = self.core.borrow();
        if core.config.transport != Transport::Ud && link.inner.id != core.link.id {
            return Err(FabricError::State("a connected queue pair belongs to the link it was made for"));
        }
        let opening = &core.opening;
        Ok(PairFacts {
            transport: core.config.transport,
            number: core.breakable.pair.number(),
            first_psn: core.first_psn,
            qkey: QKEY,
            mtu: opening.mtu_code(),
            lid: opening.chosen().lid,
            gid: opening.gid(),
            reads_answered: opening.reads_answered_max(),
        }
        .encode())
    }

    fn connect(&mut self, facts: Facts) -> Result<(), FabricError> {
        let mut core = self.core.borrow_mut();
        if core.config.transport == Transport::Ud {
            return Err(FabricError::Unsupported(
                "UD queue pairs do not connect: activate, and address each message",
            ));
        }
        if core.state() != QueuePairState::Init {
            return Err(FabricError::State("the queue pair was connected before, or is in error"));
        }
        let theirs = PairFacts::decode(&facts, core.config.transport)
            .map_err(|what| FabricError::Protocol { peer: core.link.name(), what: what.into() })?;
        core.connect(&theirs).map_err(|error| core.opening.explain(error))
    }

    fn activate(&mut self) -> Result<(), FabricError> {
        let mut core = self.core.borrow_mut();
        match (core.config.transport, core.state()) {
            (Transport::Ud, QueuePairState::Init) => core.activate(),
            (Transport::Ud, _) => {
                Err(FabricError::State("the queue pair was activated before, or is in error"))
            }
            _ => Err(FabricError::Unsupported("RC and UC queue pairs become ready by connecting")),
        }
    }

    fn address(&self, link: &VerbsLink, facts: Facts) -> Result<VerbsAddress, FabricError> {
        let core = self.core.borrow();
        if core.config.transport != Transport::Ud {
            return Err(FabricError::Unsupported("only UD queue pairs have addresses"));
        }
        let theirs = PairFacts::decode(&facts, Transport::Ud)
            .map_err(|what| FabricError::Protocol { peer: link.inner.name(), what: what.into() })?;
        link.inner.check_gid(theirs.gid)?;
        let route = core.opening.route(&theirs);
        let destination = Arc::new(Destination::new(core.breakable.pair.domain(), route)?);
        Ok(VerbsAddress { destination, number: theirs.number, qkey: theirs.qkey })
    }

    #[inline]
    fn post_send(&mut self, request: &SendRequest<'_, VerbsNic>) -> Result<(), PostError> {
        self.core.borrow_mut().post_send(request)
    }

    #[inline]
    fn ring(&mut self) -> Result<(), PostError> {
        self.core.borrow_mut().ring();
        Ok(())
    }

    #[inline]
    fn post_receive(&mut self, id: u64, buffer: LocalSlice<'_, VerbsNic>) -> Result<(), PostError> {
        self.core.borrow_mut().post_receive(id, &buffer)
    }

    fn fail(&mut self) {
        // What is linked is flushed, too.
        let mut core = self.core.borrow_mut();
        core.ring();
        core.breakable.break_it();
        // Another thread may be about to: when this returns, the device is done with what was posted.
        core.breakable.flush();
    }
}

impl Drop for VerbsQueuePair {
    fn drop(&mut self) {
        let core = self.core.borrow();
        core.breakable.break_it();
        core.queues[0].detach(core.send_member);
        core.queues[1].detach(core.receive_member);
    }
}
