// Matrix product on cooperative matrices, which a subgroup holds together: f16 operands, f32 sums. A workgroup
// is one subgroup and computes 4 x 4 matrices of the product, straight from memory. The order of a sum
// within a matrix is the device's own, so this is fast numerics alone. Put before the text: the types Left,
// Right and Sum, SIZE (rows and columns of each) and LANES (invocations of a subgroup), and bindings.wgsl;
// `extent` is the number of rows and columns of a, b and c, a multiple of 4 SIZE.

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) wid: vec3<u32>) {
    let n = P.extent;
    let row = 4u * SIZE * wid.y;
    let col = 4u * SIZE * wid.x;
    let down = SIZE * n;
    var c00 = Sum();
    var c01 = Sum();
    var c02 = Sum();
    var c03 = Sum();
    var c10 = Sum();
    var c11 = Sum();
    var c12 = Sum();
    var c13 = Sum();
    var c20 = Sum();
    var c21 = Sum();
    var c22 = Sum();
    var c23 = Sum();
    var c30 = Sum();
    var c31 = Sum();
    var c32 = Sum();
    var c33 = Sum();
    for (var k = 0u; k < n; k += SIZE) {
        // Row-major, as the suffix says.
        let left = row * n + k;
        let a0 = coopLoadT<Left>(&a[left], n);
        let a1 = coopLoadT<Left>(&a[left + down], n);
        let a2 = coopLoadT<Left>(&a[left + 2u * down], n);
        let a3 = coopLoadT<Left>(&a[left + 3u * down], n);
        let right = k * n + col;
        let b0 = coopLoadT<Right>(&b[right], n);
        let b1 = coopLoadT<Right>(&b[right + SIZE], n);
        let b2 = coopLoadT<Right>(&b[right + 2u * SIZE], n);
        let b3 = coopLoadT<Right>(&b[right + 3u * SIZE], n);
        c00 = coopMultiplyAdd(a0, b0, c00);
        c01 = coopMultiplyAdd(a0, b1, c01);
        c02 = coopMultiplyAdd(a0, b2, c02);
        c03 = coopMultiplyAdd(a0, b3, c03);
        c10 = coopMultiplyAdd(a1, b0, c10);
        c11 = coopMultiplyAdd(a1, b1, c11);
        c12 = coopMultiplyAdd(a1, b2, c12);
        c13 = coopMultiplyAdd(a1, b3, c13);
        c20 = coopMultiplyAdd(a2, b0, c20);
        c21 = coopMultiplyAdd(a2, b1, c21);
        c22 = coopMultiplyAdd(a2, b2, c22);
        c23 = coopMultiplyAdd(a2, b3, c23);
        c30 = coopMultiplyAdd(a3, b0, c30);
        c31 = coopMultiplyAdd(a3, b1, c31);
        c32 = coopMultiplyAdd(a3, b2, c32);
        c33 = coopMultiplyAdd(a3, b3, c33);
    }
    let first = row * n + col;
    put(c00, first, n);
    put(c01, first + SIZE, n);
    put(c02, first + 2u * SIZE, n);
    put(c03, first + 3u * SIZE, n);
    let second = first + down;
    put(c10, second, n);
    put(c11, second + SIZE, n);
    put(c12, second + 2u * SIZE, n);
    put(c13, second + 3u * SIZE, n);
    let third = second + down;
    put(c20, third, n);
    put(c21, third + SIZE, n);
    put(c22, third + 2u * SIZE, n);
    put(c23, third + 3u * SIZE, n);
    let fourth = third + down;
    put(c30, fourth, n);
    put(c31, fourth + SIZE, n);
    put(c32, fourth + 2u * SIZE, n);
    put(c33, fourth + 3u * SIZE, n);
}
