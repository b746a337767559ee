"""Values that vary along fewer axes than their shape: each element is written, each is added up."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import config, layers, ops
from kerasish.backends.static.codegen.description import KernelBuilder
from kerasish.backends.static.lowering import loops as lower_loops
from kerasish.graph.passes.fuse import fuse_loops
from kerasish.graph.trace import trace


def _wide(x):
    """Return the mean of each row, at each element of the row."""
    return ops.broadcast_to(ops.mean(x, axis=-1, keepdims=True), x.shape)


FUNCTIONS = {
    "broadcast": lambda x: (x * 2, _wide(x)),
    "element-wise after it": lambda x: ops.exp(_wide(x)),
    "sum of each row": lambda x: ops.sum(ops.exp(_wide(x)), axis=-1),
    "sum of each column": lambda x: ops.sum(ops.exp(_wide(x)), axis=0),
    "sum of all": lambda x: ops.sum(ops.exp(_wide(x))),
    "largest": lambda x: ops.max(_wide(x), axis=-1) + x[:, 0],
    "largest place": lambda x: ops.argmax(_wide(x) * 1.0, axis=-1),
    "product": lambda x: ops.prod(_wide(x), axis=-1),
    "sums of columns": lambda x: ops.broadcast_to(ops.sum(x * 2, axis=0, keepdims=True), (4, 4)),
    "sums of columns, used": lambda x: (
        ops.broadcast_to(ops.sum(x * 2, axis=0, keepdims=True), (4, 4)) * x
    ),
    "one number": lambda x: ops.broadcast_to(ops.sum(x * 2), (4, 4)),
    "rows as columns": lambda x: ops.broadcast_to(ops.mean(x * 2, axis=-1), (4, 4)),
    "rows as columns, used": lambda x: ops.broadcast_to(ops.mean(x * 2, axis=-1), (4, 4)) * (x * 2),
    "three axes": lambda x: ops.broadcast_to(
        ops.mean(ops.reshape(x, (2, 2, 4)), axis=-1, keepdims=True), (2, 2, 4)
    ),
}


@pytest.mark.parametrize("level", ["none", "fast_compile", "fast_run"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_element_is_written_and_added_up(name, level):
    x = np.random.default_rng(0).normal(size=(4, 4)).astype("float32")
    function = FUNCTIONS[name]
    expected = kerasish.tree.flatten(function(ops.convert_to_tensor(x)))
    compiled = kerasish.function(function, backend="static", optimize=level)
    for _ in range(2):  # the second run finds the memory as the first has left it
        results = kerasish.tree.flatten(compiled(x))
        assert len(results) == len(expected)
        for result, value in zip(results, expected, strict=True):
            np.testing.assert_allclose(np.asarray(result), np.asarray(value), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("reduce", [ops.mean, ops.sum, ops.logsumexp, ops.max])
@pytest.mark.parametrize("keepdims", [False, True])
def test_a_model_that_ends_in_a_reduction_has_right_gradients(reduce, keepdims):
    def weights_after_a_step(backend):
        i = layers.Input((3,))
        h = layers.Dense(3, use_bias=False, kernel_initializer="ones")(i)
        model = kerasish.Model(i, reduce(h * [[1.0, 2.0, 3.0]], axis=-1, keepdims=keepdims))
        model.compile(kerasish.optimizers.SGD(1.0), "mse")
        y = np.ones((2, 1) if keepdims else (2,), "float32")
        model.train_on_batch(np.arange(6, dtype="float32").reshape(2, 3), y)
        return model.get_weights()[0]

    result = {}
    for backend in ("static", "eager"):
        before = config.backend()
        config.set_backend(backend)
        try:
            result[backend] = weights_after_a_step(backend)
        finally:
            config.set_backend(before)
    np.testing.assert_allclose(result["static"], result["eager"], rtol=1e-5)


def test_a_loop_that_would_leave_elements_unwritten_is_refused(monkeypatch):
    """Without its broadcast a row's number would be written once per row."""
    forgetful = KernelBuilder.op

    def op(self, name, *args, **attrs):
        return args[0] if name == "broadcast" else forgetful(self, name, *args, **attrs)

    monkeypatch.setattr(KernelBuilder, "op", op)
    graph = fuse_loops(trace(lambda x: _wide(x * 2), np.ones((4, 4), "float32")).graph)
    (node,) = (n for n in graph.nodes if n.op.name == "fused")
    lower_loops.build_kernel.cache_clear()
    try:
        with pytest.raises(AssertionError, match="writes 4 of 16"):
            lower_loops.LoopUnit(node, {})
    finally:
        lower_loops.build_kernel.cache_clear()


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_terms_of_products_are_added(by_column, swapped):
    """A number of each row times one of each column, added to what the loop reads."""
    config.set_backend("static")
    rng = np.random.default_rng(0)
    z = rng.normal(size=(37, 301)).astype("float32")
    rows = rng.normal(size=(4, 37, 1)).astype("float32")
    columns = rng.normal(size=(4, 1, 301)).astype("float32")

    def step(z, rows, columns):
        for x, y in zip(rows, columns):
            z = x * y + z if swapped else z + y * x
        return (z, ops.sum(z, axis=0)) if by_column else (z, ops.tanh(z))

    first, second = kerasish.function(step)(z, list(rows), list(columns))
    expected = z + (rows.astype("float64") * columns).sum(0)
    np.testing.assert_allclose(first, expected, rtol=1e-5, atol=1e-5)
    after = expected.sum(0) if by_column else np.tanh(expected)
    np.testing.assert_allclose(second, after, rtol=1e-4, atol=1e-4)
