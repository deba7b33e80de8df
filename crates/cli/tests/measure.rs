//! `locus sim measure` with a server on a real RDMA device, and what is said of a firewall and of a device that is taken
//! away. The variable `LOCUS_RDMA` gives the device's IPv4 address; without it there are no tests. `scripts/test` runs them
//! in a virtual machine.

#[path = "../../fabric/tests/shared/device.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod device;
#[path = "../../fabric/tests/shared/firewall.rs"]
mod firewall;

use device::{Interface, Removal};
use firewall::Firewall;
use libtest_mimic::{Arguments, Trial};
use locus_sim::{
    Preset,
    calibrate::{Use, compare},
    measure::plan,
};
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, ExitCode, Output, Stdio},
    time::Duration,
};

/// What a test is called, and what it does with the device's address.
type Test = (&'static str, fn(&str));

fn main() -> ExitCode {
    let Ok(device) = std::env::var("LOCUS_RDMA") else {
        println!("no tests: LOCUS_RDMA names no RDMA device; scripts/test runs these in a virtual machine");
        return ExitCode::SUCCESS;
    };
    let tests: [Test; 4] = [
        ("what_was_measured_is_a_preset_that_simulates", measured),
        ("an_interrupted_measurement_leaves_nothing", interrupted),
        ("a_firewall_is_named_by_whoever_does_not_get_through", firewalled),
        ("a_server_says_that_its_device_is_gone_and_serves_on_once_it_is_back", taken_away),
    ];
    let test = |(name, run): Test| {
        let device = device.clone();
        Trial::test(name, move || {
            run(&device);
            Ok(())
        })
    };
    libtest_mimic::run(&Arguments::from_args(), tests.map(test).into()).exit_code()
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_locus"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A server, and where it serves; killed when dropped.
struct Served(Child, String);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.kill().expect("it serves until now");
        self.0.wait().expect("it ends");
    }
}

fn serve(device: &str) -> Served {
    let listen = format!("rdma://{device}:0");
    let mut child =
        command(&["serve", "--memory", "64MiB", "--listen", &listen]).spawn().expect("the command runs");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let address = lines
        .find_map(|line| Some(line.ok()?.trim().strip_prefix("address")?.trim().to_owned()))
        .expect("it says where it serves");
    // What else it says must not be in its way.
    std::thread::spawn(move || lines.count());
    Served(child, address)
}

fn measured(device: &str) {
    let (server, directory) = (serve(device), tempfile::tempdir().unwrap());
    let file = directory.path().join("softroce.toml");
    let file = file.to_str().unwrap();
    let arguments = ["sim", "measure", &server.1, "--output", file, "--milliseconds", "100"];
    let output = run(&arguments);
    let said = text(&output.stdout);
    println!("{said}{}", text(&output.stderr));
    // An emulated processor is a noisy one: some may be off, which is said.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{:?}", output.status);
    let off = said.lines().filter(|line| line.trim_end().ends_with("OFF")).count();
    assert_eq!(output.status.code() == Some(1), off > 0, "{off} are off");
    let preset = Preset::find(file).expect("what was written can be read");
    assert_eq!(preset.name, "softroce");
    assert_eq!(preset.measurements.len(), plan().len());
    for (measurement, planned) in preset.measurements.iter().zip(plan()) {
        assert_eq!(measurement.what, planned.what);
        assert!(said.contains(&measurement.what), "no {:?} in the table", measurement.what);
    }
    let (from, mtu) = (&preset.description, format!("MTU {}", preset.machine.link.mtu_bytes));
    assert!(from.contains(&server.1) && from.contains("GID") && from.ends_with(&mtu), "{from}");
    let fitted_to = preset.measurements.iter().filter(|one| one.used == Use::Fitted).count();
    assert!((1..fitted_to).contains(&preset.fitted.len()), "{:?}", preset.fitted);
    // The numbers are those of software: posting alone takes longer than on any NIC of a preset.
    assert!(preset.machine.processor.post_ns.ns() > 1000.0, "{:?}", preset.machine.processor);
    // How near the model comes depends on how quiet the machine was; it is far nearer than where the fit began.
    let (fitted, before) = (error(&preset, &preset), error(&preset, &Preset::find("apt").unwrap()));
    println!("off by e to the power of {fitted}, and apt by {before}");
    assert!(fitted < 1.5 && before > 3.0 * fitted, "e to the power of {fitted} off, and apt of {before}");
    simulates(file);
    // A preset that is there is left alone.
    let again = run(&arguments);
    assert_eq!(again.status.code(), Some(3));
    assert!(text(&again.stderr).contains("is there already"), "{}", text(&again.stderr));
}

/// The median of how far the machine of one preset is off the measurements of another, as a logarithm.
fn error(measured: &Preset, machine: &Preset) -> f64 {
    let preset = Preset { machine: machine.machine.clone(), ..measured.clone() };
    let comparisons = compare(&preset, &|_| {}).expect("its worlds end");
    let mut errors: Vec<f64> = comparisons.iter().map(|one| (1.0 + one.error).ln().abs()).collect();
    errors.sort_by(f64::total_cmp);
    errors[errors.len() / 2]
}

/// Simulates with a preset.
fn simulates(file: &str) {
    let calibrated = run(&["sim", "calibrate", file]);
    let row = "READ, 16 B, one at a time";
    assert!(text(&calibrated.stdout).contains(row), "{}", text(&calibrated.stderr));
    let preset = Preset::find(file).unwrap();
    let read = compare(&preset, &|_| {}).unwrap().swap_remove(0);
    assert_eq!(read.measurement.what, row);
    let json = format!("{file}.json");
    let simulated = run(&[
        "sim",
        "bench",
        "--preset",
        file,
        "--design",
        "pilaf",
        "--records",
        "1000",
        "--client-hosts",
        "1",
        "--clients",
        "1",
        "--window",
        "1",
        "--milliseconds",
        "50",
        "--json",
        &json,
    ]);
    assert_eq!(simulated.status.code(), Some(0), "{}", text(&simulated.stderr));
    let rows: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let get_us = rows[0]["latency_ns"]["p50"].as_f64().unwrap() / 1000.0;
    // A get is two READs or three, one after the other.
    let in_reads = get_us / read.modelled;
    assert!((1.5..4.0).contains(&in_reads), "a get in {get_us} us, a READ in {}", read.modelled);
}

fn interrupted(device: &str) {
    let (server, directory) = (serve(device), tempfile::tempdir().unwrap());
    let file = directory.path().join("never.toml");
    let arguments =
        ["sim", "measure", &server.1, "--output", file.to_str().unwrap(), "--milliseconds", "60000"];
    let mut child = command(&arguments).spawn().expect("the command runs");
    // It measures once the server knows of its queue pairs; that takes a while, and any moment will do.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(child.try_wait().unwrap(), None, "it measures for minutes");
    let process = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(is_empty(directory.path()), "something was left");
    // The server goes on.
    let put = run(&["put", "--connect", &server.1, "key", "value"]);
    assert!(put.status.success(), "{}", text(&put.stderr));
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

/// What `locus info` finds from outside and in this machine's rules, and what a client says.
fn firewalled(device: &str) {
    let server = serve(device);
    let (_, port) = server.1.rsplit_once(':').expect("a port");
    let firewall = Firewall::drops(port.parse().unwrap(), false);
    let said = text(&run(&["info", &server.1]).stdout);
    let outside = format!("no answer\n wrong: a firewall drops TCP port {port}");
    let rule = format!("it may stop port {port}: tcp dport {port} drop");
    let flat = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(&outside.replace('\n', "")) && flat.contains(&rule), "{said}");
    let get = run(&["get", "--connect", &server.1, "key"]);
    let error = text(&get.stderr);
    let place = server.1.trim_start_matches("rdma://");
    assert!(
        !get.status.success() && error.contains(place) && error.contains("no firewall drops the port"),
        "{error}"
    );
    drop(firewall);
    let put = run(&["put", "--connect", &server.1, "key", "value"]);
    assert!(put.status.success(), "{}", text(&put.stderr));
    let said = text(&run(&["info", &server.1]).stdout);
    assert!(said.contains("a server answers") && !said.contains("it may stop"), "{said}");
}

fn taken_away(device: &str) {
    let interface = Interface::of(device);
    let mut server = serve(device);
    let mut said = BufReader::new(server.0.stderr.take().expect("piped")).lines();
    let put = |value: &str| run(&["put", "--connect", &server.1, "key", value]);
    assert!(put("before").status.success());
    let mut removal = Removal::begin();
    let line = said.next().expect("it says so").unwrap();
    println!("{line}");
    assert!(line.starts_with("locus: no clients for now: the RDMA device rxe0 was taken away"), "{line}");
    while !removal.is_done() {
        std::thread::yield_now();
    }
    assert!(text(&put("meanwhile").stderr).contains("no RDMA device"));
    removal.undo(&interface);
    assert_eq!(said.next().expect("it says so").unwrap(), "locus: clients are served again");
    let get = run(&["get", "--connect", &server.1, "key"]);
    assert_eq!(text(&get.stdout).trim_end(), "before", "{}", text(&get.stderr));
    assert!(put("after").status.success());
}
