"""Equal loops over arrays of any sizes, joined into one record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import arguments
from kerasish.backends.static.codegen.cost import choose_threads
from kerasish.backends.static.codegen.description import Kernel
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.lowering.loops import LoopUnit
from kerasish.backends.static.lowering.units import Locate, Unit
from kerasish.graph.ir import Value


class SegmentsUnit(Unit):
    """Many equal loops over arrays of any sizes, as one record: optimizer updates."""

    def __init__(self, parts: Sequence[LoopUnit]) -> None:
        reads = dict.fromkeys(v for p in parts for v in p.reads)
        super().__init__(
            f"{parts[0].name} x {len(parts)}", list(reads), [v for p in parts for v in p.writes]
        )
        self.parts = list(parts)

    def may_fail(self) -> bool:
        """Return whether one of the loops may end the run."""
        return any(part.may_fail() for part in self.parts)

    def may_share(self, written: Value, read: Value) -> bool:
        """Return whether the part that writes `written` allows it."""
        owner = next(p for p in self.parts if written in p.writes)
        others = [p for p in self.parts if p is not owner]
        return owner.may_share(written, read) and not any(read in p.reads for p in others)

    def share(self, written: Value, read: Value) -> None:
        """Let `written` use the memory of `read`."""
        next(p for p in self.parts if written in p.writes).share(written, read)

    def in_place_of(self, written: Value) -> Value | None:
        """Return the value whose memory `written` uses."""
        return next(p for p in self.parts if written in p.writes).in_place_of(written)

    def _batches(self) -> dict[Kernel, list[LoopUnit]]:
        results: dict[Kernel, list[LoopUnit]] = {}
        for part in self.parts:
            results.setdefault(part.kernel, []).append(part)
        return results

    def _segmented(self, kernel: Kernel) -> Kernel:
        return Kernel(kernel.inputs, kernel.nodes, kernel.outputs, 1, True, kernel.lanes)

    def kernels(self) -> list[Any]:
        """Return one kernel, or several if the parts share memory in different ways."""
        return [self._segmented(k) for k in self._batches()]

    def records(self, locate: Locate) -> list[Record]:
        """Return one record for each kernel."""
        results = []
        for kernel, parts in self._batches().items():
            segmented = self._segmented(kernel)
            sizes = [p.axes.columns for p in parts]
            rows = [[o.address for o in p.operands(locate)] for p in parts]
            table = arguments.segment_table(sizes, rows)
            operands = [arguments.Operand(a, (0,)) for a in rows[0]]
            total = sum(sizes)
            block = arguments.pack(
                segmented, operands, table=load_runtime().table, rows=len(parts), columns=total,
                threads=choose_threads(segmented, len(parts), total, native.get_threads()),
                segments=table.ctypes.data,
            )  # fmt: skip
            results.append(Record(compile_one(segmented), block, self.name, table))
        return results
