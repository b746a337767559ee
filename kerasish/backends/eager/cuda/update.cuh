// New values of all variables of an optimizer in one launch.
//
// `update_source.py` generates from the optimizer's formula the text before this: INPUTS (value,
// gradient, slots), OUTPUTS (new value, new slots), SHARES (numbers computed once), and
//
//   once(table, decay, shared): computes the numbers that all elements of a tensor need;
//   each(table, common, x, y): computes the outputs y of one element of the inputs x.
//
// New arrays may be the old ones: each element is read before it is written.
template <class P>
struct Update {
    const Table& table;
    const float (&common)[SHARES];
    P (&arrays)[ARRAYS];

    template <int N>
    __device__ __forceinline__ void operator()(i64 at, Numbers<N>) {
        Numbers<N> x[INPUTS], y[OUTPUTS];
#pragma unroll
        for (int i = 0; i < INPUTS; ++i) load_into(arrays[i] + at, x[i]);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            float from[INPUTS], to[OUTPUTS];
#pragma unroll
            for (int i = 0; i < INPUTS; ++i) from[i] = x[i].at[k];
            each(table, common, from, to);
#pragma unroll
            for (int i = 0; i < OUTPUTS; ++i) y[i].at[k] = to[i];
        }
#pragma unroll
        for (int i = 0; i < OUTPUTS; ++i) store<N>(arrays[INPUTS + i] + at, y[i]);
    }
};

extern "C" __global__ void NAME_update(Table table, i64 chunk, int packed) {
    SHARED(float, shared, SHARES);
    int t = tensor_of(table, blockIdx.x);
    if (threadIdx.x == 0) once(table, table.decays[t], shared);
    __syncthreads();
    float common[SHARES];
#pragma unroll
    for (int i = 0; i < SHARES; ++i) common[i] = shared[i];
    typedef decltype(AT(Scalar, table.arrays[0][t])) Pointer;
    Pointer arrays[ARRAYS];
#pragma unroll
    for (int i = 0; i < ARRAYS; ++i) arrays[i] = AT(Scalar, table.arrays[i][t]);
    i64 begin, end;
    share_of(table, t, chunk, &begin, &end);
    Update<Pointer> update = {table, common, arrays};
    each_of_share(begin, end, packed, update);
}
