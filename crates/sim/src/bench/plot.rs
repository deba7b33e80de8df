//! Throughput against latency, as one drawing: a line per design and workload, a point per number of clients.

use super::row::ClusterRow;
use locus_bench::chart::{Axis, Line, LineChart, Point, Scale};

const WIDTH: f64 = 720.0;

/// Draws rows: operations per second to the right, median latency upwards. A file in SVG.
pub fn throughput_against_latency(rows: &[ClusterRow]) -> String {
    let lines = lines(rows);
    let all = || lines.iter().flat_map(|line| &line.points);
    let fabric = rows.first().map_or("", |row| row.fabric.as_str());
    let chart = LineChart {
        title: format!("Throughput against latency, {fabric}"),
        x: Axis {
            title: "million operations per second; at the points: clients".into(),
            scale: Scale::linear(all().map(|point| point.x)),
            write: short,
        },
        y: Axis {
            title: "median latency, us".into(),
            scale: Scale::log(all().map(|point| point.y)),
            write: short,
        },
        lines,
    };
    chart.draw(WIDTH).file()
}

fn lines(rows: &[ClusterRow]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let name = format!("{}, workload {}", row.design, row.workload);
        let point = Point {
            x: row.ops_per_second / 1e6,
            y: row.latency_ns.p50 / 1e3,
            label: Some(row.clients.to_string()),
        };
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name, points: vec![point] }),
        }
    }
    lines
}

/// A figure without what its steps leave over in binary.
fn short(value: f64) -> String {
    ((value * 1e6).round() / 1e6).to_string()
}
