//! One client and one server of echoes on two machines of the model, and between them what `locus sim measure` does.

use super::experiment::Result;
use crate::measure::{Effort, Point, Taken, take};
use locus_fabric::{
    Address, FabricError, Link, Listener, Nic,
    echo::{EchoEnd, EchoServer, EchoVerb, Probe},
    sim::{
        SimHost, SimLink, SimNic, SimProcess, SimulationConfig, SimulationError, performance::Machine,
        simulate,
    },
};
use locus_runtime::{Idle, channel, thread};
use std::{sync::Arc, time::Duration};

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(1000);

pub(super) fn play(machine: &Arc<Machine>, point: Point) -> Result {
    let taken = measure(machine, point, Effort::MODEL);
    Result { mops: taken.mops, latency_us: taken.latency_us }
}

/// Takes a measurement on two machines of a world of their own.
pub fn measure_on_model(
    machine: &Arc<Machine>,
    point: Point,
    effort: Effort,
) -> std::result::Result<Taken, SimulationError> {
    let machine = machine.clone();
    Ok(simulate(SimulationConfig::default(), move || measure(&machine, point, effort))?.value)
}

fn measure(machine: &Arc<Machine>, point: Point, effort: Effort) -> Taken {
    let [near, far] = ["client", "server"].map(|name| SimHost::add_machine(name, machine));
    let (ready, is_ready) = channel::channel();
    let verb = point.task().ends();
    let _server = SimProcess::spawn_on(far, "server", move || {
        let listener = SimNic::open().listen(&address()).expect("its address is free");
        let _ = ready.send(());
        for _ in 0..point.queue_pairs {
            let link = listener.accept(LONG).expect("it listens").expect("a client that links");
            // As in a real server, each client has a thread that answers its echoes.
            thread::spawn("echoes", move || serve(link, verb)).expect("a simulated thread");
        }
        thread::sleep(LONG);
    });
    is_ready.receive().expect("the server starts");
    let (tell, told) = channel::channel();
    let _client = SimProcess::spawn_on(near, "client", move || {
        let nic = SimNic::open();
        let mut queue =
            nic.create_completion_queue(EchoEnd::<SimNic>::COMPLETIONS).expect("within the limits");
        let mut probes = Vec::new();
        for _ in 0..point.queue_pairs {
            let link = nic.connect(&address()).expect("it listens");
            let beside = nic.create_completion_queue_beside(&queue, EchoEnd::<SimNic>::COMPLETIONS);
            let queue = std::mem::replace(&mut queue, beside.expect("within the limits"));
            probes.push(Probe::new(join(&nic, &link, queue, verb).expect("a living peer")));
        }
        let _ = tell.send(take(&mut probes, &point, &effort));
    });
    told.receive().expect("the client ends well").expect("nothing breaks")
}

fn address() -> Address {
    Address::Sim("server".into())
}

/// One end of echoes, connected with the other over a link of its own.
fn join(
    nic: &SimNic,
    link: &SimLink,
    queue: locus_fabric::sim::SimCompletionQueue,
    verb: EchoVerb,
) -> std::result::Result<EchoEnd<SimNic>, FabricError> {
    let mut end = EchoEnd::new(nic, link, queue, verb)?;
    link.send(&[], end.facts()?)?;
    let (_, facts) = link.receive(LONG)?.expect("it answers at once");
    end.connect(facts)?;
    Ok(end)
}

fn serve(link: SimLink, verb: EchoVerb) {
    let nic = SimNic::open();
    let queue = nic.create_completion_queue(EchoEnd::<SimNic>::COMPLETIONS).expect("within the limits");
    let end = join(&nic, &link, queue, verb).expect("a living peer");
    if verb == EchoVerb::Write {
        // It is READ and WRITten, and nothing comes that it should answer.
        thread::sleep(LONG);
    }
    let (mut server, mut idle) = (EchoServer::new(end), Idle::default());
    while let Ok(answered) = server.turn() {
        if answered == 0 {
            idle.step(server.queue());
        }
    }
}
