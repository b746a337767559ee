"""Runs a step's graph with NumPy, node by node, where no native code can be generated."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.static.codegen.driver import UnmetConditionError
from kerasish.graph.ir import Graph, Value
from kerasish.graph.plan import Plan
from kerasish.ops import dtypes
from kerasish.typing import Array


class Unlowered(NamedTuple):
    """What replaces a compiled plan: a graph that is not fused, and its updates."""

    graph: Graph
    updates: list[tuple[Value, Value]]


class Interpreted:
    """A graph that NumPy kernels run, in place of a `program.Executable`.

    Args:
        graph: not fused.
        buffers: graph input -> the buffer of that variable.
        updates: (graph input, graph output): the output is the new value of the variable.
        kernel_of: op -> its NumPy kernel.
        conditions: (graph output, array): the output must be equal to the array, or else the run
            ends before any variable has changed.
    """

    is_native = False
    parts: tuple[Any, ...] = ()

    def __init__(
        self,
        graph: Graph,
        buffers: dict[Value, Any],
        updates: Sequence[tuple[Value, Value]],
        kernel_of: Callable[[Any], Callable[..., Any]],
        conditions: Sequence[tuple[Value, Array]] = (),
    ) -> None:
        self._conditions = list(conditions)
        self.graph, self._buffers, self._updates = graph, buffers, list(updates)
        self._steps = [(node, kernel_of(node.op)) for node in graph.nodes]
        self._free = [v for v in graph.inputs if v not in buffers]
        self.inputs = [np.empty(v.shape, dtypes.array_dtype(v.dtype)) for v in self._free]
        self._results: dict[Value, Any] = {}
        size = sum(v.size * dtypes.array_dtype(v.dtype).itemsize for v in self._free)
        self.plan = Plan({}, size, size)

    def run(self) -> None:
        """Run once on the content of `inputs` and the variables' buffers."""
        values: dict[Value, Any] = {**self.graph.constants, **self._buffers}
        values.update(zip(self._free, self.inputs))
        with np.errstate(all="ignore"):
            for node, kernel in self._steps:
                out = kernel(*(values[v] for v in node.inputs), **node.attrs)
                values.update(zip(node.outputs, (out,) if node.op.outputs == 1 else out))
        self._results = {v: np.array(values[v]) for v in self.graph.outputs}
        for number, (value, answer) in enumerate(self._conditions):
            if self._results[value].tobytes() != answer.tobytes():
                raise UnmetConditionError(number)
        for old, new in self._updates:
            np.copyto(self._buffers[old], self._results[new])

    def run_timed(self) -> list[tuple[str, None, float]]:
        """Run once; return the name and the seconds of the whole run."""
        start = time.perf_counter()
        self.run()
        return [("NumPy", None, time.perf_counter() - start)]

    def output(self, v: Value) -> Any:
        """Return an output of the last run."""
        return self._results[v]

    def describe(self) -> str:
        """Return the ops in order."""
        return "\n".join(f"  numpy  {node!r}" for node, _ in self._steps)
