"""Control flow against Python's own, with gradients, in eager and without numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kerasish import ops
from kerasish.autodiff import grad
from kerasish.errors import DTypeError, ShapeError, TraceError
from kerasish.ops.basic import control
from kerasish.ops.op import Engine, current_engine, using_engine
from kerasish.testing import gradient_check

rng = np.random.default_rng(0)


class Asked(Engine):
    """An engine that takes control over, for what is in `kinds`, and hands ops on."""

    def __init__(self, *kinds):
        self.inner, self.kinds, self.seen = current_engine(), kinds, []

    def apply(self, op, args, attrs):
        return self.inner.apply(op, args, attrs)

    def control(self, kind, **parts):
        self.seen.append((kind, sorted(parts)))
        return "taken over" if kind in self.kinds else NotImplemented


@pytest.mark.parametrize("value", [-2.0, 3.0])
def test_cond_runs_one_branch(value):
    ran = []

    def branch(name, result):
        return lambda: ran.append(name) or result

    x = ops.convert_to_tensor(value)
    y = ops.cond(x > 0, branch("yes", {"a": x * 2}), branch("no", {"a": x * 3}))
    assert float(y["a"]) == value * (2 if value > 0 else 3)
    assert ran == ["yes" if value > 0 else "no"]
    slope = grad(lambda a: ops.cond(a > 0, lambda: a**2, lambda: a**3))(value)
    assert float(slope) == (2 * value if value > 0 else 3 * value**2)


@pytest.mark.parametrize(
    ("index", "expected"), [(-3, 5.0), (0, 5.0), (1, -1.0), (2, 6.0), (9, 6.0)]
)
def test_switch_takes_the_nearest_branch(index, expected):
    branches = [lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b]
    assert float(ops.switch(index, branches, 2.0, 3.0)) == expected
    assert float(ops.switch(ops.convert_to_tensor(index), branches, 2.0, 3.0)) == expected
    with pytest.raises(ValueError, match="at least one branch"):
        ops.switch(0, [])


def test_while_loop():
    assert int(ops.while_loop(lambda i: i < 10, lambda i: i + 1, 0)) == 10
    x, y = ops.while_loop(lambda x, y: x < 10, lambda x, y: (x + 1, y * 2), (0, 1.0))
    assert (int(x), float(y)) == (10, 1024.0)
    kept = ops.while_loop(lambda d: d["i"] < 3, lambda d: {"i": d["i"] + 1}, {"i": 0})
    assert int(kept["i"]) == 3
    assert int(ops.while_loop(lambda i: True, lambda i: i + 1, 0, maximum_iterations=4)) == 4
    listed = ops.while_loop(lambda i: i < 2, lambda i: [i + 1], [0])
    assert type(listed) is list
    assert int(listed[0]) == 2


def test_while_loop_gradient_is_of_the_steps_that_ran():
    def halved(x):
        return ops.while_loop(lambda v: ops.sum(v) > 1.0, lambda v: v * v * 0.5, x)

    gradient_check(halved, [np.array([1.1, 1.3])])


CHANGES = [
    (lambda i, s: (i + 1, s[:1]), ShapeError, r"value 1: the shape must stay \(2,\), got \(1,\)"),
    (lambda i, s: (i + 0.5, s), DTypeError, "value 0: the dtype must stay int32, got float32"),
    (lambda i, s: (i + 1,), ValueError, "structure"),
    (lambda i, s: (i + 1, [s]), ValueError, "structure"),
]


@pytest.mark.parametrize(("body", "error", "text"), CHANGES)
def test_changes_of_loop_variables_are_named(body, error, text):
    with pytest.raises(error, match=text):
        ops.while_loop(lambda i, s: i < 2, body, (0, np.ones(2, "float32")))
    with pytest.raises(error, match=text):
        ops.fori_loop(0, 2, lambda _, state: body(*state), (0, np.ones(2, "float32")))
    with pytest.raises(error, match=text):
        ops.scan(lambda c, _: (body(*c), None), (0, np.ones(2, "float32")), length=2)


def test_fori_loop():
    assert int(ops.fori_loop(0, 10, lambda i, s: s + i, 0)) == 45
    assert int(ops.fori_loop(3, 3, lambda i, s: s + i, 7)) == 7
    upper = ops.convert_to_tensor(4)
    assert float(ops.fori_loop(0, upper, lambda i, s: s * 2.0, 1.0)) == 16
    gradient_check(
        lambda x: ops.fori_loop(0, 3, lambda i, s: ops.sin(s) * x, x), [rng.normal(size=3)]
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_the_loop(reverse):
    xs = {"a": rng.normal(size=(5, 2)), "b": rng.normal(size=(5,))}

    def step(carry, x):
        new = carry * 0.5 + x["a"] * x["b"]
        return new, (new, x["b"] * 2)

    carry, (states, doubled) = ops.scan(step, np.zeros(2), xs, reverse=reverse)
    state, expected = np.zeros(2), [None] * 5
    for i in range(5)[:: -1 if reverse else 1]:
        state = state * 0.5 + xs["a"][i] * xs["b"][i]
        expected[i] = state
    np.testing.assert_allclose(carry, state)
    np.testing.assert_allclose(states, expected)
    np.testing.assert_allclose(doubled, xs["b"] * 2)
    gradient_check(
        lambda c, a, b: ops.scan(step, c, {"a": a, "b": b}, reverse=reverse),
        [np.ones(2), xs["a"], xs["b"]],
    )


def test_scan_without_xs_or_results():
    carry, ys = ops.scan(lambda c, _: (c + 1, None), 0, length=4)
    assert int(carry) == 4
    assert ys is None
    carry, ys = ops.scan(lambda c, x: (c + x, c), 2.0, np.zeros((0,), "float32"))
    assert float(carry) == 2.0
    assert ys.shape == (0,)
    with pytest.raises(ShapeError, match="neither"):
        ops.scan(lambda c, _: (c, c), 0)
    with pytest.raises(ShapeError, match=r"\[2, 3\]"):
        ops.scan(lambda c, _: (c, c), 0, np.ones(2), length=3)
    with pytest.raises(ValueError, match=r"\(carry, y\)"):
        ops.scan(lambda c, _: c, 0, length=1)


def test_map():
    xs = rng.normal(size=(4, 3))
    y = ops.map(lambda x: {"square": x**2, "total": ops.sum(x)}, xs)
    np.testing.assert_allclose(y["square"], xs**2)
    np.testing.assert_allclose(y["total"], xs.sum(1))
    both = ops.vectorized_map(lambda ab: ab[0] @ ab[1], [xs, xs])
    np.testing.assert_allclose(both, (xs * xs).sum(1))
    np.testing.assert_allclose(ops.vectorized_map(lambda x: x + 1, xs), xs + 1)
    assert ops.vectorized_map(lambda x: x + 1, [1, 2]).tolist() == [2, 3]
    gradient_check(lambda x: ops.map(lambda row: ops.sin(row) * ops.sum(row), x), [xs])


@pytest.mark.parametrize(
    ("n", "reverse", "axis"), [*itertools.product(range(1, 10), [False, True], [0, 1, -1])]
)
def test_associative_scan(n, reverse, axis):
    shape = [2, 2, 2]
    shape[axis] = n
    a, b = rng.normal(size=shape), rng.normal(size=shape)

    def meet(left, right):  # x -> a x + b, one after the other: not commutative
        return [left[0] * right[0], left[1] * right[0] + right[1]]

    got = ops.associative_scan(meet, [a, b], reverse=reverse, axis=axis)
    rows = [np.moveaxis(q, axis, 0) for q in (a, b)]
    order = range(n)[:: -1 if reverse else 1]
    expected, state = [None] * n, None
    for i in order:
        here = [rows[0][i], rows[1][i]]
        if state is None:
            state = here
        else:
            state = meet(here, state) if reverse else meet(state, here)
        expected[i] = state
    for k in range(2):
        np.testing.assert_allclose(
            np.moveaxis(got[k].numpy(), axis, 0), [e[k] for e in expected], rtol=1e-10
        )


def test_associative_scan_gradient_and_errors():
    gradient_check(lambda x: ops.associative_scan(lambda a, b: a * b, x), [rng.normal(size=(5, 2))])
    assert ops.associative_scan(ops.add, np.ones((0, 2))).shape == (0, 2)
    with pytest.raises(ShapeError, match="one known size"):
        ops.associative_scan(lambda a, b: a, [np.ones(2), np.ones(3)])
    with pytest.raises(TypeError, match="function"):
        ops.associative_scan(3, np.ones(2))


KINDS = {
    "cond": lambda: ops.cond(True, lambda: 1, lambda: 2),
    "switch": lambda: ops.switch(0, [lambda: 1]),
    "while_loop": lambda: ops.while_loop(lambda i: i < 1, lambda i: (i + 1,), (0,)),
    "fori_loop": lambda: ops.fori_loop(0, 1, lambda i, s: s, 0),
    "scan": lambda: ops.scan(lambda c, x: (c, x), 0, np.ones(2)),
}
PARTS = {
    "cond": ["false_fn", "pred", "true_fn"],
    "switch": ["branches", "index", "operands"],
    "while_loop": ["body", "cond", "loop_vars", "maximum_iterations"],
    "fori_loop": ["body_fun", "init_val", "lower", "upper"],
    "scan": ["f", "init", "length", "reverse", "xs"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_may_take_over(kind):
    taking, declining = Asked(kind), Asked()
    with using_engine(taking):
        assert KINDS[kind]() == "taken over"
    assert taking.seen == [(kind, PARTS[kind])]
    with using_engine(declining):
        declined = KINDS[kind]()
    assert declining.seen[0][0] == kind
    assert str(declined) == str(KINDS[kind]())


@pytest.fixture
def without_numbers(monkeypatch):
    """Let every tensor pass for a value of a trace: what decides is unknown."""
    monkeypatch.setattr(control, "_known", lambda x: False)


@pytest.mark.usefixtures("without_numbers")
def test_unknown_conditions_select():
    for value in (-2.0, 3.0):
        slope = grad(lambda a: ops.cond(a > 0, lambda: a**2, lambda: a**3))(value)
        assert float(slope) == (2 * value if value > 0 else 3 * value**2)
    branches = [lambda a: a + 1, lambda a: a * 10, lambda a: a - 1]
    assert [float(ops.switch(i, branches, 2.0)) for i in (-1, 0, 1, 2, 5)] == [3, 3, 20, 1, 1]
    with pytest.raises(ShapeError, match=r"false_fn: the shape must stay \(2,\)"):
        ops.cond(True, lambda: np.ones(2), lambda: np.ones(3))
    with pytest.raises(DTypeError, match="branch 1: the dtype"):
        ops.switch(0, [lambda: ops.ones(2), lambda: ops.ones(2, "int32")])


@pytest.mark.usefixtures("without_numbers")
def test_unknown_counts_are_masked_or_refused():
    def loop(most):
        return ops.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s * 2.0), (0, 1.0), most)

    assert [float(loop(most)[1]) for most in (0, 2, 3, 7)] == [1.0, 4.0, 8.0, 8.0]
    with pytest.raises(TraceError, match="maximum_iterations"):
        loop(None)
    with pytest.raises(TraceError, match="maximum_iterations"):
        ops.fori_loop(0, 3, lambda i, s: s, 0)
