// CUDA's execution model on a CPU, for tests: an emulation, not a GPU. Blocks run one after the other,
// the threads of a block one after the other up to each barrier, each on a stack of its own. It shows what
// an emitted text computes; it says nothing of how a GPU compiles or schedules it.

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <math.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(n)
#define __grid_constant__

struct Three { unsigned x, y, z; };
static Three threadIdx, blockIdx, gridDim;

static inline float __uint_as_float(unsigned u) { float f; memcpy(&f, &u, 4); return f; }
static inline unsigned __float_as_uint(float f) { unsigned u; memcpy(&u, &f, 4); return u; }
static inline float __int_as_float(int u) { return __uint_as_float((unsigned)u); }
static inline int __float_as_int(float f) { return (int)__float_as_uint(f); }
// Compiled with -ffp-contract=off, each of these rounds once.
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
#define rsqrtf host_rsqrtf // newer C libraries have one of their own
static inline float rsqrtf(float a) { return (float)(1.0 / sqrt((double)a)); }
static inline float __uint2float_rn(unsigned a) { return (float)a; }
static inline float __int2float_rn(int a) { return (float)a; }
static inline unsigned __float2uint_rz(float a) {
    return !(a > 0.0f) ? 0u : a >= 4294967296.0f ? 0xffffffffu : (unsigned)a;
}
static inline int __float2int_rz(float a) {
    return a != a ? 0 : a <= -2147483648.0f ? (-2147483647 - 1) : a >= 2147483648.0f ? 2147483647 : (int)a;
}
static inline int __clz(int a) { return a == 0 ? 32 : __builtin_clz((unsigned)a); }
static inline int __popc(unsigned a) { return __builtin_popcount(a); }
static inline unsigned __brev(unsigned a) {
    unsigned out = 0;
    for (int i = 0; i < 32; i++) out |= (a >> i & 1u) << (31 - i);
    return out;
}
static inline unsigned __ldg(const unsigned* p) { return *p; }
static inline unsigned atomicAdd(unsigned* p, unsigned by) { unsigned old = *p; *p += by; return old; }

// binary16, round to nearest even.
static inline unsigned f16_bits(float x) {
    unsigned u = __float_as_uint(x), a = u & 0x7fffffffu, sign = u >> 16 & 0x8000u;
    if (a > 0x7f800000u) return sign | 0x7e00u;
    if (a >= 0x477ff000u) return sign | 0x7c00u;
    if (a < 0x38800000u) return sign | (unsigned)nearbyintf(__uint_as_float(a) * 16777216.0f);
    return sign | (a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13;
}
static inline float f16_value(unsigned h) {
    unsigned e = h >> 10 & 31u, m = h & 1023u;
    float v = e == 31u ? (m ? NAN : INFINITY) : e == 0u ? m * 5.9604644775390625e-8f : ldexpf(m + 1024.0f, (int)e - 25);
    return h & 0x8000u ? -v : v;
}

// Threads of a block.
struct Fiber { ucontext_t first; jmp_buf at; bool started, waiting; };
enum { MOST = 1024, STACK = 256 * 1024 };
static Fiber fibers[MOST];
static jmp_buf home;
static Fiber* current;
typedef void (*Entry)(const void*);
static Entry entry_now;
static const void* argument_now;

static void __syncthreads() {
    current->waiting = true;
    if (!_setjmp(current->at)) _longjmp(home, 1);
}

static void fiber_body() {
    for (;;) {
        entry_now(argument_now);
        current->waiting = false;
        // The next block begins here.
        if (!_setjmp(current->at)) _longjmp(home, 1);
    }
}

static void resume(Fiber* f) {
    current = f;
    if (_setjmp(home)) return;
    if (f->started) _longjmp(f->at, 1);
    f->started = true;
    getcontext(&f->first);
    f->first.uc_stack.ss_sp = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    f->first.uc_stack.ss_size = STACK;
    makecontext(&f->first, fiber_body, 0);
    setcontext(&f->first);
}

// Runs a grid; whether every barrier was reached by all threads of its block or by none. Between barriers
// the threads run in order, or the last one first.
static bool run_grid(Entry entry, const void* argument, const unsigned* grid, unsigned threads, bool barriers, bool last_first) {
    gridDim = {grid[0], grid[1], grid[2]};
    entry_now = entry;
    argument_now = argument;
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) {
                blockIdx = {x, y, z};
                for (unsigned rounds = 0, waiting = 1; waiting; rounds++) {
                    waiting = 0;
                    for (unsigned i = 0; i < threads; i++) {
                        unsigned t = last_first ? threads - 1 - i : i;
                        threadIdx = {t, 0, 0};
                        if (!barriers) {
                            entry(argument);
                            continue;
                        }
                        resume(&fibers[t]);
                        waiting += fibers[t].waiting;
                    }
                    if (waiting && waiting != threads) return false;
                }
            }
    return true;
}
