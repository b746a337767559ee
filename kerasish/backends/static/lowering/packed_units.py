"""Convolutions and products of a block of rows: generated loops on weights that are kept packed.

A loop that follows a convolution or product, and is the only reader of its result, becomes part of
its loop. So the results are written once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.static.codegen import direct
from kerasish.backends.static.codegen.driver import Record
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.codegen.team import helpers_for, together_record
from kerasish.backends.static.lowering.convolutions import ConvolutionUnit
from kerasish.backends.static.lowering.few_rows import strips_of
from kerasish.backends.static.lowering.library import LibraryUnit, MatmulUnit, View, if_stale
from kerasish.backends.static.lowering.loops import LoopUnit
from kerasish.backends.static.lowering.moves import BlockLoop, Piece
from kerasish.backends.static.lowering.standalone_direct import (
    DirectUnit,
    convolution_unit,
    product_unit,
)
from kerasish.backends.static.lowering.units import Locate, Unit, nbytes_of
from kerasish.backends.static.machine.machine_code import host_target
from kerasish.graph.ir import Value
from kerasish.ops import dtypes

MOST_WEIGHTS = 1 << 19  # bytes: more are not read again from the second-level cache
# Bytes of weights for products of at least MANY_ROWS rows, where reading takes a small share.
MOST_OF_MANY_ROWS, MANY_ROWS = 1 << 22, 32
HELPED_FLOPS = 160_000  # per thread, from which a helper pays: about 2 microseconds
MOST_CONVOLUTIONS = 12  # kinds per program: each takes 0.1 s to compile


class _Share(NamedTuple):
    """A part of a unit's results that one thread computes.

    Attributes:
        structure: of the part.
        first, last: its places along the first axis of the output.
        skip: the rows of the input and of all operands before this part, if it counts from 0.
    """

    structure: direct.Direct
    first: int
    last: int
    skip: int


class PackedUnit(DirectUnit):
    """A convolution or product of packed weights, which are kept from run to run.

    Args:
        unit: what is computed.
        root: the value in whose memory the weights are; it does not change in a run.
        pieces: the copies that pack them.
    """

    threads = 1

    def __init__(self, unit: DirectUnit, root: Value, pieces: Sequence[Piece]) -> None:
        super().__init__(
            unit.name, unit.structure, unit.x, unit.examples, unit.weights, unit.operands,
            unit.groups,
        )  # fmt: skip
        self.reads = (root, *(v for v in self.reads if v is not unit.weights))
        self.kept_value, self.kept_bytes = root, nbytes_of(unit.weights)
        self.flops = 2.0 * self.rows * self.structure.depth * self.columns
        self.helpers = helpers_for(self.flops, HELPED_FLOPS)
        self.shares = self._cut()
        self.pieces = list(pieces)
        self.packing = [BlockLoop(piece, self.weights) for piece in pieces]

    def kernels(self) -> list[object]:
        """Return the kernels of the loop and of the packing."""
        cut = dict.fromkeys(share.structure for share in self.shares)
        return [*cut, *(loop.kernel for loop in self.packing)]

    def _cut(self) -> list[_Share]:
        """Return the shares that threads may compute at the same time: two shares per thread."""
        d = self.structure
        rows, whole = d.result[0], [_Share(d, 0, d.result[0], 0)]
        parts = min(2 * (self.helpers + 1), rows) if self.helpers else 1
        if parts == 1:
            return whole
        cuts = [rows * i // parts for i in range(parts + 1)]
        if len(d.result) > 1:
            return [_Share(d, a, b, 0) for a, b in zip(cuts, cuts[1:])]
        return self.shares_at(cuts) if self.is_divisible else whole

    @property
    def is_divisible(self) -> bool:
        """Return whether the rows of the output are those of the input, one by one."""
        d = self.structure
        plain = (d.kernel, d.strides, d.before, d.space) == ((1,), (1,), (0,), d.result)
        return plain and self.examples == 1

    def shares_at(self, cuts: Sequence[int]) -> list[_Share]:
        """Return the shares of the rows between the cuts, of a unit whose rows are divisible."""
        return [
            _Share(self.structure._replace(space=(b - a,), result=(b - a,)), 0, b - a, a)
            for a, b in zip(cuts, cuts[1:])
        ]

    def parts(self, locate: Locate, shares: Sequence[_Share]) -> tuple[Record, list[Record]]:
        """Return the packing, and a record for each share; of a unit without groups."""
        (step,) = self.steps(self._finder(locate))
        words = np.array(step.words, np.int64)
        return self._packing(locate), [self._record(share, words) for share in shares]

    def _finder(self, locate: Locate) -> Locate:
        kept = locate(("kept", self))
        return lambda key: kept if key is self.weights else locate(key)

    def _packing(self, locate: Locate) -> Record:
        """Return the record of the packing, which runs only if the weights have changed."""
        find, stale = self._finder(locate), locate(("stale", self))
        packing = [loop.record(find, self.weights, self.name) for loop in self.packing]
        return if_stale(stale, packing, self.name)

    def records(self, locate: Locate) -> list[Record]:
        """Return the packing, and the loop."""
        results = [self._packing(locate)]
        for step in self.steps(self._finder(locate)):
            words = np.array(step.words, np.int64)
            for _ in range(step.times):
                records = [self._record(share, words) for share in self.shares]
                lists = [[record] for record in records]
                several = len(records) > 1
                results += [together_record(lists, self.helpers, self.name)] if several else records
                for place, moved in step.moves:
                    words[place] += moved
        return results

    def _record(self, share: _Share, words: Any) -> Record:
        """Return the record of a share, given the words of the whole."""
        block = words.copy()
        block[direct.FIRST], block[direct.LAST] = share.first, share.last
        if share.skip:
            block[direct.X] += 4 * share.structure.pixel * share.skip
            for i, o in enumerate(self.operands):
                size = int(dtypes.array_dtype(o.value.dtype).itemsize)
                block[direct.OPERANDS + 2 * i] += size * o.stride * share.skip
        return Record(compile_one(share.structure), block, self.name)

    def continued(self, loop: LoopUnit, root: Callable[[Value], Value]) -> PackedUnit | None:
        """Return a unit that also applies a loop to the results; None if that is not possible."""
        both = super().continued(loop, root)
        assert self.kept_value is not None
        return None if both is None else PackedUnit(both, self.kept_value, self.pieces)


def packed_unit(unit: Unit, root: Value, kinds: set[Any]) -> PackedUnit | None:
    """Return the unit that replaces one of the library; None where the library is better.

    Args:
        unit: a convolution or product by weights.
        root: the value in whose memory the weights are.
        kinds: of the convolutions that the program has such units for; a new one is added.
    """
    if nbytes_of(root) > _most_weights(unit) or not isinstance(unit, LibraryUnit):
        return None
    if any(v.dtype != "float32" for v in (*unit.reads, *unit.writes)):
        return None
    if isinstance(unit, ConvolutionUnit) and unit.plain_convolution is not None:
        node, bias, out = unit.plain_convolution
        kernel = node.inputs[1]
        if root.shape != kernel.shape:
            return None
        own, _, _ = convolution_unit(node, np.zeros(kernel.shape, "float32"), bias, "", out)
        if own.structure not in kinds and len(kinds) >= MOST_CONVOLUTIONS:
            return None
        kinds.add(own.structure)
        return PackedUnit(own, root, _filters(root, own))
    if isinstance(unit, MatmulUnit) and unit.plain_product is not None:
        a, b, bias = unit.plain_product
        if len(a.shape) != 2 or len(b.shape) != 2:
            return None
        packed = Value((direct.packed_size(*b.shape),), "float32")
        product = product_unit(a, b.shape[1], packed, unit.writes[0], bias, "", unit.added)
        return None if product is None else PackedUnit(product, root, strips_of(b))
    return None


def _most_weights(unit: Unit) -> int:
    """Return the most bytes of weights with which a generated loop is as fast as the library."""
    if not isinstance(unit, MatmulUnit) or unit.plain_product is None:
        return MOST_WEIGHTS
    wide = host_target().level == "avx512"  # with fewer registers the library has better tiles
    many_rows = unit.plain_product[0].shape[0] >= MANY_ROWS
    return MOST_OF_MANY_ROWS if wide and many_rows else MOST_WEIGHTS


def _filters(root: Value, unit: DirectUnit) -> list[Piece]:
    """Return the copies that pack the filters of a convolution, group by group."""
    depth, each = unit.structure.depth, unit.structure.filters
    row = each * unit.groups
    pieces = []
    for group in range(unit.groups):
        start = group * direct.packed_size(depth, each)
        pieces += strips_of(View(root, (depth, each), (row, 1)), group * each, start)
    return pieces
