//! The shader files and their include directive: a line `//#include lib/x.wgsl` stands for that file,
//! once in a text, however often it is named.

use sha2::{Digest, Sha256};

macro_rules! embed {
    ($($name:literal)*) => {
        /// The files of `shaders/`.
        pub const NAMES: &[&str] = &[$($name),*];

        fn text(name: &str) -> &'static str {
            match name {
                $($name => include_str!(concat!("../../../shaders/", $name)),)*
                _ => panic!("there is no shader file {name}"),
            }
        }
    };
}

embed! {
    "adamw.wgsl"
    "adamw_compensated.wgsl"
    "adamw_packed.wgsl"
    "adamw_scalars.wgsl"
    "adamw_stochastic.wgsl"
    "attention.wgsl"
    "attention_cached.wgsl"
    "attention_grad.wgsl"
    "copy.wgsl"
    "digest.wgsl"
    "gather.wgsl"
    "gather_grad.wgsl"
    "gemm.wgsl"
    "gemm_large.wgsl"
    "gemm_quads.wgsl"
    "gemm_registers.wgsl"
    "gemm_small.wgsl"
    "gemm_tree.wgsl"
    "gemm_tree_packed.wgsl"
    "histogram.wgsl"
    "loss_scale.wgsl"
    "lse.wgsl"
    "multiply_add.wgsl"
    "norm_dx.wgsl"
    "norm_fwd.wgsl"
    "norm_stats.wgsl"
    "pointwise.wgsl"
    "pointwise_packed.wgsl"
    "put_rows.wgsl"
    "random_bits.wgsl"
    "reduce.wgsl"
    "row_order.wgsl"
    "softmax.wgsl"
    "softmax_grad.wgsl"
    "step_scalars.wgsl"
    "xent.wgsl"
    "xent_grad.wgsl"
    "lib/adamw.wgsl"
    "lib/attention.wgsl"
    "lib/bf16.wgsl"
    "lib/exponentials.wgsl"
    "lib/f16.wgsl"
    "lib/fence.wgsl"
    "lib/fold.wgsl"
    "lib/fold_fast.wgsl"
    "lib/fold_wide.wgsl"
    "lib/fold_wide_fast.wgsl"
    "lib/gemm.wgsl"
    "lib/gemm_elements.wgsl"
    "lib/gemm_tree.wgsl"
    "lib/grid.wgsl"
    "lib/math.wgsl"
    "lib/narrow.wgsl"
    "lib/norm.wgsl"
    "lib/operand_bf16.wgsl"
    "lib/operand_f16.wgsl"
    "lib/operand_f32.wgsl"
    "lib/reduce.wgsl"
    "lib/rng.wgsl"
    "lib/rows.wgsl"
    "lib/rows_serial.wgsl"
    "lib/scalars.wgsl"
    "lib/weight_bf16.wgsl"
    "lib/weight_f16.wgsl"
    "lib/weight_f32.wgsl"
    "lib/wide.wgsl"
    "lib/zero.wgsl"
    "lib/zero_off.wgsl"
    "probe/arithmetic.wgsl"
    "probe/facts.wgsl"
    "probe/functions.wgsl"
    "probe/halves.wgsl"
    "probe/workgroup.wgsl"
}

/// SHA-256 of all files, 16 hex digits: what tells two sets of shaders apart.
pub fn hash() -> String {
    let mut sha = Sha256::new();
    for name in NAMES {
        let text = text(name);
        sha.update((name.len() as u64).to_le_bytes());
        sha.update(name);
        sha.update((text.len() as u64).to_le_bytes());
        sha.update(text);
    }
    let bytes = sha.finalize();
    bytes.iter().take(8).map(|b| format!("{b:02x}")).collect()
}

/// Files with their includes in place. `swaps` are pairs (file, file that stands in for it).
pub fn expand(names: &[&str], swaps: &[(&'static str, &'static str)]) -> String {
    let (mut out, mut seen) = (String::new(), Vec::new());
    for name in names {
        append(name, swaps, &mut seen, &mut out);
    }
    out
}

fn append(name: &str, swaps: &[(&str, &'static str)], seen: &mut Vec<String>, out: &mut String) {
    let name = swaps.iter().find(|s| s.0 == name).map_or(name, |s| s.1);
    if seen.iter().any(|s| s == name) {
        return;
    }
    seen.push(name.to_string());
    for line in text(name).lines() {
        match line.strip_prefix("//#include ") {
            Some(file) => append(file.trim(), swaps, seen, out),
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
}
