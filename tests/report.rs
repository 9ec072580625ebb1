//! `isobit report` from the outside: the verdict follows the data, a missing file leaves out its section,
//! a torn or hostile one is one line and code 2, and nothing of a file becomes markup.

mod common;

use common::folders::{LOSES, OPPOSITE, Story, write, write_common};
use common::{fresh, isobit, stderr, stdout};
use isobit::report::read::folder;
use isobit::report::verdict::{Tone, verdict};
use std::path::Path;

/// Question, answer and tone by question.
fn answers(dir: &Path) -> Vec<(String, String, Tone)> {
    let f = folder(dir).expect("a folder");
    let all = verdict(&f.groups[0]);
    all.into_iter()
        .map(|s| (s.question, s.answer, s.tone))
        .collect()
}

fn answer(story: Story, name: &str, asked: &str) -> (String, Tone) {
    let dir = fresh(&format!("verdict-{name}"));
    write(&dir, "", story);
    // One run of each: the seeds' means would speak instead.
    std::fs::remove_file(dir.join("seeds.csv")).expect("removed");
    let found = answers(&dir).into_iter().find(|a| a.0.contains(asked));
    let (_, text, tone) = found.unwrap_or_else(|| panic!("nothing on {asked}"));
    (text, tone)
}

#[test]
fn the_verdict_follows_the_data() {
    let both = |asked: &str| {
        let name = asked.replace(|c: char| !c.is_ascii_alphanumeric(), "");
        (
            answer(LOSES, &format!("a-{name}"), asked),
            answer(OPPOSITE, &format!("b-{name}"), asked),
        )
    };
    let (a, b) = both("mixed match fp32");
    assert_eq!(a, ("Yes: mixed ends where fp32 does.".into(), Tone::Good));
    assert_eq!(
        b,
        ("No: mixed ends 0.210 worse than fp32.".into(), Tone::Bad)
    );
    let (a, b) = both("bf16 lose");
    assert_eq!(
        a,
        (
            "It ends 0.275 nats a character worse than fp32.".into(),
            Tone::Bad
        )
    );
    assert_eq!(b, ("Nothing that can be measured here.".into(), Tone::Good));
    let (a, b) = both("stochastic rounding");
    assert_eq!(a, ("Yes: it ends where fp32 does.".into(), Tone::Good));
    assert_eq!(b, ("No: it ends 0.150 worse than fp32.".into(), Tone::Bad));
    let (a, b) = both("underflowed in fp16");
    assert!(a.0.starts_with("Yes: ") && a.1 == Tone::Bad, "{a:?}");
    assert_eq!(
        b,
        ("No: none at the step that was counted.".into(), Tone::Good)
    );
    let (a, b) = both("kept in fewer bits");
    assert!(
        a.0.contains("would have lost 70.0%") && a.1 == Tone::Bad,
        "{a:?}"
    );
    assert!(b.0.contains("lost only 1.0%") && b.1 == Tone::Good, "{b:?}");
    let (a, b) = both("backward pass have underflowed");
    assert!(
        a.0.starts_with("Yes: up to 12.0%") && a.1 == Tone::Bad,
        "{a:?}"
    );
    assert!(b.0.starts_with("No: ") && b.1 == Tone::Good, "{b:?}");
    let (a, b) = both("worth it");
    assert!(
        a.0.starts_with("Do not bother here") && a.1 == Tone::Bad,
        "{a:?}"
    );
    assert!(
        b.0.starts_with("It saves time and memory, but ends worse"),
        "{b:?}"
    );
    let gains = Story {
        mixed: 0.001,
        ..OPPOSITE
    };
    let c = answer(gains, "c", "worth it");
    assert_eq!(
        c,
        (
            "Yes: mixed saves time and memory and loses nothing.".into(),
            Tone::Good
        )
    );
    let better = Story {
        mixed: -0.08,
        bf16: -0.05,
        ..LOSES
    };
    assert!(
        answer(better, "d", "mixed match")
            .0
            .contains("0.080 better")
    );
    assert!(answer(better, "e", "bf16 lose").0.contains("0.050 better"));
}

/// A run that went astray is told of, and the rest of its folder is shown.
#[test]
fn a_loss_that_is_no_number_is_shown_as_such() {
    let dir = fresh("verdict-astray");
    write(&dir, "", LOSES);
    for kind in ["curve", "curve_fp32eval"] {
        let file = dir.join(format!("{kind}_bf16.csv"));
        let text = std::fs::read_to_string(&file).expect("a curve");
        let astray = |l: &str| match l.split(',').next().and_then(|n| n.parse::<u32>().ok()) {
            Some(step) if step >= 1500 => format!("{step},NaN,inf\n"),
            _ => format!("{l}\n"),
        };
        let text: String = text.lines().map(astray).collect();
        std::fs::write(&file, text).expect("written");
    }
    let all = answers(&dir);
    let asked = all.iter().find(|a| a.0 == "Did bf16 train to its end?");
    let (_, text, tone) = asked.expect("told");
    assert_eq!(
        (text.as_str(), *tone),
        ("No: its loss is no number at step 1500.", Tone::Bad)
    );
    let o = isobit(&dir, &["report", "."]);
    assert!(o.status.success(), "{}", stderr(&o));
    let page = std::fs::read_to_string(dir.join("report.html")).expect("a page");
    assert!(page.contains("no number from step 1500"));
}

#[test]
fn figures_in_the_verdict_are_the_files() {
    let dir = fresh("verdict-figures");
    write(&dir, "", LOSES);
    std::fs::remove_file(dir.join("seeds.csv")).expect("removed");
    let f = folder(&dir).expect("a folder");
    let all = verdict(&f.groups[0]);
    let of = |asked: &str| {
        &all.iter()
            .find(|s| s.question.contains(asked))
            .expect("there")
            .figures
    };
    let bf16 = of("bf16 lose");
    for part in [
        "a difference of +0.2750 nats",
        "both weights evaluated in fp32 at step 2000",
        "one run of each",
        // 0.275 * (step / 2000)^1.5 passes 0.01 between steps 200 and 300.
        "From step 300 on, at a learning rate of 8.65e-4",
        "26.0% of the updates at step 200 and 80.0% at step 2000",
        "most in blocks.3.fc_proj.weight",
    ] {
        assert!(bf16.contains(part), "{part}: {bf16}");
    }
    assert!(of("fp16 with loss scaling").contains("3 of 2000 steps were skipped"));
    // With seeds the means speak, and twice their standard error is the measure.
    write(&dir, "", LOSES);
    let f = folder(&dir).expect("a folder");
    let all = verdict(&f.groups[0]);
    assert!(
        all[0].figures.contains("means of 3 and 3 seeds"),
        "{}",
        all[0].figures
    );
}

#[test]
fn shares_below_a_limit_are_bounded_by_whole_ranges() {
    use isobit::report::verdict::below;
    let h = [(-8.0, 10), (-7.75, 30), (-7.5, 60)];
    assert_eq!(below(&h, -7.5), (0.4, 0.4));
    assert_eq!(below(&h, -7.6), (0.1, 0.4));
    assert_eq!(below(&h, -9.0), (0.0, 0.0));
    assert_eq!(below(&[], -9.0), (0.0, 0.0));
}

#[test]
fn a_whole_folder_gives_a_page_and_plots() {
    let dir = fresh("report-whole");
    let run = dir.join("results/a");
    std::fs::create_dir_all(&run).expect("a folder");
    write(&run, "", LOSES);
    write(&run, "_lowlr", OPPOSITE);
    write_common(&run);
    // The default is every run below `results`.
    let o = isobit(&dir, &["report"]);
    assert!(o.status.success(), "{}", stderr(&o));
    let said = stdout(&o);
    assert!(
        said.contains("verdict (_lowlr)") && said.contains("34 plots"),
        "{said}"
    );
    let page = std::fs::read_to_string(run.join("report.html")).expect("the page");
    for part in ["Verdict: lowlr", "A processor", "no kernel"] {
        assert!(page.contains(part), "{part}");
    }
    for outside in [
        "http://",
        "https://",
        "<script",
        "<link rel=\"style",
        "@import",
        "url(//",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
    let mut plots = 0;
    for entry in std::fs::read_dir(run.join("plots")).expect("plots") {
        let path = entry.expect("an entry").path();
        let bytes = std::fs::read(&path).expect("a plot");
        match path.extension().and_then(|e| e.to_str()) {
            Some("png") => assert!(
                bytes.starts_with(b"\x89PNG") && bytes.len() > 5000,
                "{path:?}"
            ),
            Some("svg") => assert!(
                bytes.starts_with(b"<svg") && bytes.ends_with(b"</svg>\n"),
                "{path:?}"
            ),
            _ => panic!("{path:?}"),
        }
        plots += 1;
    }
    assert_eq!(plots, 68);
    // The same files give the same report.
    assert!(isobit(&dir, &["report", "results/a"]).status.success());
    assert_eq!(
        std::fs::read_to_string(run.join("report.html")).expect("the page"),
        page
    );
}

#[test]
fn a_missing_file_leaves_a_note() {
    let dir = fresh("report-missing");
    write(&dir, "", LOSES);
    let notes = [
        ("scaler_fp16.csv", "there is no scaler_fp16.csv"),
        ("swallow.csv", "there is no swallow.csv"),
        ("tensor_swallow.csv", "there is no tensor_swallow.csv"),
        ("gradhist.csv", "there is no gradhist.csv"),
        ("seeds.csv", "there is no seeds.csv"),
        ("policy.csv", "there is no policy.csv"),
        ("summary.csv", "No step times"),
        ("curve_fp32.csv", "No distances from fp32"),
    ];
    for (file, _) in notes {
        std::fs::remove_file(dir.join(file)).expect("removed");
    }
    let o = isobit(&dir, &["report", "."]);
    assert!(o.status.success(), "{}", stderr(&o));
    let page = std::fs::read_to_string(dir.join("report.html")).expect("the page");
    for (_, note) in notes {
        assert!(page.contains(note), "{note}");
    }
    assert!(page.contains("There is no env.json"));
    assert!(page.contains("Not measured here."));
    let empty = fresh("report-empty");
    let o = isobit(&empty, &["report", "."]);
    assert_eq!(o.status.code(), Some(2));
    assert!(stderr(&o).contains("neither it nor a folder in it has a run's CSV files"));
    let o = isobit(&empty, &["report"]);
    assert_eq!((o.status.code(), stderr(&o).lines().count()), (Some(2), 1));
}

/// A file, and what is done to its text.
type Change = (&'static str, fn(&str) -> String);

#[test]
fn torn_and_hostile_files_are_one_line() {
    let dir = fresh("report-hostile");
    let changes: [Change; 12] = [
        ("curve_mixed.csv", |t| t[..t.len() - 4].into()),
        ("curve_fp32.csv", |t| t.replace("\n100,", "\n100,nan,")),
        ("curve_bf16.csv", |t| t.replace("\n200,", "\n200,1e999,")),
        ("curve_fp32eval_bf16.csv", |_| {
            "step,val_loss,train_ema\n5,1,1\n3,1,1\n".into()
        }),
        ("swallow.csv", |_| "step,swallow_frac\n1,1.5\n".into()),
        ("tensor_swallow.csv", |_| {
            "step,tensor,elements,swallow_frac\n1,a,-4,0.5\n".into()
        }),
        ("gradhist.csv", |_| "log10_bin_lo,count\n-3.0,5\n".into()),
        ("scaler_fp16.csv", |_| {
            "step,loss_scale,skipped\n1,0,0\n".into()
        }),
        ("summary.csv", |t| t.replace("portable", "portable,extra")),
        ("seeds.csv", |t| t.replace("0.0031000", "-1")),
        ("memory.csv", |t| t.replace("parameters,", "parameters,x")),
        ("env.json", |_| "[".repeat(100_000)),
    ];
    for (file, change) in changes {
        write(&dir, "", LOSES);
        write_common(&dir);
        let path = dir.join(file);
        let text = std::fs::read_to_string(&path).expect("a file");
        std::fs::write(&path, change(&text)).expect("written");
        let o = isobit(&dir, &["report", "."]);
        let said = stderr(&o);
        assert_eq!(o.status.code(), Some(2), "{file}: {said}");
        assert_eq!(said.lines().count(), 1, "{file}: {said}");
        assert!(
            said.starts_with("error: ") && said.contains(file),
            "{file}: {said}"
        );
        assert!(!dir.join("report.html").exists(), "{file}: half a result");
    }
    // A folder, binary, a name that is no text of ours.
    write(&dir, "", LOSES);
    write_common(&dir);
    std::fs::remove_file(dir.join("summary.csv")).expect("removed");
    std::fs::create_dir(dir.join("summary.csv")).expect("a folder");
    let o = isobit(&dir, &["report", "."]);
    assert!(o.status.code() == Some(2) && stderr(&o).contains("no regular file"));
    std::fs::remove_dir(dir.join("summary.csv")).expect("removed");
    std::fs::write(dir.join("swallow.csv"), [0xff, 0xfe, 0x00]).expect("written");
    let o = isobit(&dir, &["report", "."]);
    assert!(o.status.code() == Some(2) && stderr(&o).contains("not UTF-8"));
}

#[test]
fn text_of_files_stays_text() {
    let dir = fresh("report-escape");
    write(&dir, "", LOSES);
    write_common(&dir);
    let evil = "<img src=x onerror=alert(1)>";
    let change = |file: &str, from: &str, to: &str| {
        let path = dir.join(file);
        let text = std::fs::read_to_string(&path).expect("a file");
        assert!(text.contains(from), "{file}");
        std::fs::write(path, text.replace(from, to)).expect("written");
    };
    change("env.json", "A processor", evil);
    change("gemm.csv", "fp8", evil);
    change("gemm.csv", "no kernel", "\"</table><script>x</script>\"");
    change("tensor_swallow.csv", "blocks.0.ln1.weight", evil);
    change("scaler_fp16.csv", "grad.blocks.0.attn.weight", evil);
    change("policy.csv", "softmax", evil);
    change("memory.csv", "workspace", evil);
    change("summary.csv", "portable", evil);
    let o = isobit(&dir, &["report", "."]);
    assert!(o.status.success(), "{}", stderr(&o));
    let page = std::fs::read_to_string(dir.join("report.html")).expect("the page");
    assert!(
        !page.contains("<img") && !page.contains("<script") && !page.contains("</table><script"),
        "markup"
    );
    assert!(page.matches("&lt;img src=x onerror=alert(1)&gt;").count() >= 8);
}

/// Files of many rows make no large page: tables and lines are thinned, and say so.
#[test]
fn long_files_are_thinned() {
    use std::fmt::Write;
    let dir = fresh("report-long");
    write(&dir, "", LOSES);
    let mut curve = "step,val_loss,train_ema\n".to_string();
    let mut tensors = "step,tensor,elements,swallow_frac\n".to_string();
    let mut scaler = "step,loss_scale,skipped\n".to_string();
    for i in 1..=50_000 {
        let _ = writeln!(curve, "{i},{}.5,2", 1 + i % 3);
        // As many tensors as steps: nothing may grow with their product.
        let _ = writeln!(tensors, "{i},t{i},4,0.25");
        let _ = writeln!(scaler, "{i},{},1", 1u64 << (i % 20));
    }
    std::fs::write(dir.join("curve_mixed.csv"), curve).expect("written");
    std::fs::write(dir.join("tensor_swallow.csv"), tensors).expect("written");
    std::fs::write(dir.join("scaler_fp16.csv"), scaler).expect("written");
    let o = isobit(&dir, &["report", "."]);
    assert!(o.status.success(), "{}", stderr(&o));
    let page = std::fs::read_to_string(dir.join("report.html")).expect("the page");
    assert!(page.len() < 3_000_000, "{}", page.len());
    assert!(page.contains("300 of 50000 rows; the file has them all."));
    assert!(page.contains("12 of 50000 steps"));
}
