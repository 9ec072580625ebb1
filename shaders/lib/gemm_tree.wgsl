//#include lib/fence.wgsl
// out[n] = sum over chunks of x[chunks, n] by a halving tree: chunk i takes chunk i + half, then half
// halves. Read in bit-reversed order the tree's leaves stand side by side, so that a stack of partial
// sums, one a level, replaces an array of all chunks. Chunks that are missing to the power of two count
// as +0, which changes no bit: a product-sum that starts at +0 is never -0.

struct Params {
    zero: u32,
    n: u32,
    chunks: u32,
}

// Element i of the sum.
fn tree_at(i: u32) -> f32 {
    let levels = 32u - countLeadingZeros(P.chunks - 1u);
    var stack: array<f32, 32>;
    for (var leaf = 0u; leaf < (1u << levels); leaf++) {
        let chunk = select(0u, reverseBits(leaf) >> ((32u - levels) & 31u), levels > 0u);
        var sum = 0.0;
        if chunk < P.chunks {
            sum = ld_x(chunk * P.n + i);
        }
        // Each one at the end of the leaf's number completes a pair.
        let pairs = countTrailingZeros(~leaf);
        for (var level = 0u; level < min(pairs, levels); level++) {
            sum = fence(stack[level] + sum);
        }
        stack[min(pairs, levels)] = sum;
    }
    return stack[levels];
}
