//! Run folders made of CSV text, for the report's tests: what a run of all schemes would leave.
#![allow(dead_code)] // not every test file uses all of it

use std::fmt::Write;
use std::path::Path;

/// How a made-up run comes out.
#[derive(Clone, Copy)]
pub struct Story {
    /// Final loss of mixed above fp32's.
    pub mixed: f64,
    /// Of bf16.
    pub bf16: f64,
    /// Of bf16-sr and bf16-kahan.
    pub cured: f64,
    /// log10 of the most frequent gradient magnitude.
    pub gradients: f64,
    /// Time of a mixed step; fp32's is 8 ms.
    pub mixed_ms: f64,
    /// Peak of mixed in GiB; fp32's is 1.
    pub mixed_gib: f64,
}

/// fp32 is matched, pure bf16 loses, fp16 would underflow, low precision does not pay.
pub const LOSES: Story = Story {
    mixed: 0.0008,
    bf16: 0.275,
    cured: 0.006,
    gradients: -6.5,
    mixed_ms: 8.4,
    mixed_gib: 0.95,
};

/// The opposite of all of it.
pub const OPPOSITE: Story = Story {
    mixed: 0.21,
    bf16: 0.0004,
    cured: 0.15,
    gradients: -2.0,
    mixed_ms: 3.1,
    mixed_gib: 0.55,
};

pub const SCHEMES: [&str; 6] = ["fp32", "mixed", "bf16", "bf16-sr", "bf16-kahan", "fp16"];
const STEPS: usize = 2000;

/// A loss that falls from 4.2 towards 1.93, and a gap that opens over time.
fn loss(step: usize, gap: f64) -> f64 {
    let t = step as f64;
    1.93 + 2.3 * (-t / 220.0).exp()
        + 0.25 * (-t / 1100.0).exp()
        + gap * (t / STEPS as f64).powf(1.5)
}

/// Writes the files of a run with a tag.
pub fn write(dir: &Path, tag: &str, s: Story) {
    let put = |name: String, text: String| std::fs::write(dir.join(name), text).expect("written");
    let gap = |scheme: &str| match scheme {
        "mixed" => s.mixed,
        "bf16" => s.bf16,
        "bf16-sr" => s.cured,
        "bf16-kahan" => 0.7 * s.cured,
        "fp16" => 0.0012,
        _ => 0.0,
    };
    let mut summary = "scheme,step_ms,peak_mem_gib,final_val_loss,numerics\n".to_string();
    let mut memory = "scheme,class,bytes\n".to_string();
    let mut seeds =
        "scheme,seeds,val_loss_mean,val_loss_std,val_loss_min,val_loss_max\n".to_string();
    for scheme in SCHEMES {
        let mut curve = "step,val_loss,train_ema\n".to_string();
        let mut fp32 = curve.clone();
        let mut steps = "step,lr,loss,grad_norm,digest,val_loss\n".to_string();
        for step in std::iter::once(1).chain((100..=STEPS).step_by(100)) {
            let v = loss(step, gap(scheme));
            let _ = writeln!(curve, "{step},{:.7},{:.7}", v + 0.0003, v - 0.12);
            let _ = writeln!(fp32, "{step},{v:.7},{:.7}", v - 0.12);
            let lr = 1e-3 * (1.0 - 0.9 * step as f64 / STEPS as f64);
            let _ = writeln!(steps, "{step},{lr},{v},1.25,00000000{step:08x},{v:.7}");
        }
        put(format!("curve_{scheme}{tag}.csv"), curve);
        // fp32's own curve is this one.
        if scheme != "fp32" {
            put(format!("curve_fp32eval_{scheme}{tag}.csv"), fp32);
        } else {
            put(format!("curve_fp32{tag}.csv"), fp32);
        }
        put(format!("steps_{scheme}{tag}.csv"), steps);
        let (ms, gib) = match scheme {
            "fp32" => (8.0, 1.0),
            "mixed" => (s.mixed_ms, s.mixed_gib),
            _ => (9.0, 0.8),
        };
        let end = loss(STEPS, gap(scheme));
        let _ = writeln!(summary, "{scheme},{ms:.2},{gib:.6},{end:.7},portable");
        for (i, class) in [
            "parameters",
            "moments",
            "copies",
            "gradients",
            "activations",
            "workspace",
            "other",
        ]
        .iter()
        .enumerate()
        {
            let bytes = gib * (1u64 << 30) as f64 * [0.1, 0.2, 0.05, 0.1, 0.35, 0.1, 0.1][i];
            let _ = writeln!(memory, "{scheme},{class},{}", bytes as u64);
        }
        let _ = writeln!(
            seeds,
            "{scheme},3,{end:.7},0.0031000,{:.7},{:.7}",
            end - 0.0035,
            end + 0.0028
        );
    }
    put(format!("summary{tag}.csv"), summary);
    put(format!("memory{tag}.csv"), memory);
    put(format!("seeds{tag}.csv"), seeds);
    ledgers(&put, tag, s);
}

fn ledgers(put: &dyn Fn(String, String), tag: &str, s: Story) {
    let mut swallow = "step,swallow_frac\n".to_string();
    let mut tensors = "step,tensor,elements,swallow_frac\n".to_string();
    let parts = ["ln1", "attn", "proj", "ln2", "fc", "fc_proj"];
    for step in (200..=STEPS).step_by(200) {
        let share = 0.2 + 0.6 * step as f64 / STEPS as f64;
        let _ = writeln!(swallow, "{step},{share:.6}");
        for layer in 0..4 {
            for (i, part) in parts.iter().enumerate() {
                let share = (share * (0.5 + 0.12 * i as f64 + 0.05 * layer as f64)).min(1.0);
                let _ = writeln!(
                    tensors,
                    "{step},blocks.{layer}.{part}.weight,16384,{share:.6}"
                );
            }
        }
    }
    put(format!("swallow{tag}.csv"), swallow);
    put(format!("tensor_swallow{tag}.csv"), tensors);
    let mut histogram = "log10_bin_lo,count\n".to_string();
    for k in 0..56 {
        let low = -12.0 + 0.25 * k as f64;
        let count = (2e5 * (-((low - s.gradients) / 0.9).powi(2)).exp()) as u64;
        let _ = writeln!(histogram, "{low:?},{count}");
    }
    if tag.is_empty() {
        put("gradhist.csv".into(), histogram);
    }
    let mut scaler =
        "step,loss_scale,skipped,applied_steps,clip_factor,first_nonfinite\n".to_string();
    let (mut scale, mut applied) = (65536.0, 0);
    for step in 1..=STEPS {
        let skipped = [1, 2, 1490].contains(&step);
        applied += usize::from(!skipped);
        let culprit = if skipped {
            "grad.blocks.0.attn.weight"
        } else {
            ""
        };
        let _ = writeln!(
            scaler,
            "{step},{scale},{},{applied},1,{culprit}",
            skipped as u8
        );
        scale = match (skipped, step) {
            (true, _) => scale / 2.0,
            (false, 1000 | 1900) => scale * 2.0,
            _ => scale,
        };
    }
    put(format!("scaler_fp16{tag}.csv"), scaler);
    let mut policy = "scheme,operation,class,operands,result\n".to_string();
    for scheme in SCHEMES {
        let low = if scheme == "fp32" { "f32" } else { "bf16" };
        let _ = writeln!(policy, "{scheme},matmul,low,{low},{low}");
        let _ = writeln!(policy, "{scheme},softmax,guard,f32,f32");
    }
    put(format!("policy{tag}.csv"), policy);
    full(put, tag, s);
}

/// The full ledger of mixed and bf16.
fn full(put: &dyn Fn(String, String), tag: &str, s: Story) {
    for scheme in ["mixed", "bf16"] {
        let columns = |kind: usize| isobit::report::sheets::SHEETS[kind].columns().join(",") + "\n";
        let mut all: Vec<String> = (0..5).map(columns).collect();
        let lost = if s.bf16 > 0.01 { 0.7 } else { 0.01 };
        let under = if s.gradients < -5.0 { 0.12 } else { 0.0 };
        for step in (200..=STEPS).step_by(200) {
            for tensor in ["tok.weight", "blocks.0.fc.weight", "*"] {
                let _ = writeln!(
                    all[0],
                    "{step},{tensor},16384,{lost},0.0,{lost},0.0,0.5,1e-4,{lost},{},{},0.8",
                    0.5 * lost,
                    step / 2
                );
                for log2 in -9..4 {
                    let _ = writeln!(
                        all[1],
                        "{step},{tensor},{log2},{}",
                        1000 - 50 * (log2 + 2i32).pow(2).min(19)
                    );
                }
                for (way, part) in [
                    ("bf16", 1.0),
                    ("bf16-sr", 0.6),
                    ("bf16-kahan", 0.01),
                    ("fp16", 0.3),
                ] {
                    let _ = writeln!(all[2], "{step},{tensor},{way},{},0.9,1.0", part * lost);
                }
            }
            for pass in ["forward", "backward"] {
                for (op, more) in [("matmul", 1.0), ("layer_norm_grad", 0.5)] {
                    let below = if pass == "backward" {
                        more * under
                    } else {
                        0.0
                    };
                    let _ = writeln!(
                        all[3],
                        "{step},{pass},blocks.0.fc,{op},,bf16,4096,0.0,{below},{below},0.0,0.0,0.0,0.2,inf,60.1,20.2,8,10.5"
                    );
                }
            }
            let _ = writeln!(
                all[4],
                "{step},1,0.03125,matmul,blocks.0.fc,,{under},{under},0.0,262144"
            );
        }
        for (sheet, text) in isobit::report::sheets::SHEETS.iter().zip(all) {
            put(format!("{}_{scheme}{tag}.csv", sheet.name()), text);
        }
    }
}

/// Writes the files of a folder that no tag has: environment and throughput of products.
pub fn write_common(dir: &Path) {
    let env = r#"{"program":"isobit","version":"0.1.0","numerics":"portable","os":"linux","arch":"x86_64",
        "device":{"backend":"cpu","name":"A processor","driver":"avx2","kind":"cpu","threads":2},
        "data":{"name":"a text","sha256":"00ff","characters":1000,"vocab":65},
        "config":{"n_layer":4,"n_head":4,"n_embd":128,"block":64,"betas":[0.9,0.95],"lr":0.001},
        "plans":{"fp32.train":"abcdef"}}"#;
    std::fs::write(dir.join("env.json"), env).expect("written");
    let gemm = "dtype,ms,tflops,device,backend,path,grade,emulation,ceiling_fraction,error\n\
        fp32,4.10,0.52,A processor,cpu,register blocks,portable,native,0.41,\n\
        bf16,5.20,0.41,A processor,cpu,unpacked,portable,emulated,0.32,\n\
        fp8,,,A processor,cpu,,,,,no kernel\n";
    std::fs::write(dir.join("gemm.csv"), gemm).expect("written");
}
