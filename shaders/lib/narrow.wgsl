//#include lib/math.wgsl
// One row an invocation: many invocations, few registers. See wide.wgsl.
alias Wide = f32;
alias Index = u32;
alias Mask = bool;

const WIDTH: u32 = 1u;

fn components() -> Index {
    return 0u;
}

// Loops may be unrolled: the arrays below then lie in registers.
fn rolled(n: u32) -> u32 {
    return n;
}

fn exp_w(x: Wide) -> Wide {
    return exp_(x);
}

fn log_w(x: Wide) -> Wide {
    return log_(x);
}

fn div_w(a: Wide, b: Wide) -> Wide {
    return div_(a, b);
}

var<private> own_rows: array<Wide, PARTS * HEAD>;
var<private> sums: array<Wide, PARTS * HEAD>;

fn keep_own() {
    for (var part = 0u; part < PARTS; part++) {
        for (var d = 0u; d < HEAD; d++) {
            own_rows[part * HEAD + d] = load_own(part, d);
        }
    }
}

fn own(part: u32, d: u32) -> Wide {
    return own_rows[part * HEAD + d];
}

fn sum_at(part: u32, d: u32) -> Wide {
    return sums[part * HEAD + d];
}

fn put_sum(part: u32, d: u32, v: Wide) {
    sums[part * HEAD + d] = v;
}
