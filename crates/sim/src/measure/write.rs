//! A preset as a file: every number with its origin.

use super::Planned;
use crate::calibrate::{ProbeTask, Quantity, Use};
use locus_fabric::sim::performance::Machine;
use std::{collections::HashMap, fmt::Write};

/// Where the numbers of a preset come from.
#[derive(Clone, Debug, Default)]
pub(super) struct Origin {
    /// What it is called.
    pub name: String,
    /// What was measured, in words.
    pub description: String,
    /// Who measured, in words.
    pub source: String,
    /// Why each of those numbers is what it is that were not taken over, by path.
    pub numbers: HashMap<&'static str, String>,
    /// Those that were fitted.
    pub fitted: Vec<&'static str>,
    /// The preset that all others are of.
    pub others_of: String,
}

/// The text of a preset with the measurements and what each gave.
pub(super) fn text(machine: &Machine, origin: &Origin, measured: &[(Planned, f64)]) -> String {
    let mut text = String::new();
    for line in [
        "One client with one core and one server of echoes, over RC, were measured by `locus sim measure`. \"measured\"",
        "is a time taken or a limit that the NIC declares; \"fitted\" was chosen so that the measurements marked as",
        "fitted come out on the model. What one client and one server do not show (UC, UD, SENDs one way, how many queue",
        "pairs a NIC has at hand, where many clients meet) is taken from another preset, and says so: put in what you know.",
    ] {
        line_to(&mut text, format_args!("# {line}"));
    }
    line_to(&mut text, format_args!("name = {}", quoted(&origin.name)));
    line_to(&mut text, format_args!("description = {}", quoted(&origin.description)));
    line_to(&mut text, format_args!("calibrated = true"));
    let fitted: Vec<String> = origin.fitted.iter().map(|path| quoted(path)).collect();
    line_to(&mut text, format_args!("fitted = [{}]", fitted.join(", ")));
    for (section, numbers) in numbers(machine) {
        line_to(&mut text, format_args!("\n[{section}]"));
        for (name, value) in numbers {
            let path = format!("{section}.{name}");
            let from = match origin.numbers.get(path.as_str()) {
                Some(from) => from.clone(),
                None => format!("not measured: as of {}", origin.others_of),
            };
            line_to(&mut text, format_args!("{:<34}# {from}", format!("{name} = {value}")));
        }
    }
    for (planned, value) in measured {
        let task = match planned.point.task {
            ProbeTask::Read => "read",
            ProbeTask::Write => "write",
            ProbeTask::Echo => "echo",
        };
        let quantity = match planned.quantity {
            Quantity::Mops => "mops",
            Quantity::LatencyUs => "latency-us",
        };
        let used = if planned.used == Use::Fitted { "fitted" } else { "checked" };
        let super::Point { bytes, window, queue_pairs, .. } = planned.point;
        line_to(&mut text, format_args!("\n[[measurement]]\nwhat = {}", quoted(&planned.what)));
        line_to(&mut text, format_args!("source = {}", quoted(&origin.source)));
        line_to(
            &mut text,
            format_args!("quantity = \"{quantity}\"\nmeasured = {value:.6}\nuse = \"{used}\""),
        );
        line_to(
            &mut text,
            format_args!(
                "experiment = {{ program = \"probe\", task = \"{task}\", bytes = {bytes}, window = {window}, \
                 queue-pairs = {queue_pairs} }}"
            ),
        );
    }
    text
}

fn line_to(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string takes everything");
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            character if character.is_control() => quoted.push(' '),
            character => quoted.push(character),
        }
    }
    quoted + "\""
}

/// All numbers of a machine, section by section.
fn numbers(machine: &Machine) -> [(&'static str, Vec<(&'static str, String)>); 7] {
    let Machine { nic, link, processor } = machine;
    let ns = |ns: locus_fabric::sim::performance::Nanoseconds| format!("{:.3}", ns.ns());
    let rate = |rate: locus_fabric::sim::performance::GigabytesPerSecond| format!("{:.5}", rate.rate());
    let whole = |number: usize| number.to_string();
    [
        (
            "nic",
            vec![
                ("inline_bytes_max", whole(nic.inline_bytes_max)),
                ("reads_outstanding", whole(nic.reads_outstanding)),
                ("pio_line_ns", ns(nic.pio_line_ns)),
                ("packet_ns", ns(nic.packet_ns)),
                ("acknowledgement_packet_ns", ns(nic.acknowledgement_packet_ns)),
                ("match_ns", ns(nic.match_ns)),
                ("pipeline_ns", ns(nic.pipeline_ns)),
            ],
        ),
        (
            "nic.requester",
            vec![
                ("write_ns", ns(nic.requester.write_ns)),
                ("send_ns", ns(nic.requester.send_ns)),
                ("read_ns", ns(nic.requester.read_ns)),
                ("response_ns", ns(nic.requester.response_ns)),
                ("acknowledgement_ns", ns(nic.requester.acknowledgement_ns)),
            ],
        ),
        (
            "nic.responder",
            vec![
                ("write_ns", ns(nic.responder.write_ns)),
                ("send_ns", ns(nic.responder.send_ns)),
                ("acknowledgement_ns", ns(nic.responder.acknowledgement_ns)),
                ("read_ns", ns(nic.responder.read_ns)),
                ("read_kib_ns", ns(nic.responder.read_kib_ns)),
                ("atomic_ns", ns(nic.responder.atomic_ns)),
            ],
        ),
        (
            "nic.pcie",
            vec![
                ("read_ns", ns(nic.pcie.read_ns)),
                ("write_ns", ns(nic.pcie.write_ns)),
                ("gigabytes_per_second", rate(nic.pcie.gigabytes_per_second)),
                ("payload_bytes", nic.pcie.payload_bytes.to_string()),
                ("header_bytes", nic.pcie.header_bytes.to_string()),
                ("completion_bytes", nic.pcie.completion_bytes.to_string()),
            ],
        ),
        (
            "nic.contexts",
            vec![
                ("requester_entries", whole(nic.contexts.requester_entries)),
                ("responder_entries", whole(nic.contexts.responder_entries)),
                ("miss_ns", ns(nic.contexts.miss_ns)),
            ],
        ),
        (
            "link",
            vec![
                ("gigabytes_per_second", rate(link.gigabytes_per_second)),
                ("propagation_ns", ns(link.propagation_ns)),
                ("switch_ns", ns(link.switch_ns)),
                ("mtu_bytes", whole(link.mtu_bytes)),
                ("header_bytes", whole(link.header_bytes)),
                ("datagram_header_bytes", whole(link.datagram_header_bytes)),
                ("remote_header_bytes", whole(link.remote_header_bytes)),
                ("acknowledgement_header_bytes", whole(link.acknowledgement_header_bytes)),
            ],
        ),
        (
            "processor",
            vec![
                ("cores", whole(processor.cores)),
                ("factor", format!("{:.3}", processor.factor)),
                ("post_ns", ns(processor.post_ns)),
                ("post_receive_ns", ns(processor.post_receive_ns)),
                ("poll_hit_ns", ns(processor.poll_hit_ns)),
                ("poll_miss_ns", ns(processor.poll_miss_ns)),
            ],
        ),
    ]
}
