"""New values of all variables of an optimizer, in pieces that stay in the cache.

The kernels are those of the ops of the optimizer's formula, in the same order, so the bits are the
same as op by op. But they write repeatedly to a few pieces of memory, instead of a dozen passes
over arrays of megabytes with as many temporaries.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.eager.loop_update import UpdateLoop
from kerasish.backends.eager.update_program import UpdateProgram, program_of
from kerasish.graph.ir import Node, Value
from kerasish.ops.op import Op, UpdateFormula
from kerasish.ops.shapes import Spec

PIECE = 65536  # elements
FLOATS = (np.dtype("float32"), np.dtype("float64"))
Arrays = Sequence[Any]
Kernels = Callable[[Op], Callable[..., Any]]


def update_all(
    formula: UpdateFormula,
    elements: Sequence[Arrays],
    numbers: Arrays,
    decays: Sequence[float],
    kernels: Kernels,
) -> list[list[Any]] | None:
    """Return [new values, new slots, ...], None if the formula or a dtype is not supported.

    Args:
        formula: the update of one variable.
        elements: values, gradients, and each kind of slot.
        numbers: arrays without axes for all variables, or None.
        decays: for each variable its weight decay, 0 for none.
        kernels: op -> its kernel on NumPy arrays.
    """
    kinds = _kinds(elements, decays)
    if kinds is None:
        return None
    results: list[list[Any]] = []
    for (dtype, decay), members in kinds.items():
        everything = len(members) == len(elements[0])
        some = elements if everything else [[many[i] for i in members] for many in elements]
        chain = _chain_of(formula, [many[0] for many in some], numbers, bool(decay), kernels)
        if chain is None:
            return None
        known = chain.numbers(numbers, dtype.type(decay))
        new = chain.loop.run(some, known)
        if new is None:
            new = [[*many] for many in zip(*[chain.run(arrays, known) for arrays in zip(*some)])]
        if everything:
            return new
        results = results or [[None] * len(decays) for _ in new]
        for many, given in zip(results, new):
            for i, array in zip(members, given):
                many[i] = array
    return results


def _kinds(
    elements: Sequence[Arrays], decays: Sequence[float]
) -> dict[tuple[np.dtype, float], list[int]] | None:
    """Return the variables of each (dtype, decay) by number; None for an unsupported dtype."""
    single, first = FLOATS[0], decays[0]
    if decays.count(first) == len(decays) and _are(single, elements):
        return {(single, first): [*range(len(decays))]}
    kinds: dict[tuple[np.dtype, float], list[int]] = {}
    for i, (arrays, decay) in enumerate(zip(zip(*elements), decays)):
        dtype = arrays[0].dtype
        if dtype not in FLOATS or any(a.dtype != dtype for a in arrays):
            return None
        kinds.setdefault((dtype, decay), []).append(i)
    return kinds


def _are(dtype: np.dtype, elements: Sequence[Arrays]) -> bool:
    """Return whether all arrays have this dtype object: a fast check with false negatives."""
    for many in elements:
        for a in many:
            if a.dtype is not dtype:
                return False
    return True


def _chain_of(
    formula: UpdateFormula, arrays: Arrays, numbers: Arrays, decay: bool, kernels: Kernels
) -> Chain | None:
    given = [None if n is None else (n.dtype.char, n.ndim) for n in numbers]
    key = ("numpy", arrays[0].dtype.char, len(arrays), decay, *given)
    if key not in formula.compiled:
        specs = [None if n is None else Spec(n.shape, n.dtype.name) for n in numbers]
        program = program_of(formula, arrays[0].dtype.name, len(arrays), specs, decay)
        formula.compiled[key] = None if program is None else Chain(program, kernels)
    result: Chain | None = formula.compiled[key]
    return result


class UpdateCall(NamedTuple):
    """One kernel: `kernel(*registers, out=register)`, by their numbers."""

    kernel: Callable[..., Any]
    inputs: tuple[int, ...]
    out: int


class Chain:
    """A program as calls of kernels on registers.

    The registers hold the pieces of the inputs, those of the outputs, then numbers, then scratch
    memory. A result that is no output is in scratch memory, or in the place of a later output.

    Args:
        program: the computation.
        kernels: op -> its kernel on NumPy arrays.

    Attributes:
        scratch: the number of registers in scratch memory.
        loop: the program as a compiled loop over many variables.
    """

    def __init__(self, program: UpdateProgram, kernels: Kernels) -> None:
        self._program, self._kernels = program, kernels
        known = dict.fromkeys(v for node in program.each for v in node.inputs)
        results = {node.out for node in program.each}
        self._inputs, self._outputs = len(program.elements), len(program.outputs)
        self._known = [v for v in known if v not in results and v not in program.elements]
        places = [*program.elements, *[None] * self._outputs, *self._known]
        self._registers = {v: i for i, v in enumerate(places) if v is not None}
        self._first = len(places)  # of the scratch registers
        self.scratch = 0
        self._calls = self._planned()
        self._plan_numbers()
        self.loop = UpdateLoop(program, self._known)

    def _planned(self) -> list[UpdateCall]:
        program = self._program
        calls: list[UpdateCall] = []
        last = {v: i for i, node in enumerate(program.each) for v in node.inputs}
        finals: dict[Value, int] = {}  # value -> its place among the outputs
        for place, v in enumerate(program.outputs):
            finals.setdefault(v, place)
        makers = {node.out: i for i, node in enumerate(program.each)}
        # Register -> the node after which it is free; an output is free until its own node.
        free = {self._inputs + place: -1 for place in finals.values()}
        written = {self._inputs + place: makers.get(v, -1) for v, place in finals.items()}
        for i, node in enumerate(program.each):
            if node.out in finals:
                out = self._inputs + finals[node.out]
            else:
                end = last[node.out]
                # Element by element: a result may use the memory of an input of its node.
                fits = [r for r in free if free[r] <= i and written.get(r, end) >= end]
                out = fits[0] if fits else self._first + self.scratch
                self.scratch += not fits
                free[out] = end
            calls.append(_call(self._kernels(_op(node)), node, self._registers, out))
            self._registers[node.out] = out
        for place, v in enumerate(program.outputs):
            if self._registers[v] != self._inputs + place:  # an input, or a repeated output
                calls.append(UpdateCall(np.positive, (self._registers[v],), self._inputs + place))
        return calls

    def numbers(self, given: Arrays, decay: Any) -> list[Any]:
        """Return the numbers that the calls read, computed with the kernels of the ops."""
        program = self._program
        r = [*self._constants, *[n for n in given if n is not None]]
        r += [v.value.value for v in program.variables]
        if program.decay is not None:
            r.append(np.asarray(decay))
        for kernel, places, attrs, count in self._once:
            out = kernel(*[r[i] for i in places], **attrs)
            if count == 1:
                r.append(out)
            else:
                r.extend(out)
        return [r[i] for i in self._reads]

    def _plan_numbers(self) -> None:
        """Plan the computation of `numbers`: calls on a list that grows by their results."""
        program = self._program
        order = [*program.constants, *program.numbers]
        order += [] if program.decay is None else [program.decay]
        self._constants = list(program.constants.values())
        places, count = {v: i for i, v in enumerate(order)}, len(order)
        self._once: list[tuple[Callable[..., Any], list[int], dict[str, Any], int]] = []
        for node in program.once:
            kernel = self._kernels(_op(node))
            inputs = [places[v] for v in node.inputs]
            plain = getattr(kernel, "plain", kernel)  # NumPy's function: these are numbers
            self._once.append((plain, inputs, node.attrs, len(node.outputs)))
            places.update(zip(node.outputs, itertools.count(count)))
            count += len(node.outputs)
        self._reads = [places[v] for v in self._known]

    def run(self, arrays: Arrays, numbers: list[Any]) -> list[Any]:
        """Return the new value and slots of one variable."""
        given = [np.ascontiguousarray(a).reshape(-1) for a in arrays]
        size = given[0].size
        results = [np.empty(size, given[0].dtype) for _ in range(self._outputs)]
        piece = min(PIECE, max(size, 1))
        scratch = [np.empty(piece, given[0].dtype) for _ in range(self.scratch)]
        for start in range(0, size, PIECE):
            end = min(start + PIECE, size)
            r = [a[start:end] for a in (*given, *results)]
            r += numbers
            r += [s[: end - start] for s in scratch]
            for kernel, places, out in self._calls:
                kernel(*[r[i] for i in places], out=r[out])
        return [m.reshape(arrays[0].shape) for m in results]


def _op(node: Node) -> Op:
    return node.op  # type: ignore[return-value]


def _call(
    kernel: Callable[..., Any], node: Node, registers: dict[Value, int], out: int
) -> UpdateCall:
    inputs = tuple(registers[v] for v in node.inputs)
    kernel = getattr(kernel, "plain", kernel)  # NumPy's function, which takes `out`
    if isinstance(kernel, np.ufunc):
        return UpdateCall(kernel, inputs, out)

    def call(*arrays: Any, out: Any) -> None:
        np.copyto(out, kernel(*arrays, **node.attrs))

    return UpdateCall(call, inputs, out)
