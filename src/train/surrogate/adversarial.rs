//! WGAN-GP: critic and generator take turns over one executor's states.

use super::batches::{Draws, Events};
use super::settings::Settings;
use super::{Pace, Trainer};
use crate::error::Error;
use crate::exec::{Executor, ProgramId};
use crate::models::step::{Model, average_program, digest_program, train_program};
use crate::models::weight::Weight;
use crate::models::wgan::{Critic, Gan, Generator, TOTAL_NOISE};
use crate::passes::autocast::Policy;
use crate::train::driver::Driver;
use crate::train::weights::Tensors;

/// Trains a [`Gan`].
pub struct Adversarial {
    driver: Driver,
    gan: Gan,
    n_critic: usize,
    generator: Vec<Weight>,
    critic_step: ProgramId,
    generator_step: ProgramId,
    average: ProgramId,
    digest: ProgramId,
    draw: ProgramId,
    draws: Draws,
    events: Events,
}

impl Adversarial {
    /// Loads the programs under a policy and writes the initial weights.
    ///
    /// # Errors
    /// The device cannot hold them.
    pub fn new(
        exec: Box<dyn Executor>,
        s: &Settings,
        policy: &Policy,
        events: Events,
    ) -> Result<Adversarial, Error> {
        let gan = s.gan();
        let (generator, critic) = (gan.generator_weights(), Critic(gan).weights());
        let clip = s.clip as f32;
        let mut driver = Driver::new(exec);
        let critic_step = train_program(&Critic(gan), policy, clip, false);
        let critic_step = driver.load("critic", critic_step)?;
        let generator_step = train_program(&Generator(gan), policy, clip, false);
        let generator_step = driver.load("generator", generator_step)?;
        let average = driver.load("average", Ok(average_program(&generator)))?;
        let both: Vec<Weight> = generator.iter().chain(&critic).cloned().collect();
        let digest = driver.load("digest", Ok(digest_program(&both, &generator)))?;
        let draw = driver.load("draw", Ok(gan.draw_program(s.reference)))?;
        driver.draw_weights(&generator, (s.seed, 0), true)?;
        driver.draw_weights(&critic, (s.seed, generator.len()), false)?;
        driver.write_constants(&Generator(gan).constants())?;
        Ok(Adversarial {
            driver,
            gan,
            n_critic: s.n_critic,
            generator,
            critic_step,
            generator_step,
            average,
            digest,
            draw,
            draws: Draws::training(s.seed),
            events,
        })
    }

    fn noise(&self, draws: &mut Draws, n: usize) -> [Vec<f32>; 2] {
        [TOTAL_NOISE, self.gan.layers - 1].map(|width| draws.normal(n * width))
    }

    fn critic(&mut self, hyper: &[f32]) -> Result<(), Error> {
        let n = self.gan.batch;
        let batch = self.draws.batch(&self.events, n);
        let mut draws = std::mem::replace(&mut self.draws, Draws::fixed(0));
        let [total, shares] = self.noise(&mut draws, n);
        let mix: Vec<f32> = (0..n).map(|_| draws.noise.unit() as f32).collect();
        self.draws = draws;
        let inputs: [(&str, &[f32]); 6] = [
            ("conditions", &batch.conditions),
            ("noise.total", &total),
            ("noise.shares", &shares),
            ("real", &batch.fractions),
            ("mix", &mix),
            ("hyper", hyper),
        ];
        self.driver.run(self.critic_step, &inputs)
    }
}

impl Trainer for Adversarial {
    fn columns(&self) -> &'static [&'static str] {
        &[
            "loss",
            "distance",
            "penalty",
            "critic_grad_norm",
            "generator_loss",
            "grad_norm",
        ]
    }

    fn step(&mut self, pace: &Pace) -> Result<Vec<f32>, Error> {
        let mut out = Vec::new();
        for i in 0..self.n_critic {
            // Each side has its own counter of updates.
            let before = (pace.step - 1) * self.n_critic as u64;
            self.critic(&pace.hyper(before + i as u64 + 1))?;
            if i + 1 == self.n_critic {
                for name in ["loss", "distance", "penalty", "grad_norm"] {
                    out.push(self.driver.scalar(self.critic_step, name)?);
                }
            }
        }
        let n = self.gan.batch;
        let batch = self.draws.batch(&self.events, n);
        let mut draws = std::mem::replace(&mut self.draws, Draws::fixed(0));
        let [total, shares] = self.noise(&mut draws, n);
        self.draws = draws;
        let hyper = pace.hyper(pace.step);
        let inputs: [(&str, &[f32]); 4] = [
            ("conditions", &batch.conditions),
            ("noise.total", &total),
            ("noise.shares", &shares),
            ("hyper", &hyper),
        ];
        self.driver.run(self.generator_step, &inputs)?;
        for name in ["loss", "grad_norm"] {
            out.push(self.driver.scalar(self.generator_step, name)?);
        }
        self.driver.run(self.average, &pace.average())?;
        Ok(out)
    }

    /// A critic's loss says nothing of quality: the distance of the layers' energies stands for it.
    fn validate(&mut self) -> Result<Option<f64>, Error> {
        Ok(None)
    }

    fn generate(&mut self, conditions: &[f32]) -> Result<Vec<f32>, Error> {
        let n = conditions.len() / 3;
        let [total, shares] = self.noise(&mut Draws::fixed(1), n);
        let inputs: [(&str, &[f32]); 3] = [
            ("conditions", conditions),
            ("noise.total", &total),
            ("noise.shares", &shares),
        ];
        self.driver.run(self.draw, &inputs)?;
        self.driver.output(self.draw, "fractions")
    }

    fn digest(&mut self) -> Result<u64, Error> {
        self.driver.digest(self.digest)
    }

    fn averages(&mut self) -> Result<Tensors, Error> {
        self.driver.tensors(&self.generator, true)
    }

    fn adopt(&mut self, averages: &Tensors) -> Result<(), Error> {
        self.driver.adopt(averages)
    }

    fn peak_bytes(&self) -> u64 {
        self.driver.exec().memory().peak
    }
}
