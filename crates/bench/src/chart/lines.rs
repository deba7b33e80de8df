//! Lines through points, with their names below.

use super::{Axis, COLOURS, Drawing, escape, width_of};

/// A point of a line.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Along the axis to the right.
    pub x: f64,
    /// Along the axis upwards.
    pub y: f64,
    /// Written beside it, if anything.
    pub label: Option<String>,
}

/// A line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// What it is of.
    pub name: String,
    /// From left to right.
    pub points: Vec<Point>,
}

/// Lines between two axes.
#[derive(Debug, Clone)]
pub struct LineChart {
    /// What is shown.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// In the order of their colours.
    pub lines: Vec<Line>,
}

impl LineChart {
    /// Draws it in such a width; the height of what is between the axes follows.
    pub fn draw(&self, width: f64) -> Drawing {
        let mut drawing = Drawing::new(&self.title, width);
        let ticks = self.y.ticks();
        let left = ticks.iter().map(|(_, name)| width_of(name)).fold(20.0, f64::max) + 4.0;
        let (top, right) = (42.0, width - 22.0);
        let bottom = top + (width * 0.5).round();
        let across = |x: f64| left + self.x.scale.place(x) * (right - left);
        let up = |y: f64| bottom - self.y.scale.place(y) * (bottom - top);
        drawing.text(0.0, 32.0, "note", "start", &self.y.title);
        for (value, name) in ticks {
            drawing.grid((left, up(value)), (right, up(value)));
            drawing.text(left - 5.0, up(value) + 4.0, "tick", "end", &name);
        }
        for (value, name) in self.x.ticks() {
            drawing.grid((across(value), bottom), (across(value), bottom + 4.0));
            drawing.text(across(value), bottom + 17.0, "tick", "middle", &name);
        }
        drawing.text(right, bottom + 32.0, "note", "end", &self.x.title);
        for (number, line) in self.lines.iter().enumerate() {
            let at = |point: &Point| format!("{:.1},{:.1}", across(point.x), up(point.y));
            let path: Vec<_> = line.points.iter().map(at).collect();
            drawing.body += &format!("<g class=\"c{}\">", number % COLOURS);
            drawing.body +=
                &format!("<polyline points=\"{}\" class=\"line\"{}/>", path.join(" "), dash(number));
            for point in &line.points {
                let (x, y) = (across(point.x), up(point.y));
                drawing.body += &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" class=\"dot\"/>");
                if let Some(label) = &point.label {
                    let label = escape(label);
                    drawing.body += &format!(
                        "<text x=\"{:.1}\" y=\"{:.1}\" class=\"tick\">{label}</text>",
                        x + 5.0,
                        y - 6.0
                    );
                }
            }
            drawing.body += "</g>\n";
        }
        drawing.height = self.legend(&mut drawing, bottom + 52.0);
        drawing
    }

    /// The lines' names, in as many columns as fit. Returns where it ends.
    fn legend(&self, drawing: &mut Drawing, top: f64) -> f64 {
        let longest = self.lines.iter().map(|line| width_of(&line.name)).fold(0.0, f64::max) + 40.0;
        let columns = ((drawing.width / longest) as usize).clamp(1, 4);
        for (number, line) in self.lines.iter().enumerate() {
            let x = (number % columns) as f64 * drawing.width / columns as f64;
            let y = top + (number / columns) as f64 * 18.0;
            drawing.body += &format!(
                "<polyline points=\"{x:.1},{y:.1} {:.1},{y:.1}\" class=\"line c{}\"{}/>",
                x + 22.0,
                number % COLOURS,
                dash(number)
            );
            drawing.text(x + 28.0, y + 4.0, "name", "start", &line.name);
        }
        top + self.lines.len().div_ceil(columns) as f64 * 18.0 - 8.0
    }
}

/// Lines beyond the colours are told apart by their dashes.
fn dash(number: usize) -> &'static str {
    match number / COLOURS {
        0 => "",
        1 => " stroke-dasharray=\"7 4\"",
        _ => " stroke-dasharray=\"2 4\"",
    }
}
