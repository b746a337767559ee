// y = activation(x + bias) in one pass, and the gradient.

enum Activation { LINEAR, RELU, SIGMOID, TANH, GELU, GELU_EXACT, SILU, SOFTPLUS };

#define ROOT_2_PI 0.7978845608028654f  // sqrt(2 / pi)
#define ROOT_HALF 0.7071067811865476f  // sqrt(1 / 2)
#define CUBIC 0.044715f

__device__ __forceinline__ float logistic(float x) { return 0.5f * tanhf(0.5f * x) + 0.5f; }

__device__ __forceinline__ float activate(float x, int kind) {
    switch (kind) {
        case RELU: return x > 0.0f || x != x ? x : 0.0f;
        case SIGMOID: return logistic(x);
        case TANH: return tanhf(x);
        case GELU: return 0.5f * x * (1.0f + tanhf(ROOT_2_PI * x * (1.0f + CUBIC * x * x)));
        case GELU_EXACT: return 0.5f * x * (1.0f + erff(x * ROOT_HALF));
        case SILU: return x * logistic(x);
        case SOFTPLUS: return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
        default: return x;
    }
}

__device__ __forceinline__ float slope(float x, int kind) {
    switch (kind) {
        case RELU: return x > 0.0f ? 1.0f : 0.0f;
        case SIGMOID: {
            float y = logistic(x);
            return y * (1.0f - y);
        }
        case TANH: {
            float y = tanhf(x);
            return 1.0f - y * y;
        }
        case GELU: {
            float t = tanhf(ROOT_2_PI * x * (1.0f + CUBIC * x * x));
            float inner = ROOT_2_PI * (1.0f + 3.0f * CUBIC * x * x);
            return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner;
        }
        case GELU_EXACT: {
            float density = 0.5f * ROOT_2_PI * expf(-0.5f * x * x);
            return 0.5f * (1.0f + erff(x * ROOT_HALF)) + x * density;
        }
        case SILU: {
            float y = logistic(x);
            return y + x * y * (1.0f - y);
        }
        case SOFTPLUS: return logistic(x);
        default: return 1.0f;
    }
}

// Calls f(element, column) for this thread's elements of (..., columns), N at a time.
template <int N, class F>
__device__ __forceinline__ void each_element(i64 count, i64 columns, F f) {
    i64 at = first_element() * N, step = element_step() * N;
    i64 column = at % columns, column_step = step % columns;
    for (; at < count; at += step) {
        f(at, column);
        column += column_step;
        if (column >= columns) column -= columns;
    }
}

template <int N>
__device__ void activate_all(
    IN(Scalar) x, IN(Scalar) bias, OUT(Scalar) y, i64 count, i64 columns, int kind, int biased) {
    each_element<N>(count, columns, [&](i64 at, i64 column) {
        Numbers<N> v = load<N>(x + at);
        if (biased) {
            Numbers<N> b = load<N>(bias + column);
#pragma unroll
            for (int k = 0; k < N; ++k) v.at[k] += b.at[k];
        }
#pragma unroll
        for (int k = 0; k < N; ++k) v.at[k] = activate(v.at[k], kind);
        store<N>(y + at, v);
    });
}

extern "C" __global__ void bias_activation(
    IN(Scalar) x, IN(Scalar) bias, OUT(Scalar) y, i64 count, i64 columns, int kind, int biased,
    int packed) {
    if (packed) activate_all<PACK>(x, bias, y, count, columns, kind, biased);
    else activate_all<1>(x, bias, y, count, columns, kind, biased);
}

template <int N>
__device__ void activate_back(
    IN(Scalar) g, IN(Scalar) x, IN(Scalar) bias, OUT(Scalar) dx, i64 count, i64 columns, int kind,
    int biased) {
    each_element<N>(count, columns, [&](i64 at, i64 column) {
        Numbers<N> v = load<N>(x + at), arriving = load<N>(g + at);
        if (biased) {
            Numbers<N> b = load<N>(bias + column);
#pragma unroll
            for (int k = 0; k < N; ++k) v.at[k] += b.at[k];
        }
#pragma unroll
        for (int k = 0; k < N; ++k) v.at[k] = arriving.at[k] * slope(v.at[k], kind);
        store<N>(dx + at, v);
    });
}

// dx = g activation'(x + bias).
extern "C" __global__ void bias_activation_gradient(
    IN(Scalar) g, IN(Scalar) x, IN(Scalar) bias, OUT(Scalar) dx, i64 count, i64 columns, int kind,
    int biased, int packed) {
    if (packed) activate_back<PACK>(g, x, bias, dx, count, columns, kind, biased);
    else activate_back<1>(g, x, bias, dx, count, columns, kind, biased);
}
