// Convolution as a product: windows laid out as rows (im2col), and back (col2im).

template <int N>
__device__ void write_rows(
    IN(Scalar) x, OUT(Scalar) rows, const Window& w, const Divisor& packs, i64 windows,
    i64 channels, i64 first) {
    Index places = (Index)w.size[0] * w.size[1] * w.size[2];
    Index count = (Index)windows * places * packs.by;
    for (Index e = first_index(); e < count; e += index_step()) {
        int c, k[3], at[3];
        Index rest = divided(e, packs, &c);
#pragma unroll
        for (int a = 2; a >= 0; --a) rest = divided(rest, w.by_size[a], &k[a]);
        Spot spot = spot_of(rest, w.by_out);
        bool there = true;
#pragma unroll
        for (int a = 0; a < 3; ++a) {
            at[a] = spot.at[a] * w.stride[a] - w.before[a] + k[a] * w.apart[a];
            there = there && at[a] >= 0 && at[a] < w.in[a];
        }
        auto to = rows + (i64)e * N;
        if (there) {
            Index from = flat(spot.sample, at, w.in) * (Index)channels + (Index)first + c * N;
            write_pack<N>(to, read_pack<N>(x + from));
        } else {
            for (int i = 0; i < N; ++i) put(to + i, 0.0f);
        }
    }
}

// rows (windows, places of the window, part): the channels [first, first + part) of x, 0 in the
// padding.
extern "C" __global__ void windows_to_rows(
    IN(Scalar) x, OUT(Scalar) rows, Window w, Divisor packs, i64 windows, i64 channels, i64 first,
    int packed) {
    if (packed) write_rows<PACK>(x, rows, w, packs, windows, channels, first);
    else write_rows<1>(x, rows, w, packs, windows, channels, first);
}

template <int N>
__device__ void gather_rows(
    IN(Scalar) rows, OUT(Scalar) x, const Window& w, const Divisor& packs, i64 places,
    i64 channels, i64 first) {
    Index part = (Index)packs.by * N;
    Index row = (Index)w.size[0] * w.size[1] * w.size[2] * part;
    Index count = (Index)places * packs.by;
    for (Index e = first_index(); e < count; e += index_step()) {
        int c;
        Index at_place = divided(e, packs, &c);
        Spot spot = spot_of(at_place, w.by_in);
        Numbers<N> total;
#pragma unroll
        for (int i = 0; i < N; ++i) total.at[i] = 0.0f;
        int k[3], at[3];
        for (k[0] = 0; k[0] < w.size[0]; ++k[0])
            for (k[1] = 0; k[1] < w.size[1]; ++k[1])
                for (k[2] = 0; k[2] < w.size[2]; ++k[2]) {
                    bool there = true;
                    Index place = 0;
#pragma unroll
                    for (int a = 0; a < 3; ++a) {
                        int from = spot.at[a] + w.before[a] - k[a] * w.apart[a], rest = 0;
                        at[a] = from < 0 ? 0 : (int)divided(from, w.by_stride[a], &rest);
                        there = there && from >= 0 && rest == 0 && at[a] < w.out[a];
                        place = place * w.size[a] + k[a];
                    }
                    if (!there) continue;
                    Index window = flat(spot.sample, at, w.out);
                    Numbers<N> v = load<N>(rows + (window * row + place * part + c * N));
#pragma unroll
                    for (int i = 0; i < N; ++i) total.at[i] += v.at[i];
                }
        store<N>(x + (at_place * (Index)channels + (Index)first + c * N), total);
    }
}

// x's channels [first, first + part): each place gets the sum of its elements of the rows.
extern "C" __global__ void rows_to_places(
    IN(Scalar) rows, OUT(Scalar) x, Window w, Divisor packs, i64 places, i64 channels, i64 first,
    int packed) {
    if (packed) gather_rows<PACK>(rows, x, w, packs, places, channels, first);
    else gather_rows<1>(rows, x, w, packs, places, channels, first);
}

// --- depthwise: every channel separately, `many` results each ------------------------------------

// y[i, c * many + m] = sum over k of x[i * s + k * d - p, c] * kernel[k, c * many + m].
extern "C" __global__ void depthwise(
    IN(Scalar) x, IN(Scalar) kernel, OUT(Scalar) y, Window w, Divisor results, Divisor many,
    i64 windows, i64 channels) {
    Index count = (Index)windows * results.by;
    for (Index e = first_index(); e < count; e += index_step()) {
        int o;
        Spot spot = spot_of(divided(e, results, &o), w.by_out);
        Index c = quotient(o, many), place = 0;
        float total = 0.0f;
        int k[3], at[3];
        for (k[0] = 0; k[0] < w.size[0]; ++k[0])
            for (k[1] = 0; k[1] < w.size[1]; ++k[1])
                for (k[2] = 0; k[2] < w.size[2]; ++k[2], ++place) {
                    bool there = true;
                    for (int a = 0; a < 3; ++a) {
                        at[a] = spot.at[a] * w.stride[a] - w.before[a] + k[a] * w.apart[a];
                        there = there && at[a] >= 0 && at[a] < w.in[a];
                    }
                    if (!there) continue;
                    Index from = flat(spot.sample, at, w.in) * (Index)channels + c;
                    total += get(x + from) * get(kernel + (place * results.by + o));
                }
        put(y + e, total);
    }
}

// dx[j, c] = sum over i, k with i * s + k * d - p = j, and m, of g[i, c * many + m] * kernel[...].
extern "C" __global__ void depthwise_data(
    IN(Scalar) g, IN(Scalar) kernel, OUT(Scalar) dx, Window w, Divisor channels, i64 places,
    i64 many) {
    Index results = (Index)channels.by * (Index)many, count = (Index)places * channels.by;
    for (Index e = first_index(); e < count; e += index_step()) {
        int c;
        Spot spot = spot_of(divided(e, channels, &c), w.by_in);
        float total = 0.0f;
        Index place = 0, at_c = c * (Index)many;
        int k[3], at[3];
        for (k[0] = 0; k[0] < w.size[0]; ++k[0])
            for (k[1] = 0; k[1] < w.size[1]; ++k[1])
                for (k[2] = 0; k[2] < w.size[2]; ++k[2], ++place) {
                    bool there = true;
#pragma unroll
                    for (int a = 0; a < 3; ++a) {
                        int from = spot.at[a] + w.before[a] - k[a] * w.apart[a], rest = 0;
                        at[a] = from < 0 ? 0 : (int)divided(from, w.by_stride[a], &rest);
                        there = there && from >= 0 && rest == 0 && at[a] < w.out[a];
                    }
                    if (!there) continue;
                    Index from = flat(spot.sample, at, w.out) * results + at_c;
                    for (Index m = 0; m < (Index)many; ++m) {
                        total += get(g + (from + m)) * get(kernel + (place * results + at_c + m));
                    }
                }
        put(dx + e, total);
    }
}

// parts (chunks, places, results): for each chunk of windows, the sums of x * g that form the
// kernel's gradient. A block: 32 results, windows by eights.
extern "C" __global__ void depthwise_kernel_parts(
    IN(Scalar) x, IN(Scalar) g, OUT(float) parts, Window w, Divisor many, i64 windows,
    i64 channels, i64 chunk, i64 chunks) {
    SHARED(float, sums, 32 * 8);
    Index results = (Index)channels * many.by, tiles = (results + 31) / 32;
    Index places = (Index)w.size[0] * w.size[1] * w.size[2], work = tiles * places * (Index)chunks;
    for (Index v = blockIdx.x; v < work; v += gridDim.x) {
        Index o = v % tiles * 32 + threadIdx.x, place = v / tiles % places;
        Index part = v / tiles / places, k = place, c = quotient(o, many);
        Index end = (part + 1) * (Index)chunk;
        if (end > (Index)windows) end = (Index)windows;
        int step[3];
        for (int a = 2; a >= 0; --a) {
            int of;
            k = divided(k, w.by_size[a], &of);
            step[a] = of * w.apart[a] - w.before[a];
        }
        float total = 0.0f;
        for (Index i = part * (Index)chunk + threadIdx.y; o < results && i < end; i += 8) {
            Spot spot = spot_of(i, w.by_out);
            int at[3];
            bool there = true;
#pragma unroll
            for (int a = 0; a < 3; ++a) {
                at[a] = spot.at[a] * w.stride[a] + step[a];
                there = there && at[a] >= 0 && at[a] < w.in[a];
            }
            if (!there) continue;
            Index from = flat(spot.sample, at, w.in) * (Index)channels + c;
            total += get(x + from) * get(g + (i * results + o));
        }
        sums[threadIdx.y * 32 + threadIdx.x] = total;
        __syncthreads();
        if (threadIdx.y == 0 && o < results) {
            for (int line = 1; line < 8; ++line) total += sums[line * 32 + threadIdx.x];
            parts[(part * places + place) * results + o] = total;
        }
        __syncthreads();
    }
}
