//! The report's page: one file, no script, nothing fetched.

use super::charts::{Chapter, chapters, gemm};
use super::plot::chart::{Cells, Chart};
use super::plot::svg::{escape, inline};
use super::plot::{draw, font, style};
use super::read::{Folder, Group};
use super::verdict::{Tone, pair, verdict};
use serde_json::Value;
use std::fmt::Write;

/// Width of a plot beside another, of one that has the page's width, and of one on a telephone.
const WIDTHS: (f64, f64, f64) = (512.0, 1056.0, 350.0);

/// The page of a folder.
pub fn page(f: &Folder) -> String {
    let mut main = String::new();
    let mut toc: Vec<(String, String)> = vec![];
    for g in &f.groups {
        group(&mut main, &mut toc, f, g);
    }
    if let Some(chart) = gemm(f) {
        toc.push(("products".into(), "Matrix products".into()));
        main += "<section aria-labelledby=\"products\"><h2 id=\"products\">Matrix products on \
            this device</h2><div class=\"plots\">";
        figure(&mut main, &chart, "h3");
        main += "</div></section>\n";
    }
    toc.push(("environment".into(), "Environment".into()));
    environment(&mut main, f);
    let links = toc
        .iter()
        .map(|(id, name)| format!("<li><a href=\"#{id}\">{}</a></li>", escape(name)));
    let links: String = links.collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta \
            name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<meta \
            name=\"color-scheme\" content=\"light dark\">\n<title>isobit: what each precision \
            costs</title>\n<link rel=\"icon\" \
            href=\"data:,\">\n<style>{}{}{}</style>\n</head>\n<body>\n<a class=\"skip\" \
            href=\"#main\">To the content</a>\n<header>\n<p class=\"over\">isobit \
            report</p>\n<h1>What each precision costs</h1>\n<p \
            class=\"lead\">{}</p>\n</header>\n<nav class=\"toc\" \
            aria-label=\"Contents\"><ul>{links}</ul></nav>\n<main \
            id=\"main\">\n{main}</main>\n<footer><p>Made by isobit {} from the CSV files beside \
            it. Nothing here is estimated: a figure that was not measured is not \
            shown.</p></footer>\n</body>\n</html>\n",
        faces(),
        include_str!("style.css"),
        style::css(),
        escape(&subject(f)),
        env!("CARGO_PKG_VERSION"),
    )
}

/// The bundled font, inside the page.
fn faces() -> String {
    let face = |weight, bytes| {
        format!(
            "@font-face{{font-family:Inter;font-weight:{weight};src:url(data:font/ttf;base64,{}) \
                format(\"truetype\")}}",
            base64(bytes)
        )
    };
    face(400, font::REGULAR) + &face(600, font::BOLD)
}

/// RFC 4648's base64.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let at = |i: usize| part.get(i).map_or(0, |b| *b as u32);
        let word = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            match i <= part.len() {
                true => out.push(ALPHABET[(word >> (18 - 6 * i) & 63) as usize] as char),
                false => out.push('='),
            }
        }
    }
    out
}

/// A text of `env.json`, by the names on the way to it.
fn at<'a>(f: &'a Folder, way: &[&str]) -> Option<&'a Value> {
    way.iter().try_fold(f.env.as_ref()?, |v, k| v.get(k))
}

fn text(f: &Folder, way: &[&str]) -> Option<String> {
    match at(f, way)? {
        Value::String(s) => Some(s.chars().take(200).collect()),
        Value::Number(n) => Some(n.to_string()),
        _ => None,
    }
}

/// What was trained, where.
fn subject(f: &Folder) -> String {
    let get = |way: &[&str]| text(f, way);
    let mut parts = vec![];
    if let (Some(l), Some(h), Some(w), Some(b)) = (
        get(&["config", "n_layer"]),
        get(&["config", "n_head"]),
        get(&["config", "n_embd"]),
        get(&["config", "block"]),
    ) {
        parts.push(format!(
            "A character-level GPT of {l} layers, {h} heads, width {w} and block {b}"
        ));
    }
    if let Some(name) = get(&["data", "name"]) {
        parts.push(format!("trained on {name}"));
    }
    if let (Some(name), Some(kind)) = (get(&["device", "name"]), get(&["device", "backend"])) {
        parts.push(format!("computed on {name} ({kind})"));
    }
    match parts.is_empty() {
        true => "Measured by isobit; the folder has no env.json that says on what.".into(),
        false => parts.join(", ") + ".",
    }
}

fn group(main: &mut String, toc: &mut Vec<(String, String)>, f: &Folder, g: &Group) {
    let id = format!("verdict{}", g.tag);
    let (name, what) = match (g.tag.is_empty(), f.groups.len() > 1) {
        (true, false) => ("Verdict".into(), String::new()),
        (true, true) => ("Verdict".into(), "The run without a tag.".into()),
        (false, _) => (
            format!("Verdict: {}", g.tag.trim_start_matches('_')),
            format!("The run with the tag {}.", g.tag),
        ),
    };
    toc.push((id.clone(), name.clone()));
    let rate = g.schemes.iter().find_map(|s| {
        let top = s.rates.iter().map(|r| r.1).fold(0.0, f64::max);
        let last = s.rates.last()?;
        Some(format!(
            "{} steps, learning rate up to {top:.1e}, {:.1e} at the end.",
            last.0, last.1
        ))
    });
    let mut lead = format!("{what} {}", rate.unwrap_or_default());
    if !g.folded.is_empty() {
        let tags = g.folded.join(", ");
        lead +=
            &format!(" The tags {tags} are this run from other seeds, shown in the means alone.");
    }
    let _ = write!(
        main,
        "<section aria-labelledby=\"{id}\"><h2 id=\"{id}\">{}</h2><p class=\"lead\">{}</p><ul \
            class=\"verdict\">",
        escape(&name),
        escape(lead.trim())
    );
    for s in verdict(g) {
        let tone = match s.tone {
            Tone::Good => "good",
            Tone::Bad => "bad",
            Tone::Plain => "plain",
        };
        let _ = write!(
            main,
            "<li class=\"{tone}\"><h3 class=\"asked\">{}</h3><div><p class=\"answer\">{}</p><p \
                class=\"figures\">{}</p></div></li>",
            escape(&s.question),
            escape(&s.answer),
            escape(&s.figures)
        );
    }
    *main += "</ul>\n";
    summary(main, g);
    for c in chapters(g) {
        chapter(main, &c);
    }
    policy(main, g);
    *main += "</section>\n";
}

fn chapter(main: &mut String, c: &Chapter) {
    let _ = write!(
        main,
        "<section aria-labelledby=\"{0}\"><h3 id=\"{0}\">{1}</h3>",
        c.id,
        escape(c.title)
    );
    if !c.charts.is_empty() {
        *main += "<div class=\"plots\">";
        c.charts.iter().for_each(|chart| figure(main, chart, "h4"));
        *main += "</div>";
    }
    if !c.missing.is_empty() {
        let items = c
            .missing
            .iter()
            .map(|m| format!("<li>{}</li>", escape(&m.replace('`', ""))));
        let _ = write!(
            main,
            "<ul class=\"missing\">{}</ul>",
            items.collect::<String>()
        );
    }
    *main += "</section>\n";
}

/// A plot at two widths, of which a page shows one, and its table.
fn figure(main: &mut String, c: &Chart, heading: &str) {
    let (class, width) = match c.wide() {
        true => ("wide", WIDTHS.1),
        false => ("plain", WIDTHS.0),
    };
    let id = escape(&c.id);
    let broad = inline(&draw(c, width), &format!("{id}-broad"), &c.title, &c.says);
    let narrow = inline(
        &draw(c, WIDTHS.2),
        &format!("{id}-narrow"),
        &c.title,
        &c.says,
    );
    let _ = writeln!(
        main,
        "<figure class=\"{class}\" id=\"{id}\" \
            data-values=\"{}\"><{heading}>{title}</{heading}><div \
            class=\"broad\">{broad}</div><div \
            class=\"narrow\">{narrow}</div><figcaption>{}</figcaption><details><summary>Data as \
            a table<span hidden>: {title}</span></summary>{}</details></figure>",
        c.values(),
        escape(&c.caption),
        table(&c.cells, &c.title, ""),
        title = escape(&c.title),
    );
}

/// A table that scrolls by itself where it is too wide.
fn table(cells: &Cells, name: &str, class: &str) -> String {
    let head: String = cells
        .header
        .iter()
        .map(|h| format!("<th scope=\"col\">{}</th>", escape(h)))
        .collect();
    let mut body = String::new();
    for row in &cells.rows {
        body += "<tr>";
        for (i, cell) in row.iter().enumerate() {
            let cell = escape(cell);
            let _ = match i {
                0 => write!(body, "<th scope=\"row\">{cell}</th>"),
                _ => write!(body, "<td>{cell}</td>"),
            };
        }
        body += "</tr>";
    }
    let note = match cells.note.is_empty() {
        true => String::new(),
        false => format!("<p class=\"note\">{}</p>", escape(cells.note.trim())),
    };
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table \
            class=\"{class}\"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}",
        escape(&format!("Table: {name}"))
    )
}

/// What each scheme came to.
fn summary(main: &mut String, g: &Group) {
    if g.schemes.is_empty() {
        return;
    }
    let header = [
        "scheme",
        "final validation loss",
        "in fp32",
        "above fp32",
        "ms a step",
        "peak memory, MiB",
        "arithmetic",
        "numerics",
    ];
    let loss = |v: Option<f64>| v.map_or("–".into(), |v| format!("{v:.4}"));
    let rows = g.schemes.iter().map(|s| {
        let sum = s.summary.as_ref();
        let own = sum.and_then(|r| r.loss).or(s.curve.last().map(|p| p.val));
        let own = match s.astray {
            Some(step) => format!("no number from step {step}"),
            None => loss(own),
        };
        let gap = match s.name {
            "fp32" => None,
            name => pair(g, name).map(|p| format!("{:+.4}", p.gap()).replace('-', "−")),
        };
        let kind = if s.name == "fp32" {
            "native"
        } else {
            "emulated"
        };
        vec![
            s.name.to_string(),
            own,
            loss(s.fp32.last().map(|p| p.val)),
            gap.unwrap_or_else(|| "–".into()),
            sum.and_then(|r| r.step_ms)
                .map_or("–".into(), |v| format!("{v:.2}")),
            sum.map_or("–".into(), |r| format!("{:.2}", r.peak_gib * 1024.0)),
            kind.into(),
            sum.map_or("–".into(), |r| r.numerics.clone()),
        ]
    });
    let cells = Cells {
        header: header.map(String::from).to_vec(),
        rows: rows.collect(),
        note: match g.seeds.iter().any(|r| r.seeds > 1) {
            true => {
                "Losses, times and memory are of the first seed's run; the column above fp32 is \
                over all seeds."
                    .into()
            }
            false => String::new(),
        },
    };
    let _ = writeln!(
        main,
        "<div class=\"sum\">{}</div>",
        table(&cells, "summary of the schemes", "")
    );
}

fn policy(main: &mut String, g: &Group) {
    let id = format!("policy{}", g.tag);
    let _ = write!(
        main,
        "<section aria-labelledby=\"{id}\"><h3 id=\"{id}\">Policy</h3>"
    );
    if g.policy.is_empty() {
        let _ = writeln!(
            main,
            "<ul class=\"missing\"><li>No policy table: there is no policy{}.csv. `isobit \
                explain` prints a scheme's.</li></ul></section>",
            escape(&g.tag)
        );
        return;
    }
    *main += "<p class=\"note\">How each scheme treats each operation. Arithmetic inside an \
        operation is f32 throughout; a type says how operands and results are stored.</p>";
    let _ = writeln!(
        main,
        "<details><summary>Operations by scheme: operands → result</summary>{}</details></section>",
        table(&policy_cells(g), "policy", "words")
    );
}

/// A row an operation, a column a scheme.
fn policy_cells(g: &Group) -> Cells {
    const MOST: usize = 16;
    let (mut schemes, mut rows): (Vec<&str>, Vec<Vec<String>>) = (vec![], vec![]);
    for [scheme, op, class, operands, result] in &g.policy {
        if !schemes.contains(&scheme.as_str()) && schemes.len() < MOST {
            schemes.push(scheme);
        }
        let Some(column) = schemes.iter().position(|s| s == scheme) else {
            continue;
        };
        let at = rows.iter().position(|r| r[0] == *op).unwrap_or_else(|| {
            rows.push(vec![op.clone(), class.clone()]);
            rows.len() - 1
        });
        rows[at].resize(2 + column, String::new());
        rows[at].push(format!("{operands} → {result}"));
    }
    let width = 2 + schemes.len();
    rows.iter_mut().for_each(|r| r.resize(width, String::new()));
    let header = ["operation", "class"].into_iter().chain(schemes);
    Cells {
        header: header.map(String::from).collect(),
        rows,
        note: String::new(),
    }
}

/// The digests of all runs.
fn digests(main: &mut String, f: &Folder) {
    let mut rows = vec![];
    for g in &f.groups {
        for s in &g.schemes {
            if let Some((step, digest)) = &s.digest {
                let tag = if g.tag.is_empty() { "–" } else { &g.tag };
                rows.push(vec![
                    digest.clone(),
                    s.name.into(),
                    step.to_string(),
                    tag.into(),
                ]);
            }
        }
    }
    if rows.is_empty() {
        return;
    }
    *main += "<h3 id=\"digests\">Digests of weights and moments</h3><p class=\"note\">The same \
        run has the same digest on every device in portable numerics.</p>";
    let cells = Cells {
        header: ["digest", "scheme", "step", "tag"]
            .map(String::from)
            .to_vec(),
        rows,
        note: String::new(),
    };
    *main += &table(&cells, "digests", "codes");
}

/// What the run was, as `env.json` says.
fn environment(main: &mut String, f: &Folder) {
    *main += "<section aria-labelledby=\"environment\"><h2 id=\"environment\">Environment</h2>";
    let mut rows = vec![];
    match &f.env {
        Some(v) => flatten(v, "", &mut rows),
        None => {
            *main += "<ul class=\"missing\"><li>There is no env.json: device, versions and \
                settings are not known.</li></ul>"
        }
    }
    let (plans, rest): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|r| r[0].starts_with("plans."));
    let cells = |rows| Cells {
        header: vec!["key".into(), "value".into()],
        rows,
        note: String::new(),
    };
    let (facts, config): (Vec<_>, Vec<_>) =
        rest.into_iter().partition(|r| !r[0].starts_with("config."));
    digests(main, f);
    if !facts.is_empty() {
        *main += "<h3 id=\"machine\">Machine, program and data</h3>";
        *main += &table(&cells(facts), "environment", "words");
    }
    for (name, rows) in [
        ("Settings", config),
        ("Hashes of the compiled plans", plans),
    ] {
        if !rows.is_empty() {
            let _ = write!(
                main,
                "<details><summary>{name}</summary>{}</details>",
                table(&cells(rows), name, "words")
            );
        }
    }
    *main += "</section>\n";
}

/// The leaves of a JSON value with the way to each.
fn flatten(v: &Value, way: &str, out: &mut Vec<Vec<String>>) {
    const MOST: usize = 400;
    let below = |k: &str| {
        if way.is_empty() {
            k.to_string()
        } else {
            format!("{way}.{k}")
        }
    };
    match v {
        _ if out.len() >= MOST => {}
        Value::Object(m) => m.iter().for_each(|(k, v)| flatten(v, &below(k), out)),
        Value::Array(a) if a.iter().all(|x| !x.is_object() && !x.is_array()) => {
            let items: Vec<String> = a.iter().map(plain).collect();
            out.push(vec![way.into(), items.join(", ")]);
        }
        Value::Array(a) => a
            .iter()
            .enumerate()
            .for_each(|(i, v)| flatten(v, &below(&i.to_string()), out)),
        Value::Null => {}
        v => out.push(vec![way.into(), plain(v)]),
    }
}

fn plain(v: &Value) -> String {
    match v {
        Value::String(s) => s.chars().take(500).collect(),
        v => v.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_rfc_4648() {
        let pairs = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, coded) in pairs {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
