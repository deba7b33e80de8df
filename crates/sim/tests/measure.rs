//! What `locus sim measure` makes of a fabric, held to simulated NICs: of these it is known what should come out.

use locus_fabric::sim::performance::{GigabytesPerSecond, Machine, Nanoseconds};
use locus_sim::{
    Preset,
    calibrate::{Direction, Experiment, Transport, Use, Verb, compare, measure_on_model, run},
    measure::{Declared, Effort, plan, preset},
};
use std::sync::Arc;

/// Longer than what numbers are fitted with.
const EFFORT: Effort = Effort { operations: 1000, ..Effort::MODEL };

/// Measures a machine of the model as if it were a real one, and makes a preset of that.
fn measured(machine: &Machine) -> Preset {
    let machine = Arc::new(machine.clone());
    let measured: Vec<_> = plan()
        .into_iter()
        .map(|planned| {
            let taken = measure_on_model(&machine, planned.point, EFFORT).expect("its world ends");
            (planned, taken)
        })
        .collect();
    let declared = Declared {
        inline_bytes_max: machine.nic.inline_bytes_max,
        reads_outstanding: machine.nic.reads_outstanding,
        mtu_bytes: machine.link.mtu_bytes,
        cores: machine.processor.cores,
    };
    let text =
        preset("measured", &declared, &measured, "a simulated machine", &|_| {}).expect("it can be fitted");
    Preset::parse("measured", &text).expect("what was written can be read")
}

/// A machine whose numbers are all shown by some measurement.
fn shown() -> Machine {
    let mut machine = (*Preset::find("apt").expect("it comes along").machine).clone();
    let ns = Nanoseconds::from_ns;
    machine.nic.pipeline_ns = ns(400.0);
    machine.nic.responder.read_ns = ns(900.0);
    machine.nic.responder.read_kib_ns = ns(310.0);
    machine.nic.responder.write_ns = ns(700.0);
    machine.nic.responder.send_ns = ns(1300.0);
    machine.nic.pcie.read_ns = ns(620.0);
    machine.link.gigabytes_per_second = GigabytesPerSecond::from_rate(1.7);
    machine.processor.factor = 1.0;
    machine.processor.post_ns = ns(130.0);
    machine.processor.poll_hit_ns = ns(55.0);
    machine
}

#[test]
fn a_machine_of_the_model_comes_out_as_itself() {
    let truth = shown();
    let found = measured(&truth).machine;
    let numbers = |machine: &Machine| {
        [
            ("pipeline_ns", machine.nic.pipeline_ns.ns()),
            ("responder.read_ns", machine.nic.responder.read_ns.ns()),
            ("responder.read_kib_ns", machine.nic.responder.read_kib_ns.ns()),
            ("responder.write_ns", machine.nic.responder.write_ns.ns()),
            ("responder.send_ns", machine.nic.responder.send_ns.ns()),
            ("pcie.read_ns", machine.nic.pcie.read_ns.ns()),
            ("pcie.gigabytes_per_second", machine.nic.pcie.gigabytes_per_second.rate()),
            ("link.gigabytes_per_second", machine.link.gigabytes_per_second.rate()),
            ("processor.post_ns", machine.processor.post_ns.ns()),
            ("processor.poll_hit_ns", machine.processor.poll_hit_ns.ns()),
        ]
    };
    for ((name, true_value), (_, found)) in numbers(&truth).into_iter().zip(numbers(&found)) {
        assert!((found / true_value - 1.0).abs() < 0.02, "{name}: {true_value} came out as {found}");
    }
}

/// How near the model of what was measured comes to the machine where many clients ask, which was not measured.
fn many_clients(machine: &Arc<Machine>, verb: Verb) -> f64 {
    let flood = Experiment::Flood {
        direction: Direction::Inbound,
        verb,
        transport: Transport::Rc,
        bytes: 16,
        inlined: verb == Verb::Write,
        peers: 6,
        processes_per_peer: 1,
        processes: 1,
        all_to_all: false,
    };
    run(machine, &flood).expect("its world ends").value.mops
}

/// Measures a preset's machine: whatever was fitted is met, and of what was checked all but `off` rows.
#[track_caller]
fn is_met(name: &str, off: usize) {
    let truth = Preset::find(name).expect("it comes along").machine;
    let preset = measured(&truth);
    let comparisons = compare(&preset, &|_| {}).expect("its worlds end");
    assert_eq!(comparisons.len(), plan().len());
    let mut found = 0;
    for comparison in comparisons.iter().filter(|comparison| !comparison.holds()) {
        let what = &comparison.measurement.what;
        assert_eq!(
            comparison.measurement.used,
            Use::Checked,
            "{name}, {what}: {:+.1}%",
            comparison.error * 100.0
        );
        found += 1;
    }
    assert!(found <= off, "{found} of {name} are off");
    // What nobody measured: many clients that READ.
    let (truth, found) = (many_clients(&truth, Verb::Read), many_clients(&preset.machine, Verb::Read));
    assert!((found / truth - 1.0).abs() < 0.05, "{name}: {truth} Mops came out as {found}");
}

/// One client does not reach the limits of its NIC, most of which are therefore as they were.
#[test]
fn the_nics_of_apt_are_met() {
    is_met("apt", 0);
}

/// Its units take other shares of the time than those of the machine that all others are modelled on, which may show
/// in between what was fitted.
#[test]
fn the_nics_of_beaker_are_met() {
    is_met("beaker", 1);
}

#[test]
fn numbers_that_nothing_shows_are_not_said_to_be_fitted() {
    let truth = Preset::find("apt").expect("it comes along").machine;
    let preset = measured(&truth);
    assert!(preset.fitted.contains(&"link.gigabytes_per_second".to_owned()), "{:?}", preset.fitted);
    for hidden in ["nic.responder.read_ns", "nic.responder.write_ns"] {
        assert!(!preset.fitted.contains(&hidden.to_owned()), "{hidden} in {:?}", preset.fitted);
    }
    let (found, truth) = (&preset.machine.nic.responder, &truth.nic.responder);
    assert_eq!((found.read_ns, found.write_ns), (truth.read_ns, truth.write_ns));
}
