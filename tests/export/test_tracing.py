"""Control flow in native libraries: known counts and branches are written without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_libraries import Library, needs_linker

import kerasish
from kerasish import layers, ops
from kerasish.export.tracing import UnrollingTracer
from kerasish.graph.trace import trace_by
from kerasish.ops.shapes import Spec


def counted(x: Any) -> Any:
    """A while_loop whose counts are integers, and one whose count is a float."""
    _, y = ops.while_loop(lambda i, y: i < 20, lambda i, y: (i + 3, y * 1.5 + i), (0, x))
    y = ops.while_loop(lambda s, y: s > 0.2, lambda s, y: (s / 2, ops.tanh(y + s)), (1.0, y))[1]
    return ops.while_loop(lambda y: True, lambda y: y + 1, y, maximum_iterations=11)


def summed(x: Any) -> Any:
    return ops.fori_loop(2, 15, lambda i, y: y + ops.cast(i, "float32") * x, x)


def scanned(x: Any) -> Any:
    """A scan over 12 parts from the last to the first."""
    parts = ops.reshape(ops.arange(12, dtype="float32"), (12, 1, 1))

    def step(total: Any, part: Any) -> tuple[Any, Any]:
        total = ops.tanh(total + part * x)
        return total, total[:, :2]

    total, rows = ops.scan(step, x, parts, reverse=True)
    return ops.concatenate([total, ops.reshape(ops.moveaxis(rows, 0, 1), (-1, 24))], axis=-1)


class Chosen(layers.Layer):
    """Branches that a weight chooses, which no trace knows."""

    def __init__(self, gate: float) -> None:
        super().__init__()
        self.gate = self.add_weight(
            shape=(), initializer=lambda shape, dtype: ops.full(shape, gate)
        )

    def call(self, x: Any) -> Any:
        y = ops.cond(self.gate > 0.5, lambda: x * 2.0, lambda: ops.log(x))
        parts = [lambda t: t, lambda t: t + 1.0, lambda t: t - 5.0]
        return ops.switch(ops.cast(self.gate, "int32"), parts, y)


class Cell(layers.Layer):
    """A recurrent cell of the user's."""

    state_size = output_size = 4

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight((shape[-1] + 4, 4), name="kernel")

    def call(self, x: Any, states: Any) -> Any:
        h = ops.tanh(ops.matmul(ops.concatenate([x, states[0]], axis=-1), self.kernel))
        return h, [h]


FUNCTIONS: dict[str, Callable[[Any], Any]] = {"counted": counted, "summed": summed}
FUNCTIONS |= {"scanned": scanned, "chosen": Chosen(2.0), "other": Chosen(0.0)}


@needs_linker
@pytest.mark.parametrize("name", FUNCTIONS)
def test_equal_to_the_model(name: str, tmp_path: Path) -> None:
    x = kerasish.Input((3,))
    model = kerasish.Model(x, layers.Lambda(lambda t: FUNCTIONS[name](t))(x))
    model.export(tmp_path / "m", format="native", verbose=False)
    given = np.random.default_rng(0).uniform(-1, 1, (5, 3)).astype("float32")
    expected = model.predict(given, verbose=0)
    found = Library(tmp_path / "m.so", "m").predict(given, expected.shape[1])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert np.isnan(expected).any() == (name == "other")  # the logarithm of negative numbers


@needs_linker
def test_a_cell_of_the_users_over_many_steps(tmp_path: Path) -> None:
    x = kerasish.Input((30, 3))
    model = kerasish.Model(x, layers.RNN(Cell())(x))
    model.export(tmp_path / "m", format="native", verbose=False)
    given = np.random.default_rng(0).normal(size=(3, 30, 3)).astype("float32")
    found = Library(tmp_path / "m.so", "m").predict(given, 4)
    np.testing.assert_allclose(found, model.predict(given, verbose=0), rtol=0, atol=1e-6)


def kinds(function: Callable[[Any], Any]) -> set[str]:
    traced = trace_by(UnrollingTracer(), function, Spec((2, 3), "float32"))
    return {node.op.name for node in traced.graph.nodes} & {"loop", "scan_along", "branch"}


def test_long_and_unknown_loops_are_nodes() -> None:
    most = UnrollingTracer.MOST
    assert kinds(lambda x: ops.fori_loop(0, most, lambda i, y: y + i, x)) == set()
    assert kinds(lambda x: ops.fori_loop(0, most + 1, lambda i, y: y + i, x)) == {"scan_along"}
    assert kinds(lambda x: ops.scan(lambda c, _: (c + 1, c), x, length=most + 1)[0]) == {
        "scan_along"
    }
    for top in (most, most + 1):
        found = kinds(lambda x, n=top: ops.while_loop(lambda i: i < n, lambda i: i + 1, 0) * x)
        assert found == ({"loop"} if top > most else set())
    assert kinds(lambda x: ops.while_loop(lambda y: ops.sum(y) < 9, lambda y: y * 2, x)) == {"loop"}
    # After the first repetition the condition is known no longer.
    grown = trace_by(
        UnrollingTracer(),
        lambda x: ops.while_loop(
            lambda s, y: s < 9.0, lambda s, y: (ops.sum(y), y * 2), (0.0, x), maximum_iterations=4
        )[1],
        Spec((2, 3), "float32"),
    )
    assert [n.attrs["most"] for n in grown.graph.nodes if n.op.name == "loop"] == [3]
