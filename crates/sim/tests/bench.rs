//! Simulated clusters: the same every time, limited by what limits them, and refused where they make no sense.

use locus_bench::{Distribution, Workload};
use locus_fabric::sim::Steps;
use locus_sim::Preset;
use locus_sim::bench::{Bottleneck, ClusterBench, ClusterRow, run, throughput_against_latency};
use locus_store::{DESIGNS, Design, Index, Locus};
use std::time::Duration;

fn cluster(design: &str) -> ClusterBench {
    let steps = Steps { request_ns: 100.0, lookup_ns: 100.0, ..Steps::default() };
    ClusterBench {
        preset: Preset::find("apt").unwrap(),
        steps,
        design: Design::find(design).unwrap(),
        servers: 1,
        server_cores: 1,
        client_hosts: 2,
        clients: 8,
        window: 4,
        workload: Workload::C,
        distribution: Distribution::Uniform,
        records: 500,
        key_bytes: 16,
        value_bytes: 32,
        warmup: Duration::from_micros(100),
        measured: Duration::from_micros(500),
        seed: 1,
    }
}

fn measured(cluster: &ClusterBench) -> ClusterRow {
    let row = run(cluster).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(row.errors, 0);
    row
}

#[test]
fn a_cluster_does_the_same_every_time() {
    let cluster = ClusterBench { workload: Workload::A, ..cluster("pilaf") };
    assert_eq!(measured(&cluster), measured(&cluster));
}

#[test]
fn gets_at_clients_take_no_processor_of_the_server_and_scale_with_clients() {
    // Not so many that the server's NIC is the limit.
    let few = measured(&ClusterBench { clients: 2, ..cluster("pilaf") });
    let many = measured(&ClusterBench { clients: 4, ..cluster("pilaf") });
    assert_eq!(few.server_cpu_ns_per_op, 0.0);
    // A row or two, and the record: where the tables are is known.
    assert!((2.0..2.4).contains(&few.reads_per_get), "{}", few.reads_per_get);
    let ratio = many.ops_per_second / few.ops_per_second;
    assert!((1.9..2.1).contains(&ratio), "{ratio}");
}

#[test]
fn gets_at_the_server_are_limited_by_its_cores() {
    let one = measured(&cluster("pilaf-vo"));
    assert_eq!(one.bottleneck, Bottleneck::Server("cores".into()));
    assert_eq!(one.reads_per_get, 0.0);
    // A core that is always busy does as many operations as fit into its time.
    let busy = one.server_cpu_ns_per_op * one.ops_per_second / 1e9;
    assert!((0.95..1.05).contains(&busy), "{busy}");
    let two = measured(&ClusterBench { server_cores: 2, ..cluster("pilaf-vo") });
    assert!(two.ops_per_second > 1.5 * one.ops_per_second, "{two:?}");
}

#[test]
fn every_design_reports_whatever_its_index_takes_of_memory() {
    for design in DESIGNS {
        let cluster =
            ClusterBench { workload: Workload::A, server_cores: 3, clients: 4, ..cluster(design.name) };
        let row = measured(&cluster);
        println!("{} {}", row.design, row.ops_per_second);
        // One client with one operation under way would do a fifth of that.
        assert!(row.ops_per_second > 1e6 && row.misses == 0, "{row:?}");
        let reads = match (design.index, design.reads) {
            (_, Locus::Server) => 0.0..0.001,
            (Index::HopscotchInline, _) => 1.0..1.05,
            _ => 2.0..2.5,
        };
        assert!(reads.contains(&row.reads_per_get), "{row:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let good = || cluster("pilaf");
    for (bad, name) in [
        (ClusterBench { servers: 0, ..good() }, "--servers"),
        (ClusterBench { client_hosts: 5000, ..good() }, "--client-hosts"),
        (ClusterBench { clients: 0, ..good() }, "--clients"),
        (ClusterBench { window: 99, ..good() }, "--window"),
        (ClusterBench { workload: Workload::D, ..good() }, "inserts"),
        (ClusterBench { records: 0, ..good() }, "--records"),
    ] {
        let error = run(&bad).unwrap_err().to_string();
        assert!(error.contains(name), "{name} is not in {error:?}");
    }
}

#[test]
fn a_sweep_is_drawn() {
    let rows = [1, 2].map(|clients| measured(&ClusterBench { clients, ..cluster("pilaf-vo") }));
    let drawing = throughput_against_latency(&rows);
    assert!(drawing.starts_with("<svg") && drawing.contains("pilaf-vo, workload c"), "{drawing}");
}
