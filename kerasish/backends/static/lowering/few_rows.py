"""Products of few rows by weights that do not change: generated loops on packed weights.

A library's product of one row costs a call and reads the weights in a layout for many rows. Here
each thread reads its columns of the weights once, sequentially.
"""

from __future__ import annotations

from typing import Any

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import arguments, direct, skipping
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.codegen.nested_records import concurrent_record
from kerasish.backends.static.codegen.team import helpers_for, together_record
from kerasish.backends.static.lowering.library import (
    MatmulUnit,
    View,
    epilogue_kernel,
    if_stale,
)
from kerasish.backends.static.lowering.moves import BlockLoop, Piece
from kerasish.backends.static.lowering.units import Locate, Place, Unit
from kerasish.graph.ir import Value

MOST_ROWS = 8  # more are multiplied by the library
GRAIN = 1 << 19  # bytes of weights per thread: about 10 us of reading
HELPED = 1 << 17  # the same where a helper may take a share, but need not


def strips_of(matrix: View, first: int = 0, start: int = 0) -> list[Piece]:
    """Return the copies of weights into strips; the padding of a strip stays 0.

    Args:
        matrix: the weights, (depth, columns).
        first: the number of the matrix's first element in the value.
        start: the number of the first element of the strips.
    """
    (depth, columns), (row_step, column_step) = matrix.shape, matrix.strides
    pieces = []
    for at in range(0, columns, direct.STRIP):
        count = min(direct.STRIP, columns - at)
        row = -(-count // direct.GRAIN) * direct.GRAIN
        pieces.append(
            Piece(
                matrix.root, (depth, count), (row_step, column_step), first + at * column_step,
                (row, 1), start + at * depth,
            )
        )  # fmt: skip
    return pieces


class FewRowsUnit(Unit):
    """A product of few rows by packed weights, which are kept between runs.

    Args:
        a, b: the factors; the numbers of a row of `a` are adjacent.
        out: the result.
        bias: added to each row, or None.
        root: the value in whose memory the weights are; it does not change in a run.
    """

    def __init__(self, a: View, b: View, out: Value, bias: Value | None, root: Value) -> None:
        super().__init__("product", [v for v in (a.root, b.root, bias) if v], [out])
        self.a, self.b, self.out, self.bias = a, b, out, bias
        (self.depth, self.columns), self.kept_value = b.shape, root
        self.size = direct.packed_size(*b.shape)
        self.packed = Value((self.size + skipping.NOTE,), "float32")
        self.kept_bytes = 4 * self.packed.size
        self.flops = 2.0 * a.shape[0] * self.depth * self.columns
        strips = -(-self.columns // direct.STRIP)
        self.helpers = helpers_for(self.kept_bytes, HELPED)
        # Two shares per thread, so that a late thread takes fewer.
        most = 2 * (self.helpers + 1) if self.helpers else 1
        parts = min(max(native.threads_for(self.kept_bytes, GRAIN), most), strips)
        cuts = [strips * i // parts * direct.STRIP for i in range(parts)] + [self.columns]
        self.parts = list(zip(cuts, cuts[1:]))
        self.epilogue = epilogue_kernel(bias, "")
        self.packing = [BlockLoop(piece, self.packed) for piece in strips_of(b)]
        self.noting = skipping.note_kernel() if self._structure(*self.parts[0]).skips else None

    def kernels(self) -> list[Any]:
        """Return the kernels of the products and of the packing."""
        note = [] if self.noting is None else [self.noting]
        products = [self._structure(*part) for part in self.parts]
        return [*products, *(p.kernel for p in self.packing), *note]

    def _structure(self, first: int, last: int) -> direct.Direct:
        return direct.product(
            self.epilogue, self.a.shape[0], self.depth, last - first, self.a.strides[0], skips=True
        )

    def records(self, locate: Locate) -> list[Record]:
        """Return the packing, which runs only if the weights have changed, and the products."""
        kept, stale = locate(("kept", self)), locate(("stale", self))

        def find(key: Any) -> Place:
            return kept if key is self.packed else locate(key)

        packing = [loop.record(find, self.packed, self.name) for loop in self.packing]
        if self.noting is not None:
            note = arguments.pack(
                self.noting, [kept.address, kept.address + 4 * self.size],
                table=load_runtime().table, columns=self.size,
            )  # fmt: skip
            packing.append(Record(compile_one(self.noting), note, self.name))
        parts = [self._product(locate, kept.address, *part) for part in self.parts]
        lists = [[record] for record in parts]
        product = parts[0]
        if len(parts) > 1 and self.helpers:
            product = together_record(lists, self.helpers, self.name)
        elif len(parts) > 1:
            product = concurrent_record(lists, self.name)
        return [if_stale(stale, packing, self.name), product]

    def _product(self, locate: Locate, kept: int, first: int, last: int) -> Record:
        structure = self._structure(first, last)
        operands = [] if self.bias is None else [(locate(self.bias).address + 4 * first, 0)]
        operands.append((locate(self.out).address + 4 * first, self.columns))
        block = direct.pack(
            structure, table=load_runtime().table, n=1, x=locate(self.a.root).address,
            weights=kept + 4 * first * self.depth, operands=operands, note=kept + 4 * self.size,
        )  # fmt: skip
        return Record(compile_one(structure), block, self.name)


def few_rows(unit: MatmulUnit, root: Value) -> FewRowsUnit | None:
    """Return the unit that replaces a product of the library; None where the library is better.

    Args:
        unit: a product by weights.
        root: the value in whose memory the weights are.
    """
    if unit.plain_product is None or unit.added is not None:
        return None
    a, b, bias = unit.plain_product
    dtypes = {v.dtype for v in (a.root, b.root, unit.writes[0], *([bias] if bias else []))}
    fits = len(a.shape) == 2 and len(b.shape) == 2 and (a.shape[1] == 1 or a.strides[1] == 1)
    if not fits or dtypes != {"float32"} or a.shape[0] > MOST_ROWS:
        return None
    return FewRowsUnit(a, b, unit.writes[0], bias, root)
