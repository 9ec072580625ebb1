//#include lib/math.wgsl
// One row an invocation: many invocations, few registers. See wide.wgsl.
alias Wide = f32;
alias Index = u32;
alias Mask = bool;

const WIDTH: u32 = 1u;

fn components() -> Index {
    return 0u;
}

fn rolled(n: u32) -> u32 {
    return n ^ P.zero;
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
