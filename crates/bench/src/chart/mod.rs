//! Charts as SVG: small enough to stand in a page beside others and to be read on a phone, without scripts, in the colours
//! of the page around them, light or dark.
//!
//! What is drawn has classes, and [`STYLE`] says what they look like: a page has it once, a file of a single chart in itself.

mod bars;
mod lines;
mod scale;

pub use bars::{Bar, BarChart};
pub use lines::{Line, LineChart, Point};
pub use scale::{Axis, Scale};

/// How many colours lines have; further ones are dashed.
pub const COLOURS: usize = 7;

/// What the classes look like. Colours are told apart also by people who see few (Okabe and Ito 2008).
pub const STYLE: &str = "
:root { --ink: #1b1f24; --faint: #656d76; --grid: #d8dee4; --ground: #ffffff; --panel: #f6f8fa;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #56b4e9; --c5: #b07800; --c6: #444444; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --faint: #9198a1; --grid: #3d444d; --ground: #0d1117; --panel: #161b22;
    --c0: #4aa8e0; --c1: #ff8a3d; --c2: #2fc99a; --c3: #e79cc6; --c4: #8ad0f7; --c5: #f0c04a; --c6: #cccccc; } }
svg.chart { font: 12px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; display: block;
  max-width: 100%; height: auto; }
.chart text { fill: var(--ink); }
.chart .title { font-weight: 600; font-size: 13px; }
.chart .tick, .chart .note { fill: var(--faint); font-size: 11px; }
.chart .grid { stroke: var(--grid); stroke-width: 1; }
.chart .line { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; }
.chart .dot { fill: currentColor; }
.chart .bar { fill: currentColor; }
.chart g:hover > .line { stroke-width: 4; }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); }
.c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6 { color: var(--c6); }
";

/// Width of a letter on average, at the size that charts are written in.
const LETTER: f64 = 6.7;

/// A chart that was drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawing {
    title: String,
    width: f64,
    height: f64,
    body: String,
}

impl Drawing {
    fn new(title: &str, width: f64) -> Self {
        let mut this = Self { title: title.into(), width, height: 0.0, body: String::new() };
        this.text(0.0, 14.0, "title", "start", title);
        this
    }

    fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        let text = escape(text);
        self.body += &format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{text}</text>\n"
        );
    }

    fn grid(&mut self, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.body +=
            &format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"grid\"/>\n");
    }

    fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, colour: usize) {
        self.body += &format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\" class=\"bar c{}\"/>\n",
            colour % COLOURS
        );
    }

    /// To stand in a page that has [`STYLE`].
    pub fn inline(&self) -> String {
        self.element("", "")
    }

    /// A file of its own.
    pub fn file(&self) -> String {
        let style = format!("<style>{STYLE}svg {{ background: var(--ground); }}</style>\n");
        self.element(" xmlns=\"http://www.w3.org/2000/svg\"", &style) + "\n"
    }

    fn element(&self, namespace: &str, style: &str) -> String {
        let Self { title, width, height, body } = self;
        let label = escape(title);
        format!(
            "<svg{namespace} class=\"chart\" viewBox=\"-8 -4 {:.0} {:.0}\" width=\"{:.0}\" role=\"img\" \
             aria-label=\"{label}\">\n{style}{body}</svg>",
            width + 16.0,
            height + 12.0,
            width + 16.0
        )
    }
}

/// Text as HTML and SVG write it, in elements and in attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            // Nor are these letters of any page.
            control if control.is_control() && !control.is_whitespace() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

#[cfg(test)]
mod tests;
