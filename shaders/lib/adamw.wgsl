//#include lib/math.wgsl
// One element's step of AdamW. hyper: 1 - lr * decay, lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t), beta1,
// 1 - beta1, beta2, 1 - beta2, eps. Where the gradient's norm is not finite, nothing changes.

// The new values of an element.
struct Element {
    w: f32,
    m: f32,
    v: f32,
}

fn gradient_is_finite() -> bool {
    return (raw_norm(0u) & 0x7f800000u) != 0x7f800000u;
}

fn adamw(old: Element, gradient: f32) -> Element {
    let g = rn(ftz(gradient) * ftz(ld_scale(0u)));
    let m = rn(rn(ftz(ld_hyper(3u)) * ftz(old.m)) + rn(ftz(ld_hyper(4u)) * g));
    let v = rn(rn(ftz(ld_hyper(5u)) * ftz(old.v)) + rn(ftz(ld_hyper(6u)) * rn(g * g)));
    let denom = rn(rn(sqrt_(v) * ftz(ld_hyper(2u))) + ftz(ld_hyper(7u)));
    let delta = div_(rn(ftz(ld_hyper(1u)) * m), denom);
    return Element(rn(rn(ftz(old.w) * ftz(ld_hyper(0u))) - delta), m, v);
}
