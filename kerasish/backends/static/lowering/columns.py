"""Convolutions without oneDNN: im2col and a BLAS product."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from kerasish.backends.onednn.convolution import Geometry
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.lowering import blas
from kerasish.backends.static.lowering.convolutions import geometry_of
from kerasish.backends.static.lowering.library import buffer, contiguous
from kerasish.backends.static.lowering.moves import BlockLoop, Piece, _fill_piece
from kerasish.backends.static.lowering.units import Locate, Place, Unit, nbytes_of
from kerasish.graph.ir import Node, Value

LARGEST = 1 << 28  # bytes of columns; NumPy's kernels need less memory
MOST_GROUPS = 8  # each group needs a separate product


def taps(g: Geometry) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """Yield, for each kernel position that overlaps the data, its number, the first window in which
    it does, the number of such windows along each axis, and where the first one reads the data.
    """
    for number, place in enumerate(itertools.product(*map(range, g.kernel))):
        first, counts, starts = [], [], []
        axes = zip(
            place, g.x_shape[1:-1], g.y_shape[1:-1], g.strides, g.dilations, g.padding, strict=True
        )
        for at, size, windows, stride, dilation, (before, _) in axes:
            shift = at * dilation - before
            low = max(0, -(shift // stride))
            high = min(windows - 1, (size - 1 - shift) // stride)
            first.append(low)
            counts.append(high - low + 1)
            starts.append(low * stride + shift)
        if min(counts) > 0:
            yield number, tuple(first), tuple(counts), tuple(starts)


def column_moves(
    g: Geometry, data: Value, columns: Value, spread: bool = False
) -> list[tuple[BlockLoop, Value]]:
    """Return the moves that fill the columns from the data, or (`spread`) add them to the data."""
    to = data if spread else columns
    pieces = list(_pieces(g, data, columns, spread))
    results = [(BlockLoop(p, to, adds=spread), to) for p in pieces]
    full = sum(math.prod(p.shape) for p in pieces) == columns.size
    if spread or not full:
        results.insert(0, (BlockLoop(_fill_piece(to, 0.0), to), to))
    return results


def _pieces(g: Geometry, of: Value, to: Value, spread: bool) -> Iterator[Piece]:
    n, inputs = g.x_shape[0], g.x_shape[-1] // g.groups
    data_steps = contiguous(g.x_shape)
    shape = (n, *g.y_shape[1:-1], g.groups, math.prod(g.kernel), inputs)
    steps = contiguous(shape)
    along = [s * stride for s, stride in zip(data_steps[1:-1], g.strides)]
    data = (data_steps[0], *along, inputs, 1)
    columns = (*steps[: len(g.kernel) + 1], steps[-3], 1)
    for number, first, counts, starts in taps(g):
        size = (n, *counts, g.groups, inputs)
        of_data = sum(s * at for s, at in zip(data_steps[1:], starts))
        of_columns = sum(s * at for s, at in zip(steps[1:], first)) + number * inputs
        if spread:
            yield Piece(to, size, columns, of_columns, data, of_data)
        else:
            yield Piece(of, size, data, of_data, columns, of_columns)


class ColumnsUnit(Unit):
    """A convolution, or one of its two gradients."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.op.name, node.inputs, node.outputs)
        a, b, out = *node.inputs, node.out
        shapes = {
            "convolution": (a.shape, b.shape),
            "convolution_data_gradient": (out.shape, b.shape),
            "convolution_kernel_gradient": (a.shape, out.shape),
        }
        self.g = g = geometry_of(*shapes[node.op.name], node.attrs)
        self.spread = node.op.name == "convolution_data_gradient"
        self.data = out if self.spread else a
        gemms = blas.convolution_gemms(g, out.dtype)
        self.columns = Value(gemms.columns, out.dtype)
        self.scratch = nbytes_of(self.columns)
        if self.spread:
            self.gemm, self.ends = gemms.data_gradient, {"a": a, "b": b, "out": self.columns}
        elif node.op.name == "convolution":
            self.gemm, self.ends = gemms.forward, {"a": self.columns, "b": b, "out": out}
        else:
            self.gemm, self.ends = gemms.weights_gradient, {"a": self.columns, "b": b, "out": out}
        self.moves = column_moves(g, self.data, self.columns, self.spread)
        self.flops = g.flops

    def kernels(self) -> list[Any]:
        """Return the kernels of the moves."""
        return [loop.kernel for loop, _ in self.moves]

    def records(self, locate: Locate) -> list[Record]:
        """Return the moves into columns and the products, or the products and the moves out."""
        scratch = locate(("scratch", self))

        def find(value: Value) -> Place:
            return scratch if value is self.columns else locate(value)

        binding = self.gemm.bind({name: buffer(find(v)) for name, v in self.ends.items()})
        call = load_runtime().call_blas
        products = [Record(call, block, self.name, binding) for block in binding.blocks]
        moves = [loop.record(find, to, f"columns of {self.name}") for loop, to in self.moves]
        return [*products, *moves] if self.spread else [*moves, *products]


def make_columns(node: Node) -> Unit | None:
    """Return the unit for a convolution node; None if im2col cannot compute it."""
    if any(v.size == 0 for v in (*node.inputs, node.out)) or node.attrs["groups"] > MOST_GROUPS:
        return None
    if node.out.dtype not in ("float32", "float64") or blas.available():
        return None
    try:
        unit = ColumnsUnit(node)
    except ValueError:
        return None
    return unit if unit.scratch <= LARGEST else None
