"""A call in blocks of rows: a program for a few rows, run for all blocks of a batch.

The data of a block of few rows stays in the caches of one processor, and threads synchronize once
per call instead of once per op. The number of rows of a block depends only on the graph and on the
number of rows, not on the number of threads. So the bits of a result do not depend on it, either.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen.blocks import Lane, run_blocks
from kerasish.backends.static.codegen.driver import RecordError
from kerasish.backends.static.lowering.interpreted import Interpreted
from kerasish.backends.static.lowering.program_threads import nanoseconds
from kerasish.backends.static.lowering.recurrent import is_short_recurrence
from kerasish.backends.static.lowering.units import threads_records
from kerasish.backends.static.runtime.filling import leaves_of
from kerasish.backends.static.runtime.lanes import Lanes
from kerasish.backends.static.runtime.program import Executable
from kerasish.graph.by_rows import by_rows
from kerasish.graph.formulas import bytes_of, work_of
from kerasish.graph.ir import Graph, Value
from kerasish.graph.trace import Traced
from kerasish.ops import dtypes
from kerasish.tensor import to_numpy
from kerasish.typing import Array

CACHE = 3 << 20  # bytes that a block may read and write in one op: small enough for the caches
FEWEST, MOST = 8, 64  # rows of a block
WEIGHTS = 1 << 20  # bytes: more have left the second-level cache when the next block reads them;
REUSE = 16.0  # then a block must compute this number of floating-point operations per byte of them
BLOCKS = 4  # fewer are not worth it
SMALL = 200_000.0  # nanoseconds of a call, estimated: a shorter one is not divided


class Blocks(NamedTuple):
    """How a batch is divided.

    Attributes:
        rows: of the batch.
        block: rows of a block; the last one starts earlier if the batch ends within it.
        results: the shape and dtype of each result, with all rows.
    """

    rows: int
    block: int
    results: list[tuple[tuple[int, ...], Any]]

    @property
    def parts(self) -> int:
        """The number of blocks."""
        return -(-self.rows // self.block)


def in_blocks(traced: Traced) -> tuple[Traced, Blocks] | None:
    """Return a traced call for a block of its rows, and the blocks; None where it has none.

    It has none if rows may depend on each other, if it changes variables or has conditions, if it
    is short, or if there are fewer blocks than threads. A short recurrence takes one thread in any
    case (`program_threads`).
    """
    graph, count = traced.graph, traced.arguments
    if traced.updated or traced.conditions or not count or not graph.outputs:
        return None
    shape = graph.inputs[0].shape
    rows = shape[0] if shape else 0
    if rows < 2 or sum(map(nanoseconds, graph.nodes)) < SMALL or is_short_recurrence(graph):
        return None
    trial = by_rows(graph, count, 1)
    if trial is None:
        return None
    block = block_rows(rows, trial.most, _fewest(graph, trial.values))
    if block is None or -(-rows // block) < native.get_threads():
        return None
    divided = by_rows(graph, count, block)
    if divided is None:
        return None

    def moved(known: dict[Value, Any]) -> dict[Value, Any]:
        return {divided.values.get(v, v): what for v, what in known.items()}

    results = [(v.shape, dtypes.array_dtype(v.dtype)) for v in graph.outputs]
    block_call = traced._replace(
        graph=divided.graph, paths=moved(traced.paths), lines=moved(traced.lines)
    )
    return block_call, Blocks(rows, block, results)


def block_rows(rows: int, most: int, fewest: int) -> int | None:
    """Return the rows of a block; None where the batch is too small for blocks.

    Args:
        rows: of the batch.
        most: the largest number of bytes per row that an op reads and writes.
        fewest: rows that a block must have, if the batch is larger.
    """
    block = min(max(CACHE // max(most, 1), fewest), MOST, -(-rows // BLOCKS))
    if block < min(fewest, rows - 1):
        return None
    return -(-rows // -(-rows // block))


def _fewest(graph: Graph, with_rows: Container[Value]) -> int:
    """Return the number of rows with which reading weights is a small share of a block.

    Args:
        graph: of all rows.
        with_rows: its values that hold rows.
    """
    once, read, flops = 0, 0, 0
    for node in graph.nodes:
        if node.op.kind in ("linalg", "convolution", "recurrent"):
            weights = bytes_of([v for v in node.inputs if v not in with_rows])
            times = node.inputs[0].shape[0] if node.op.kind == "recurrent" else 1
            once, read, flops = once + weights, read + weights * times, flops + work_of(node)
    if once <= WEIGHTS:
        return FEWEST
    rows = graph.inputs[0].shape[0]
    return max(FEWEST, min(MOST, int(REUSE * read * rows / max(flops, 1))))


def may_divide(executable: Executable | Interpreted) -> bool:
    """Return whether a program may run for one block after another, in any order."""
    if not isinstance(executable, Executable) or not executable.is_native:
        return False
    plan = executable.compiled_plan
    exclusive = plan.updates or plan.copies or plan.conditions
    return not exclusive and len(executable.parts) == 1 and all(unit.movable for unit in plan.units)


class BlockRuns:
    """Runs calls block by block.

    Args:
        blocks: how batches are divided.
        results: the values of the results of a block.
        threads: the number of threads that may take blocks.

    Attributes:
        blocks: the same.
        threads: the number of threads that take blocks, each with separate memory.
    """

    def __init__(self, blocks: Blocks, results: Sequence[Value], threads: int) -> None:
        self.blocks, self._results = blocks, list(results)
        self.threads = min(threads, blocks.parts)
        self._lanes: dict[Executable, Lane] = {}
        self._first = threads_records(1)  # in each thread OpenMP starts with its default number

    def call(
        self, args: Sequence[Any], executable: Any, lanes: Lanes, run: Callable[[], object] | None
    ) -> list[Array]:
        """Run all blocks of a batch by a run that has entered; return the results.

        Args:
            args: the arguments of a call.
            executable: that of the run.
            lanes: those that it entered.
            run: runs a block in the executable, instead of the native loop; None: the native loop.

        Raises:
            RecordError: a record failed.
        """
        if run is not None:
            return self._run_timed(args, executable, run)
        others = lanes.others(self.threads - 1)
        return self._run_all(args, [executable, *others], lanes.exclusive)

    def _run_all(
        self, args: Sequence[Any], executables: Sequence[Executable], exclusive: bool
    ) -> list[Array]:
        """Run all blocks of a batch; return the results.

        Args:
            args: the arguments of a call.
            executables: one per thread, the calling one's first.
            exclusive: whether kept weights may have to be reordered, which the first block does.
        """
        b = self.blocks
        inputs = _arrays(args, executables[0].inputs, b.rows)
        results = [np.empty(shape, dtype) for shape, dtype in b.results]
        lanes = [self._lane(e) for e in executables]
        begin = 0
        if exclusive:
            first = executables[0]
            first.begin()
            self._run(lanes[:1], executables, (0, 1), (inputs, results))
            first.kept.done()
            begin = 1
        self._run(lanes, executables, (begin, b.parts), (inputs, results))
        return results

    def _run(
        self, lanes: Sequence[Lane], executables: Sequence[Executable], blocks: tuple[int, int],
        arrays: tuple[list[Array], list[Array]],
    ) -> None:  # fmt: skip
        failed = run_blocks(lanes, blocks, self.blocks.block, self.blocks.rows, arrays)
        if failed is not None:
            number, record, status = failed
            program = executables[number].parts[0]
            error = program.error(record - len(self._first), status)
            if isinstance(error, RecordError):
                error.memory = executables[number]
            raise error

    def _run_timed(self, args: Sequence[Any], executable: Executable, run: Any) -> list[Array]:
        """Run all blocks by a function that notes times; return the results.

        Args:
            args: the arguments of a call.
            executable: what the function runs.
            run: called without arguments, once per block.
        """
        b = self.blocks
        inputs = _arrays(args, executable.inputs, b.rows)
        results = [np.empty(shape, dtype) for shape, dtype in b.results]
        for begin in range(0, b.rows, b.block):
            first = min(begin, b.rows - b.block)
            for view, array in zip(executable.inputs, inputs):
                view[...] = array[first : first + b.block]
            run()
            for v, whole in zip(self._results, results):
                rows = executable.output(v).reshape((b.block, -1))
                whole.reshape((b.rows, -1))[first : first + b.block] = rows
        return results

    def _lane(self, executable: Executable) -> Lane:
        lane = self._lanes.get(executable)
        if lane is None:
            ports = [view.ctypes.data for view in executable.inputs]
            ports += [executable.locate(v).address for v in self._results]
            records = [*self._first, *executable.parts[0].records]
            lane = self._lanes[executable] = Lane(records, ports)
        return lane


def _arrays(args: Sequence[Any], inputs: Sequence[Array], rows: int) -> list[Array]:
    """Return the arrays among the arguments, as the inputs of a program have them."""
    leaves: list[Any] = []
    for a in args:
        if type(a) is np.ndarray:
            leaves.append(a)
        elif a is not None:
            leaves += [to_numpy(leaf) for leaf in leaves_of(a)]
    return [
        np.ascontiguousarray(a.astype(view.dtype, casting="same_kind", copy=False))
        for a, view in zip(leaves, inputs, strict=True)
    ]
