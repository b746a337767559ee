"""More elements than 32 bits count, and divisions by multiplication, run on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_on_cpu import (
    Function,
    put,
    wide,
)
from kernel_calls import update_source

from kerasish import ops, optimizers, tree
from kerasish.backends.eager.cuda import (
    KERNELS,
    activation,
    embedding,
    kernels,
    norm,
    random,
    update,
)
from kerasish.backends.eager.cuda.window import divisor
from kerasish.ops.random import philox

# --- more elements than 32 bits count -------------------------------------------------------------


def _sparse(shape, dtype):
    """Return an array of zeros, far larger than memory: pages exist where they are touched."""
    return np.zeros(shape, dtype).view(type(put(0.0)))


def test_dropout_of_more_than_2_to_the_32_elements(cuda):
    count = 2**32 + 4096
    x, y, state = _sparse(count, "float16"), _sparse(count, "float16"), np.array([3, 5], "uint32")
    x[-8:] = 1
    Function.most = 2
    blocks = -(-count // (4 * kernels.THREADS))
    args = (np.uint32(2**31), np.float32(2), np.int64(count), np.int32(1))
    kernels.launch(
        "random", "dropout", x.dtype, blocks, (kernels.THREADS,), x, put(state), y, *args
    )
    far = _philox_at(state, (count - 8) // 4, 2)
    assert y[-8:].tolist() == [0 if b < 2**31 else 2 for b in far]


def test_more_threads_than_32_bits_count(cuda, tmp_path):
    count = 2**34 + 4096  # four elements for each thread; in files with holes
    x, y = (
        np.memmap(tmp_path / name, "float16", "w+", shape=count).view(type(put(0.0)))
        for name in ("x", "y")
    )
    state = np.array([3, 5], "uint32")
    x[-8:] = 1
    Function.most = 2
    blocks = -(-count // (4 * kernels.THREADS))
    args = (np.uint32(2**31), np.float32(2), np.int64(count), np.int32(1))
    kernels.launch(
        "random", "dropout", x.dtype, blocks, (kernels.THREADS,), x, put(state), y, *args
    )
    far = _philox_at(state, (count - 8) // 4, 2)
    assert y[-8:].tolist() == [0 if b < 2**31 else 2 for b in far]


# Elements: an index of 32 bits does not reach the last ones; the grid's last block does them, the
# first block the first ones, also by packs of 8.
MANY = 2**31 + 8 * kernels.MOST_BLOCKS * kernels.THREADS


def _row(values, count, dtype="float16"):
    """Return zeros that no memory backs, but for the first and the last numbers."""
    made = _sparse(count, dtype)
    made[: len(values)] = made[-len(values) :] = values
    return made


def _scaled(x):
    rows, y = x.reshape(-1, 8), _sparse((x.size // 8, 8), "float16")
    zero, one = (put(np.full(8, v, "float32")) for v in (0.0, 1.0))
    norm._scale_shift(rows, zero, one, zero, y)
    return y.reshape(-1)


def _batch_gradient(x):
    rows, dx = x.reshape(-1, 8), _sparse((x.size // 8, 8), "float16")
    one, sums = put(np.ones(8, "float32")), put(np.zeros((2, 8), "float32"))
    args = (rows, rows, one, one, one, sums, dx, np.int64(len(rows)), np.int64(8))
    blocks = kernels.MOST_BLOCKS
    more = (np.int32(1), np.int32(1))
    kernels.launch("norm", "batch_gradient", x.dtype, blocks, (kernels.THREADS,), *args, *more)
    return dx.reshape(-1)


LARGE = {
    "scale_shift": _scaled,
    "batch_gradient": _batch_gradient,
    "relu": lambda x: KERNELS["relu"](x),
    "bias_activation": lambda x: activation.bias_activation(x, None, "relu"),
    "bias_activation_gradient": lambda x: activation.bias_activation_gradient(x, x),
    "dropout": lambda x: random.dropout(put(np.array([1, 2], "uint32")), x, 0.0),
    "sgd_update": lambda x: update.update_tensors(
        update_source(optimizers.SGD(0.1)), [[x], [x]], [put(np.float32(0))]
    ),
}


@pytest.mark.parametrize("kernel", LARGE)
def test_all_of_more_than_2_to_the_31_elements(cuda, kernel):
    x = _row([1.0, 2.0, 3.0], MANY)
    cuda.empty = _sparse
    Function.most = 2  # the first block and the last one
    found = [a for a in tree.flatten(LARGE[kernel](x)) if a is not None]
    (y,) = (a for a in found if a.size == MANY)
    assert y[:3].tolist() == [1, 2, 3]
    assert y[-3:].tolist() == [1, 2, 3]


def test_pictures_of_more_than_2_to_the_31_elements(cuda):
    count, side = MANY // 4096, 64
    x = _sparse((count, side, side, 1), "float16")
    x[0, 0, 0, 0] = x[-1, -1, -1, 0] = 5
    cuda.empty = _sparse
    Function.most = 2
    attrs = {"size": (3, 3), "strides": (1, 1), "padding": ((1, 1), (1, 1))}
    y = KERNELS["pool_max"](x, **attrs)
    assert [y[0, 0, 0, 0], y[-1, -1, -1, 0], y[-1, -2, -2, 0]] == [5, 5, 5]


def test_columns_of_more_than_2_to_the_31_elements(cuda):
    x = _sparse((2**26 + 8, 32), "float16")
    x[-1] = np.arange(32)
    Function.most = 2
    rows, columns, chunk, chunks = x.shape[0], 32, 2**19, 129
    parts = _sparse((1, chunks, columns), "float32")
    one = divisor(1)
    sizes = (np.int64(rows), np.int64(columns), one, one, *map(np.int64, (1, chunk, chunks)))
    args = (x, *[kernels.NOTHING] * 3, parts, *sizes, np.int32(0))
    kernels.launch("norm", "column_parts", x.dtype, chunks, (32, 8), *args)
    np.testing.assert_array_equal(parts[0, -1], np.arange(32))


def test_places_beyond_2_to_the_31(cuda):
    places = put(np.array([2**31 + 5, 2**33, -1, 2**31 + 5]))
    order, keys = embedding._sorted(places, np.dtype("float32"))
    assert order.tolist() == [2, 0, 3, 1]
    assert keys.tolist() == [-1, 2**31 + 5, 2**31 + 5, 2**33]


@pytest.mark.parametrize("count", [1, 2, 1023, 1024, 1025, 3000, 5000])
def test_sorting_keeps_the_order_of_equals(cuda, count):
    places = np.random.default_rng(0).integers(-1, 9, count)
    order, keys = embedding._sorted(put(places), np.dtype("float32"))
    np.testing.assert_array_equal(order, np.argsort(places, kind="stable"))
    np.testing.assert_array_equal(keys, np.sort(places))


def _divided(numbers, by):
    """Return the quotients that `Divisor` gives for 32-bit numbers, as the kernels compute them."""
    d = divisor(by)
    if by == 1:
        return numbers
    product = numbers.astype("u8") * np.uint64(d["multiplier"])
    return product >> np.uint64(32) >> np.uint64(d["shift"])


@pytest.mark.parametrize("by", [1, 2, 3, 5, 7, 10, 127, 641, 65535, 65537, 2**30 + 1, 2**31 - 1])
def test_quotients_by_multiplication_are_exact(by):
    rng = np.random.default_rng(by)
    edges = np.arange(1, 200, dtype="i8") * by
    numbers = np.concatenate([edges - 1, edges, edges + 1, 2**31 - np.arange(1, 50)])
    numbers = np.concatenate([numbers, rng.integers(0, 2**31, 20000)])
    numbers = numbers[(numbers >= 0) & (numbers < 2**31)].astype("u8")
    np.testing.assert_array_equal(_divided(numbers, by), numbers // np.uint64(by))


def _philox_at(state, block, blocks):
    at = np.arange(block, block + blocks, dtype="uint64")
    zero = np.uint64(0)
    counter = (at & np.uint64(2**32 - 1), at >> np.uint64(32), np.uint64(state[1]), zero)
    return np.stack(philox(np, counter, (np.uint64(state[0]), zero)), -1).reshape(-1)


def test_rows_beyond_2_to_the_31_elements(cuda):
    rows, n = 2**22 + 8, 1024
    x, y = _sparse((rows, n), "float16"), _sparse((rows, n), "float16")
    x[-1, 5] = 3
    Function.most = 2
    args = (x, y, np.int64(rows), np.int64(n), np.int32(0), np.int32(1))
    kernels.launch("softmax", "softmax", x.dtype, rows // 8, (32, 8), *args)
    expected = ops.softmax(wide(x[-1])).numpy()
    np.testing.assert_allclose(wide(y[-1]), expected, atol=1e-3)
    np.testing.assert_allclose(wide(y[0]), 1 / n, rtol=1e-3)


def test_rows_of_a_table_of_more_than_2_to_the_31_elements(cuda):
    rows, n = 2**22 + 8, 512
    table = _sparse((rows, n), "float32")
    table[-1] = np.arange(n)
    found = embedding.take_rows(table, put(np.array([rows - 1, 0])), axis=0)
    np.testing.assert_array_equal(found, [np.arange(n), np.zeros(n)])


@pytest.mark.parametrize(("size", "bits"), [(8, 32), (2**31 - 8, 32), (2**31, 64), (2**33, 64)])
def test_positions_have_64_bits_where_an_array_needs_them(cuda, monkeypatch, size, bits):
    """Quotients by multiplication are exact below 2^31 alone."""
    seen = []
    monkeypatch.setattr(kernels, "function", lambda *given: seen.append(given[-1]) or _nothing)
    kernels.launch("norm", "x", np.dtype("float16"), 1, (32,), _sparse(size, "int8"), np.int64(3))
    assert seen == [bits]


def _nothing(*launch):
    """A kernel that does nothing."""
