//! How many events the simulator handles per second, on one core: 16 clients of apt flood a server with READs.

use locus_sim::{
    Preset,
    calibrate::{Direction, Experiment, Transport, Verb, run},
};
use std::time::Instant;

fn main() {
    let preset = Preset::find("apt").expect("it comes along");
    let experiment = Experiment::Flood {
        direction: Direction::Inbound,
        verb: Verb::Read,
        transport: Transport::Rc,
        bytes: 32,
        inlined: false,
        peers: 16,
        processes_per_peer: 1,
        processes: 16,
        all_to_all: false,
    };
    for _ in 0..5 {
        let begin = Instant::now();
        let outcome = run(&preset.machine, &experiment).expect("its world ends");
        let seconds = begin.elapsed().as_secs_f64();
        let events = outcome.counters.events;
        println!(
            "{events} events in {seconds:.3} s: {:.2} million per second",
            events as f64 / seconds / 1e6
        );
    }
}
