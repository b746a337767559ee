"""Calls on values in another library's graph, with a small stand-in for TensorFlow.

`tests/data/test_tensorflow.py` does the same with TensorFlow, where it is installed.
"""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from kerasish import layers, ops


class Shape(tuple):
    rank = property(len)

    def as_list(self):
        return list(self)


class Symbol:
    """A symbolic tensor: `compute` gives its array once the graph runs."""

    def __init__(self, compute, dtype, shape=()):
        self.compute, self.dtype, self.shape = compute, np.dtype(dtype), Shape(shape)

    def set_shape(self, shape):
        self.shape = Shape(shape)

    def __array__(self, dtype=None, copy=None):
        raise NotImplementedError("a symbolic tensor has no numbers")


def numpy_function(function, values, kinds):
    run = lambda i: function(*(v.compute() for v in values))[i]  # noqa: E731
    return [Symbol(lambda i=i: run(i), kind) for i, kind in enumerate(kinds)]


@pytest.fixture(autouse=True)
def tensorflow(monkeypatch):
    module = types.ModuleType("tensorflow")
    module.is_symbolic_tensor = lambda x: isinstance(x, Symbol)
    module.as_dtype, module.numpy_function = np.dtype, numpy_function
    monkeypatch.setattr(Symbol, "__module__", "tensorflow.python.framework")
    monkeypatch.setitem(sys.modules, "tensorflow", module)


def symbol(array, shape=None):
    return Symbol(lambda: array, array.dtype, array.shape if shape is None else shape)


X = np.arange(12, dtype="float32").reshape(3, 4)


def test_a_layer_is_built_and_computes_later():
    dense = layers.Dense(2)
    y = dense(symbol(X, (None, 4)))
    assert (y.shape, y.dtype, dense.built) == ((None, 2), np.float32, True)
    np.testing.assert_allclose(y.compute(), dense(X), rtol=1e-6)
    assert dense.inbound_nodes == []


def test_ops_take_values_anywhere_among_their_arguments():
    y = ops.add(X, symbol(X))
    np.testing.assert_array_equal(y.compute(), X + X)
    np.testing.assert_array_equal(ops.stack([symbol(X), symbol(X + 1)]).compute(), [X, X + 1])
    pair = [symbol(X[0, 1]), symbol(X[0, 2])]
    np.testing.assert_array_equal(ops.add(pair, 1.0).compute(), X[0, 1:3] + 1)
    parts = ops.split(symbol(X), 2, axis=1)
    np.testing.assert_array_equal(parts[1].compute(), X[:, 2:])
    np.testing.assert_array_equal(layers.Add()([symbol(X), symbol(X)]).compute(), X + X)
    assert ops.cast(symbol(X), "int32").dtype == np.int32
    np.testing.assert_allclose(ops.nn.gelu(symbol(X)).compute(), ops.nn.gelu(X), rtol=1e-6)


def test_keyword_arguments_and_training():
    drop = layers.Dropout(0.5, seed=0)
    np.testing.assert_array_equal(drop(symbol(X), training=False).compute(), X)
    assert (drop(symbol(X), training=True).compute() == 0).any()
    y = ops.where(condition=symbol(X > 2), x1=symbol(X), x2=0.0)
    np.testing.assert_array_equal(y.compute(), np.where(X > 2, X, 0))


def test_layers_of_text():
    lookup = layers.StringLookup(vocabulary=["a", "b"])
    words = Symbol(lambda: np.array([b"b", b"c"], object), "float32", (None,))
    words.dtype = types.SimpleNamespace(name="string")
    np.testing.assert_array_equal(lookup(words).compute(), [2, 0])


def test_an_unknown_number_of_axes_is_named():
    lost = symbol(X)
    lost.shape = types.SimpleNamespace(rank=None)
    with pytest.raises(ValueError, match="ensure_shape"):
        ops.exp(lost)


def test_other_objects_of_that_library_stay_arrays():
    class Eager(np.ndarray):
        pass

    Eager.__module__ = "tensorflow.python.framework"
    np.testing.assert_array_equal(ops.add(X.view(Eager), 1.0), X + 1)
