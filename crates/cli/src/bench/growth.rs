//! `locus bench --growth`: what operations take while the store grows under them.

use super::system::{AnyNic, Place, Running};
use anyhow::{Context, ensure};
use comfy_table::{CellAlignment, Table, presets};
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use locus_bench::{BenchOptions, circumstances::Circumstances, keys::Shape};
use locus_fabric::Nic;
use locus_store::{Client, Design};
use std::time::Instant;

/// How many records are there before it begins.
const FIRST: u64 = 1000;
/// Longer operations count as this long.
const LONGEST_NS: u64 = 60_000_000_000;
/// How many steps lie between two looks at the progress bar.
const STEP: u64 = 1 << 12;

/// Puts a new record, gets one of those that are there, and so on; measures each.
pub(super) fn run(design: &'static Design, options: &BenchOptions, place: &Place) -> anyhow::Result<()> {
    match place.nic()? {
        AnyNic::Shm(nic) => grow(nic, design, options, place),
        AnyNic::Verbs(nic) => grow(nic, design, options, place),
    }
}

fn grow<N: Nic>(
    nic: N,
    design: &'static Design,
    options: &BenchOptions,
    place: &Place,
) -> anyhow::Result<()> {
    ensure!(options.records > FIRST, "growth is from {FIRST} records to more: give --records");
    let running = Running::start(nic, design, options, place)?;
    let client = running.client()?;
    let shape = Shape::new(options.key_bytes, options.value_bytes, options.records)?;
    let parameters = format!(
        "growth of {} from {FIRST} to {} records, keys of {} and values of {} bytes, one client, window 1, half puts of new keys and half gets (uniform)",
        design.name, options.records, options.key_bytes, options.value_bytes
    );
    println!("{}", Circumstances::here(parameters, clock_ns()));

    let histogram = || Histogram::<u64>::new_with_bounds(1, LONGEST_NS, 3).expect("these bounds are allowed");
    let (mut puts, mut gets) = (histogram(), histogram());
    let (mut key, mut value) = (shape.new_key(), vec![0; shape.value_bytes()]);
    let style =
        ProgressStyle::with_template("{bar:32} {human_pos} of {human_len} records, {per_sec}, {eta} left")?;
    let bar = ProgressBar::new(options.records).with_style(style);
    let mut random = options.seed | 1;
    for index in 0..options.records {
        shape.write_key(&mut key, index);
        shape.write_value(&mut value, index, 1);
        let begun = Instant::now();
        client.put_blocking(&key, &value).with_context(|| format!("putting record {index}"))?;
        let put = begun.elapsed().as_nanos() as u64;
        // Marsaglia's xorshift: any spread will do.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        shape.write_key(&mut key, (random >> 11) % (index + 1));
        let begun = Instant::now();
        let found =
            client.get_blocking(&key, <[u8]>::len).with_context(|| format!("getting at record {index}"))?;
        let get = begun.elapsed().as_nanos() as u64;
        ensure!(found == Some(shape.value_bytes()), "a record that was put is not found at record {index}");
        if index >= FIRST {
            puts.saturating_record(put);
            gets.saturating_record(get);
        }
        if index.is_multiple_of(STEP) {
            bar.set_position(index);
        }
    }
    bar.finish_and_clear();
    println!("{}", latencies(&[("put", &puts), ("get", &gets)]));
    print_effort(&client)
}

/// What looking at the clock before and after an operation costs.
fn clock_ns() -> f64 {
    const LOOKS: u32 = 1 << 16;
    let begun = Instant::now();
    for _ in 0..LOOKS {
        std::hint::black_box(Instant::now().elapsed());
    }
    begun.elapsed().as_nanos() as f64 / f64::from(LOOKS)
}

fn latencies(rows: &[(&str, &Histogram<u64>)]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["", "operations", "p50 ns", "p99 ns", "p99.9 ns", "p99.99 ns", "longest ns"]);
    for (name, histogram) in rows {
        let mut row = vec![(*name).to_owned(), histogram.len().to_string()];
        row.extend([0.5, 0.99, 0.999, 0.9999].map(|share| histogram.value_at_quantile(share).to_string()));
        row.push(histogram.max().to_string());
        table.add_row(row);
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// That the store did grow.
fn print_effort<N: Nic>(client: &Client<N>) -> anyhow::Result<()> {
    let counters = client.counters();
    for server in client.statistics()? {
        let count = |name: &str| {
            server.counters.iter().find(|(other, _)| other == name).map_or(0, |(_, count)| *count)
        };
        println!(
            "the server grew {} tables and moved {} rows; the client read {} stale entries anew and asked the server {} times",
            count("growths"),
            count("rows_moved"),
            counters.stale_entries.get(),
            counters.fallbacks.get(),
        );
    }
    Ok(())
}
