//! The peers as a benchmark uses them: started, filled, measured with every value verified, and gone afterwards.

use locus_bench::{BenchOptions, PeerKind, Report, Workload, run};
use std::path::PathBuf;

fn options(peers: &[PeerKind]) -> BenchOptions {
    BenchOptions {
        workloads: vec![Workload::A, Workload::D, Workload::F],
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
    assert_measured(&report(&options(&[PeerKind::Memcached, PeerKind::MemcachedUnix])), 2 * 3 * 2);
}

#[test]
fn redis_serves_every_mix_verified_over_both_sockets() {
    let report = report(&options(&[PeerKind::Redis, PeerKind::RedisUnix]));
    assert_measured(&report, 2 * 3 * 2);
    assert!(report.rows.iter().all(|row| row.server_cpu_ns_per_op.is_some()), "{report}");
}

#[test]
fn lmdb_is_measured_by_a_second_process_and_has_no_window() {
    let report = report(&options(&[PeerKind::Lmdb]));
    assert_measured(&report, 3);
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
