"""Sums over ranks as records: MPI is called without Python, and the order of additions is fixed.

MPI does not guarantee an order of additions, so its reductions are used only for two ranks.
Otherwise a rank receives the summands of the others and adds them in the order of `ranks.tree_sum`,
which depends only on the number of ranks.
Small arrays are sent to every rank. Of large arrays each rank adds up one segment, and the sums are
sent to all ranks. Both ways transfer as much data as an optimal reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import arguments
from kerasish.backends.static.codegen.cost import choose_threads
from kerasish.backends.static.codegen.description import Kernel, KernelBuilder
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.driver_code import WAIT_RESTING, library_call
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.lowering.units import Locate, Unit, nbytes_of
from kerasish.graph.ir import Node, Value
from kerasish.ops import dtypes
from kerasish.ranks import Group, NativeCalls, current_group, tree_sum
from kerasish.ranks.group import segments
from kerasish.ranks.mpi import SMALL
from kerasish.typing import Array

MOST_SUMMANDS = 8  # of one loop; a power of two, so that its summands are a subtree


def make_exchange(node: Node, pieces: int = 1) -> Unit | None:
    """Return the unit of a sum or a gathering over ranks; None without native calls.

    Args:
        node: a node whose op communicates.
        pieces: the number of pieces in which a sum may be sent; the same on all ranks.
    """
    group = current_group()
    calls = group.native_calls()
    if calls is not None and node.op.communicates == "gather":
        return AllGatherUnit(node, group, calls)
    if calls is None or node.out.dtype not in calls.dtypes:
        return None
    return ExchangeUnit(node, group, calls, pieces)


class AllGatherUnit(Unit):
    """The array that the segments of all ranks form."""

    movable = False
    communicates = True

    def __init__(self, node: Node, group: Group, calls: NativeCalls) -> None:
        super().__init__(node.op.name, node.inputs, node.outputs)
        self.group, self.calls = group, calls

    def records(self, locate: Locate) -> list[Record]:
        """Return one call of MPI."""
        x, y = self.reads[0], self.writes[0]
        width = int(dtypes.array_dtype(y.dtype).itemsize)
        counts, starts = (
            _ints([n * width for n in part]) for part in segments(y.size, self.group.size)
        )
        kind, calls = self.calls.dtypes["bytes"], self.calls
        words = [locate(x).address, nbytes_of(x), kind, locate(y).address, *_at(counts, starts)]
        text = library_call("piHpppHH".replace("H", calls.handles))
        block = np.array(
            [calls.functions["MPI_Allgatherv"], *words, kind, calls.communicator], np.int64
        )
        return [Record(compile_one(text), block, self.name, (counts, starts))]


class ExchangeUnit(Unit):
    """The sum of an array over all ranks, each of which gets all of it.

    Args:
        node: a node whose op communicates: one input, one output of the same shape.
        group: the ranks.
        calls: their native calls.
        pieces: the number of pieces in which it may be sent.

    Attributes:
        exchange: its calls and loops.
        in_place: whether the sum overwrites the summands, which no other unit reads.
    """

    movable = False
    communicates = True
    in_place = False

    def __init__(self, node: Node, group: Group, calls: NativeCalls, pieces: int = 1) -> None:
        super().__init__(node.op.name, node.inputs, node.outputs)
        self.exchange = Exchange(node.op.name, node.out, group, calls)
        self.scratch = self.exchange.memory
        self._pieces = pieces

    def exchanges(self) -> list[tuple[int, Exchange]]:
        """Return (elements before it, exchange) of each piece, in order."""
        whole = self.exchange
        if self._pieces < 2:
            return [(0, whole)]
        counts, starts = segments(whole.count, self._pieces)
        return [
            (start, Exchange(whole.name, Value((n,), whole.dtype), whole.group, whole.calls))
            for n, start in zip(counts, starts)
            if n
        ]

    def kernels(self) -> list[Any]:
        """Return the loops that add up the summands."""
        return self.exchange.kernels()

    def records(self, locate: Locate) -> list[Record]:
        """Return the calls of MPI, and the loops between them."""
        x, y = locate(self.reads[0]).address, locate(self.writes[0]).address
        parts = locate(("scratch", self)).address if self.scratch else 0
        exchange = self.exchange
        return [*exchange.sending(x, parts), *exchange.adding(parts, y), *exchange.back(parts, y)]


class Exchange:
    """The calls of MPI that sum an array, and the loops that add.

    Args:
        name: for messages.
        value: the sum: its size and dtype.
        group: the ranks.
        calls: their native calls.

    Attributes:
        small: whether all ranks get all summands at once, and nothing is sent back.
        memory: the bytes that the summands, and the sum of a segment, take.
    """

    def __init__(self, name: str, value: Value, group: Group, calls: NativeCalls) -> None:
        self.name, self.group, self.calls = name, group, calls
        self.count, self.dtype = value.size, value.dtype
        self.width = int(dtypes.array_dtype(self.dtype).itemsize)
        self.small = nbytes_of(value) * group.size <= SMALL
        self.counts, self.starts = segments(self.count, group.size)
        self.own = self.count if self.small else self.counts[group.rank]
        # A segment of each rank, then the sum of them.
        self.memory = self.width * self.own * (group.size + (0 if self.small else 1))

    def kernels(self) -> list[Any]:
        """Return the loops that add up the summands."""
        return list(dict.fromkeys(k for k, _, _ in self._sums()))

    def sending(self, x: int, parts: int, request: Array | None = None) -> list[Record]:
        """Return the call that sends this rank's summands and takes the others'.

        Args:
            x: the address of this rank's array.
            parts: the address of `memory` bytes.
            request: if given, the call only starts the exchange; the request is waited for later.
        """
        kind, communicator = self.calls.dtypes[self.dtype], self.calls.communicator
        if self.small:
            words = [x, self.count, kind, parts, self.count, kind, communicator]
            return [self._call("Allgather", "piHpiHH", words, request)]
        ranks = range(self.group.size)
        given, places = _ints(self.counts), _ints(self.starts)
        taken, offsets = _ints([self.own for _ in ranks]), _ints([self.own * r for r in ranks])
        words = [x, *_at(given, places), kind, parts, *_at(taken, offsets), kind, communicator]
        keep = (given, places, taken, offsets)
        return [self._call("Alltoallv", "pppHpppHH", words, request, keep)]

    def adding(self, parts: int, y: int) -> list[Record]:
        """Return the loops that add up the summands, into y or into the memory after them."""
        if not self.own:
            return []
        out = y if self.small else self._total(parts)
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

    def back(self, parts: int, y: int, request: Array | None = None) -> list[Record]:
        """Return the call that sends the sums of all segments to all ranks; none where small."""
        if self.small:
            return []
        kind, given, places = self.calls.dtypes[self.dtype], _ints(self.counts), _ints(self.starts)
        words = [self._total(parts), self.own, kind, y, *_at(given, places), kind]
        words.append(self.calls.communicator)
        return [self._call("Allgatherv", "piHpppHH", words, request, (given, places))]

    def pair(self, x: int, y: int, request: Array) -> Record:
        """Return the call that starts the sum over two ranks, which has one order."""
        calls = self.calls
        words = [
            calls.in_place if x == y else x,
            y,
            self.count,
            calls.dtypes[self.dtype],
            calls.addition,
            calls.communicator,
        ]
        return self._call("Allreduce", "ppiHHH", words, request)

    def wait(self, request: Array) -> Record:
        """Return the call that waits until a request is complete."""
        calls, name, flag = self.calls, f"{self.name} (wait)", np.zeros(1, np.int64)
        if not calls.sleep:
            words = [calls.functions["MPI_Wait"], *_at(request), calls.no_status]
            return Record(compile_one(library_call("pp")), np.array(words), name, request)
        words = [calls.functions["MPI_Test"], *_at(request, flag), calls.no_status, calls.sleep]
        block = np.array(words, np.int64)
        return Record(compile_one(WAIT_RESTING), block, name, (request, flag))

    def poke(self, request: Array) -> Record:
        """Return the call that lets MPI make progress with a request."""
        flag = np.zeros(1, np.int64)
        words = [self.calls.functions["MPI_Test"], *_at(request, flag), self.calls.no_status]
        block = np.array(words, np.int64)
        name = f"{self.name} (progress)"
        return Record(compile_one(library_call("ppp")), block, name, (request, flag))

    def _total(self, parts: int) -> int:
        return parts + self.width * self.own * self.group.size

    def _call(
        self, name: str, kinds: str, words: Sequence[int], request: Array | None, keep: Any = None
    ) -> Record:
        words = list(words)
        if request is not None:
            name, kinds = f"I{name.lower()}", f"{kinds}p"
            words += _at(request)
        text = library_call(kinds.replace("H", self.calls.handles))
        block = np.array([self.calls.functions[f"MPI_{name}"], *words], np.int64)
        return Record(compile_one(text), block, f"{self.name} (MPI_{name})", (keep, request))

    def _sums(self) -> list[tuple[Kernel, list[int], bool]]:
        """Return (loop, its summands by number, whether it is the last), in order."""
        results: list[tuple[Kernel, list[int], bool]] = []
        level = list(range(self.group.size))
        while True:
            parts = [level[i : i + MOST_SUMMANDS] for i in range(0, len(level), MOST_SUMMANDS)]
            last = len(parts) == 1
            # The sum of several summands replaces the first of them.
            results += [
                (_sum_kernel(self.dtype, len(p), not last), p, last)
                for p in parts
                if last or len(p) > 1
            ]
            level = [p[0] for p in parts]
            if last:
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
