"""The fake CuPy refuses what CuPy would, though NumPy, which computes for it, would not."""

from __future__ import annotations

import cupy_rules
import fake_cupy
import ml_dtypes
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    cupy_rules.CUPY is None, reason="CuPy is not installed: extras gpu13 or gpu12"
)


@pytest.fixture
def xp():
    return fake_cupy.make()


def test_names_that_cupy_lacks(xp):
    for look in (lambda: xp.spacing, lambda: xp.linalg.no_such, lambda: xp.add.no_such):
        with pytest.raises(AttributeError):
            look()
    with pytest.raises(AttributeError):
        _ = xp.asarray([1.0]).getfield
    assert xp.linalg.svd(xp.asarray([[2.0]]))[1].get().tolist() == [2.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda xp, x: xp.max(x, initial=0),
        lambda xp, x: x.max(initial=0),
        lambda xp, x: x.sum(0, where=x),
        lambda xp, x: xp.take(x, x, mode="clip"),
        lambda xp, x: xp.linalg.svd(x, hermitian=True),
    ],
)
def test_arguments_that_cupy_does_not_take(xp, call):
    with pytest.raises(TypeError, match=r"CuPy's \w+\("):
        call(xp, xp.asarray([[1.0]]))


def test_dtypes_that_cupy_does_not_know_or_answers_otherwise(xp):
    x = xp.asarray(np.ones(2, "complex64"))
    with pytest.raises(TypeError, match="CuPy has no cupy_logical_and"):
        xp.logical_and(x, x)
    x = xp.asarray(np.ones(2, ml_dtypes.bfloat16))
    with pytest.raises(TypeError, match="gives .*float32.*, NumPy's .*bfloat16"):
        xp.divmod(x, x)
    assert xp.add(xp.asarray(np.ones(2, "float16")), 1.5).dtype == "float16"


def test_what_cupy_s_help_says_is_read():
    read = cupy_rules._read
    assert str(read("_ndarray_base.max(self, axis=None, out=None) -> _ndarray_base")) == (
        "(self, axis='=None', out='=None')"
    )
    assert str(read("_ndarray_base.dot(self, _ndarray_base b, _ndarray_base out=None)")) == (
        "(self, b, out='=None')"
    )
    assert str(read("_ndarray_base.reshape(self, *shape, order='C', copy=None)\nmore")) == (
        "(self, *shape, order=\"='C'\", copy='=None')"
    )
    assert read("no such thing") is None
