"""Products with a few columns in a loop of our own, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import config, ops
from kerasish.backends.static.codegen import kernels, thin
from kerasish.backends.static.engine import COMPILED_PLANS, Static
from kerasish.backends.static.lowering import program_threads
from kerasish.backends.static.lowering import thin as lowering
from kerasish.backends.static.lowering.thin import ThinUnit
from kerasish.backends.static.machine import machine_code
from kerasish.backends.static.machine.machine_code import host_target

wide = pytest.mark.skipif(
    host_target().lanes <= thin.WIDTH, reason="the vectors of this processor hold 8 numbers or less"
)


@pytest.fixture(autouse=True)
def many_threads(monkeypatch):
    monkeypatch.setattr(lowering, "GRAIN", 1)
    monkeypatch.setattr(program_threads, "SMALL_PROGRAM", 0)
    COMPILED_PLANS.clear()
    yield
    COMPILED_PLANS.clear()


def computed(a, b, turned):
    """Return the product, with operands transposed as told, and its thin units."""

    def product(x, y):
        left, right = (ops.transpose(v) if t else v for v, t in zip((x, y), turned))
        return ops.matmul(left, right)

    given = [np.ascontiguousarray(v.T) if t else v for v, t in zip((a, b), turned)]
    step = Static().compile(product)
    result = np.asarray(step(*map(ops.convert_to_tensor, given)))
    units = [u for e in step.executables() for u in e.units if isinstance(u, ThinUnit)]
    return result, units


@wide
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    "sizes", [(100, 600, 8), (257, 1100, 3), (1600, 35, 8), (1000, 70, 2)], ids=str
)
def test_products(sizes, turned):
    """Rows that fill no tile, more terms than a block has, columns that fill no vector."""
    rows, terms, columns = sizes
    rng = np.random.default_rng(0)
    a = rng.normal(size=(rows, terms)).astype("float32")
    b = rng.normal(size=(terms, columns)).astype("float32")
    results = []
    for threads in (1, 2):
        with config.using_threads(threads):
            result, units = computed(a, b, turned)
        assert [u.threads for u in units] == [threads]
        assert [u.kernel.apart for u in units] == [turned[0]]
        results.append(result)
    expected = a.astype("float64") @ b
    np.testing.assert_allclose(results[0], expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(*results)


@wide
def test_numbers_that_are_not_finite_stay_in_their_rows():
    a = np.ones((64, 1000), "float32")
    a[3, 5], a[20, 7] = np.nan, np.inf
    result, units = computed(a, np.ones((1000, 5), "float32"), (False, False))
    assert units
    assert np.isnan(result[3]).all() and np.isposinf(result[20]).all()
    np.testing.assert_array_equal(np.delete(result, (3, 20), 0), 1000.0)


@wide
@pytest.mark.parametrize("sizes", [(64, 9000, 9), (9000, 64, 1), (20, 9000, 8)], ids=str)
def test_others_are_left_to_the_library(sizes):
    rows, terms, columns = sizes
    a, b = np.ones((rows, terms), "float32"), np.ones((terms, columns), "float32")
    result, units = computed(a, b, (False, False))
    np.testing.assert_array_equal(result, float(terms))
    assert not units


@wide
def test_the_terms_of_a_long_sum_are_added_up_in_blocks():
    """2**24 + 1 is no float32: ones that are added one by one to it are lost."""
    terms = 5 * thin.BLOCK
    a = np.ones((40, terms), "float32")
    a[:, 0] = 2.0**24
    result, _ = computed(a, np.ones((terms, 8), "float32"), (False, False))
    assert (np.abs(result - (2.0**24 + terms - 1)) <= thin.BLOCK).all()


@pytest.mark.parametrize("level", ["sse", "avx2", "avx512"])
def test_code_for_each_level(level):
    kernel = thin.ThinProduct(5, 7, True)
    assert kernels.compile_one(kernel, machine_code.host_target(level)) > 0
