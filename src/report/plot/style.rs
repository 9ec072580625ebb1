//! Colours, dashes and markers: told apart by the colour-blind, and by those who see no colour at all.

use super::scene::Shape;
use std::fmt::Write;

/// What a mark is drawn in; each has a colour on a light ground and one on a dark ground.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ink {
    /// The page.
    Ground,
    /// Text and what stands out.
    Text,
    /// Labels of axes.
    Soft,
    /// Lines of the grid.
    Grid,
    /// Axes.
    Axis,
    /// A scheme, by its number in [`crate::report::read::SCHEMES`].
    Scheme(usize),
    /// A share from 0 to 20 twentieths.
    Heat(usize),
    /// Text on [`Ink::Heat`] of that number.
    OnHeat(usize),
    /// A class of memory.
    Class(usize),
    /// What is inside a range, but with fewer bits.
    Faint,
}

/// Shares are shown in this many steps.
pub const HEATS: usize = 21;
/// Classes of memory.
pub const CLASSES: usize = 7;

/// A scheme's way of being drawn.
pub struct Look {
    light: &'static str,
    dark: &'static str,
    /// Lengths of dashes and gaps.
    pub dash: &'static [f32],
    /// Marker.
    pub shape: Shape,
    /// Width of the line. The reference lies wide below the others.
    pub width: f32,
}

/// In the order of [`crate::report::read::SCHEMES`].
pub const LOOKS: [Look; 6] = [
    look("#8c8c8c", "#8f969e", &[], Shape::Circle, 4.5),
    look("#1f6fd0", "#4da3ff", &[], Shape::Square, 1.8),
    look(
        "#4d3b00",
        "#fff0a0",
        &[9.0, 3.0, 2.0, 3.0],
        Shape::Diamond,
        2.0,
    ),
    look("#e8590c", "#ff8a4c", &[7.0, 3.5], Shape::Triangle, 2.0),
    look("#00694e", "#4fd6ae", &[2.5, 3.0], Shape::Cross, 2.2),
    look(
        "#b0359a",
        "#ffb8f0",
        &[6.0, 2.0, 2.0, 2.0, 2.0, 2.0],
        Shape::Down,
        2.0,
    ),
];

const fn look(
    light: &'static str,
    dark: &'static str,
    dash: &'static [f32],
    shape: Shape,
    width: f32,
) -> Look {
    Look {
        light,
        dark,
        dash,
        shape,
        width,
    }
}

/// State in blues, what comes and goes in a step in browns, the rest grey.
const CLASS: [(&str, &str); CLASSES] = [
    ("#0b4f8a", "#8cc8ff"),
    ("#3f88c5", "#4a94d6"),
    ("#8fbbe0", "#29608f"),
    ("#8a4b08", "#ffc27d"),
    ("#c98232", "#d18a3d"),
    ("#e8c091", "#8a5a22"),
    ("#9aa1a9", "#767f89"),
];

type Rgb = [u8; 3];

fn rgb(hex: &str) -> Rgb {
    let part = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap_or(0);
    [part(1), part(3), part(5)]
}

/// A colour between three.
fn ramp(stops: [&str; 3], t: f64) -> Rgb {
    let (a, b, t) = match t < 0.5 {
        true => (rgb(stops[0]), rgb(stops[1]), 2.0 * t),
        false => (rgb(stops[1]), rgb(stops[2]), 2.0 * t - 1.0),
    };
    std::array::from_fn(|i| (a[i] as f64 + (b[i] as f64 - a[i] as f64) * t).round() as u8)
}

impl Ink {
    /// The number of a share's colour.
    pub fn heat(share: f64) -> Ink {
        Ink::Heat((share.clamp(0.0, 1.0) * (HEATS - 1) as f64).round() as usize)
    }

    /// Text on a share.
    pub fn on(share: f64) -> Ink {
        match Ink::heat(share) {
            Ink::Heat(i) => Ink::OnHeat(i),
            other => other,
        }
    }

    /// The colours on a light and on a dark ground.
    pub fn colours(self) -> (Rgb, Rgb) {
        let pair = |l, d| (rgb(l), rgb(d));
        match self {
            Ink::Ground => pair("#ffffff", "#10151b"),
            Ink::Text => pair("#1a2027", "#e8ecf1"),
            Ink::Soft => pair("#525d69", "#a3afbb"),
            Ink::Grid => pair("#e7eaee", "#252d36"),
            Ink::Axis => pair("#8a949e", "#66717d"),
            Ink::Scheme(i) => pair(LOOKS[i].light, LOOKS[i].dark),
            Ink::Heat(i) => {
                let t = i as f64 / (HEATS - 1) as f64;
                (
                    ramp(["#edf2f8", "#7fb0da", "#0a3a6b"], t),
                    ramp(["#1b222b", "#265c8c", "#d5eaff"], t),
                )
            }
            Ink::OnHeat(i) => {
                let (light, dark) = Ink::Heat(i).colours();
                (readable(light), readable(dark))
            }
            Ink::Class(i) => pair(CLASS[i].0, CLASS[i].1),
            Ink::Faint => pair("#b9c6d3", "#43505d"),
        }
    }

    /// The name of its class in a style sheet.
    pub fn class(self) -> String {
        match self {
            Ink::Ground => "ground".into(),
            Ink::Text => "text".into(),
            Ink::Soft => "soft".into(),
            Ink::Grid => "grid".into(),
            Ink::Axis => "axis".into(),
            Ink::Scheme(i) => format!("s{i}"),
            Ink::Heat(i) => format!("h{i}"),
            Ink::OnHeat(i) => format!("o{i}"),
            Ink::Class(i) => format!("m{i}"),
            Ink::Faint => "faint".into(),
        }
    }

    /// Every ink.
    pub fn all() -> Vec<Ink> {
        let plain = [
            Ink::Ground,
            Ink::Text,
            Ink::Soft,
            Ink::Grid,
            Ink::Axis,
            Ink::Faint,
        ];
        plain
            .into_iter()
            .chain((0..LOOKS.len()).map(Ink::Scheme))
            .chain((0..HEATS).map(Ink::Heat))
            .chain((0..HEATS).map(Ink::OnHeat))
            .chain((0..CLASSES).map(Ink::Class))
            .collect()
    }
}

/// Intensities of light, sRGB's curve undone.
fn linear(c: Rgb) -> [f64; 3] {
    c.map(|v| {
        let v = v as f64 / 255.0;
        match v <= 0.04045 {
            true => v / 12.92,
            false => libm::pow((v + 0.055) / 1.055, 2.4),
        }
    })
}

/// WCAG 2.2's contrast ratio.
fn contrast(a: Rgb, b: Rgb) -> f64 {
    let light = |c| {
        let [r, g, b] = linear(c);
        0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05
    };
    let (a, b) = (light(a), light(b));
    a.max(b) / a.min(b)
}

/// Black or white, whichever is easier to read on a colour.
fn readable(on: Rgb) -> Rgb {
    let (black, white) = ([0; 3], [255; 3]);
    match contrast(black, on) > contrast(white, on) {
        true => black,
        false => white,
    }
}

/// A colour as it is written.
pub fn hex(c: Rgb) -> String {
    format!("#{:02x}{:02x}{:02x}", c[0], c[1], c[2])
}

/// The rules of all inks: `f-` fills, `l-` lines; those of the dark ground where the reader's system
/// asks for it.
pub fn css() -> String {
    let mut light = String::new();
    let mut dark = String::new();
    for ink in Ink::all() {
        let (l, d) = ink.colours();
        let class = ink.class();
        for (out, c) in [(&mut light, l), (&mut dark, d)] {
            let c = hex(c);
            let _ = write!(out, ".f-{class}{{fill:{c}}}.l-{class}{{stroke:{c}}}");
        }
    }
    format!(
        "{light}.l{{fill:none;stroke-linejoin:round;stroke-linecap:butt}}@media(prefers-color-scheme:dark){{{dark}}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OKLab of a colour as dichromats see it: the confusion of red and green (Viénot et al. 1999).
    fn seen(c: Rgb, blind: Option<[[f64; 3]; 3]>) -> [f64; 3] {
        let x = linear(c);
        let by = |m: [[f64; 3]; 3], v: [f64; 3]| {
            m.map(|r| r.iter().zip(v).map(|(a, b)| a * b).sum::<f64>())
        };
        let x = blind.map_or(x, |m| by(m, x)).map(|v| v.clamp(0.0, 1.0));
        let lms = by(
            [
                [0.4122214708, 0.5363325363, 0.0514459929],
                [0.2119034982, 0.6806995451, 0.1073969566],
                [0.0883024619, 0.2817188376, 0.6299787005],
            ],
            x,
        );
        by(
            [
                [0.2104542553, 0.7936177850, -0.0040720468],
                [1.9779984951, -2.4285922050, 0.4505937099],
                [0.0259040371, 0.7827717662, -0.8086757660],
            ],
            lms.map(f64::cbrt),
        )
    }

    const PROTAN: [[f64; 3]; 3] = [
        [0.112, 0.888, 0.0],
        [0.112, 0.888, 0.0],
        [0.004, -0.004, 1.0],
    ];
    const DEUTAN: [[f64; 3]; 3] = [
        [0.293, 0.707, 0.0],
        [0.293, 0.707, 0.0],
        [-0.022, 0.022, 1.0],
    ];

    #[test]
    fn everything_that_must_be_seen_stands_out_in_both_modes() {
        let side = |c: (Rgb, Rgb), dark| if dark { c.1 } else { c.0 };
        for dark in [false, true] {
            let of = |i: Ink| side(i.colours(), dark);
            let ground = of(Ink::Ground);
            for (text, least) in [(Ink::Text, 12.0), (Ink::Soft, 4.5), (Ink::Axis, 2.9)] {
                assert!(contrast(of(text), ground) >= least, "{text:?} {dark}");
            }
            for i in 0..LOOKS.len() {
                let c = contrast(of(Ink::Scheme(i)), ground);
                assert!(c >= 3.0, "scheme {i}, dark {dark}: {c}");
            }
            for h in 0..HEATS {
                let share = h as f64 / (HEATS - 1) as f64;
                let c = contrast(of(Ink::on(share)), of(Ink::Heat(h)));
                assert!(c >= 4.5, "text on heat {h}, dark {dark}: {c}");
            }
        }
    }

    #[test]
    fn schemes_differ_for_the_colour_blind_and_without_colour() {
        for (a, x) in LOOKS.iter().enumerate() {
            for (b, y) in LOOKS[..a].iter().enumerate() {
                assert!(x.dash != y.dash || x.width != y.width, "{a} {b}: dashes");
                assert!(x.shape != y.shape, "{a} {b}: markers");
                for blind in [None, Some(PROTAN), Some(DEUTAN)] {
                    for (p, q) in [(x.light, y.light), (x.dark, y.dark)] {
                        let (p, q) = (seen(rgb(p), blind), seen(rgb(q), blind));
                        let d: f64 = p.iter().zip(q).map(|(p, q)| (p - q).powi(2)).sum();
                        assert!(d.sqrt() > 0.08, "{a} {b} {blind:?}: {}", d.sqrt());
                    }
                }
            }
        }
    }
}
