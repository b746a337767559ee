// Layer, RMS, group and batch normalization.
//
// A row of the first three is a set of elements that share their moments. Its element e is at
// (e / width) * channels + e % width from its start: layer and RMS norm have width = n; in group
// norm, data (samples, places, channels) has a row for each group of a sample, of n = places *
// width elements, width = channels / groups.

// The start of a row.
__device__ __forceinline__ Index row_start(Index row, Index n, Index width, Index channels) {
    Index groups = channels / width;
    return groups == 1 ? row * n : (row / groups) * (n * groups) + (row % groups) * width;
}

// Calls f(offset from the row's start, channel from the group's first), N elements at a time.
template <int N, class F>
__device__ __forceinline__ void each_of_row(Index n, Index width, Index channels, F f) {
    Index at = (Index)threadIdx.x * N, step = (Index)blockDim.x * N;
    Index line = at / width, column = at % width;
    Index lines = step / width, columns = step % width;
    for (; at < n; at += step) {
        f(line * channels + column, column);
        line += lines;
        column += columns;
        if (column >= width) {
            column -= width;
            ++line;
        }
    }
}

template <int N>
__device__ void normalize_rows(
    IN(Scalar) x, IN(float) gamma, IN(float) beta, OUT(Scalar) y, OUT(float) mean,
    OUT(float) scale, Index rows, Index n, Index width, Index channels, float epsilon, int centered,
    int has_gamma, int has_beta) {
    for (Index row = (Index)first_row(); row < rows; row += (Index)row_step()) {
        Index start = row_start(row, n, width, channels), first = (row % (channels / width)) * width;
        float center = 0.0f, total = 0.0f;
        if (centered) {
            each_of_row<N>(n, width, channels, [&](Index at, Index) {
                Numbers<N> v = load<N>(x + start + at);
#pragma unroll
                for (int k = 0; k < N; ++k) total += v.at[k];
            });
            center = reduce_row(total, Sum()) / (float)n;
        }
        total = 0.0f;
        each_of_row<N>(n, width, channels, [&](Index at, Index) {
            Numbers<N> v = load<N>(x + start + at);
#pragma unroll
            for (int k = 0; k < N; ++k) total += (v.at[k] - center) * (v.at[k] - center);
        });
        float factor = 1.0f / sqrtf(reduce_row(total, Sum()) / (float)n + epsilon);
        if (threadIdx.x == 0) {
            mean[row] = center;
            scale[row] = factor;
        }
        each_of_row<N>(n, width, channels, [&](Index at, Index column) {
            Numbers<N> v = load<N>(x + start + at);
#pragma unroll
            for (int k = 0; k < N; ++k) v.at[k] = (v.at[k] - center) * factor;
            if (has_gamma) {
                Numbers<N> by = load<N>(gamma + first + column);
#pragma unroll
                for (int k = 0; k < N; ++k) v.at[k] *= by.at[k];
            }
            if (has_beta) {
                Numbers<N> by = load<N>(beta + first + column);
#pragma unroll
                for (int k = 0; k < N; ++k) v.at[k] += by.at[k];
            }
            store<N>(y + start + at, v);
        });
    }
}

// y = (x - mean) * scale * gamma + beta, scale = 1 / sqrt(mean((x - mean)^2) + epsilon) for each
// row; mean is 0 unless centered.
extern "C" __global__ void __launch_bounds__(512, 2) normalize(
    IN(Scalar) x, IN(float) gamma, IN(float) beta, OUT(Scalar) y, OUT(float) mean,
    OUT(float) scale, i64 rows, i64 n, i64 width, i64 channels, float epsilon, int centered,
    int has_gamma, int has_beta, int packed) {
    if (packed) {
        normalize_rows<PACK>(x, gamma, beta, y, mean, scale, rows, n, width, channels, epsilon,
                             centered, has_gamma, has_beta);
    } else {
        normalize_rows<1>(x, gamma, beta, y, mean, scale, rows, n, width, channels, epsilon,
                          centered, has_gamma, has_beta);
    }
}

template <int N>
__device__ void normalize_back(
    IN(Scalar) g, IN(Scalar) x, IN(float) gamma, IN(float) mean, IN(float) scale, OUT(Scalar) dx,
    Index rows, Index n, Index width, Index channels, int centered, int has_gamma) {
    for (Index row = (Index)first_row(); row < rows; row += (Index)row_step()) {
        Index start = row_start(row, n, width, channels), first = (row % (channels / width)) * width;
        float center = mean[row], factor = scale[row], plain = 0.0f, along = 0.0f;
        each_of_row<N>(n, width, channels, [&](Index at, Index column) {
            Numbers<N> a = load<N>(g + start + at), v = load<N>(x + start + at), by;
            if (has_gamma) by = load<N>(gamma + first + column);
#pragma unroll
            for (int k = 0; k < N; ++k) {
                float arriving = has_gamma ? a.at[k] * by.at[k] : a.at[k];
                plain += arriving;
                along += arriving * (v.at[k] - center) * factor;
            }
        });
        plain = centered ? reduce_row(plain, Sum()) / (float)n : 0.0f;
        along = reduce_row(along, Sum()) / (float)n;
        each_of_row<N>(n, width, channels, [&](Index at, Index column) {
            Numbers<N> a = load<N>(g + start + at), v = load<N>(x + start + at), by;
            if (has_gamma) by = load<N>(gamma + first + column);
#pragma unroll
            for (int k = 0; k < N; ++k) {
                float arriving = has_gamma ? a.at[k] * by.at[k] : a.at[k];
                v.at[k] = factor * (arriving - plain - (v.at[k] - center) * factor * along);
            }
            store<N>(dx + start + at, v);
        });
    }
}

// dx of `normalize`: scale * (a - mean(a) - h mean(a h)), a = g gamma, h = (x - mean) scale.
extern "C" __global__ void __launch_bounds__(512, 2) normalize_gradient(
    IN(Scalar) g, IN(Scalar) x, IN(float) gamma, IN(float) mean, IN(float) scale, OUT(Scalar) dx,
    i64 rows, i64 n, i64 width, i64 channels, int centered, int has_gamma, int packed) {
    if (packed) {
        normalize_back<PACK>(
            g, x, gamma, mean, scale, dx, rows, n, width, channels, centered, has_gamma);
    } else {
        normalize_back<1>(
            g, x, gamma, mean, scale, dx, rows, n, width, channels, centered, has_gamma);
    }
}

// --- sums down the columns, in two steps: over chunks of rows, then over the chunks --------------

// A block has 32 x 8 threads: 32 columns, rows by eights.
#define TILE 32
#define LINES 8

// parts (2, chunks, columns): sums of g, and of g * (x - mean[s]) * scale[s] if x counts. The
// moments of element (row, column) are s = row / rows_each * in_line + column / columns_each.
extern "C" __global__ void column_parts(
    IN(Scalar) g, IN(Scalar) x, IN(float) mean, IN(float) scale, OUT(float) parts, i64 rows,
    i64 columns, Divisor rows_each, Divisor columns_each, i64 in_line, i64 chunk, i64 chunks,
    int with_x) {
    SHARED(float, plain_parts, TILE * LINES);
    SHARED(float, along_parts, TILE * LINES);
    Index tiles = ((Index)columns + TILE - 1) / TILE, work = tiles * (Index)chunks;
    int own = threadIdx.y * TILE + threadIdx.x;
    for (Index w = blockIdx.x; w < work; w += gridDim.x) {
        Index part = w / tiles, column = (w - part * tiles) * TILE + threadIdx.x;
        Index end = (part + 1) * (Index)chunk;
        if (end > (Index)rows) end = (Index)rows;
        float plain = 0.0f, along = 0.0f;
        if (column < (Index)columns) {
            Index within = with_x ? quotient(column, columns_each) : 0;
            for (Index row = part * (Index)chunk + threadIdx.y; row < end; row += LINES) {
                Index at = row * (Index)columns + column;
                float arriving = get(g + at);
                plain += arriving;
                if (with_x) {
                    Index s = quotient(row, rows_each) * (Index)in_line + within;
                    along += arriving * (get(x + at) - mean[s]) * scale[s];
                }
            }
        }
        plain_parts[own] = plain;
        along_parts[own] = along;
        __syncthreads();
        if (threadIdx.y == 0 && column < (Index)columns) {
            for (int k = 1; k < LINES; ++k) {
                plain += plain_parts[k * TILE + threadIdx.x];
                along += along_parts[k * TILE + threadIdx.x];
            }
            parts[part * (Index)columns + column] = plain;
            if (with_x) parts[((Index)chunks + part) * (Index)columns + column] = along;
        }
        __syncthreads();
    }
}

// Totals over chunks: a block has 32 x 16 threads, 32 columns, chunks by sixteens, then a tree.
#define BRANCHES 16

// totals (count, columns): the sums over the chunks of parts (count, chunks, columns).
extern "C" __global__ void column_totals(
    IN(float) parts, OUT(float) totals, i64 count, i64 chunks, i64 columns) {
    SHARED(float, sums, TILE * BRANCHES);
    Index tiles = ((Index)columns + TILE - 1) / TILE;
    int own = threadIdx.y * TILE + threadIdx.x;
    for (Index w = blockIdx.x; w < tiles * (Index)count; w += gridDim.x) {
        Index which = w / tiles, column = (w - which * tiles) * TILE + threadIdx.x;
        float total = 0.0f;
        if (column < (Index)columns) {
            for (Index part = threadIdx.y; part < (Index)chunks; part += BRANCHES) {
                total += parts[(which * (Index)chunks + part) * (Index)columns + column];
            }
        }
        sums[own] = total;
        __syncthreads();
        for (int half = BRANCHES / 2; half; half >>= 1) {
            if (threadIdx.y < half) sums[own] = sums[own] + sums[own + half * TILE];
            __syncthreads();
        }
        if (threadIdx.y == 0 && column < (Index)columns) {
            totals[which * (Index)columns + column] = sums[own];
        }
        __syncthreads();
    }
}

// --- the moments of columns ----------------------------------------------------------------------

// Their number, their mean, and the sum of their squared distances from it.
struct Moments {
    float count, mean, apart;
};

// Source: Chan, Golub & LeVeque, Algorithms for computing the sample variance, 1983.
__device__ __forceinline__ Moments joined(Moments a, Moments b) {
    if (b.count == 0.0f) return a;
    if (a.count == 0.0f) return b;
    float count = a.count + b.count, delta = b.mean - a.mean, share = b.count / count;
    Moments both = {
        count, a.mean + delta * share, a.apart + b.apart + delta * delta * a.count * share};
    return both;
}

// parts (3, chunks, columns): count, mean and squared distances of each chunk of rows.
extern "C" __global__ void moment_parts(
    IN(Scalar) x, OUT(float) parts, i64 rows, i64 columns, i64 chunk, i64 chunks) {
    SHARED(float, counts, TILE * LINES);
    SHARED(float, means, TILE * LINES);
    SHARED(float, aparts, TILE * LINES);
    Index tiles = ((Index)columns + TILE - 1) / TILE, work = tiles * (Index)chunks;
    int own = threadIdx.y * TILE + threadIdx.x;
    for (Index w = blockIdx.x; w < work; w += gridDim.x) {
        Index part = w / tiles, column = (w - part * tiles) * TILE + threadIdx.x;
        Index end = (part + 1) * (Index)chunk;
        if (end > (Index)rows) end = (Index)rows;
        Moments m = {0.0f, 0.0f, 0.0f};
        if (column < (Index)columns) {
            for (Index row = part * (Index)chunk + threadIdx.y; row < end; row += LINES) {
                float v = get(x + (row * (Index)columns + column)), delta = v - m.mean;
                m.count += 1.0f;
                m.mean += delta / m.count;
                m.apart += delta * (v - m.mean);
            }
        }
        counts[own] = m.count;
        means[own] = m.mean;
        aparts[own] = m.apart;
        __syncthreads();
        if (threadIdx.y == 0 && column < (Index)columns) {
            for (int k = 1; k < LINES; ++k) {
                int of = k * TILE + threadIdx.x;
                Moments other = {counts[of], means[of], aparts[of]};
                m = joined(m, other);
            }
            Index at = part * (Index)columns + column, all = (Index)chunks * (Index)columns;
            parts[at] = m.count;
            parts[all + at] = m.mean;
            parts[2 * all + at] = m.apart;
        }
        __syncthreads();
    }
}

// The moments of the block's column, from all chunks; every thread calls it. The three arrays have
// TILE * BRANCHES elements. The result is that of the threads of line 0.
template <class P, class S>
__device__ __forceinline__ Moments all_chunks(
    P parts, i64 chunks, i64 columns, i64 column, S counts, S means, S aparts) {
    i64 all = chunks * columns;
    int own = threadIdx.y * TILE + threadIdx.x;
    Moments m = {0.0f, 0.0f, 0.0f};
    if (column < columns) {
        for (i64 part = threadIdx.y; part < chunks; part += BRANCHES) {
            i64 at = part * columns + column;
            Moments other = {parts[at], parts[all + at], parts[2 * all + at]};
            m = joined(m, other);
        }
    }
    counts[own] = m.count;
    means[own] = m.mean;
    aparts[own] = m.apart;
    __syncthreads();
    for (int half = BRANCHES / 2; half; half >>= 1) {
        if (threadIdx.y < half) {
            int of = own + half * TILE;
            Moments other = {counts[of], means[of], aparts[of]};
            m = joined(m, other);
            counts[own] = m.count;
            means[own] = m.mean;
            aparts[own] = m.apart;
        }
        __syncthreads();
    }
    return m;
}

extern "C" __global__ void moment_totals(
    IN(float) parts, OUT(float) mean, OUT(float) variance, i64 chunks, i64 columns) {
    SHARED(float, counts, TILE * BRANCHES);
    SHARED(float, means, TILE * BRANCHES);
    SHARED(float, aparts, TILE * BRANCHES);
    for (i64 tile = blockIdx.x; tile * TILE < columns; tile += gridDim.x) {
        i64 column = tile * TILE + threadIdx.x;
        Moments m = all_chunks(parts, chunks, columns, column, counts, means, aparts);
        if (threadIdx.y == 0 && column < columns) {
            mean[column] = m.mean;
            variance[column] = m.apart / m.count;
        }
        __syncthreads();
    }
}

// Of a batch's moments: the mean, scale = 1 / sqrt(variance + epsilon), factor = scale * gamma, and
// the moving moments: moving * momentum + the batch's * rest.
extern "C" __global__ void batch_totals(
    IN(float) parts, IN(float) gamma, IN(float) moving_mean, IN(float) moving_variance,
    OUT(float) mean, OUT(float) scale, OUT(float) factor, OUT(float) moved_mean,
    OUT(float) moved_variance, i64 chunks, i64 columns, float epsilon, float momentum,
    float rest) {
    SHARED(float, counts, TILE * BRANCHES);
    SHARED(float, means, TILE * BRANCHES);
    SHARED(float, aparts, TILE * BRANCHES);
    for (i64 tile = blockIdx.x; tile * TILE < columns; tile += gridDim.x) {
        i64 column = tile * TILE + threadIdx.x;
        Moments m = all_chunks(parts, chunks, columns, column, counts, means, aparts);
        if (threadIdx.y == 0 && column < columns) {
            float variance = m.apart / m.count, by = 1.0f / sqrtf(variance + epsilon);
            mean[column] = m.mean;
            scale[column] = by;
            factor[column] = by * gamma[column];
            moved_mean[column] = moving_mean[column] * momentum + m.mean * rest;
            moved_variance[column] = moving_variance[column] * momentum + variance * rest;
        }
        __syncthreads();
    }
}

// --- by column -----------------------------------------------------------------------------------

// scale = 1 / sqrt(variance + epsilon), factor = scale * gamma, shift = beta; defaults are 1 and 0.
extern "C" __global__ void column_factors(
    IN(float) variance, IN(float) gamma, IN(float) beta, OUT(float) scale, OUT(float) factor,
    OUT(float) shift, i64 columns, float epsilon, int has_gamma, int has_beta) {
    for (i64 at = first_element(); at < columns; at += element_step()) {
        float by = 1.0f / sqrtf(variance[at] + epsilon);
        scale[at] = by;
        factor[at] = has_gamma ? by * gamma[at] : by;
        shift[at] = has_beta ? beta[at] : 0.0f;
    }
}

template <int N>
__device__ void scale_columns(
    IN(Scalar) x, IN(float) mean, IN(float) factor, IN(float) shift, OUT(Scalar) y, i64 count,
    i64 columns) {
    i64 at = first_element() * N, step = element_step() * N;
    i64 column = at % columns, column_step = step % columns;
    for (; at < count; at += step) {
        Numbers<N> v = load<N>(x + at), center = load<N>(mean + column);
        Numbers<N> by = load<N>(factor + column), add = load<N>(shift + column);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            v.at[k] = (v.at[k] - center.at[k]) * by.at[k] + add.at[k];
        }
        store<N>(y + at, v);
        column += column_step;
        if (column >= columns) column -= columns;
    }
}

// y = (x - mean[column]) * factor[column] + shift[column].
extern "C" __global__ void scale_shift(
    IN(Scalar) x, IN(float) mean, IN(float) factor, IN(float) shift, OUT(Scalar) y, i64 count,
    i64 columns, int packed) {
    if (packed) scale_columns<PACK>(x, mean, factor, shift, y, count, columns);
    else scale_columns<1>(x, mean, factor, shift, y, count, columns);
}

template <int N>
__device__ void batch_back(
    IN(Scalar) g, IN(Scalar) x, IN(float) mean, IN(float) scale, IN(float) gamma, IN(float) sums,
    OUT(Scalar) dx, i64 rows, i64 columns, int has_gamma) {
    i64 at = first_element() * N, step = element_step() * N, count = rows * columns;
    i64 column = at % columns, column_step = step % columns;
    float share = 1.0f / (float)rows;
    for (; at < count; at += step) {
        Numbers<N> a = load<N>(g + at), v = load<N>(x + at), center = load<N>(mean + column);
        Numbers<N> by = load<N>(scale + column), plain = load<N>(sums + column);
        Numbers<N> along = load<N>(sums + columns + column), factor = by;
        if (has_gamma) factor = load<N>(gamma + column);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            float h = (v.at[k] - center.at[k]) * by.at[k];
            float away = (plain.at[k] + h * along.at[k]) * share;
            v.at[k] = by.at[k] * (has_gamma ? factor.at[k] : 1.0f) * (a.at[k] - away);
        }
        store<N>(dx + at, v);
        column += column_step;
        if (column >= columns) column -= columns;
    }
}

// dx of batch normalization: gamma scale (g - sum(g) / rows - h sum(g h) / rows); sums: (2,
// columns).
extern "C" __global__ void __launch_bounds__(256, 4) batch_gradient(
    IN(Scalar) g, IN(Scalar) x, IN(float) mean, IN(float) scale, IN(float) gamma, IN(float) sums,
    OUT(Scalar) dx, i64 rows, i64 columns, int has_gamma, int packed) {
    if (packed) batch_back<PACK>(g, x, mean, scale, gamma, sums, dx, rows, columns, has_gamma);
    else batch_back<1>(g, x, mean, scale, gamma, sums, dx, rows, columns, has_gamma);
}
