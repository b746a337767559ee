"""Kernel gradients of 2D convolutions in generated loops, where these are faster than oneDNN's.

Those of most 3x3 kernels in float32 take fewer products, see `winograd_gradients.py`. Others are
sums over the pixels. For the 3x3 kernels of ResNets and U-Nets, with AVX-512, these loops take 0.75
to 0.97 of oneDNN's time in float32 and 0.5 to 0.85 in bfloat16. With strides, oneDNN is as fast in
float32.
"""

from __future__ import annotations

import math
from typing import Any

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import kernel_gradient
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernel_gradient import LANES, KernelGradient, inside_taps
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.lowering.units import Locate, Unit
from kerasish.backends.static.lowering.winograd_gradients import (
    flops,
    make_winograd_gradient,
)
from kerasish.backends.static.machine.machine_code import host_target
from kerasish.graph.ir import Node

GRAIN = 500_000.0  # FLOPs per thread
LEAST_FLOPS = 4e6  # with fewer, compilation takes longer than what a training saves
LEAST_PIXELS = 16  # per image; with fewer, too much time is spent at its edges
BALANCED = 0.85  # the least share of the threads that works on average
TAPS = (2, 3, 4, 5)


class KernelGradientUnit(Unit):
    """The gradient of a 2D convolution with respect to its kernel."""

    safe = True

    def __init__(self, node: Node, kernel: KernelGradient, ends: list[int]) -> None:
        super().__init__(node.op.name, node.inputs, node.outputs)
        self.kernel, self.sizes, self.ends = kernel, _sizes(node), ends
        self.x, self.dy = node.inputs
        samples, height = self.dy.shape[:2]
        self.rows = samples * height
        self.flops = flops(node)
        self.threads = native.threads_for(self.flops, GRAIN)
        self.sums = 0
        self.sizes |= {"samples": samples, "x_copy": 0, "copies": 0}
        if kernel.pairs:
            self.rows = (samples + 1) // 2 * height
            x_copy, copies = kernel_gradient.copied_bytes(self.sizes, self.rows)
            self.sizes |= {"x_copy": x_copy, "copies": copies}
            self.sums = -(-4 * node.out.size // 64) * 64
            self.scratch = self.sums + self.threads * copies

    def kernels(self) -> list[KernelGradient]:
        """Return the one kernel."""
        return [self.kernel]

    def records(self, locate: Locate) -> list[Record]:
        """Return the one record."""
        x, dy = locate(self.x).address, locate(self.dy).address
        out = locate(self.writes[0]).address
        scratch = locate(("scratch", self)).address if self.scratch else 0
        sums = scratch or out
        block = kernel_gradient.pack(
            table=load_runtime().table, threads=self.threads, rows=self.rows, sizes=self.sizes,
            ends=self.ends, x=x, dy=dy, sums=sums, out=out, scratch=scratch + self.sums,
        )  # fmt: skip
        return [Record(compile_one(self.kernel), block, self.name)]


def _sizes(node: Node) -> dict[str, int]:
    (x, dy), attrs = node.inputs, node.attrs
    return {
        "dy_height": dy.shape[1], "dy_width": dy.shape[2], "height": x.shape[1],
        "width": x.shape[2], "channels": x.shape[3], "filters": dy.shape[3],
        "kernel_height": node.out.shape[0], "stride": attrs["strides"][0],
        "dilation": attrs["dilation"][0], "top": attrs["padding"][0][0],
        "left": attrs["padding"][1][0],
    }  # fmt: skip


def _ends(node: Node) -> list[int] | None:
    """Return the ends of the parts of a row, see `inside_taps`; None if a row has other parts."""
    (x, dy), attrs, taps = node.inputs, node.attrs, node.out.shape[1]
    stride, apart, left = attrs["strides"][1], attrs["dilation"][1], attrs["padding"][1][0]
    inside = []
    for p in range(dy.shape[2]):
        places = [p * stride + k * apart - left for k in range(taps)]
        inside.append([k for k, q in enumerate(places) if 0 <= q < x.shape[2]])
    first = next((p for p, own in enumerate(inside) if own), 0)
    ends = [first]
    for part in inside_taps(taps):
        ends.append(ends[-1])
        while ends[-1] < len(inside) and inside[ends[-1]] == list(part):
            ends[-1] += 1
    return None if any(inside[ends[-1] :]) else ends


def make_kernel_gradient(node: Node) -> Unit | None:
    """Return the unit of a kernel gradient; None for other nodes, and where oneDNN is as fast."""
    if node.op.name != "convolution_kernel_gradient":
        return None
    few = math.prod(node.inputs[1].shape[1:-1]) < LEAST_PIXELS
    unit = make_winograd_gradient(node, skips=not few)
    if unit is not None:
        return unit
    kernel = _structure(node, node.attrs)
    if kernel is None or host_target().lanes != LANES or flops(node) < LEAST_FLOPS:
        return None
    (_, _, width, filters), channels = node.inputs[1].shape, node.inputs[0].shape[3]
    if channels % kernel.channels or filters % kernel.filters or few:
        return None
    rows = (node.inputs[0].shape[2] * channels, width * filters)
    if kernel.pairs and min(rows) < kernel_gradient.LEAST_COPIED:
        return None
    ends = _ends(node)
    if ends is None:
        return None
    direct = KernelGradientUnit(node, kernel, ends)
    tiles = node.out.size // (kernel.taps * kernel.channels * kernel.filters)
    rounds = -(-tiles // direct.threads)
    return direct if tiles >= BALANCED * rounds * direct.threads else None


def _structure(node: Node, attrs: dict[str, Any]) -> KernelGradient | None:
    dtypes = {v.dtype for v in (*node.inputs, node.out)}
    if len(node.out.shape) != 4 or attrs["groups"] != 1 or node.out.shape[1] not in TAPS:
        return None
    strided = attrs["strides"][1] > 1
    pairs = dtypes == {"bfloat16"} and host_target().bfloat16
    if not pairs and (strided or dtypes != {"float32"}):
        return None
    vectors = 2 if node.out.shape[2 if pairs else 3] % (2 * LANES) == 0 else 1
    stride, apart = attrs["strides"][1], attrs["dilation"][1]
    return KernelGradient(node.out.dtype, node.out.shape[1], vectors, stride, apart)
