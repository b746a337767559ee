"""Attention heads as one record: see `codegen/attention.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import attention
from kerasish.backends.static.codegen.attention import Heads, HeadsOperand, Sizes
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.lowering.batch_axes import Batch, batch_of
from kerasish.backends.static.lowering.library import View, contiguous
from kerasish.backends.static.lowering.units import Locate, Unit
from kerasish.graph.ir import Node, Value
from kerasish.graph.passes.fuse_attention import GRADIENT, AttentionBody

GRAIN = 1e6  # FLOPs per thread, about 12 microseconds


class AttentionUnit(Unit):
    """The heads of a node.

    Args:
        node: an `attention` or `attention_gradient` node.
        kernel: the structure of the loop.
        sizes: of the heads.
        low: the value of masked logits.
        operands: root and strides of each operand of the loop.
    """

    safe = True

    def __init__(
        self, node: Node, kernel: Heads, sizes: Sizes, low: float,
        operands: Sequence[tuple[Value, tuple[int, ...]]],
    ) -> None:  # fmt: skip
        reads = [v for v, _ in operands if v not in node.outputs]
        super().__init__(node.op.name, list(dict.fromkeys(reads)), node.outputs)
        self.kernel, self.sizes = kernel, sizes
        self._low, self._operands = low, tuple(operands)
        by_keys, by_values = attention.PRODUCTS[kernel.backward]
        heads = math.prod(sizes.batch)
        terms = by_keys * sizes.size + by_values * sizes.values
        self.flops = 2.0 * heads * sizes.targets * sizes.sources * terms
        self.threads = min(heads, native.threads_for(self.flops, GRAIN))
        self.scratch = self.threads * attention.scratch_size(kernel, sizes) + 64

    def kernels(self) -> list[Any]:
        """Return the one kernel."""
        return [self.kernel]

    def records(self, locate: Locate) -> list[Record]:
        """Return the one record."""
        block = attention.pack(
            self.kernel, table=load_runtime().table, threads=self.threads, sizes=self.sizes,
            scratch=locate(("scratch", self)).address, low=self._low,
            operands=[HeadsOperand(locate(v).address, steps) for v, steps in self._operands],
        )  # fmt: skip
        return [Record(compile_one(self.kernel), block, self.name)]


def make_attention(
    node: Node, views: Sequence[View], constants: Mapping[Value, Any]
) -> AttentionUnit | None:
    """Return the unit of attention heads, or None where their layout does not fit.

    Args:
        node: an `attention` or `attention_gradient` node.
        views: of its inputs.
        constants: the graph's.
    """
    body: AttentionBody = node.attrs["body"]
    backward = node.op is GRADIENT
    kernel = Heads(backward, body.masked, body.twice)
    if any(v.dtype != "float32" for v in node.outputs):
        return None
    q, kt, v = views[:3]
    named = {"q": q, "k": _turned(kt), "v": v}
    rest = list(views[3:])
    if backward:
        named.update(maxima=rest.pop(0), sums=rest.pop(0), g=rest.pop(0))
    frame = (*q.shape[:-1], kt.shape[-1])
    low = 0.0
    if body.masked:
        named["mask"] = _spread(rest[0], frame)
        low = float(np.asarray(constants[rest[1].root]).reshape(()))
    names = ("dq", "dk", "dv") if backward else ("out", "maxima", "sums")
    axes = [*body.axes, *[tuple(range(len(frame)))] * 2][:3]
    for name, value, order in zip(names, node.outputs, axes, strict=True):
        named[name] = _written(value, order)
    if any(x.strides[-1] != 1 for name, x in named.items() if x.shape[-1] != 1):
        return None
    batch = batch_of(frame[:-2], [named[name].strides[:-2] for name in kernel.names])
    if batch is None:
        return None
    sizes = Sizes(batch.sizes, frame[-2], frame[-1], q.shape[-1], v.shape[-1])
    operands = [_operand(named[name], batch, i) for i, name in enumerate(kernel.names)]
    return AttentionUnit(node, kernel, sizes, low, operands)


def _operand(view: View, batch: Batch, number: int) -> tuple[Value, tuple[int, ...]]:
    return view.root, (*batch.strides[number], view.strides[-2], 1)


def _turned(view: View) -> View:
    """Return the view with its last two axes swapped."""
    shape, steps = view.shape, view.strides
    return View(view.root, (*shape[:-2], shape[-1], shape[-2]), (*steps[:-2], steps[-1], steps[-2]))


def _spread(view: View, frame: tuple[int, ...]) -> View:
    """Return a view that repeats itself along the axes that it lacks."""
    lead = len(frame) - len(view.shape)
    steps = [0 if size == 1 else step for size, step in zip(view.shape, view.strides)]
    return View(view.root, frame, (*(0,) * lead, *steps))


def _written(value: Value, axes: Sequence[int]) -> View:
    """Return a result as a matrix; it stores the axes in this order."""
    steps = contiguous(value.shape)
    places = [axes.index(i) for i in range(len(axes))]
    return View(value, tuple(value.shape[p] for p in places), tuple(steps[p] for p in places))
