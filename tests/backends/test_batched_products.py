"""Products of many small matrices, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import config, ops
from kerasish.backends.static.engine import COMPILED_PLANS, Static
from kerasish.backends.static.lowering import program_threads
from kerasish.backends.static.lowering.batch_axes import Batch, batch_of

STAY, HEADS, TURNED = (0, 1, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2)


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def compute(a, b, axes):
    """Return the product of transposed operands."""

    def product(x, y):
        left, right = ops.transpose(x, axes[0]), ops.transpose(y, axes[1])
        return ops.transpose(ops.matmul(left, right), axes[2])

    COMPILED_PLANS.clear()
    step = Static().compile(product)
    return np.asarray(step(ops.convert_to_tensor(a), ops.convert_to_tensor(b)))


@pytest.mark.parametrize("sizes", [(2, 4, 7, 5, 6), (3, 4, 33, 40, 17), (8, 1, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_many_products(sizes, turned, apart, monkeypatch):
    """Rows of heads lie apart; the first operand may be turned."""
    monkeypatch.setattr(program_threads, "SMALL_PROGRAM", 0)
    n, heads, rows, columns, terms = sizes
    a = normal(n, heads, *((terms, rows) if turned else (rows, terms)))
    b = normal(n, terms, heads, columns) if apart else normal(n, heads, terms, columns)
    between = HEADS if apart else STAY
    axes = (TURNED if turned else STAY, between, between)
    results = []
    for threads in (1, 2):
        with config.using_threads(threads):
            results.append(compute(a, b, axes))
    expected = np.transpose(a, axes[0]).astype("float64") @ np.transpose(b, axes[1])
    np.testing.assert_allclose(results[0], np.transpose(expected, axes[2]), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(*results)


def test_axes_of_a_batch_are_joined_where_all_operands_allow_it():
    assert batch_of((3, 4), [(8, 2), (4, 1)]) == Batch((1, 12), ((0, 2), (0, 1)))
    assert batch_of((3, 4), [(8, 2), (5, 1)]) == Batch((3, 4), ((8, 2), (5, 1)))
    assert batch_of((3, 1, 4), [(8, 8, 2), (5, 5, 1)]) == Batch((3, 4), ((8, 2), (5, 1)))
    assert batch_of((2, 3, 4), [(48, 12, 2), (99, 20, 1)]) is None
    assert batch_of((), [(), ()]) == Batch((1, 1), ((0, 0), (0, 0)))
