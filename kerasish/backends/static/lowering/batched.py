"""Products of many small matrices in a generated loop, where the library is slow.

The library copies matrices whose rows are not adjacent, such as those of attention heads, before it
multiplies them. The loop reads them in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import batched
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.codegen.team import helpers_for, together_record
from kerasish.backends.static.lowering.units import Locate, Unit
from kerasish.graph.ir import Value

if TYPE_CHECKING:
    from kerasish.backends.static.lowering.library import View

LEAST = 8  # matrices; with fewer, the library's threads share each of them
HELPED_LEAST = 2  # where the library would take one thread
LARGEST = 32 * 1024  # bytes of a matrix; larger ones fill the library's tiles
GRAIN = 1e6  # FLOPs per thread, about 12 microseconds
HELPED = 250_000  # the same where a helper may take a share, but need not


class Batch(NamedTuple):
    """The axes of a batch, at most two.

    Attributes:
        sizes: of the axes.
        strides: of a, b and out along them.
    """

    sizes: tuple[int, int]
    strides: tuple[tuple[int, int], ...]


def batch_of(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> Batch | None:
    """Return a batch with adjacent axes joined; None if more than two axes are left.

    Args:
        sizes: of the axes.
        strides: of each operand along them.
    """
    joined: list[tuple[int, tuple[int, ...]]] = []
    for size, *steps in zip(sizes, *strides, strict=True):
        if size == 1:
            continue
        if joined and all(old == new * size for old, new in zip(joined[-1][1], steps)):
            joined[-1] = joined[-1][0] * size, tuple(steps)
        else:
            joined.append((size, tuple(steps)))
    if len(joined) > 2:
        return None
    joined = [(1, (0,) * len(strides))] * (2 - len(joined)) + joined
    (first, outer), (second, inner) = joined
    return Batch((first, second), tuple(zip(outer, inner)))


class BatchedUnit(Unit):
    """Products of the matrices of two views.

    Args:
        a: (..., rows, terms).
        b: (..., terms, columns), whose columns are adjacent.
        out: the result, whose columns are adjacent.
        steps: the strides of the result along the product's axes.
        batch: the axes before the last two.
    """

    safe = True

    def __init__(self, a: View, b: View, out: Value, steps: Sequence[int], batch: Batch) -> None:
        super().__init__("matmul", [a.root, b.root], [out])
        self.batch = batch
        self.sizes = (a.shape[-2], b.shape[-1], a.shape[-1])
        self._operands = (
            (a.root, (*batch.strides[0], *a.strides[-2:])),
            (b.root, (*batch.strides[1], b.strides[-2])),
            (out, (*batch.strides[2], steps[-2])),
        )
        count = math.prod(batch.sizes)
        self.flops = 2.0 * count * math.prod(self.sizes)
        self.threads = min(count, native.threads_for(self.flops, GRAIN))
        self.helpers = helpers_for(self.flops, HELPED)

    def kernels(self) -> list[Any]:
        """Return the one kernel."""
        return [batched.BatchedProduct()]

    def records(self, locate: Locate) -> list[Record]:
        """Return the one record; it offers shares to helpers where they pay."""
        outer, inner = self.batch.sizes
        axis, count = (0, outer) if outer > 1 else (1, inner)
        parts = min(2 * (self.helpers + 1), count) if self.helpers else 1
        cuts = [count * i // parts for i in range(parts + 1)]
        records = []
        for first, last in zip(cuts, cuts[1:]):
            batch = (last - first, inner) if axis == 0 else (1, last - first)
            operands = [
                batched.Operand(locate(v).address + 4 * s[axis] * first, s)
                for v, s in self._operands
            ]
            block = batched.pack(
                table=load_runtime().table, threads=self.threads, batch=batch, sizes=self.sizes,
                operands=operands,
            )  # fmt: skip
            records.append(Record(compile_one(batched.BatchedProduct()), block, self.name))
        if parts == 1:
            return records
        return [together_record([[record] for record in records], self.helpers, self.name)]


def make_batched(a: View, b: View, out: Value, steps: Sequence[int]) -> Unit | None:
    """Return the unit of many small products, or None where the library is as fast.

    Args:
        a, b: the operands.
        out: the result.
        steps: the strides of the result along the product's axes.
    """
    shapes = a.shape[:-2], b.shape[:-2]
    if shapes[0] != shapes[1] or math.prod(shapes[0]) < HELPED_LEAST or out.dtype != "float32":
        return None
    (rows, terms), columns = a.shape[-2:], b.shape[-1]
    count = math.prod(shapes[0])
    if count < LEAST and not helpers_for(2.0 * count * rows * terms * columns, HELPED):
        return None
    if terms > batched.MOST_TERMS or 4 * terms * max(rows, columns) > LARGEST:
        return None
    if b.strides[-1] != 1 or steps[-1] != 1:
        return None
    batch = batch_of(shapes[0], [a.strides[:-2], b.strides[:-2], steps[:-2]])
    return None if batch is None else BatchedUnit(a, b, out, steps, batch)
