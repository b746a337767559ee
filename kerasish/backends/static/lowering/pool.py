"""Maximum pooling, its gradient and the transpose of the gradient, in generated loops.

oneDNN's maximum drops NaN, which would hide a broken step. These loops return NaN for every window
with a NaN, as the other engines do. A forward pass keeps the chosen places if a gradient follows;
otherwise the gradient computes them again.
"""

from __future__ import annotations

import math
from typing import Any

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import pooling
from kerasish.backends.static.codegen import window_ranges as ranges
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.lowering.units import Locate, Unit
from kerasish.backends.static.machine.machine_code import host_target
from kerasish.graph.ir import Graph, Node, Value
from kerasish.ops import dtypes

GRAIN = 64 * 1024.0  # elements of windows per thread
READERS = ("pool_max_gradient", "pool_max_select")  # the ops that read the chosen places


class MaxPoolUnit(Unit):
    """A maximum pooling, or an op that reads the places it chose.

    Args:
        node: one of pool_max, pool_max_gradient and pool_max_select.
        workspace: the key of the chosen places that a forward pass shares with its readers; None:
            a forward pass keeps none, and a reader computes them itself.
    """

    safe = True

    def __init__(self, node: Node, workspace: Any = None) -> None:
        super().__init__(node.op.name, node.inputs, node.outputs)
        self.kind = node.op.name.removeprefix("pool_max").lstrip("_") or "max"
        self.x = node.inputs[-1]
        windows = node.inputs[0] if self.kind == "gradient" else node.out
        self._measure(windows, node.attrs)
        number = pooling.places_dtype(node.attrs["size"])
        nbytes = pooling.padded_channels(self.x.shape[-1], host_target())
        nbytes *= self.samples * math.prod(self.windows) * int(dtypes.array_dtype(number).itemsize)
        finds_places = self.kind != "max" and workspace is None
        self.workspace_key, self.workspace_bytes = workspace, nbytes if workspace else 0
        self.fills_workspace = self.kind == "max"
        self.finder: pooling.Pooling | None = None
        if finds_places:
            self.scratch = nbytes
            self.finder = self._kernel("max", self.x.dtype, number, values=False)
        elif self.kind != "max":
            self.reads = node.inputs[:1]
        kept = number if self.kind != "max" or workspace is not None else ""
        single = self.kind == "gradient" and ranges.are_apart(*_settings(node.attrs)[:2])
        run = _run(*_settings(node.attrs)) if single else 1
        self.kernel = self._kernel(self.kind, node.out.dtype, kept, single=single, run=run)

    def _kernel(self, kind: str, dtype: str, places: str, **more: Any) -> pooling.Pooling:
        axes = tuple(axis.steps for axis in self._axes(kind))
        sample = math.prod(self.windows if kind == "gradient" else self.x.shape[1:-1])
        size: tuple[int, ...] = ()
        full = False
        if kind == "max" and math.prod(self.size) <= pooling.MOST_PLACES:
            size = self.size
            full = all((a.ranges[:, 1] == w).all() for a, w in zip(self.inside, size))
        return pooling.Pooling(
            kind, dtype, self.x.shape[-1], axes, sample, places, size=size, full=full, **more
        )

    def _axes(self, kind: str) -> list[ranges.Axis]:
        return self.over if kind == "gradient" else self.inside

    def _measure(self, windows: Value, attrs: dict[str, Any]) -> None:
        x = self.x
        sizes, counts, settings = x.shape[1:-1], windows.shape[1:-1], _settings(attrs)
        self.size = tuple(attrs["size"])
        self.windows, self.samples = counts, x.shape[0]
        self.inside = ranges.inside_ranges(sizes, counts, *settings)
        self.over = ranges.cover_ranges(sizes, counts, *settings)
        self.flops = float(windows.size * math.prod(attrs["size"]))
        self.threads = native.threads_for(self.flops, GRAIN)

    def kernels(self) -> list[Any]:
        """Return the kernel, after the one that computes the places if it is needed."""
        return [k for k in (self.finder, self.kernel) if k is not None]

    def records(self, locate: Locate) -> list[Record]:
        """Return one record for each kernel."""
        key = ("scratch", self) if self.finder is not None else self.workspace_key
        places = locate(key).address if key is not None else 0
        results = []
        if self.finder is not None:
            results.append(self._record(self.finder, locate(self.x).address, 0, places))
        source, out = locate(self.reads[0]).address, locate(self.writes[0]).address
        return [*results, self._record(self.kernel, source, out, places)]

    def _record(self, kernel: pooling.Pooling, source: int, out: int, places: int) -> Record:
        axes = self._axes(kernel.kind)
        block = pooling.pack(
            table=load_runtime().table, threads=self.threads, samples=self.samples,
            sources=source, targets=out, places=places, axes=axes,
        )  # fmt: skip
        return Record(compile_one(kernel), block, self.name, axes)


def _settings(attrs: dict[str, Any]) -> tuple[Any, Any, Any]:
    return attrs["size"], attrs["strides"], attrs["padding"]


def _run(size: Any, strides: Any, padding: Any) -> int:
    """Return the number of adjacent places of x along the last axis in one window."""
    adjacent = size[-1] == strides[-1] and padding[-1][0] == 0
    return int(size[-1]) if adjacent and size[-1] <= pooling.MOST_PLACES else 1


def pair_pools(graph: Graph) -> dict[Node, Any]:
    """Return, for maximum poolings and later readers of their places, the key that they share."""
    forward: dict[Any, Node] = {}
    shared: dict[Node, Any] = {}
    for node in graph.nodes:
        key = (node.inputs[-1], *_settings(node.attrs)) if _has_places(node) else None
        if node.op.name == "pool_max":
            forward[key] = node
        elif node.op.name in READERS and key in forward:
            partner = forward[key]
            shared[partner] = shared[node] = ("workspace", partner)
    return shared


def _has_places(node: Node) -> bool:
    return node.op.name == "pool_max" or node.op.name in READERS


def make_max_pool(node: Node, workspace: Any = None) -> Unit | None:
    """Return the unit for a maximum pooling or a reader of its places; None for other nodes.

    Args:
        workspace: see `MaxPoolUnit`.
    """
    if not _has_places(node) or any(v.size == 0 for v in (*node.inputs, node.out)):
        return None
    if any(v.dtype not in pooling.DTYPES for v in (*node.inputs, node.out)):
        return None
    return MaxPoolUnit(node, workspace)
