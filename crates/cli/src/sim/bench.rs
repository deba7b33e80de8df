//! `locus sim bench`: what a design would do on a cluster, in virtual time.

use crate::Outcome;
use anyhow::{Context, bail};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use locus_bench::{Distribution, Workload};
use locus_fabric::sim::Steps;
use locus_sim::Preset;
use locus_sim::bench::{
    Bottleneck, ClusterBench, ClusterRow, run as run_cluster, throughput_against_latency,
};
use locus_store::{DESIGNS, Design};
use std::{path::PathBuf, time::Duration};

/// The cluster, and what is done with it.
#[derive(Args, Debug)]
#[command(
    after_help = "Times are virtual: what the model of processors, NICs and links says, not what this machine does.

Examples:
  locus sim bench --preset nome --servers 4 --client-hosts 8 --clients 64 --window 8
  locus sim bench --design pilaf,pilaf-vo --clients 1,2,4,8,16,32,64 --json rows.json --svg sweep.svg"
)]
pub struct BenchArgs {
    /// What the machines are: beaker, nome, susitna, apt, das5, brown, or a file (see docs/simulation.md)
    #[arg(long, default_value = "apt", value_name = "NAME|FILE")]
    preset: String,
    /// Designs, or `all`
    #[arg(long, value_delimiter = ',', default_value = "pilaf,pilaf-vo", value_name = "NAME")]
    design: Vec<String>,
    /// Servers, each on a host of its own
    #[arg(long, default_value_t = 1, value_name = "N")]
    servers: usize,
    /// Cores of each server
    #[arg(long, default_value_t = 1, value_name = "N")]
    server_cores: usize,
    /// Hosts that the clients share
    #[arg(long, default_value_t = 4, value_name = "N")]
    client_hosts: usize,
    /// Clients, each with a thread of its own; several numbers are simulated one after the other
    #[arg(long, value_delimiter = ',', default_value = "16", value_name = "N")]
    clients: Vec<usize>,
    /// Operations outstanding per client
    #[arg(long, default_value_t = 4, value_name = "N")]
    window: usize,
    /// YCSB workloads: a (50% gets), b (95%), c (100%), f (read, modify, write)
    #[arg(long, value_delimiter = ',', default_value = "c", value_name = "NAME")]
    workload: Vec<Workload>,
    /// zipfian or uniform
    #[arg(long, default_value = "uniform", value_name = "NAME")]
    distribution: Distribution,
    /// Records of all servers together
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    records: u64,
    /// Length of keys
    #[arg(long, default_value_t = 16, value_name = "N")]
    key_bytes: usize,
    /// Length of values
    #[arg(long, default_value_t = 32, value_name = "N")]
    value_bytes: usize,
    /// Virtual milliseconds measured, after a fifth as many of warm-up
    #[arg(long, default_value_t = 5.0, value_name = "MS", value_parser = milliseconds)]
    milliseconds: f64,
    /// Decides the operations drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw throughput against latency, a line per design and workload, to an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the rows to a file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The store's own steps, as `cargo run --release -p locus-sim --example steps` measured them on an AMD EPYC (Zen 4). The way of a
/// request and a reply through frames, sessions and slots is what remains of a core's time per get.
const STEPS: Steps = Steps {
    request_ns: 60.0,
    reply_ns: 40.0,
    hash_ns: 3.5,
    lookup_ns: 84.0,
    verify_ns: 10.0,
    change_ns: 224.0,
    hash_byte_ns: 0.094,
    checksum_byte_ns: 0.022,
    copy_byte_ns: 0.029,
};

fn milliseconds(text: &str) -> Result<f64, String> {
    let milliseconds = text.parse::<f64>().map_err(|_| format!("{text:?} is no number"))?;
    if (0.001..=60_000.0).contains(&milliseconds) {
        Ok(milliseconds)
    } else {
        Err("from a microsecond (0.001) to a minute (60000) of virtual time is possible".into())
    }
}

pub fn run(arguments: &BenchArgs) -> anyhow::Result<Outcome> {
    let clusters = clusters(arguments)?;
    for cluster in &clusters {
        cluster.check()?;
    }
    let bar = ProgressBar::new(clusters.len() as u64);
    let style = ProgressStyle::with_template("[{bar:40}] {pos} of {len} clusters  {elapsed}  {msg}");
    bar.set_style(style.context("a template that makes sense")?);
    let mut rows = Vec::new();
    for cluster in &clusters {
        bar.set_message(format!("{}, {} clients", cluster.design.name, cluster.clients));
        rows.push(run_cluster(cluster)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    println!("{}", table(&rows));
    if let Some(file) = &arguments.json {
        let json = serde_json::to_string_pretty(&rows)?;
        std::fs::write(file, json + "\n").with_context(|| format!("writing {}", file.display()))?;
    }
    if let Some(file) = &arguments.svg {
        std::fs::write(file, throughput_against_latency(&rows))
            .with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(Outcome::Done)
}

fn clusters(arguments: &BenchArgs) -> anyhow::Result<Vec<ClusterBench>> {
    let preset = Preset::find(&arguments.preset)?;
    let mut clusters = Vec::new();
    for &workload in &arguments.workload {
        for design in designs(&arguments.design)? {
            for &clients in &arguments.clients {
                clusters.push(ClusterBench {
                    preset: preset.clone(),
                    steps: STEPS,
                    design,
                    servers: arguments.servers,
                    server_cores: arguments.server_cores,
                    client_hosts: arguments.client_hosts,
                    clients,
                    window: arguments.window,
                    workload,
                    distribution: arguments.distribution,
                    records: arguments.records,
                    key_bytes: arguments.key_bytes,
                    value_bytes: arguments.value_bytes,
                    warmup: Duration::from_secs_f64(arguments.milliseconds / 5e3),
                    measured: Duration::from_secs_f64(arguments.milliseconds / 1e3),
                    seed: arguments.seed,
                });
            }
        }
    }
    Ok(clusters)
}

fn designs(names: &[String]) -> anyhow::Result<Vec<&'static Design>> {
    if names == ["all"] {
        return Ok(DESIGNS.iter().collect());
    }
    let find = |name: &String| match Design::find(name) {
        Some(design) => Ok(design),
        None => bail!("there is no design {name:?}: see locus designs"),
    };
    names.iter().map(find).collect()
}

fn table(rows: &[ClusterRow]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header([
        "workload",
        "design",
        "servers",
        "clients",
        "window",
        "ops/s",
        "p50",
        "p99",
        "server CPU/op",
        "READs/get",
        "busy",
        "limit",
    ]);
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for row in rows {
        // The busiest ones: the JSON has all.
        let mut busiest: Vec<&(String, f64)> = row.utilisation.iter().collect();
        busiest.sort_by(|one, other| other.1.total_cmp(&one.1));
        let busy: Vec<String> =
            busiest.iter().take(3).map(|(name, share)| format!("{name} {:.0}%", share * 100.0)).collect();
        let limit = match &row.bottleneck {
            Bottleneck::Server(name) => format!("server {name}"),
            Bottleneck::Clients => "clients".into(),
        };
        table.add_row([
            format!("{} {}", row.workload, row.distribution),
            row.design.clone(),
            row.servers.to_string(),
            row.clients.to_string(),
            row.window.to_string(),
            format!("{:.2} M", row.ops_per_second / 1e6),
            format!("{:.1} us", row.latency_ns.p50 / 1e3),
            format!("{:.1} us", row.latency_ns.p99 / 1e3),
            format!("{:.0} ns", row.server_cpu_ns_per_op),
            format!("{:.2}", row.reads_per_get),
            busy.join(", "),
            limit,
        ]);
    }
    table
}
