//! How requests come in: those that are WRITten are looked for, the others raise completions. A client that breaks the rules is
//! dropped.

use super::{Answer, BATCH_MAX, Batch, NAP, QUEUE_EVERY, Server};
use crate::{
    Loss, RequestHeader,
    end::{Datagrams, Received},
    sessions::Verdict,
    slots::Look,
    tag::{self, Kind},
};
use locus_fabric::{Completion, CompletionQueue, Nic, Status, Work};
use locus_runtime::{Clock, Park};
use std::{sync::Arc, time::Duration};

/// How many clients' slots one poll looks at. A look is one load, of a line that is cached until its client writes.
const LOOKS_MAX: usize = 256;
/// Among polls that find no WRITten request, one in at most so many looks for some behind a gap.
const AROUND_EVERY_MAX: u32 = 16;

impl<N: Nic> Server<N> {
    /// Handles what has completed, and says whether there was anything.
    #[inline]
    pub(super) fn sweep(&mut self, into: &mut Batch) -> bool {
        let count = self.queue.poll(&mut self.completions);
        if count > 0 {
            let completions = std::mem::take(&mut self.completions);
            completions[..count].iter().for_each(|completion| self.complete(completion, into));
            self.completions = completions;
            if count == BATCH_MAX {
                // There are more, perhaps: not to wait until the next sweep is due.
                self.sweeps.set(true);
            }
        }
        count > 0
    }

    /// Looks for requests that were WRITten: of each client in turn at the slot where the next one is expected (Kalia
    /// §4.2). A poll takes a batch at most and looks at [`LOOKS_MAX`] clients, and the next poll goes on there; so a client
    /// waits for its turn no longer than the others take for a batch. Now and then, when there is nothing, one client's
    /// slots are all looked at: requests that were lost or given up leave a gap, and repeated ones come behind.
    #[inline]
    pub(super) fn look(&mut self, into: &mut Batch) -> bool {
        let before = into.len();
        self.looks = self.looks.wrapping_add(1);
        if self.look_around.take() {
            for index in 0..self.silent.len() {
                self.look_at(index, true, into);
            }
        }
        for _ in 0..self.silent.len().min(LOOKS_MAX) {
            if self.cursor >= self.silent.len() {
                self.cursor = 0;
            }
            self.look_at(self.cursor, false, into);
            self.cursor += 1;
            if into.len() - before >= BATCH_MAX {
                return true;
            }
        }
        if self.looks.is_multiple_of(if into.len() == before { self.around_every } else { QUEUE_EVERY }) {
            self.look_around_one(into);
        }
        into.len() > before
    }

    /// Looks at all slots of the next client in turn. As long as there is something behind a gap, gaps are looked for more
    /// often.
    pub(super) fn look_around_one(&mut self, into: &mut Batch) {
        if self.silent.is_empty() {
            return;
        }
        let before = into.len();
        self.around = self.around.wrapping_add(1);
        self.look_at(self.around % self.silent.len(), true, into);
        self.around_every =
            if into.len() > before { 1 } else { (2 * self.around_every).min(AROUND_EVERY_MAX) };
    }

    /// Takes requests of one client whose requests raise no completion, as many as there are and fit a batch.
    #[inline]
    pub(super) fn look_at(&mut self, index: usize, around: bool, into: &mut Batch) {
        let Some(&place) = self.silent.get(index) else { return };
        let place = usize::from(place);
        for _ in 0..BATCH_MAX {
            let Some(Some(connection)) = self.connections.get_mut(place) else { return };
            if !connection.end.expects(around) {
                return;
            }
            let request = into.next();
            let taken = match connection.end.look(around, &mut request.buffer) {
                Look::Nothing => return,
                Look::Frame(bytes) => {
                    request.bytes = bytes;
                    self.take_in(place, into)
                }
                Look::Broken(error) => Err(Loss::Malformed(error)),
            };
            if let Err(cause) = taken {
                return self.drop_connection(place as u16, cause);
            }
            if into.len() >= BATCH_MAX {
                return;
            }
        }
    }

    #[inline]
    pub(super) fn complete(&mut self, completion: &Completion, into: &mut Batch) {
        let place = tag::owner(completion.id);
        let Some(Some(connection)) = self.connections.get_mut(place) else {
            return self.complete_datagram(completion, into);
        };
        // Of a queue pair that is gone.
        if !connection.tag.owns(completion.id) {
            return;
        }
        if completion.status != Status::Success {
            return self.drop_connection(place as u16, Loss::of(completion.status));
        }
        match (tag::kind(completion.id), &mut connection.end.connected) {
            (Kind::Send(number), Some(outbox)) => outbox.completed(number),
            (Kind::Receive(slot), _) => {
                if let Err(cause) = self.receive(place, slot, completion, into) {
                    self.drop_connection(place as u16, cause);
                }
            }
            _ => {}
        }
    }

    /// Takes what a RECV of a client's queue pair was consumed for.
    #[inline]
    pub(super) fn receive(
        &mut self,
        place: usize,
        slot: u32,
        completion: &Completion,
        into: &mut Batch,
    ) -> Result<(), Loss> {
        let Some(connection) = &mut self.connections[place] else { return Ok(()) };
        let request = into.next();
        match connection.end.receive(slot, completion, &mut request.buffer)? {
            Received::Frame(bytes) => request.bytes = bytes,
            Received::Woken => {
                self.counters.woken += 1;
                return Ok(());
            }
        }
        self.take_in(place, into)
    }

    /// A completion of the UD queue pair, or of a channel that is gone. Nobody is dropped for a datagram that makes no sense,
    /// unless its token says who sent it.
    #[cold]
    pub(super) fn complete_datagram(&mut self, completion: &Completion, into: &mut Batch) {
        let Some(datagrams) = &mut self.datagrams else { return };
        if tag::owner(completion.id) != usize::from(Datagrams::<N>::PLACE) {
            return;
        }
        if completion.status != Status::Success {
            return self.lose_datagrams(Loss::of(completion.status));
        }
        let slot = match tag::kind(completion.id) {
            Kind::Send(number) => return datagrams.outbox.completed(number),
            Kind::Receive(slot) => slot,
        };
        let request = into.next();
        let (token, bytes) = match datagrams.receive(slot, completion.bytes, &mut request.buffer) {
            Ok(received) => received,
            Err(error) => return self.lose_datagrams(Loss::Refused(error)),
        };
        request.bytes = bytes;
        let place = token as u16;
        match self.connections.get(usize::from(place)) {
            Some(Some(connection)) if connection.token == token => {}
            _ => return self.counters.stray += 1,
        }
        if let Err(cause) = self.take_in(place.into(), into) {
            self.drop_connection(place, cause);
        }
    }

    /// Takes the request in whose frame is in the batch's next place, or answers it if it was executed before.
    #[inline(always)]
    pub(super) fn take_in(&mut self, place: usize, into: &mut Batch) -> Result<(), Loss> {
        let Some(connection) = &mut self.connections[place] else { return Ok(()) };
        N::charge(Work::Request);
        let request = into.next();
        let header = RequestHeader::parse(request.frame()).map_err(Loss::Malformed)?;
        if header.incarnation != self.folded {
            return Err(Loss::WrongIncarnation);
        }
        match connection.slots.arrived(header.sequence, header.mutates) {
            Verdict::Execute => {
                self.counters.requests += 1;
                request.header = header;
                request.channel = connection.id;
                request.session = connection.session;
                into.keep_next();
                Ok(())
            }
            Verdict::Repeat { status, version } => {
                self.counters.duplicates += 1;
                let answer = Answer { status, version };
                self.post(place as u16, header.sequence, &answer, &[]);
                Ok(())
            }
            Verdict::UnderWay => {
                self.counters.duplicates_under_way += 1;
                Ok(())
            }
            // A request that was sent again, and overtaken by the next one in its slot.
            Verdict::Violation if self.config.pair.is_lossy() => {
                self.counters.stray += 1;
                Ok(())
            }
            Verdict::Violation => Err(Loss::Sequence),
        }
    }
}

/// What a server core sleeps on. WRITten requests raise no completion: where a WRITE wakes who sleeps
/// ([`writes_wake`](locus_fabric::Properties::writes_wake)), they are looked for once more after the sleep was announced,
/// so that none is missed; elsewhere a client that has had no answer for a moment wakes the core by an immediate after its
/// request. For that moment the core naps, and then looks again.
impl<N: Nic> Park for Server<N> {
    fn prepare(&self) -> bool {
        if !self.queue.prepare() {
            self.sweeps.set(true);
            return false;
        }
        let mut news = false;
        for &place in &self.silent {
            let connection = self.connections[usize::from(place)].as_ref();
            news |= connection
                .and_then(|connection| connection.end.arrivals.as_ref())
                .is_some_and(|arrivals| arrivals.has_news());
        }
        if news {
            self.look_around.set(true);
            self.queue.park(Duration::ZERO);
        }
        !news
    }

    fn park(&self, timeout: Duration) {
        self.slept.set(true);
        let wakes = self.silent.is_empty() || self.nic.properties().writes_wake;
        self.queue.park(if wakes { timeout } else { timeout.min(self.nap()) });
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.queue.waker()
    }
}

impl<N: Nic> Server<N> {
    /// How long the core may sleep although WRITEs do not wake it: whatever else ends a nap does not shorten it.
    #[cold]
    fn nap(&self) -> Duration {
        let (now_ns, requests) = (self.clock.now_ns(), self.counters.requests);
        if self.requests_slept.replace(requests) != requests {
            self.naps_until_ns.set(now_ns + NAP.as_nanos() as u64);
        }
        let left_ns = self.naps_until_ns.get().saturating_sub(now_ns);
        if left_ns > 0 { Duration::from_nanos(left_ns) } else { Duration::MAX }
    }
}
