// The norm of all gradients together: sums of squares in a fixed order.

// The sum of squares of the values it is called for.
template <class P>
struct Squares {
    P from;
    float total;

    template <int N>
    __device__ __forceinline__ void operator()(i64 at, Numbers<N> values) {
        load_into(from + at, values);
#pragma unroll
        for (int k = 0; k < N; ++k) total += values.at[k] * values.at[k];
    }
};

// parts[offset + block]: the sum of squares of the block's share of its tensor.
extern "C" __global__ void square_parts(
    Table table, OUT(float) parts, i64 offset, i64 chunk, int packed) {
    int t = tensor_of(table, blockIdx.x);
    i64 begin, end;
    share_of(table, t, chunk, &begin, &end);
    typedef decltype(AT(Scalar, table.arrays[0][t])) Pointer;
    Squares<Pointer> squares = {AT(Scalar, table.arrays[0][t]), 0.0f};
    each_of_share(begin, end, packed, squares);
    float total = reduce_row(squares.total, Sum());
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
        // A NaN must stay visible: fmaxf would hide it.
        factor[0] = total <= limit ? 1.0f : limit / total;
    }
}
