//! Benchmarks memcached, Redis and LMDB by themselves:
//! `cargo run --release -p locus-bench --example peers -- [WORKLOADS [WINDOWS [PEERS]]]`, each separated by commas.

use locus_bench::{BenchError, BenchOptions, PeerKind, Workload, run};
use std::str::FromStr;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    locus_bench::become_reader_if_asked();
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or(default.into());
    let options = BenchOptions {
        workloads: list::<Workload>(&next("a,b,c"))?,
        windows: next("1,16").split(',').map(str::parse).collect::<Result<_, _>>()?,
        peers: list::<PeerKind>(&next("memcached,memcached-unix,redis,redis-unix,lmdb"))?,
        seconds: 1.0,
        runs: 5,
        ..BenchOptions::default()
    };
    let starters: Vec<_> = options.peers.iter().map(|peer| peer.starter()).collect();
    let report = run(&options, &starters)?;
    print!("{report}");
    if report.is_complete() { Ok(()) } else { Err("not everything could be measured".into()) }
}

fn list<T: FromStr<Err = BenchError>>(names: &str) -> Result<Vec<T>, BenchError> {
    names.split(',').map(str::parse).collect()
}
