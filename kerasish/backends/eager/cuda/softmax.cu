// softmax, log-softmax and cross-entropies of rows of logits, and their gradients.

// The largest logit of a row, and the sum of exp(logit - largest): one pass over the row.
struct Spread {
    float top, total;
};

template <int N, class P>
__device__ __forceinline__ Spread spread_of(P row, i64 n) {
    float top = LOWEST, total = 0.0f;
    for (i64 j = (i64)threadIdx.x * N; j < n; j += (i64)blockDim.x * N) {
        Numbers<N> x = load<N>(row + j);
        float most = top;
#pragma unroll
        for (int k = 0; k < N; ++k) most = fmaxf(most, x.at[k]);
        if (most > top) total *= expf(top - most);
        top = most;
#pragma unroll
        for (int k = 0; k < N; ++k) {
            // With only -infinity so far nothing is added, but a NaN must stay visible.
            if (top != LOWEST || x.at[k] != x.at[k]) total += expf(x.at[k] - top);
        }
    }
    Spread found;
    found.top = reduce_row(top, Largest());
    found.total = reduce_row(top == LOWEST ? total : total * expf(top - found.top), Sum());
    return found;
}

template <int N>
__device__ void softmax_rows(IN(Scalar) x, OUT(Scalar) y, i64 rows, i64 n, int logarithm) {
    for (i64 row = first_row(); row < rows; row += row_step()) {
        auto from = x + row * n;
        auto to = y + row * n;
        Spread s = spread_of<N>(from, n);
        float normalizer = logarithm ? logf(s.total) : 1.0f / s.total;
        for (i64 j = (i64)threadIdx.x * N; j < n; j += (i64)blockDim.x * N) {
            Numbers<N> v = load<N>(from + j);
#pragma unroll
            for (int k = 0; k < N; ++k) {
                float shifted = v.at[k] - s.top;
                v.at[k] = logarithm ? shifted - normalizer : expf(shifted) * normalizer;
            }
            store<N>(to + j, v);
        }
    }
}

// y = softmax(x) along rows of n, or its logarithm.
extern "C" __global__ void softmax(
    IN(Scalar) x, OUT(Scalar) y, i64 rows, i64 n, int logarithm, int packed) {
    if (packed) softmax_rows<PACK>(x, y, rows, n, logarithm);
    else softmax_rows<1>(x, y, rows, n, logarithm);
}

template <int N>
__device__ void softmax_gradient_rows(
    IN(Scalar) g, IN(Scalar) y, OUT(Scalar) dx, i64 rows, i64 n, int logarithm) {
    for (i64 row = first_row(); row < rows; row += row_step()) {
        i64 start = row * n;
        float total = 0.0f;
        for (i64 j = (i64)threadIdx.x * N; j < n; j += (i64)blockDim.x * N) {
            Numbers<N> a = load<N>(g + start + j), b = load<N>(y + start + j);
#pragma unroll
            for (int k = 0; k < N; ++k) total += logarithm ? a.at[k] : a.at[k] * b.at[k];
        }
        total = reduce_row(total, Sum());
        for (i64 j = (i64)threadIdx.x * N; j < n; j += (i64)blockDim.x * N) {
            Numbers<N> a = load<N>(g + start + j), b = load<N>(y + start + j);
#pragma unroll
            for (int k = 0; k < N; ++k) {
                a.at[k] = logarithm ? a.at[k] - expf(b.at[k]) * total
                                    : b.at[k] * (a.at[k] - total);
            }
            store<N>(dx + start + j, a);
        }
    }
}

// dx = y (g - sum(g y)) for y = softmax(x); dx = g - exp(y) sum(g) for its logarithm.
extern "C" __global__ void softmax_gradient(
    IN(Scalar) g, IN(Scalar) y, OUT(Scalar) dx, i64 rows, i64 n, int logarithm, int packed) {
    if (packed) softmax_gradient_rows<PACK>(g, y, dx, rows, n, logarithm);
    else softmax_gradient_rows<1>(g, y, dx, rows, n, logarithm);
}

template <int N>
__device__ void class_loss_rows(
    IN(Scalar) x, IN(int) classes, OUT(Scalar) loss, OUT(float) log_sums, i64 rows, i64 n) {
    for (i64 row = first_row(); row < rows; row += row_step()) {
        auto from = x + row * n;
        Spread s = spread_of<N>(from, n);
        if (threadIdx.x == 0) {
            int own = classes[row];
            float log_sum = logf(s.total);
            // The difference first: it is exact if the largest logit is far from 0.
            put(loss + row, own >= 0 && own < n ? log_sum + (s.top - get(from + own)) : 0.0f);
            log_sums[row] = log_sum + s.top;
        }
    }
}

// loss = log(sum(exp(x))) - x[class], 0 if there is no such class; log_sums = log(sum(exp(x))).
extern "C" __global__ void class_loss(
    IN(Scalar) x, IN(int) classes, OUT(Scalar) loss, OUT(float) log_sums, i64 rows, i64 n,
    int packed) {
    if (packed) class_loss_rows<PACK>(x, classes, loss, log_sums, rows, n);
    else class_loss_rows<1>(x, classes, loss, log_sums, rows, n);
}

template <int N>
__device__ void class_loss_gradient_rows(
    IN(Scalar) g, IN(Scalar) x, IN(int) classes, IN(float) log_sums, OUT(Scalar) dx, i64 rows,
    i64 n, i64 each) {
    for (i64 row = first_row(); row < rows; row += row_step()) {
        i64 start = row * n, own = classes[row];
        float arriving = own >= 0 && own < n ? get(g + row * each) : 0.0f, log_sum = log_sums[row];
        for (i64 j = (i64)threadIdx.x * N; j < n; j += (i64)blockDim.x * N) {
            Numbers<N> v = load<N>(x + start + j);
#pragma unroll
            for (int k = 0; k < N; ++k) {
                v.at[k] = arriving * (expf(v.at[k] - log_sum) - (j + k == own ? 1.0f : 0.0f));
            }
            store<N>(dx + start + j, v);
        }
    }
}

// dx = g (softmax(x) - onehot(class)); each: the stride from a row's g to the next, 1 or 0.
extern "C" __global__ void class_loss_gradient(
    IN(Scalar) g, IN(Scalar) x, IN(int) classes, IN(float) log_sums, OUT(Scalar) dx, i64 rows, i64 n,
    i64 each, int packed) {
    if (packed) class_loss_gradient_rows<PACK>(g, x, classes, log_sums, dx, rows, n, each);
    else class_loss_gradient_rows<1>(g, x, classes, log_sums, dx, rows, n, each);
}

// --- metrics -------------------------------------------------------------------------------------

struct LargestOrNan {
    __device__ __forceinline__ float operator()(float a, float b) const {
        return a != a ? a : b != b ? b : fmaxf(a, b);
    }
    __device__ __forceinline__ float start() const { return LOWEST; }
};

struct Smallest {
    __device__ __forceinline__ float operator()(float a, float b) const { return fminf(a, b); }
    __device__ __forceinline__ float start() const { return -LOWEST; }
};

// hits = 1 if the first largest number of a row (the first NaN, if there is one) is that of its
// class, else 0. n is below 2^24: float represents its positions exactly.
extern "C" __global__ void class_hits(
    IN(Scalar) x, IN(int) classes, OUT(float) hits, i64 rows, i64 n) {
    for (i64 row = first_row(); row < rows; row += row_step()) {
        float top = LOWEST;
        for (i64 j = threadIdx.x; j < n; j += blockDim.x) {
            top = LargestOrNan()(top, get(x + (row * n + j)));
        }
        top = reduce_row(top, LargestOrNan());
        float first = -LOWEST;
        for (i64 j = threadIdx.x; j < n; j += blockDim.x) {
            float v = get(x + (row * n + j));
            if (v == top || (v != v && top != top)) {
                first = (float)j;
                break;
            }
        }
        first = reduce_row(first, Smallest());
        if (threadIdx.x == 0) hits[row] = first == (float)classes[row] ? 1.0f : 0.0f;
    }
}

// total + sum(values) * factor, and count + number. One block.
extern "C" __global__ void running_sums(
    IN(Scalar) values, IN(float) total, IN(float) count, OUT(float) new_total,
    OUT(float) new_count, i64 n, float factor, float number) {
    float sum = 0.0f;
    for (i64 j = threadIdx.x; j < n; j += blockDim.x) sum += get(values + j);
    sum = reduce_row(sum, Sum());
    if (threadIdx.x == 0) {
        new_total[0] = total[0] + sum * factor;
        new_count[0] = count[0] + number;
    }
}

template <int N>
__device__ void target_loss_rows(
    IN(Scalar) t, IN(Scalar) x, OUT(Scalar) loss, OUT(float) log_sums, OUT(float) weight, i64 rows,
    i64 n) {
    for (i64 row = first_row(); row < rows; row += row_step()) {
        i64 start = row * n;
        Spread s = spread_of<N>(x + start, n);
        float log_sum = logf(s.total), found = 0.0f, total = 0.0f;
        for (i64 j = (i64)threadIdx.x * N; j < n; j += (i64)blockDim.x * N) {
            Numbers<N> a = load<N>(t + start + j), b = load<N>(x + start + j);
#pragma unroll
            for (int k = 0; k < N; ++k) {
                found += a.at[k] * (log_sum - (b.at[k] - s.top));
                total += a.at[k];
            }
        }
        found = reduce_row(found, Sum());
        total = reduce_row(total, Sum());
        if (threadIdx.x == 0) {
            put(loss + row, found);
            log_sums[row] = log_sum + s.top;
            weight[row] = total;
        }
    }
}

// loss = -sum(t log_softmax(x)); log_sums = log(sum(exp(x))), weight = sum(t) are for the gradient.
extern "C" __global__ void target_loss(
    IN(Scalar) t, IN(Scalar) x, OUT(Scalar) loss, OUT(float) log_sums, OUT(float) weight, i64 rows,
    i64 n, int packed) {
    if (packed) target_loss_rows<PACK>(t, x, loss, log_sums, weight, rows, n);
    else target_loss_rows<1>(t, x, loss, log_sums, weight, rows, n);
}

template <int N>
__device__ void target_loss_gradient_rows(
    IN(Scalar) g, IN(Scalar) t, IN(Scalar) x, IN(float) log_sums, IN(float) weight, OUT(Scalar) dx,
    i64 rows, i64 n) {
    for (i64 row = first_row(); row < rows; row += row_step()) {
        i64 start = row * n;
        float arriving = get(g + row), log_sum = log_sums[row], total = weight[row];
        for (i64 j = (i64)threadIdx.x * N; j < n; j += (i64)blockDim.x * N) {
            Numbers<N> a = load<N>(t + start + j), b = load<N>(x + start + j);
#pragma unroll
            for (int k = 0; k < N; ++k) {
                b.at[k] = arriving * (expf(b.at[k] - log_sum) * total - a.at[k]);
            }
            store<N>(dx + start + j, b);
        }
    }
}

// dx = g (softmax(x) sum(t) - t).
extern "C" __global__ void target_loss_gradient(
    IN(Scalar) g, IN(Scalar) t, IN(Scalar) x, IN(float) log_sums, IN(float) weight, OUT(Scalar) dx,
    i64 rows, i64 n, int packed) {
    if (packed) target_loss_gradient_rows<PACK>(g, t, x, log_sums, weight, dx, rows, n);
    else target_loss_gradient_rows<1>(g, t, x, log_sums, weight, dx, rows, n);
}
