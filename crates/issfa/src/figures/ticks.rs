//! Scales: linear and logarithmic ranges, round ticks inside them, and how numbers are written.

/// How values map to places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Equal steps are equally long.
    #[default]
    Linear,
    /// Logarithm to base 10; values of 0 and below have no place.
    Log10,
}

impl Scale {
    /// Whether a value has a place on the scale. Numbers near the end of floating point are left out.
    pub fn holds(self, value: f64) -> bool {
        value.abs() < 1e300 && (self == Scale::Linear || value > 0.0)
    }

    /// The value in the units that are even along an axis.
    pub fn forward(self, value: f64) -> f64 {
        if self == Scale::Linear { value } else { value.log10() }
    }

    fn backward(self, value: f64) -> f64 {
        if self == Scale::Linear { value } else { 10f64.powf(value) }
    }

    /// The smallest range that holds the values; never empty, whatever the values.
    pub fn range(self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        let held = values.filter(|&value| self.holds(value));
        let (low, high) =
            held.fold((f64::INFINITY, -f64::INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            return if self == Scale::Linear { (0.0, 1.0) } else { (1.0, 10.0) };
        }
        let is_constant = high - low <= 1e-12 * high.abs().max(low.abs());
        match (is_constant, self) {
            (false, _) => (low, high),
            (true, Scale::Log10) => (low / 2.0, high * 2.0),
            (true, Scale::Linear) if low == 0.0 => (-1.0, 1.0),
            (true, Scale::Linear) => (low - 0.1 * low.abs(), high + 0.1 * high.abs()),
        }
    }

    /// The range with a share of its length added at either end.
    pub fn pad(self, range: (f64, f64), share: f64) -> (f64, f64) {
        let (low, high) = (self.forward(range.0), self.forward(range.1));
        let extra = share * (high - low);
        (self.backward(low - extra), self.backward(high + extra))
    }

    /// About `n_wanted` round numbers inside the range, with labels.
    pub fn ticks(self, range: (f64, f64), n_wanted: usize) -> Vec<Tick> {
        match self {
            Scale::Linear => linear_ticks(range, n_wanted),
            Scale::Log10 => log_ticks(range, n_wanted),
        }
    }
}

/// A marked place on an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// What is marked.
    pub value: f64,
    /// How it is written.
    pub label: String,
}

/// The number nearest to a rough step (by ratio) that is 1, 2 or 5 times a power of ten.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    match rough / power {
        share if share < 1.42 => power,
        share if share < 3.17 => 2.0 * power,
        share if share < 7.08 => 5.0 * power,
        _ => 10.0 * power,
    }
}

fn linear_ticks((low, high): (f64, f64), n_wanted: usize) -> Vec<Tick> {
    let step = round_step((high - low) / n_wanted as f64);
    let (first, last) = ((low / step - 1e-6).ceil(), (high / step + 1e-6).floor());
    let values: Vec<f64> = (0..=(last - first).max(0.0) as usize).map(|index| (first + index as f64) * step).collect();
    let largest = low.abs().max(high.abs());
    values.into_iter().map(|value| Tick { value, label: step_label(value, step, largest) }).collect()
}

fn log_ticks((low, high): (f64, f64), n_wanted: usize) -> Vec<Tick> {
    let (first, last) = (low.log10().ceil() as i32, high.log10().floor() as i32);
    let inside = |value: &f64| *value >= low * 0.999_999 && *value <= high * 1.000_001;
    let decades = |factors: &[f64]| -> Vec<f64> {
        let powers = (first - 1..=last).flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
        powers.filter(inside).collect()
    };
    let mut values = decades(&[1.0]);
    if values.len() < 3 {
        values = decades(&[1.0, 2.0, 5.0]);
    }
    if values.len() < 2 {
        return linear_ticks((low, high), n_wanted);
    }
    let every = if values.len() > 2 * n_wanted.max(3) { values.len().div_ceil(n_wanted.max(3)) } else { 1 };
    values.into_iter().step_by(every).map(|value| Tick { value, label: number(value) }).collect()
}

/// A tick's label, with the digits its step needs.
fn step_label(value: f64, step: f64, largest: f64) -> String {
    let digits = |value: f64| (value.abs().log10() + 1e-9).floor() as i32;
    if value.abs() < 1e-6 * step {
        return "0".into();
    }
    if (1e-3..1e6).contains(&largest) {
        return minus(format!("{value:.*}", (-digits(step)).max(0) as usize));
    }
    power_label(value, (digits(value) - digits(step)).max(0) as usize)
}

/// A number to three digits, for captions and limits.
pub fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{}", value.abs());
    }
    let power = value.abs().log10().floor() as i32;
    if !(-3..5).contains(&power) {
        return power_label(value, 2);
    }
    let text = format!("{value:.*}", (2 - power).max(0) as usize);
    minus(trim_zeros(&text).into())
}

/// `1.5×10⁶`.
fn power_label(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$e}");
    let (mantissa, power) = text.split_once('e').expect("scientific form has an exponent");
    let raise = |letter: char| match letter {
        '-' => '⁻',
        digit => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][digit.to_digit(10).unwrap_or(0) as usize],
    };
    let power: String = power.chars().map(raise).collect();
    match trim_zeros(mantissa) {
        "1" => format!("10{power}"),
        "-1" => format!("−10{power}"),
        mantissa => minus(format!("{mantissa}×10{power}")),
    }
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

fn minus(text: String) -> String {
    text.replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(range: (f64, f64), scale: Scale) -> Vec<String> {
        scale.ticks(range, 5).into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_are_round_and_cover_the_range() {
        for range in [(0.0, 1.0), (-3.2, 17.9), (1e-9, 3e-9), (-5e7, 2e8), (99.99, 100.01), (0.0, 20000.0)] {
            let ticks = Scale::Linear.ticks(range, 5);
            let step = ticks[1].value - ticks[0].value;
            let mantissa = step / 10f64.powf((step.log10() + 1e-9).floor());
            assert!([1.0, 2.0, 5.0].iter().any(|factor| (mantissa - factor).abs() < 1e-3), "{range:?} {step}");
            assert!((3..=9).contains(&ticks.len()), "{range:?} {ticks:?}");
            let (first, last) = (ticks[0].value, ticks[ticks.len() - 1].value);
            assert!(first >= range.0 - 1e-5 * step && first - step < range.0, "{range:?}");
            assert!(last <= range.1 + 1e-5 * step && last + step > range.1, "{range:?}");
            assert!(ticks.windows(2).all(|pair| pair[0].label != pair[1].label), "{ticks:?}");
        }
    }

    #[test]
    fn labels_read_well() {
        assert_eq!(labels((0.0, 1.0), Scale::Linear), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels((-1e6, 1.6e6), Scale::Linear), ["−10⁶", "−5×10⁵", "0", "5×10⁵", "10⁶", "1.5×10⁶"]);
        assert_eq!(labels((0.5, 2e5), Scale::Log10), ["1", "10", "100", "1000", "10000", "10⁵"]);
        assert_eq!(labels((3.0, 30.0), Scale::Log10), ["5", "10", "20"]);
        assert_eq!(["0.012", "−2.5", "1230"].map(String::from), [0.012, -2.5, 1230.4].map(number));
    }

    #[test]
    fn ranges_are_never_empty() {
        let cases: [&[f64]; 5] = [&[], &[f64::NAN], &[0.0], &[-4.0, -4.0], &[f64::INFINITY, f64::MAX, 3.0]];
        for (values, scale) in cases.iter().flat_map(|values| [(values, Scale::Linear), (values, Scale::Log10)]) {
            let (low, high) = scale.range(values.iter().copied());
            assert!(low < high && low.is_finite() && high.is_finite(), "{values:?} {scale:?}");
            assert!(scale.ticks((low, high), 5).len() >= 2, "{values:?} {scale:?}");
        }
    }
}
