// The vocabulary of emitted kernels (src/exec/cuda/emit): WGSL's operations on scalars and vectors.
//
// Sums, products, quotients and roots of floats are the intrinsics that round once and that no compiler
// fuses or reorders. Integers wrap; shifts take their amount modulo 32; x / 0 is x and x % 0 is 0.

typedef unsigned int u32;
typedef int i32;
typedef float f32;

#define FN __device__ __forceinline__

#ifdef __CUDACC__
// binary16 by the conversions of the chip.
FN u32 f16_bits(f32 x) {
    unsigned short h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
FN f32 f16_value(u32 bits) {
    f32 x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)bits));
    return x;
}
#endif

template<class T> struct alignas(2 * sizeof(T)) v2 {
    T x, y;
    FN T operator[](u32 i) const { return i == 0u ? x : y; }
    FN T& operator[](u32 i) { return i == 0u ? x : y; }
};

template<class T> struct v3 {
    T x, y, z;
    FN T operator[](u32 i) const { return i == 0u ? x : i == 1u ? y : z; }
    FN T& operator[](u32 i) { return i == 0u ? x : i == 1u ? y : z; }
};

template<class T> struct alignas(4 * sizeof(T)) v4 {
    T x, y, z, w;
    FN T operator[](u32 i) const { return i == 0u ? x : i == 1u ? y : i == 2u ? z : w; }
    FN T& operator[](u32 i) { return i == 0u ? x : i == 1u ? y : i == 2u ? z : w; }
};

template<class T, int N> struct arr {
    T at[N];
    FN const T& operator[](u32 i) const { return at[i]; }
    FN T& operator[](u32 i) { return at[i]; }
};

// Vectors out of scalars, of shorter vectors, of one scalar.
template<class T> FN v2<T> join2(T x, T y) { return {x, y}; }
template<class T> FN v2<T> join2(v2<T> a) { return a; }
template<class T> FN v3<T> join3(T x, T y, T z) { return {x, y, z}; }
template<class T> FN v3<T> join3(v2<T> a, T z) { return {a.x, a.y, z}; }
template<class T> FN v3<T> join3(T x, v2<T> a) { return {x, a.x, a.y}; }
template<class T> FN v4<T> join4(T x, T y, T z, T w) { return {x, y, z, w}; }
template<class T> FN v4<T> join4(v2<T> a, v2<T> b) { return {a.x, a.y, b.x, b.y}; }
template<class T> FN v4<T> join4(v2<T> a, T z, T w) { return {a.x, a.y, z, w}; }
template<class T> FN v4<T> join4(T x, T y, v2<T> b) { return {x, y, b.x, b.y}; }
template<class T> FN v4<T> join4(v3<T> a, T w) { return {a.x, a.y, a.z, w}; }
template<class T> FN v2<T> splat2(T x) { return {x, x}; }
template<class T> FN v3<T> splat3(T x) { return {x, x, x}; }
template<class T> FN v4<T> splat4(T x) { return {x, x, x, x}; }

// Functions of one and two operands, for scalars and component by component; R is the result's type.
#define OF_ONE(name, T, R, value) \
    FN R name(T a) { return value; } \
    FN v2<R> name(v2<T> a) { return {name(a.x), name(a.y)}; } \
    FN v3<R> name(v3<T> a) { return {name(a.x), name(a.y), name(a.z)}; } \
    FN v4<R> name(v4<T> a) { return {name(a.x), name(a.y), name(a.z), name(a.w)}; }

#define OF_TWO(name, T, S, R, value) \
    FN R name(T a, S b) { return value; } \
    FN v2<R> name(v2<T> a, v2<S> b) { return {name(a.x, b.x), name(a.y, b.y)}; } \
    FN v3<R> name(v3<T> a, v3<S> b) { return {name(a.x, b.x), name(a.y, b.y), name(a.z, b.z)}; } \
    FN v4<R> name(v4<T> a, v4<S> b) { return {name(a.x, b.x), name(a.y, b.y), name(a.z, b.z), name(a.w, b.w)}; } \
    FN v2<R> name(v2<T> a, S b) { return name(a, splat2(b)); } \
    FN v3<R> name(v3<T> a, S b) { return name(a, splat3(b)); } \
    FN v4<R> name(v4<T> a, S b) { return name(a, splat4(b)); } \
    FN v2<R> name(T a, v2<S> b) { return name(splat2(a), b); } \
    FN v3<R> name(T a, v3<S> b) { return name(splat3(a), b); } \
    FN v4<R> name(T a, v4<S> b) { return name(splat4(a), b); }

// Bits.
OF_ONE(as_f32, u32, f32, __uint_as_float(a))
OF_ONE(as_f32, i32, f32, __int_as_float(a))
OF_ONE(as_f32, f32, f32, a)
OF_ONE(as_u32, f32, u32, __float_as_uint(a))
OF_ONE(as_u32, i32, u32, (u32)a)
OF_ONE(as_u32, u32, u32, a)
OF_ONE(as_i32, f32, i32, __float_as_int(a))
OF_ONE(as_i32, u32, i32, (i32)a)
OF_ONE(as_i32, i32, i32, a)

// Values. Floats are cut towards zero and held within the range; NaN is 0.
OF_ONE(to_f32, u32, f32, __uint2float_rn(a))
OF_ONE(to_f32, i32, f32, __int2float_rn(a))
OF_ONE(to_f32, f32, f32, a)
OF_ONE(to_f32, bool, f32, a ? 1.0f : 0.0f)
OF_ONE(to_u32, f32, u32, __float2uint_rz(a))
OF_ONE(to_u32, i32, u32, (u32)a)
OF_ONE(to_u32, u32, u32, a)
OF_ONE(to_u32, bool, u32, a ? 1u : 0u)
OF_ONE(to_i32, f32, i32, __float2int_rz(a))
OF_ONE(to_i32, u32, i32, (i32)a)
OF_ONE(to_i32, i32, i32, a)
OF_ONE(to_i32, bool, i32, a ? 1 : 0)
OF_ONE(to_bool, u32, bool, a != 0u)
OF_ONE(to_bool, bool, bool, a)

// Floats.
OF_TWO(plus, f32, f32, f32, __fadd_rn(a, b))
OF_TWO(minus, f32, f32, f32, __fsub_rn(a, b))
OF_TWO(times, f32, f32, f32, __fmul_rn(a, b))
OF_TWO(over, f32, f32, f32, __fdiv_rn(a, b))
OF_ONE(negate, f32, f32, as_f32(as_u32(a) ^ 0x80000000u))
OF_ONE(magnitude, f32, f32, as_f32(as_u32(a) & 0x7fffffffu))
OF_TWO(smaller, f32, f32, f32, fminf(a, b))
OF_TWO(larger, f32, f32, f32, fmaxf(a, b))
FN f32 fused(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }
FN v2<f32> fused(v2<f32> a, v2<f32> b, v2<f32> c) { return {fused(a.x, b.x, c.x), fused(a.y, b.y, c.y)}; }
FN v4<f32> fused(v4<f32> a, v4<f32> b, v4<f32> c) {
    return {fused(a.x, b.x, c.x), fused(a.y, b.y, c.y), fused(a.z, b.z, c.z), fused(a.w, b.w, c.w)};
}

// Whole numbers.
OF_TWO(plus, u32, u32, u32, a + b)
OF_TWO(minus, u32, u32, u32, a - b)
OF_TWO(times, u32, u32, u32, a * b)
OF_TWO(over, u32, u32, u32, b == 0u ? a : a / b)
OF_TWO(rest, u32, u32, u32, b == 0u ? 0u : a % b)
OF_TWO(smaller, u32, u32, u32, a < b ? a : b)
OF_TWO(larger, u32, u32, u32, a > b ? a : b)
OF_TWO(and_, u32, u32, u32, a & b)
OF_TWO(or_, u32, u32, u32, a | b)
OF_TWO(xor_, u32, u32, u32, a ^ b)
OF_TWO(left, u32, u32, u32, a << (b & 31u))
OF_TWO(right, u32, u32, u32, a >> (b & 31u))
OF_ONE(invert, u32, u32, ~a)
OF_ONE(leading_zeros, u32, u32, (u32)__clz((i32)a))
OF_ONE(trailing_zeros, u32, u32, a == 0u ? 32u : 31u - (u32)__clz((i32)(a & (0u - a))))
OF_ONE(ones, u32, u32, (u32)__popc(a))
OF_ONE(reversed, u32, u32, __brev(a))

OF_TWO(plus, i32, i32, i32, (i32)((u32)a + (u32)b))
OF_TWO(minus, i32, i32, i32, (i32)((u32)a - (u32)b))
OF_TWO(times, i32, i32, i32, (i32)((u32)a * (u32)b))
OF_TWO(over, i32, i32, i32, b == 0 || ((u32)a == 0x80000000u && b == -1) ? a : a / b)
OF_TWO(rest, i32, i32, i32, b == 0 || b == -1 ? 0 : a % b)
OF_TWO(smaller, i32, i32, i32, a < b ? a : b)
OF_TWO(larger, i32, i32, i32, a > b ? a : b)
OF_TWO(and_, i32, i32, i32, a & b)
OF_TWO(or_, i32, i32, i32, a | b)
OF_TWO(xor_, i32, i32, i32, a ^ b)
OF_TWO(left, i32, u32, i32, (i32)((u32)a << (b & 31u)))
OF_TWO(right, i32, u32, i32, a >> (b & 31u))
OF_ONE(negate, i32, i32, (i32)(0u - (u32)a))
OF_ONE(invert, i32, i32, ~a)
OF_ONE(magnitude, i32, i32, a < 0 ? (i32)(0u - (u32)a) : a)

template<class T> FN T clamped(T x, T low, T high) { return smaller(larger(x, low), high); }

// Comparisons and truth.
#define COMPARED(T) \
    OF_TWO(equal, T, T, bool, a == b) \
    OF_TWO(differ, T, T, bool, a != b) \
    OF_TWO(less, T, T, bool, a < b) \
    OF_TWO(at_most, T, T, bool, a <= b) \
    OF_TWO(greater, T, T, bool, a > b) \
    OF_TWO(at_least, T, T, bool, a >= b)
COMPARED(f32)
COMPARED(u32)
COMPARED(i32)
OF_TWO(equal, bool, bool, bool, a == b)
OF_TWO(differ, bool, bool, bool, a != b)
OF_TWO(and_, bool, bool, bool, a && b)
OF_TWO(or_, bool, bool, bool, a || b)
OF_ONE(not_, bool, bool, !a)
FN bool all_of(v2<bool> a) { return a.x && a.y; }
FN bool all_of(v3<bool> a) { return a.x && a.y && a.z; }
FN bool all_of(v4<bool> a) { return a.x && a.y && a.z && a.w; }
FN bool all_of(bool a) { return a; }
FN bool any_of(v2<bool> a) { return a.x || a.y; }
FN bool any_of(v3<bool> a) { return a.x || a.y || a.z; }
FN bool any_of(v4<bool> a) { return a.x || a.y || a.z || a.w; }
FN bool any_of(bool a) { return a; }

template<class T> FN T choose(bool c, T yes, T no) { return c ? yes : no; }
template<class T> FN v2<T> choose(v2<bool> c, v2<T> yes, v2<T> no) {
    return {c.x ? yes.x : no.x, c.y ? yes.y : no.y};
}
template<class T> FN v3<T> choose(v3<bool> c, v3<T> yes, v3<T> no) {
    return {c.x ? yes.x : no.x, c.y ? yes.y : no.y, c.z ? yes.z : no.z};
}
template<class T> FN v4<T> choose(v4<bool> c, v4<T> yes, v4<T> no) {
    return {c.x ? yes.x : no.x, c.y ? yes.y : no.y, c.z ? yes.z : no.z, c.w ? yes.w : no.w};
}

// Memory. What no thread of a launch writes may be read past the first cache.
FN u32 load(const u32& at) { return __ldg(&at); }
template<class T> FN T load(const T& at) { return at; }
// An index held inside a buffer; none is empty.
FN u32 inside(u32 i, u32 length) { return i < length ? i : length - 1u; }
FN u32 atomic_add(u32& at, u32 by) { return atomicAdd(&at, by); }
FN u32 atomic_load(const u32& at) { return *(const volatile u32*)&at; }
FN void atomic_store(u32& at, u32 value) { *(volatile u32*)&at = value; }
FN void block_barrier() { __syncthreads(); }

FN v3<u32> block_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
FN v3<u32> grid_size() { return {gridDim.x, gridDim.y, gridDim.z}; }
FN u32 thread_number() { return threadIdx.x; }

// What the device has of its own. No portable kernel uses it: the probe asks.
FN f32 device_sqrt(f32 a) { return __fsqrt_rn(a); }
FN f32 device_rsqrt(f32 a) { return rsqrtf(a); }
FN f32 device_exp(f32 a) { return expf(a); }
FN f32 device_log(f32 a) { return logf(a); }
FN f32 device_tanh(f32 a) { return tanhf(a); }
FN f32 device_round(f32 a) { return rintf(a); }
FN f32 device_dot(v4<f32> a, v4<f32> b) {
    return plus(plus(plus(times(a.x, b.x), times(a.y, b.y)), times(a.z, b.z)), times(a.w, b.w));
}
FN u32 device_pack_f16(v2<f32> a) { return f16_bits(a.x) | f16_bits(a.y) << 16; }
FN v2<f32> device_unpack_f16(u32 a) { return {f16_value(a & 0xffffu), f16_value(a >> 16)}; }
