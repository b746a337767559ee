"""Products with quantized weights on the static engine: by oneDNN, and by loops of our own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kerasish as keras
from kerasish import config
from kerasish.backends import onednn
from kerasish.backends.onednn import native
from kerasish.backends.static.lowering import build, quantized
from kerasish.ops.networks.quantized import integer_matmul, packed_product
from kerasish.ops.shapes import Spec

ROWS, INPUTS, UNITS = (1, 3, 8, 13), (1, 130, 1100), (1, 31, 64, 301)
SIZES = list(itertools.product(ROWS, INPUTS, UNITS))


def units_of(monkeypatch, own):
    """Return the list of units that are made from now on; `own`: never oneDNN's."""
    made = []
    for kind in (quantized.IntegerMatmulUnit, quantized.PackedWeightsUnit):
        init = kind.__init__

        def noting(self, *args, init=init, **kwargs):
            init(self, *args, **kwargs)
            made.append(type(self).__name__)

        monkeypatch.setattr(kind, "__init__", noting)
    if own:
        monkeypatch.setattr(build, "make_integer_matmul", lambda *args: None)
    return made


@pytest.mark.parametrize("own", [False, True])
def test_products_of_integers(own, monkeypatch):
    config.set_backend("static")
    made = units_of(monkeypatch, own)
    rng = np.random.default_rng(0)
    for m, inputs, n in SIZES:
        k = inputs + own  # programs of equal graphs are kept: each case has its own sizes
        a = rng.integers(-128, 128, (m, k)).astype("int8")
        b = rng.integers(-128, 128, (k, n)).astype("int8")
        a[0], b[:, 0] = -128, -128  # sums as large as can be
        expected = a.astype("int64") @ b.astype("int64")
        np.testing.assert_array_equal(keras.function(integer_matmul)(a, b), expected)
    assert len(made) == len(SIZES)
    if own or not exact_library():
        assert set(made) == {"PackedWeightsUnit"}
    else:
        assert set(made) == {"IntegerMatmulUnit"}


def exact_library():
    if native.available():
        return False
    name = onednn.matmul((8, 64), (64, 64), dtype="int8", out_dtype="int32").implementation
    return "vnni" in name or "amx" in name


@pytest.mark.parametrize(("bits", "block"), [(4, 128), (4, 7), (8, 2000)])
def test_products_with_packed_weights(bits, block, monkeypatch):
    config.set_backend("static")
    made = units_of(monkeypatch, True)
    rng = np.random.default_rng(1)
    for m, k, n in SIZES:
        attrs = {"units": n, "block": block, "bits": bits}
        x = rng.normal(size=(m, k)).astype("float32")
        q = rng.integers(-128, 128, (k, -(-n * bits // 8))).astype("int8")
        scale = rng.normal(size=(-(-k // block), n)).astype("float32")
        zero = rng.integers(-8, 8, scale.shape).astype("int8")
        wide = (x.astype("float64"), q, scale.astype("float64"), zero)
        expected = packed_product.kernel(np, *wide, **attrs)
        y = keras.function(lambda *args, attrs=attrs: packed_product(*args, **attrs))(
            x, q, scale, zero
        )
        largest = np.abs(expected).max()
        np.testing.assert_allclose(y, expected, rtol=0, atol=2e-5 * largest)
    assert made == ["PackedWeightsUnit"] * len(SIZES)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_share_the_columns(threads):
    config.set_backend("static")
    rng = np.random.default_rng(2)
    x = rng.normal(size=(9, 600)).astype("float32")
    q = rng.integers(-128, 128, (600, 1000)).astype("int8")
    scale, zero = np.ones((1, 2000), "float32"), np.zeros((1, 2000), "int8")
    before = native.get_threads()
    native.set_threads(threads)
    try:
        y = keras.function(
            lambda *args: packed_product(*args, units=2000, block=600, bits=4)
        )(x, q, scale, zero)  # fmt: skip
    finally:
        native.set_threads(before)
    expected = packed_product.kernel(np, x, q, scale, zero, units=2000, block=600, bits=4)
    np.testing.assert_allclose(y, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def test_older_processors_of_onednn_are_not_trusted(monkeypatch):
    """Their products of int8 saturate in between."""
    made = units_of(monkeypatch, False)
    monkeypatch.setattr(quantized, "_EXACT", ("no such word",))
    a, b = np.full((2, 64), 127, "int8"), np.full((64, 40), 127, "int8")
    config.set_backend("static")
    y = keras.function(integer_matmul)(a, b)
    assert made == ["PackedWeightsUnit"] and np.unique(y).tolist() == [64 * 127 * 127]


def infer(op, *arrays, **attrs):
    """Apply an op's shape rule, as a trace does."""
    return op.shape(*(Spec(a.shape, str(a.dtype)) for a in arrays), **attrs)


def test_wrong_arguments_are_named():
    a = np.ones((2, 4), "float32")
    with pytest.raises(TypeError, match="both factors are int8, got float32 and float32"):
        infer(integer_matmul, a, a.T)
    q, scale, zero = np.ones((4, 3), "int8"), np.ones((1, 6), "float32"), np.ones((1, 6), "int8")
    with pytest.raises(ValueError, match="bits is 4 or 8, got 3"):
        infer(packed_product, a, q, scale, zero, units=6, block=4, bits=3)
    with pytest.raises(ValueError, match=r"shape \(2, 6\) was expected, got \(1, 6\)"):
        infer(packed_product, a, q, scale, zero, units=6, block=2, bits=4)
