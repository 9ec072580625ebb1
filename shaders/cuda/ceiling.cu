// Loops of multiply-adds in registers: what the units of a number format can do at best. No memory is
// touched but for a sum at the end, which shows that the loop ran: with operands of 1 an accumulator ends
// at its start plus the number of products.

typedef unsigned int u32;

#define CHAINS 8

// out[thread] = the sum of CHAINS accumulators x after `rounds` times x = x * a + b.
extern "C" __global__ void __launch_bounds__(256) fma_f32(float* out, u32 rounds, float a, float b) {
    float x[CHAINS];
#pragma unroll
    for (u32 i = 0; i < CHAINS; i++) x[i] = 0.0f;
    for (u32 r = 0; r < rounds; r++) {
#pragma unroll
        for (u32 i = 0; i < CHAINS; i++) x[i] = __fmaf_rn(x[i], a, b);
    }
    float s = 0.0f;
#pragma unroll
    for (u32 i = 0; i < CHAINS; i++) s += x[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = s;
}

// A loop over CHAINS accumulators of one tensor-core product. `ones` is a word of ones of the operands'
// type; every lane holds the same, so each element of an accumulator grows by k a round.
#define LOOP(NAME, SUM, CONSTRAINT, SHAPE, REGS_A, REGS_B)                                             \
    extern "C" __global__ void __launch_bounds__(256) NAME(SUM* out, u32 rounds, u32 ones) {            \
        SUM d[CHAINS][4];                                                                             \
        _Pragma("unroll") for (u32 i = 0; i < CHAINS; i++) {                                          \
            d[i][0] = d[i][1] = d[i][2] = d[i][3] = 0;                                                \
        }                                                                                             \
        for (u32 r = 0; r < rounds; r++) {                                                            \
            _Pragma("unroll") for (u32 i = 0; i < CHAINS; i++) {                                      \
                asm volatile("mma.sync.aligned." SHAPE " {%0, %1, %2, %3}, " REGS_A ", " REGS_B       \
                             ", {%0, %1, %2, %3};"                                                    \
                             : "+" CONSTRAINT(d[i][0]), "+" CONSTRAINT(d[i][1]),                      \
                               "+" CONSTRAINT(d[i][2]), "+" CONSTRAINT(d[i][3])                       \
                             : "r"(ones));                                                            \
            }                                                                                         \
        }                                                                                             \
        SUM s = 0;                                                                                    \
        _Pragma("unroll") for (u32 i = 0; i < CHAINS; i++) s += d[i][0];                              \
        out[blockIdx.x * blockDim.x + threadIdx.x] = s;                                               \
    }

#define FOUR "{%4, %4, %4, %4}"
#define TWO "{%4, %4}"

// 16 x 8 x 16
LOOP(mma_bf16, float, "f", "m16n8k16.row.col.f32.bf16.bf16.f32", FOUR, TWO)
LOOP(mma_f16, float, "f", "m16n8k16.row.col.f32.f16.f16.f32", FOUR, TWO)
// 16 x 8 x 8
LOOP(mma_tf32, float, "f", "m16n8k8.row.col.f32.tf32.tf32.f32", FOUR, TWO)
// 16 x 8 x 32
LOOP(mma_s8, int, "r", "m16n8k32.row.col.s32.s8.s8.s32", FOUR, TWO)
#if __CUDA_ARCH__ >= 890
LOOP(mma_e4m3, float, "f", "m16n8k32.row.col.f32.e4m3.e4m3.f32", FOUR, TWO)
#endif
