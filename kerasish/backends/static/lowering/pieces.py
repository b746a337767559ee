"""Products in pieces: blocks of rows of the result one after the other, so the first can be sent.

A gradient that ranks sum is always computed in the number of pieces that its barrier states: on one
rank or on several, with or without overlap. So its bits are always the same, even if the library
adds the terms of a smaller product in another order.
"""

from __future__ import annotations

from typing import Any

from kerasish.backends.static.codegen.driver import Record
from kerasish.backends.static.lowering.library import View, make_matmul
from kerasish.backends.static.lowering.units import Locate, Place, Unit
from kerasish.graph.ir import Value
from kerasish.ops import dtypes
from kerasish.ranks.group import segments


class ProductPiece(Unit):
    """Some rows of a product.

    Args:
        inner: the unit that computes them, as a separate product.
        a, b: the values that the factors are views of.
        own: the values that `inner` reads instead of `a`, and writes.
        out: the whole product.
        skipped: the bytes of `a` before the first element that is read.
        start: the number of elements of `out` before these rows.

    Attributes:
        start: the same.
    """

    def __init__(
        self, inner: Unit, a: Value, b: Value, own: tuple[Value, Value], out: Value,
        skipped: int, start: int,
    ) -> None:  # fmt: skip
        super().__init__(f"{inner.name} (piece)", (a, b), (out,))
        self._inner, self._own = inner, own
        self._skipped, self._before = skipped, start * _width(out)
        self.start = start
        self.scratch, self.flops, self.threads = inner.scratch, inner.flops, inner.threads
        self.unchecked = frozenset((out,))

    def kernels(self) -> list[Any]:
        """Return the loops of the unit that computes the rows."""
        return self._inner.kernels()

    def records(self, locate: Locate) -> list[Record]:
        """Return the records of the unit that computes the rows, on its part of the memory."""

        def of_piece(key: Any) -> Place:
            if key is self._own[0]:
                return _behind(locate(self.reads[0]), self._skipped)
            if key is self._own[1]:
                return _behind(locate(self.writes[0]), self._before)
            return locate(("scratch", self) if key == ("scratch", self._inner) else key)

        return self._inner.records(of_piece)


def in_pieces(a: View, b: View, out: Value, pieces: int) -> list[Unit]:
    """Return the units that compute a product in pieces, in order; none if there is no such unit.

    Args:
        a, b: the factors.
        out: the product.
        pieces: the number of pieces; fewer if there are fewer rows, 1 for batches of products.
    """
    pieces = min(pieces, a.shape[0])
    if pieces < 2 or len(a.shape) != 2 or len(b.shape) != 2:
        whole = make_matmul(a, b, out)
        return [] if whole is None else [whole]
    results: list[Unit] = []
    for rows, first in zip(*segments(a.shape[0], pieces)):
        own = Value(a.root.shape, a.root.dtype), Value((rows, out.shape[1]), out.dtype)
        part = View(own[0], (rows, a.shape[1]), a.strides)
        inner = make_matmul(part, b, own[1])
        if inner is None:
            return []
        skipped = first * a.strides[0] * _width(a.root)
        start = first * out.shape[1]
        results.append(ProductPiece(inner, a.root, b.root, own, out, skipped, start))
    return results


def _behind(place: Place, nbytes: int) -> Place:
    return Place(place.address + nbytes, place.nbytes - nbytes)


def _width(value: Value) -> int:
    return int(dtypes.array_dtype(value.dtype).itemsize)
