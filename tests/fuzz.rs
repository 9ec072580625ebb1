//! Hostile files: checkpoints, weights, configs, tables of offsets and texts, changed at random. None may
//! panic, and none may take more memory than its own length allows. Every input is a function of its
//! number, so a failure names the number to run again.
//!
//! `ISOBIT_FUZZ=1000000 cargo test --release --test fuzz -- --nocapture` runs a million inputs.

mod common;
#[path = "common/mutate.rs"]
mod mutate;
#[path = "common/runs.rs"]
mod runs;

use common::{fresh, isobit, repo, stderr};
use isobit::config::{Preset, Settings};
use isobit::data::text::{Offsets, Text};
use isobit::report::ledger::SchemeLedger;
use isobit::train::checkpoint::inspect::inspect_bytes;
use isobit::train::checkpoint::keeper::restore_ledger;
use isobit::train::checkpoint::{Checkpoint, convert::convert};
use isobit::train::weights;
use mutate::{Mutator, reseal};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Inputs where none are asked for.
const INPUTS: u64 = 20_000;
/// Bytes that a loader may hold at its peak for each byte of its input, and besides.
const FACTOR: usize = 64;
const BESIDES: usize = 1 << 20;

/// Memory is counted over the whole process, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Counts the bytes in use.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grown(by: usize) {
    let now = NOW.fetch_add(by, Ordering::Relaxed) + by;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the trait's contract;
// the counters touch no memory but their own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One loader under test: name, seeds, the loader (whether it accepted), and whether some changed inputs
/// get a valid seal, so that what lies behind it is reached.
struct Loader {
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    load: Box<dyn Fn(Vec<u8>) -> bool>,
    resealed: bool,
}

fn checkpoint(bytes: Vec<u8>) -> bool {
    match Checkpoint::from_bytes(Path::new("c"), &bytes) {
        Ok(c) => {
            // What is accepted must be usable.
            let mut ledger = SchemeLedger::new(Path::new("."), "fp32", "");
            restore_ledger(&c, &mut ledger);
            assert_eq!(c.weights().len(), c.model().weights().len());
            for scheme in isobit::config::SCHEMES {
                let _ = convert(&c, *scheme);
            }
            true
        }
        Err(e) => {
            assert!(!e.to_string().is_empty());
            false
        }
    }
}

/// The smallest checkpoints of two schemes, written by the program itself.
fn checkpoints() -> Vec<Vec<u8>> {
    let dir = fresh("fuzz");
    runs::write_config(&dir);
    let config = std::fs::read_to_string(dir.join("train.toml")).expect("the config");
    let small = config
        .replace("n_embd = 32", "n_embd = 6")
        .replace("block = 15", "block = 3");
    std::fs::write(dir.join("train.toml"), small).expect("a config");
    let o = isobit(
        &dir,
        &[
            &runs::CONFIG[..],
            &["--outdir", "a", "--schemes", "mixed,bf16"],
        ]
        .concat(),
    );
    assert!(o.status.success(), "{}", stderr(&o));
    ["mixed", "bf16"]
        .map(|s| {
            dir.join("a/checkpoints")
                .join(s)
                .join("step-00000010.safetensors")
        })
        .map(|p| std::fs::read(p).expect("a checkpoint"))
        .to_vec()
}

fn loaders() -> Vec<Loader> {
    let files = checkpoints();
    let two = repo("tests/data/two-layer");
    let file = |name: &str| std::fs::read(two.join(name)).expect("a file");
    let small = Checkpoint::from_bytes(Path::new("c"), &files[0]).expect("a checkpoint");
    let model = small.model();
    let plain = fresh("fuzz-weights").join("w.safetensors");
    weights::save(&plain, &small.tensors()).expect("written");
    let plain = std::fs::read(plain).expect("weights");
    let config = |bytes: Vec<u8>| {
        let Ok(text) = String::from_utf8(bytes) else {
            return false;
        };
        let mut s = Settings::preset(Preset::Tiny);
        s.apply_text(Path::new("c.toml"), &text)
            .and_then(|()| s.validate())
            .is_ok()
    };
    let offsets =
        |b: Vec<u8>| Offsets::from_reader(Path::new("o.csv"), &b[..], 4, 16, 4004).is_ok();
    let text = |b: Vec<u8>| {
        Text::from_bytes("t", b).is_ok_and(|t| {
            assert!(t.decode(&t.train).is_ok());
            true
        })
    };
    let make = |name, seeds, load, resealed| Loader {
        name,
        seeds,
        load,
        resealed,
    };
    vec![
        make("checkpoint", files.clone(), Box::new(checkpoint), true),
        make(
            "weights",
            vec![plain.clone()],
            Box::new(move |b| weights::from_bytes(Path::new("w"), &b, &model).is_ok()),
            false,
        ),
        make(
            "inspect",
            vec![plain, files[1].clone()],
            Box::new(|b| inspect_bytes(Path::new("i"), &b).is_ok()),
            false,
        ),
        make("config", vec![file("config.toml")], Box::new(config), false),
        make(
            "offsets",
            vec![
                file("val_offsets.csv"),
                b"step,o0,o1,o2,o3\n1,0,1,2,3\n".to_vec(),
            ],
            Box::new(offsets),
            false,
        ),
        make(
            "text",
            vec![file("text.txt")[..600].to_vec(), "aé😀\r\n\u{feff}".into()],
            Box::new(text),
            false,
        ),
    ]
}

#[test]
fn no_file_panics_or_fills_the_memory() {
    let _alone = ALONE.lock();
    let total: u64 = match std::env::var("ISOBIT_FUZZ") {
        Ok(n) => n.parse().expect("ISOBIT_FUZZ is a number of inputs"),
        Err(_) => INPUTS,
    };
    let all = loaders();
    let each = total.div_ceil(all.len() as u64);
    for (stream, l) in all.iter().enumerate() {
        let begin = std::time::Instant::now();
        let (mut accepted, mut worst) = (0, 0.0f64);
        for seed in &l.seeds {
            assert!((l.load)(seed.clone()), "{}: a seed is refused", l.name);
        }
        for number in 0..each {
            let mut m = Mutator::new(stream as u32, number);
            let mut input = m.change(&l.seeds);
            if l.resealed && number % 2 == 0 {
                input = reseal(&mut m, &l.seeds).unwrap_or(input);
            }
            let length = input.len();
            let before = NOW.load(Ordering::Relaxed);
            PEAK.store(before, Ordering::Relaxed);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (l.load)(input)));
            let Ok(ok) = result else {
                panic!("{}: input {number} panics", l.name);
            };
            accepted += u64::from(ok);
            let used = PEAK.load(Ordering::Relaxed) - before;
            assert!(
                used <= FACTOR * length + BESIDES,
                "{}: input {number} of {length} bytes takes {used}",
                l.name
            );
            worst = worst.max(used as f64 / (length + 1024) as f64);
        }
        println!(
            "{}: {each} inputs, {accepted} accepted, at most {worst:.1} bytes held for each byte; {:.1} s",
            l.name,
            begin.elapsed().as_secs_f64()
        );
        assert!(accepted < each, "{}: nothing was refused", l.name);
        assert!(
            accepted > 0,
            "{}: every change was refused: the seeds are not reached",
            l.name
        );
    }
}

/// Nesting without end, and headers that claim what is not there.
#[test]
fn deep_nesting_and_large_claims_are_refused() {
    let _alone = ALONE.lock();
    let path = Path::new("deep");
    for open in ["a = [", "a = {b=", "[a.", "a.", "[[a]]\n"] {
        let text = open.repeat(100_000);
        let mut s = Settings::preset(Preset::Tiny);
        assert!(s.apply_text(path, &text).is_err(), "{open}");
        let text = format!("a = {}", "[".repeat(1_000_000));
        assert!(s.apply_text(path, &text).is_err());
    }
    let file = |header: &str| {
        let mut out = (header.len() as u64).to_le_bytes().to_vec();
        out.extend(header.bytes());
        out
    };
    let deep = "[".repeat(1_000_000);
    for header in [
        deep.clone(),
        format!("{{\"a\":{deep}"),
        r#"{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}"#.into(),
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,0]}}"#.into(),
        format!(
            r#"{{"__metadata__":{{"isobit":"{}"}}}}"#,
            "[".repeat(100_000)
        ),
        r#"{"__metadata__":{"isobit":"{\"format\":18446744073709551616}"}}"#.into(),
    ] {
        assert!(Checkpoint::from_bytes(path, &file(&header)).is_err());
    }
    let dir = fresh("fuzz-claims");
    for claim in [0u64, 1, 100, 1 << 20, 1 << 40, u64::MAX] {
        let name = dir.join("c.safetensors");
        std::fs::write(&name, [&claim.to_le_bytes()[..], b"{}"].concat()).expect("a file");
        assert!(Checkpoint::load(&name).is_err(), "{claim}");
    }
    #[cfg(unix)]
    for device in ["/dev/zero", "/dev/null"] {
        assert!(Checkpoint::load(Path::new(device)).is_err());
    }
}
