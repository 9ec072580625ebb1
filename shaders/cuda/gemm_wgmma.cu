// c = a * b in bf16 with f32 sums, on the tensor cores of sm_90a (wgmma). On other targets this file is
// empty: wgmma exists on Hopper alone.
//
// a[n][n] and c[n][n] are row-major bf16, b is given transposed, bt[n][n] with bt[j][k] = b[k][j], so that
// both operands run along k in memory; n is a multiple of 128. A block of two warp groups computes a tile of
// 128 x 128, each group 64 rows of it as products of 64 x 128 x 16, and walks along k in slices of 64, four
// slices under way at a time. No sum is split over blocks.

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

typedef unsigned int u32;
typedef unsigned long long u64;

#define TILE 128
#define SLICE 64
#define STAGES 4
// Bytes of a slice of a, and of b.
#define PART (TILE * SLICE * 2)

__device__ __forceinline__ u32 shared_address(const void* p) {
    return (u32)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void copy16(u32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// A row of a slice is 128 bytes; its eight chunks of 16 bytes are permuted as the 128-byte swizzle of
// wgmma's operands has it: chunk number xor row number, modulo 8.
__device__ __forceinline__ void load_part(u32 to, const char* x, u32 n, u32 row, u32 k) {
    for (u32 i = threadIdx.x; i < 1024; i += 256) {
        u32 r = i / 8, c = i % 8;
        copy16(to + r * 128 + ((c ^ (r & 7)) * 16), x + 2 * ((u64)(row + r) * n + k + 8 * c));
    }
}

// How wgmma finds an operand: its address, 1024 bytes from one group of eight rows to the next, 128-byte
// swizzle. (The leading offset has no meaning under this swizzle when k runs along memory.)
__device__ __forceinline__ u64 descriptor(u32 address) {
    return ((u64)(address & 0x3ffff) >> 4) | ((u64)1 << 16) | ((u64)(1024 >> 4) << 32) | ((u64)1 << 62);
}

// d += a * b for 64 x 128 x 16.
__device__ __forceinline__ void multiply(float (&d)[64], u64 a, u64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        " %64, %65, 1, 1, 1, 0, 0;"
        :
        "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b));
}

__device__ __forceinline__ u32 pack(float low, float high) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

extern "C" __global__ void __launch_bounds__(256, 1)
gemm_wgmma(const char* __restrict__ a, const char* __restrict__ bt, u32* __restrict__ c, u32 n) {
    // STAGES * 2 * PART bytes, and up to 1023 to begin at a multiple of 1024.
    extern __shared__ char memory[];
    u32 base = (shared_address(memory) + 1023) & ~1023u;
    u32 group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = (threadIdx.x / 32) % 4;
    u32 row = blockIdx.y * TILE, col = blockIdx.x * TILE;

    float sum[64];
#pragma unroll
    for (u32 i = 0; i < 64; i++) sum[i] = 0.0f;

    u32 slices = n / SLICE;
    for (u32 s = 0; s < STAGES - 1; s++) {
        if (s < slices) {
            load_part(base + s * 2 * PART, a, n, row, s * SLICE);
            load_part(base + s * 2 * PART + PART, bt, n, col, s * SLICE);
        }
        asm volatile("cp.async.commit_group;");
    }
    for (u32 s = 0; s < slices; s++) {
        // Slice s has come and is made visible to the tensor cores; both groups are done with slice s - 1.
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        u32 next = s + STAGES - 1;
        if (next < slices) {
            u32 to = base + (next % STAGES) * 2 * PART;
            load_part(to, a, n, row, next * SLICE);
            load_part(to + PART, bt, n, col, next * SLICE);
        }
        asm volatile("cp.async.commit_group;");

        u32 here = base + (s % STAGES) * 2 * PART;
        u64 left = descriptor(here + group * 64 * 128), right = descriptor(here + PART);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (u32 k = 0; k < SLICE / 16; k++) {
            // 16 elements along k are 32 bytes, 2 in the units of a descriptor.
            multiply(sum, left + 2 * k, right + 2 * k);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    // Of every eight columns a thread holds two in a row, and two eight rows below.
    u64 r = row + group * 64 + warp * 16 + lane / 4;
#pragma unroll
    for (u32 j = 0; j < 16; j++) {
        u32 at = col + 8 * j + 2 * (lane % 4);
        c[(r * n + at) / 2] = pack(sum[4 * j], sum[4 * j + 1]);
        c[((r + 8) * n + at) / 2] = pack(sum[4 * j + 2], sum[4 * j + 3]);
    }
}

#endif
