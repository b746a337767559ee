"""Loops over rows with few columns: narrow vectors compute the bits of wide ones."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kerasish import ops
from kerasish.backends.static.codegen.plan import plan_loops
from kerasish.backends.static.engine import COMPILED_PLANS, Static
from kerasish.backends.static.lowering import loops
from kerasish.backends.static.lowering.loops import LoopUnit
from kerasish.backends.static.machine.machine_code import host_target

ROWS = 300


def softmax(x, v):
    return ops.softmax(ops.add(x, v), axis=-1), ops.argmax(x, axis=-1), ops.min(x, axis=-1)


def normalization(x, v):
    centered = ops.subtract(x, ops.mean(x, axis=0))
    return ops.multiply(centered, v), ops.mean(ops.square(centered), axis=0), ops.sum(centered)


def relu_gradient(x, v):
    positive = ops.cast(ops.greater(x, 0), x.dtype)
    return ops.multiply(ops.multiply(x, positive), v), ops.cast(positive, "int32")


@pytest.fixture(autouse=True)
def no_plans():
    COMPILED_PLANS.clear()
    yield
    COMPILED_PLANS.clear()


def computed(monkeypatch, function, x, v, least):
    monkeypatch.setattr(loops, "OWN_CODE_FOR_COLUMNS", least)
    COMPILED_PLANS.clear()
    step = Static().compile(function)
    results = [np.asarray(r) for r in step(*map(ops.convert_to_tensor, (x, v)))]
    units = [u for e in step.executables() for u in e.units if isinstance(u, LoopUnit)]
    return results, [u for u in units if u.axes.columns == x.shape[1]]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("columns", [2, 3, 4, 5, 8, 11, 16, 17, 32])
@pytest.mark.parametrize("function", [softmax, normalization, relu_gradient])
def test_the_bits_are_those_of_wide_vectors(monkeypatch, function, columns, dtype):
    rng = np.random.default_rng(columns)
    x, v = rng.normal(size=(ROWS, columns)), rng.normal(size=columns)
    x[5, 1], x[6, 0], x[7, 1] = np.nan, np.inf, -0.0
    x, v = (np.asarray(ops.cast(a.astype("float32"), dtype)) for a in (x, v))
    narrow, units = computed(monkeypatch, function, x, v, 0)
    wide, _ = computed(monkeypatch, function, x, v, 1 << 60)
    assert units
    for unit in units:
        widest = plan_loops(dataclasses.replace(unit.kernel, lanes=0)).lanes(host_target())
        lanes = plan_loops(unit.kernel).lanes(host_target())
        assert lanes == min(widest, max(4, 1 << (columns - 1).bit_length()))
    for a, b in zip(narrow, wide, strict=True):
        a, b = (np.nan_to_num(r.astype("float64"), nan=-1e300) for r in (a, b))
        assert a.tobytes() == b.tobytes()  # NaN may have another sign


def test_small_loops_and_wide_rows_share_code(monkeypatch):
    x, v = np.ones((ROWS, 8), "float32"), np.ones(8, "float32")
    _, small = computed(monkeypatch, relu_gradient, x, v, ROWS * 8 + 1)
    assert {u.kernel.lanes for u in small} == {0}
    _, wide = computed(
        monkeypatch, relu_gradient, np.ones((ROWS, 33), "float32"), np.ones(33, "float32"), 0
    )
    assert {u.kernel.lanes for u in wide} == {0}
