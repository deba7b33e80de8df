//! Measures what the harness itself costs per operation: `cargo run --release -p locus-bench --example harness`.

use locus_bench::clock::Clock;
use locus_bench::{BenchOptions, harness_ns_per_operation};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = Clock::new();
    for latency_every in [1, 16] {
        let options = BenchOptions { latency_every, ..BenchOptions::default() };
        let costs = (0..9).map(|_| harness_ns_per_operation(&options, &clock));
        let mut costs = costs.collect::<Result<Vec<_>, _>>()?;
        costs.sort_by(f64::total_cmp);
        println!(
            "latency of one operation in {latency_every}: {:.1} ns, at least {:.1} ns",
            costs[4], costs[0]
        );
    }
    Ok(())
}
