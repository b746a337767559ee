// Many tensors in one launch: a table of their addresses, and which of them a block works on.
//
// Defined before by each user: ARRAYS, the number of arrays per tensor; MOST, the number of tensors
// per launch (the table stays within the 4 KB of arguments); CONSTANTS and NUMBERS, the numbers of
// constants that all tensors share, by value and by address.

#ifndef ARRAYS
#define ARRAYS 1
#define MOST 40
#define CONSTANTS 2
#define NUMBERS 1
#endif

struct Table {
    u64 arrays[ARRAYS][MOST];
    u64 numbers[NUMBERS];
    i64 sizes[MOST];
    float decays[MOST];
    float constants[CONSTANTS];
    int first[MOST + 1];  // the first block of each tensor
    int count;
};

// The tensor that the block works on.
__device__ __forceinline__ int tensor_of(const Table& table, int block) {
    int low = 0, high = table.count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (table.first[middle] <= block) low = middle;
        else high = middle;
    }
    return low;
}

// The elements [begin, end) of its tensor that this block works on; `chunk` elements each.
__device__ __forceinline__ void share_of(
    const Table& table, int tensor, i64 chunk, i64* begin, i64* end) {
    *begin = ((int)blockIdx.x - table.first[tensor]) * chunk;
    i64 size = table.sizes[tensor];
    *end = *begin + chunk < size ? *begin + chunk : size;
}

// Calls f(place, Numbers<N>) for this thread's elements of [begin, end), by packs where aligned. f
// has a template operator(): NVRTC needs a separate option for lambdas with `auto`.
template <class F>
__device__ __forceinline__ void each_of_share(i64 begin, i64 end, int packed, F& f) {
    int width = packed ? PACK : 1;
    for (i64 at = begin + (i64)threadIdx.x * width; at < end; at += (i64)blockDim.x * width) {
        if (packed && at + PACK <= end) {
            f(at, Numbers<PACK>());
        } else {
            for (i64 e = at; e < at + width && e < end; ++e) f(e, Numbers<1>());
        }
    }
}

template <int N, class P>
__device__ __forceinline__ void load_into(P from, Numbers<N>& values) {
    values = load<N>(from);
}
