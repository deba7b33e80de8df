//! From values to places along an axis.

/// How values lie along an axis.
#[derive(Debug, Clone, PartialEq)]
pub enum Scale {
    /// Evenly, from nothing to this.
    Linear(f64),
    /// By their logarithm, between these two, which are above 0.
    Log(f64, f64),
    /// Numbered from 0 on, each with a name of its own.
    Named(Vec<String>),
}

/// An axis.
#[derive(Debug, Clone)]
pub struct Axis {
    /// What is along it, and its unit.
    pub title: String,
    /// Where values lie.
    pub scale: Scale,
    /// How its values are written.
    pub write: fn(f64) -> String,
}

impl Scale {
    /// Evenly from nothing to the most of `values`, and a little beyond.
    pub fn linear(values: impl IntoIterator<Item = f64>) -> Self {
        let most = values.into_iter().filter(|value| value.is_finite()).fold(0.0, f64::max);
        Self::Linear(if most > 0.0 { most * 1.05 } else { 1.0 })
    }

    /// By the logarithm of `values`, of which those at or below 0 lie at the least of the others.
    pub fn log(values: impl IntoIterator<Item = f64>) -> Self {
        let above = values.into_iter().filter(|value| value.is_finite() && *value > 0.0);
        let (least, most) = above.fold((f64::MAX, 0.0_f64), |(l, m), value| (l.min(value), m.max(value)));
        if least > most { Self::Log(1.0, 10.0) } else { Self::Log(least * 0.85, most * 1.15) }
    }

    /// Where a value lies, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = match self {
            Self::Linear(most) => value / most,
            Self::Log(least, most) => (value.max(*least) / least).ln() / (most / least).ln(),
            Self::Named(names) => value / (names.len().max(2) - 1) as f64,
        };
        place.clamp(0.0, 1.0)
    }
}

impl Axis {
    /// Values that the axis names, and what it writes there.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let written = |value: f64| (value, (self.write)(value));
        match &self.scale {
            Scale::Named(names) => {
                names.iter().enumerate().map(|(n, name)| (n as f64, name.clone())).collect()
            }
            Scale::Linear(most) => {
                let step = step(most / 4.0);
                (0..).map(|n| f64::from(n) * step).take_while(|value| value <= most).map(written).collect()
            }
            Scale::Log(least, most) => {
                let decades = (most / least).log10();
                let within: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let powers = least.log10().floor() as i32..=most.log10().ceil() as i32;
                let all = powers.flat_map(|power| within.iter().map(move |by| by * 10_f64.powi(power)));
                all.filter(|value| (least..=most).contains(&value)).map(written).collect()
            }
        }
    }
}

/// The next of 1, 2, 5, 10, 20, ... from `least` on.
fn step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let by = [1.0, 2.0, 5.0].into_iter().find(|by| by * power >= least).unwrap_or(10.0);
    by * power
}
