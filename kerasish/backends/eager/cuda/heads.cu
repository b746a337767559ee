// The moves of attention: heads before steps, (n, heads, steps, size), or steps before heads,
// (n, steps, heads, size). Up to three arrays per launch: the query, the key and the value.

// y, from x with heads and steps swapped; y has heads first or steps first. Counts and sizes are
// those of packs of N numbers.
template <int N, bool HEADS_FIRST>
__device__ void swap_axes(
    IN(Scalar) x, OUT(Scalar) y, i64 count, const Divisor& heads, const Divisor& steps,
    const Divisor& size, float scale) {
    for (Index e = first_index(); e < (Index)count; e += index_step()) {
        int at, head, step;
        Index rest = divided(e, size, &at), n;
        if (HEADS_FIRST) {
            n = divided(divided(rest, steps, &step), heads, &head);
        } else {
            n = divided(divided(rest, heads, &head), steps, &step);
        }
        Index from = HEADS_FIRST
            ? ((n * steps.by + step) * heads.by + head) * size.by + at
            : ((n * heads.by + head) * steps.by + step) * size.by + at;
        Numbers<N> values = load<N>(x + (i64)from * N);
#pragma unroll
        for (int k = 0; k < N; ++k) values.at[k] *= scale;
        store<N>(y + (i64)e * N, values);
    }
}

// The three have `heads` heads. The first has `targets` steps, the others `sources`; the last has
// another size of a head. The first is multiplied by `scale`. A count of 0: there is none.
template <int N, bool HEADS_FIRST>
__device__ void swap_three(
    IN(Scalar) q, IN(Scalar) k, IN(Scalar) v, OUT(Scalar) new_q, OUT(Scalar) new_k,
    OUT(Scalar) new_v, i64 q_count, i64 k_count, i64 v_count, const Divisor& heads,
    const Divisor& targets, const Divisor& sources, const Divisor& size, const Divisor& v_size,
    float scale) {
    swap_axes<N, HEADS_FIRST>(q, new_q, q_count, heads, targets, size, scale);
    swap_axes<N, HEADS_FIRST>(k, new_k, k_count, heads, sources, size, 1.0f);
    swap_axes<N, HEADS_FIRST>(v, new_v, v_count, heads, sources, v_size, 1.0f);
}

extern "C" __global__ void heads_first(
    IN(Scalar) q, IN(Scalar) k, IN(Scalar) v, OUT(Scalar) new_q, OUT(Scalar) new_k,
    OUT(Scalar) new_v, i64 q_count, i64 k_count, i64 v_count, Divisor heads, Divisor targets,
    Divisor sources, Divisor size, Divisor v_size, float scale, int packed) {
    if (packed) {
        swap_three<PACK, true>(q, k, v, new_q, new_k, new_v, q_count, k_count, v_count, heads,
                               targets, sources, size, v_size, scale);
    } else {
        swap_three<1, true>(q, k, v, new_q, new_k, new_v, q_count, k_count, v_count, heads,
                            targets, sources, size, v_size, scale);
    }
}

extern "C" __global__ void steps_first(
    IN(Scalar) q, IN(Scalar) k, IN(Scalar) v, OUT(Scalar) new_q, OUT(Scalar) new_k,
    OUT(Scalar) new_v, i64 q_count, i64 k_count, i64 v_count, Divisor heads, Divisor targets,
    Divisor sources, Divisor size, Divisor v_size, float scale, int packed) {
    if (packed) {
        swap_three<PACK, false>(q, k, v, new_q, new_k, new_v, q_count, k_count, v_count, heads,
                                targets, sources, size, v_size, scale);
    } else {
        swap_three<1, false>(q, k, v, new_q, new_k, new_v, q_count, k_count, v_count, heads,
                             targets, sources, size, v_size, scale);
    }
}
