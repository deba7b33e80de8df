//! `locus stats`: what servers have counted.

use crate::{
    Outcome,
    connect::Connect,
    output::{self, aligned},
    size,
};
use clap::Args;
use locus::Statistics;

/// Whose statistics.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  locus stats
  locus stats --json | jq '.[0].records'")]
pub struct StatsArgs {
    #[command(flatten)]
    connect: Connect,
    /// A list with an object for each server
    #[arg(long)]
    json: bool,
}

/// Asks and prints.
pub fn run(arguments: &StatsArgs) -> anyhow::Result<Outcome> {
    let statistics = arguments.connect.table(1)?.stats()?;
    let text = if arguments.json {
        serde_json::to_string_pretty(&statistics.iter().map(json).collect::<Vec<_>>())? + "\n"
    } else {
        let servers = arguments.connect.addresses();
        servers.iter().zip(&statistics).map(|(address, of_it)| describe(address, of_it)).collect()
    };
    output::print(&text)?;
    Ok(Outcome::Done)
}

/// The counters as an object, as they are meant, in place of a list of pairs.
fn json(statistics: &Statistics) -> serde_json::Value {
    let mut value = serde_json::json!(statistics);
    let counters = statistics.counters.iter().map(|(name, value)| (name.clone(), (*value).into()));
    value["counters"] = serde_json::Value::Object(counters.collect());
    value
}

fn describe(address: &str, statistics: &Statistics) -> String {
    let fill = statistics.records as f64 / statistics.rows.max(1) as f64;
    let rows = vec![
        ("design", statistics.design.clone()),
        ("process", statistics.process.to_string()),
        (
            "clients",
            format!("{}; {} dropped for what they sent", statistics.clients, statistics.clients_dropped),
        ),
        (
            "records",
            format!(
                "{} in tables of {} rows ({:.1}% full)",
                statistics.records,
                statistics.rows,
                fill * 100.0
            ),
        ),
        (
            "memory",
            format!(
                "{} of {} reserved, on {}",
                size::show(statistics.region_bytes),
                size::show(statistics.memory_limit_bytes),
                statistics.pages
            ),
        ),
        ("tables", size::show(statistics.table_bytes)),
        (
            "extents",
            format!(
                "{} of records in {}",
                size::show(statistics.extent_bytes),
                size::show(statistics.extent_bytes_reserved)
            ),
        ),
        ("CPU time", format!("{:.3} s", statistics.cpu_ns as f64 / 1e9)),
    ];
    let counters = statistics.counters.iter().map(|(name, value)| (name.as_str(), value.to_string()));
    format!("{address}\n{} counted by its cores\n{}", aligned(rows), aligned(counters))
}
