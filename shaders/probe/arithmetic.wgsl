//#include lib/grid.wgsl
//#include lib/reduce.wgsl
//#include lib/bf16.wgsl
// Micro-kernels of the probe: the sums, products, floors and integers that portable kernels are made
// of, written as they write them. A record is (operation, a, b, c); the numbers of the operations are
// those of src/numerics/probe/micro.rs. From 40 on stand the controls: they compute something else on
// purpose, and a probe that does not see it is blind.

struct Params {
    zero: u32,
    n: u32,
}

fn f(u: u32) -> f32 {
    return bitcast<f32>(u);
}

fn bits(x: f32) -> u32 {
    return bitcast<u32>(x);
}

// Two exact products of halves onto an accumulator, ascending.
fn fold_halves(acc: f32, a: u32, b: u32) -> f32 {
    let low = acc + unpack_bf16(a, 0u) * unpack_bf16(b, 0u); // exact
    return low + unpack_bf16(a, 1u) * unpack_bf16(b, 1u); // exact
}

// Four terms one after the other, a statement each, as a product's accumulator takes them.
fn chain(a: f32, b: f32, c: f32) -> f32 {
    var acc = 0.0;
    acc = acc + fence(a);
    acc = acc + fence(b);
    acc = acc + fence(c);
    acc = acc + fence(a * b);
    return acc;
}

// The same in one expression, whose tree a compiler may balance: no kernel is written so.
fn chain_in_one(a: f32, b: f32, c: f32) -> f32 {
    return (((0.0 + fence(a)) + fence(b)) + fence(c)) + fence(a * b);
}

// The error of a rounded product, by Dekker's splitting.
fn product_error(a: f32, b: f32, p: f32) -> f32 {
    let ta = fence(a * 4097.0);
    let ah = fence(ta - fence(ta - a));
    let al = fence(a - ah);
    let tb = fence(b * 4097.0);
    let bh = fence(tb - fence(tb - b));
    let bl = fence(b - bh);
    let e1 = fence(fence(ah * bh) - p);
    let e2 = fence(e1 + fence(ah * bl));
    let e3 = fence(e2 + fence(al * bh));
    return fence(e3 + fence(al * bl));
}

fn class_of(u: u32) -> u32 {
    let m = u & FENCE_ABS;
    return select(select(0u, 1u, m == 0x7f800000u), 2u, m > 0x7f800000u);
}

fn float_row(op: u32, a: f32, b: f32, c: f32) -> f32 {
    switch op {
        case 0u: { return a + b; }
        case 1u: { return a - b; }
        case 2u: { return a * b; }
        case 3u: { return fence(a * b) + c; }
        case 4u: { return fence(a * b) - fence(c * c); }
        case 5u: { return fence(a + 12582912.0) - 12582912.0; }
        case 6u: { return fence(a + b) - b; }
        case 7u: { return fence(a * b) + fence(a * c); }
        case 8u: { return chain(a, b, c); }
        case 9u: { return rn(ftz(a) * ftz(b)); }
        case 10u: { return rn(ftz(a) + ftz(b)); }
        case 11u: { return floor_to(a, FLOOR_F32_OPERAND); }
        case 12u: { return floor_to(a, FLOOR_BF16_OPERAND); }
        case 13u: { return rn_floor(a, FLOOR_SUM); }
        case 14u: { return max2(a, b); }
        case 15u: { return min2(a, b); }
        case 16u: { return abs(a); }
        case 17u: { return -a; }
        case 18u: { return chain_in_one(a, b, c); }
        // Controls.
        case 40u: {
            let p = fence(a * b);
            return fence(p + c) + product_error(a, b, p);
        }
        case 41u: { return fence(a) + fence(fence(b) + fence(c)); }
        default: { return 0.0; }
    }
}

fn integer_row(op: u32, a: u32, b: u32, c: u32) -> u32 {
    switch op {
        case 20u: { return a * b + c; }
        case 21u: { return (a << (b & 31u)) ^ (c >> (b & 31u)); }
        case 22u: { return bitcast<u32>(bitcast<i32>(a) * bitcast<i32>(b) - bitcast<i32>(c)); }
        case 23u: { return u32(bitcast<i32>(a) < bitcast<i32>(b)) | (u32(a < b) << 1u); }
        case 24u: { return bits(f32(a & 0xffffffu)); }
        case 25u: { return bitcast<u32>(i32(f(a))); }
        case 26u: { return class_of(a) | (class_of(b) << 2u); }
        case 27u: { return u32(f(a) < f(b)) | (u32(f(a) == f(b)) << 1u) | (u32(f(a) <= f(b)) << 2u); }
        case 28u: { return select(b, a, (c & 1u) == 0u); }
        case 29u: { return round_bf16(f(a)); }
        case 30u: { return pack_bf16(f(a), f(b)); }
        case 31u: { return bits(unpack_bf16(a, b & 1u)); }
        case 32u: { return bits(fold_halves(f(c), a, b)); }
        // Controls.
        case 42u: { return a >> 16u; }
        case 43u: { return bits(rn(ftz(f(a)) * ftz(f(b)))) + 1u; }
        default: { return 0u; }
    }
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let i = flat(wid, nwg) * 64u + li;
    if i >= P.n {
        return;
    }
    let op = ld_x(4u * i);
    let a = ld_x(4u * i + 1u);
    let b = ld_x(4u * i + 2u);
    let c = ld_x(4u * i + 3u);
    if op < 20u || op == 40u || op == 41u {
        st_out(i, bits(float_row(op, f(a), f(b), f(c))));
    } else {
        st_out(i, integer_row(op, a, b, c));
    }
}
