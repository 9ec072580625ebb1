//#include lib/grid.wgsl
//#include lib/fence.wgsl
//#include lib/fold.wgsl
// out[i] = x[i] after `rounds` times x = a * x + b: what the device's multiply-adds can do at best.
// An invocation has sixteen independent chains, so that the latency of one hides behind the others.

struct Params {
    zero: u32,
    n: u32,
    rounds: u32,
    a: f32,
    b: f32,
}

fn four(i: u32) -> vec4<f32> {
    let last = P.n - 1u;
    return vec4<f32>(ld_x(min(i, last)), ld_x(min(i + 1u, last)), ld_x(min(i + 2u, last)), ld_x(min(i + 3u, last)));
}

fn keep(i: u32, v: vec4<f32>) {
    for (var c = 0u; c < 4u; c++) {
        if i + c < P.n {
            st_out(i + c, v[c]);
        }
    }
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let i = 16u * (flat(wid, nwg) * 64u + li);
    if i >= P.n {
        return;
    }
    var x0 = four(i);
    var x1 = four(i + 4u);
    var x2 = four(i + 8u);
    var x3 = four(i + 12u);
    let b = vec4<f32>(P.b);
    for (var k = 0u; k < P.rounds; k++) {
        x0 = fold(b, P.a, x0);
        x1 = fold(b, P.a, x1);
        x2 = fold(b, P.a, x2);
        x3 = fold(b, P.a, x3);
    }
    keep(i, x0);
    keep(i + 4u, x1);
    keep(i + 8u, x2);
    keep(i + 12u, x3);
}
