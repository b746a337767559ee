// Windows that slide over up to three spatial axes of (samples, *spatial, channels). Missing axes
// are first, with size 1.

struct Window {
    int in[3];      // sizes of the data
    int out[3];     // number of windows
    int size[3];    // places of a window
    int stride[3];
    int before[3];  // padding
    int apart[3];   // dilation
    Divisor by_in[3], by_out[3], by_size[3], by_stride[3];
};

struct Spot {
    Index sample;
    int at[3];
};

// The position of the flat index `at` in (samples, *sizes).
__device__ __forceinline__ Spot spot_of(Index at, const Divisor* sizes) {
    Spot spot;
#pragma unroll
    for (int axis = 2; axis >= 0; --axis) at = divided(at, sizes[axis], &spot.at[axis]);
    spot.sample = at;
    return spot;
}

__device__ __forceinline__ Index flat(Index sample, const int* at, const int* sizes) {
    return ((sample * sizes[0] + at[0]) * sizes[1] + at[1]) * sizes[2] + at[2];
}

// The places [low, high) of the window at `spot` that are inside the data, without dilation.
__device__ __forceinline__ void inside(const Window& w, const Spot& spot, int* low, int* high) {
    for (int axis = 0; axis < 3; ++axis) {
        int start = spot.at[axis] * w.stride[axis] - w.before[axis];
        low[axis] = start < 0 ? -start : 0;
        int limit = w.in[axis] - start;
        high[axis] = limit < w.size[axis] ? limit : w.size[axis];
    }
}

// The windows [low, high) that the place `spot` of the data may be in, without dilation.
__device__ __forceinline__ void covering(const Window& w, const Spot& spot, int* low, int* high) {
    for (int axis = 0; axis < 3; ++axis) {
        int place = spot.at[axis] + w.before[axis], first = place - w.size[axis] + 1;
        low[axis] = first > 0 ? (int)quotient(first + w.stride[axis] - 1, w.by_stride[axis]) : 0;
        int last = (int)quotient(place, w.by_stride[axis]) + 1;
        high[axis] = last < w.out[axis] ? last : w.out[axis];
    }
}
