//! `isobit explain`: what a scheme makes of a model, without running it.

use super::Global;
use crate::config::{Preset, Scheme, Settings};
use crate::dtype::DType;
use crate::error::Error;
use crate::exec::bytes;
use crate::graph::Type;
use crate::graph::print::print as print_graph;
use crate::models::char_gpt::{CharGpt, TrainOptions};
use crate::ops::{self, Numeric, OpDef};
use crate::passes::autocast::{FP32, Policy};
use crate::passes::scaling::Scaling;
use crate::passes::{Optional, compile_with};
use crate::plan::account::{Amount, Held, held, held_of_parts, moved, total};
use crate::plan::{Plan, print::print as print_plan};
use crate::train::run::Data;
use crate::train::scaler;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Flags of `explain`.
#[derive(Args, Debug, Clone, Default)]
pub struct ExplainArgs {
    /// Model [default: tiny].
    #[arg(long, value_enum)]
    pub preset: Option<Preset>,
    /// TOML file with the run's settings.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Text whose vocabulary the model has [default: the built-in dialogue].
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Precision scheme [default: the config's `precision`, else mixed].
    #[arg(long, visible_alias = "policy", value_name = "NAME")]
    pub scheme: Option<String>,
    /// Parts to print, comma-separated [default: all].
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    pub show: Option<Vec<Part>>,
}

/// A part of the explanation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Part {
    /// How each operation treats its operands and result.
    Policy,
    /// Bytes held during a training step, by class.
    Bytes,
    /// Launches and bytes moved a step, by kernel, before and after fusion.
    Kernels,
    /// The training step's graph, after autocast and differentiation.
    Graph,
    /// The training step's plan: buffers with their slots, kernel steps.
    Plan,
}

/// Prints the parts; returns the exit code.
///
/// # Errors
/// Settings that cannot be used.
pub fn explain(_: &Global, args: &ExplainArgs) -> Result<i32, Error> {
    let mut s = Settings::preset(args.preset.unwrap_or(Preset::Tiny));
    let several = s.schemes.clone();
    if let Some(path) = &args.config {
        s.apply_file(path)?;
    }
    let scheme = match (&args.scheme, &s.schemes[..]) {
        (Some(name), _) => Scheme::parse(name)?,
        (None, [own]) if s.schemes != several => *own,
        _ => Scheme::Mixed,
    };
    if let Some(path) = &args.data {
        s.text = Some(path.clone());
    }
    s.validate()?;
    let data = Data::load(&s)?;
    let model = s.model(data.text.vocab.len());
    let step = Step {
        model,
        clip: s.clip as f32,
        batch: s.batch,
        policy: s.policy_of(scheme)?,
        scaling: scaler::scaling(&s, &scheme.policy())?,
        accumulate: s.accumulate,
    };
    let wants = |p: Part| args.show.as_ref().is_none_or(|l| l.contains(&p));
    println!(
        "{}, {}: {} layers, {} heads, width {}, block {}, batch {}, vocabulary {}: {} parameters\n",
        s.name,
        scheme.name(),
        s.n_layer,
        s.n_head,
        s.n_embd,
        s.block,
        s.batch,
        model.vocab,
        model.parameters()
    );
    if s.accumulate > 1 {
        println!(
            "a step has {} micro-batches: shown is the program of one of them, whose gradients are summed; \
             the update is a program of its own\n",
            s.accumulate
        );
    }
    if let Some(last) = s.final_policy(scheme)? {
        println!(
            "the last {} steps of {} follow the policy {} on the same weights; shown are those before\n",
            s.final_fp32, s.steps, last.name
        );
    }
    let plan = step.plan(true)?;
    if wants(Part::Policy) {
        policy_table(&step.policy);
        rules_table(&step);
    }
    if wants(Part::Bytes) {
        bytes_table(&step.held(&plan)?);
    }
    if wants(Part::Kernels) {
        kernel_table(&plan, &step.plan(false)?);
    }
    if wants(Part::Graph) {
        println!("graph of the training step, after autocast and differentiation");
        let program = step.program()?;
        println!("{}", print_graph(&program));
    }
    if wants(Part::Plan) {
        println!("{}", print_plan(&plan));
    }
    Ok(0)
}

/// As training compiles.
const FUSED: Optional = Optional {
    fuse: true,
    share_slots: true,
};

/// What the training step is made from.
struct Step {
    model: CharGpt,
    clip: f32,
    batch: usize,
    policy: Policy,
    scaling: Option<Scaling>,
    accumulate: usize,
}

impl Step {
    /// What is held at the peak: of several micro-batches, with the sums and moments that the update has.
    fn held(&self, plan: &Plan) -> Result<Held, Error> {
        if self.accumulate == 1 {
            return Ok(held(plan));
        }
        let update = self.model.train_program(&self.options());
        let update = update.and_then(|p| compile_with("train", p, FUSED));
        Ok(held_of_parts(&update.map_err(Error::Internal)?, plan))
    }

    /// The program of the step, or of a micro-batch where it has several.
    fn program(&self) -> Result<crate::graph::Program, Error> {
        let options = self.options();
        let program = match self.accumulate {
            1 => self.model.train_program(&options),
            _ => self.model.micro_program(&options),
        };
        program.map_err(Error::Internal)
    }

    fn options(&self) -> TrainOptions {
        TrainOptions {
            batch: self.batch,
            clip: self.clip,
            dump_grads: false,
            histogram: false,
            digest: false,
            policy: self.policy,
            accumulate: self.accumulate,
            scaling: self.scaling,
        }
    }

    fn plan(&self, fuse: bool) -> Result<Plan, Error> {
        let passes = Optional { fuse, ..FUSED };
        compile_with("train", self.program()?, passes).map_err(Error::Internal)
    }
}

/// The type of an operation's result where its floating-point operands have a type.
fn result(op: &OpDef, operands: DType) -> DType {
    let cases = (op.cases)();
    let Some(case) = cases.first() else {
        return operands;
    };
    let mut src: Vec<Type> = case.src.iter().map(|s| s.0).collect();
    for t in src.iter_mut().filter(|t| t.dtype.is_float()) {
        t.dtype = operands;
    }
    (op.infer)(&case.op, &src).map_or(operands, |t| t.dtype)
}

/// How each operation is treated: operation, class, operands, result.
pub fn policy_rows(p: &Policy) -> Vec<[String; 4]> {
    let low = p.low.name();
    let row = |op: &'static OpDef| {
        let (class, operands, result) = match op.numeric {
            Numeric::Low => ("low", low, result(op, p.low).name().to_string()),
            Numeric::Guard if p.narrow_activations && op.name != "xent" => (
                "guard",
                "f32",
                format!("{low} where all operands were, else f32"),
            ),
            Numeric::Guard => ("guard", "f32", result(op, DType::F32).name().to_string()),
            Numeric::Follow => ("follow", "widest", "as operands".to_string()),
        };
        [op.name.into(), class.into(), operands.into(), result]
    };
    ops::all().into_iter().map(row).collect()
}

fn policy_table(p: &Policy) {
    let (low, kept) = (p.low.name(), p.storage.name());
    println!("policy {}", p.name);
    println!(
        "  weights, their gradients and moments are stored in {kept}; arithmetic inside an operation is f32"
    );
    println!(
        "  {:<16} {:<7} {:<9} result",
        "operation", "class", "operands"
    );
    for [op, class, operands, result] in policy_rows(p) {
        println!("  {op:<16} {class:<7} {operands:<9} {result}");
    }
    if p.low != DType::F32 {
        println!(
            "  {low} is emulated: packed two to a word, unpacked by integer code; a result is rounded once"
        );
    }
    println!();
}

/// The overrides of the config, and how many operations of the forward pass each holds for.
fn rules_table(step: &Step) {
    let rules = step.policy.rules;
    if rules.all().is_empty() {
        println!(
            "no overrides; a config may have them: [policy] with `attention = \"fp32\"` or `\"blocks.0.*\" = \"fp32\"`\n"
        );
        return;
    }
    let plain = step.model.eval_program(step.batch, &FP32);
    let g = &plain.graph;
    let live = g.live(&plain.roots());
    let found = live.iter().filter(|id| !g.node(**id).src.is_empty());
    let found: Vec<_> = found
        .filter_map(|&id| rules.find(ops::def(&g.node(id).op).name, &g.label(id)))
        .collect();
    println!("overrides: f32 is an island, its backward pass included");
    println!(
        "  {:<24} {:<6} operations of the forward pass",
        "what", "type"
    );
    for r in rules.all() {
        let n = found.iter().filter(|f| **f == r).count();
        let note = match (n, r.class) {
            (0, true) => {
                "  this model has none by itself: what is inside attention or the loss is f32"
            }
            (0, false) => "  other overrides go before it",
            _ => "",
        };
        println!("  {:<24} {:<6} {n}{note}", r.pattern, r.dtype.name());
    }
    println!();
}

fn bytes_table(h: &Held) {
    let state = |n| Amount { peak: n, all: n };
    println!("bytes of the training step: held when most is live, and of all buffers of a class");
    println!("  {:<12} {:>11} {:>11}", "class", "at the peak", "in all");
    for (name, n, what) in [
        ("parameters", state(h.parameters), "weights"),
        ("moments", state(h.moments), "both of AdamW's"),
        ("copies", h.copies, "weights in the type of the products"),
        ("gradients", h.gradients, "of weights"),
        (
            "activations",
            h.activations,
            "saved by the forward pass for the backward pass",
        ),
    ] {
        println!(
            "  {name:<12} {:>11} {:>11}  {what}",
            bytes(n.peak),
            bytes(n.all)
        );
    }
    let (workspace, total) = (bytes(h.workspace), bytes(h.total()));
    println!(
        "  {:<12} {workspace:>11} {:>11}  everything else in the slots",
        "workspace", ""
    );
    println!("  {:<12} {total:>11}\n", "total");
}

fn kernel_table(plan: &Plan, unfused: &Plan) {
    let (after, before) = (total(plan), total(unfused));
    println!("kernels of the training step");
    println!(
        "  {:<16} {:>8} {:>14} {:>7}",
        "kernel", "launches", "bytes moved", "share"
    );
    for (name, m) in moved(plan) {
        let share = 100.0 * m.bytes as f64 / after.bytes as f64;
        println!(
            "  {name:<16} {:>8} {:>14} {share:>6.1}%",
            m.launches,
            bytes(m.bytes)
        );
    }
    println!(
        "  {:<16} {:>8} {:>14}",
        "all",
        after.launches,
        bytes(after.bytes)
    );
    println!(
        "  {:<16} {:>8} {:>14}\n",
        "without fusion",
        before.launches,
        bytes(before.bytes)
    );
}
