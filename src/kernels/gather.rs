//! Row gather (embedding) and its gradient. The gradient sums rows in ascending order of position, found
//! by a counting sort of the ids: no float atomics, so the order never depends on the device.

use super::math::{FLOOR_SUM, floor_to};
use super::{Host, KernelDef, Params, View, ViewMut, read, read_u32, write, write_u32};
use rayon::prelude::*;

/// `out[n, c] = table[idx[n], c]`, bits copied. Uniform words: n, words in a row, rows of the table.
pub static GATHER: KernelDef = KernelDef {
    name: "gather",
    bindings: &[read("table"), read_u32("idx"), write("out")],
    host: Host::No,
    cpu: gather,
};

/// For each id v the positions that hold it, ascending: `order[start[v]..start[v + 1]]`. Buffers idx[n]
/// -> order[n], start[v + 1]. Uniform words: n, v.
pub static ROW_ORDER: KernelDef = KernelDef {
    name: "row_order",
    bindings: &[read_u32("idx"), write_u32("order"), write_u32("start")],
    host: Host::No,
    cpu: row_order,
};

/// `out[v, c] = sum of g[order[r], c] for r in start[v]..start[v + 1]`, ascending. Uniform words: v, c.
pub static GATHER_GRAD: KernelDef = KernelDef {
    name: "gather_grad",
    bindings: &[
        read("g"),
        read_u32("order"),
        read_u32("start"),
        write("out"),
    ],
    host: Host::No,
    cpu: gather_grad,
};

fn gather(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let (c, rows) = (p.at(1), p.at(2));
    let (table, idx) = (reads[0].words, reads[1].words);
    writes[0]
        .words
        .par_chunks_mut(c)
        .zip(idx)
        .with_min_len(64)
        .for_each(|(out, &i)| {
            // Ids are checked when a batch is written; an id past the table reads the last row everywhere.
            let i = (i as usize).min(rows - 1);
            out.copy_from_slice(&table[i * c..(i + 1) * c]);
        });
}

fn row_order(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let v = p.at(1);
    let idx = reads[0].words;
    let [order, start] = writes else {
        unreachable!("row_order writes two buffers")
    };
    let start = &mut *start.words;
    start.fill(0);
    for &i in idx {
        start[(i as usize).min(v - 1) + 1] += 1;
    }
    for i in 0..v {
        start[i + 1] += start[i];
    }
    let mut next = start[..v].to_vec();
    for (n, &i) in idx.iter().enumerate() {
        let at = &mut next[(i as usize).min(v - 1)];
        order.words[*at as usize] = n as u32;
        *at += 1;
    }
}

fn gather_grad(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let c = p.at(1);
    let (g, order, start) = (reads[0].f32(), reads[1].words, reads[2].words);
    writes[0]
        .f32()
        .par_chunks_mut(c)
        .enumerate()
        .for_each(|(v, out)| {
            out.fill(0.0);
            for &n in &order[start[v] as usize..start[v + 1] as usize] {
                let row = &g[n as usize * c..(n as usize + 1) * c];
                out.iter_mut()
                    .zip(row)
                    .for_each(|(o, &x)| *o += floor_to(x, FLOOR_SUM));
            }
        });
}
