"""3x3 convolutions and their data gradients by Winograd's minimal filtering, with AVX-512.

The data gradient is the convolution of the output's gradient by the flipped kernel, whose channels
and filters are exchanged.
"""

from __future__ import annotations

import math

import numpy as np

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import winograd, winograd_kernel
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.codegen.winograd import LANES, PRODUCTS, TILES, Winograd
from kerasish.backends.static.codegen.winograd_kernel import TAPS, WinogradKernel
from kerasish.backends.static.lowering.library import if_stale
from kerasish.backends.static.lowering.units import Locate, Unit
from kerasish.backends.static.machine.machine_code import host_target
from kerasish.graph.ir import Node, Value

GRAIN = 500_000.0  # FLOPs per thread
LEAST_FLOPS = 4e6  # with fewer, compilation takes longer than what a training saves
# The time of the transform of a kernel (of a flipped one), in products of each of its weights, and
# the most that the products of both may be of those of direct sums. Measured on images of 1x1 to
# 56x56 pixels and 16 to 512 channels: with less, it took 0.55 to 0.9 of oneDNN's time.
TRANSFORM, FLIPPED_TRANSFORM = 320, 480
MOST_PRODUCTS = 0.85


class WinogradUnit(Unit):
    """A convolution or its data gradient.

    Args:
        node: what is computed.
        bias: added along the last axis.
        out: the value of the result; None: the node's output.
        added: what `out` holds before, if the convolution is added to it.
        relu: whether it is applied, after the bias.
    """

    safe = True

    def __init__(
        self, node: Node, bias: Value | None = None, out: Value | None = None,
        added: Value | None = None, relu: bool = False,
    ) -> None:  # fmt: skip
        out = out or node.out
        super().__init__(node.op.name, [v for v in (*node.inputs, bias, added) if v], [out])
        self.x, self.kernel, self.bias = *node.inputs, bias
        self.sizes = _sizes(node)
        channels, filters = self.sizes["channels"], self.sizes["filters"]
        flipped, vectors = node.op.name != "convolution", 1 if filters % (2 * LANES) else 2
        self.transform = WinogradKernel(vectors, flipped)
        self.winograd = Winograd(vectors, bias is not None, relu, added is not None)
        self.flops = 2.0 * PRODUCTS * self.sizes["tiles"] * channels * filters
        self.threads = native.threads_for(self.flops, GRAIN)
        self.sizes["each"] = _tiles_at_a_time(self.sizes["tiles"], self.threads, self.winograd.rows)
        self.sizes["scratch_bytes"] = _round(winograd.scratch_bytes(vectors, channels))
        self.transformed = 4 * PRODUCTS * channels * filters
        self.copied = 4 * TAPS * channels * filters if flipped else 0
        self._own_bytes = self.threads * self.sizes["scratch_bytes"]
        self.scratch = self._own_bytes + self.transformed + self.copied

    @property
    def keepable(self) -> Value:
        """The kernel, whose transform can be kept."""
        return self.kernel

    def keep_weights(self, root: Value) -> None:
        """Transform the kernel only after it has changed."""
        self.kept_value, self.kept_bytes = root, self.transformed + self.copied
        self.scratch -= self.kept_bytes

    def kernels(self) -> list[object]:
        """Return the transform of the kernel, and the convolution."""
        return [self.transform, self.winograd]

    def records(self, locate: Locate) -> list[Record]:
        """Return the records of both."""
        table, scratch = load_runtime().table, locate(("scratch", self)).address
        kernel, out = locate(self.kernel).address, scratch + self._own_bytes
        if self.kept_value is not None:
            out = locate(("kept", self)).address
        copy = out + self.transformed
        transform = winograd_kernel.pack(
            table=table, threads=self.threads, channels=self.sizes["channels"],
            filters=self.sizes["filters"], kernel=kernel, out=out, flipped=copy,
        )  # fmt: skip
        pointers = {
            "x": locate(self.x).address, "transformed": out,
            "kernel": copy if self.copied else kernel,
            "bias": 0 if self.bias is None else locate(self.bias).address,
            "y": locate(self.writes[0]).address, "scratch": scratch,
        }  # fmt: skip
        block = winograd.pack(
            table=table, threads=self.threads, sizes=self.sizes, pointers=pointers
        )
        name = f"{self.name} (kernel)"
        before = Record(compile_one(self.transform), transform, name)
        if self.kept_value is not None:
            before = if_stale(locate(("stale", self)), [before], name)
        return [before, Record(compile_one(self.winograd), block, self.name)]


def _round(nbytes: int) -> int:
    return -(-nbytes // 64) * 64


def _tiles_at_a_time(tiles: int, threads: int, rows: int) -> int:
    """Return the number of tiles with which the slowest thread has the fewest to compute."""

    def slowest(each: int) -> int:
        items = math.ceil(tiles / each)
        return math.ceil(items / threads) * each

    return min(range(TILES, 0, -rows), key=slowest)


def _sizes(node: Node) -> dict[str, int]:
    x, kernel = node.inputs
    (top, _), (left, _) = node.attrs["padding"]
    filters = kernel.shape[3]
    if node.op.name != "convolution":
        top, left, filters = 2 - top, 2 - left, kernel.shape[2]
    samples, height, width = node.out.shape[:3]
    down, across = -(-height // 2), -(-width // 2)
    return {
        "height": x.shape[1], "width": x.shape[2], "channels": x.shape[3], "out_height": height,
        "out_width": width, "filters": filters, "top": top, "left": left, "down": down,
        "across": across, "tiles": samples * down * across,
    }  # fmt: skip


def inside(x: int, y: int, before: int) -> int:
    """Return the number of taps inside an image, of all outputs along one axis.

    Args:
        x: the size of the image.
        y: outputs.
        before: the padding.
    """
    places = np.arange(y)[:, None] + np.arange(3) - before
    return int(np.sum((places >= 0) & (places < x)))


def _pays(sizes: dict[str, int], flipped: bool) -> bool:
    """Return whether there are clearly fewer products than in direct sums, which skip padding.

    So images of few pixels, and few images of many channels, are left to oneDNN.
    """
    down = inside(sizes["height"], sizes["out_height"], sizes["top"])
    across = inside(sizes["width"], sizes["out_width"], sizes["left"])
    samples = sizes["tiles"] // (sizes["down"] * sizes["across"])
    transform = FLIPPED_TRANSFORM if flipped else TRANSFORM
    return PRODUCTS * sizes["tiles"] + transform <= MOST_PRODUCTS * samples * down * across


def make_winograd(
    node: Node, bias: Value | None = None, out: Value | None = None, added: Value | None = None,
    relu: bool = False,
) -> Unit | None:  # fmt: skip
    """Return the unit of a convolution or its data gradient; None where oneDNN is as fast.

    Args:
        bias: added along the last axis.
        out: the value of the result; None: the node's output.
        added: what `out` holds before, if the convolution is added to it.
        relu: whether it is applied, after the bias.
    """
    if node.op.name not in ("convolution", "convolution_data_gradient"):
        return None
    values, attrs = (*node.inputs, node.out), node.attrs
    if host_target().lanes != LANES or {v.dtype for v in values} != {"float32"}:
        return None
    if len(node.out.shape) != 4 or node.inputs[1].shape[:2] != (3, 3) or attrs["groups"] != 1:
        return None
    if {*attrs["strides"], *attrs["dilation"]} != {1} or any(v.size == 0 for v in values):
        return None
    if any(size % LANES for size in node.inputs[1].shape[2:]):
        return None
    unit = WinogradUnit(node, bias, out, added, relu)
    return unit if unit.flops >= LEAST_FLOPS and _pays(unit.sizes, bool(unit.copied)) else None
