// Rows picked by index, and the transpose: rows added at their index, in a fixed order.

// y[i] = table[index[i]], rows of n; a negative index counts from the end. If there is no such row,
// y is NaN: a kernel cannot raise.
template <int N, class I>
__device__ void gather_all(IN(Scalar) table, I index, OUT(Scalar) y, i64 count, i64 size, i64 n) {
    for (i64 row = first_row(); row < count; row += row_step()) {
        i64 from = index[row];
        from += from < 0 ? size : 0;
        bool there = from >= 0 && from < size;
        for (i64 j = (i64)threadIdx.x * N; j < n; j += (i64)blockDim.x * N) {
            if (there) {
                write_pack<N>(y + row * n + j, read_pack<N>(table + from * n + j));
            } else {
                for (int k = 0; k < N; ++k) put(y + row * n + j + k, NO_NUMBER);
            }
        }
    }
}

extern "C" __global__ void gather_int(
    IN(Scalar) table, IN(int) index, OUT(Scalar) y, i64 count, i64 size, i64 n, int packed) {
    if (packed) gather_all<PACK>(table, index, y, count, size, n);
    else gather_all<1>(table, index, y, count, size, n);
}

extern "C" __global__ void gather_long(
    IN(Scalar) table, IN(i64) index, OUT(Scalar) y, i64 count, i64 size, i64 n, int packed) {
    if (packed) gather_all<PACK>(table, index, y, count, size, n);
    else gather_all<1>(table, index, y, count, size, n);
}

// --- the targets of rows, and their order --------------------------------------------------------

// A negative index counts from the end; -1: there is no such place.
__device__ __forceinline__ i64 place_of(i64 at, i64 size) {
    at += at < 0 ? size : 0;
    return at >= 0 && at < size ? at : -1;
}

// index (outer, along, inner) -> the flat place in (outer, size, inner).
template <class I>
__device__ void all_along(
    I index, OUT(i64) places, i64 count, const Divisor& along, const Divisor& inner, i64 size) {
    for (Index e = first_index(); e < (Index)count; e += index_step()) {
        int rest;
        i64 at = place_of(index[e], size), outer = quotient(divided(e, inner, &rest), along);
        places[e] = at < 0 ? -1 : (outer * size + at) * inner.by + rest;
    }
}

extern "C" __global__ void places_along_int(
    IN(int) index, OUT(i64) places, i64 count, Divisor along, Divisor inner, i64 size) {
    all_along(index, places, count, along, inner, size);
}

extern "C" __global__ void places_along_long(
    IN(i64) index, OUT(i64) places, i64 count, Divisor along, Divisor inner, i64 size) {
    all_along(index, places, count, along, inner, size);
}

struct Sizes {
    i64 sizes[8];
    int axes;
};

// index (count, axes) -> the flat place in an array of these sizes.
template <class I>
__device__ void all_at(I index, OUT(i64) places, const Sizes& s, i64 count) {
    for (i64 e = first_element(); e < count; e += element_step()) {
        i64 place = 0;
#pragma unroll  // otherwise the sizes are copied to local memory to be indexed
        for (int axis = 0; axis < 8; ++axis) {
            if (axis >= s.axes) break;
            i64 at = place_of(index[e * s.axes + axis], s.sizes[axis]);
            place = at < 0 || place < 0 ? -1 : place * s.sizes[axis] + at;
        }
        places[e] = place;
    }
}

extern "C" __global__ void places_at_int(IN(int) index, OUT(i64) places, Sizes s, i64 count) {
    all_at(index, places, s, count);
}

extern "C" __global__ void places_at_long(IN(i64) index, OUT(i64) places, Sizes s, i64 count) {
    all_at(index, places, s, count);
}

// The number of `count` ascending keys that are below the key (or also equal to it).
template <class K>
__device__ __forceinline__ i64 rank_of(i64 key, K keys, i64 count, bool equal_too) {
    i64 low = 0, high = count;
    while (low < high) {
        i64 middle = (low + high) >> 1, found = keys[middle];
        if (found < key || (equal_too && found == key)) low = middle + 1;
        else high = middle;
    }
    return low;
}

// The new place of element e of neighboring sorted runs of width = 2^shift when each two of them
// are merged: its place in its own run, plus the number of elements of the other run before it.
// Equal keys keep their order.
template <class K>
__device__ __forceinline__ i64 merged_place(i64 e, K keys, i64 count, int shift) {
    i64 width = 1ll << shift, run = e >> shift, pair = run >> 1 << 1 << shift;
    bool second = run & 1;
    i64 begin = second ? pair : pair + width;
    i64 other = begin >= count ? 0 : (begin + width < count ? width : count - begin);
    return pair + (e & (width - 1)) + rank_of(keys[e], keys + begin, other, second);
}

#define SORTED 1024

// Each block sorts SORTED places: the keys, and the original place of each. A size > 0: they are
// indices of that number of rows.
template <class I>
__device__ void sort_all(I places, OUT(i64) keys, OUT(i64) order, i64 count, i64 size) {
    SHARED(i64, from, SORTED);
    SHARED(i64, to, SORTED);
    SHARED(int, from_order, SORTED);
    SHARED(int, to_order, SORTED);
    for (i64 chunk = blockIdx.x; chunk * SORTED < count; chunk += gridDim.x) {
        i64 begin = chunk * SORTED;
        int many = (int)(count - begin < SORTED ? count - begin : SORTED);
        for (int e = threadIdx.x; e < many; e += blockDim.x) {
            i64 place = places[begin + e];
            from[e] = size > 0 ? place_of(place, size) : place;
            from_order[e] = e;
        }
        __syncthreads();
        for (int shift = 0; 1 << shift < many; ++shift) {
            for (int e = threadIdx.x; e < many; e += blockDim.x) {
                i64 place = merged_place(e, from, many, shift);
                to[place] = from[e];
                to_order[place] = from_order[e];
            }
            __syncthreads();
            for (int e = threadIdx.x; e < many; e += blockDim.x) {
                from[e] = to[e];
                from_order[e] = to_order[e];
            }
            __syncthreads();
        }
        for (int e = threadIdx.x; e < many; e += blockDim.x) {
            keys[begin + e] = from[e];
            order[begin + e] = begin + from_order[e];
        }
        __syncthreads();
    }
}

extern "C" __global__ void sort_chunks(
    IN(i64) places, OUT(i64) keys, OUT(i64) order, i64 count, i64 size) {
    sort_all(places, keys, order, count, size);
}

extern "C" __global__ void sort_chunks_int(
    IN(int) index, OUT(i64) keys, OUT(i64) order, i64 count, i64 size) {
    sort_all(index, keys, order, count, size);
}

// One round: sorted runs of 2^shift become runs of twice that.
extern "C" __global__ void sort_merge(
    IN(i64) keys, IN(i64) order, OUT(i64) new_keys, OUT(i64) new_order, i64 count, i64 shift) {
    for (i64 e = first_element(); e < count; e += element_step()) {
        i64 place = merged_place(e, keys, count, (int)shift);
        new_keys[place] = keys[e];
        new_order[place] = order[e];
    }
}

// --- rows added ----------------------------------------------------------------------------------

// The rows of g, sorted by their targets: order[p] is the row that is added at places[p], and
// places ascend. They are cut into chunks of equal length. A run of one place inside one chunk is
// summed immediately. A run over several chunks has one sum per chunk: `edges` (chunks, 2, n) holds
// the sum of the run that started in an earlier chunk, and of the one that starts here and
// continues.
extern "C" __global__ void scatter_chunks(
    IN(Scalar) g, IN(i64) order, IN(i64) places, OUT(Scalar) y, OUT(float) edges, i64 count,
    i64 size, i64 n, i64 chunk) {
    Index tiles = ((Index)n + blockDim.x - 1) / blockDim.x;
    i64 chunks = (count + chunk - 1) / chunk;
    for (Index w = blockIdx.x; w < tiles * (Index)chunks; w += gridDim.x) {
        i64 part = w / tiles, j = w % tiles * blockDim.x + threadIdx.x;
        if (j >= n) continue;
        i64 begin = part * chunk, end = begin + chunk < count ? begin + chunk : count;
        bool came = begin > 0 && places[begin - 1] == places[begin];
        float total = 0.0f;
        for (i64 p = begin; p < end; ++p) {
            i64 place = places[p];
            total += get(g + order[p] * n + j);
            bool last = p + 1 == end;
            if (!last && places[p + 1] == place) continue;
            bool goes = last && end < count && places[end] == place;
            if (came) edges[part * 2 * n + j] = total;
            else if (goes) edges[(part * 2 + 1) * n + j] = total;
            else if (place >= 0 && place < size) put(y + place * n + j, total);
            total = 0.0f;
            came = false;
        }
    }
}

// Adds up the runs over several chunks, in order; each in the block of the chunk it starts in.
extern "C" __global__ void scatter_runs(
    IN(i64) places, IN(float) edges, OUT(Scalar) y, i64 count, i64 size, i64 n, i64 chunk) {
    Index tiles = ((Index)n + blockDim.x - 1) / blockDim.x;
    i64 chunks = (count + chunk - 1) / chunk;
    for (Index w = blockIdx.x; w < tiles * (Index)chunks; w += gridDim.x) {
        i64 part = w / tiles, j = w % tiles * blockDim.x + threadIdx.x;
        i64 begin = part * chunk, end = begin + chunk;
        if (j >= n || end >= count) continue;
        i64 place = places[end];
        bool starts = places[end - 1] == place &&
                      (places[begin] != place || begin == 0 || places[begin - 1] != place);
        if (!starts || place < 0 || place >= size) continue;
        float total = edges[(part * 2 + 1) * n + j];
        for (++part; part < chunks && places[part * chunk] == place; ++part) {
            total += edges[part * 2 * n + j];
        }
        put(y + place * n + j, total);
    }
}
