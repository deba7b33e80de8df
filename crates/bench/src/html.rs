//! The report as a page: one file that asks for nothing else, readable on a phone, light or dark.

use crate::chart::{self, Axis, Bar, BarChart, Line, LineChart, Point, Scale, escape};
use crate::circumstances::Circumstances;
use crate::figures::{operations, time};
use crate::report::{Report, Row};

/// Charts are as wide as a phone, and stand beside each other where there is more room.
const WIDTH: f64 = 380.0;
/// More lines in a chart than these could not be told apart: the others get further charts with the same axes.
const LINES_MAX: usize = 6;

const STYLE: &str = "
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 84rem; color: var(--ink); background: var(--ground);
  font: 16px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.25rem; padding-top: 0.75rem; border-top: 1px solid var(--grid); }
h3 { font-size: 1.05rem; margin: 1.5rem 0 0.5rem; }
p, li { max-width: 46rem; } p { margin: 0.25rem 0; } .faint { color: var(--faint); font-size: 0.9rem; }
a { color: var(--c0); }
.charts { columns: 22rem; column-gap: 1rem; }
figure { margin: 0 0 1rem; padding: 0.75rem; background: var(--panel); border-radius: 8px; break-inside: avoid; }
.scroll { overflow-x: auto; margin-top: 1rem; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: 0.25rem 0.6rem; text-align: right; border-bottom: 1px solid var(--grid); }
th { font-weight: 600; color: var(--faint); }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--ground); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.25rem 1rem; font-size: 0.9rem; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 34rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 0.5rem; } }
.wrong { border-left: 4px solid var(--c1); padding-left: 0.75rem; overflow-wrap: anywhere; }
";

impl Report {
    /// The report as a page of HTML. `command` is the command line that made it. It shows all rows, and of the circumstances
    /// everything but the machine's name.
    pub fn to_html(&self, command: &str) -> String {
        let Circumstances { date, cpu, .. } = &self.circumstances;
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <meta name=\"color-scheme\" content=\"light dark\"/>\n\
             <title>Locus benchmark, {date}</title>\n<style>{}{STYLE}</style>\n</head>\n<body>\n",
            chart::STYLE,
            date = escape(date),
        );
        page +=
            &format!("<h1>Locus benchmark</h1>\n<p class=\"faint\">{}, {}</p>\n", escape(date), escape(cpu));
        let groups: Vec<_> = self.rows.chunk_by(|one, other| setting(one) == setting(other)).collect();
        page += &contents(&groups);
        for (number, group) in groups.iter().enumerate() {
            page += &self.section(number, group);
        }
        page += &circumstances(&self.circumstances, command);
        page + "</body>\n</html>\n"
    }

    /// All of a workload with a window.
    fn section(&self, number: usize, group: &[Row]) -> String {
        let mut section = format!("<section id=\"s{number}\">\n<h2>{}</h2>\n", escape(&heading(group)));
        for rows in group.chunk_by(|one, other| one.value_bytes == other.value_bytes) {
            section += &format!("<h3>Values of {} bytes</h3>\n", rows[0].value_bytes);
            let names: Vec<_> = rows.iter().map(|row| self.name(row)).collect();
            let measured: Vec<_> = names.iter().zip(rows).filter(|(_, row)| row.runs > 0).collect();
            if !measured.is_empty() {
                section += &format!("<div class=\"charts\">\n{}</div>\n", charts(&measured));
            }
            for remark in rows.iter().flat_map(Row::remarks) {
                section += &format!("<p class=\"wrong\">{}</p>\n", escape(&remark));
            }
            section += &table(&names, rows);
        }
        section + "</section>\n"
    }

    /// What a row is called: by its fabric too, if there are several.
    fn name(&self, row: &Row) -> String {
        let mut name = row.design.clone();
        if self.rows.iter().any(|other| other.fabric != row.fabric) {
            name += &format!(" ({})", row.fabric);
        }
        if row.window != row.window_asked {
            name += &format!(", window {}", row.window);
        }
        name
    }
}

/// What rows have in common that are compared.
fn setting(row: &Row) -> (String, usize) {
    (row.workload.to_string(), row.window_asked)
}

fn heading(group: &[Row]) -> String {
    let row = &group[0];
    format!(
        "Workload {} ({}), {}, window {}",
        row.workload,
        row.workload.summary(),
        row.distribution,
        row.window_asked
    )
}

/// Links to the sections, if there are several.
fn contents(groups: &[&[Row]]) -> String {
    if groups.len() < 2 {
        return String::new();
    }
    let link = |(number, group): (usize, &&[Row])| {
        format!("<li><a href=\"#s{number}\">{}</a></li>\n", escape(&heading(group)))
    };
    let links: String = groups.iter().enumerate().map(link).collect();
    format!("<ul>\n{links}<li><a href=\"#circumstances\">Circumstances</a></li>\n</ul>\n")
}

type Named<'a> = (&'a String, &'a Row);

fn charts(rows: &[Named<'_>]) -> String {
    let throughput = bars("Operations per second", &[], rows, |row| {
        vec![Some((row.ops_per_second, operations(row.ops_per_second)))]
    });
    let cpu = bars("CPU time per operation", &["server", "clients"], rows, |row| {
        let of = |ns: Option<f64>| ns.map(|ns| (ns, time(ns)));
        vec![of(row.server_cpu_ns_per_op), of(row.client_cpu_ns_per_op)]
    });
    let count = |count: Option<f64>| count.map(|count| (count, format!("{count:.2}")));
    let mut figures = vec![throughput];
    figures.extend(latencies(rows));
    figures.push(cpu);
    if rows.iter().any(|(_, row)| row.reads_per_get.is_some()) {
        figures.push(bars("READs per get", &[], rows, |row| vec![count(row.reads_per_get)]));
    }
    if rows.iter().any(|(_, row)| row.messages_per_op.is_some()) {
        figures.push(bars("Requests and replies per operation", &[], rows, |row| {
            vec![count(row.messages_per_op)]
        }));
    }
    figures.iter().map(|figure| format!("<figure>\n{figure}\n</figure>\n")).collect()
}

fn bars(
    title: &str,
    parts: &[&str],
    rows: &[Named<'_>],
    values: impl Fn(&Row) -> Vec<Option<(f64, String)>>,
) -> String {
    let bar = |&(name, row): &Named<'_>| Bar { name: name.clone(), values: values(row) };
    let parts = parts.iter().map(ToString::to_string).collect();
    BarChart { title: title.into(), parts, bars: rows.iter().map(bar).collect() }.draw(WIDTH).inline()
}

/// The percentiles that are known, as lines.
fn latencies(rows: &[Named<'_>]) -> Vec<String> {
    const NAMES: [&str; 5] = ["50%", "90%", "99%", "99.9%", "longest"];
    let values = |row: &Row| {
        let of = &row.latency_ns;
        [of.p50, of.p90, of.p99, of.p999, of.max]
    };
    let scale = Scale::log(rows.iter().flat_map(|(_, row)| values(row)));
    let line = |&(name, row): &Named<'_>| Line {
        name: name.clone(),
        points: values(row)
            .into_iter()
            .enumerate()
            .map(|(x, y)| Point { x: x as f64, y, label: None })
            .collect(),
    };
    let pieces = rows.len().div_ceil(LINES_MAX);
    let each = rows.len().div_ceil(pieces);
    let piece = |(number, rows): (usize, &[Named<'_>])| {
        let title = match pieces {
            1 => "Latency by percentile".to_owned(),
            _ => format!("Latency by percentile, {} to {}", number * each + 1, number * each + rows.len()),
        };
        let named = Scale::Named(NAMES.map(String::from).to_vec());
        let x = Axis {
            title: "share of operations that took no longer".into(),
            scale: named,
            write: |_| String::new(),
        };
        let y = Axis { title: "time, logarithmic".into(), scale: scale.clone(), write: time_in_short };
        LineChart { title, x, y, lines: rows.iter().map(line).collect() }.draw(WIDTH).inline()
    };
    rows.chunks(each).enumerate().map(piece).collect()
}

/// For axes, whose values are 1, 2 or 5 times a power of 10.
fn time_in_short(ns: f64) -> String {
    match ns {
        n if n < 999.0 => format!("{n:.0} ns"),
        n if n < 999e3 => format!("{:.0} us", n / 1e3),
        n if n < 999e6 => format!("{:.0} ms", n / 1e6),
        n => format!("{:.0} s", n / 1e9),
    }
}

/// All figures of rows.
fn table(names: &[String], rows: &[Row]) -> String {
    const HEADER: [&str; 15] = [
        "design",
        "ops/s",
        "slowest and fastest run",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "longest",
        "server CPU/op",
        "server when idle",
        "client CPU/op",
        "READs/get",
        "messages/op",
        "retries/op",
        "pages",
    ];
    let head: String = HEADER.iter().map(|name| format!("<th>{name}</th>")).collect();
    let line = |(name, row): (&String, &Row)| {
        let cells: String =
            cells(name, row).iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let lines: String = names.iter().zip(rows).map(line).collect();
    format!(
        "<div class=\"scroll\">\n<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}</tbody>\n</table>\n</div>\n"
    )
}

fn cells(name: &str, row: &Row) -> Vec<String> {
    if row.runs == 0 {
        return vec![name.into(), "not measured".into()];
    }
    let of = &row.ops_per_second_of_runs;
    let spread = (of.iter().copied().fold(f64::MAX, f64::min), of.iter().copied().fold(0.0, f64::max));
    let latency = &row.latency_ns;
    let count = |count: Option<f64>| count.map_or("-".into(), |count| format!("{count:.2}"));
    vec![
        name.into(),
        operations(row.ops_per_second),
        if of.len() > 1 {
            format!("{} to {}", operations(spread.0), operations(spread.1))
        } else {
            "one run".into()
        },
        time(latency.p50),
        time(latency.p90),
        time(latency.p99),
        time(latency.p999),
        time(latency.max),
        row.server_cpu_ns_per_op.map_or("no server".into(), time),
        row.server_idle_cores.map_or("-".into(), |cores| format!("{:.1}% of a core", cores * 100.0)),
        row.client_cpu_ns_per_op.map_or("-".into(), time),
        count(row.reads_per_get),
        count(row.messages_per_op),
        row.retries_per_op.map_or("-".into(), |retries| format!("{retries:.5}")),
        row.pages.clone().unwrap_or_else(|| "-".into()),
    ]
}

/// Everything but the machine's name, which is nobody's business.
fn circumstances(circumstances: &Circumstances, command: &str) -> String {
    let Circumstances {
        version,
        commit,
        machine: _,
        cpu,
        cores,
        memory_bytes,
        kernel,
        huge_pages,
        date,
        harness_ns_per_op,
        cache_line_round_trip_ns: _,
        parameters,
    } = circumstances;
    let cores_apart =
        circumstances.cores_apart().unwrap_or_else(|| "how far apart they are could not be measured".into());
    let items = [
        ("Command", command.to_owned()),
        ("Parameters", parameters.clone()),
        ("Date", date.clone()),
        ("Locus", format!("version {version}, commit {commit}")),
        ("Processor", format!("{cpu}, {cores} cores")),
        ("Memory", format!("{:.1} GiB", *memory_bytes as f64 / f64::from(1 << 30))),
        ("Kernel", format!("Linux {kernel}")),
        ("Huge pages", huge_pages.clone()),
        ("Harness", format!("takes {harness_ns_per_op:.0} ns per operation, included in all figures")),
        ("Cores", cores_apart),
    ];
    let items: String =
        items.iter().map(|(name, text)| format!("<dt>{name}</dt><dd>{}</dd>\n", escape(text))).collect();
    format!(
        "<section id=\"circumstances\">\n<h2>Circumstances</h2>\n<dl>\n{items}</dl>\n\
         <p class=\"faint\">Figures of several runs are their medians. A server's CPU time is what it used beyond its share when \
         idle, and may come out slightly below nothing. Latencies begin when an operation does, or in an open loop when \
         it should have begun. Messages are requests and replies, as clients count them.</p>\n</section>\n"
    )
}

#[cfg(test)]
#[path = "html_tests.rs"]
mod tests;
