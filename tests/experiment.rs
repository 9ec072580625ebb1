//! `isobit experiment`: one command, two folders, two tables, two reports.

mod common;

use common::{Csv, fresh, isobit, stderr, stdout};

#[test]
fn a_small_pair_of_learning_rates() {
    let dir = fresh("experiment");
    let text: String = (0..400).map(|i| format!("line {i} of a text\n")).collect();
    std::fs::write(dir.join("text.txt"), text).expect("a text");
    let args = [
        "experiment",
        "learning-rate",
        "--preset",
        "tiny",
        "--data",
        "text.txt",
        "--batch",
        "1",
        "--steps",
        "102",
        "--seeds",
        "2",
        "--backend",
        "cpu",
        "--outdir",
        "o",
    ];
    let o = isobit(&dir, &args);
    assert!(o.status.success(), "{}", stderr(&o));
    for (name, tag, schemes, rate) in [("seed_rate", "", 2, 1e-3), ("low_rate", "_lowlr", 5, 1e-4)]
    {
        let folder = dir.join("o").join(name);
        let table = Csv::read(&dir.join(format!("o/{name}.csv")));
        assert_eq!(table.rows.len(), 2 * schemes);
        assert_eq!(
            (table.text(0, "seed"), table.text(0, "scheme")),
            ("1", "fp32")
        );
        assert_eq!(table.text(schemes, "seed"), "2");
        let steps = Csv::read(&folder.join(format!("steps_mixed{tag}_seed2.csv")));
        let last = steps.rows.len() - 1;
        assert_eq!(steps.number(99, "lr"), rate);
        let row = schemes + 1;
        assert_eq!(table.text(row, "scheme"), "mixed");
        assert_eq!(table.text(row, "digest"), steps.text(last, "digest"));
        assert_eq!(
            table.text(row, "final_val_loss"),
            steps.text(last, "val_loss")
        );
        let page = std::fs::read_to_string(folder.join("report.html")).expect("a report");
        assert!(page.contains("Does mixed match fp32?"));
    }
    // The same command again finds everything there.
    let before = std::fs::read(dir.join("o/low_rate.csv")).expect("the table");
    let o = isobit(&dir, &args);
    assert!(o.status.success(), "{}", stderr(&o));
    assert!(stdout(&o).contains("there already"), "{}", stdout(&o));
    assert_eq!(
        before,
        std::fs::read(dir.join("o/low_rate.csv")).expect("the table")
    );
}

#[test]
fn what_cannot_say_anything_is_refused_before_a_run() {
    let dir = fresh("experiment-refused");
    let o = isobit(&dir, &["experiment", "learning-rate", "--steps", "50"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(stderr(&o).contains("warm-up"), "{}", stderr(&o));
    let o = isobit(
        &dir,
        &["experiment", "learning-rate", "--seeds", "0", "--data", "x"],
    );
    assert_eq!(o.status.code(), Some(2), "{}", stderr(&o));
    assert_eq!(std::fs::read_dir(&dir).expect("the folder").count(), 0);
    let o = isobit(&dir, &["experiment"]);
    assert!(stdout(&o).contains("learning-rate") || stderr(&o).contains("learning-rate"));
}
