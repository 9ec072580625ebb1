use super::*;

fn device(name: &str) -> DeviceInfo {
    DeviceInfo {
        backend: "vulkan".into(),
        name: name.into(),
        driver: "d 1".into(),
        kind: "software gpu".into(),
        threads: None,
    }
}

fn choice(key: &str, taken: &str) -> Choice {
    Choice {
        key: key.into(),
        taken: taken.into(),
        times: vec![("a".into(), 3.5), ("b".into(), 1.0)],
    }
}

fn open(file: &Path, name: &str) -> Kept {
    let file = Some(file.to_path_buf());
    Kept::at(file, device(name), Numerics::Portable, || false)
}

fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("isobit-choices-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir); // of an earlier run
    std::fs::create_dir_all(&dir).expect("a folder");
    dir
}

#[test]
fn choices_come_back_for_their_own_device_and_others_stay() {
    let dir = folder("back");
    let file = dir.join("v.json");
    let mut one = open(&file, "x");
    // Another process, at the same time.
    let mut two = open(&file, "x");
    one.add(&choice("k", "b"));
    one.close(Duration::ZERO);
    two.add(&choice("l", "a"));
    two.close(Duration::ZERO);
    let again = open(&file, "x");
    assert_eq!(again.kept("k"), Some(choice("k", "b")));
    assert_eq!(again.kept("l"), Some(choice("l", "a")));
    assert_eq!(again.kept("m"), None);
    assert_eq!(open(&file, "y").kept("k"), None, "another device");
    let fast = Kept::at(Some(file.clone()), device("x"), Numerics::Fast, || false);
    assert_eq!(fast.kept("k"), None, "another grade");
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn what_is_damaged_or_hostile_is_not_used() {
    let dir = folder("bad");
    let file = dir.join("v.json");
    let mut good = open(&file, "x");
    good.add(&choice("k", "b"));
    good.close(Duration::ZERO);
    let text = std::fs::read_to_string(&file).expect("written");
    let long = format!("\"key\": \"{}\"", "k".repeat(NAME + 1));
    let edits = [
        ("isobit choices 1", "isobit choices 2"),
        ("\"taken\": \"b\"", "\"taken\": \"c\""),
        ("3.5", "-3.5"),
        ("3.5", "1e999"),
        ("\"key\": \"k\"", "\"key\": \"\\u001b[2J\""),
        ("\"key\": \"k\"", long.as_str()),
        ("portable", "fast"),
        ("}", ""),
    ];
    for (from, to) in edits {
        assert!(text.contains(from), "{from}");
        std::fs::write(&file, text.replace(from, to)).expect("written");
        assert_eq!(open(&file, "x").kept("k"), None, "{to}");
    }
    for bytes in [&b""[..], b"null", b"\xff\xfe"] {
        std::fs::write(&file, bytes).expect("written");
        assert_eq!(open(&file, "x").kept("k"), None);
    }
    // The next measurement makes it anew.
    let mut anew = open(&file, "x");
    anew.add(&choice("k", "a"));
    anew.close(Duration::ZERO);
    assert_eq!(open(&file, "x").kept("k"), Some(choice("k", "a")));
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn a_device_has_a_file_for_each_grade() {
    let all = [Numerics::Portable, Numerics::Fast].map(|g| place(&device("x"), g));
    assert_ne!(all[0], all[1]);
    assert_ne!(all[0], place(&device("y"), Numerics::Portable));
}
