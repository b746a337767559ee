"""vmap: every op, derivatives, nesting, and functions that cannot be batched."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from op_examples import arguments, call, results

import kerasish
from kerasish import ops
from kerasish.autodiff import batching, batching_rules
from kerasish.errors import NumberAskedError, ShapeError
from kerasish.ops.op import REGISTRY

SIZE = 3
CASES = [
    pytest.param(op, example, id=f"{name}-{i}")
    for name, op in sorted(REGISTRY.items())
    for i, example in enumerate(op.examples)
    if example[0] and name != "random_bits"
]
# Ops that run for one example after the other: each needs a good reason.
SLOW = {
    "all_gather": "each example has segments of its own",
    "searchsorted": "each example has its own sorted sequence",
    "simple_rnn": "a recurrence for each example", "simple_rnn_gradient": "likewise",
    "lstm": "likewise", "lstm_gradient": "likewise", "gru": "likewise", "gru_gradient": "likewise",
    "random_bits": "refused: vectorized_map draws for one element after the other",
    "print_values": "the batcher prints all examples at once, in `run_effect`",
    "fill": "has no tensor input", "count_up": "has no tensor input",
}  # fmt: skip


def test_every_op_has_a_rule():
    """A new op needs a rule, or a reason here."""
    without = {name for name, op in REGISTRY.items() if op not in batching_rules.RULES}
    assert without == set(SLOW)


def turned(array, turn):
    """Return an array like this one with other values: of a cycle, so that ranges stay."""
    if array.dtype.kind == "f" and array.ndim >= 2 and array.shape[-1] == array.shape[-2]:
        return array * np.float32(1 + 0.25 * turn)  # a matrix keeps its kind
    return np.roll(array, turn, axis=-1) if array.ndim and array.dtype.kind == "f" else array


@pytest.mark.parametrize(("op", "example"), CASES)
def test_every_op_as_one_by_one(op, example):
    arrays, attrs = arguments(op, example)
    if "sorted" in "".join(op.input_names):
        variants = [arrays] * SIZE
    else:
        variants = [[turned(a, n) for a in arrays] for n in range(SIZE)]
    count = len(arrays)
    singles = [tuple(i == j for j in range(count)) for i in range(count)] if count > 1 else []
    for mapped in [(True,) * count, *singles]:
        rows = [[v[i] if m else arrays[i] for i, m in enumerate(mapped)] for v in variants]
        expected = [results(call(op, row, attrs)) for row in rows]
        given = [np.stack([r[i] for r in rows]) if m else arrays[i] for i, m in enumerate(mapped)]
        axes = tuple(0 if m else None for m in mapped)
        got = results(batching.vmap(lambda *xs: call(op, xs, attrs), axes)(*given))
        for n, part in enumerate(got):
            stacked = np.stack([np.asarray(e[n]) for e in expected])
            assert part.shape == stacked.shape and part.dtype == expected[0][n].dtype
            np.testing.assert_allclose(
                np.asarray(part, "complex128") if stacked.dtype.kind == "c" else part,
                stacked, rtol=2e-5, atol=1e-5, err_msg=str(mapped),
            )  # fmt: skip


def test_an_index_out_of_range_does_not_read_another_examples_row():
    x, indices = np.ones((2, 3, 1), "float32"), np.array([[0], [5]])
    with pytest.raises(IndexError):
        kerasish.vmap(lambda x, i: ops.take(x, i, axis=0))(x, indices)


@pytest.mark.parametrize(("in_axes", "out_axes"), list(itertools.product([0, 1, -1], [0, 1])))
def test_axes(in_axes, out_axes):
    x = np.random.default_rng(0).normal(size=(4, 4, 4)).astype("float32")
    got = kerasish.vmap(lambda x: ops.matmul(x, x), in_axes, out_axes)(x)
    rows = [np.matmul(r, r) for r in np.moveaxis(x, in_axes, 0)]
    np.testing.assert_allclose(got, np.stack(rows, out_axes), rtol=1e-5)


def test_structures_and_arguments_that_are_the_same_for_all():
    data = {"a": np.float32([[1, 2], [3, 4]]), "b": np.float32([10, 20])}
    f = kerasish.vmap(lambda d, c: {"y": d["a"] * d["b"] + c, "c": c}, in_axes=(0, None))
    got = f(data, np.float32(1))
    np.testing.assert_array_equal(got["y"], [[11, 21], [61, 81]])
    np.testing.assert_array_equal(got["c"], [1, 1])


def test_wrong_sizes_are_named():
    with pytest.raises(ShapeError, match=r"one size, got \[2, 3\]"):
        kerasish.vmap(lambda a, b: a + b)(np.ones(2), np.ones(3))
    with pytest.raises(ShapeError, match="no argument has one"):
        kerasish.vmap(lambda a: a, in_axes=None)(np.ones(2))
    with pytest.raises(ShapeError, match="in_axes=None"):
        kerasish.vmap(lambda a: a)(np.float32(1))


def test_derivatives_of_each_example():
    layer = kerasish.layers.Dense(2, "tanh")
    x = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
    layer(x)

    def loss(x):
        return ops.sum(layer(ops.expand_dims(x, 0)) ** 2)

    got = kerasish.vmap(kerasish.grad(loss))(x)
    expected = [kerasish.grad(loss)(row).numpy() for row in x]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_derivatives_by_what_is_the_same_for_all():
    w = kerasish.Variable(np.float32([1, 2, 3]))
    x = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
    loss = kerasish.vmap(lambda x: ops.sum(ops.sin(x * w)))
    with kerasish.GradientTape() as tape:
        total = ops.sum(loss(x) ** 2)
    got = tape.gradient(total, w)
    sines = np.sin(x * w.numpy()).sum(1)
    expected = (2 * sines[:, None] * np.cos(x * w.numpy()) * x).sum(0)
    np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_nested():
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(4, 3)
    outer = kerasish.vmap(kerasish.vmap(ops.dot, (None, 0)), (0, None))
    np.testing.assert_allclose(outer(a, b), a @ b.T)


def test_choices_and_loops():
    x = np.float32([-2, -1, 1, 2])
    f = kerasish.vmap(lambda x: ops.cond(x > 0, lambda: x * 2, lambda: -x))
    np.testing.assert_array_equal(f(x), [2, 1, 2, 4])
    branches = [lambda v: v, lambda v: v * 10, lambda v: v * 100]
    g = kerasish.vmap(lambda i, v: ops.switch(i, branches, v))
    np.testing.assert_array_equal(g(np.array([0, 1, 2, 1]), x), [-2, -10, 100, 20])
    h = kerasish.vmap(lambda x: ops.scan(lambda c, r: (c + r, c), 0.0, x)[0])
    np.testing.assert_array_equal(h(np.ones((3, 4), "float32")), [4, 4, 4])


@pytest.mark.parametrize("backend", ["static", "eager"])
def test_inside_a_compiled_function(backend):
    f = kerasish.function(kerasish.vmap(lambda a, b: ops.matmul(a, b)), backend=backend)
    a, b = np.random.default_rng(0).normal(size=(2, 6, 3, 3)).astype("float32")
    np.testing.assert_allclose(f(a, b), a @ b, rtol=1e-5, atol=1e-6)


def test_jacobian_and_hessian():
    x = np.float32([0.5, -1, 2])
    got = kerasish.jacobian(lambda x: ops.stack([ops.sum(x * x), ops.prod(x)]))(x)
    np.testing.assert_allclose(got, [2 * x, [-2, 1, -0.5]], rtol=1e-6)
    a = np.random.default_rng(0).normal(size=(3, 3)).astype("float32")
    second = kerasish.hessian(lambda x: ops.dot(x, ops.matmul(a, x)))(x)
    np.testing.assert_allclose(second, a + a.T, rtol=1e-5)


def test_vectorized_map_falls_back_to_one_by_one():
    count = kerasish.Variable(0)

    def counts(x):
        count.assign_add(1)
        return x * 2

    def asks(x):
        return x if float(x) > 0 else -x

    seed = kerasish.random.SeedGenerator(1)

    def draws(x):
        return x + kerasish.random.uniform((), seed=seed)

    x = np.float32([-1, 2, -3])
    np.testing.assert_array_equal(ops.vectorized_map(counts, x), 2 * x)
    assert int(count) == 3
    np.testing.assert_array_equal(ops.vectorized_map(asks, x), np.abs(x))
    assert len(set(np.asarray(ops.vectorized_map(draws, x) - x).tolist())) == 3
    with pytest.raises(NumberAskedError):
        kerasish.vmap(asks)(x)
    with pytest.raises(batching.NotBatchedError, match="assigned for each example"):
        kerasish.vmap(counts)(x)
