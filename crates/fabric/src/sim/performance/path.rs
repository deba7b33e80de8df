//! How requests and answers pass from host to host where the costs of machines are modelled: one event for each place
//! where they may have to wait for others that come in between.

use super::{
    super::{
        events::Event,
        state::State,
        transport::{Acknowledgement, Message},
    },
    NicState,
    nic::Request,
};

/// The first whole nanosecond at which something is over.
fn ns(ps: u64) -> u64 {
    ps.div_ceil(1000)
}

impl State {
    fn now_ps(&self) -> u64 {
        self.now_ns * 1000
    }

    /// The host of a queue pair.
    fn host_of(&self, number: u32) -> Option<usize> {
        let pair = self.pairs.get(number as usize)?.as_ref()?;
        Some(self.processes[pair.process].host)
    }

    /// The NIC of a queue pair, if its costs are modelled.
    pub(crate) fn nic_of(&mut self, number: u32) -> Option<&mut NicState> {
        let host = self.host_of(number)?;
        self.hosts[host].nic.as_deref_mut()
    }

    /// Whether the costs of a queue pair's machine are modelled.
    pub(crate) fn is_modelled(&self, number: u32) -> bool {
        self.host_of(number).is_some_and(|host| self.hosts[host].nic.is_some())
    }

    /// Whether what goes from one queue pair to another leaves the host.
    fn leaves(&self, from: u32, to: u32) -> bool {
        self.host_of(from) != self.host_of(to)
    }

    /// When the packets of a request that is posted now are ready to leave; none where costs are not modelled.
    pub(crate) fn ready_ns(&mut self, number: u32, request: Request) -> Option<u64> {
        let from_ps = self.now_ps();
        let nic = self.nic_of(number)?;
        Some(ns(nic.post(from_ps, number, request)))
    }

    /// The packets of a request leave.
    pub(crate) fn launch(&mut self, to: u32, message: Message) {
        let (from, request, signaled) = (message.from, message.request(), self.is_signaled(&message));
        let (now_ps, leaves) = (self.now_ps(), self.leaves(from, to));
        let Some(nic) = self.nic_of(from) else { return };
        let left_ps = nic.send_request(now_ps, request, leaves);
        let arrival_ps = left_ps + nic.flight_ps(leaves);
        // Over RC a completion comes with the acknowledgement.
        let done_ps =
            if message.is_reliable() { left_ps } else { nic.write_back(now_ps, 0, signaled).max(left_ps) };
        self.travel(to, message, ns(done_ps), ns(arrival_ps));
    }

    /// The packets of a request come in, or are in.
    pub(crate) fn comes_in(&mut self, to: u32, message: Message, is_in: bool) {
        let (now_ns, now_ps, request) = (self.now_ns, self.now_ps(), message.request());
        let Some(nic) = self.nic_of(to) else { return self.arrive(to, message) };
        if !is_in {
            let in_ns = ns(nic.request_comes_in(now_ps, request));
            if in_ns > now_ns {
                return self.at(in_ns, Event::ComesIn { to, message, is_in: true });
            }
        }
        let taken_ns = ns(nic.take(now_ps, to, request));
        let pair = self.pair(to).expect("it has a NIC");
        // What one queue pair receives is carried out in order, also where a READ follows a WRITE.
        let at_ns = taken_ns.max(pair.last_taken_ns + 1);
        pair.last_taken_ns = at_ns;
        self.at(at_ns, Event::Arrive { to, message });
    }

    /// Sends an answer on its way; false where costs are not modelled.
    pub(crate) fn answer_leaves(&mut self, number: u32, to: u32, bytes: usize) -> Option<u64> {
        let (now_ps, leaves) = (self.now_ps(), self.leaves(number, to));
        let nic = self.nic_of(number)?;
        let left_ps = nic.send_answer(now_ps, bytes, leaves);
        Some(ns(left_ps + nic.flight_ps(leaves)))
    }

    /// The packets of an answer come in, or are in.
    pub(crate) fn answer_comes_in(&mut self, to: u32, answer: Acknowledgement, is_in: bool) {
        let (now_ns, now_ps, bytes) = (self.now_ns, self.now_ps(), answer.answer.bytes.len());
        let signaled = self.pair(to).is_some_and(|pair| pair.is_signaled(answer.sequence));
        let Some(nic) = self.nic_of(to) else { return };
        if !is_in {
            let in_ns = ns(nic.answer_comes_in(now_ps, bytes));
            if in_ns > now_ns {
                return self.at(in_ns, Event::AnswerComesIn { to, answer, is_in: true });
            }
        }
        let done_ns = ns(nic.take_answer(now_ps, to, bytes, signaled));
        self.at(done_ns, Event::Acknowledged { to, answer });
    }

    /// How long it takes to sample the memory of a READ; none where costs are not modelled.
    pub(crate) fn fetch_ns(&mut self, number: u32, bytes: usize) -> Option<u64> {
        let now_ps = self.now_ps();
        let nic = self.nic_of(number)?;
        Some(ns(nic.fetch(now_ps, bytes) - now_ps))
    }
}
