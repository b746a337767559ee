"""Convolutions of small images as products: one for each tap of the kernel and run of pixels.

At the edges of an image, taps lie outside: of 2x2 pixels and a 3x3 kernel, 20 of 36 pairs of a tap
and a pixel. A convolution of oneDNN multiplies them by zeros, and reorders the kernel, which is
larger than the images. These products do neither. With 512 channels, images of 2x2 and 3x3 pixels
take 0.35 to 0.6 of its time, and steps of two from 6x6 to 3x3 pixels 0.5 to 0.9.

A data gradient is computed as [pixels, channels, samples]: the kernel is then the left factor, as
it is stored; it would be copied as a transposed right one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from kerasish.backends import onednn
from kerasish.backends.onednn import native
from kerasish.backends.onednn.convolution import Geometry
from kerasish.backends.onednn.primitive import Buffer, Primitive
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.lowering.columns import taps
from kerasish.backends.static.lowering.convolutions import geometry_of
from kerasish.backends.static.lowering.library import ADDING, contiguous
from kerasish.backends.static.lowering.moves import BlockLoop, Piece
from kerasish.backends.static.lowering.units import (
    Locate,
    Place,
    RecreatedUnit,
    Unit,
    nbytes_of,
    zero_records,
)
from kerasish.graph.ir import Node, Value

LEAST_FLOPS = 8e6  # of a product of one pixel of all samples; a smaller one is mostly overhead
LEAST_SAMPLES = 16  # with fewer, a product takes as long as reading the kernel
INSIDE = 0.8  # the largest share of pairs of a tap and a pixel that are inside the images
MOST_PRODUCTS = 64


class _Run(NamedTuple):
    """Pixels that meet a tap, as rows of two matrices: offsets and steps count elements."""

    rows: int
    x: int
    x_step: int
    y: int
    y_step: int


class _Call(NamedTuple):
    """A product, and for each argument the value and the first element of its part."""

    product: Primitive
    parts: dict[str, tuple[Value, int]]


class FewPixelsUnit(RecreatedUnit):
    """A convolution, or one of its two gradients.

    Args:
        node: what is computed.
        bias: added along the last axis.
        out: the value of the result.
        added: what `out` holds before, if the convolution is added to it.
    """

    safe = True

    def __init__(self, node: Node, bias: Value | None, out: Value, added: Value | None) -> None:
        super().__init__(node.op.name, [v for v in (*node.inputs, bias, added) if v], [out])
        self.made_of = node, bias, out, added
        self.g, self.bias, self.added = _geometry(node), bias, added is not None
        self.calls: list[_Call] = []
        self.zeros: list[tuple[Value, int, int]] = []  # value, first element, elements
        self.turned = out
        self.move: BlockLoop | None = None
        first, second = node.inputs
        if node.op.name == "convolution":
            self._forward(first, second, out)
        elif node.op.name == "convolution_data_gradient":
            self._data_gradient(first, second, out)
        else:
            self._kernel_gradient(first, second, out)
        self.flops = sum(call.product.flops for call in self.calls)
        self.threads = max(call.product.threads for call in self.calls)
        self._workspace = max(call.product.scratchpad_bytes for call in self.calls)
        own = 0 if self.move is None else -(-nbytes_of(self.turned) // 64) * 64
        self.scratch = own + self._workspace

    def _forward(self, x: Value, kernel: Value, y: Value) -> None:
        (channels, filters), size = kernel.shape[-2:], math.prod(kernel.shape[-2:])
        all_runs = sorted(_runs(self.g), key=lambda tap: -sum(run.rows for run in tap[1]))
        begins = all_runs[0][1][0].rows == y.size // filters  # the first product sets all of y
        if not (begins or self.added):
            self.zeros.append((y, 0, y.size))
        for tap, runs in all_runs:
            for run in runs:
                first = not self.calls
                sets = first and begins and not self.added
                product = onednn.matmul(
                    (run.rows, channels), (channels, filters), a_strides=(run.x_step, 1),
                    out_strides=(run.y_step, 1), post=() if sets else ADDING,
                    bias="float32" if first and self.bias is not None else None,
                )  # fmt: skip
                parts = {"a": (x, run.x), "b": (kernel, tap * size), "out": (y, run.y)}
                if first and self.bias is not None:
                    parts["bias"] = (self.bias, 0)
                self.calls.append(_Call(product, parts))

    def _data_gradient(self, dy: Value, kernel: Value, dx: Value) -> None:
        channels, filters = kernel.shape[-2:]
        samples = dx.shape[0]
        size, pixels = channels * samples, dx.size // (channels * samples)
        self.turned = Value((pixels, channels, samples), dx.dtype)
        piece = Piece(
            self.turned, (samples, pixels, channels), (1, size, samples), 0,
            contiguous((samples, pixels, channels)), 0,
        )  # fmt: skip
        self.move = BlockLoop(piece, dx, adds=self.added)
        begun = set()
        for tap, runs in _runs(self.g, by_sample=True):
            for run in runs:
                pixel = run.x // channels
                product = onednn.matmul(
                    (channels, filters), (filters, samples), b_strides=(1, run.y_step),
                    post=ADDING if pixel in begun else (),
                )  # fmt: skip
                begun.add(pixel)
                parts = {"a": (kernel, tap * channels * filters), "b": (dy, run.y)}
                self.calls.append(_Call(product, {**parts, "out": (self.turned, pixel * size)}))
        rest = set(range(pixels)) - begun
        self.zeros += [(self.turned, pixel * size, size) for pixel in sorted(rest)]

    def _kernel_gradient(self, x: Value, dy: Value, out: Value) -> None:
        (channels, filters), size = out.shape[-2:], math.prod(out.shape[-2:])
        rest = set() if self.added else set(range(math.prod(out.shape[:-2])))
        for tap, runs in _runs(self.g):
            for run in runs:
                product = onednn.matmul(
                    (channels, run.rows), (run.rows, filters), a_strides=(1, run.x_step),
                    b_strides=(run.y_step, 1), post=() if tap in rest else ADDING,
                )  # fmt: skip
                rest.discard(tap)
                parts = {"a": (x, run.x), "b": (dy, run.y), "out": (out, tap * size)}
                self.calls.append(_Call(product, parts))
        self.zeros += [(out, tap * size, size) for tap in sorted(rest)]

    def kernels(self) -> list[Any]:
        """Return the kernel that writes a data gradient in the order of its axes."""
        return [] if self.move is None else [self.move.kernel]

    def records(self, locate: Locate) -> list[Record]:
        """Return the zeros, the products and the move."""
        scratch = locate(("scratch", self)) if self.scratch else Place(0, 0)
        turned = Place(scratch.address + self._workspace, scratch.nbytes - self._workspace)

        def find(value: Value) -> Place:
            return turned if self.move and value is self.turned else locate(value)

        def part(value: Value, first: int) -> Buffer:
            place = find(value)
            return Buffer(place.address + 4 * first, place.nbytes - 4 * first)

        results = []
        for value, first, size in self.zeros:
            results += zero_records(Place(find(value).address + 4 * first, 4 * size))
        for product, parts in self.calls:
            buffers = {name: part(*which) for name, which in parts.items()}
            if product.scratchpad_bytes:
                buffers["scratchpad"] = Buffer(scratch.address, product.scratchpad_bytes)
            binding = product.bind(buffers)
            results.append(Record(load_runtime().call_dnnl, binding.block, self.name, binding))
        if self.move:
            results.append(self.move.record(find, self.writes[0], f"result of {self.name}"))
        return results


def _geometry(node: Node) -> Geometry:
    first, second = (v.shape for v in node.inputs)
    if node.op.name == "convolution_data_gradient":
        first = node.out.shape
    elif node.op.name == "convolution_kernel_gradient":
        second = node.out.shape
    return geometry_of(first, second, node.attrs)


def _runs(g: Geometry, by_sample: bool = False) -> Iterator[tuple[int, list[_Run]]]:
    """Yield each tap that meets a pixel, and the runs of pixels that it meets.

    Args:
        by_sample: whether a run is one pixel of all samples.
    """
    x_steps, y_steps = contiguous(g.x_shape), contiguous(g.y_shape)
    along = [step * stride for step, stride in zip(x_steps[1:-1], g.strides, strict=True)]
    for tap, first, counts, starts in taps(g):
        axes = [(g.x_shape[0], x_steps[0], y_steps[0])]
        for axis in zip(counts, along, y_steps[1:-1], strict=True):
            size, x_step, y_step = axes[-1]
            if not by_sample and (x_step, y_step) == (axis[0] * axis[1], axis[0] * axis[2]):
                axes[-1] = (size * axis[0], *axis[1:])
            elif axis[0] > 1:
                axes.append(axis)
        rows = axes[0] if by_sample else max(axes)
        axes.remove(rows)
        places = [
            (sum(a * b for a, b in zip(x_steps[1:], starts)),
             sum(a * b for a, b in zip(y_steps[1:], first)))
        ]  # fmt: skip
        for size, x_step, y_step in axes:
            places = [(x + i * x_step, y + i * y_step) for x, y in places for i in range(size)]
        yield tap, [_Run(rows[0], x, rows[1], y, rows[2]) for x, y in places]


def _pays(g: Geometry) -> bool:
    """Return whether products take less time than the primitive of oneDNN."""
    samples, pixels = g.y_shape[0], math.prod(g.y_shape[1:-1])
    if g.groups != 1 or samples < LEAST_SAMPLES:
        return False
    if 2.0 * samples * g.x_shape[-1] * g.filters < LEAST_FLOPS or pixels > MOST_PRODUCTS:
        return False
    products = sum(math.prod(counts) for _, _, counts, _ in taps(g))
    return products <= min(MOST_PRODUCTS, INSIDE * pixels * math.prod(g.kernel))


def make_few_pixels(
    node: Node, bias: Value | None = None, out: Value | None = None, added: Value | None = None
) -> Unit | None:
    """Return the unit of a convolution or a gradient of small images; None where it is not faster.

    Args:
        bias: added along the last axis.
        out: the value of the result; None: the node's output.
        added: what `out` holds before, if the convolution is added to it.
    """
    values = (*node.inputs, node.out)
    if not node.op.name.startswith("convolution") or {v.dtype for v in values} != {"float32"}:
        return None
    if native.available() or any(v.size == 0 for v in values) or not _pays(_geometry(node)):
        return None
    unit = FewPixelsUnit(node, bias, out or node.out, added)
    return None if bias is not None and unit.zeros else unit
