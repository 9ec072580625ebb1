//! The format on its own: round trip, and refusal of every kind of damage.

use super::meta::{Ancestor, Best, Cursor, DataId, Extents, LedgerMeta, Scaler};
use super::*;
use crate::config::{Preset, SCHEMES, Settings};
use crate::kernels::rng::Stream;

/// A small checkpoint with odd rows, so that packed rows have padding.
pub(crate) fn sample(scheme: Scheme) -> (Meta, Vec<State>, Columns) {
    let settings = Settings {
        n_layer: 1,
        n_head: 1,
        n_embd: 3,
        block: 4,
        steps: 10,
        schemes: vec![scheme],
        lr: 0.1 + 0.2,
        ..Settings::preset(Preset::Tiny)
    };
    let model = settings.model(5);
    let dtype = scheme.policy().storage;
    let mut random = Stream::new(3, 4);
    let mut states = layout(&model, &scheme.policy());
    for s in &mut states {
        let n = s.dims.iter().product();
        let values: Vec<f32> = (0..n).map(|_| random.normal() as f32).collect();
        s.words = dtype.pack(s.row(), &values);
    }
    let columns = Columns {
        lr: vec![1e-4, 2e-4],
        loss: vec![4.1, 4.0],
        grad_norm: vec![1.5, 1.25],
    };
    let meta = Meta {
        format: FORMAT,
        version: "0.1.0".into(),
        plan: "0123456789abcdef".into(),
        model: Extents {
            kind: "char-gpt".into(),
            vocab: 5,
            block: 4,
            n_layer: 1,
            n_head: 1,
            n_embd: 3,
        },
        scheme: scheme.name().into(),
        storage: dtype.name().into(),
        tag: "_x".into(),
        step: 2,
        updates: 2,
        cursor: Cursor::Stream {
            seed: 1337,
            stream: 1,
            next: 16,
        },
        train_ema: Some(4.098),
        // Case 13 of the public bug reports: a scaler's state comes back as it was.
        scaler: scheme.policy().scaled.then_some(Scaler {
            scale: 1024.0,
            good_steps: 1,
            skipped: 0,
        }),
        random: [("rounding".to_string(), u64::MAX)].into(),
        best: Some(Best {
            step: 1,
            val_loss: 1.0 / 3.0,
        }),
        lineage: vec![Ancestor {
            scheme: "fp32".into(),
            until: 0,
            digest: "0".repeat(16),
            rounded: 3,
        }],
        settings,
        data: DataId {
            name: "a \"text\"".into(),
            sha256: "0".repeat(64),
            train_offsets: None,
            val_offsets: "1".repeat(64),
            init: "2".repeat(64),
        },
        vocabulary: "\n\"aé😀".into(),
        ledger: LedgerMeta {
            first: 1,
            digests: vec![(1, "a".repeat(16))],
            curve: vec![(1, 4.2, 4.1)],
            curve_fp32: vec![(1, 1.0 / 3.0, 4.1)],
            ..LedgerMeta::default()
        },
        tensors: roles(&model, &scheme.policy(), false),
        digest: format!("{:016x}", digest(&states)),
        sha256: String::new(),
    };
    (meta, states, columns)
}

/// The bytes of a checkpoint's file.
fn to_file(meta: &Meta, states: &[State], columns: &Columns) -> Result<Vec<u8>, Error> {
    let entries = entries(states, columns, vec![]);
    let mut fetch = |i: usize| {
        let s = &states[i];
        Ok(to_bytes(s.dtype, s.row(), &s.words))
    };
    let mut out = vec![];
    let mut put = |part: &[u8]| {
        out.extend(part);
        Ok(())
    };
    file::serialize(meta, &entries, &mut fetch, &mut put)?;
    Ok(out)
}

fn load(bytes: &[u8]) -> Result<Checkpoint, String> {
    Checkpoint::from_bytes(Path::new("c.safetensors"), bytes).map_err(|e| e.to_string())
}

#[test]
fn round_trip_of_every_scheme() {
    for &scheme in SCHEMES {
        let (meta, states, columns) = sample(scheme);
        let bytes = to_file(&meta, &states, &columns).expect("a file");
        assert_eq!(
            bytes,
            to_file(&meta, &states, &columns).expect("a file"),
            "the same bytes"
        );
        let c = load(&bytes).expect("loads");
        assert_eq!(
            (&c.states, &c.columns, c.scheme()),
            (&states, &columns, scheme)
        );
        let sha256 = c.meta.sha256.clone();
        assert_eq!(c.meta, Meta { sha256, ..meta });
        assert_eq!(c.vocab(), ['\n', '"', 'a', 'é', '😀']);
        let weights = c.weights();
        assert_eq!(
            weights.iter().map(|w| &w.0).collect::<Vec<_>>(),
            c.model()
                .weights()
                .iter()
                .map(|w| &w.name)
                .collect::<Vec<_>>()
        );
    }
}

/// Each byte of the file changed, one at a time, and each shorter file: all are refused.
#[test]
fn every_changed_byte_and_every_cut_is_refused() {
    let (meta, states, columns) = sample(Scheme::Bf16);
    let good = to_file(&meta, &states, &columns).expect("a file");
    let (head, body) =
        good.split_at(8 + u64::from_le_bytes(good[..8].try_into().unwrap()) as usize);
    let padding = head.iter().rev().take_while(|&&b| b == b' ').count();
    for i in 0..good.len() {
        if (head.len() - padding..head.len()).contains(&i) {
            continue; // other white space after the JSON is the same file
        }
        let mut bad = good.clone();
        bad[i] ^= 0x21;
        let e = load(&bad).expect_err("damaged");
        assert!(e.starts_with("c.safetensors: ") && !e.contains('\n'), "{e}");
    }
    assert!(!body.is_empty());
    for n in 0..good.len() {
        load(&good[..n]).expect_err("cut");
    }
    let longer = [&good[..], &[0]].concat();
    load(&longer).expect_err("longer");
}

#[test]
fn other_formats_models_and_values_are_named() {
    let refused = |change: &dyn Fn(&mut Meta, &mut Vec<State>), says: &[&str]| {
        let (mut meta, mut states, columns) = sample(Scheme::Fp32);
        change(&mut meta, &mut states);
        let e = load(&to_file(&meta, &states, &columns).expect("a file")).expect_err("refused");
        says.iter()
            .for_each(|s| assert!(e.contains(s), "{e:?} does not say {s:?}"));
    };
    refused(
        &|m, _| {
            m.format = 2;
            m.version = "9.1.0".into();
        },
        &["format 2", "9.1.0", "newer isobit"],
    );
    refused(&|m, _| m.scheme = "fp4".into(), &["fp4", "fp32"]);
    refused(&|m, _| m.storage = "bf16".into(), &["storage"]);
    refused(&|m, _| m.settings.n_layer = 2, &["model"]);
    refused(
        &|m, _| {
            m.settings.n_embd = 65_535;
            m.model.n_embd = 65_535;
        },
        &["bytes"],
    );
    refused(&|m, _| m.settings.lr = -1.0, &["lr = -1"]);
    refused(&|m, _| m.vocabulary = "abc".into(), &["vocabulary"]);
    refused(&|m, _| m.step = 11, &["steps"]);
    refused(&|m, _| m.tag = "../x".into(), &["tag"]);
    refused(&|m, _| m.digest = "0".repeat(16), &["digest"]);
    refused(&|m, _| m.ledger.first = 9, &["ledger"]);
    refused(
        &|m, s| {
            s[4].words[0] = f32::NAN.to_bits();
            m.digest = format!("{:016x}", digest(s));
        },
        &["pos.weight.m element 0", "not finite"],
    );
}
