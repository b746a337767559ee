"""Recurrent layers without a library: a loop over time steps of a product and a fused loop.

The product of a time step has the inputs of that step as an operand of its epilogue. The gates,
which only a gradient reads, stay in scratch memory of one time step. With one row, the product of
the inputs may be computed in the time steps, too (see `codegen.interleaved`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kerasish.backends.static.codegen import arguments, direct, interleaved
from kerasish.backends.static.codegen.arguments import Operand
from kerasish.backends.static.codegen.description import Kernel, KernelBuilder, Symbol
from kerasish.backends.static.codegen.driver import load_runtime
from kerasish.backends.static.lowering.recurrent import GATES, SIZE
from kerasish.backends.static.lowering.standalone_direct import DirectUnit
from kerasish.backends.static.lowering.standalone_units import (
    Repeat,
    StandaloneStep,
    StandaloneUnit,
)
from kerasish.backends.static.lowering.units import Locate, Unit
from kerasish.graph.ir import Node, Value
from kerasish.ops.op import REGISTRY

_X = 3  # word of a product's argument block


class StandaloneRecurrentUnit(StandaloneUnit):
    """`lstm`, `gru` or `simple_rnn` over a sequence.

    Args:
        node: the op; nothing reads the gates.
        weights: the recurrent kernel.

    Attributes:
        packed: the value of the packed kernel.
        array: the packed kernel.
        inputs_unit: the product of the inputs that the time steps compute, or None.
    """

    def __init__(self, node: Node, weights: Any) -> None:
        self.inputs_unit: DirectUnit | None = None
        self.kind = node.op.name
        self.steps_count, self.n, self.units = node.outputs[0].shape
        self.width = GATES[self.kind] * self.units
        masked = len(node.inputs) == len(REGISTRY[self.kind].input_names)
        self.mask = node.inputs[-1] if masked else None
        self.array = direct.pack_weights(weights)
        self.packed = Value(self.array.shape, "float32")
        inputs = list(node.inputs)
        self.x, inputs[1] = inputs[0], self.packed
        rest = inputs[2 : len(inputs) - masked]
        self.bias = rest.pop(0) if self.kind == "gru" else None
        # The states that the first time step reads, each with the sequence it is written to.
        self.carried = list(zip(rest, node.outputs))
        super().__init__(self.kind, inputs, [sequence for _, sequence in self.carried])
        self.product = direct.product(self._epilogue(), self.n, self.units, self.width, self.units)
        self.cell = _CELLS[self.kind](masked)
        self.gates_bytes = -(-SIZE * self.n * self.width // 64) * 64
        self.scratch = self.gates_bytes + arguments.scratch_size(self.cell, self.units)

    def kernels(self) -> list[Any]:
        """Return the products and the cell."""
        if self.inputs_unit is None:
            return [self.product, self.cell]
        unit = self.inputs_unit
        return [_first_rows(unit).structure, self._interleaved(unit), self.cell]

    def join(self, product: DirectUnit) -> None:
        """Let the time steps compute their inputs, which nothing else reads."""
        self.inputs_unit = product
        reads = dict.fromkeys([*product.reads, *self.reads])
        for v in product.writes:
            reads.pop(v, None)
        self.reads, self.writes = tuple(reads), (*product.writes, *self.writes)

    def steps(self, locate: Locate) -> Iterator[StandaloneStep | Repeat]:
        """Yield the first time step, and the loop over the others."""
        if self.inputs_unit is not None:
            yield from _first_rows(self.inputs_unit).steps(locate)
        before = [locate(first).address for first, _ in self.carried]
        yield from self._time_step(locate, before, 0, False)
        if self.steps_count > 1:
            before = [locate(sequence).address for _, sequence in self.carried]
            body = self._time_step(locate, before, 1, True)
            yield Repeat(self.steps_count - 1, tuple(body), self.name)

    def _epilogue(self) -> Kernel:
        """Return what follows the product: plus the bias (GRU), or plus the inputs."""
        k = KernelBuilder()
        level = "element" if self.bias is None else "column"
        k.output(k.input("float32") + k.input("float32", level=level))
        return k.build()

    def _time_step(
        self, locate: Locate, before: Sequence[int], t: int, moves: bool
    ) -> list[StandaloneStep]:
        """Return the product and the cell of a time step.

        Args:
            locate: finds values.
            before: the addresses of the states before the step.
            t: its number.
            moves: whether later time steps read and write after the memory of this one.
        """
        scratch = locate(("scratch", self)).address
        row = SIZE * self.n
        state, inputs = row * self.units, locate(self.x).address + row * self.width * t
        if self.bias is None:
            added, by = (inputs, self.width), row * self.width
        else:
            added, by = (locate(self.bias).address, 0), 0
        first = self._sums(locate, before[0], t, [added, (scratch, self.width)])
        if self.inputs_unit is None:
            going = [(_X, state), (direct.OPERANDS, by)]
        else:
            going = [(interleaved.TIME, 1), (interleaved.STATE, state), (interleaved.OPERANDS, by)]
        first = first._replace(moves=tuple(going) if moves else ())
        # The cell: (address, row stride, bytes to the next time step) of each operand.
        spots = [(scratch, self.width, 0, g) for g in range(GATES[self.kind])]
        if self.bias is not None:
            spots = [(inputs, self.width, row * self.width, g) for g in range(3)] + spots
        places = [(at + SIZE * self.units * g, stride, move) for at, stride, move, g in spots]
        places += [(at, self.units, state) for at in reversed(before)]
        if self.mask is not None:
            places.append((locate(self.mask).address + row * t, 1, row))
        for _, sequence in reversed(self.carried):
            places.append((locate(sequence).address + state * t, self.units, state))
        return [first, self._cell(places, scratch + self.gates_bytes, moves)]

    def _sums(
        self, locate: Locate, state: int, t: int, operands: Sequence[tuple[int, int]]
    ) -> StandaloneStep:
        """Return the product of a time step, with a part of later inputs where these are joined.

        Args:
            locate: finds values.
            state: the address of the state before the step.
            t: its number.
            operands: (address, row stride) of the operands of the product's epilogue.
        """
        table, weights = load_runtime().table, locate(self.packed).address
        unit = self.inputs_unit
        if unit is None:
            kernel: Any = self.product
            words = direct.pack(
                kernel, table=table, n=1, x=state, weights=weights, operands=operands
            )
        else:
            kernel = self._interleaved(unit)
            words = interleaved.pack(
                kernel, table=table, time=t, state=state, weights=weights,
                x=locate(unit.x).address, input_weights=locate(unit.weights).address,
                operands=[*operands, *((locate(o.value).address, o.stride) for o in unit.operands)],
            )  # fmt: skip
        return StandaloneStep(kernel, tuple(int(w) for w in words), name=self.name)

    def _interleaved(self, unit: DirectUnit) -> interleaved.Interleaved:
        return interleaved.Interleaved(self.product, unit.structure)

    def _cell(
        self, places: list[tuple[int, int, int]], scratch: int, moves: bool
    ) -> StandaloneStep:
        operands = [Operand(at, (stride,)) for at, stride, _ in places]
        words = arguments.pack(
            self.cell, operands, table=load_runtime().table, rows=self.n, columns=self.units,
            scratch=scratch,
        )  # fmt: skip
        going = [
            (arguments.operand_word(self.cell, i), move)
            for i, (_, _, move) in enumerate(places)
            if moves and move
        ]
        return StandaloneStep(self.cell, tuple(int(w) for w in words), 1, tuple(going), self.name)


def _first_rows(unit: DirectUnit) -> DirectUnit:
    """Return the product of the inputs that are computed before the first time step."""
    d = unit.structure
    rows = interleaved.rows_before(d.result[0])
    structure = direct.product(d.epilogue, rows, d.channels, d.filters, d.pixel)
    return DirectUnit(unit.name, structure, unit.x, 1, unit.weights, unit.operands)


def join_products(
    units: Sequence[Unit], root: Callable[[Value], Value], kept: set[Value]
) -> list[Unit]:
    """Join products of inputs to the recurrences that are their only readers; return the units.

    Args:
        units: in order.
        root: value -> the value whose memory it uses.
        kept: roots of the values that are results of the graph.
    """
    results: list[Unit] = []
    for unit in units:
        if isinstance(unit, StandaloneRecurrentUnit):
            x = root(unit.x)
            readers = [u for u in units if x in map(root, u.reads)]
            maker = next((u for u in results if x in map(root, u.writes)), None)
            if isinstance(maker, DirectUnit) and readers == [unit] and x not in kept:
                between = results[results.index(maker) + 1 :]
                written = {root(w) for other in between for w in other.writes}
                if _joins(unit, maker) and written.isdisjoint(map(root, maker.reads)):
                    results.remove(maker)
                    unit.join(maker)
        results.append(unit)
    return results


def _joins(unit: StandaloneRecurrentUnit, product: DirectUnit) -> bool:
    """Return whether the time steps of a recurrence can compute its inputs, and gain by it."""
    d = product.structure
    rows = (unit.steps_count,)
    same = d.result == d.space == rows and d.kernel == d.strides == (1,) and not d.lanewise
    alone = product.groups == product.examples == unit.n == 1 and len(product.writes) == 1
    wide = d.filters == unit.width and unit.width % interleaved.COLUMNS == 0
    return same and alone and wide and unit.steps_count >= 2 * interleaved.ROWS


def _inputs(k: KernelBuilder, count: int, masked: bool) -> tuple[list[Symbol], Symbol | None]:
    """Return the inputs of a cell, and, with a mask, whether each row counts."""
    symbols = [k.input("float32") for _ in range(count)]
    mask = k.input("float32", level="row") if masked else None
    return symbols, None if mask is None else k.op("not_equal", mask, 0.0)


def _kept(
    k: KernelBuilder, counts: Symbol | None, pairs: Sequence[tuple[Symbol, Symbol]]
) -> Kernel:
    """Return the kernel that writes new states, or old ones where a mask excludes the step."""
    for new, old in pairs:
        k.output(new if counts is None else k.op("select", counts, new, old), "float32")
    return k.build()


def _lstm(masked: bool) -> Kernel:
    """c' = f c + i g, h' = o tanh(c'). Inputs: i, f, c, o before activation; c, h. Outputs: c', h'.

    Source: as `codegen.recurrent.lstm_forward`.
    """
    k = KernelBuilder()
    (zi, zf, zc, zo, c, h), counts = _inputs(k, 6, masked)
    i, f, o = (k.op("sigmoid", z) for z in (zi, zf, zo))
    new_c = f * c + i * k.op("tanh", zc)
    return _kept(k, counts, [(new_c, c), (o * k.op("tanh", new_c), h)])


def _gru(masked: bool) -> Kernel:
    """h' = z h + (1 - z) n. Inputs: z, r, h of the inputs, of the product, h. Output: h'.

    Source: as `codegen.recurrent.gru_forward`.
    """
    k = KernelBuilder()
    (xz, xr, xh, hz, hr, hh, h), counts = _inputs(k, 7, masked)
    z, r = k.op("sigmoid", xz + hz), k.op("sigmoid", xr + hr)
    n = k.op("tanh", xh + r * hh)
    return _kept(k, counts, [(n + z * (h - n), h)])


def _simple(masked: bool) -> Kernel:
    """h' = tanh(z). Inputs: z, h. Output: h'."""
    k = KernelBuilder()
    (z, h), counts = _inputs(k, 2, masked)
    return _kept(k, counts, [(k.op("tanh", z), h)])


_CELLS = {"lstm": _lstm, "gru": _gru, "simple_rnn": _simple}
RECURRENT = frozenset(_CELLS)
