//! The model's operations. Shapes on the right: b batch, t length, c width, h heads, d head width.

use super::{Builder, float, int, ints};
use crate::models::char_gpt::{CharGpt, EPS};

/// Values that all blocks use.
struct Shared {
    /// Whether a query (row) sees a key (column), [t,t].
    mask: String,
    /// The least finite number: what a masked score counts as.
    lowest: String,
    scale: String,
    heads: String,
    joined: String,
    half: String,
    one: String,
    root: String,
}

impl Builder {
    /// From `idx` to `logits`.
    pub(super) fn model(&mut self, m: &CharGpt) {
        let d = m.n_embd / m.n_head;
        let (zero, step) = (self.int("zero", 0), self.int("step", 1));
        let (first, second) = (
            self.ints("first_axis", &[0]),
            self.ints("second_axis", &[1]),
        );
        let length = self.op("Shape", &["idx"], vec![int("start", 1), int("end", 2)]); // [1]
        let length = self.op("Squeeze", &[&length, &first], vec![]); // []
        let positions = self.op("Range", &[&zero, &length, &step], vec![]); // [t]
        let column = self.op("Unsqueeze", &[&positions, &first], vec![]); // [1,t]
        let row = self.op("Unsqueeze", &[&positions, &second], vec![]); // [t,1]
        let shared = Shared {
            mask: self.op("GreaterOrEqual", &[&row, &column], vec![]), // [t,t]
            lowest: self.float("lowest", f32::MIN),
            scale: self.float("scale", (1.0 / libm::sqrt(d as f64)) as f32),
            heads: self.ints("heads", &[0, 0, m.n_head as i64, d as i64]),
            joined: self.ints("joined", &[0, 0, m.n_embd as i64]),
            half: self.float("half", 0.5),
            one: self.float("one", 1.0),
            root: self.float("root_half", std::f32::consts::FRAC_1_SQRT_2),
        };
        let (tok, pos) = (self.weight("tok.weight"), self.weight("pos.weight"));
        let tokens = self.op("Gather", &[&tok, "idx"], vec![int("axis", 0)]); // [b,t,c]
        let places = self.op("Gather", &[&pos, &positions], vec![int("axis", 0)]); // [t,c]
        let mut x = self.op("Add", &[&tokens, &places], vec![]); // [b,t,c]
        for i in 0..m.n_layer {
            self.scope = format!("blocks.{i}.");
            x = self.block(&shared, i, &x);
        }
        self.scope = String::new();
        let x = self.norm(&x, "ln_f.weight");
        let logits = self.product(&x, "tok.weight"); // [b,t,v]
        let last = self.nodes.last_mut().expect("the product");
        debug_assert_eq!(last.output, [logits]);
        last.output = vec!["logits".into()];
    }

    fn block(&mut self, s: &Shared, i: usize, x: &str) -> String {
        let name = |part: &str| format!("blocks.{i}.{part}.weight");
        let h = self.norm(x, &name("ln1"));
        let qkv = self.product(&h, &name("attn")); // [b,t,3c]
        let parts = self.ops(
            "Split",
            &[&qkv],
            vec![int("axis", -1), int("num_outputs", 3)],
            3,
        ); // [b,t,c] each
        let y = self.attention(s, &parts);
        let y = self.product(&y, &name("proj"));
        let x = self.op("Add", &[x, &y], vec![]);
        let h = self.norm(&x, &name("ln2"));
        let h = self.product(&h, &name("fc")); // [b,t,4c]
        let h = self.gelu(s, &h);
        let h = self.product(&h, &name("fc_proj")); // [b,t,c]
        self.op("Add", &[&x, &h], vec![])
    }

    fn attention(&mut self, s: &Shared, qkv: &[String]) -> String {
        let mut heads = |part: usize, order: [i64; 4]| {
            let x = self.op("Reshape", &[&qkv[part], &s.heads], vec![]); // [b,t,h,d]
            self.op("Transpose", &[&x], vec![ints("perm", &order)])
        };
        let q = heads(0, [0, 2, 1, 3]); // [b,h,t,d]
        let k = heads(1, [0, 2, 3, 1]); // [b,h,d,t]
        let v = heads(2, [0, 2, 1, 3]); // [b,h,t,d]
        let scores = self.op("MatMul", &[&q, &k], vec![]); // [b,h,t,t]
        let scores = self.op("Mul", &[&scores, &s.scale], vec![]);
        let scores = self.op("Where", &[&s.mask, &scores, &s.lowest], vec![]);
        let p = self.op("Softmax", &[&scores], vec![int("axis", -1)]);
        let y = self.op("MatMul", &[&p, &v], vec![]); // [b,h,t,d]
        let y = self.op("Transpose", &[&y], vec![ints("perm", &[0, 2, 1, 3])]); // [b,t,h,d]
        self.op("Reshape", &[&y, &s.joined], vec![]) // [b,t,c]
    }

    /// With the exact error function.
    fn gelu(&mut self, s: &Shared, x: &str) -> String {
        let e = self.op("Mul", &[x, &s.root], vec![]);
        let e = self.op("Erf", &[&e], vec![]);
        let e = self.op("Add", &[&e, &s.one], vec![]);
        let x = self.op("Mul", &[x, &s.half], vec![]);
        self.op("Mul", &[&x, &e], vec![])
    }

    fn norm(&mut self, x: &str, gain: &str) -> String {
        let gain = self.weight(gain);
        let attributes = vec![int("axis", -1), float("epsilon", EPS)];
        self.op("LayerNormalization", &[x, &gain], attributes)
    }

    /// x times the transpose of a weight [n, k].
    fn product(&mut self, x: &str, weight: &str) -> String {
        let weight = self.weight(weight);
        let w = self.op("Transpose", &[&weight], vec![ints("perm", &[1, 0])]);
        self.op("MatMul", &[x, &w], vec![])
    }
}
