//! Bars that lie one under the other, each with its name to the left and its figure to the right.

use super::{Drawing, width_of};

/// Room for the figures.
const FIGURE: f64 = 62.0;
const GAP: f64 = 8.0;

/// One row: a name, and a bar for each part of the chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// What the bar is of.
    pub name: String,
    /// A length and its figure for each part; none if there is nothing to show.
    pub values: Vec<Option<(f64, String)>>,
}

/// Bars of one kind, or of several parts beside each other. Lengths start at nothing, so that they compare.
#[derive(Debug, Clone, PartialEq)]
pub struct BarChart {
    /// What is shown, and its unit.
    pub title: String,
    /// Names of the parts, if there are several.
    pub parts: Vec<String>,
    /// From the top.
    pub bars: Vec<Bar>,
}

impl BarChart {
    /// Draws it in such a width.
    pub fn draw(&self, width: f64) -> Drawing {
        let mut drawing = Drawing::new(&self.title, width);
        let longest = self.bars.iter().map(|bar| width_of(&bar.name)).fold(0.0, f64::max);
        let left = longest.min(width * 0.5) + GAP;
        let values = self.bars.iter().flat_map(|bar| bar.values.iter().flatten());
        let most = values.map(|(value, _)| *value).fold(0.0, f64::max);
        let parts = self.bars.iter().map(|bar| bar.values.len()).max().unwrap_or(1).max(1);
        let thick = if parts == 1 { 14.0 } else { 11.0 };
        let row = parts as f64 * (thick + 2.0) + 6.0;
        let mut top = 26.0;
        if self.parts.len() > 1 {
            let mut x = 0.0;
            for (number, name) in self.parts.iter().enumerate() {
                drawing.bar(x, top, 12.0, 10.0, number);
                drawing.text(x + 18.0, top + 9.0, "note", "start", name);
                x += width_of(name) + 34.0;
            }
            top += 20.0;
        }
        for bar in &self.bars {
            drawing.text(left - GAP, top + row / 2.0 + 1.0, "name", "end", &bar.name);
            for (number, value) in bar.values.iter().enumerate() {
                let y = top + number as f64 * (thick + 2.0);
                let Some((value, figure)) = value else {
                    drawing.text(left + 5.0, y + thick - 1.5, "tick", "start", "-");
                    continue;
                };
                let share = if most > 0.0 { value.max(0.0) / most } else { 0.0 };
                let length = (share * (width - left - FIGURE)).max(1.0);
                drawing.bar(left, y, length, thick, number);
                drawing.text(left + length + 5.0, y + thick - 1.5, "tick", "start", figure);
            }
            top += row;
        }
        drawing.height = top;
        drawing
    }
}
