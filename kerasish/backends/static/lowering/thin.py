"""Products with few columns in a generated loop, where the library half-fills its vectors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import thin
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.lowering.units import Locate, Unit
from kerasish.backends.static.machine.machine_code import host_target
from kerasish.graph.ir import Value

if TYPE_CHECKING:
    from kerasish.backends.static.lowering.library import View

LEAST = 32  # rows and terms; with fewer, a call takes longer than the work
GRAIN = 500_000.0  # FLOPs per thread


class ThinUnit(Unit):
    """A product of two matrices, the second one with few columns."""

    safe = True

    def __init__(self, kernel: thin.ThinProduct, a: View, b: View, out: Value) -> None:
        super().__init__("matmul", [a.root, b.root], [out])
        self.kernel, self.a, self.b = kernel, a, b
        (self.rows, self.terms), self.columns = a.shape, b.shape[1]
        self.flops = 2.0 * math.prod((self.rows, self.terms, self.columns))
        self.threads = native.threads_for(self.flops, GRAIN)
        if b.strides != (thin.WIDTH, 1):
            self.scratch = thin.scratch_size(self.terms)

    def kernels(self) -> list[thin.ThinProduct]:
        """Return the one kernel."""
        return [self.kernel]

    def records(self, locate: Locate) -> list[Record]:
        """Return the one record."""
        block = thin.pack(
            table=load_runtime().table, threads=self.threads,
            sizes=(self.rows, self.columns, self.terms),
            a=(locate(self.a.root).address, self.a.strides[1]),
            b=(locate(self.b.root).address, self.b.strides[0], self.b.strides[1]),
            out=(locate(self.writes[0]).address, self.columns),
            scratch=locate(("scratch", self)).address if self.scratch else 0,
        )  # fmt: skip
        return [Record(compile_one(self.kernel), block, self.name)]


def make_thin(a: View, b: View, out: Value) -> ThinUnit | None:
    """Return the unit of a thin product; None for others, and where the library fills its vectors.

    Args:
        a, b: the factors.
        out: the result, C-ordered.
    """
    if len(a.shape) != 2 or len(b.shape) != 2 or out.dtype != "float32":
        return None
    if host_target().lanes <= thin.WIDTH:
        return None
    (rows, terms), columns = a.shape, b.shape[1]
    if not 1 < columns <= thin.WIDTH or min(rows, terms) < LEAST or 1 not in a.strides:
        return None
    return ThinUnit(thin.ThinProduct(columns, a.strides[0], a.strides[1] != 1), a, b, out)
