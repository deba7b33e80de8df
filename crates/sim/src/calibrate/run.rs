//! Puts a cluster together for an experiment, and runs it.

use super::{
    cluster::{Cluster, Listening, Wiring},
    echo::{Echo, Way},
    experiment::{Direction, Experiment, Result, Transport, Verb},
    flood::{self, Flood},
    probe,
};
use crate::measure::Point;
use locus_fabric::{
    Address,
    sim::{
        Outcome, SimHost, SimulationConfig, SimulationError,
        performance::{Machine, ProcessorCosts},
        simulate,
    },
};
use std::sync::Arc;

/// What is offered where nothing but the time between two requests holds clients back, in million per second: more than
/// any of these NICs takes.
const OFFERED_MOPS: u64 = 60;
/// How long a run lasts before anything is noted, and how long then.
const WARM_UP_NS: u64 = 1_000_000;
const MEASURED_NS: u64 = 1_000_000;

/// Runs an experiment on machines of one kind.
pub fn run(
    machine: &Arc<Machine>,
    experiment: &Experiment,
) -> std::result::Result<Outcome<Result>, SimulationError> {
    let (machine, experiment) = (machine.clone(), experiment.clone());
    simulate(SimulationConfig::default(), move || play(&machine, &experiment))
}

fn hosts(name: &str, count: usize, machine: &Arc<Machine>) -> Vec<SimHost> {
    (0..count).map(|number| SimHost::add_machine(&format!("{name} {number}"), machine)).collect()
}

fn address(host: usize, process: usize) -> Address {
    Address::Sim(format!("{host}.{process}"))
}

fn play(machine: &Arc<Machine>, experiment: &Experiment) -> Result {
    match *experiment {
        Experiment::Flood { .. } => flood(machine, experiment),
        Experiment::Latency { verb, transport, bytes, inlined } => {
            let flood = Flood { verb, transport, bytes, inlined, depth: 1, signaled: 1, pace_ns: 0 };
            let cluster = Cluster::new(Wiring::of(&[(verb, transport)]));
            let [near, far] = [hosts("near", 1, machine)[0], hosts("far", 1, machine)[0]];
            cluster.listen(&Listening { host: far, address: address(0, 0), links: 1 }, flood::suffer);
            cluster.connect(near, vec![address(0, 0)], move |worker, course| flood.post(worker, course));
            finish(&cluster, &[far], Counts::Noted(1))
        }
        Experiment::Echo { .. } => echo(machine, experiment),
        Experiment::Probe { task, bytes, window, queue_pairs } => {
            probe::play(machine, Point { task, bytes, window, queue_pairs })
        }
        Experiment::ScaleOut { .. } => scale_out(machine, experiment),
    }
}

/// What counts as an operation.
#[derive(Clone, Copy, Debug)]
enum Counts {
    /// What was carried out at the hosts that serve, since nobody else sees that.
    Served,
    /// What workers took note of, which stands for so many.
    Noted(u64),
}

/// Runs the cluster.
fn finish(cluster: &Cluster, serving: &[SimHost], counts: Counts) -> Result {
    let served = cluster.run(WARM_UP_NS, MEASURED_NS, serving);
    let operations = cluster.course.operations.get();
    let counted = match counts {
        Counts::Served => served,
        Counts::Noted(each) => operations * each,
    };
    let latency_us = cluster.course.latency_ns.get() as f64 / operations.max(1) as f64 / 1000.0;
    Result { mops: counted as f64 / (MEASURED_NS as f64 / 1000.0), latency_us }
}

fn flood(machine: &Arc<Machine>, experiment: &Experiment) -> Result {
    let &Experiment::Flood {
        direction,
        verb,
        transport,
        bytes,
        inlined,
        peers,
        processes_per_peer,
        processes,
        all_to_all,
    } = experiment
    else {
        unreachable!("the caller looked")
    };
    let cluster = Cluster::new(Wiring::of(&[(verb, transport)]));
    let measured = hosts("measured", 1, machine);
    let others = hosts("other", peers, machine);
    // Processes by host and number: those that post, and those that suffer it.
    let at_others = (0..peers).flat_map(|host| (0..processes_per_peer).map(move |process| (host, process)));
    let at_measured = (0..processes).map(|process| (0, process));
    let (posting, suffering, posting_hosts, suffering_hosts) = match direction {
        Direction::Inbound => {
            (at_others.collect::<Vec<_>>(), at_measured.collect::<Vec<_>>(), &others, &measured)
        }
        Direction::Outbound => (at_measured.collect(), at_others.collect(), &measured, &others),
    };
    let unanswered = transport != Transport::Rc && direction == Direction::Inbound;
    let pace_ns = if unanswered { posting.len() as u64 * 1000 / OFFERED_MOPS } else { 0 };
    let (depth, signaled) = if all_to_all { (4, 2) } else { (16, 4) };
    let flood = Flood { verb, transport, bytes, inlined, depth, signaled, pace_ns };
    let joins = |poster: usize, sufferer: usize| {
        all_to_all || pairs_up(poster, sufferer, posting.len(), suffering.len())
    };
    for (number, &(host, process)) in suffering.iter().enumerate() {
        let links = (0..posting.len()).filter(|poster| joins(*poster, number)).count();
        let listening = Listening { host: suffering_hosts[host], address: address(host, process), links };
        cluster.listen(&listening, flood::suffer);
    }
    for (number, &(host, _)) in posting.iter().enumerate() {
        let to = suffering.iter().enumerate().filter(|(sufferer, _)| joins(number, *sufferer));
        let to = to.map(|(_, &(host, process))| address(host, process)).collect();
        cluster.connect(posting_hosts[host], to, move |worker, course| flood.post(worker, course));
    }
    // Over RC, whoever posts hears of the end.
    let counts = if transport == Transport::Rc { Counts::Noted(signaled) } else { Counts::Served };
    finish(&cluster, suffering_hosts, counts)
}

/// Whether two processes speak with each other where each speaks with as few as possible.
fn pairs_up(one: usize, other: usize, ones: usize, others: usize) -> bool {
    if ones >= others { one % others == other } else { other % ones == one }
}

fn echo(machine: &Arc<Machine>, experiment: &Experiment) -> Result {
    let &Experiment::Echo {
        request,
        request_transport,
        reply,
        reply_transport,
        bytes,
        reply_bytes,
        peers,
        processes_per_peer,
        processes,
        window,
    } = experiment
    else {
        unreachable!("the caller looked")
    };
    let echo = Echo {
        request: Way { verb: request, transport: request_transport, bytes },
        reply: Way { verb: reply, transport: reply_transport, bytes: reply_bytes },
        window,
    };
    let cluster = Cluster::new(Wiring::of(&[(request, request_transport), (reply, reply_transport)]));
    let server = hosts("server", 1, machine)[0];
    let askers = peers * processes_per_peer;
    for process in 0..processes {
        let links = (0..askers).filter(|asker| asker % processes == process).count();
        let listening = Listening { host: server, address: address(0, process), links };
        cluster.listen(&listening, move |worker, course| echo.answer(worker, course));
    }
    let clients = hosts("client", peers, machine);
    for asker in 0..askers {
        let to = vec![address(0, asker % processes)];
        cluster.connect(clients[asker % peers], to, move |worker, course| echo.ask(worker, course));
    }
    finish(&cluster, &[server], Counts::Noted(1))
}

fn scale_out(machine: &Arc<Machine>, experiment: &Experiment) -> Result {
    let &Experiment::ScaleOut { servers, peers, reads, read_bytes, echoes, echo_bytes } = experiment else {
        unreachable!("the caller looked")
    };
    let (read, send) = ((Verb::Read, Transport::Rc), (Verb::Send, Transport::Rc));
    let cluster = Cluster::new(Wiring::of(&[read, send]));
    let way = Way { verb: send.0, transport: send.1, bytes: echo_bytes };
    let echo = Echo { request: way, reply: way, window: 1 };
    let flood = Flood {
        verb: read.0,
        transport: read.1,
        bytes: read_bytes,
        inlined: false,
        depth: 1,
        signaled: 1,
        pace_ns: 0,
    };
    // "Utilizing 1 CPU core per machine" (Mitchell 2.3).
    let machine = &Arc::new(Machine {
        processor: ProcessorCosts { cores: 1, ..machine.processor.clone() },
        ..Machine::clone(machine)
    });
    let serving = hosts("server", servers, machine);
    // Readers come first, then askers; server by server in turn.
    for (number, &host) in serving.iter().enumerate() {
        let links = (0..reads + echoes).filter(|client| server_of(*client, reads, servers) == number).count();
        let listening = Listening { host, address: address(number, 0), links };
        cluster.listen(&listening, move |worker, course| echo.answer(worker, course));
    }
    let clients = hosts("client", peers, machine);
    for client in 0..reads + echoes {
        let to = vec![address(server_of(client, reads, servers), 0)];
        let host = clients[client % peers];
        if client < reads {
            cluster.connect(host, to, move |worker, course| flood.post(worker, course));
        } else {
            cluster.connect(host, to, move |worker, course| echo.ask(worker, course));
        }
    }
    finish(&cluster, &serving, Counts::Noted(1))
}

/// Which server a client speaks with.
fn server_of(client: usize, reads: usize, servers: usize) -> usize {
    if client < reads { client % servers } else { (client - reads) % servers }
}
