//! The peers as a benchmark uses them: started, filled, measured with every value verified, and gone afterwards.

use locus_bench::{BenchOptions, PeerKind, Report, Workload, run};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn options(peers: &[PeerKind]) -> BenchOptions {
    BenchOptions {
        workloads: vec![Workload::A, Workload::D, Workload::F, Workload::W],
        records: 2000,
        value_bytes: 100,
        clients: 2,
        windows: vec![1, 8],
        seconds: 0.1,
        warmup_seconds: 0.05,
        verify: true,
        peers: peers.to_vec(),
        reader_program: Some(PathBuf::from(env!("CARGO_BIN_EXE_locus-bench-reader"))),
        ..BenchOptions::default()
    }
}

fn report(options: &BenchOptions) -> Report {
    let starters: Vec<_> = options.peers.iter().map(|peer| peer.starter()).collect();
    run(options, &starters).expect("the options are good")
}

fn assert_measured(report: &Report, rows: usize) {
    assert!(report.is_complete(), "{report}");
    assert_eq!(report.rows.len(), rows, "{report}");
    for row in &report.rows {
        assert!(row.operations > 0.0 && row.latency_ns.p50 > 0.0, "{report}");
    }
}

#[test]
fn memcached_serves_every_mix_verified_over_both_sockets() {
    assert_measured(&report(&options(&[PeerKind::Memcached, PeerKind::MemcachedUnix])), 2 * 4 * 2);
}

#[test]
fn redis_serves_every_mix_verified_over_both_sockets() {
    let report = report(&options(&[PeerKind::Redis, PeerKind::RedisUnix]));
    assert_measured(&report, 2 * 4 * 2);
    assert!(report.rows.iter().all(|row| row.server_cpu_ns_per_op.is_some()), "{report}");
}

#[test]
fn lmdb_is_measured_by_a_second_process_and_has_no_window() {
    let report = report(&options(&[PeerKind::Lmdb]));
    assert_measured(&report, 4);
    assert!(report.rows.iter().all(|row| row.window == 1 && row.server_cpu_ns_per_op.is_none()), "{report}");
}

#[test]
fn values_of_half_a_mebibyte_fit_every_peer() {
    let large = BenchOptions {
        workloads: vec![Workload::A],
        records: 50,
        value_bytes: 512 << 10,
        clients: 1,
        ..options(&PeerKind::ALL)
    };
    assert_measured(&report(&large), 4 * 2 + 1);
}

#[test]
fn a_reader_that_cannot_read_makes_a_row_that_says_so() {
    let options = BenchOptions { reader_program: Some("/bin/true".into()), ..options(&[PeerKind::Lmdb]) };
    let report = report(&options);
    assert!(!report.is_complete());
    let failure = report.rows[0].failure.as_deref().unwrap_or_default();
    assert!(failure.contains("/bin/true") && failure.contains("become_reader_if_asked"), "{failure}");
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let open = BenchOptions {
        workloads: vec![Workload::B],
        rate: Some(500.0),
        seconds: 1.0,
        windows: vec![4],
        ..options(&[PeerKind::RedisUnix])
    };
    let report = report(&open);
    assert!(report.is_complete(), "{report}");
    // No more than are due can be done; how many fewer depends on the machine.
    let operations = report.rows[0].operations;
    assert!(operations > 0.0 && operations <= 501.0, "{operations}");
}

/// Says that this process is to benchmark until it is ended.
const VICTIM: &str = "LOCUS_BENCH_TEST_VICTIM";

/// The processes that `process` has started.
fn children_of(process: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let texts =
        threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    texts
        .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let from = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(from.elapsed() < Duration::from_secs(30), "{what} did not happen within 30 s");
        std::thread::yield_now();
    }
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_benchmark_told_to_end_takes_its_servers_and_their_directories_with_it() {
    if std::env::var_os(VICTIM).is_some() {
        report(&BenchOptions { seconds: 600.0, ..options(&[PeerKind::RedisUnix, PeerKind::Memcached]) });
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_benchmark_told_to_end_takes_its_servers_and_their_directories_with_it"]);
    command.env(VICTIM, "1").env("TMPDIR", place.path()).stdout(Stdio::null());
    let mut victim = Ended(command.spawn().unwrap());
    let entries = || std::fs::read_dir(place.path()).unwrap().count();
    let servers = eventually("the start of two servers", || {
        let servers = children_of(victim.0.id());
        (servers.len() == 2 && entries() == 2).then_some(servers)
    });
    let pid = nix::unistd::Pid::from_raw(victim.0.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let status = eventually("the end of the benchmark", || victim.0.try_wait().unwrap());
    assert!(!status.success());
    for server in servers {
        eventually("the end of a server", || (!is_alive(server)).then_some(()));
    }
    assert_eq!(entries(), 0, "private directories are left");
}

/// Whether the process runs; one that has ended may wait to be reaped by whoever inherited it.
fn is_alive(process: u32) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"));
    status
        .is_ok_and(|text| !text.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}
