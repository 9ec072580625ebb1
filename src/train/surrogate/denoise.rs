//! Flow matching and DDPM: one training program, one moving average, and draws in f32.

use super::batches::{Back, Draws, Events, Schedule, bounds, embed, noised};
use super::settings::{Kind, Settings};
use super::{Pace, Trainer};
use crate::data::showers::Part;
use crate::error::Error;
use crate::exec::{Executor, ProgramId};
use crate::models::showers::{Denoiser, stick_constants};
use crate::models::step::{
    Constant, Model, average_program, digest_program, eval_program, train_program,
};
use crate::models::weight::Weight;
use crate::passes::autocast::{FP32, Policy};
use crate::train::driver::Driver;
use crate::train::weights::Tensors;

/// Batches of the validation loss.
const VALIDATIONS: usize = 4;

/// Trains a [`Denoiser`].
pub struct Denoise {
    driver: Driver,
    model: Denoiser,
    weights: Vec<Weight>,
    kind: Kind,
    schedule: Schedule,
    train: ProgramId,
    average: ProgramId,
    validate: ProgramId,
    digest: ProgramId,
    draw_total: ProgramId,
    draw_shares: ProgramId,
    put: Option<ProgramId>,
    decode: ProgramId,
    draws: Draws,
    events: Events,
    validation: Events,
    /// Least and largest coordinate of the training events: of the total, of each share.
    bounds: [[Vec<f32>; 2]; 2],
}

impl Denoise {
    /// Loads the programs under a policy and writes the initial weights.
    ///
    /// # Errors
    /// The device cannot hold them.
    pub fn new(
        exec: Box<dyn Executor>,
        s: &Settings,
        policy: &Policy,
        events: Events,
    ) -> Result<Denoise, Error> {
        let model = s.denoiser();
        let weights = model.weights();
        let mut driver = Driver::new(exec);
        let noisy = s.kind == Kind::Ddpm;
        let n = s.reference;
        let train = train_program(&model, policy, s.clip as f32, false);
        let train = driver.load("train", train)?;
        let average = driver.load("average", Ok(average_program(&weights)))?;
        let validate = driver.load("validate", eval_program(&model, &FP32, true))?;
        let digest = driver.load("digest", Ok(digest_program(&weights, &weights)))?;
        let draw_total = driver.load("draw-total", Ok(model.draw_program(false, n, noisy)))?;
        let draw_shares = driver.load("draw-shares", Ok(model.draw_program(true, n, noisy)))?;
        let put = match model.autoregressive {
            true => Some(driver.load("put", Ok(model.put_program(n)))?),
            false => None,
        };
        let decode = driver.load("decode", Ok(model.decode_program(n)))?;
        driver.draw_weights(&weights, (s.seed, 0), true)?;
        driver.write_constants(&constants(&model))?;
        Ok(Denoise {
            driver,
            model,
            weights,
            kind: s.kind,
            schedule: Schedule::new(s.noise_steps),
            train,
            average,
            validate,
            digest,
            draw_total,
            draw_shares,
            put,
            decode,
            draws: Draws::training(s.seed),
            validation: Events::load(s.seed, Part::Validation, 1024, s.layers),
            bounds: [
                bounds(&events.total, 1),
                bounds(&events.shares, s.layers - 1),
            ],
            events,
        })
    }

    fn losses(&mut self, program: ProgramId, hyper: Option<&[f32]>) -> Result<[f32; 3], Error> {
        let batch = self.draws.batch(&self.events, self.model.batch);
        let x = noised(self.kind, &self.schedule, &batch, &mut self.draws);
        let mut inputs: Vec<(&str, &[f32])> = vec![
            ("conditions", &batch.conditions),
            ("time", &x.time),
            ("total.noised", &x.total[0]),
            ("total.target", &x.total[1]),
            ("total.clean", &batch.total),
            ("shares.noised", &x.shares[0]),
            ("shares.target", &x.shares[1]),
        ];
        if self.model.autoregressive {
            inputs.push(("shares.clean", &batch.shares));
        }
        inputs.extend(hyper.map(|h| ("hyper", h)));
        self.driver.run(program, &inputs)?;
        let mut out = [0.0; 3];
        for (to, name) in out.iter_mut().zip(["loss", "total", "shares"]) {
            *to = self.driver.scalar(program, name)?;
        }
        Ok(out)
    }

    /// One network's draw: from noise in `state` to coordinates of events.
    ///
    /// DDPM clips the event that it sees at each step to the range of the training events, as Ho et al.'s
    /// sampler clips to that of pixels: the first steps back multiply a mistake in the noise by
    /// 1 / sqrt(kept), some 150, and what a young network makes of numbers so far off grows from step to step.
    fn denoise(
        &mut self,
        program: ProgramId,
        (state, [low, high]): (&str, [Vec<f32>; 2]),
        own: Option<&[f32]>,
        draws: &mut Draws,
        rows: usize,
    ) -> Result<(), Error> {
        let width = low.len();
        self.driver.write(state, &draws.normal(rows * width))?;
        let steps = self.schedule.steps();
        for i in 0..steps {
            let (t, back) = match self.kind {
                Kind::Ddpm => {
                    let k = steps - i;
                    (k as f64 / steps as f64, self.schedule.back(k))
                }
                _ => {
                    let back = Back {
                        event: [0.0; 2],
                        step: [1.0, 1.0 / steps as f64, 0.0],
                    };
                    (i as f64 / steps as f64, back)
                }
            };
            let time = embed(t);
            let [a, b, c] = back.step.map(|x| [x as f32]);
            let [p, q] = back.event.map(|x| [x as f32]);
            let mut inputs: Vec<(&str, &[f32])> = vec![("time", &time), ("a", &a), ("b", &b)];
            let noise;
            if self.kind == Kind::Ddpm {
                noise = draws.normal(rows * width);
                inputs.extend([("c", &c[..]), ("p", &p), ("q", &q), ("noise", &noise)]);
                inputs.extend([("low", &low[..]), ("high", &high)]);
            }
            inputs.extend(own.map(|o| ("own", o)));
            self.driver.run(program, &inputs)?;
        }
        Ok(())
    }
}

/// All constants of its programs, each once.
fn constants(model: &Denoiser) -> Vec<Constant> {
    let mut out = model.constants();
    out.extend(stick_constants(model.layers));
    out
}

impl Trainer for Denoise {
    fn columns(&self) -> &'static [&'static str] {
        &["loss", "loss_total", "loss_shares", "grad_norm"]
    }

    fn step(&mut self, pace: &Pace) -> Result<Vec<f32>, Error> {
        let hyper = pace.hyper(pace.step);
        let mut out = self.losses(self.train, Some(&hyper))?.to_vec();
        out.push(self.driver.scalar(self.train, "grad_norm")?);
        self.driver.run(self.average, &pace.average())?;
        Ok(out)
    }

    fn validate(&mut self) -> Result<Option<f64>, Error> {
        let own = std::mem::replace(&mut self.draws, Draws::fixed(0));
        std::mem::swap(&mut self.events, &mut self.validation);
        let mut sum = Ok(0.0);
        for _ in 0..VALIDATIONS {
            sum = sum.and_then(|s: f64| {
                let [_, total, shares] = self.losses(self.validate, None)?;
                Ok(s + f64::from(total) + f64::from(shares))
            });
        }
        std::mem::swap(&mut self.events, &mut self.validation);
        self.draws = own;
        sum.map(|s| Some(s / VALIDATIONS as f64))
    }

    fn generate(&mut self, conditions: &[f32]) -> Result<Vec<f32>, Error> {
        let (n, d) = (conditions.len() / 3, self.model.layers - 1);
        let mut draws = Draws::fixed(1);
        self.driver.write("draw.conditions", conditions)?;
        let [total, shares] = self.bounds.clone();
        self.denoise(self.draw_total, ("draw.total", total), None, &mut draws, n)?;
        match self.put {
            None => self.denoise(
                self.draw_shares,
                ("draw.shares", shares),
                None,
                &mut draws,
                n,
            )?,
            Some(put) => {
                self.driver.write("draw.shares", &vec![0.0; n * d])?;
                for i in 0..d {
                    let mut own = vec![0.0; d];
                    own[i] = 1.0;
                    let bounds = [vec![shares[0][i]], vec![shares[1][i]]];
                    let column = ("draw.column", bounds);
                    self.denoise(self.draw_shares, column, Some(&own), &mut draws, n)?;
                    self.driver.run(put, &[("own", &own)])?;
                }
            }
        }
        self.driver.run(self.decode, &[])?;
        self.driver.output(self.decode, "fractions")
    }

    fn digest(&mut self) -> Result<u64, Error> {
        self.driver.digest(self.digest)
    }

    fn averages(&mut self) -> Result<Tensors, Error> {
        self.driver.tensors(&self.weights, true)
    }

    fn adopt(&mut self, averages: &Tensors) -> Result<(), Error> {
        self.driver.adopt(averages)
    }

    fn peak_bytes(&self) -> u64 {
        self.driver.exec().memory().peak
    }
}
