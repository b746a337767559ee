// Rows picked by index, and the transpose: rows added at their index, in a fixed order.

// y[i] = table[index[i]], rows of n; a negative index counts from the end. Where there is no such
// row, y is NaN: a kernel cannot raise.
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

// The rows of g, sorted by where they go: order[p] is the row that goes to places[p], and places
// ascend. They are cut into chunks of equal length. A run of one place that lies in one chunk is
// summed there at once. One that goes on leaves a sum for each chunk: `edges` (chunks, 2, n) holds
// the sum of the run that came from the chunk before, and of the one that starts here and goes on.
extern "C" __global__ void scatter_chunks(
    IN(Scalar) g, IN(i64) order, IN(i64) places, OUT(Scalar) y, OUT(float) edges, i64 count,
    i64 size, i64 n, i64 chunk) {
    i64 tiles = (n + blockDim.x - 1) / blockDim.x, chunks = (count + chunk - 1) / chunk;
    for (i64 w = blockIdx.x; w < tiles * chunks; w += gridDim.x) {
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

// Adds up the runs that go over several chunks, in their order; each by the chunk it starts in.
extern "C" __global__ void scatter_runs(
    IN(i64) places, IN(float) edges, OUT(Scalar) y, i64 count, i64 size, i64 n, i64 chunk) {
    i64 tiles = (n + blockDim.x - 1) / blockDim.x, chunks = (count + chunk - 1) / chunk;
    for (i64 w = blockIdx.x; w < tiles * chunks; w += gridDim.x) {
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
