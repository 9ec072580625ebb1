//! Generation: a window of tokens and the logits of the one that comes next.
//!
//! The window grows to the model's block. When it is full, the next token drops its older half: what is
//! left starts again at position 0. That rule knows nothing of the cache, so with and without it the
//! model sees the same tokens, and gives the same bits.

use crate::error::{Error, usage};
use crate::exec::{Executor, ProgramId};
use crate::models::char_gpt::CharGpt;
use crate::passes::autocast::Policy;
use crate::passes::compile;
use std::collections::HashMap;
use std::sync::Arc;

/// Most elements of a tensor: kernels count them in 32 bits.
const MOST: u128 = 1 << 31;

/// Refuses a program over more rows than kernels can count the elements of.
///
/// # Errors
/// With the extents, where they are too many.
pub fn check_extent(model: &CharGpt, rows: usize) -> Result<(), Error> {
    let widest = model.vocab.max(4 * model.n_embd) as u128;
    if rows as u128 * widest <= MOST {
        return Ok(());
    }
    usage(format!(
        "a run over {rows} positions at once, vocabulary {}, width {}, is more than 2^31 elements",
        model.vocab, model.n_embd
    ))
}

/// Rows that are put into the cache together.
const ROWS: usize = 32;

/// A model on an executor, and a window of tokens.
pub struct Generator {
    exec: Box<dyn Executor>,
    model: CharGpt,
    policy: Policy,
    /// Whether past rows are kept.
    cached: bool,
    /// Loaded programs by number of rows.
    programs: HashMap<usize, ProgramId>,
    window: Vec<u32>,
    /// Rows of the window that are in the cache.
    done: usize,
}

impl Generator {
    /// Loads the programs and writes the weights, in the model's order. Without `cached`, every token
    /// costs a run over the whole window.
    ///
    /// # Errors
    /// The device cannot hold them.
    pub fn new(
        exec: Box<dyn Executor>,
        model: CharGpt,
        policy: Policy,
        weights: &[(String, Vec<f32>)],
        cached: bool,
    ) -> Result<Generator, Error> {
        let mut out = Generator {
            exec,
            model,
            policy,
            cached,
            programs: HashMap::new(),
            window: Vec::new(),
            done: 0,
        };
        let first: &[usize] = if cached { &[1, ROWS] } else { &[model.block] };
        first
            .iter()
            .try_for_each(|&rows| out.program(rows).map(|_| ()))?;
        make_ready(&mut *out.exec, &model, &policy, weights)?;
        Ok(out)
    }

    /// The executor.
    pub fn exec(&self) -> &dyn Executor {
        &*self.exec
    }

    /// The tokens that the next one is drawn from.
    pub fn window(&self) -> &[u32] {
        &self.window
    }

    /// Starts anew from a text; of a text longer than the block, its end.
    pub fn start(&mut self, tokens: &[u32]) {
        let skip = tokens.len().saturating_sub(self.model.block);
        self.window = tokens[skip..].to_vec();
        self.done = 0;
    }

    /// Appends a token; a full window drops its older half.
    pub fn push(&mut self, token: u32) {
        self.window.push(token);
        if self.window.len() > self.model.block {
            let keep = self.model.block.div_ceil(2);
            self.window.drain(..self.window.len() - keep);
            self.done = 0;
        }
    }

    /// The logits of the token after the window, [vocab].
    ///
    /// # Errors
    /// The device failed.
    ///
    /// # Panics
    /// On an empty window.
    pub fn logits(&mut self) -> Result<Vec<f32>, Error> {
        let n = self.window.len();
        assert!(n > 0, "a window has a token");
        if !self.cached {
            // Lengths by powers of two: what follows a row never reaches it.
            let length = n.next_power_of_two().min(self.model.block);
            return self.run(0, n, length);
        }
        // The last row's logits are wanted, so at least that one is computed again.
        self.done = self.done.min(n - 1);
        loop {
            let count = (n - self.done).min(ROWS);
            let rows = if count == 1 { 1 } else { ROWS };
            let logits = self.run(self.done, count, rows)?;
            self.done += count;
            if self.done == n {
                return Ok(logits);
            }
        }
    }

    /// Runs the program of `rows` rows over `count` tokens of the window from `first` on, padded; returns
    /// the logits of the last of them.
    fn run(&mut self, first: usize, count: usize, rows: usize) -> Result<Vec<f32>, Error> {
        let program = self.program(rows)?;
        let mut idx = self.window[first..first + count].to_vec();
        idx.resize(rows, 0);
        let at: Vec<u32> = (first..first + rows).map(|p| p as u32).collect();
        self.exec.write_input(program, "idx", &idx)?;
        self.exec.write_input(program, "at", &at)?;
        self.exec.run(program)?;
        let words = self.exec.read_output(program, "logits")?;
        let row = &words[(count - 1) * self.model.vocab..count * self.model.vocab];
        Ok(row.iter().map(|&w| f32::from_bits(w)).collect())
    }

    /// The program of that many rows, compiled and loaded when it is first wanted.
    fn program(&mut self, rows: usize) -> Result<ProgramId, Error> {
        if let Some(&id) = self.programs.get(&rows) {
            return Ok(id);
        }
        check_extent(&self.model, rows)?;
        let (name, program) = if self.cached {
            ("follow", self.model.follow_program(rows, &self.policy))
        } else {
            ("logits", self.model.logits_program(1, rows, &self.policy))
        };
        let plan = compile(name, program).map_err(Error::Internal)?;
        let id = self.exec.load(Arc::new(plan))?;
        self.programs.insert(rows, id);
        Ok(id)
    }
}

/// Writes weights, in the model's order, and makes the matrices ready for the programs of generation, one
/// of which must have been loaded.
///
/// # Errors
/// The device failed.
pub fn make_ready(
    exec: &mut dyn Executor,
    model: &CharGpt,
    policy: &Policy,
    weights: &[(String, Vec<f32>)],
) -> Result<(), Error> {
    let plan = compile("ready", model.ready_program(policy)).map_err(Error::Internal)?;
    let ready = exec.load(Arc::new(plan))?;
    write_weights(exec, model, policy, weights)?;
    Ok(exec.run(ready)?)
}

/// Writes weights, in the model's order, in the policy's storage type. A program that uses them must have
/// been loaded.
///
/// # Errors
/// The device failed.
pub fn write_weights(
    exec: &mut dyn Executor,
    model: &CharGpt,
    policy: &Policy,
    weights: &[(String, Vec<f32>)],
) -> Result<(), Error> {
    for (w, (name, data)) in model.weights().iter().zip(weights) {
        assert_eq!(w.name, *name, "weights come in the model's order");
        exec.write_state(name, &policy.storage.pack(w.row(), data))?;
    }
    Ok(())
}
