// c = a * b in bf16 with f32 sums, on the tensor cores of sm_80 and later (mma.sync).
//
// a[n][n], b[n][n] and c[n][n] are row-major bf16; n is a multiple of 128. A block of 256 threads computes
// a tile of 128 x 128 and walks along k in slices of 32, three slices under way at a time. A warp computes
// 64 x 32 of the tile as 4 x 4 products of 16 x 8 x 16. No sum is split: every element is folded in one
// accumulator over ascending slices; inside a product of 16 the hardware decides.

typedef unsigned int u32;
typedef unsigned long long u64;

#define TILE 128
#define SLICE 32
#define STAGES 3
// Bytes of a slice of a, and of b.
#define PART (TILE * SLICE * 2)

// The address of shared memory as the asynchronous copies take it.
__device__ __forceinline__ u32 shared_address(const void* p) {
    return (u32)__cvta_generic_to_shared(p);
}

// Copies 16 bytes to shared memory without passing through registers.
__device__ __forceinline__ void copy16(u32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// Where the 16 bytes number `chunk` of a row lie. Chunks are permuted so that eight rows of a fragment
// come from eight different banks.
__device__ __forceinline__ u32 place_a(u32 row, u32 chunk) {
    return row * 64 + ((chunk ^ ((row >> 1) & 3)) * 16);
}

__device__ __forceinline__ u32 place_b(u32 row, u32 chunk) {
    return row * 256 + ((chunk ^ (row & 7)) * 16);
}

// The slice that begins at column `k` of a and row `k` of b.
__device__ __forceinline__ void load_slice(u32 to, const char* a, const char* b, u32 n, u32 row, u32 col,
                                           u32 k) {
    for (u32 i = threadIdx.x; i < 512; i += 256) {
        u32 r = i / 4, c = i % 4;
        copy16(to + place_a(r, c), a + 2 * ((u64)(row + r) * n + k + 8 * c));
    }
    for (u32 i = threadIdx.x; i < 512; i += 256) {
        u32 r = i / 16, c = i % 16;
        copy16(to + PART + place_b(r, c), b + 2 * ((u64)(k + r) * n + col + 8 * c));
    }
}

// Two rounded sums in a word, the first in its lower half.
__device__ __forceinline__ u32 pack(float low, float high) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

extern "C" __global__ void __launch_bounds__(256)
gemm_mma(const char* __restrict__ a, const char* __restrict__ b, u32* __restrict__ c, u32 n) {
    __shared__ __align__(128) char memory[STAGES * 2 * PART];
    u32 base = shared_address(memory);
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 row = blockIdx.y * TILE, col = blockIdx.x * TILE;
    // The warp's part of the tile.
    u32 top = (warp / 4) * 64, left = (warp % 4) * 32;

    float sum[4][4][4] = {};
    u32 slices = n / SLICE;
    for (u32 s = 0; s < STAGES - 1; s++) {
        if (s < slices) load_slice(base + s * 2 * PART, a, b, n, row, col, s * SLICE);
        asm volatile("cp.async.commit_group;");
    }
    for (u32 s = 0; s < slices; s++) {
        // Slice s has come, and nobody reads the one before it any more.
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        u32 next = s + STAGES - 1;
        if (next < slices) {
            load_slice(base + (next % STAGES) * 2 * PART, a, b, n, row, col, next * SLICE);
        }
        asm volatile("cp.async.commit_group;");

        u32 here = base + (s % STAGES) * 2 * PART;
#pragma unroll
        for (u32 k = 0; k < SLICE / 16; k++) {
            u32 fa[4][4], fb[4][2];
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                u32 at = here + place_a(top + 16 * i + lane % 16, 2 * k + lane / 16);
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(fa[i][0]), "=r"(fa[i][1]), "=r"(fa[i][2]), "=r"(fa[i][3])
                             : "r"(at) : "memory");
            }
#pragma unroll
            for (u32 j = 0; j < 4; j += 2) {
                u32 at = here + PART + place_b(16 * k + lane % 16, left / 8 + j + lane / 16);
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(fb[j][0]), "=r"(fb[j][1]), "=r"(fb[j + 1][0]), "=r"(fb[j + 1][1])
                             : "r"(at) : "memory");
            }
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
#pragma unroll
                for (u32 j = 0; j < 4; j++) {
                    asm volatile(
                        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                        : "+f"(sum[i][j][0]), "+f"(sum[i][j][1]), "+f"(sum[i][j][2]), "+f"(sum[i][j][3])
                        : "r"(fa[i][0]), "r"(fa[i][1]), "r"(fa[i][2]), "r"(fa[i][3]), "r"(fb[j][0]),
                          "r"(fb[j][1]));
                }
            }
        }
    }
    // A thread holds two neighbouring elements of a row, and two eight rows below.
    for (u32 i = 0; i < 4; i++) {
        for (u32 j = 0; j < 4; j++) {
            u64 r = row + top + 16 * i + lane / 4;
            u32 at = col + left + 8 * j + 2 * (lane % 4);
            c[(r * n + at) / 2] = pack(sum[i][j][0], sum[i][j][1]);
            c[((r + 8) * n + at) / 2] = pack(sum[i][j][2], sum[i][j][3]);
        }
    }
}
