"""New values of many variables of an optimizer by one compiled loop, a segment for each one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.backends.eager.memory import empty
from kerasish.backends.eager.native_loops import FLOAT, Loop
from kerasish.backends.eager.update_program import UpdateProgram
from kerasish.backends.loops import LoopBuilder
from kerasish.graph.ir import Value
from kerasish.typing import Array

LEAST = 1 << 6  # elements of all variables together
LARGE = 1 << 12  # elements for which a loop is compiled at once; for fewer after some updates
_PATIENCE = 20  # updates of few elements that NumPy computes first: a short run compiles nothing
# Ops whose results have the same bits in a loop and in NumPy.
_EXACT = frozenset(
    "add subtract multiply divide negative sqrt square absolute maximum minimum reciprocal".split()
)


class UpdateLoop:
    """A program as a loop over all variables.

    Args:
        program: what is computed.
        known: the program's numbers, in the order in which `run` gets them.
    """

    def __init__(self, program: UpdateProgram, known: Sequence[Value]) -> None:
        self._program, self._known = program, known
        single = all(v.dtype == "float32" for v in (*program.elements, *known))
        exact = all(node.op.name in _EXACT for node in program.each)
        self._loop = Loop(self._describe, segments=True) if single and exact else None
        self._runs = 0  # of few elements

    def _describe(self, k: LoopBuilder) -> None:
        symbols: dict[Value, Any] = {v: k.input("float32") for v in self._program.elements}
        symbols.update((v, k.input("float32", "scalar")) for v in self._known)
        for node in self._program.each:
            symbols[node.out] = k.op(node.op.name, *[symbols[v] for v in node.inputs])
        for v in self._program.outputs:
            k.output(symbols[v])

    def run(self, variables: Sequence[Sequence[Array]], numbers: Sequence[Any]) -> Any:
        """Return for each variable its new value and slots; None where no loop computes them.

        Args:
            variables: for each its value, gradient and slots, all float32.
            numbers: the program's numbers.
        """
        total = sum(some[0].size for some in variables)
        if self._loop is None or total < LEAST:
            return None
        if total < LARGE and self._runs < _PATIENCE:
            self._runs += 1
            return None
        loop = self._loop.find()
        if loop is None:
            return None
        scalars = [np.asarray(n) for n in numbers]
        count = len(self._program.outputs)
        results = [[empty(some[0].shape, FLOAT) for _ in range(count)] for some in variables]
        segments = [
            [*map(_in_order, some), *new] for some, new in zip(variables, results) if some[0].size
        ]
        loop.over_segments(segments, scalars)
        return results


def _in_order(x: Array) -> Array:
    """Return x as an array in C order."""
    fits = type(x) is np.ndarray and x.flags.c_contiguous
    return x if fits else np.ascontiguousarray(x)
