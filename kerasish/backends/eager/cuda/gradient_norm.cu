// The norm of all gradients together: sums of squares in a fixed order.

// parts[offset + block]: the sum of squares of the block's share of its tensor.
extern "C" __global__ void square_parts(
    Table table, OUT(float) parts, i64 offset, i64 chunk, int packed) {
    int t = tensor_of(table, blockIdx.x);
    i64 begin, end;
    share_of(table, t, chunk, &begin, &end);
    auto g = AT(Scalar, table.arrays[0][t]);
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
