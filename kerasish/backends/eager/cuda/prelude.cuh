// The common start of each source of kernels: scalars, packs of them, reductions over warps and
// blocks.
//
// SCALAR is 32 (float), 16 (half) or 17 (bfloat16): how numbers are stored. They are computed as
// float. No header is included: NVRTC compiles this text unchanged, and so does the C++ compiler of
// the tests, which defines ON_CPU and its own IN, OUT, SHARED, AT and packs.

typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;

// INDEX is 32 if every array of a launch has fewer than 2^31 elements: a division of 64 bits takes
// about 70 instructions. A position plus the stride of the whole grid still fits.
#if INDEX == 32
typedef u32 Index;
#else
typedef i64 Index;
#endif

#ifndef ON_CPU
#define IN(T) const T* __restrict__
#define OUT(T) T* __restrict__
#define SHARED(T, name, count) __shared__ T name[count]
#define AT(T, address) ((T*)(address))

template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
    T at[N];
};

template <int N, class T>
__device__ __forceinline__ Pack<T, N> read_pack(const T* from) {
    return *reinterpret_cast<const Pack<T, N>*>(from);
}

template <int N, class T>
__device__ __forceinline__ void write_pack(T* to, const Pack<T, N>& values) {
    *reinterpret_cast<Pack<T, N>*>(to) = values;
}
#endif

#define NO_NUMBER __int_as_float(0x7fc00000)
#define LOWEST __int_as_float(0xff800000)  // -infinity

// --- scalars ---------------------------------------------------------------------------------

#if SCALAR == 32
typedef float Scalar;
#else
struct Scalar {
    unsigned short bits;
};
#endif

// Scalars per load of 16 bytes, the widest.
#define PACK (16 / (int)sizeof(Scalar))

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ void narrow(float x, float& y) { y = x; }

#if SCALAR == 16
#ifndef ON_CPU
__device__ __forceinline__ float half_to_float(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
__device__ __forceinline__ unsigned short float_to_half(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
#endif
__device__ __forceinline__ float widen(Scalar x) { return half_to_float(x.bits); }
__device__ __forceinline__ void narrow(float x, Scalar& y) { y.bits = float_to_half(x); }
#elif SCALAR == 17
__device__ __forceinline__ float widen(Scalar x) { return __int_as_float((int)x.bits << 16); }
__device__ __forceinline__ void narrow(float x, Scalar& y) {
    // To the nearest, ties to even, with integers: the instruction requires sm_80.
    u32 bits = (u32)__float_as_int(x);
    u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    y.bits = (unsigned short)(x == x ? rounded : ((bits >> 16) & 0x8000u) | 0x7fc0u);
}
#endif

template <class P>
__device__ __forceinline__ float get(P from) {
    return widen(*from);
}

template <class P>
__device__ __forceinline__ void put(P to, float x) {
    narrow(x, *to);
}

// --- packs of N scalars, as floats -------------------------------------------------------------

template <int N>
struct Numbers {
    float at[N];
};

template <int N, class P>
__device__ __forceinline__ Numbers<N> load(P from) {
    auto pack = read_pack<N>(from);
    Numbers<N> values;
#pragma unroll
    for (int k = 0; k < N; ++k) values.at[k] = widen(pack.at[k]);
    return values;
}

template <int N, class T, class P>
__device__ __forceinline__ void store_as(P to, const Numbers<N>& values) {
    Pack<T, N> pack;
#pragma unroll
    for (int k = 0; k < N; ++k) narrow(values.at[k], pack.at[k]);
    write_pack<N>(to, pack);
}

template <int N, class P>
__device__ __forceinline__ void store(P to, const Numbers<N>& values) {
    store_as<N, Scalar>(to, values);
}

// --- division by a number that is known on the host --------------------------------------------

// n / by = n * multiplier >> 32 + shift, exact for n < 2^31 and 0 < by < 2^31.
// Source: Granlund & Montgomery, Division by invariant integers using multiplication, PLDI 1994.
struct Divisor {
    int by, shift;
    u32 multiplier;
};

__device__ __forceinline__ Index quotient(Index n, const Divisor& d) {
#if INDEX == 32
    return d.by == 1 ? n : __umulhi(n, d.multiplier) >> d.shift;
#else
    return n / d.by;
#endif
}

// n / by, and the remainder in `rest`.
__device__ __forceinline__ Index divided(Index n, const Divisor& d, int* rest) {
    Index q = quotient(n, d);
    *rest = (int)(n - q * (Index)d.by);
    return q;
}

// --- division of the work ----------------------------------------------------------------------

// A loop over all elements: the first of this thread, and the step to its next.
__device__ __forceinline__ i64 first_element() {
    return (i64)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ i64 element_step() { return (i64)gridDim.x * blockDim.x; }
__device__ __forceinline__ Index first_index() { return (Index)first_element(); }
__device__ __forceinline__ Index index_step() { return (Index)element_step(); }

// A loop over rows: a row belongs to a warp (blocks of 32 x rows) or to a whole block (x 1).
__device__ __forceinline__ i64 first_row() { return (i64)blockIdx.x * blockDim.y + threadIdx.y; }
__device__ __forceinline__ i64 row_step() { return (i64)gridDim.x * blockDim.y; }

// --- reductions in a fixed order ---------------------------------------------------------------

struct Sum {
    __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
    __device__ __forceinline__ float start() const { return 0.0f; }
};

struct Largest {
    __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
    __device__ __forceinline__ float start() const { return LOWEST; }
};

template <class F>
__device__ __forceinline__ float reduce_warp(float x, F f) {
    for (int apart = 16; apart; apart >>= 1) x = f(x, __shfl_xor_sync(0xffffffffu, x, apart));
    return x;
}

// Over the threads that share a row; each of them gets the result.
template <class F>
__device__ __forceinline__ float reduce_row(float x, F f) {
    x = reduce_warp(x, f);
    if (blockDim.x == 32) return x;
    SHARED(float, parts, 32);
    int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    if (lane == 0) parts[threadIdx.x >> 5] = x;
    __syncthreads();
    x = reduce_warp(lane < warps ? parts[lane] : f.start(), f);
    __syncthreads();  // before a thread writes the parts of the next reduction
    return x;
}
