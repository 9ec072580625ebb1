//! A model of one's own: an MLP that tells two rings of points apart (docs/models.md explains it).
use isobit::dtype::DType;
use isobit::error::Error;
use isobit::exec::cpu::Cpu;
use isobit::graph::{Graph, Type};
use isobit::kernels::rng::Stream;
use isobit::models::step::{Losses, Model, Named, linear, mean_all, train_program};
use isobit::models::weight::{Init, Weight};
use isobit::ops::Op;
use isobit::passes::autocast::{FP32, MIXED};
use isobit::train::{driver::Driver, schedule::Adam};

const BATCH: usize = 64;
struct Mlp;

impl Model for Mlp {
    fn weights(&self) -> Vec<Weight> {
        vec![
            Weight::new("fc.weight", &[32, 3], Init::FanIn), // the third input is 1: a bias
            Weight::new("head.weight", &[2, 32], Init::FanIn),
        ]
    }

    fn losses<'g>(&self, g: &'g Graph, w: &Named<'g>) -> Result<Losses<'g>, String> {
        let x = g.input("x", Type::f32(&[BATCH, 3]));
        let class = g.input("class", Type::new(&[BATCH], DType::U32));
        let h = linear(x, w["fc.weight"]).gelu(); // [n,32]
        let logits = linear(h, w["head.weight"]); // [n,2]
        let loss = g.scope("loss", || mean_all(logits.op(Op::Xent, &[class])));
        Ok(vec![("loss", loss)])
    }
}

fn main() -> Result<(), Error> {
    let adam = Adam::new([0.9, 0.99]);
    for policy in [FP32, MIXED] {
        let mut driver = Driver::new(Box::new(Cpu::new(None)?));
        let step = driver.load("train", train_program(&Mlp, &policy, 1.0, false))?;
        driver.draw_weights(&Mlp.weights(), (1337, 0), false)?;
        let mut draw = Stream::new(1337, 1);
        for t in 1..=300 {
            let class: Vec<u32> = (0..BATCH).map(|_| draw.below(2) as u32).collect();
            let point = |&c: &u32| {
                let (x, y) = (draw.normal() as f32, draw.normal() as f32);
                let stretch = (1.0 + c as f32) / (x * x + y * y).sqrt();
                [x * stretch, y * stretch, 1.0]
            };
            let x: Vec<f32> = class.iter().flat_map(point).collect();
            driver.write_ids(step, "class", &class)?;
            driver.run(step, &[("x", &x), ("hyper", &adam.scalars(1e-2, t))])?;
            if t == 1 || t % 100 == 0 {
                let loss = driver.scalar(step, "loss")?;
                println!("{} step {t}: loss {loss:.4}", policy.name);
            }
        }
    }
    Ok(())
}
