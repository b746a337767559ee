// Convolution as a product: windows laid out as rows (im2col), and back (col2im).

template <int N>
__device__ void write_rows(
    IN(Scalar) x, OUT(Scalar) rows, const Window& w, i64 windows, i64 channels, i64 first,
    i64 part) {
    i64 places = (i64)w.size[0] * w.size[1] * w.size[2], packs = part / N;
    i64 each = places * packs;
    for (i64 e = first_element(); e < windows * each; e += element_step()) {
        i64 c = e % packs * N, k = e / packs % places;
        Spot spot = spot_of(e / each, w.out);
        int at[3];
        bool there = true;
        for (int a = 2; a >= 0; --a) {
            int step = (int)(k % w.size[a]) * w.apart[a];
            at[a] = spot.at[a] * w.stride[a] - w.before[a] + step;
            k /= w.size[a];
            there = there && at[a] >= 0 && at[a] < w.in[a];
        }
        auto to = rows + e * N;
        if (there) {
            i64 from = flat(spot.sample, at, w.in) * channels + first + c;
            write_pack<N>(to, read_pack<N>(x + from));
        } else {
            for (int i = 0; i < N; ++i) put(to + i, 0.0f);
        }
    }
}

// rows (windows, places of the window, part): the channels [first, first + part) of x, 0 in the
// padding.
extern "C" __global__ void windows_to_rows(
    IN(Scalar) x, OUT(Scalar) rows, Window w, i64 windows, i64 channels, i64 first, i64 part,
    int packed) {
    if (packed) write_rows<PACK>(x, rows, w, windows, channels, first, part);
    else write_rows<1>(x, rows, w, windows, channels, first, part);
}

template <int N>
__device__ void gather_rows(
    IN(Scalar) rows, OUT(Scalar) x, const Window& w, i64 places, i64 channels, i64 first,
    i64 part) {
    i64 packs = part / N;
    i64 row = (i64)w.size[0] * w.size[1] * w.size[2] * part;
    for (i64 e = first_element(); e < places * packs; e += element_step()) {
        i64 c = e % packs * N;
        Spot spot = spot_of(e / packs, w.in);
        Numbers<N> total;
#pragma unroll
        for (int i = 0; i < N; ++i) total.at[i] = 0.0f;
        int k[3], at[3];
        for (k[0] = 0; k[0] < w.size[0]; ++k[0])
            for (k[1] = 0; k[1] < w.size[1]; ++k[1])
                for (k[2] = 0; k[2] < w.size[2]; ++k[2]) {
                    bool there = true;
                    i64 place = 0;
                    for (int a = 0; a < 3; ++a) {
                        int from = spot.at[a] + w.before[a] - k[a] * w.apart[a];
                        at[a] = from / w.stride[a];
                        there = there && from >= 0 && from % w.stride[a] == 0 && at[a] < w.out[a];
                        place = place * w.size[a] + k[a];
                    }
                    if (!there) continue;
                    i64 window = flat(spot.sample, at, w.out);
                    Numbers<N> v = load<N>(rows + window * row + place * part + c);
#pragma unroll
                    for (int i = 0; i < N; ++i) total.at[i] += v.at[i];
                }
        store<N>(x + (e / packs) * channels + first + c, total);
    }
}

// x's channels [first, first + part): each place gets the sum of its elements of the rows.
extern "C" __global__ void rows_to_places(
    IN(Scalar) rows, OUT(Scalar) x, Window w, i64 places, i64 channels, i64 first, i64 part,
    int packed) {
    if (packed) gather_rows<PACK>(rows, x, w, places, channels, first, part);
    else gather_rows<1>(rows, x, w, places, channels, first, part);
}

// --- depthwise: every channel by itself, `many` results each -------------------------------------

// y[i, c * many + m] = sum over k of x[i * s + k * d - p, c] * kernel[k, c * many + m].
extern "C" __global__ void depthwise(
    IN(Scalar) x, IN(Scalar) kernel, OUT(Scalar) y, Window w, i64 windows, i64 channels,
    i64 many) {
    i64 results = channels * many;
    for (i64 e = first_element(); e < windows * results; e += element_step()) {
        i64 o = e % results, c = o / many;
        Spot spot = spot_of(e / results, w.out);
        float total = 0.0f;
        i64 place = 0;
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
                    i64 from = flat(spot.sample, at, w.in) * channels + c;
                    total += get(x + from) * get(kernel + place * results + o);
                }
        put(y + e, total);
    }
}

// dx[j, c] = sum over i, k with i * s + k * d - p = j, and m, of g[i, c * many + m] * kernel[...].
extern "C" __global__ void depthwise_data(
    IN(Scalar) g, IN(Scalar) kernel, OUT(Scalar) dx, Window w, i64 places, i64 channels,
    i64 many) {
    i64 results = channels * many;
    for (i64 e = first_element(); e < places * channels; e += element_step()) {
        i64 c = e % channels;
        Spot spot = spot_of(e / channels, w.in);
        float total = 0.0f;
        i64 place = 0;
        int k[3], at[3];
        for (k[0] = 0; k[0] < w.size[0]; ++k[0])
            for (k[1] = 0; k[1] < w.size[1]; ++k[1])
                for (k[2] = 0; k[2] < w.size[2]; ++k[2], ++place) {
                    bool there = true;
                    for (int a = 0; a < 3; ++a) {
                        int from = spot.at[a] + w.before[a] - k[a] * w.apart[a];
                        at[a] = from / w.stride[a];
                        there = there && from >= 0 && from % w.stride[a] == 0 && at[a] < w.out[a];
                    }
                    if (!there) continue;
                    i64 from = flat(spot.sample, at, w.out) * results + c * many;
                    for (i64 m = 0; m < many; ++m) {
                        total += get(g + from + m) * get(kernel + place * results + c * many + m);
                    }
                }
        put(dx + e, total);
    }
}

// parts (chunks, places, results): for each chunk of windows, the sums of x * g by which the
// kernel's gradient is found. A block: 32 results, windows by eights.
extern "C" __global__ void depthwise_kernel_parts(
    IN(Scalar) x, IN(Scalar) g, OUT(float) parts, Window w, i64 windows, i64 channels, i64 many,
    i64 chunk, i64 chunks) {
    SHARED(float, sums, 32 * 8);
    i64 results = channels * many, tiles = (results + 31) / 32;
    i64 places = (i64)w.size[0] * w.size[1] * w.size[2], work = tiles * places * chunks;
    for (i64 v = blockIdx.x; v < work; v += gridDim.x) {
        i64 o = v % tiles * 32 + threadIdx.x, place = v / tiles % places;
        i64 part = v / tiles / places, k = place;
        i64 end = part * chunk + chunk < windows ? part * chunk + chunk : windows;
        int step[3];
        for (int a = 2; a >= 0; --a) {
            step[a] = (int)(k % w.size[a]) * w.apart[a] - w.before[a];
            k /= w.size[a];
        }
        float total = 0.0f;
        for (i64 i = part * chunk + threadIdx.y; o < results && i < end; i += 8) {
            Spot spot = spot_of(i, w.out);
            int at[3];
            bool there = true;
            for (int a = 0; a < 3; ++a) {
                at[a] = spot.at[a] * w.stride[a] + step[a];
                there = there && at[a] >= 0 && at[a] < w.in[a];
            }
            if (!there) continue;
            i64 from = flat(spot.sample, at, w.in) * channels + o / many;
            total += get(x + from) * get(g + i * results + o);
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
