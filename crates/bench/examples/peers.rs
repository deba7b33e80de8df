//! Benchmarks memcached, Redis and LMDB by themselves: `cargo run --release -p locus-bench --example peers -- [WINDOW...]`.

use locus_bench::{BenchOptions, PeerKind, run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    locus_bench::become_reader_if_asked();
    let windows: Vec<usize> =
        std::env::args().skip(1).map(|window| window.parse()).collect::<Result<_, _>>()?;
    let options = BenchOptions {
        windows: if windows.is_empty() { vec![1, 16] } else { windows },
        seconds: 1.0,
        runs: 5,
        peers: PeerKind::ALL.to_vec(),
        ..BenchOptions::default()
    };
    let starters: Vec<_> = options.peers.iter().map(|peer| peer.starter()).collect();
    let report = run(&options, &starters)?;
    print!("{report}");
    if report.is_complete() { Ok(()) } else { Err("not everything could be measured".into()) }
}
