//! `locus bench --footprint`: what a record takes besides its key and its value.

use super::system::{AnyNic, Place, Running};
use anyhow::{Context, bail};
use comfy_table::{CellAlignment, Table, presets};
use locus_bench::{BenchOptions, circumstances::Circumstances, keys::Shape};
use locus_fabric::shm::ShmNic;
use locus_store::Design;

/// The lengths of values that are measured, in bytes.
const VALUE_BYTES: [usize; 8] = [32, 64, 128, 256, 512, 1024, 2048, 4096];
/// How full the tables are when it is measured.
const FILL: f64 = 0.75;
/// How many records are put between two looks at how full they are.
const STEP: u64 = 10_000;

/// Puts records until the tables are as full as that, for each length, each with a server of its own.
pub(super) fn run(design: &'static Design, options: &BenchOptions, place: &Place) -> anyhow::Result<()> {
    let AnyNic::Shm(nic) = place.nic()? else {
        bail!("a footprint is of empty stores, which are started for it: leave --fabric away");
    };
    let parameters = format!(
        "memory of {} at a fill of {FILL}, keys of {} bytes, from {} records on",
        design.name, options.key_bytes, options.records
    );
    let here = Circumstances::here(parameters.clone(), 0.0);
    println!("{}, commit {}: {parameters}", here.date, here.commit);
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["value", "records", "fill", "tables", "extents", "beyond key and value", "less 12.5%"]);
    for value_bytes in VALUE_BYTES {
        table.add_row(measure(&nic, design, options, value_bytes, place)?);
    }
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    println!("{table}\nbytes per record; the last column is without an eighth of key and value");
    Ok(())
}

fn measure(
    nic: &ShmNic,
    design: &'static Design,
    options: &BenchOptions,
    value_bytes: usize,
    place: &Place,
) -> anyhow::Result<Vec<String>> {
    // Tables double, so that the fill passes the mark before there are twice as many records.
    let most = 2 * options.records;
    let options = BenchOptions { value_bytes, records: most, ..options.clone() };
    let running = Running::start(nic.clone(), design, &options, place)?;
    let client = running.client()?;
    let shape = Shape::new(options.key_bytes, value_bytes, most)?;
    let (mut key, mut value) = (shape.new_key(), vec![0; value_bytes]);
    for index in 0..most {
        shape.write_key(&mut key, index);
        shape.write_value(&mut value, index, 1);
        client.put_blocking(&key, &value).with_context(|| format!("putting record {index}"))?;
        if (index + 1).is_multiple_of(STEP) && index + 1 >= most / 2 {
            let statistics = client.statistics()?;
            let sum = |of: fn(&locus_store::Statistics) -> u64| statistics.iter().map(of).sum::<u64>() as f64;
            let (records, rows) = (sum(|server| server.records), sum(|server| server.rows));
            if records / rows >= FILL {
                let tables = sum(|server| server.table_bytes) / records;
                let extents = sum(|server| server.extent_bytes_reserved) / records;
                let own = (options.key_bytes + value_bytes) as f64;
                let beyond = tables + extents - own;
                let figures =
                    [tables, extents, beyond, beyond - own / 8.0].map(|bytes| format!("{bytes:.1}"));
                let mut row =
                    vec![value_bytes.to_string(), records.to_string(), format!("{:.3}", records / rows)];
                row.extend(figures);
                return Ok(row);
            }
        }
    }
    bail!("the tables were never {FILL} full between {} and {most} records", most / 2)
}
