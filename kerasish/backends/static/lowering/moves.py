"""Movement ops as loops: transpose, slice, pad, concatenate, gather and scatter of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import arguments
from kerasish.backends.static.codegen.cost import choose_threads
from kerasish.backends.static.codegen.description import Kernel, KernelBuilder
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.lowering.library import contiguous
from kerasish.backends.static.lowering.loops import _collapse
from kerasish.backends.static.lowering.units import Locate, Place, Unit, nbytes_of
from kerasish.graph.ir import Node, Value
from kerasish.ops import dtypes


class Piece(NamedTuple):
    """A block of elements that is read from a value (None: a number) and written to the result.

    Strides and offsets count elements.
    """

    source: Value | None
    shape: tuple[int, ...]
    read: tuple[int, ...]
    read_offset: int
    write: tuple[int, ...]
    write_offset: int
    number: float = 0.0


class MoveUnit(Unit):
    """Blocks of elements copied into a new value, one record each."""

    safe = True

    def __init__(self, name: str, pieces: Sequence[Piece], out: Value) -> None:
        pieces = [p for p in pieces if 0 not in p.shape]
        reads = dict.fromkeys(p.source for p in pieces if p.source is not None)
        super().__init__(name, list(reads), [out])
        self.pieces = [BlockLoop(p, out) for p in pieces]
        self.threads = max((p.threads for p in self.pieces), default=1)

    def kernels(self) -> list[Any]:
        """Return the kernels of all blocks."""
        return [p.kernel for p in self.pieces]

    def records(self, locate: Locate) -> list[Record]:
        """Return one record per block."""
        return [p.record(locate, self.writes[0], self.name) for p in self.pieces]


class BlockLoop:
    """A block as a loop over collapsed axes."""

    def __init__(self, piece: Piece, out: Value, adds: bool = False) -> None:
        self.piece, self.combine = piece, "add" if adds else "set"
        sizes, steps, _ = _collapse(piece.shape, [piece.read, piece.write], set())
        read, write = steps
        if not sizes:
            sizes, read, write = [1], [1], [1]
        self.columns = sizes.pop()
        self.read_step, self.write_step = read.pop(), write.pop()
        self.sizes = tuple(sizes) or (1,)
        self.read, self.write = tuple(read) or (0,), tuple(write) or (0,)
        self.kernel = self._build(out)
        rows = math.prod(self.sizes)
        self.threads = choose_threads(self.kernel, rows, self.columns, native.get_threads())

    def _build(self, out: Value) -> Kernel:
        k = KernelBuilder(rank=len(self.sizes))
        strided = self.write_step not in (0, 1)
        if self.piece.source is None:
            x = k.constant(_fitting(self.piece.number, out.dtype), out.dtype)
            k.output(k.op("broadcast", x), out.dtype, strided=strided)
            return k.build()
        dtype = self.piece.source.dtype
        several = math.prod(self.sizes) > 1
        varies = any(self.read) or not several
        level = "element" if self.read_step else "row" if varies else "scalar"
        if self.read_step and not varies:
            level = "column"
        x = k.input(dtype, level, strided=self.read_step not in (0, 1))
        k.output(k.op("broadcast", x), out.dtype, strided=strided, combine=self.combine)
        return k.build()

    def record(self, locate: Locate, out: Value, name: str) -> Record:
        piece = self.piece
        operands = []
        if piece.source is not None:
            size = dtypes.array_dtype(piece.source.dtype).itemsize
            at = locate(piece.source).address + piece.read_offset * size
            operands.append(arguments.Operand(at, self.read, self.read_step or 1))
        at = locate(out).address + piece.write_offset * dtypes.array_dtype(out.dtype).itemsize
        operands.append(arguments.Operand(at, self.write, self.write_step or 1))
        block = arguments.pack(
            self.kernel, operands, table=load_runtime().table, columns=self.columns,
            sizes=self.sizes, threads=self.threads,
        )  # fmt: skip
        return Record(compile_one(self.kernel), block, name)


def _fitting(number: float, dtype: str) -> float:
    if dtypes.is_float(dtype):
        return float(number)
    return bool(number) if dtype == "bool" else int(number)


def make_move(node: Node) -> Unit | None:
    """Return the unit for a movement node; None if it is not supported."""
    make = _MOVES.get(node.op.name)
    if make is None or node.out.size == 0:
        return None
    return MoveUnit(node.op.name, make(node), node.out)


def _transpose(node: Node) -> list[Piece]:
    x, out = node.inputs[0], node.out
    steps = contiguous(x.shape)
    read = tuple(steps[a] for a in node.attrs["axes"])
    return [Piece(x, out.shape, read, 0, contiguous(out.shape), 0)]


def _broadcast(node: Node) -> list[Piece]:
    x, out = node.inputs[0], node.out
    lead = len(out.shape) - len(x.shape)
    steps = contiguous(x.shape)
    read = (0,) * lead + tuple(0 if s == 1 else step for s, step in zip(x.shape, steps))
    return [Piece(x, out.shape, read, 0, contiguous(out.shape), 0)]


def _ranges(shape: Sequence[int], slices: tuple[Any, ...]) -> list[range]:
    return [range(size)[slice(*bounds)] for size, bounds in zip(shape, slices)]


def _place(shape: Sequence[int], ranges: Sequence[range]) -> tuple[tuple[int, ...], int]:
    """Return (strides, offset) of the part of an array that the ranges select."""
    steps = contiguous(shape)
    strides = tuple(step * r.step for step, r in zip(steps, ranges))
    return strides, sum(step * r.start for step, r in zip(steps, ranges) if len(r))


def _slice(node: Node) -> list[Piece]:
    x, out = node.inputs[0], node.out
    read, offset = _place(x.shape, _ranges(x.shape, node.attrs["slices"]))
    return [Piece(x, out.shape, read, offset, contiguous(out.shape), 0)]


def _fill_piece(out: Value, number: float) -> Piece:
    steps = contiguous(out.shape)
    return Piece(None, out.shape, (0,) * len(steps), 0, steps, 0, number)


def _full_piece(x: Value) -> Piece:
    steps = contiguous(x.shape)
    return Piece(x, x.shape, steps, 0, steps, 0)


def _unslice(node: Node) -> list[Piece]:
    x, out = node.inputs[0], node.out
    write, offset = _place(out.shape, _ranges(out.shape, node.attrs["slices"]))
    inside = Piece(x, x.shape, contiguous(x.shape), 0, write, offset)
    return [_fill_piece(out, 0.0), inside]


def _write_slice(node: Node) -> list[Piece]:
    x, updates = node.inputs
    steps = contiguous(x.shape)
    offset = sum(step * start for step, start in zip(steps, node.attrs["starts"]))
    inside = Piece(updates, updates.shape, contiguous(updates.shape), 0, steps, offset)
    return [_full_piece(x), inside]


def _pad(node: Node) -> list[Piece]:
    x, out = node.inputs[0], node.out
    steps = contiguous(out.shape)
    offset = sum(step * before for step, (before, _) in zip(steps, node.attrs["pad_width"]))
    inside = Piece(x, x.shape, contiguous(x.shape), 0, steps, offset)
    return [_fill_piece(out, node.attrs["value"]), inside]


def _concatenate(node: Node) -> list[Piece]:
    out, axis = node.out, node.attrs["axis"]
    steps, pieces, start = contiguous(out.shape), [], 0
    for x in node.inputs:
        pieces.append(Piece(x, x.shape, contiguous(x.shape), 0, steps, start * steps[axis]))
        start += x.shape[axis]
    return pieces


def _fill(node: Node) -> list[Piece]:
    return [_fill_piece(node.out, float(node.attrs["value"]))]


_MOVES = {
    "transpose": _transpose,
    "broadcast_to": _broadcast,
    "optimization_barrier": _broadcast,
    "strided_slice": _slice,
    "unslice": _unslice,
    "write_slice": _write_slice,
    "constant_pad": _pad,
    "concatenate": _concatenate,
    "fill": _fill,
}


class GatherUnit(Unit):
    """Rows of a table gathered by index."""

    def __init__(self, node: Node) -> None:
        super().__init__("gather", node.inputs, node.outputs)
        table, indices = node.inputs
        k = KernelBuilder()
        index = k.input(indices.dtype, level="row")
        rows = k.input(table.dtype, gather=index)
        k.output(k.op("stop_gradient", rows), table.dtype)
        self.kernel = k.build()
        self.rows, self.columns = indices.size, math.prod(table.shape[1:])
        self.table_rows = table.shape[0]
        self.threads = choose_threads(self.kernel, self.rows, self.columns, native.get_threads())

    def indices(self) -> Sequence[tuple[Value, int]]:
        """Return the indices and the number of rows of the table."""
        return [(self.reads[1], self.table_rows)]

    def kernels(self) -> list[Any]:
        """Return the one kernel."""
        return [self.kernel]

    def records(self, locate: Locate) -> list[Record]:
        """Return the one record; an index out of range stops the program with status 2."""
        table, indices = self.reads
        operands = [
            arguments.Operand(locate(indices).address, (1,)),
            arguments.Operand(locate(table).address, (self.columns,), limit=table.shape[0]),
            arguments.Operand(locate(self.writes[0]).address, (self.columns,)),
        ]
        block = arguments.pack(
            self.kernel, operands, table=load_runtime().table, columns=self.columns,
            rows=self.rows, threads=self.threads,
        )  # fmt: skip
        return [Record(compile_one(self.kernel), block, f"gather from {table.shape}")]


class ScatterUnit(Unit):
    """Rows added to zeros by index, in order; 16-bit floats in float32, rounded at the end."""

    def __init__(self, node: Node) -> None:
        super().__init__("scatter", node.inputs, node.outputs)
        x, indices = node.inputs
        self.half = x.dtype in ("bfloat16", "float16")
        self.sums = Value(node.out.shape, "float32") if self.half else node.out
        k = KernelBuilder()
        index = k.input(indices.dtype, level="row")
        rows = k.input(x.dtype)
        k.output(k.op("stop_gradient", rows), self.sums.dtype, scatter=index, combine="add")
        self.kernel = k.build()
        self.zero = BlockLoop(_fill_piece(self.sums, 0.0), self.sums)
        self.round = BlockLoop(_full_piece(self.sums), node.out)
        self.scratch = nbytes_of(self.sums) if self.half else 0
        self.threads = max(self.zero.threads, self.round.threads if self.half else 1)
        self.rows, self.columns = indices.size, math.prod(node.out.shape[1:])
        self.table_rows = node.out.shape[0]

    def indices(self) -> Sequence[tuple[Value, int]]:
        """Return the indices and the number of rows of the result."""
        return [(self.reads[1], self.table_rows)]

    def kernels(self) -> list[Any]:
        """Return the kernels of zeroing, adding and rounding."""
        return [self.zero.kernel, self.kernel, *([self.round.kernel] if self.half else [])]

    def records(self, locate: Locate) -> list[Record]:
        """Return the records of zeroing, adding and rounding."""
        x, indices = self.reads
        out = self.writes[0]
        sums = locate(("scratch", self)) if self.half else locate(out)

        def find(value: Value) -> Place:
            return sums if value is self.sums else locate(value)

        operands = [
            arguments.Operand(locate(indices).address, (1,)),
            arguments.Operand(locate(x).address, (self.columns,)),
            arguments.Operand(sums.address, (self.columns,), limit=out.shape[0]),
        ]
        block = arguments.pack(
            self.kernel, operands, table=load_runtime().table, columns=self.columns,
            rows=self.rows, threads=1,
        )  # fmt: skip
        adding = Record(compile_one(self.kernel), block, f"scatter into {out.shape}")
        results = [self.zero.record(find, self.sums, "zeros"), adding]
        return [*results, self.round.record(find, out, "rounding")] if self.half else results


class ScaledRowsUnit(Unit):
    """Rows of a table, each times a number, added to zeros by index, in order."""

    def __init__(self, node: Node) -> None:
        super().__init__("sparse product", node.inputs, node.outputs)
        indices, places, factors, table = node.inputs
        k = KernelBuilder()
        place = k.input(places.dtype, level="row")
        index = k.input(indices.dtype, level="row")
        factor = k.input(factors.dtype, level="row")
        rows = k.input(table.dtype, gather=index)
        k.output(factor * rows, node.out.dtype, scatter=place, combine="add")
        self.kernel = k.build()
        self.zero = BlockLoop(_fill_piece(node.out, 0.0), node.out)
        self.rows, self.columns = indices.size, table.shape[1]
        self.flops = 2.0 * self.rows * self.columns
        self.threads = self.zero.threads

    def indices(self) -> Sequence[tuple[Value, int]]:
        """Return the rows of the table that are read, and those of the result."""
        indices, places, _, table = self.reads
        return [(indices, table.shape[0]), (places, self.writes[0].shape[0])]

    def kernels(self) -> list[Any]:
        """Return the kernels of zeroing and adding."""
        return [self.zero.kernel, self.kernel]

    def records(self, locate: Locate) -> list[Record]:
        """Return the records of zeroing and adding; an index out of range stops the program."""
        (out,) = self.writes
        indices, places, factors, table = self.reads
        operands = [
            arguments.Operand(locate(places).address, (1,)),
            arguments.Operand(locate(indices).address, (1,)),
            arguments.Operand(locate(factors).address, (1,)),
            arguments.Operand(locate(table).address, (self.columns,), limit=table.shape[0]),
            arguments.Operand(locate(out).address, (self.columns,), limit=out.shape[0]),
        ]
        block = arguments.pack(
            self.kernel, operands, table=load_runtime().table, columns=self.columns,
            rows=self.rows, threads=1,
        )  # fmt: skip
        adding = Record(compile_one(self.kernel), block, f"sparse product with {table.shape}")
        return [self.zero.record(locate, out, "zeros"), adding]


def make_scaled_rows(node: Node) -> Unit | None:
    """Return the unit of a product with a sparse matrix, else None."""
    if node.op.name != "add_scaled_rows" or node.out.size == 0 or node.inputs[0].size == 0:
        return None
    integers = all(v.dtype in ("int32", "int64") for v in node.inputs[:2])
    return ScaledRowsUnit(node) if integers and node.out.dtype == "float32" else None


def make_indexing(node: Node) -> Unit | None:
    """Return the unit for picking or adding rows along the first axis, else None."""
    if node.op.name not in ("take_rows", "add_rows") or node.attrs["axis"] != 0:
        return None
    if node.inputs[1].dtype not in ("int32", "int64") or node.out.size == 0:
        return None
    if not node.inputs[1].size or node.inputs[0].dtype == "string":
        return None
    if node.op.name == "add_rows" and node.out.dtype == "bool":
        return None  # bytes are added there, but True and True must be True
    return GatherUnit(node) if node.op.name == "take_rows" else ScatterUnit(node)
