//! Hosts and workers of a run: who links with whom, and when all begin.

use super::experiment::{Transport, Verb};
use locus_fabric::{
    Access, Address, Completion, CompletionQueue, Facts, Link, Listener, LocalSlice, Nic, PagePolicy,
    QueuePair, QueuePairConfig, Transport as Kind,
    sim::{
        SimAddress, SimCompletionQueue, SimHost, SimLink, SimNic, SimProcess, SimQueuePair, SimRegion,
        SimRemoteRegion,
    },
};
use locus_runtime::{thread, world};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

/// The memory of a worker, in bytes: all slots of all windows.
const REGION_BYTES: usize = 1 << 20;
/// Where in it messages begin that are sent from memory, and where those that are received.
pub(super) const OUTGOING: usize = REGION_BYTES - (16 << 10);
const RECEIVED: usize = REGION_BYTES - (8 << 10);
/// RECVs of a queue pair. Kalia's clients and servers post enough of them.
const RECEIVES: usize = 128;
/// Requests of a queue pair that have not completed.
pub(super) const SENDS: usize = 256;
const COMPLETIONS: usize = 32 << 10;
const SOON: Duration = Duration::from_micros(1);
const LONG: Duration = Duration::from_secs(3600);

/// The time, in nanoseconds.
pub(super) fn now_ns() -> u64 {
    world::current().map_or(0, |world| world.now_ns())
}

pub(super) fn sleep_until(at_ns: u64) {
    thread::sleep(Duration::from_nanos(at_ns.saturating_sub(now_ns())));
}

/// What the workers of a run share with the one that measures it.
#[derive(Debug, Default)]
pub(super) struct Course {
    ready: Cell<usize>,
    /// When to begin; none before everybody is ready.
    pub(super) start_ns: Cell<Option<u64>>,
    /// When to take note of latencies, and until when.
    pub(super) measured_ns: Cell<(u64, u64)>,
    pub(super) operations: Cell<u64>,
    pub(super) latency_ns: Cell<u64>,
}

impl Course {
    /// Waits until all are ready.
    pub(super) fn wait(&self) -> u64 {
        // What it took to get ready has to be over first.
        thread::sleep(SOON);
        self.ready.set(self.ready.get() + 1);
        loop {
            if let Some(start_ns) = self.start_ns.get() {
                sleep_until(start_ns);
                return start_ns;
            }
            thread::sleep(SOON);
        }
    }

    pub(super) fn wait_for(&self, workers: usize) {
        while self.ready.get() < workers {
            thread::sleep(SOON);
        }
    }

    /// Takes note of an operation.
    pub(super) fn done(&self, from_ns: u64) {
        let (begin_ns, end_ns) = self.measured_ns.get();
        let now_ns = now_ns();
        if (begin_ns..end_ns).contains(&now_ns) {
            self.operations.set(self.operations.get() + 1);
            self.latency_ns.set(self.latency_ns.get() + now_ns - from_ns);
        }
    }
}

/// Which queue pairs join two workers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wiring {
    /// One that is connected.
    pub(super) connected: Option<Kind>,
    /// One datagram queue pair per worker.
    pub(super) datagrams: bool,
    /// Whether RECVs are needed.
    pub(super) receives: bool,
}

impl Wiring {
    /// What verbs need over their transports.
    pub(super) fn of(verbs: &[(Verb, Transport)]) -> Self {
        let mut wiring = Self::default();
        for (verb, transport) in verbs {
            wiring.receives |= *verb == Verb::Send;
            match transport {
                Transport::Rc => wiring.connected = Some(Kind::Rc),
                Transport::Uc => wiring.connected = Some(Kind::Uc),
                Transport::Ud => wiring.datagrams = true,
            }
        }
        wiring
    }
}

/// A thread of a host with its queue pairs.
pub(super) struct Worker {
    nic: SimNic,
    pub(super) queue: SimCompletionQueue,
    pub(super) region: SimRegion,
    pub(super) datagrams: Option<SimQueuePair>,
    pub(super) peers: Vec<Peer>,
    wiring: Wiring,
}

/// One of the other side.
pub(super) struct Peer {
    /// Keeps the link open.
    _link: SimLink,
    pub(super) pair: Option<SimQueuePair>,
    pub(super) address: Option<SimAddress>,
    pub(super) memory: SimRemoteRegion,
    /// Which peer we are there.
    pub(super) place: u32,
}

impl Worker {
    fn new(wiring: Wiring) -> Self {
        let nic = SimNic::open();
        let queue = nic.create_completion_queue(COMPLETIONS).expect("a queue within the limits");
        let region = nic.register(REGION_BYTES, Access::RemoteWrite, PagePolicy::Base).expect("some memory");
        Self { nic, queue, region, datagrams: None, peers: Vec::new(), wiring }
    }

    fn configuration(&self, transport: Kind) -> QueuePairConfig {
        let properties = self.nic.properties();
        QueuePairConfig {
            transport,
            send_depth: SENDS,
            receive_depth: RECEIVES,
            inline_bytes: properties.inline_bytes_max,
            reads_outstanding: properties.reads_outstanding_max,
            message_bytes: if transport == Kind::Ud { 4096 } else { 8192 },
            ..QueuePairConfig::default()
        }
    }

    fn queue_pair(&self, link: &SimLink, transport: Kind) -> SimQueuePair {
        let config = self.configuration(transport);
        let made = self.nic.create_queue_pair(link, &config, &self.queue, &self.queue);
        let mut pair = made.expect("a queue pair within the limits");
        if transport == Kind::Ud {
            pair.activate().expect("it was just made");
        }
        if self.wiring.receives {
            (0..RECEIVES).for_each(|_| receive(&mut pair, &self.region));
        }
        pair
    }

    /// Joins with the worker at the other end of a link, who does the same.
    fn join(&mut self, link: SimLink) {
        let mut pair = self.wiring.connected.map(|transport| self.queue_pair(&link, transport));
        if self.wiring.datagrams && self.datagrams.is_none() {
            self.datagrams = Some(self.queue_pair(&link, Kind::Ud));
        }
        let ours = [pair.as_ref(), self.datagrams.as_ref()].into_iter().flatten();
        let mut facts: Vec<Facts> = ours.map(|pair| pair.facts(&link).expect("it is of this link")).collect();
        facts.insert(0, link.grant(&self.region).expect("peers may write there"));
        let place = self.peers.len() as u32;
        link.send(&place.to_le_bytes(), facts).expect("the peer lives");
        let (message, facts) = link.receive(LONG).expect("the peer lives").expect("it answers at once");
        let mut facts = facts.into_iter();
        let mut next = || facts.next().expect("as many as we sent");
        let memory = link.import(next()).expect("the peer granted it");
        if let Some(pair) = &mut pair {
            pair.connect(next()).expect("the peer made it for us");
        }
        let address =
            self.datagrams.as_ref().map(|pair| pair.address(&link, next()).expect("a UD queue pair"));
        let place = u32::from_le_bytes(message.try_into().expect("four bytes"));
        self.peers.push(Peer { _link: link, pair, address, memory, place });
    }

    /// The queue pair that a transport to a peer goes over.
    pub(super) fn pair(&mut self, peer: usize, transport: Transport) -> &mut SimQueuePair {
        match transport {
            Transport::Ud => self.datagrams.as_mut().expect("wired so"),
            Transport::Rc | Transport::Uc => self.peers[peer].pair.as_mut().expect("wired so"),
        }
    }

    /// The longest payload that a work request holds.
    pub(super) fn inline_bytes(&self) -> usize {
        self.nic.properties().inline_bytes_max
    }

    /// Posts a RECV again, in place of one that was filled.
    pub(super) fn receive_again(&mut self, completion: &Completion) {
        let Self { peers, datagrams, region, .. } = self;
        let connected = peers.iter_mut().filter_map(|peer| peer.pair.as_mut());
        let pair = connected.chain(datagrams).find(|pair| pair.number() == completion.queue_pair);
        receive(pair.expect("it completed here"), region);
    }

    /// Takes completions as they come; sleeps if there are none.
    pub(super) fn completions(&mut self, into: &mut [Completion], sleeps: bool) -> usize {
        let count = self.queue.poll(into);
        if count == 0 && sleeps {
            use locus_runtime::Park;
            if self.queue.prepare() {
                self.queue.park(LONG);
            }
            return self.queue.poll(into);
        }
        count
    }
}

/// Posts a RECV. What it holds does not matter, so all share a buffer.
fn receive(pair: &mut SimQueuePair, region: &SimRegion) {
    let buffer = LocalSlice { region, offset: RECEIVED, bytes: REGION_BYTES - RECEIVED };
    pair.post_receive(0, buffer).expect("as many as there is room for");
}

/// Workers that wait for links.
pub(super) struct Listening {
    pub(super) host: SimHost,
    pub(super) address: Address,
    /// How many will link with it.
    pub(super) links: usize,
}

/// A cluster while it is put together.
pub(super) struct Cluster {
    pub(super) course: Rc<Course>,
    wiring: Wiring,
    workers: Cell<usize>,
    processes: RefCell<Vec<SimProcess>>,
}

impl Cluster {
    pub(super) fn new(wiring: Wiring) -> Self {
        Self { course: Rc::default(), wiring, workers: Cell::new(0), processes: RefCell::default() }
    }

    /// Starts a worker that others link with.
    pub(super) fn listen(&self, at: &Listening, main: impl FnOnce(Worker, &Course) + 'static) {
        let (address, links) = (at.address.clone(), at.links);
        self.start(at.host, main, move |worker| {
            let listener = worker.nic.listen(&address).expect("each worker has an address of its own");
            for _ in 0..links {
                let link = listener.accept(LONG).expect("it listens").expect("somebody links soon");
                worker.join(link);
            }
        });
    }

    /// Starts a worker that links with others.
    pub(super) fn connect(
        &self,
        host: SimHost,
        to: Vec<Address>,
        main: impl FnOnce(Worker, &Course) + 'static,
    ) {
        self.start(host, main, move |worker| {
            // Those that listen may not have begun to.
            thread::sleep(SOON);
            for address in to {
                let link = worker.nic.connect(&address).expect("somebody listens");
                worker.join(link);
            }
        });
    }

    fn start(
        &self,
        host: SimHost,
        main: impl FnOnce(Worker, &Course) + 'static,
        join: impl FnOnce(&mut Worker) + 'static,
    ) {
        self.workers.set(self.workers.get() + 1);
        let (course, wiring) = (self.course.clone(), self.wiring);
        let process = SimProcess::spawn_on(host, "worker", move || {
            let mut worker = Worker::new(wiring);
            join(&mut worker);
            main(worker, &course);
        });
        self.processes.borrow_mut().push(process);
    }

    /// Lets all begin, and gives how many requests some hosts served meanwhile.
    pub(super) fn run(&self, warm_up_ns: u64, measured_ns: u64, serving: &[SimHost]) -> u64 {
        self.course.wait_for(self.workers.get());
        let start_ns = now_ns() + 1000;
        let begin_ns = start_ns + warm_up_ns;
        self.course.measured_ns.set((begin_ns, begin_ns + measured_ns));
        self.course.start_ns.set(Some(start_ns));
        let served =
            || -> u64 { serving.iter().filter_map(|host| host.nic_usage()).map(|usage| usage.served).sum() };
        sleep_until(begin_ns);
        let before = served();
        sleep_until(begin_ns + measured_ns);
        served() - before
    }
}
