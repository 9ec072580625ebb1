//! Writes a run's checkpoints, and keeps the ones that are asked for.

use super::file::{self, hex};
use super::locate::{BEST, file_name, steps_in};
use super::meta::{Best, DataId, Extents, LedgerMeta, ScalerEntry};
use super::{Checkpoint, Columns, FORMAT, Meta, State, entries, full, roles, to_bytes};
use crate::config::{Scheme, Settings};
use crate::data::named::is_named;
use crate::error::Error;
use crate::models::char_gpt::CharGpt;
use crate::report::files::{sweep, write_durable};
use crate::report::ledger::{CurveRow, ScalerRow, SchemeLedger, StepRow};
use crate::train::progress::Progress;
use crate::train::session::Session;
use sha2::{Digest, Sha256};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// When checkpoints are written, and how many stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// Steps between checkpoints; 0: only where a run ends or is stopped.
    pub every: usize,
    /// How many of the latest stay, besides the best.
    pub keep: usize,
    /// Whether a file that cannot be written ends the run.
    pub stop_on_error: bool,
}

/// Writes the checkpoints of one scheme's run.
pub struct Keeper {
    folder: PathBuf,
    schedule: Schedule,
    template: Meta,
    /// The last step whose checkpoint was written.
    saved: Option<usize>,
}

impl Keeper {
    /// A keeper for a folder, which is made with the first checkpoint. `template` is what stays the same
    /// from one checkpoint to the next, see [`template`].
    pub fn new(folder: &Path, schedule: Schedule, template: Meta) -> Keeper {
        Keeper {
            folder: folder.to_path_buf(),
            schedule,
            template,
            saved: None,
        }
    }

    /// The schedule.
    pub fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// Whether the schedule has a checkpoint after `step`.
    pub fn due(&self, step: usize) -> bool {
        self.schedule.every > 0 && step.is_multiple_of(self.schedule.every)
    }

    /// The file of the last checkpoint written.
    pub fn last(&self) -> Option<PathBuf> {
        self.saved
            .map(|step| self.folder.join(file_name(step as u64)))
    }

    /// Writes the checkpoint of this step, unless it is there already, and removes those that are too
    /// many: older ones only, and only once this one is safe.
    ///
    /// # Errors
    /// The device failed, or the file cannot be written; those before stay as they were.
    pub fn save(
        &mut self,
        session: &mut Session,
        p: &Progress,
        ledger: &SchemeLedger,
    ) -> Result<(), Error> {
        if self.saved == Some(p.step) {
            return Ok(());
        }
        self.write(&file_name(p.step as u64), session, p, ledger)?;
        self.saved = Some(p.step);
        let older: Vec<PathBuf> = steps_in(&self.folder)?
            .into_iter()
            .filter(|(step, _)| *step <= p.step as u64)
            .map(|(_, path)| path)
            .collect();
        for path in older.iter().rev().skip(self.schedule.keep.max(1)) {
            std::fs::remove_file(path).map_err(Error::io("remove", path))?;
        }
        Ok(())
    }

    /// Writes the best checkpoint if this evaluation is the best one.
    ///
    /// # Errors
    /// As [`Keeper::save`]; the best one before stays the best one.
    pub fn save_if_best(
        &mut self,
        session: &mut Session,
        p: &mut Progress,
        ledger: &SchemeLedger,
        val_loss: f64,
    ) -> Result<(), Error> {
        if p.best.is_some_and(|b| b.val_loss <= val_loss) {
            return Ok(());
        }
        let step = p.step as u64;
        let before = p.best.replace(Best { step, val_loss });
        let written = self.write(BEST, session, p, ledger);
        if written.is_err() {
            p.best = before;
        }
        written
    }

    fn write(
        &self,
        name: &str,
        session: &mut Session,
        p: &Progress,
        ledger: &SchemeLedger,
    ) -> Result<(), Error> {
        let mut meta = self.template.clone();
        meta.step = p.step as u64;
        meta.updates = p.updates;
        meta.cursor = p.cursor();
        meta.train_ema = p.ema;
        meta.scaler = session.scaler()?;
        meta.best = p.best;
        meta.lineage = p.lineage.clone();
        // The device's own; what loads the file holds the bytes that were read to it.
        meta.digest = format!("{:016x}", session.digest()?);
        meta.ledger = sparse(ledger, p);
        meta.ledger.peak_bytes = p.peak_bytes.max(session.peak_bytes());
        let frozen = p.frozen.as_ref();
        meta.ledger.full = frozen.map(|f| full::meta(f, &ledger.sheets));
        let more = frozen.map(|f| full::entries(f, &ledger.sheets));
        let states = session.layout();
        let entries = entries(&states, &dense(ledger), more.unwrap_or_default());
        let mut fetch = |i: usize| {
            let s: &State = &states[i];
            Ok(to_bytes(s.dtype, s.row(), &session.state(&s.name)?))
        };
        std::fs::create_dir_all(&self.folder).map_err(Error::io("create", &self.folder))?;
        let path = self.folder.join(name);
        write_durable(&path, |f| {
            let mut put = |part: &[u8]| f.write_all(part).map_err(Error::io("write", &path));
            file::serialize(&meta, &entries, &mut fetch, &mut put)
        })
    }
}

/// Removes what a killed run left of an unfinished write.
pub fn sweep_folder(folder: &Path) {
    sweep(folder, |name| {
        name == BEST || (name.starts_with("step-") && name.ends_with(".safetensors"))
    });
}

/// The metadata that stays the same during a run.
pub fn template(
    model: &CharGpt,
    scheme: Scheme,
    s: &Settings,
    tag: &str,
    vocab: &[char],
    data: DataId,
    plan: &str,
) -> Meta {
    let mut settings = s.clone();
    for path in [
        &mut settings.init,
        &mut settings.text,
        &mut settings.train_offsets,
        &mut settings.val_offsets,
    ] {
        // A run may be resumed from another folder.
        *path = path.take().map(|p| match is_named(&p) {
            true => p,
            false => std::path::absolute(&p).unwrap_or(p),
        });
    }
    Meta {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        plan: plan.into(),
        model: Extents {
            kind: "char-gpt".into(),
            vocab: model.vocab,
            block: model.block,
            n_layer: model.n_layer,
            n_head: model.n_head,
            n_embd: model.n_embd,
        },
        scheme: scheme.name().into(),
        storage: scheme.policy().storage.name().into(),
        tag: tag.into(),
        step: 0,
        updates: 0,
        cursor: super::meta::Cursor::Rows { next: 0 },
        train_ema: None,
        scaler: None,
        random: Default::default(),
        best: None,
        lineage: vec![],
        settings,
        data,
        vocabulary: vocab.iter().collect(),
        ledger: LedgerMeta::default(),
        tensors: roles(model, &scheme.policy(), s.ledger.full_interval > 0),
        digest: String::new(),
        sha256: String::new(),
    }
}

/// SHA-256 of weights in the model's order.
pub fn weights_sha256(weights: &[(String, Vec<f32>)]) -> String {
    let mut hash = Sha256::new();
    for (_, data) in weights {
        data.iter().for_each(|x| hash.update(x.to_le_bytes()));
    }
    hex(&hash.finalize())
}

/// SHA-256 of rows of offsets.
pub(crate) fn rows_sha256(rows: &[Vec<u32>]) -> String {
    let mut hash = Sha256::new();
    for row in rows {
        hash.update((row.len() as u64).to_le_bytes());
        row.iter().for_each(|x| hash.update(x.to_le_bytes()));
    }
    hex(&hash.finalize())
}

fn dense(ledger: &SchemeLedger) -> Columns {
    Columns {
        lr: ledger.steps.iter().map(|r| r.lr).collect(),
        loss: ledger.steps.iter().map(|r| r.loss).collect(),
        grad_norm: ledger.steps.iter().map(|r| r.grad_norm).collect(),
    }
}

fn sparse(ledger: &SchemeLedger, p: &Progress) -> LedgerMeta {
    let curve = |rows: &[CurveRow]| {
        rows.iter()
            .map(|r| (r.step as u64, r.val_loss, r.train_ema))
            .collect()
    };
    let digests = ledger.steps.iter();
    LedgerMeta {
        first: p.first as u64,
        digests: digests
            // A digest taken where a run was stopped is not one of the unbroken run's.
            .filter(|r| r.val_loss.is_some())
            .filter_map(|r| Some((r.step as u64, format!("{:016x}", r.digest?))))
            .collect(),
        curve: curve(&ledger.curve),
        curve_fp32: curve(&ledger.curve_fp32),
        swallow: ledger.swallow.iter().map(|r| (r.0 as u64, r.1)).collect(),
        scaler: ledger.scaler.iter().map(scaler_entry).collect(),
        histogram: ledger.histogram.clone(),
        timed_ms: p.timed_ms,
        timed_steps: p.timed,
        peak_bytes: 0,
        full: None,
        cost: p.cost,
        tensor_swallow: (ledger.tensor_swallow.iter())
            .map(|r| (r.0 as u64, r.1.clone()))
            .collect(),
    }
}

fn scaler_entry(r: &ScalerRow) -> ScalerEntry {
    ScalerEntry {
        step: r.step as u64,
        scale: r.loss_scale.into(),
        skipped: r.skipped,
        applied: r.applied_steps,
        clip: r.clip_factor.map(f64::from),
        first: r.first_nonfinite.clone(),
    }
}

fn scaler_row(e: &ScalerEntry) -> ScalerRow {
    ScalerRow {
        step: e.step as usize,
        loss_scale: e.scale as f32,
        skipped: e.skipped,
        applied_steps: e.applied,
        clip_factor: e.clip.map(|c| c as f32),
        first_nonfinite: e.first.clone(),
    }
}

/// Fills a ledger with what was measured up to a checkpoint.
pub fn restore_ledger(c: &Checkpoint, ledger: &mut SchemeLedger) {
    let l = &c.meta.ledger;
    let curve = |rows: &[(u64, f64, f64)]| {
        rows.iter()
            .map(|&(step, val_loss, train_ema)| CurveRow {
                step: step as usize,
                val_loss,
                train_ema,
            })
            .collect()
    };
    ledger.curve = curve(&l.curve);
    ledger.curve_fp32 = match c.scheme() {
        Scheme::Fp32 => vec![], // the same as its own, which earlier versions kept twice
        _ => curve(&l.curve_fp32),
    };
    ledger.swallow = l.swallow.iter().map(|r| (r.0 as usize, r.1)).collect();
    ledger.scaler = l.scaler.iter().map(scaler_row).collect();
    ledger.histogram = l.histogram.clone();
    ledger.tensor_swallow = (l.tensor_swallow.iter())
        .map(|r| (r.0 as usize, r.1.clone()))
        .collect();
    if let Some(full) = &c.full {
        ledger.sheets = full.sheets.clone();
    }
    let columns = &c.columns;
    let dense = columns.lr.iter().zip(&columns.loss).zip(&columns.grad_norm);
    let row = |(i, ((&lr, &loss), &grad_norm))| StepRow {
        step: l.first as usize + i,
        lr,
        loss,
        grad_norm,
        digest: None,
        val_loss: None,
    };
    ledger.steps = dense.enumerate().map(row).collect();
    // The loader has seen to it that these steps lie within the columns.
    let place = |step: u64| (step - l.first) as usize;
    for (step, digest) in &l.digests {
        ledger.steps[place(*step)].digest = u64::from_str_radix(digest, 16).ok();
    }
    for (step, val_loss, _) in &l.curve {
        ledger.steps[place(*step)].val_loss = Some(*val_loss);
    }
}
