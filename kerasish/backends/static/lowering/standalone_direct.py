"""Convolutions and products with packed weights, and the loops that are fused into them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.static.codegen import direct
from kerasish.backends.static.codegen.driver import load_runtime
from kerasish.backends.static.codegen.epilogue import followed_by, is_epilogue
from kerasish.backends.static.lowering.columns import column_moves
from kerasish.backends.static.lowering.convolutions import geometry_of
from kerasish.backends.static.lowering.library import View, epilogue_kernel
from kerasish.backends.static.lowering.loops import LoopUnit
from kerasish.backends.static.lowering.standalone_units import StandaloneStep, StandaloneUnit
from kerasish.backends.static.lowering.units import Locate, Place, Unit, nbytes_of
from kerasish.graph.ir import Node, Value
from kerasish.ops import dtypes

_X, _WEIGHTS = 3, 4  # words of the argument block


class DirectOperand(NamedTuple):
    """What an epilogue reads or writes.

    Attributes:
        value: the value that holds it.
        stride: elements between rows.
        moves: whether the next group of filters continues after this one.
    """

    value: Value
    stride: int
    moves: bool = True


class DirectUnit(StandaloneUnit):
    """A convolution or product with packed weights, and what follows each of its results.

    Args:
        name: for messages.
        structure: of one group; its epilogue is followed by others (see `continued`).
        x: the input.
        examples: the number of examples, each of the structure's sizes.
        weights: the packed weights of all groups.
        operands: of the epilogue: its inputs after the first, then its outputs.
        groups: the number of groups; each reads `channels` numbers of a pixel and writes `filters`.
    """

    def __init__(
        self, name: str, structure: direct.Direct, x: Value, examples: int, weights: Value,
        operands: Sequence[DirectOperand], groups: int = 1,
    ) -> None:  # fmt: skip
        count = len(structure.epilogue.outputs)
        reads = dict.fromkeys([x, weights, *(o.value for o in operands[:-count])])
        super().__init__(name, list(reads), [o.value for o in operands[-count:]])
        self.structure, self.x, self.examples = structure, x, examples
        self.weights, self.operands, self.groups = weights, list(operands), groups

    @property
    def rows(self) -> int:
        """The number of output pixels of all examples."""
        return self.examples * math.prod(self.structure.result)

    @property
    def columns(self) -> int:
        """The number of filters of all groups."""
        return self.structure.filters * self.groups

    def kernels(self) -> list[Any]:
        """Return the one kernel."""
        return [self.structure]

    def steps(self, locate: Locate) -> Iterator[StandaloneStep]:
        """Yield a call for all groups."""
        yield self.step(locate, self.x, [(locate(o.value).address) for o in self.operands])

    def step(self, locate: Locate, x: Value, operands: Sequence[int]) -> StandaloneStep:
        """Return the calls for all groups, with the addresses of the operands."""
        d = self.structure
        block = direct.pack(
            d, table=load_runtime().table, n=self.examples, x=locate(x).address,
            weights=locate(self.weights).address,
            operands=[(at, o.stride) for at, o in zip(operands, self.operands, strict=True)],
            note=locate(self.weights).address + 4 * direct.packed_size(d.depth, d.filters),
        )  # fmt: skip
        moves = []
        if self.groups > 1:
            moves = [(_X, 4 * d.channels), (_WEIGHTS, nbytes_of(self.weights) // self.groups)]
            for i, o in enumerate(self.operands):
                if o.moves:
                    size = int(dtypes.array_dtype(o.value.dtype).itemsize)
                    moves.append((direct.OPERANDS + 2 * i, size * d.filters))
        return StandaloneStep(d, tuple(int(w) for w in block), self.groups, tuple(moves), self.name)

    def continued(self, loop: LoopUnit, root: Callable[[Value], Value]) -> DirectUnit | None:
        """Return a unit that also applies a loop to the results; None if that is not possible.

        Args:
            loop: it reads this unit's only result.
            root: value -> the value whose memory it uses.
        """
        out = root(self.operands[-1].value)
        operands = _loop_operands(loop, self.columns)
        size = math.prod(loop.axes.outer) * loop.axes.columns
        if operands is None or size != self.rows * self.columns:
            return None
        places = [i for i, o in enumerate(operands) if root(o.value) is out]
        if len(places) != 1 or operands[places[0]].stride != self.columns:
            return None
        if loop.kernel.inputs[places[0]].dtype != "float32":
            return None
        del operands[places[0]]
        epilogue = followed_by(self.structure.epilogue, loop.kernel, places[0])
        both = self.structure._replace(epilogue=epilogue)
        name, operands = f"{self.name} {loop.name}", [*self.operands[:-1], *operands]
        return DirectUnit(name, both, self.x, self.examples, self.weights, operands, self.groups)


def _loop_operands(loop: LoopUnit, columns: int) -> list[DirectOperand] | None:
    """Return the operands of a loop as an epilogue takes them; None if it cannot be one.

    Args:
        loop: its rows and columns become those of the product.
        columns: of the product.
    """
    kernel, axes = loop.kernel, loop.axes
    flat = math.prod(axes.outer) == 1  # over all elements, if no operand varies only along columns
    whole = axes.columns == columns and len(axes.outer) == 1
    strided = any(p.strided for p in kernel.inputs) or any(p.strided for p in kernel.outputs)
    if not (flat or whole) or strided or loop.scratch or not is_epilogue(kernel):
        return None
    if kernel.segments or any(i.gather is not None for i in kernel.inputs):
        return None
    if any(o.scatter is not None or o.combine != "set" for o in kernel.outputs):
        return None
    results = []
    spots = zip(loop.values(), loop.operands(lambda key: Place(0, 0)), strict=True)
    for i, (value, spot) in enumerate(spots):
        level = kernel.inputs[i].level if i < len(kernel.inputs) else "element"
        (step,) = spot.strides or (0,)
        if spot.address or spot.column_stride != 1:
            return None
        if flat and level in ("row", "column"):
            return None
        if level == "element" and not flat and step != columns:
            return None
        stride = {"element": columns, "row": step}.get(level, 0)
        results.append(DirectOperand(value.value, stride, level in ("element", "column")))
    return results


def product_unit(
    a: View, n: int, packed: Value, out: Value, bias: Value | None, activation: str,
    added: Value | None = None, skips: bool = False,
) -> DirectUnit | None:  # fmt: skip
    """Return the product of a matrix by packed weights; None if its rows are not adjacent.

    Args:
        a: the matrix.
        n: columns of the result.
        packed: the weights.
        out: the result.
        bias: added to each row, or None.
        activation: applied last, or "".
        added: a matrix that is added, or None; `out` may use its memory.
        skips: whether a note follows the weights (see `codegen.skipping`).
    """
    (m, k), (row, column) = a.shape, a.strides
    if k > 1 and column != 1:
        return None
    epilogue = epilogue_kernel(bias, activation, added is not None)
    structure = direct.product(epilogue, m, k, n, row, skips)
    operands = [] if bias is None else [DirectOperand(bias, 0)]
    operands += [] if added is None else [DirectOperand(added, n)]
    operands.append(DirectOperand(out, n))
    return DirectUnit("product", structure, a.root, 1, packed, operands)


def convolution_unit(
    node: Node, weights: Any, bias: Value | None, activation: str, out: Value
) -> tuple[DirectUnit, Value, Any]:
    """Return the unit of a convolution, the value of its packed weights, and these.

    Args:
        node: the convolution.
        weights: the filters.
        bias, activation, out: what follows, and the value of the results.
    """
    x, kernel = node.inputs
    g = geometry_of(x.shape, kernel.shape, node.attrs)
    channels, filters, groups = g.x_shape[-1], g.filters, g.groups
    matrix = np.asarray(weights).reshape(-1, filters)
    lanewise = groups == channels == filters and groups > 1
    if lanewise:
        groups = 1
    each = filters // groups
    parts = [matrix[:, i * each : (i + 1) * each] for i in range(groups)]
    array = np.concatenate([direct.pack_weights(part) for part in parts])
    packed = Value(array.shape, "float32")
    structure = direct.Direct(
        epilogue_kernel(bias, activation), g.x_shape[1:-1], channels,
        1 if lanewise else channels // groups, g.y_shape[1:-1], g.kernel, g.strides, g.dilations,
        tuple(before for before, _ in g.padding), each, lanewise,
    )  # fmt: skip
    operands = [
        *([DirectOperand(bias, 0)] if bias is not None else []),
        DirectOperand(out, filters),
    ]
    name = node.op.name
    return DirectUnit(name, structure, x, x.shape[0], packed, operands, groups), packed, array


class TransposedUnit(StandaloneUnit):
    """A transposed convolution: a product into columns, which are added to their positions.

    Args:
        node: the data gradient of a convolution.
        weights: the filters.

    Attributes:
        packed: the value of the packed filters.
        array: the packed filters.
    """

    def __init__(self, node: Node, weights: Any) -> None:
        x, kernel = node.inputs
        out = node.out
        g = geometry_of(out.shape, kernel.shape, node.attrs)
        *places, inputs, filters = kernel.shape
        groups, each = g.groups, filters // g.groups
        rows, width = math.prod(x.shape[:-1]), math.prod(places) * inputs
        matrix = np.asarray(weights).reshape(width, filters).T
        parts = [matrix[i * each : (i + 1) * each] for i in range(groups)]
        self.array = np.concatenate([direct.pack_weights(part) for part in parts])
        self.packed = Value(self.array.shape, "float32")
        super().__init__(node.op.name, [x, self.packed], [out])
        self.columns = Value((rows, groups * width), "float32")
        self.scratch = nbytes_of(self.columns)
        structure = direct.product(epilogue_kernel(None, ""), rows, each, width, filters)
        operands = [DirectOperand(self.columns, groups * width)]
        self.product = DirectUnit(self.name, structure, x, 1, self.packed, operands, groups)
        self.moves = column_moves(g, out, self.columns, spread=True)

    def kernels(self) -> list[Any]:
        """Return the kernels of the product and of the moves."""
        return [*self.product.kernels(), *(loop.kernel for loop, _ in self.moves)]

    def steps(self, locate: Locate) -> Iterator[StandaloneStep]:
        """Yield the product, and the moves that add its columns up."""
        scratch = locate(("scratch", self))

        def find(key: Any) -> Any:
            return scratch if key is self.columns else locate(key)

        yield from self.product.steps(find)
        for loop, target in self.moves:
            record = loop.record(find, target, self.name)
            yield StandaloneStep(loop.kernel, tuple(int(w) for w in record.block), name=self.name)


def fuse_followers(
    units: Sequence[Unit], root: Callable[[Value], Value], kept: set[Value]
) -> list[Unit]:
    """Return the units with loops fused into the products whose only reader they are.

    Args:
        units: in order.
        root: value -> the value whose memory it uses.
        kept: roots of the values that are results of the graph.
    """
    readers: dict[Value, list[Unit]] = {}
    for unit in units:
        for v in dict.fromkeys(map(root, unit.reads)):
            readers.setdefault(v, []).append(unit)
    makers: dict[Value, DirectUnit] = {}
    results: list[Unit] = []
    for unit in units:
        if isinstance(unit, LoopUnit):
            for v in dict.fromkeys(map(root, unit.reads)):
                maker = makers.get(v)
                if maker is None or len(readers[v]) != 1 or v in kept:
                    continue
                between = results[results.index(maker) + 1 :]
                written = {root(w) for other in between for w in other.writes}
                if not written.isdisjoint(map(root, maker.reads)):
                    continue  # an addition in place: what it adds to must be computed first
                both = maker.continued(unit, root)
                if both is not None:
                    results.remove(maker)
                    unit = both
                    break
        if isinstance(unit, DirectUnit) and len(unit.writes) == 1:
            makers[root(unit.writes[0])] = unit
        results.append(unit)
    return results
