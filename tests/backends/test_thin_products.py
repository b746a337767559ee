"""Products of matrices with one row or column, at any strides: oneDNN refuses some at run time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kerasish import backends, ops
from kerasish.backends.onednn import native
from kerasish.backends.static.engine import Static

TURNS = list(itertools.product((True, False), repeat=2))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("turned", TURNS)
@pytest.mark.parametrize("batch", [(), (5,), (2, 5)])
def test_thin_products(dtype, turned, batch):
    rng = np.random.default_rng(0)
    # Sizes of its own in each test: a primitive made for other strides would be used again.
    own = 4 * (7 + TURNS.index(turned) + 5 * len(batch))
    for m, k, n in itertools.product((1, 2, 3, own), (1, 2), (1, 3, own)):
        a = rng.integers(-3, 4, (*batch, k, m) if turned[0] else (*batch, m, k)).astype("float32")
        b = rng.integers(-3, 4, (n, k) if turned[1] else (k, n)).astype("float32")

        def product(a, b):
            a, b = ops.cast(a, dtype), ops.cast(b, dtype)
            a = ops.swapaxes(a, -1, -2) if turned[0] else a
            b = ops.swapaxes(b, -1, -2) if turned[1] else b
            return ops.cast(ops.matmul(a, b), "float32")

        got = backends.get("static").compile(product)(a, b)
        want = (a.swapaxes(-1, -2) if turned[0] else a) @ (b.T if turned[1] else b)
        np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("rows", "columns", "depth"), [(64, 12, 300), (200, 48, 256), (7, 1, 999)])
def test_gradients_of_weights_with_few_columns(rows, columns, depth, dtype):
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (depth, rows)).astype("float32")
    b = rng.integers(-3, 4, (depth, columns)).astype("float32")

    def product(a, b):
        a, b = ops.cast(a, dtype), ops.cast(b, dtype)
        y = ops.matmul(ops.transpose(a), b)
        return ops.cast(y, "float32"), ops.cast(ops.transpose(y), "float32")

    step = Static().compile(product)
    y, turned = step(a, b)
    want = a.T @ b
    if dtype == "bfloat16":
        np.testing.assert_allclose(y, want, rtol=2**-7)
    else:
        np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(turned, np.transpose(y))
    wide = rows * columns * depth * 2 > 100_000
    if wide and dtype == "float32" and not native.available():
        (executable,) = step.executables()
        assert [u.results for u in executable.units if u.name == "matmul"] == [("out",)]
