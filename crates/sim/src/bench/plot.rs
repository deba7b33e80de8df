//! Throughput against latency, as one drawing: a line per design and workload, a point per number of clients.

use super::row::ClusterRow;
use plotters::{
    coord::Shift,
    prelude::{
        ChartBuilder, Circle, DrawingArea, DrawingAreaErrorKind, EmptyElement, IntoDrawingArea, IntoLogRange,
        LineSeries, PathElement, PointSeries, RGBColor, SVGBackend, SeriesLabelPosition, Text,
    },
    style::{Color, IntoFont, WHITE},
};

/// Told apart also by people who see few colours (Okabe and Ito 2008).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];
const SIZE: (u32, u32) = (900, 560);

type Failure = Box<dyn std::error::Error>;

/// Draws rows: operations per second to the right, median latency upwards.
pub fn throughput_against_latency(rows: &[ClusterRow]) -> Result<String, Failure> {
    let mut drawing = String::new();
    {
        let area = SVGBackend::with_string(&mut drawing, SIZE).into_drawing_area();
        draw(&area, rows).map_err(|error| error.to_string())?;
        area.present()?;
    }
    Ok(drawing)
}

/// One line of the drawing: what it is called, and its points.
type Line<'a> = (String, Vec<&'a ClusterRow>);

fn lines(rows: &[ClusterRow]) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for row in rows {
        let name = format!("{}, workload {}", row.design, row.workload);
        match lines.iter_mut().find(|(other, _)| *other == name) {
            Some((_, points)) => points.push(row),
            None => lines.push((name, vec![row])),
        }
    }
    lines
}

fn point(row: &ClusterRow) -> (f64, f64) {
    (row.ops_per_second / 1e6, row.latency_ns.p50 / 1e3)
}

fn draw<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    rows: &[ClusterRow],
) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as plotters::prelude::DrawingBackend>::ErrorType>> {
    area.fill(&WHITE)?;
    let most = |of: fn((f64, f64)) -> f64| rows.iter().map(|row| of(point(row))).fold(0.0, f64::max);
    let least_us = rows.iter().map(|row| point(row).1).fold(f64::MAX, f64::min);
    let (width, low, high) =
        (most(|at| at.0) * 1.08, least_us.max(0.1) * 0.8, most(|at| at.1).max(1.0) * 2.0);
    let fabric = rows.first().map_or("", |row| row.fabric.as_str());
    let mut chart = ChartBuilder::on(area)
        .caption(format!("Throughput against latency, {fabric}"), ("sans-serif", 20).into_font())
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..width.max(0.001), (low..high).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("million operations per second")
        .y_desc("median latency, us")
        .light_line_style(WHITE)
        .draw()?;
    for (number, (name, points)) in lines(rows).into_iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        chart
            .draw_series(LineSeries::new(points.iter().map(|row| point(row)), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        let clients: Vec<((f64, f64), usize)> = points.iter().map(|row| (point(row), row.clients)).collect();
        chart.draw_series(PointSeries::of_element(clients, 3, colour, &|(at, clients), size, colour| {
            let label = Text::new(clients.to_string(), (6, -14), ("sans-serif", 12).into_font());
            EmptyElement::at(at) + Circle::new((0, 0), size, colour.filled()) + label
        }))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperMiddle)
        .background_style(WHITE.mix(0.8))
        .border_style(COLOURS[6].mix(0.3))
        .draw()?;
    Ok(())
}
