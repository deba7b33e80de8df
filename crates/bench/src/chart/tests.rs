//! Tests of charts.

use super::*;

fn line(name: &str, points: &[(f64, f64)]) -> Line {
    let points = points.iter().map(|&(x, y)| Point { x, y, label: None }).collect();
    Line { name: name.into(), points }
}

fn axis(scale: Scale) -> Axis {
    Axis { title: "an axis".into(), scale, write: |value| value.to_string() }
}

#[test]
fn names_with_letters_of_markup_are_escaped_and_control_letters_are_not_drawn() {
    assert_eq!(escape("a<b> & \"c\" 'd'"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
    assert_eq!(escape("a\u{1}b\nc"), "a\u{fffd}b\nc");
    let bars = vec![Bar { name: "<b>".into(), values: vec![Some((1.0, "1 & 2".into()))] }];
    let drawing = BarChart { title: "\"t\"".into(), parts: vec![], bars }.draw(380.0).file();
    assert!(drawing.contains("&lt;b&gt;") && drawing.contains("1 &amp; 2"), "{drawing}");
    assert!(!drawing.contains("<b>") && drawing.contains("aria-label=\"&quot;t&quot;\""), "{drawing}");
}

#[test]
fn bars_are_as_long_as_their_values_and_never_less_than_nothing() {
    let values = [Some(4.0), Some(1.0), Some(-1.0), None];
    let bar = |value: Option<f64>| Bar { name: "n".into(), values: vec![value.map(|v| (v, v.to_string()))] };
    let chart = BarChart { title: "t".into(), parts: vec![], bars: values.map(bar).to_vec() };
    let text = chart.draw(380.0).inline();
    let rects = text.lines().filter(|line| line.starts_with("<rect"));
    let widths: Vec<f64> = rects
        .map(|rect| rect.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(widths.len(), 3, "what is not known has no bar");
    assert!((widths[0] / widths[1] - 4.0).abs() < 0.01, "{widths:?}");
    assert_eq!(widths[2], 1.0);
}

#[test]
fn higher_values_are_drawn_higher_and_all_within_the_axes() {
    let points = [(0.0, 10.0), (1.0, 100.0), (2.0, 100_000.0)];
    let chart = LineChart {
        title: "t".into(),
        x: axis(Scale::linear([2.0])),
        y: axis(Scale::log([10.0, 100_000.0])),
        lines: vec![line("l", &points)],
    };
    let text = chart.draw(380.0).inline();
    let path = text.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
    let drawn: Vec<(f64, f64)> = path
        .split(' ')
        .map(|point| point.split_once(',').unwrap())
        .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
        .collect();
    assert!(drawn[0].0 < drawn[1].0 && drawn[1].0 < drawn[2].0, "{drawn:?}");
    assert!(drawn[0].1 > drawn[1].1 && drawn[1].1 > drawn[2].1, "{drawn:?}");
    // A decade takes a third of what three take.
    let by = (drawn[1].1 - drawn[2].1) / (drawn[0].1 - drawn[1].1);
    assert!((by - 3.0).abs() < 0.05, "{by}");
    assert!(
        drawn.iter().all(|&(x, y)| (0.0..=380.0).contains(&x) && (42.0..=232.0).contains(&y)),
        "{drawn:?}"
    );
}

#[test]
fn ticks_are_round_and_few() {
    let values = |scale: Scale| axis(scale).ticks().into_iter().map(|(value, _)| value).collect::<Vec<_>>();
    assert_eq!(values(Scale::Linear(5.3)), [0.0, 2.0, 4.0]);
    assert_eq!(values(Scale::Linear(100.0)), [0.0, 50.0, 100.0]);
    assert_eq!(values(Scale::Log(80.0, 1500.0)), [100.0, 200.0, 500.0, 1000.0]);
    assert_eq!(values(Scale::Log(80.0, 150_000.0)), [100.0, 1000.0, 10_000.0, 100_000.0]);
    assert_eq!(values(Scale::linear([])), values(Scale::Linear(1.0)));
    assert!(values(Scale::log([0.0])).len() > 1);
}

#[test]
fn lines_of_the_same_colour_have_other_dashes() {
    let lines = (0..8).map(|n| line(&format!("l{n}"), &[(0.0, 1.0), (1.0, 2.0)])).collect();
    let chart =
        LineChart { title: "t".into(), x: axis(Scale::linear([1.0])), y: axis(Scale::linear([2.0])), lines };
    // Once in the chart, and once beside the name.
    assert_eq!(chart.draw(380.0).inline().matches("stroke-dasharray").count(), 2);
}
