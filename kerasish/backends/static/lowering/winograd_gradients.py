"""Kernel gradients of 3x3 convolutions by Winograd's method, with AVX-512.

They take 0.5 to 0.8 of the time of direct sums (`kernel_gradients.py`) where they are used.
"""

from __future__ import annotations

import math

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import winograd_sums
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.codegen.winograd_gradient import TAPS, WinogradGradient
from kerasish.backends.static.codegen.winograd_sums import LANES, WinogradSums
from kerasish.backends.static.codegen.winograd_tiles import SIDE
from kerasish.backends.static.lowering.units import Locate, Unit
from kerasish.backends.static.lowering.winograd import inside
from kerasish.backends.static.machine.machine_code import host_target
from kerasish.graph.ir import Node

GRAIN = 500_000.0  # FLOPs of the direct sums per thread
LEAST_FLOPS = 4e6  # with fewer, compilation takes longer than what a training saves
BALANCED = 0.85  # the least share of the threads that works on average
# The transforms of a tile take as much time as this number of products for each channel and filter.
TRANSFORMS = 5
WORTH = 0.9  # the most products, with transforms, of those of the direct sums


class WinogradGradientUnit(Unit):
    """The gradient of a 3x3 convolution with respect to its kernel."""

    safe = True

    def __init__(self, node: Node) -> None:
        super().__init__(node.op.name, node.inputs, node.outputs)
        self.x, self.dy = node.inputs
        self.flops = flops(node)
        self.threads = native.threads_for(self.flops, GRAIN)
        self.sizes = _sizes(node, self.threads)
        vectors = 1 if self.sizes["filters"] % (2 * LANES) else 2
        self.tile, self.gradient = WinogradSums(vectors), WinogradGradient(vectors)
        self.sums = 4 * SIDE * SIDE * self.sizes["channels"] * self.sizes["filters"]
        self.scratch = self.sums + self.threads * self.sizes["own"]

    def kernels(self) -> list[WinogradSums | WinogradGradient]:
        """Return the kernels of both records."""
        return [self.tile, self.gradient]

    def records(self, locate: Locate) -> list[Record]:
        """Return the two records."""
        scratch = locate(("scratch", self)).address
        pointers = {
            "x": locate(self.x).address, "dy": locate(self.dy).address,
            "out": locate(self.writes[0]).address, "sums": scratch,
            "own_memory": scratch + self.sums,
        }  # fmt: skip
        block = winograd_sums.pack(
            table=load_runtime().table, threads=self.threads, sizes=self.sizes, pointers=pointers
        )
        return [Record(compile_one(part), block, self.name) for part in self.kernels()]


def flops(node: Node) -> float:
    """Return the operations of the direct sums."""
    return 2.0 * math.prod(node.inputs[1].shape[:-1]) * node.out.size


def _sizes(node: Node, threads: int) -> dict[str, int]:
    (x, dy), ((top, _), (left, _)) = node.inputs, node.attrs["padding"]
    sizes = dict(zip(("samples", "height", "width", "channels"), x.shape, strict=True))
    sizes |= dict(zip(("dy_height", "dy_width", "filters"), dy.shape[1:], strict=True))
    sizes |= {"top": top, "left": left}
    return sizes | winograd_sums.tile_sizes(sizes, threads)


def _is_worth_it(sizes: dict[str, int], skips: bool) -> bool:
    if skips:
        direct = inside(sizes["height"], sizes["dy_height"], sizes["top"])
        direct *= inside(sizes["width"], sizes["dy_width"], sizes["left"])
    else:
        direct = sizes["dy_height"] * sizes["dy_width"] * TAPS**2
    transforms = TRANSFORMS / sizes["channels"] + TRANSFORMS / sizes["filters"]
    return SIDE**2 * sizes["down"] * sizes["across"] * (1 + transforms) <= WORTH * direct


def make_winograd_gradient(node: Node, skips: bool) -> Unit | None:
    """Return the unit of a kernel gradient; None where the direct sums are as fast.

    Args:
        skips: whether the direct sums leave out the taps outside an image.
    """
    attrs, values = node.attrs, (*node.inputs, node.out)
    if len(node.out.shape) != 4 or node.out.shape[:2] != (TAPS, TAPS) or attrs["groups"] != 1:
        return None
    if {*attrs["strides"], *attrs["dilation"]} != {1} or {v.dtype for v in values} != {"float32"}:
        return None
    if host_target().lanes != LANES or any(size % LANES for size in node.out.shape[2:]):
        return None
    # Of a row of tiles, only the first one may have columns to the left of the image.
    if attrs["padding"][1][0] not in range(TAPS) or any(v.size == 0 for v in values):
        return None
    unit = WinogradGradientUnit(node)
    if unit.flops < LEAST_FLOPS or not _is_worth_it(unit.sizes, skips):
        return None
    shares = SIDE * node.out.shape[3] // unit.tile.filters
    rounds = -(-shares // unit.threads)
    return unit if shares >= BALANCED * rounds * unit.threads else None
