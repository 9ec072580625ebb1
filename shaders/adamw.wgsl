//#include lib/grid.wgsl
//#include lib/math.wgsl
// AdamW, in place. hyper: 1 - lr * decay, lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t), beta1, 1 - beta1,
// beta2, 1 - beta2, eps. Where the gradient's norm is not finite, nothing changes.

struct Params {
    zero: u32,
    n: u32,
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let i = flat(wid, nwg) * 256u + li;
    let finite = (raw_norm(0u) & 0x7f800000u) != 0x7f800000u;
    if i >= P.n || !finite {
        return;
    }
    let g = rn(ftz(ld_g(i)) * ftz(ld_scale(0u)));
    let m = rn(rn(ftz(ld_hyper(3u)) * ftz(ld_m(i))) + rn(ftz(ld_hyper(4u)) * g));
    let v = rn(rn(ftz(ld_hyper(5u)) * ftz(ld_v(i))) + rn(ftz(ld_hyper(6u)) * rn(g * g)));
    let denom = rn(rn(sqrt_(v) * ftz(ld_hyper(2u))) + ftz(ld_hyper(7u)));
    let delta = div_(rn(ftz(ld_hyper(1u)) * m), denom);
    st_w(i, rn(rn(ftz(ld_w(i)) * ftz(ld_hyper(0u))) - delta));
    st_m(i, m);
    st_v(i, v);
}
