"""Sums over ranks as records: MPI's functions are called without Python, in a fixed order of sums.

MPI promises no order of additions, so none of its reductions is used: a rank receives the others'
summands and adds them in the order of `ranks.tree_sum`, which depends on the number of ranks alone.
Small arrays are sent to every rank. Of large ones each rank adds up one segment, and the sums are
sent to all: both ways send and receive what an optimal reduction does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.backends.static.codegen import arguments
from kerasish.backends.static.codegen.cost import choose_threads
from kerasish.backends.static.codegen.description import Kernel, KernelBuilder
from kerasish.backends.static.codegen.driver import Record, library_call, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.lowering.units import Locate, Unit, nbytes_of
from kerasish.backends.static.machine import native
from kerasish.graph.ir import Node
from kerasish.ops import dtypes
from kerasish.ranks import Group, NativeCalls, current_group, tree_sum
from kerasish.ranks.mpi import SMALL, segments
from kerasish.typing import Array

MOST_SUMMANDS = 8  # of one loop; a power of two, so that its summands are a subtree


def make_exchange(node: Node) -> Unit | None:
    """Return the unit of a sum over ranks; None where the group has no native calls."""
    group = current_group()
    calls = group.native_calls()
    if calls is None or node.out.dtype not in calls.dtypes:
        return None
    return ExchangeUnit(node, group, calls)


class ExchangeUnit(Unit):
    """The sum of an array over all ranks, each of which gets all of it.

    Args:
        node: a node whose op communicates: one input, one output of the same shape.
        group: the ranks.
        calls: their native calls.
    """

    def __init__(self, node: Node, group: Group, calls: NativeCalls) -> None:
        super().__init__(node.op.name, node.inputs, node.outputs)
        self.group, self.calls = group, calls
        self.count, self.dtype = node.out.size, node.out.dtype
        self.width = int(dtypes.array_dtype(self.dtype).itemsize)
        self.small = nbytes_of(node.out) * group.size <= SMALL
        self.counts, self.starts = segments(self.count, group.size)
        self.own = self.count if self.small else self.counts[group.rank]
        # A segment of each rank, then the sum of them.
        self.scratch = self.width * self.own * (group.size + (0 if self.small else 1))

    def kernels(self) -> list[Any]:
        """Return the loops that add up the summands."""
        return list(dict.fromkeys(k for k, _, _ in self._sums()))

    def _sums(self) -> list[tuple[Kernel, list[int], bool]]:
        """Return (loop, its summands by number, whether it is the last), in order."""
        results: list[tuple[Kernel, list[int], bool]] = []
        level = list(range(self.group.size))
        while True:
            parts = [level[i : i + MOST_SUMMANDS] for i in range(0, len(level), MOST_SUMMANDS)]
            last = len(parts) == 1
            # The sum of several summands takes the place of the first of them.
            results += [
                (_sum_kernel(self.dtype, len(p), not last), p, last)
                for p in parts
                if last or len(p) > 1
            ]
            level = [p[0] for p in parts]
            if last:
                return results

    def records(self, locate: Locate) -> list[Record]:
        """Return the calls of MPI, and the loops between them."""
        x, y = locate(self.reads[0]).address, locate(self.writes[0]).address
        parts = locate(("scratch", self)).address if self.scratch else 0
        kind, communicator = self.calls.dtypes[self.dtype], self.calls.communicator
        if self.small:
            words = [x, self.count, kind, parts, self.count, kind, communicator]
            send = self._call("MPI_Allgather", "piHpiHH", words)
            return [send, *self._adding(parts, y)]
        ranks = range(self.group.size)
        given, places = _ints(self.counts), _ints(self.starts)
        taken, offsets = _ints([self.own for _ in ranks]), _ints([self.own * r for r in ranks])
        total = parts + self.width * self.own * self.group.size
        words = [x, *_at(given, places), kind, parts, *_at(taken, offsets), kind, communicator]
        send = self._call("MPI_Alltoallv", "pppHpppHH", words, (given, places, taken, offsets))
        words = [total, self.own, kind, y, *_at(given, places), kind, communicator]
        back = self._call("MPI_Allgatherv", "piHpppHH", words, (given, places))
        return [send, *self._adding(parts, total), back]

    def _call(self, name: str, kinds: str, words: Sequence[int], keep: Any = None) -> Record:
        text = library_call(kinds.replace("H", self.calls.handles))
        block = np.array([self.calls.functions[name], *words], np.int64)
        return Record(compile_one(text), block, f"{self.name} ({name})", keep)

    def _adding(self, parts: int, out: int) -> list[Record]:
        if not self.own:
            return []
        size, runtime = self.width * self.own, load_runtime()
        results = []
        for kernel, numbers, last in self._sums():
            places = [parts + size * n for n in numbers]
            places.append(out if last else places[0])
            block = arguments.pack(
                kernel, places, table=runtime.table, columns=self.own,
                threads=choose_threads(kernel, 1, self.own, native.get_threads()),
            )  # fmt: skip
            results.append(Record(compile_one(kernel), block, f"{self.name} (additions)"))
        return results


def _sum_kernel(dtype: str, summands: int, in_place: bool) -> Kernel:
    k = KernelBuilder()
    inputs = [k.input(dtype) for _ in range(summands)]
    total = tree_sum(inputs, lambda a, b: k.op("add", a, b))
    if summands == 1:
        total = k.op("stop_gradient", total)
    k.output(total, dtype, in_place=inputs[0] if in_place else None)
    return k.build()


def _ints(numbers: Sequence[int]) -> Array:
    return np.array(numbers, np.int32)


def _at(*arrays: Array) -> list[int]:
    return [a.ctypes.data for a in arrays]
