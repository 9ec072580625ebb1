//! Certificates: the digests of a run and all that they depend on, so that another machine can compare
//! its own run without a tensor being moved.

use super::check::Outcome;
use super::course::{Course, weights_hash};
use super::passport::Passport;
use crate::config::Settings;
use crate::error::{Error, usage};
use crate::exec::{Numerics, wgsl};
use crate::train::run::Data;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version of the JSON.
const FORMAT: &str = "isobit certificate 1";
/// No certificate is longer.
const LONGEST: u64 = 64 << 20;
/// Most digests that a certificate may hold.
const MOST: usize = 10_000_000;

/// The text that a run read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// Its name.
    pub name: String,
    /// Its SHA-256.
    pub sha256: String,
}

/// The digests tensor by tensor at a step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtStep {
    /// The step.
    pub step: usize,
    /// In the order of the scheme's tensors.
    pub digests: Vec<String>,
}

/// One scheme's run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchemeRun {
    /// The scheme.
    pub scheme: String,
    /// Hash of the training plan.
    pub plan: String,
    /// (step, digest of all weights and moments after it).
    pub digests: Vec<(usize, String)>,
    /// Names of the tensors.
    pub tensors: Vec<String>,
    /// Their digests, every few steps and after the last.
    pub by_tensor: Vec<AtStep>,
}

/// A certificate.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// Names this format.
    pub format: String,
    /// The program's version.
    pub version: String,
    /// Hash of the program's shaders.
    pub shaders: String,
    /// What is promised of the bits.
    pub numerics: Numerics,
    /// Steps covered.
    pub steps: usize,
    /// The settings; files are named by their hashes below instead.
    pub config: Settings,
    /// The text.
    pub text: Text,
    /// SHA-256 of the initial weights.
    pub weights: String,
    /// SHA-256 of the batches' places in the text.
    pub batches: String,
    /// The devices that gave these digests.
    pub passports: Vec<Passport>,
    /// The schemes.
    pub runs: Vec<SchemeRun>,
}

/// The beginning of a hash.
fn short(hash: &str) -> String {
    hash.chars().take(16).collect()
}

fn hex(d: u64) -> String {
    format!("{d:016x}")
}

/// Whether a text is what [`hex`] gives.
fn is_digest(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Settings without the files, whose contents count and not their places.
fn without_files(s: &Settings) -> Settings {
    Settings {
        init: None,
        text: None,
        train_offsets: None,
        val_offsets: None,
        ..s.clone()
    }
}

impl SchemeRun {
    /// From a comparison on which all devices agreed.
    pub fn new(course: &Course, outcome: &Outcome) -> SchemeRun {
        let at = outcome.tensors.iter().map(|(step, digests)| AtStep {
            step: *step,
            digests: digests.iter().map(|d| hex(*d)).collect(),
        });
        SchemeRun {
            scheme: course.scheme.name().into(),
            plan: course.plan.hash.clone(),
            digests: outcome.digests.iter().map(|&(s, d)| (s, hex(d))).collect(),
            tensors: course.tensors(),
            by_tensor: at.collect(),
        }
    }

    /// Refuses digests that are none, and gaps in the steps. The steps of the digests tensor by tensor
    /// are the multiples of one number and the last step; digests of the whole are there too, and at
    /// the multiples of another number. That number is the first step which is not among the former.
    fn sound(&self, last: usize) -> Result<(), String> {
        let whole = self.digests.iter().map(|d| (d.0, &d.1));
        let parts = self.by_tensor.iter();
        let parts = parts.flat_map(|a| a.digests.iter().map(|d| (a.step, d)));
        if let Some((step, _)) = whole.chain(parts).find(|(_, d)| !is_digest(d)) {
            return Err(format!(
                "its digest of step {step} is not 16 hex digits; record it anew"
            ));
        }
        let tensors = self.by_tensor.first().map_or(0, |a| a.step);
        let rare = |step: usize| step == last || step.is_multiple_of(tensors);
        let mut others = self.digests.iter().map(|d| d.0);
        let every = others.find(|&s| !rare(s)).unwrap_or(last);
        if tensors == 0 || every == 0 {
            return Err(format!("its run of {} is not whole", self.scheme));
        }
        let next = |at: usize, by: usize| (at / by + 1).saturating_mul(by).min(last);
        let gap = |steps: &mut dyn Iterator<Item = usize>, by: [usize; 2]| {
            let mut at = 0;
            for step in steps {
                let due = next(at, by[0]).min(next(at, by[1]));
                if at == last || step != due {
                    return Some(due.min(step));
                }
                at = step;
            }
            (at != last).then_some(last)
        };
        let found = gap(&mut self.digests.iter().map(|d| d.0), [every, tensors]);
        let found = found.or_else(|| {
            let mut steps = self.by_tensor.iter().map(|a| a.step);
            gap(&mut steps, [tensors, last])
        });
        match found {
            None => Ok(()),
            Some(step) => Err(format!(
                "its run of {} has a gap in its digests at step {step}; record it anew",
                self.scheme
            )),
        }
    }

    /// The steps from `first` to `last` with digests.
    pub fn recorded_within(&self, first: usize, last: usize) -> Vec<usize> {
        let steps = self.digests.iter().map(|d| d.0);
        steps.filter(|s| (first..=last).contains(s)).collect()
    }

    /// The digest after a step, where it is recorded.
    pub fn digest(&self, step: usize) -> Option<u64> {
        let found = self.digests.iter().find(|d| d.0 == step)?;
        u64::from_str_radix(&found.1, 16).ok()
    }

    /// The first step from `step` on with digests tensor by tensor.
    pub fn recorded_from(&self, step: usize) -> Option<usize> {
        let steps = self.by_tensor.iter().map(|a| a.step);
        steps.filter(|&s| s >= step).min()
    }

    /// Names of the tensors whose digests differ from those recorded at a step; none if the step has no
    /// record.
    pub fn differing(&self, step: usize, digests: &[u64]) -> Option<Vec<&str>> {
        let at = self.by_tensor.iter().find(|a| a.step == step)?;
        let all = self.tensors.iter().zip(at.digests.iter().zip(digests));
        let differ = all.filter(|(_, (a, b))| **a != hex(**b));
        Some(differ.map(|(name, _)| name.as_str()).collect())
    }
}

impl Certificate {
    /// A certificate of a run.
    pub fn new(
        s: &Settings,
        data: &Data,
        weights: &[(String, Vec<f32>)],
        batches: String,
        steps: usize,
        passports: Vec<Passport>,
        runs: Vec<SchemeRun>,
    ) -> Certificate {
        Certificate {
            format: FORMAT.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            shaders: wgsl::hash(),
            numerics: s.numerics,
            steps,
            config: without_files(s),
            text: Text {
                name: data.text.name.clone(),
                sha256: data.text.sha256.clone(),
            },
            weights: weights_hash(weights),
            batches,
            passports,
            runs,
        }
    }

    /// Reads a certificate of this version of the program.
    ///
    /// # Errors
    /// A file that is none, or is one of another version.
    pub fn read(path: &Path) -> Result<Certificate, Error> {
        let at = path.display();
        let meta = std::fs::metadata(path).map_err(Error::io("read", path))?;
        if !meta.is_file() || meta.len() > LONGEST {
            return usage(format!("{at}: a certificate is a file of at most 64 MiB"));
        }
        let bytes = std::fs::read(path).map_err(Error::io("read", path))?;
        // The version comes first: another one may have other fields.
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: String,
        }
        let head: Head = match serde_json::from_slice(&bytes) {
            Ok(h) => h,
            Err(e) => return usage(format!("{at}: is no certificate: {e}")),
        };
        if head.format != FORMAT {
            return usage(format!(
                "{at}: its format is {:?}, this program reads {FORMAT:?}",
                head.format
            ));
        }
        let version = env!("CARGO_PKG_VERSION");
        if head.version != version {
            return usage(format!(
                "{at}: was made by isobit {}, this is {version}; bits are promised within one version: record it anew",
                head.version
            ));
        }
        let c: Certificate = match serde_json::from_slice(&bytes) {
            Ok(c) => c,
            Err(e) => return usage(format!("{at}: is not a whole certificate: {e}")),
        };
        c.sound().or_else(|why| usage(format!("{at}: {why}")))?;
        Ok(c)
    }

    /// Refuses what no run writes.
    fn sound(&self) -> Result<(), String> {
        self.config.validate().map_err(|e| e.to_string())?;
        let shaders = wgsl::hash();
        if self.shaders != shaders {
            return Err(format!(
                "its shaders are {}, this build's are {shaders}: record it anew with this build",
                self.shaders
            ));
        }
        let in_range = (1..=self.config.steps).contains(&self.steps);
        if !in_range || self.runs.is_empty() || self.numerics != self.config.numerics {
            return Err("its steps, schemes or numerics do not fit its config".into());
        }
        for r in &self.runs {
            let listed = self.config.schemes.iter().any(|s| s.name() == r.scheme);
            let entries = r.digests.len() + r.by_tensor.len() * (1 + r.tensors.len());
            let ascending = r.digests.windows(2).all(|w| w[0].0 < w[1].0);
            let whole = r.digests.last().is_some_and(|d| d.0 == self.steps)
                && r.by_tensor
                    .iter()
                    .all(|a| a.digests.len() == r.tensors.len());
            if !listed || entries > MOST || !ascending || !whole {
                return Err(format!("its run of {} is not whole", r.scheme));
            }
            r.sound(self.steps)?;
        }
        for (i, r) in self.runs.iter().enumerate() {
            if self.runs[..i].iter().any(|o| o.scheme == r.scheme) {
                return Err(format!("it lists {} twice; record it anew", r.scheme));
            }
        }
        if self.passports.is_empty() {
            return Err(
                "it has no passport of the device that it was recorded on; record it anew".into(),
            );
        }
        // A fast run may be recorded on any device.
        let failed = self.passports.iter().find(|p| !p.portable);
        match failed.filter(|_| self.numerics == Numerics::Portable) {
            Some(p) => Err(format!(
                "it was recorded on {}, which its passport says is not portable; record it anew on another device",
                p.device.name
            )),
            None => Ok(()),
        }
    }

    /// Fails unless settings are the certificate's, files aside.
    ///
    /// # Errors
    /// Every key that differs, with both values.
    pub fn fits(&self, s: &Settings) -> Result<(), Error> {
        let json = |s: &Settings| match serde_json::to_value(without_files(s)) {
            Ok(serde_json::Value::Object(m)) => m,
            _ => Default::default(),
        };
        let (theirs, mine) = (json(&self.config), json(s));
        let differ: Vec<String> = mine
            .iter()
            // The name is of a folder, the schemes are chosen among the recorded ones.
            .filter(|(k, v)| {
                !["name", "schemes"].contains(&k.as_str()) && theirs.get(*k) != Some(v)
            })
            .map(|(k, v)| {
                let there = theirs.get(k).map_or("nothing".into(), |t| t.to_string());
                format!("{k} is {there} there and {v} here")
            })
            .collect();
        if differ.is_empty() {
            return Ok(());
        }
        usage(format!(
            "the certificate is of another run: {}; leave these flags out to repeat its run",
            differ.join(", ")
        ))
    }

    /// Fails unless text, initial weights and batches are the certificate's.
    ///
    /// # Errors
    /// What differs and how to give it.
    pub fn same_inputs(
        &self,
        data: &Data,
        weights: &[(String, Vec<f32>)],
        batches: &str,
    ) -> Result<(), Error> {
        self.same_text(data)?;
        let hash = weights_hash(weights);
        if self.weights != hash {
            return usage(format!(
                "the certificate's initial weights have SHA-256 {}…, these {}…; give them with --init",
                short(&self.weights),
                short(&hash)
            ));
        }
        self.same_batches(batches)
    }

    /// Fails unless text and batches are the certificate's.
    ///
    /// # Errors
    /// What differs and how to give it.
    pub fn same_data(&self, data: &Data, batches: &str) -> Result<(), Error> {
        self.same_text(data)?;
        self.same_batches(batches)
    }

    fn same_text(&self, data: &Data) -> Result<(), Error> {
        let (theirs, mine) = (&self.text, &data.text);
        if theirs.sha256 == mine.sha256 {
            return Ok(());
        }
        usage(format!(
            "the certificate's text is {} (SHA-256 {}…), this one is {} ({}…); give it with --data",
            theirs.name,
            short(&theirs.sha256),
            mine.name,
            short(&mine.sha256)
        ))
    }

    fn same_batches(&self, batches: &str) -> Result<(), Error> {
        if self.batches == batches {
            return Ok(());
        }
        usage(format!(
            "the certificate's batches have SHA-256 {}…, these {}…; name its config file, whose train_offsets they come from",
            short(&self.batches),
            short(batches)
        ))
    }

    /// The recorded run of a scheme, if its plan is this build's.
    ///
    /// # Errors
    /// It is not recorded, or under another plan.
    pub fn run_of(&self, course: &Course) -> Result<&SchemeRun, Error> {
        let name = course.scheme.name();
        let Some(r) = self.runs.iter().find(|r| r.scheme == name) else {
            let known: Vec<&str> = self.runs.iter().map(|r| r.scheme.as_str()).collect();
            return usage(format!(
                "the certificate has {}, not {name}",
                known.join(", ")
            ));
        };
        if r.plan != course.plan.hash {
            return usage(format!(
                "the certificate's plan for {name} is {}, this build's is {}: record it anew with this build",
                r.plan, course.plan.hash
            ));
        }
        if r.tensors != course.tensors() {
            return usage(format!(
                "the certificate's tensors for {name} are not this model's"
            ));
        }
        Ok(r)
    }
}
