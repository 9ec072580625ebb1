// The rate of multiply-adds of cooperative matrices in registers: eight independent sums a subgroup. Operands of
// ones give sums of `extent` times SIZE, which the host looks at. `extent` is the number of rounds.
// Put before the text: what gemm.wgsl names.

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) wid: vec3<u32>) {
    let x = coopLoadT<Left>(&a[0], SIZE);
    let y = coopLoadT<Right>(&b[0], SIZE);
    var c0 = Sum();
    var c1 = Sum();
    var c2 = Sum();
    var c3 = Sum();
    var c4 = Sum();
    var c5 = Sum();
    var c6 = Sum();
    var c7 = Sum();
    for (var i = 0u; i < P.extent; i++) {
        c0 = coopMultiplyAdd(x, y, c0);
        c1 = coopMultiplyAdd(x, y, c1);
        c2 = coopMultiplyAdd(x, y, c2);
        c3 = coopMultiplyAdd(x, y, c3);
        c4 = coopMultiplyAdd(x, y, c4);
        c5 = coopMultiplyAdd(x, y, c5);
        c6 = coopMultiplyAdd(x, y, c6);
        c7 = coopMultiplyAdd(x, y, c7);
    }
    let each = SIZE * SIZE;
    let first = 8u * each * wid.x;
    put(c0, first, SIZE);
    put(c1, first + each, SIZE);
    put(c2, first + 2u * each, SIZE);
    put(c3, first + 3u * each, SIZE);
    put(c4, first + 4u * each, SIZE);
    put(c5, first + 5u * each, SIZE);
    put(c6, first + 6u * each, SIZE);
    put(c7, first + 7u * each, SIZE);
}
