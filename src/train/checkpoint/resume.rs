//! From a path to the run that goes on: which checkpoints, which schemes, and whether settings and data
//! are still those of the run.

use super::file::fault;
use super::locate::{BEST, FOLDER, Which, folders, locate, steps_in};
use super::meta::DataId;
use super::{Checkpoint, Meta};
use crate::config::{SCHEMES, Scheme, Settings};
use crate::error::{Error, usage};
use crate::train::run::Data;
use std::path::{Path, PathBuf};

/// The checkpoints of one run.
#[derive(Debug)]
pub struct Resumed {
    /// The newest checkpoint of each scheme that has one, or the one named.
    pub points: Vec<Checkpoint>,
    /// The schemes to go on with or to start.
    pub schemes: Vec<Scheme>,
    /// The output folder, where the path tells it.
    pub outdir: Option<PathBuf>,
}

/// Scheme and tag of a folder of checkpoints, from its name.
fn name_of(folder: &Path) -> Option<(Scheme, String)> {
    let name = folder.file_name()?.to_str()?;
    let fits = SCHEMES.iter().filter(|s| name.starts_with(s.name()));
    let scheme = fits.max_by_key(|s| s.name().len())?;
    Some((*scheme, name[scheme.name().len()..].to_string()))
}

/// The output folder that a scheme's folder lies in.
fn outdir_of(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let root = folder.parent()?;
    (root.file_name()? == FOLDER).then(|| root.parent().map(Path::to_path_buf))?
}

/// The newest checkpoint of a scheme's folder.
fn newest(folder: &Path) -> Result<Checkpoint, Error> {
    let steps = steps_in(folder)?;
    let path = match steps.last() {
        Some((_, path)) => path.clone(),
        None => folder.join(BEST),
    };
    Checkpoint::load(&path).map_err(|e| match (e, steps.as_slice()) {
        (Error::Weights { path, why }, [.., before, _]) => {
            let hint = format!("{why}; the one before it is {}", before.1.display());
            fault(&path, hint)
        }
        (e, _) => e,
    })
}

impl Resumed {
    /// The checkpoints that a path stands for: those of all schemes of an output folder, or of one scheme
    /// by its folder or a file. `tag` chooses among runs with tags, `only` among schemes.
    ///
    /// # Errors
    /// No checkpoint, one that cannot be used, or several runs: one line that says which.
    pub fn find(path: &Path, tag: Option<&str>, only: Option<&[Scheme]>) -> Result<Resumed, Error> {
        if path.is_file() {
            let point = Checkpoint::load(path)?;
            let outdir = path.parent().and_then(outdir_of);
            return Resumed::one(point, outdir, only);
        }
        let all = if path.is_dir() {
            folders(path)?
        } else {
            vec![]
        };
        if all.is_empty() {
            locate(path, Which::Newest)?; // says what is wrong
        }
        if let [one] = all.as_slice()
            && one == path
        {
            return Resumed::one(newest(one)?, outdir_of(one), only);
        }
        let mut named: Vec<(Scheme, String, PathBuf)> = all
            .into_iter()
            .filter_map(|f| name_of(&f).map(|(s, t)| (s, t, f)))
            .collect();
        named.sort_by_key(|n| SCHEMES.iter().position(|s| *s == n.0));
        let mut tags: Vec<&String> = named.iter().map(|n| &n.1).collect();
        tags.sort();
        tags.dedup();
        let chosen = match (tag, tags.as_slice()) {
            (Some(tag), _) if tags.iter().any(|t| *t == tag) => tag.to_string(),
            (None, [one]) => one.to_string(),
            _ => {
                let quoted: Vec<_> = tags.iter().map(|t| format!("{t:?}")).collect();
                let list = quoted.join(", ");
                let asked = tag.map_or(String::new(), |t| format!(", none with {t:?}"));
                return Err(fault(
                    path,
                    format!(
                        "has checkpoints with the tags {list}{asked}; choose one of them with --tag, or name a scheme's folder"
                    ),
                ));
            }
        };
        named.retain(|n| n.1 == chosen);
        let outdir = if path.join(FOLDER).is_dir() {
            Some(path.to_path_buf())
        } else {
            named.first().and_then(|n| outdir_of(&n.2))
        };
        let mut points = Vec::new();
        for (scheme, _, folder) in &named {
            if only.is_none_or(|o| o.contains(scheme)) {
                points.push(newest(folder)?);
            }
        }
        let mut schemes: Vec<Scheme> = points
            .iter()
            .flat_map(|p| p.meta.settings.schemes.iter().copied().chain([p.scheme()]))
            .chain(only.unwrap_or_default().iter().copied())
            .filter(|s| only.is_none_or(|o| o.contains(s)))
            .collect();
        schemes.sort_by_key(|x| SCHEMES.iter().position(|y| x == y));
        schemes.dedup();
        same_run(&points)?;
        if points.is_empty() {
            let names: Vec<_> = named.iter().map(|n| n.0.name()).collect();
            return Err(fault(
                path,
                format!(
                    "has checkpoints of {} alone; leave out --schemes or choose among them",
                    names.join(", ")
                ),
            ));
        }
        Ok(Resumed {
            points,
            schemes,
            outdir,
        })
    }

    fn one(
        point: Checkpoint,
        outdir: Option<PathBuf>,
        only: Option<&[Scheme]>,
    ) -> Result<Resumed, Error> {
        let scheme = point.scheme();
        if only.is_some_and(|o| o != [scheme]) {
            return Err(fault(
                &point.path,
                format!(
                    "is a checkpoint of {0}; --schemes can only be {0} here (another scheme: --resume-as)",
                    scheme.name()
                ),
            ));
        }
        Ok(Resumed {
            points: vec![point],
            schemes: vec![scheme],
            outdir,
        })
    }

    /// The run's settings, with the schemes to go on with.
    pub fn settings(&self) -> Settings {
        Settings {
            schemes: self.schemes.clone(),
            ..self.points[0].meta.settings.clone()
        }
    }

    /// What is told of the run: the first checkpoint's metadata.
    pub fn meta(&self) -> &Meta {
        &self.points[0].meta
    }

    /// Refuses settings that are not those of the run. Paths may differ: their contents are compared.
    ///
    /// # Errors
    /// The settings that differ.
    pub fn check_settings(&self, s: &Settings) -> Result<(), Error> {
        let differ = differences(&self.meta().settings, s)?;
        if differ.is_empty() {
            return Ok(());
        }
        let steps = if differ.iter().any(|d| d.starts_with("steps ")) {
            " (the learning rate of every step depends on the number of steps)"
        } else {
            ""
        };
        usage(format!(
            "{}: this run has other settings: {}{steps}; leave them out to go on, or start a new run in another --outdir",
            self.points[0].path.display(),
            differ.join(", ")
        ))
    }

    /// Refuses data that are not those of the run.
    ///
    /// # Errors
    /// What differs.
    pub fn check_data(&self, data: &Data) -> Result<(), Error> {
        let was = &self.meta().data;
        let now = data.id(was.init.clone());
        let path = &self.points[0].path;
        let vocab: String = data.text.vocab.iter().collect();
        let other = |what: &str, have: &str, need: &str| {
            Err(fault(
                path,
                format!(
                    "was trained on other {what}: {have}, this is {need}; give the run's own with --data or --config"
                ),
            ))
        };
        let short = |sha: &str| format!("SHA-256 {}…", sha.get(..12).unwrap_or(sha));
        if vocab != self.meta().vocabulary {
            let count = |v: &str| format!("a vocabulary of {} characters", v.chars().count());
            return other(
                "characters",
                &format!("{}, {}", was.name, count(&self.meta().vocabulary)),
                &format!("{}, {}", now.name, count(&vocab)),
            );
        }
        if was.sha256 != now.sha256 {
            return other(
                "text",
                &format!("{}, {}", was.name, short(&was.sha256)),
                &format!("{}, {}", now.name, short(&now.sha256)),
            );
        }
        if was.train_offsets != now.train_offsets {
            return other("training batches", &was.name, "another order of batches");
        }
        if was.val_offsets != now.val_offsets {
            return other("validation batches", &was.name, "another set of batches");
        }
        Ok(())
    }

    /// Takes the checkpoint of a scheme.
    pub fn take(&mut self, scheme: Scheme) -> Option<Checkpoint> {
        let i = self.points.iter().position(|p| p.scheme() == scheme)?;
        Some(self.points.remove(i))
    }
}

/// The settings that shape the run and differ: "lr = 0.1 (the checkpoint has 0.2)".
fn differences(was: &Settings, now: &Settings) -> Result<Vec<String>, Error> {
    let fields = |s: &Settings| {
        let value = serde_json::to_value(s).map_err(|e| Error::Internal(e.to_string()))?;
        match value {
            serde_json::Value::Object(map) => Ok(map),
            _ => Err(Error::Internal("settings are no table".into())),
        }
    };
    let (was, now) = (fields(was)?, fields(now)?);
    let free = [
        "name",
        "schemes",
        "init",
        "text",
        "train_offsets",
        "val_offsets",
    ];
    let other = now
        .iter()
        .filter(|(k, v)| !free.contains(&k.as_str()) && was.get(*k) != Some(v));
    Ok(other
        .map(|(k, v)| {
            let before = was.get(k).map_or("none".into(), |b| b.to_string());
            format!("{k} = {v} (the checkpoint has {before})")
        })
        .collect())
}

/// Refuses checkpoints of different runs in one folder.
fn same_run(points: &[Checkpoint]) -> Result<(), Error> {
    for p in points.iter().skip(1) {
        let first = &points[0];
        let mut why = differences(&first.meta.settings, &p.meta.settings)?;
        // The same text may have been given by two names.
        let named = |c: &Checkpoint| DataId {
            name: String::new(),
            ..c.meta.data.clone()
        };
        if first.meta.data.sha256 != p.meta.data.sha256 {
            why.push("their texts differ".into());
        } else if named(first) != named(p) {
            why.push("their batches or initial weights differ".into());
        }
        if !why.is_empty() {
            return Err(fault(
                &p.path,
                format!(
                    "is of another run than {}: {}; resume one of them by its folder",
                    first.path.display(),
                    why.join(", ")
                ),
            ));
        }
    }
    Ok(())
}
