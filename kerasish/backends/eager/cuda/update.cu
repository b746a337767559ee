// New values of all variables of an optimizer in one launch, and norms over all gradients.

#define MOST 40  // tensors a launch takes: the table stays within the 4 KB of arguments

// What a launch works on: for each tensor its arrays, its size, and the first block of its own.
// Arrays: 0 value, 1 gradient, 2 first slot, 3 second slot; 4 new value, 5 and 6 new slots. New may
// be old: each element is read before it is written.
struct Table {
    u64 arrays[7][MOST];
    i64 sizes[MOST];
    float decays[MOST];
    int first[MOST + 1];
    int count;
};

// Which tensor the block works on; `chunk` elements each.
__device__ __forceinline__ int tensor_of(const Table& table, int block) {
    int low = 0, high = table.count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (table.first[middle] <= block) low = middle;
        else high = middle;
    }
    return low;
}

// The elements [begin, end) of its tensor that this block works on.
__device__ __forceinline__ void share_of(
    const Table& table, int tensor, i64 chunk, i64* begin, i64* end) {
    *begin = ((int)blockIdx.x - table.first[tensor]) * chunk;
    i64 size = table.sizes[tensor];
    *end = *begin + chunk < size ? *begin + chunk : size;
}

// Calls f(place, how many) for this thread's elements of [begin, end), by packs where aligned.
template <class F>
__device__ __forceinline__ void each_of_share(i64 begin, i64 end, int packed, F f) {
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

// w - rate * g; with a momentum m' = momentum * m - rate * g and w + m' (nesterov:
// w + momentum * m' - rate * g). g counts `factor` times; decay * rate * w is taken off first.
extern "C" __global__ void sgd_update(
    Table table, IN(float) rate, IN(float) factor, int has_factor, float momentum, int nesterov,
    int has_slot, i64 chunk, int packed) {
    int t = tensor_of(table, blockIdx.x);
    i64 begin, end;
    share_of(table, t, chunk, &begin, &end);
    float step = rate[0], by = has_factor ? factor[0] : 1.0f;
    float keep = 1.0f - table.decays[t] * step;
    auto w = AT(Scalar, table.arrays[0][t]), g = AT(Scalar, table.arrays[1][t]);
    auto m = AT(Scalar, table.arrays[2][t]), new_w = AT(Scalar, table.arrays[4][t]);
    auto new_m = AT(Scalar, table.arrays[5][t]);
    each_of_share(begin, end, packed, [&](i64 at, auto value) {
        constexpr int N = sizeof(value) / sizeof(float);
        decltype(value) slope, past;
        load_into(w + at, value);
        load_into(g + at, slope);
        if (has_slot) load_into(m + at, past);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            float kept = value.at[k] * keep, move = step * by * slope.at[k];
            if (!has_slot) {
                value.at[k] = kept - move;
                continue;
            }
            past.at[k] = momentum * past.at[k] - move;
            value.at[k] = nesterov ? kept + momentum * past.at[k] - move : kept + past.at[k];
        }
        store<N>(new_w + at, value);
        if (has_slot) store<N>(new_m + at, past);
    });
}

// m' = m + (1 - beta_1)(g - m), v' = v + (1 - beta_2)(g^2 - v), w - c m' / (sqrt(v') + epsilon),
// c = rate sqrt(1 - beta_2^t) / (1 - beta_1^t), t = steps done + 1. g counts `factor` times;
// decay * rate * w is taken off first (AdamW).
extern "C" __global__ void adam_update(
    Table table, IN(float) rate, IN(int) steps, IN(float) factor, int has_factor, float beta_1,
    float beta_2, float epsilon, i64 chunk, int packed) {
    SHARED(float, numbers, 1);
    if (threadIdx.x == 0) {
        float done = (float)(steps[0] + 1);
        numbers[0] = rate[0] * sqrtf(1.0f - powf(beta_2, done)) / (1.0f - powf(beta_1, done));
    }
    __syncthreads();
    int t = tensor_of(table, blockIdx.x);
    i64 begin, end;
    share_of(table, t, chunk, &begin, &end);
    float c = numbers[0], by = has_factor ? factor[0] : 1.0f;
    float keep = 1.0f - table.decays[t] * rate[0];
    auto w = AT(Scalar, table.arrays[0][t]), g = AT(Scalar, table.arrays[1][t]);
    auto m = AT(Scalar, table.arrays[2][t]), v = AT(Scalar, table.arrays[3][t]);
    auto new_w = AT(Scalar, table.arrays[4][t]), new_m = AT(Scalar, table.arrays[5][t]);
    auto new_v = AT(Scalar, table.arrays[6][t]);
    each_of_share(begin, end, packed, [&](i64 at, auto value) {
        constexpr int N = sizeof(value) / sizeof(float);
        decltype(value) slope, first, second;
        load_into(w + at, value);
        load_into(g + at, slope);
        load_into(m + at, first);
        load_into(v + at, second);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            float d = slope.at[k] * by;
            first.at[k] += (1.0f - beta_1) * (d - first.at[k]);
            second.at[k] += (1.0f - beta_2) * (d * d - second.at[k]);
            float move = c * first.at[k] / (sqrtf(second.at[k]) + epsilon);
            value.at[k] = value.at[k] * keep - move;
        }
        store<N>(new_w + at, value);
        store<N>(new_m + at, first);
        store<N>(new_v + at, second);
    });
}

// parts[offset + block]: the sum of squares of the block's share of its tensor (array 1).
extern "C" __global__ void square_parts(
    Table table, OUT(float) parts, i64 offset, i64 chunk, int packed) {
    int t = tensor_of(table, blockIdx.x);
    i64 begin, end;
    share_of(table, t, chunk, &begin, &end);
    auto g = AT(Scalar, table.arrays[1][t]);
    float total = 0.0f;
    each_of_share(begin, end, packed, [&](i64 at, auto value) {
        constexpr int N = sizeof(value) / sizeof(float);
        load_into(g + at, value);
#pragma unroll
        for (int k = 0; k < N; ++k) total += value.at[k] * value.at[k];
    });
    total = reduce_row(total, Sum());
    if (threadIdx.x == 0) parts[offset + blockIdx.x] = total;
}

// norm = sqrt(sum of the parts); factor = limit / max(norm, limit). One block.
extern "C" __global__ void norm_of_parts(
    IN(float) parts, OUT(float) norm, OUT(float) factor, i64 count, float limit) {
    float total = 0.0f;
    for (i64 at = threadIdx.x; at < count; at += blockDim.x) total += parts[at];
    total = sqrtf(reduce_row(total, Sum()));
    if (threadIdx.x == 0) {
        norm[0] = total;
        // A NaN shows: fmaxf would hide it.
        factor[0] = total <= limit ? 1.0f : limit / total;
    }
}
