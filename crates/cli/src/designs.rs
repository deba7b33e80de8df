//! `locus designs`: the table of designs.

use crate::{Outcome, output};
use comfy_table::{Table, presets::UTF8_HORIZONTAL_ONLY};
use locus::DESIGNS;
use std::fmt::Write;

/// Prints the table.
pub fn run() -> anyhow::Result<Outcome> {
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY);
    table.set_header(["design", "index", "reads run at", "writes run at", "request → reply", "source"]);
    for design in DESIGNS {
        table.add_row([
            design.name.to_owned(),
            design.index.to_string(),
            design.reads.to_string(),
            design.writes.to_string(),
            format!("{} → {}", design.request, design.reply),
            design.source.to_owned(),
        ]);
    }
    let mut text = format!("{table}\n\n");
    for design in DESIGNS {
        writeln!(text, "{}: {}", design.name, design.summary)?;
    }
    text.push_str("\nServe one with `locus serve --design NAME`.\n");
    output::print(&text)?;
    Ok(Outcome::Done)
}
