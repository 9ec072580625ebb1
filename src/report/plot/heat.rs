//! Shares by tensor and step.

use super::chart::Heat;
use super::scale::grouped;
use super::scene::{Anchor, Scene};
use super::style::{HEATS, Ink};
use super::{GAP, SMALL, font};

/// Rows and columns that are drawn; of more, evenly chosen ones.
const MOST_ROWS: usize = 64;

pub fn draw(h: &Heat, width: f64) -> Scene {
    let narrow = width < 400.0;
    let size = if narrow { 10.5 } else { 11.5 };
    let mut s = Scene::new(width, 0.0);
    let rows = evenly(h.rows.len(), MOST_ROWS);
    let columns = evenly(h.steps.len(), if narrow { 16 } else { 40 });
    let label = |i: &usize| font::width(&h.rows[*i].0, size, false);
    let left = rows.iter().map(label).fold(30.0, f64::max).min(0.5 * width) + GAP;
    let right = width - 1.0;
    let top = key(&mut s, width) + 14.0;
    let tall = if narrow { 17.0 } else { 19.0 };
    let wide = (right - left) / columns.len().max(1) as f64;
    for (n, &r) in rows.iter().enumerate() {
        let y = top + n as f64 * tall;
        let (name, shares) = &h.rows[r];
        let name = clipped(name, size, left - GAP);
        s.text(
            (left - GAP, y + tall - 5.5),
            size,
            Anchor::End,
            Ink::Text,
            &name,
        );
        for (k, &c) in columns.iter().enumerate() {
            let Some(share) = shares[c] else { continue };
            let at = (left + k as f64 * wide, y);
            let extent = ((wide - 1.0).max(0.5), tall - 1.0);
            let says = format!(
                "{}, step {}: {:.1}%",
                h.rows[r].0,
                grouped(h.steps[c] as i64),
                100.0 * share
            );
            s.bar(at, extent, Ink::heat(share), says, false);
            let text = format!("{:.0}", 100.0 * share);
            if wide > font::width("100", size, false) + 4.0 {
                let at = (at.0 + extent.0 / 2.0, y + tall - 5.5);
                s.text(at, size, Anchor::Middle, Ink::on(share), &text);
            }
        }
    }
    let bottom = top + rows.len() as f64 * tall;
    let mut free = left - 8.0;
    let end = right - font::width("step", SMALL, false) - 8.0;
    for (k, &c) in columns.iter().enumerate() {
        let text = grouped(h.steps[c] as i64);
        let half = font::width(&text, size, false) / 2.0;
        let at = left + (k as f64 + 0.5) * wide;
        if at - half > free && at + half < end {
            s.text((at, bottom + 15.0), size, Anchor::Middle, Ink::Soft, &text);
            free = at + half + 6.0;
        }
    }
    s.text((right, bottom + 15.0), size, Anchor::End, Ink::Soft, "step");
    s.height = bottom + 22.0;
    s
}

/// The scale of colours; returns its height.
fn key(s: &mut Scene, width: f64) -> f64 {
    let wide = 126.0f64.min(width / 3.0);
    let cell = wide / HEATS as f64;
    for i in 0..HEATS {
        s.rect(
            (34.0 + i as f64 * cell, 2.0),
            (cell + 0.3, 12.0),
            Ink::Heat(i),
        );
    }
    s.text((0.0, 12.0), SMALL, Anchor::Start, Ink::Soft, "0%");
    let end = 34.0 + wide + GAP;
    s.text(
        (end, 12.0),
        SMALL,
        Anchor::Start,
        Ink::Soft,
        "100% swallowed",
    );
    16.0
}

/// The end of a text that fits: the end tells tensors apart.
fn clipped(text: &str, size: f64, width: f64) -> String {
    if font::width(text, size, false) <= width {
        return text.into();
    }
    let mut rest: &str = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        let shown = format!("…{rest}");
        if font::width(&shown, size, false) <= width {
            return shown;
        }
    }
    String::new()
}

/// At most `most` of `n`, evenly, the first and the last among them.
pub fn evenly(n: usize, most: usize) -> Vec<usize> {
    match n <= most {
        true => (0..n).collect(),
        false => (0..most).map(|i| i * (n - 1) / (most - 1)).collect(),
    }
}
