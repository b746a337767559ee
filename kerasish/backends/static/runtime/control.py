"""Control flow between native stretches: Python decides; a branch or body is one native call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.onednn.library import slow_halves
from kerasish.backends.static.lowering.compiled_plan import CompiledPlan
from kerasish.backends.static.lowering.units import Unit, aligned_array
from kerasish.backends.static.runtime.kept import InputBuffer
from kerasish.backends.static.runtime.program import Executable
from kerasish.graph.control import ControlOp, graphs_of
from kerasish.graph.ir import Graph, GraphOp
from kerasish.graph.passes import gather, optimize
from kerasish.graph.passes.widen import widen_halves
from kerasish.ops.op import Op
from kerasish.typing import Structure

KernelOf = Callable[[Any], Callable[..., Any]]


class Settings(NamedTuple):
    """The settings for compiling graphs inside control nodes: those of the enclosing graph.

    Attributes:
        level: the optimization level: "fast_run", "fast_compile" or "none".
        watch: called as `watch(name, before, after)` for each pass.
        report: called with the units of each graph.
    """

    level: str
    watch: Callable[[str, Graph, Graph], None] | None = None
    report: Callable[[Sequence[Unit]], None] | None = None


class ControlRunner:
    """A graph inside a control node as a function of arrays, compiled when it is first called.

    Args:
        graph: as traced.
        kernel_of: op -> NumPy kernel, for ops without native code.
        settings: those of the enclosing graph.
    """

    def __init__(self, graph: Graph, kernel_of: KernelOf, settings: Settings) -> None:
        self._graph, self._kernel_of, self._settings = graph, kernel_of, settings
        self._executable: Executable | None = None
        self._inputs: list[Any] = []
        self._last: Sequence[Any] = ()
        self.forget()

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the graph's outputs."""
        executable = self._executable
        if executable is None:
            executable = self._compile()
        with executable.lock:
            for buffer, old, new in zip(self._inputs, self._last, inputs):
                if new is not old:
                    np.copyto(buffer.array, new)
                    buffer.writes += 1
            self._last = inputs
            executable.run()
            return [executable.output(v) for v in executable.compiled_plan.graph.outputs]

    def _compile(self) -> Executable:
        level, watch, report = self._settings
        graph = optimize(widen_halves(self._graph, slow_halves()), level, watch)
        if level == "fast_run":
            graph = gather(graph)
        # Values captured by a loop are the same in every iteration: inputs are outside the arena,
        # as variables do, and need no copy if they are unchanged.
        compiled_plan = CompiledPlan(graph, graph.inputs, (), self._kernel_of)
        if report is not None:
            report(compiled_plan.units)
        self._inputs = [InputBuffer(aligned_array(v.shape, v.dtype)) for v in graph.inputs]
        self._executable = Executable(compiled_plan, dict(zip(graph.inputs, self._inputs)))
        return self._executable

    def forget(self) -> None:
        """Copy all inputs again in the next call: the arrays may have changed since."""
        self._last = [None] * len(self._graph.inputs)


class ControlKernel:
    """The kernel of one control node; holds its compiled graphs."""

    def __init__(self, op: ControlOp, kernel_of: KernelOf, settings: Settings) -> None:
        self._op, self._kernel_of, self._settings = op, kernel_of, settings
        self._runners: dict[str, list[ControlRunner]] | None = None

    def __call__(self, *inputs: Any, **attrs: Any) -> Structure:
        """Compute the node on arrays."""
        runners = self._runners
        if runners is None:
            runners = self._runners = {
                name: [ControlRunner(graph, self._kernel_of, self._settings) for graph in graphs]
                for name, graphs in graphs_of(attrs).items()
            }
        for several in runners.values():
            for runner in several:
                runner.forget()
        return self._op.run(runners, *inputs, **attrs)


def kernels(kernel_of: KernelOf, settings: Settings) -> KernelOf:
    """Return `kernel_of` extended by the kernels of control nodes.

    Args:
        kernel_of: op -> NumPy kernel.
        settings: how branches and loop bodies are compiled.
    """

    def find(op: ControlOp | GraphOp | Op) -> Callable[..., Any]:
        return ControlKernel(op, find, settings) if isinstance(op, ControlOp) else kernel_of(op)

    return find
