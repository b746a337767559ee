"""Units that need no library for ops without other kernels: orders, indices, plain products."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from kerasish.backends.static.codegen import plain
from kerasish.backends.static.codegen.driver import load_runtime
from kerasish.backends.static.codegen.plain import (
    Indexed,
    Lines,
    Plain,
    PlainProduct,
    Search,
    Term,
)
from kerasish.backends.static.lowering.library import View, contiguous
from kerasish.backends.static.lowering.moves import BlockLoop, Piece, _fill_piece, _full_piece
from kerasish.backends.static.lowering.standalone_units import StandaloneStep, StandaloneUnit
from kerasish.backends.static.lowering.units import Locate, Unit
from kerasish.graph.ir import Node, Value
from kerasish.ops import dtypes

_WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_HALVES = ("float16", "bfloat16")


class PlainUnit(StandaloneUnit):
    """A kernel of `codegen.plain`, after a fill of the result if one is needed.

    Args:
        node: the op; it has one result.
        kernel: its code.
        fill: what the result holds before the kernel runs; None: nothing.
    """

    def __init__(self, node: Node, kernel: Plain, fill: Piece | None = None) -> None:
        super().__init__(node.op.name, node.inputs, node.outputs)
        self.kernel = kernel
        self.fill = None if fill is None else BlockLoop(fill, node.out)
        # The first of three inputs is copied; the kernel reads updates and indices.
        self.operands = node.inputs[:0:-1] if len(node.inputs) == 3 else node.inputs
        self.scratch = plain.scratch_size(kernel)

    def kernels(self) -> list[Plain | object]:
        """Return the kernels of the filling and of the op."""
        return [*([] if self.fill is None else [self.fill.kernel]), self.kernel]

    def steps(self, locate: Locate) -> Iterator[StandaloneStep]:
        """Yield the filling and the op."""
        if self.fill is not None:
            record = self.fill.record(locate, self.writes[0], self.name)
            yield StandaloneStep(
                self.fill.kernel, tuple(int(w) for w in record.block), name=self.name
            )
        places = [locate(v).address for v in (*self.operands, *self.writes)]
        if self.scratch:
            places.append(locate(("scratch", self)).address)
        yield StandaloneStep(self.kernel, (load_runtime().table, *places), name=self.name)


class PlainProductUnit(StandaloneUnit):
    """A product of matrices of any dtype and strides."""

    def __init__(self, a: View, b: View, out: Value) -> None:
        super().__init__("product", [a.root, b.root], [out])
        rows, columns = len(a.shape) > 1, len(b.shape) > 1
        lead = out.shape[: len(out.shape) - rows - columns]
        left = a.strides[-2:] if rows else (0, *a.strides)
        right = b.strides[-2:] if columns else (*b.strides, 0)
        sizes = (a.shape[-2] if rows else 1, b.shape[-1] if columns else 1, a.shape[-1])
        self.kernel = PlainProduct(
            out.dtype, lead, sizes, (*_batch(a, len(lead)), *left), (*_batch(b, len(lead)), *right)
        )

    def kernels(self) -> list[Plain]:
        """Return the one kernel."""
        return [self.kernel]

    def steps(self, locate: Locate) -> Iterator[StandaloneStep]:
        """Yield the one call."""
        places = [locate(v).address for v in (*self.reads, *self.writes)]
        yield StandaloneStep(self.kernel, (load_runtime().table, *places), name=self.name)


def _batch(view: View, count: int) -> tuple[int, ...]:
    """Return the strides of `count` leading axes; 0 where a factor has none, or one of size 1."""
    own = [0 if n == 1 else s for n, s in zip(view.shape[:-2], view.strides)]
    return (*[0] * (count - len(own)), *own)


def make_plain_product(a: View, b: View, out: Value) -> Unit | None:
    """Return the unit of a product of equal dtypes; None where they differ, or are complex."""
    kinds = {a.root.dtype, b.root.dtype, out.dtype}
    if len(kinds) != 1 or not _numbers(out.dtype) or out.dtype in _HALVES:
        return None
    return PlainProductUnit(a, b, out)


def make_plain(node: Node) -> Unit | None:
    """Return the unit of an op along lines, a search or an op with indices; None for others."""
    make = _MAKE.get(node.op.name)
    if make is None or node.out.size == 0 or not all(_numbers(v.dtype) for v in node.inputs):
        return None
    return make(node)


def _numbers(dtype: str) -> bool:
    return dtypes.is_float(dtype) or dtype == "bool" or dtype in _WHOLE


def _lines(node: Node) -> Unit | None:
    (x,) = node.inputs
    axis = node.attrs["axis"]
    shape = (x.size,) if axis is None else x.shape
    axis = 0 if axis is None else axis % len(shape)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    if x.size == 0 or shape[axis] >= 2**31:
        return None
    kernel = Lines(node.op.name, x.dtype, node.out.dtype, outer, shape[axis], inner)
    return PlainUnit(node, kernel)


def _search(node: Node) -> Unit | None:
    sequence, values = node.inputs
    if sequence.dtype != values.dtype:
        return None
    side = node.attrs["side"]
    return PlainUnit(node, Search(values.dtype, side, sequence.size, values.size))


def _term(indices: Value, steps: Sequence[int], axis: int, indexed: Value, offset: int = 0) -> Term:
    stride = contiguous(indexed.shape)[axis]
    return Term(tuple(steps), offset, indexed.shape[axis], stride)


def _rows(node: Node) -> tuple[Value, tuple[int, ...], tuple[int, ...], list[Term]]:
    """Return indexed value, places, its steps and tables of `take_rows` or `add_rows`."""
    x, indices = node.inputs
    adds = node.op.name == "add_rows"
    indexed, axis, rank = (node.out if adds else x), node.attrs["axis"], len(indices.shape)
    axis %= len(indexed.shape)
    shape = (*indexed.shape[:axis], *indices.shape, *indexed.shape[axis + 1 :])
    strides = contiguous(indexed.shape)
    far = (*strides[:axis], *[0] * rank, *strides[axis + 1 :])
    steps = (*[0] * axis, *contiguous(indices.shape), *[0] * (len(shape) - axis - rank))
    return indexed, shape, far, [_term(indices, steps, axis, indexed)]


def _along(node: Node) -> tuple[Value, tuple[int, ...], tuple[int, ...], list[Term]]:
    """Return the same of `pick_along_axis` or `add_along_axis`."""
    x, indices = node.inputs
    adds = node.op.name == "add_along_axis"
    indexed, axis = (node.out if adds else x), node.attrs["axis"] % len(indices.shape)
    shape = x.shape if adds else node.out.shape
    own, tables = contiguous(indexed.shape), contiguous(indices.shape)
    far = tuple(
        0 if i == axis or n == 1 else step for i, (n, step) in enumerate(zip(indexed.shape, own))
    )
    steps = tuple(0 if n == 1 else step for n, step in zip(indices.shape, tables))
    return indexed, shape, far, [_term(indices, steps, axis, indexed)]


def _at(node: Node) -> tuple[Value, tuple[int, ...], tuple[int, ...], list[Term]]:
    """Return the same of `read_at`, `add_at`, `write_at` or `combine_at`."""
    indices = node.inputs[1]
    indexed = node.out if node.op.name == "add_at" else node.inputs[0]
    count, places = indices.shape[-1], indices.shape[:-1]
    shape = (*places, *indexed.shape[count:])
    far = (*[0] * len(places), *contiguous(indexed.shape)[count:])
    steps = (*contiguous(indices.shape)[:-1], *[0] * (len(shape) - len(places)))
    terms = [_term(indices, steps, axis, indexed, axis) for axis in range(count)]
    return indexed, shape, far, terms


_PLACES = {
    "take_rows": _rows, "add_rows": _rows, "pick_along_axis": _along, "add_along_axis": _along,
    "read_at": _at, "add_at": _at, "write_at": _at, "combine_at": _at,
}  # fmt: skip


def _indexing(node: Node) -> Unit | None:
    name, x, indices = node.op.name, node.inputs[0], node.inputs[1]
    if indices.dtype not in _WHOLE:
        return None
    combine = name.partition("_")[0]
    combine = {"take": "pick", "read": "pick", "write": "set"}.get(combine, combine)
    combine = node.attrs["how"] if combine == "combine" else combine
    if combine == "add" and (x.dtype in _HALVES or x.dtype == "bool"):
        return None  # their sums are rounded once
    if combine == "mul" and x.dtype == "bool":
        return None
    _, shape, far, terms = _PLACES[name](node)
    near, fill = contiguous(shape), None
    if name in ("write_at", "combine_at"):
        updates = node.inputs[2]
        if updates.dtype != x.dtype:
            return None
        near = _broadcast_steps(updates.shape, len(shape))
        fill = _full_piece(x)
    elif combine == "add":
        fill = _fill_piece(node.out, 0.0)
    if 0 in shape:
        return None
    kernel = Indexed(x.dtype, indices.dtype, combine, shape, near, far, tuple(terms))
    return PlainUnit(node, kernel, fill)


def _broadcast_steps(shape: Sequence[int], count: int) -> tuple[int, ...]:
    own = [0 if n == 1 else step for n, step in zip(shape, contiguous(shape))]
    return (*[0] * (count - len(own)), *own)


_MAKE = {
    "argsort": _lines, "argmax": _lines, "argmin": _lines, "running_sum": _lines,
    "searchsorted": _search, **dict.fromkeys(_PLACES, _indexing),
}  # fmt: skip
