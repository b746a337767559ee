"""Calls of kernels on more than 2^32 elements: rows, columns, elements and places.

A call writes its numbers at the far end of what the kernel reads, and checks the far end of what
it writes: a position of 32 bits, with a sign or without, comes to neither. `FAR_CALLS` has the
calls by kernel; `far_calls_windows.py` has the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from cuda_on_cpu import Function, put, wide
from far_arrays import MANY, far, last

from kerasish.backends.eager.cuda import (
    KERNELS,
    activation,
    embedding,
    fused_metrics,
    heads,
    kernels,
    norm,
    random,
    softmax,
)
from kerasish.backends.eager.cuda.window import divisor
from kerasish.ops.random import philox

HALF = np.dtype("float16")
ROWS, N = 2**22 + 8, 1024  # of kernels that do rows


def some_numbers(n: int = N, seed: int = 0) -> Any:
    """Return random numbers of 16 bits."""
    return np.random.default_rng(seed).standard_normal(n).astype("float16")


def check_close(found: Any, expected: Any, tolerance: float = 2e-3) -> None:
    """Check that numbers are equal up to rounding."""
    np.testing.assert_allclose(wide(found), expected, rtol=0, atol=tolerance)


def launch_all(name: str, kernel: str, pieces: int, *args: Any) -> None:
    """Launch a kernel with a thread for each of `pieces`, or with the largest grid."""
    kernels.launch_elements(name, kernel, HALF, pieces, *args)


# --- rows -----------------------------------------------------------------------------------------


def _chances(x):
    raised = np.exp(wide(x) - wide(x).max())
    return raised / raised.sum()


def _softmax():
    x = some_numbers()
    check_close(softmax.softmax(last(x, ROWS, N))[-1], _chances(x))


def _softmax_gradient():
    g, y = some_numbers(), _chances(some_numbers(seed=1)).astype("float16")
    found = softmax.softmax_gradient(last(g, ROWS, N), last(y, ROWS, N))[-1]
    check_close(found, wide(y) * (wide(g) - wide(y) @ wide(g)))


def _class_hits():
    found = fused_metrics.class_hits(
        last(5, ROWS, dtype="int32"), last([1, *[0] * (N - 6)], ROWS, N)
    )
    assert found[-2:].tolist() == [1, 1]


def _class_loss():
    x = some_numbers()
    loss, whole = softmax.class_loss(last(5, ROWS, dtype="int32"), last(x, ROWS, N))
    expected = np.log(np.exp(wide(x)).sum())
    check_close([loss[-1], whole[-1]], [expected - wide(x[5]), expected], 4e-3)


def _class_loss_gradient():
    x, ones = some_numbers(), last(1, ROWS)
    whole = last(np.log(np.exp(wide(x)).sum()), ROWS, dtype="float32")
    classes = last(5, ROWS, dtype="int32")
    found = softmax.class_loss_gradient(ones, classes, last(x, ROWS, N), whole)[-1]
    check_close(found, _chances(x) - (np.arange(N) == 5))


def _target_loss():
    x, t = some_numbers(), _chances(some_numbers(seed=1)).astype("float16")
    loss, _, weight = softmax.target_loss(last(t, ROWS, N), last(x, ROWS, N))
    check_close([loss[-1], weight[-1]], [-(wide(t) @ np.log(_chances(x))), wide(t).sum()], 6e-3)


def _target_loss_gradient():
    x, t = some_numbers(), _chances(some_numbers(seed=1)).astype("float16")
    whole = last(np.log(np.exp(wide(x)).sum()), ROWS, dtype="float32")
    given = (last(1, ROWS), last(t, ROWS, N), last(x, ROWS, N), whole)
    found = softmax.target_loss_gradient(*given, last(1, ROWS, dtype="float32"))[-1]
    check_close(found, _chances(x) - wide(t))


def _normalize():
    x = some_numbers()
    y, mean, scale = norm.layer_norm(last(x, ROWS, N), epsilon=0)
    check_close(y[-1], (wide(x) - wide(x).mean()) / wide(x).std(), 6e-3)
    check_close([mean[-1], scale[-1]], [wide(x).mean(), 1 / wide(x).std()])


def _normalize_gradient():
    g, x = some_numbers(), some_numbers(seed=1)
    mean, scale = (last(v, ROWS, dtype="float32") for v in (0.25, 2.0))
    rows, gamma = norm._RowLayout(far(ROWS, N), 1), put(np.ones(N, "float32"))
    given = (last(g, ROWS, N), last(x, ROWS, N), rows, gamma, mean, scale, True)
    h, g = (wide(x) - 0.25) * 2, wide(g)
    check_close(norm._normalize_gradient(*given)[-1], 2 * (g - g.mean() - h * (g * h).mean()), 2e-2)


def _gather(dtype):
    def call():
        x = some_numbers()
        index = put(np.array([-1, 0, ROWS]), dtype)
        found = embedding.take_rows(last(x, ROWS, N), index, axis=0)
        np.testing.assert_array_equal(found[:2], [x, np.zeros(N)])
        assert np.isnan(found[2]).all()

    return call


# --- columns --------------------------------------------------------------------------------------

TALL = (2**16, 2**16 + 32)  # chunks of 256 rows
CHUNKS, WIDE = 256, 2**23  # parts of moments: three of each


def _column_parts():
    parts = far(1, CHUNKS, TALL[1], dtype="float32")
    one = divisor(1)
    sizes = (*map(np.int64, TALL), one, one, *map(np.int64, (1, 256, CHUNKS)))
    args = (last([3, 4], *TALL), *[kernels.NOTHING] * 3, parts, *sizes, np.int32(0))
    kernels.launch("norm", "column_parts", HALF, CHUNKS * TALL[1] // 32, (32, 8), *args)
    assert parts[0, -1, -2:].tolist() == [3, 4]


def _column_totals():
    columns = 2**24 + 32
    parts, totals = last(3, 1, CHUNKS, columns, dtype="float32"), far(1, columns, dtype="float32")
    norm.add_chunks(HALF, parts, totals)
    assert totals[0, -2:].tolist() == [0, 3]


def _moment_parts():
    parts = norm._moment_parts(last(256, *TALL))
    assert parts[:2, -1, -1].tolist() == [256, 1]  # how many, and their mean
    assert parts[2, -1, -1] == 255**2 + 255


def _moments():
    parts = far(3, CHUNKS, WIDE, dtype="float32")
    parts[0, :, -1], parts[1, :, -1], parts[2, :, -1] = 2, 3, 1
    return parts


def _moment_totals():
    mean, variance = far(WIDE, dtype="float32"), far(WIDE, dtype="float32")
    args = (_moments(), mean, variance, np.int64(CHUNKS), np.int64(WIDE))
    kernels.launch("norm", "moment_totals", HALF, WIDE // norm.TILE, (32, norm.BRANCHES), *args)
    assert [mean[-1], variance[-1]] == [3, 0.5]


def _batch_totals():
    given = [last(v, WIDE, dtype="float32") for v in (2.0, 5.0, 7.0)]
    made = [far(WIDE, dtype="float32") for _ in range(5)]
    sizes = (np.int64(CHUNKS), np.int64(WIDE), *map(np.float32, (0.0, 0.5, 0.5)))
    args = (_moments(), *given, *made, *sizes)
    kernels.launch("norm", "batch_totals", HALF, WIDE // norm.TILE, (32, norm.BRANCHES), *args)
    mean, scale, factor, moved_mean, moved_variance = (float(a[-1]) for a in made)
    assert [mean, moved_mean, moved_variance] == [3, 4, 3.75]
    check_close([scale, factor], [2**0.5, 2 * 2**0.5], 1e-6)


def _column_factors():
    variance, gamma, beta = (last(v, MANY, dtype="float32") for v in (4.0, 3.0, 2.0))
    made = [far(MANY, dtype="float32") for _ in range(3)]
    more = (np.int64(MANY), np.float32(0), np.int32(1), np.int32(1))
    launch_all("norm", "column_factors", MANY, variance, gamma, beta, *made, *more)
    assert [a[-1] for a in made] == [0.5, 1.5, 2]


def _scale_shift():
    x, y = last([1, 2, 3, 4, 5, 6, 7, 8], MANY // 8, 8), far(MANY // 8, 8)
    center, factor, shift = (put(np.full(8, v, "float32")) for v in (1.0, 2.0, 3.0))
    norm._scale_shift(x, center, factor, shift, y)
    assert y[-1].tolist() == [3, 5, 7, 9, 11, 13, 15, 17]


def _batch_gradient():
    g, x, dx = last(range(1, 9), MANY // 8, 8), last(2, MANY // 8, 8), far(MANY // 8, 8)
    one, sums = put(np.ones(8, "float32")), put(np.zeros((2, 8), "float32"))
    args = (g, x, one, one, one, sums, dx, np.int64(MANY // 8), np.int64(8))
    launch_all("norm", "batch_gradient", MANY // 8, *args, np.int32(1), np.int32(1))
    assert dx[-1].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


# --- elements -------------------------------------------------------------------------------------


def _bias_activation():
    found = activation.bias_activation(last([-1, 2], MANY // 8, 8), put(np.ones(8), "float16"))
    assert found[-1].tolist() == [1] * 6 + [0, 3]


def _bias_activation_gradient():
    g, x = last([3, 4], MANY), last([-1, 2], MANY)
    found, _ = activation.bias_activation_gradient(g, x, None, "relu")
    assert found[-2:].tolist() == [0, 4]


def _state():
    return put(np.array([3, 5]), "uint32")


def _words(count):
    at = np.arange(count // 4 - 2, count // 4, dtype="u8")
    zero, low = np.uint64(0), np.uint64(2**32 - 1)
    counter = (at & low, at >> np.uint64(32), np.uint64(5), zero)
    return np.stack(philox(np, counter, (np.uint64(3), zero)), -1).reshape(-1)


def _dropout():
    count = 4 * MANY  # as many blocks of four numbers
    y = random.dropout(_state(), last([1] * 8, count), 0.5)
    assert y[-8:].tolist() == [0 if w < 2**31 else 2 for w in _words(count)]


def _random_words():
    found = KERNELS["random_bits"](_state(), shape=(4 * MANY,))
    np.testing.assert_array_equal(found[-8:], _words(4 * MANY))


def _heads(function, before, after):
    def call():
        x = last(range(1, 9), *before)
        more = [put(np.ones((before[0], 1, before[2], 8)), "float16")] * 2
        if function is heads.steps_first:
            more = [put(np.ones((before[0], before[1], 1, 8)), "float16")] * 2
        more = [more[0].repeat(before[3] // 8, -1).view(type(x)), more[1]]
        found = function([x, *more], 0.5)
        assert found[0].shape == after
        assert found[0][-1, -1, -1, -8:].tolist() == [k / 2 for k in range(1, 9)]
        assert all(wide(a).reshape(-1)[:2048].all() for a in found[1:])  # of the first block

    return call


# --- places ---------------------------------------------------------------------------------------


def _places_along(dtype):
    def call():
        found = embedding._places(last([3, -1], MANY, dtype=dtype), HALF, 8, 1, 10)
        outer = MANY // 8 - 1
        assert found[-2:].tolist() == [outer * 10 + 3, outer * 10 + 9]

    return call


def _places_at(dtype):
    def call():
        count = MANY // 2
        index, places = last([6, -3], count, 2, dtype=dtype), far(count, dtype="int64")
        sizes = np.zeros((), embedding.SIZES)
        sizes["sizes"][:2], sizes["axes"] = (7, 2**33), 2
        kernel = f"places_at_{'int' if dtype == 'int32' else 'long'}"
        launch_all("embedding", kernel, count, index, places, sizes, np.int64(count))
        assert places[-1] == 6 * 2**33 + 2**33 - 3

    return call


def _sort_chunks(dtype):
    def call():
        places = last([5, -1, 4], MANY, dtype=dtype)
        keys, order = far(MANY, dtype="int64"), far(MANY, dtype="int64")
        kernel = "sort_chunks" + ("_int" if dtype == "int32" else "")
        args = (places, keys, order, np.int64(MANY), np.int64(2**33))
        kernels.launch("embedding", kernel, HALF, MANY // embedding.SORTED, (256,), *args)
        assert keys[-4:].tolist() == [0, 4, 5, 2**33 - 1]
        assert order[-3:].tolist() == [MANY - 1, MANY - 3, MANY - 2]

    return call


def _sort_merge():
    keys, order = last([7, 9], MANY, dtype="int64"), last([MANY - 1, 3], MANY, dtype="int64")
    made = [far(MANY, dtype="int64") for _ in range(2)]
    args = (keys, order, *made, np.int64(MANY), np.int64(10))
    launch_all("embedding", "sort_merge", MANY, *args)
    assert [a[-2:].tolist() for a in made] == [[7, 9], [MANY - 1, 3]]


def _sizes(count):
    return tuple(np.int64(k) for k in (count, ROWS, N, embedding.CHUNK))


def _scatter_chunks():
    g, order = last(some_numbers(), ROWS, N), last(ROWS - 1, ROWS, dtype="int64")
    places, y = last(ROWS - 1, ROWS, dtype="int64"), far(ROWS, N)
    chunks = -(-ROWS // embedding.CHUNK)
    edges = far(chunks, 2, N, dtype="float32")
    args = (g, order, places, y, edges, *_sizes(ROWS))
    kernels.launch("embedding", "scatter_chunks", HALF, chunks * 4, (256,), *args)
    np.testing.assert_array_equal(y[-1, 768:], some_numbers()[768:])  # of the last tile


def _scatter_runs():
    count = embedding.CHUNK * 2**22  # as many chunks: edges of 2^33 numbers
    places, y = last([ROWS - 1] * 65, count, dtype="int64"), far(ROWS, N)
    places[: 8 * embedding.CHUNK] = -1
    edges = far(2**22, 2, N, dtype="float32")
    edges[-2, 1], edges[-1, 0] = 2, 3
    Function.most = 16  # the last chunk but one adds up the run that ends in the last
    args = (places, edges, y, *_sizes(count))
    kernels.launch("embedding", "scatter_runs", HALF, 2**22 * 4, (256,), *args)
    assert (y[-1] == 5).all()


FAR_CALLS: dict[str, Callable[[], None]] = {
    "softmax": _softmax,
    "softmax_gradient": _softmax_gradient,
    "class_hits": _class_hits,
    "class_loss": _class_loss,
    "class_loss_gradient": _class_loss_gradient,
    "target_loss": _target_loss,
    "target_loss_gradient": _target_loss_gradient,
    "normalize": _normalize,
    "normalize_gradient": _normalize_gradient,
    "gather_int": _gather("int32"),
    "gather_long": _gather("int64"),
    "column_parts": _column_parts,
    "column_totals": _column_totals,
    "moment_parts": _moment_parts,
    "moment_totals": _moment_totals,
    "batch_totals": _batch_totals,
    "column_factors": _column_factors,
    "scale_shift": _scale_shift,
    "batch_gradient": _batch_gradient,
    "bias_activation": _bias_activation,
    "bias_activation_gradient": _bias_activation_gradient,
    "dropout": _dropout,
    "random_words": _random_words,
    "heads_first": _heads(heads.heads_first, (33, 2**13, 16, 2**10), (33, 16, 2**13, 2**10)),
    "steps_first": _heads(heads.steps_first, (33, 16, 2**13, 2**10), (33, 2**13, 16, 2**10)),
    "places_along_int": _places_along("int32"),
    "places_along_long": _places_along("int64"),
    "places_at_int": _places_at("int32"),
    "places_at_long": _places_at("int64"),
    "sort_chunks": _sort_chunks("int64"),
    "sort_chunks_int": _sort_chunks("int32"),
    "sort_merge": _sort_merge,
    "scatter_chunks": _scatter_chunks,
    "scatter_runs": _scatter_runs,
}
