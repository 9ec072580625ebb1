//! A drawing as SVG text: inside the report, or a file of its own.

use super::scene::{Anchor, Mark, Point, Scene, outline};
use super::style;
use std::fmt::Write;

/// A text inside markup: nothing of it is markup, and no control character is left.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(' '),
            // Among them the ones that turn the direction of what follows.
            c if c.is_control()
                || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}') =>
            {
                out.push('\u{fffd}')
            }
            c => out.push(c),
        }
    }
    out
}

/// A coordinate, to a tenth.
fn n(v: f64) -> String {
    let text = format!("{v:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" {
        "0".into()
    } else {
        text.into()
    }
}

fn path(points: &[Point], close: bool) -> String {
    let mut d = String::new();
    for (i, (x, y)) in points.iter().enumerate() {
        let _ = write!(d, "{}{} {}", if i == 0 { 'M' } else { 'L' }, n(*x), n(*y));
    }
    if close {
        d.push('Z');
    }
    d
}

/// What a mark that shows a value says, as attributes and as a tooltip.
fn spoken(says: &Option<String>, focus: bool) -> (String, String) {
    match says {
        None => (String::new(), String::new()),
        Some(text) => {
            let text = escape(text);
            let reach = match focus {
                true => format!(" tabindex=\"0\" role=\"img\" aria-label=\"{text}\""),
                false => String::new(),
            };
            (reach, format!("<title>{text}</title>"))
        }
    }
}

fn mark(out: &mut String, m: &Mark) {
    let _ = match m {
        Mark::Line {
            points,
            ink,
            width,
            dash,
            data,
        } => {
            let dashes: Vec<String> = dash.iter().map(|d| n(*d as f64)).collect();
            let dashes = match dashes.is_empty() {
                true => String::new(),
                false => format!(" stroke-dasharray=\"{}\"", dashes.join(" ")),
            };
            let data = if *data { " d" } else { "" };
            write!(
                out,
                "<path class=\"l{data} l-{}\" stroke-width=\"{}\"{dashes} d=\"{}\"/>",
                ink.class(),
                n(*width as f64),
                path(points, false)
            )
        }
        Mark::Rect {
            at,
            size,
            ink,
            says,
            focus,
        } => {
            let (reach, title) = spoken(says, *focus);
            let data = if says.is_some() { "d " } else { "" };
            write!(
                out,
                "<rect class=\"{data}f-{}\" x=\"{}\" y=\"{}\" width=\"{}\" \
                    height=\"{}\"{reach}>{title}</rect>",
                ink.class(),
                n(at.0),
                n(at.1),
                n(size.0),
                n(size.1)
            )
        }
        Mark::Marker {
            at,
            shape,
            radius,
            ink,
            says,
            focus,
        } => {
            let (reach, title) = spoken(says, *focus);
            let data = if says.is_some() { "d " } else { "" };
            let d: String = outline(*shape, *at, *radius)
                .iter()
                .map(|p| path(p, true))
                .collect();
            write!(
                out,
                "<path class=\"{data}f-{}\" d=\"{d}\"{reach}>{title}</path>",
                ink.class()
            )
        }
        Mark::Text {
            at,
            size,
            anchor,
            ink,
            bold,
            text,
        } => {
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => " text-anchor=\"middle\"",
                Anchor::End => " text-anchor=\"end\"",
            };
            let bold = if *bold { " font-weight=\"600\"" } else { "" };
            write!(
                out,
                "<text class=\"f-{}\" x=\"{}\" y=\"{}\" font-size=\"{}\"{anchor}{bold}>{}</text>",
                ink.class(),
                n(at.0),
                n(at.1),
                n(*size),
                escape(text)
            )
        }
    };
}

/// The marks.
fn body(scene: &Scene) -> String {
    let mut out = String::new();
    scene.marks.iter().for_each(|m| mark(&mut out, m));
    out
}

/// A drawing inside a page that has [`style::css`]. Where a keyboard reaches points, it is a group of
/// them, else one image; `id` is a plain name.
pub fn inline(scene: &Scene, id: &str, title: &str, says: &str) -> String {
    let reached = scene.marks.iter().any(|m| {
        matches!(
            m,
            Mark::Rect { focus: true, .. } | Mark::Marker { focus: true, .. }
        )
    });
    let role = if reached { "group" } else { "img" };
    format!(
        "<svg id=\"{id}\" role=\"{role}\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
            aria-label=\"{}\">{}</svg>\n",
        escape(&format!("{title}. {says}")),
        body(scene),
        w = n(scene.width),
        h = n(scene.height),
    )
}

/// A file of its own.
pub fn file(scene: &Scene, title: &str, says: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" \
            height=\"{h}\" role=\"img\" aria-labelledby=\"title says\" font-family=\"Inter, \
            system-ui, sans-serif\">\n<title id=\"title\">{}</title>\n<desc \
            id=\"says\">{}</desc>\n<style>{}</style>\n<rect class=\"f-ground\" width=\"{w}\" \
            height=\"{h}\"/>\n{}\n</svg>\n",
        escape(title),
        escape(says),
        style::css(),
        body(scene).replace(" tabindex=\"0\"", ""),
        w = n(scene.width),
        h = n(scene.height),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_never_becomes_markup() {
        let hostile = "<script>alert('x')</script>&\"\u{202e}\u{0}";
        let safe = escape(hostile);
        assert_eq!(
            safe,
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;\u{fffd}\u{fffd}"
        );
        let mut scene = Scene::new(10.0, 10.0);
        scene.text((1.0, 2.0), 3.0, Anchor::Start, style::Ink::Text, hostile);
        for text in [
            inline(&scene, "a", hostile, hostile),
            file(&scene, hostile, hostile),
        ] {
            assert!(
                !text.contains("<script") && !text.contains("\"x\""),
                "{text}"
            );
        }
    }
}
