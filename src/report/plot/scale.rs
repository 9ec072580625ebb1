//! Axes: from values to places, and where the ticks stand.

/// How values are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Evenly.
    Linear,
    /// Evenly, shown as percentages.
    Percent,
    /// By powers of ten.
    Log10,
    /// By powers of two.
    Log2,
}

/// An axis from `low` to `high` (both already logarithms, where the form has them), drawn between two
/// places.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scale {
    /// How values are laid out.
    pub form: Form,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Form {
    /// A value as the axis counts it. What a logarithm does not have lies far below.
    pub fn raw(self, v: f64) -> f64 {
        match self {
            Form::Linear | Form::Percent => v,
            Form::Log10 if v > 0.0 => libm::log10(v),
            Form::Log2 if v > 0.0 => libm::log2(v),
            Form::Log10 | Form::Log2 => -400.0,
        }
    }
}

impl Scale {
    /// An axis over values, with some room beyond them.
    pub fn over(form: Form, values: impl Iterator<Item = f64>, zero: bool) -> Scale {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for v in values.map(|v| form.raw(v)).filter(|v| v.is_finite()) {
            low = low.min(v);
            high = high.max(v);
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        if zero {
            low = low.min(0.0);
            high = high.max(0.0);
        }
        let room = match high - low {
            // A constant needs an axis too.
            d if d <= 1e-12 * high.abs().max(1e-12) => 0.1 * high.abs().max(1e-3),
            d => 0.05 * d,
        };
        let keep = |edge: f64| zero && edge == 0.0;
        let low = if keep(low) { low } else { low - room };
        let high = if keep(high) { high } else { high + room };
        Scale::between(form, low, high)
    }

    /// An axis between two ends, as the form counts.
    pub fn between(form: Form, low: f64, high: f64) -> Scale {
        Scale {
            form,
            low,
            high,
            from: 0.0,
            to: 1.0,
        }
    }

    /// The axis drawn between two places.
    pub fn drawn(self, from: f64, to: f64) -> Scale {
        Scale { from, to, ..self }
    }

    /// The place of a value.
    pub fn at(&self, v: f64) -> f64 {
        let t = (self.form.raw(v) - self.low) / (self.high - self.low);
        self.from + t.clamp(-0.5, 1.5) * (self.to - self.from)
    }

    /// Whether a value lies on the axis.
    pub fn holds(&self, v: f64) -> bool {
        let v = self.form.raw(v);
        let slack = 1e-9 * (self.high - self.low);
        v >= self.low - slack && v <= self.high + slack
    }

    /// Values and labels of at most `most` ticks.
    pub fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        match self.form {
            Form::Linear => linear(self.low, self.high, most, plain),
            Form::Percent => linear(self.low, self.high, most, |v, step| {
                let digits = digits(100.0 * step);
                format!("{:.digits$}%", 100.0 * v)
            }),
            Form::Log10 => powers(self.low, self.high, most, 10.0, "10"),
            Form::Log2 => powers(self.low, self.high, most, 2.0, "2"),
        }
    }
}

/// Decimals that tell values apart which lie `step` apart.
fn digits(step: f64) -> usize {
    let d = -libm::floor(libm::log10(step.abs().max(1e-12)) + 1e-9);
    d.clamp(0.0, 9.0) as usize
}

/// A number with the minus that type has, and thin groups of thousands.
fn plain(v: f64, step: f64) -> String {
    let digits = digits(step);
    let v = if v.abs() < step * 1e-6 { 0.0 } else { v };
    if v.abs() >= 10_000.0 && digits == 0 {
        return grouped(v as i64);
    }
    format!("{v:.digits$}").replace('-', "−")
}

/// A whole number in groups of three.
pub fn grouped(v: i64) -> String {
    let text = v.unsigned_abs().to_string();
    let mut out = String::new();
    for (i, c) in text.chars().enumerate() {
        if i > 0 && (text.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    if v < 0 { format!("−{out}") } else { out }
}

fn linear(
    low: f64,
    high: f64,
    most: usize,
    label: impl Fn(f64, f64) -> String,
) -> Vec<(f64, String)> {
    let span = (high - low).max(1e-300);
    let rough = span / most.max(1) as f64;
    let power = libm::pow(10.0, libm::floor(libm::log10(rough)));
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|m| m * power);
    // 2.5 needs one decimal more than its power has.
    let fits = |s: &&f64| libm::floor(high / **s) - libm::ceil(low / **s) + 1.0 <= most as f64;
    let step = steps.iter().find(fits).copied().unwrap_or(10.0 * power);
    let fine = if (step / power - 2.5).abs() < 1e-9 {
        step / 5.0
    } else {
        step
    };
    let first = libm::ceil(low / step - 1e-9) as i64;
    let last = libm::floor(high / step + 1e-9) as i64;
    (first..=last.min(first + 100))
        .map(|k| (k as f64 * step, label(k as f64 * step, fine)))
        .collect()
}

/// An exponent as small raised digits.
pub fn raised(n: i64) -> String {
    let digit = |c| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        c => char::from_u32('⁰' as u32 + (c as u32 - '0' as u32)).unwrap_or(c),
    };
    n.to_string().chars().map(digit).collect()
}

/// 10^x for people: `3.2·10⁻⁷`.
pub fn power_of_ten(x: f64) -> String {
    let whole = libm::floor(x + 1e-9);
    let front = libm::exp10(x - whole);
    match format!("{front:.1}").as_str() {
        "1.0" => format!("10{}", raised(whole as i64)),
        // Rounding may reach the next power.
        "10.0" => format!("10{}", raised(whole as i64 + 1)),
        text => format!("{text}·10{}", raised(whole as i64)),
    }
}

fn powers(low: f64, high: f64, most: usize, base: f64, shown: &str) -> Vec<(f64, String)> {
    let (first, last) = (
        libm::ceil(low - 1e-9) as i64,
        libm::floor(high + 1e-9) as i64,
    );
    let count = (last - first + 1).max(0);
    let every = (1..=1000)
        .find(|e| count <= most as i64 * e)
        .unwrap_or(1000);
    (first..=last)
        .filter(|k| k.rem_euclid(every) == 0)
        .map(|k| {
            let label = match k {
                0 => "1".into(),
                1 => shown.into(),
                k => format!("{shown}{}", raised(k)),
            };
            (libm::pow(base, k as f64), label)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(s: Scale, most: usize) -> Vec<String> {
        s.ticks(most).into_iter().map(|t| t.1).collect()
    }

    #[test]
    fn ticks_are_round_and_few() {
        let linear = |a, b| Scale::between(Form::Linear, a, b);
        assert_eq!(
            labels(linear(0.0, 2000.0), 5),
            ["0", "500", "1000", "1500", "2000"]
        );
        assert_eq!(
            labels(linear(1.93, 4.31), 5),
            ["2.0", "2.5", "3.0", "3.5", "4.0"]
        );
        assert_eq!(labels(linear(-0.02, 0.11), 4), ["0.00", "0.05", "0.10"]);
        assert_eq!(
            labels(linear(0.0, 60_000.0), 4),
            ["0", "20 000", "40 000", "60 000"]
        );
        let percent = Scale::between(Form::Percent, 0.0, 1.0);
        assert_eq!(
            labels(percent, 6),
            ["0%", "20%", "40%", "60%", "80%", "100%"]
        );
        let log = Scale::between(Form::Log10, -8.0, 5.0);
        assert_eq!(labels(log, 5), ["10⁻⁶", "10⁻³", "1", "10³"]);
        let two = Scale::between(Form::Log2, 13.9, 16.1);
        assert_eq!(labels(two, 5), ["2¹⁴", "2¹⁵", "2¹⁶"]);
    }

    #[test]
    fn any_values_give_an_axis() {
        for values in [
            vec![],
            vec![0.0],
            vec![5.0, 5.0],
            vec![f64::NAN, 1.0],
            vec![-1e300, 1e300],
        ] {
            for form in [Form::Linear, Form::Percent, Form::Log10, Form::Log2] {
                let s = Scale::over(form, values.iter().copied(), false).drawn(0.0, 100.0);
                assert!(s.ticks(6).len() <= 101);
                assert!(
                    s.at(values.first().copied().unwrap_or(0.0)).is_finite() || values[0].is_nan()
                );
            }
        }
    }
}
