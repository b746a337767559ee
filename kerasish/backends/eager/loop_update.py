"""New values of many variables of an optimizer by one compiled loop, one segment each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from kerasish.backends.eager.memory import Turns, empty
from kerasish.backends.eager.native_loops import FLOAT, CompiledLoop
from kerasish.backends.eager.update_program import UpdateProgram
from kerasish.backends.loops import LoopBuilder, address_of
from kerasish.graph.ir import Value
from kerasish.typing import Array

LEAST = 1 << 6  # elements of all variables together
LARGE = 1 << 12  # elements for which a loop is compiled immediately; for fewer, later
_PATIENCE = 20  # updates of few elements that NumPy computes first: a short run compiles nothing
_SMALL = 1 << 16  # elements up to which the results' memory and its addresses are kept


class _Layout:
    """The common data of updates of variables of given shapes.

    Args:
        shapes: of the variables.
        outputs: the number of results of each.

    Attributes:
        total: the elements of all variables.
        filled: the variables that have elements, by number; None: all.
        sizes: the numbers of their elements.
        turns: the memory of the results of small variables; None for large ones.
    """

    def __init__(self, shapes: tuple[tuple[int, ...], ...], outputs: int) -> None:
        sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
        self.shapes, self.outputs, self.total = shapes, outputs, sum(sizes)
        self.filled = [i for i, size in enumerate(sizes) if size] if 0 in sizes else None
        self.sizes = tuple(size for size in sizes if size)
        self.turns = Turns(shapes * outputs, FLOAT) if self.total <= _SMALL else None

    def results(self) -> list[Array]:
        """Return new arrays for the results of large variables."""
        return [empty(shape, FLOAT) for shape in self.shapes * self.outputs]


class UpdateLoop:
    """A program as a loop over all variables.

    Args:
        program: the computation.
        known: the program's numbers, in the order in which `run` gets them.
    """

    def __init__(self, program: UpdateProgram, known: Sequence[Value]) -> None:
        self._program, self._known = program, known
        single = all(v.dtype == "float32" for v in (*program.elements, *known))
        exact = all(node.op.exact for node in program.each)
        self._loop = CompiledLoop(self._describe, segments=True) if single and exact else None
        self._runs = 0  # of few elements
        self._outputs = len(program.outputs)
        self._layout = lru_cache(maxsize=16)(_Layout)

    def _describe(self, k: LoopBuilder) -> None:
        symbols: dict[Value, Any] = {v: k.input("float32") for v in self._program.elements}
        symbols.update((v, k.input("float32", "scalar")) for v in self._known)
        for node in self._program.each:
            symbols[node.out] = k.op(node.op.name, *[symbols[v] for v in node.inputs])
        for v in self._program.outputs:
            k.output(symbols[v])

    def run(
        self, elements: Sequence[Sequence[Array]], numbers: Sequence[Any]
    ) -> list[list[Array]] | None:
        """Return [new values, new slots, ...]; None if no loop computes them.

        Args:
            elements: values, gradients and each kind of slot, all float32.
            numbers: the program's numbers.
        """
        if self._loop is None:
            return None
        layout = self._layout(tuple([x.shape for x in elements[0]]), self._outputs)
        if layout.total < LEAST:
            return None
        if layout.total < LARGE and self._runs < _PATIENCE:
            self._runs += 1
            return None
        loop = self._loop.find()
        if loop is None:
            return None
        turns, count = layout.turns, len(layout.shapes)
        results = layout.results() if turns is None else turns.take()
        new = [results[i : i + count] for i in range(0, len(results), count)]
        known: dict[int, int] = {} if turns is None else turns.addresses
        held: list[Array] = []  # copies, until the loop has run
        operands: list[list[Any]] = []
        for many in (*elements, *new):
            many = many if layout.filled is None else [many[i] for i in layout.filled]
            addresses: list[Any] = list(map(known.get, map(id, many)))
            for i, address in enumerate(addresses):
                if address is None:
                    held.append(_in_order(many[i]))
                    addresses[i] = address_of(held[-1])
            operands.append(addresses)
        scalars = np.array(numbers, FLOAT)
        first = address_of(scalars) if numbers else 0
        shared = [first + FLOAT.itemsize * n for n in range(len(numbers))]
        loop.over_segments(layout.sizes, operands, shared)
        if turns is not None:
            turns.give_back(results)
        return new


def _in_order(x: Array) -> Array:
    """Return x as an array in C order."""
    fits = type(x) is np.ndarray and x.flags.c_contiguous
    return x if fits else np.ascontiguousarray(x)
