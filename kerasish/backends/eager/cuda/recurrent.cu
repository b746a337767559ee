// One step of a recurrent cell, after the product of the state with the recurrent kernel.
//
// What a step passes to the next one is stored as float unless a product needs it as Scalar. A
// thread computes one unit of one sample. A step that the mask excludes keeps the state.

__device__ __forceinline__ float logistic(float x) { return 0.5f * tanhf(0.5f * x) + 0.5f; }

// Whether the step counts for the sample.
template <class P>
__device__ __forceinline__ bool counts(P mask, int masked, Index sample) {
    return !masked || get(mask + sample) != 0.0f;
}

// h = tanh(x + s), s = before @ recurrent.
extern "C" __global__ void simple_step(
    IN(Scalar) x, IN(Scalar) s, IN(Scalar) before, IN(Scalar) mask, OUT(Scalar) h, i64 count,
    Divisor by, int masked) {
    Index all = (Index)count * by.by;
    for (Index e = first_index(); e < all; e += index_step()) {
        float made = tanhf(get(x + e) + get(s + e));
        put(h + e, counts(mask, masked, quotient(e, by)) ? made : get(before + e));
    }
}

// Backward: dh = carry + past + g is the gradient of h. dz is that of x and of the product; carry
// is the other part of the gradient of the previous state. past = (dz of the next step) @
// recurrent^T.
extern "C" __global__ void simple_step_gradient(
    IN(Scalar) g, IN(Scalar) h, IN(float) carry, IN(Scalar) past, IN(Scalar) mask,
    OUT(Scalar) dz, OUT(float) next, i64 count, Divisor by, int masked, int has_past) {
    Index all = (Index)count * by.by;
    for (Index e = first_index(); e < all; e += index_step()) {
        float dh = get(g + e);
        if (has_past) dh += carry[e] + get(past + e);
        float y = get(h + e);
        bool on = counts(mask, masked, quotient(e, by));
        put(dz + e, on ? dh * (1.0f - y * y) : 0.0f);
        next[e] = on ? 0.0f : dh;
    }
}

// z = x + s is stored as (i, f, g, o): c = f before_c + i g, h = o tanh(c). `cell` is c as float.
extern "C" __global__ void lstm_step(
    IN(Scalar) x, IN(Scalar) s, IN(Scalar) before, IN(float) before_c, IN(Scalar) mask,
    OUT(Scalar) h, OUT(Scalar) c, OUT(float) cell, OUT(Scalar) gates, i64 count, Divisor by,
    int masked) {
    Index units = by.by, all = (Index)count * units;
    for (Index e = first_index(); e < all; e += index_step()) {
        int unit;
        Index sample = divided(e, by, &unit), z = sample * 4 * units + unit;
        float i = logistic(get(x + z) + get(s + z));
        float f = logistic(get(x + (z + units)) + get(s + (z + units)));
        float g = tanhf(get(x + (z + 2 * units)) + get(s + (z + 2 * units)));
        float o = logistic(get(x + (z + 3 * units)) + get(s + (z + 3 * units)));
        float new_c = f * before_c[e] + i * g;
        bool on = counts(mask, masked, sample);
        float kept = on ? new_c : before_c[e];
        put(h + e, on ? o * tanhf(new_c) : get(before + e));
        put(c + e, kept);
        cell[e] = kept;
        put(gates + z, i);
        put(gates + (z + units), f);
        put(gates + (z + 2 * units), g);
        put(gates + (z + 3 * units), o);
    }
}

// All steps of an LSTM in one launch: a block computes SAMPLES samples, a thread one unit of them,
// of at most UNITS. States are passed between steps in shared memory, rounded as they are stored;
// cells stay in registers.
#define SAMPLES 4
#define UNITS 256

extern "C" __global__ void __launch_bounds__(256, 4) lstm_sequence(
    IN(Scalar) x, IN(Scalar) recurrent, IN(Scalar) first_h, IN(Scalar) first_c, IN(Scalar) mask,
    OUT(Scalar) h, OUT(Scalar) c, OUT(Scalar) gates, i64 steps, i64 samples, i64 units,
    int masked) {
    SHARED(float, states, 2 * SAMPLES * UNITS);
    Index unit = threadIdx.x, n = (Index)units;
    bool here = unit < n;
    Index step = (Index)gridDim.x * SAMPLES;
    for (Index first = (Index)blockIdx.x * SAMPLES; first < (Index)samples; first += step) {
        float cell[SAMPLES];
#pragma unroll
        for (int s = 0; s < SAMPLES; ++s) {
            bool there = here && first + s < (Index)samples;
            Index at = (first + s) * n + unit;
            cell[s] = there ? get(first_c + at) : 0.0f;
            states[s * UNITS + unit] = there ? get(first_h + at) : 0.0f;
        }
        __syncthreads();
        int now = 0;
        for (Index t = 0; t < (Index)steps; ++t) {
            float sums[SAMPLES][4];
#pragma unroll
            for (int s = 0; s < SAMPLES; ++s)
#pragma unroll
                for (int k = 0; k < 4; ++k) sums[s][k] = 0.0f;
            for (Index from = 0; here && from < n; ++from) {
                float by[4];
#pragma unroll
                for (int k = 0; k < 4; ++k) by[k] = get(recurrent + (from * 4 * n + k * n + unit));
#pragma unroll
                for (int s = 0; s < SAMPLES; ++s) {
                    float state = states[(now * SAMPLES + s) * UNITS + from];
#pragma unroll
                    for (int k = 0; k < 4; ++k) sums[s][k] += state * by[k];
                }
            }
#pragma unroll
            for (int s = 0; s < SAMPLES; ++s) {
                Index sample = first + s, at = t * (Index)samples + sample;
                int other = ((1 - now) * SAMPLES + s) * UNITS + unit;
                if (!here || sample >= (Index)samples) {
                    states[other] = 0.0f;
                    continue;
                }
                Index z = at * 4 * n + unit;
                float i = logistic(get(x + z) + sums[s][0]);
                float f = logistic(get(x + (z + n)) + sums[s][1]);
                float g = tanhf(get(x + (z + 2 * n)) + sums[s][2]);
                float o = logistic(get(x + (z + 3 * n)) + sums[s][3]);
                bool on = counts(mask, masked, at);
                float new_c = f * cell[s] + i * g;
                float new_h = on ? o * tanhf(new_c) : states[(now * SAMPLES + s) * UNITS + unit];
                cell[s] = on ? new_c : cell[s];
                Scalar stored;
                narrow(new_h, stored);
                states[other] = widen(stored);
                put(h + (at * n + unit), new_h);
                put(c + (at * n + unit), cell[s]);
                put(gates + z, i);
                put(gates + (z + n), f);
                put(gates + (z + 2 * n), g);
                put(gates + (z + 3 * n), o);
            }
            __syncthreads();
            now = 1 - now;
        }
    }
}

// Backward: dh = carry_h + past + g_h is the gradient of h, dc = carry_c + g_c that of c.
extern "C" __global__ void lstm_step_gradient(
    IN(Scalar) g_h, IN(Scalar) g_c, IN(Scalar) gates, IN(Scalar) c, IN(Scalar) before_c,
    IN(float) carry_h, IN(float) carry_c, IN(Scalar) past, IN(Scalar) mask, OUT(Scalar) dz,
    OUT(float) next_h, OUT(float) next_c, i64 count, Divisor by, int masked, int has_past) {
    Index units = by.by, all = (Index)count * units;
    for (Index e = first_index(); e < all; e += index_step()) {
        int unit;
        Index sample = divided(e, by, &unit), z = sample * 4 * units + unit;
        float i = get(gates + z), f = get(gates + (z + units));
        float g = get(gates + (z + 2 * units)), o = get(gates + (z + 3 * units));
        float dh = get(g_h + e), dc = get(g_c + e);
        if (has_past) {
            dh += carry_h[e] + get(past + e);
            dc += carry_c[e];
        }
        float reached = tanhf(get(c + e));
        float through = dc + dh * o * (1.0f - reached * reached);
        bool on = counts(mask, masked, sample);
        put(dz + z, on ? through * g * i * (1.0f - i) : 0.0f);
        put(dz + (z + units), on ? through * get(before_c + e) * f * (1.0f - f) : 0.0f);
        put(dz + (z + 2 * units), on ? through * i * (1.0f - g * g) : 0.0f);
        put(dz + (z + 3 * units), on ? dh * reached * o * (1.0f - o) : 0.0f);
        next_h[e] = on ? 0.0f : dh;
        next_c[e] = on ? through * f : dc;
    }
}

// x and s = before @ recurrent (+ bias) are stored as (z, r, n): h = z before + (1 - z) n,
// n = tanh(x_n + r s_n). gates: z, r, n, s_n.
extern "C" __global__ void gru_step(
    IN(Scalar) x, IN(Scalar) s, IN(Scalar) bias, IN(Scalar) before, IN(Scalar) mask,
    OUT(Scalar) h, OUT(Scalar) gates, i64 count, Divisor by, int masked) {
    Index units = by.by, all = (Index)count * units;
    for (Index e = first_index(); e < all; e += index_step()) {
        int unit;
        Index sample = divided(e, by, &unit), at = sample * 3 * units + unit;
        Index to = sample * 4 * units + unit;
        float z = logistic(get(x + at) + get(s + at) + get(bias + unit));
        float r = logistic(
            get(x + (at + units)) + get(s + (at + units)) + get(bias + (unit + units)));
        float inner = get(s + (at + 2 * units)) + get(bias + (unit + 2 * units));
        float n = tanhf(get(x + (at + 2 * units)) + r * inner);
        float old = get(before + e);
        put(h + e, counts(mask, masked, sample) ? z * old + (1.0f - z) * n : old);
        put(gates + to, z);
        put(gates + (to + units), r);
        put(gates + (to + 2 * units), n);
        put(gates + (to + 3 * units), inner);
    }
}

// Backward: dh = carry + past + g is the gradient of h; dx is that of x, ds that of the product.
extern "C" __global__ void gru_step_gradient(
    IN(Scalar) g, IN(Scalar) gates, IN(Scalar) before, IN(float) carry, IN(Scalar) past,
    IN(Scalar) mask, OUT(Scalar) dx, OUT(Scalar) ds, OUT(float) next, i64 count, Divisor by,
    int masked, int has_past) {
    Index units = by.by, all = (Index)count * units;
    for (Index e = first_index(); e < all; e += index_step()) {
        int unit;
        Index sample = divided(e, by, &unit), at = sample * 3 * units + unit;
        Index from = sample * 4 * units + unit;
        float z = get(gates + from), r = get(gates + (from + units));
        float n = get(gates + (from + 2 * units)), inner = get(gates + (from + 3 * units));
        float dh = get(g + e);
        if (has_past) dh += carry[e] + get(past + e);
        bool on = counts(mask, masked, sample);
        float dn = on ? dh * (1.0f - z) * (1.0f - n * n) : 0.0f;
        float dz = on ? dh * (get(before + e) - n) * z * (1.0f - z) : 0.0f;
        float dr = dn * inner * r * (1.0f - r);
        put(dx + at, dz);
        put(dx + (at + units), dr);
        put(dx + (at + 2 * units), dn);
        put(ds + at, dz);
        put(ds + (at + units), dr);
        put(ds + (at + 2 * units), dn * r);
        next[e] = on ? dh * z : dh;
    }
}
