"""More threads than 32 bits count, sorting, and divisions by multiplication, run on the CPU.

Each kernel's case of more than 2^31 elements is in test_far_kernels.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from cuda_on_cpu import (
    Function,
    put,
)

from kerasish.backends.eager.cuda import (
    embedding,
    kernels,
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


@pytest.mark.parametrize(("size", "bits"), [(8, 32), (2**31 - 8, 32), (2**31, 64), (2**33, 64)])
def test_positions_have_64_bits_where_an_array_needs_them(cuda, monkeypatch, size, bits):
    """Quotients by multiplication are exact below 2^31 alone."""
    seen = []
    monkeypatch.setattr(kernels, "function", lambda *given: seen.append(given[-1]) or _nothing)
    kernels.launch("norm", "x", np.dtype("float16"), 1, (32,), _sparse(size, "int8"), np.int64(3))
    assert seen == [bits]


def _nothing(*launch):
    """A kernel that does nothing."""
