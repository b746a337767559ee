// The largest or the mean element of each window, and the gradients: every element gathers its
// terms, so the order of additions never changes.

template <int N>
__device__ void largest_of_windows(
    IN(Scalar) x, OUT(Scalar) y, OUT(int) chosen, const Window& w, const Divisor& packs, i64 windows,
    int want_values, int want_places) {
    Index channels = (Index)packs.by * N, count = (Index)windows * packs.by;
    for (Index e = first_index(); e < count; e += index_step()) {
        int c;
        Index at_window = divided(e, packs, &c);
        c *= N;
        Spot spot = spot_of(at_window, w.by_out);
        int low[3], high[3], at[3], k[3];
        inside(w, spot, low, high);
        Numbers<N> best;
        int place[N];
#pragma unroll
        for (int i = 0; i < N; ++i) place[i] = -1;
        for (k[0] = low[0]; k[0] < high[0]; ++k[0])
            for (k[1] = low[1]; k[1] < high[1]; ++k[1])
                for (k[2] = low[2]; k[2] < high[2]; ++k[2]) {
                    for (int a = 0; a < 3; ++a) {
                        at[a] = spot.at[a] * w.stride[a] - w.before[a] + k[a];
                    }
                    int here = (k[0] * w.size[1] + k[1]) * w.size[2] + k[2];
                    Numbers<N> v = load<N>(x + (flat(spot.sample, at, w.in) * channels + c));
#pragma unroll
                    for (int i = 0; i < N; ++i) {
                        // The first largest; the first NaN is larger than all.
                        bool best_known = best.at[i] == best.at[i];
                        bool better = v.at[i] > best.at[i] || v.at[i] != v.at[i];
                        if (place[i] < 0 || (better && best_known)) {
                            best.at[i] = v.at[i];
                            place[i] = here;
                        }
                    }
                }
        Index to = at_window * channels + c;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            if (place[i] < 0) best.at[i] = LOWEST;  // a window in the padding
            if (want_places) chosen[to + i] = place[i];
        }
        if (want_values) store<N>(y + to, best);
    }
}

// y: the largest of each window; chosen: its place there, in C order. Either may be missing.
extern "C" __global__ void pool_largest(
    IN(Scalar) x, OUT(Scalar) y, OUT(int) chosen, Window w, Divisor packs, i64 windows,
    int want_values, int want_places, int packed) {
    if (packed) {
        largest_of_windows<PACK>(
            x, y, chosen, w, packs, windows, want_values, want_places);
    } else {
        largest_of_windows<1>(x, y, chosen, w, packs, windows, want_values, want_places);
    }
}

// dx: each element gets the g of the windows in which it was chosen. places = samples * in.
extern "C" __global__ void pool_largest_gradient(
    IN(Scalar) g, IN(int) chosen, OUT(Scalar) dx, Window w, Divisor packs, i64 places) {
    Index count = (Index)places * packs.by;
    for (Index e = first_index(); e < count; e += index_step()) {
        int c;
        Spot spot = spot_of(divided(e, packs, &c), w.by_in);
        int low[3], high[3], i[3];
        covering(w, spot, low, high);
        float total = 0.0f;
        for (i[0] = low[0]; i[0] < high[0]; ++i[0])
            for (i[1] = low[1]; i[1] < high[1]; ++i[1])
                for (i[2] = low[2]; i[2] < high[2]; ++i[2]) {
                    int here = 0;
                    for (int a = 0; a < 3; ++a) {
                        int k = spot.at[a] + w.before[a] - i[a] * w.stride[a];
                        here = here * w.size[a] + k;
                    }
                    Index from = flat(spot.sample, i, w.out) * packs.by + c;
                    if (chosen[from] == here) total += get(g + from);
                }
        put(dx + e, total);
    }
}

// y: the element of h at the place chosen in each window.
extern "C" __global__ void pool_pick(
    IN(Scalar) h, IN(int) chosen, OUT(Scalar) y, Window w, Divisor packs, i64 windows) {
    Index count = (Index)windows * packs.by;
    for (Index e = first_index(); e < count; e += index_step()) {
        int c, of, at[3];
        Spot spot = spot_of(divided(e, packs, &c), w.by_out);
        int k = chosen[e];
        if (k < 0) {
            put(y + e, 0.0f);
            continue;
        }
        for (int a = 2; a >= 0; --a) {
            k = (int)divided(k, w.by_size[a], &of);
            at[a] = spot.at[a] * w.stride[a] - w.before[a] + of;
        }
        put(y + e, get(h + (flat(spot.sample, at, w.in) * packs.by + c)));
    }
}

template <int N>
__device__ void mean_of_windows(
    IN(Scalar) x, OUT(Scalar) y, const Window& w, const Divisor& packs, i64 windows) {
    Index channels = (Index)packs.by * N, count = (Index)windows * packs.by;
    for (Index e = first_index(); e < count; e += index_step()) {
        int c;
        Index at_window = divided(e, packs, &c);
        c *= N;
        Spot spot = spot_of(at_window, w.by_out);
        int low[3], high[3], at[3], k[3];
        inside(w, spot, low, high);
        Numbers<N> total;
#pragma unroll
        for (int i = 0; i < N; ++i) total.at[i] = 0.0f;
        for (k[0] = low[0]; k[0] < high[0]; ++k[0])
            for (k[1] = low[1]; k[1] < high[1]; ++k[1])
                for (k[2] = low[2]; k[2] < high[2]; ++k[2]) {
                    for (int a = 0; a < 3; ++a) {
                        at[a] = spot.at[a] * w.stride[a] - w.before[a] + k[a];
                    }
                    Numbers<N> v = load<N>(x + (flat(spot.sample, at, w.in) * channels + c));
#pragma unroll
                    for (int i = 0; i < N; ++i) total.at[i] += v.at[i];
                }
        float share = 1.0f / (float)((high[0] - low[0]) * (high[1] - low[1]) * (high[2] - low[2]));
#pragma unroll
        for (int i = 0; i < N; ++i) total.at[i] *= share;
        store<N>(y + (at_window * channels + c), total);
    }
}

// y: the mean of each window's places inside the data.
extern "C" __global__ void pool_mean(
    IN(Scalar) x, OUT(Scalar) y, Window w, Divisor packs, i64 windows, int packed) {
    if (packed) mean_of_windows<PACK>(x, y, w, packs, windows);
    else mean_of_windows<1>(x, y, w, packs, windows);
}

template <int N>
__device__ void spread_mean(
    IN(Scalar) g, OUT(Scalar) dx, const Window& w, const Divisor& packs, i64 places) {
    Index channels = (Index)packs.by * N, count = (Index)places * packs.by;
    for (Index e = first_index(); e < count; e += index_step()) {
        int c;
        Index at_place = divided(e, packs, &c);
        c *= N;
        Spot spot = spot_of(at_place, w.by_in), window;
        window.sample = spot.sample;
        int low[3], high[3], from[3], to[3];
        covering(w, spot, low, high);
        Numbers<N> total;
#pragma unroll
        for (int i = 0; i < N; ++i) total.at[i] = 0.0f;
        int* at = window.at;
        for (at[0] = low[0]; at[0] < high[0]; ++at[0])
            for (at[1] = low[1]; at[1] < high[1]; ++at[1])
                for (at[2] = low[2]; at[2] < high[2]; ++at[2]) {
                    inside(w, window, from, to);
                    int covered = (to[0] - from[0]) * (to[1] - from[1]) * (to[2] - from[2]);
                    float share = 1.0f / (float)covered;
                    Numbers<N> v = load<N>(g + (flat(spot.sample, at, w.out) * channels + c));
#pragma unroll
                    for (int i = 0; i < N; ++i) total.at[i] += v.at[i] * share;
                }
        store<N>(dx + (at_place * channels + c), total);
    }
}

// dx: each element gets its part of the g of the windows it is in.
extern "C" __global__ void pool_mean_gradient(
    IN(Scalar) g, OUT(Scalar) dx, Window w, Divisor packs, i64 places, int packed) {
    if (packed) spread_mean<PACK>(g, dx, w, packs, places);
    else spread_mean<1>(g, dx, w, packs, places);
}
