"""Ops that a native library computes by products: Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish import ops
from kerasish.graph.ir import Graph, Node
from kerasish.graph.trace import trace
from kerasish.ops import dtypes
from kerasish.tensor import Tensor

LONGEST = 64  # elements of a sum; a longer transform is divided where its length has divisors


def expand_transforms(graph: Graph) -> Graph:
    """Return the graph with products by constants in place of Fourier transforms."""
    if not any(n.op.name == "fourier" for n in graph.nodes):
        return graph
    constants, nodes = dict(graph.constants), []
    makers = {v: n for n in graph.nodes for v in n.outputs}
    for node in graph.nodes:
        if node.op.name != "fourier":
            nodes.append(node)
            continue
        maker = makers.get(node.inputs[1])
        real = maker is not None and maker.op.name == "fill" and maker.attrs["value"] == 0
        part = _transform(node, real)
        names = dict(zip(part.inputs, node.inputs))
        results = dict(zip(part.outputs, node.outputs))
        constants.update(part.constants)
        nodes += [
            Node(
                n.op, [names.get(v, v) for v in n.inputs], n.attrs,
                [results.get(v, v) for v in n.outputs],
            )
            for n in part.nodes
        ]  # fmt: skip
    return graph.replace(constants=constants, nodes=nodes)


def _transform(node: Node, real: bool) -> Graph:
    """Return the graph of one op; each of its outputs is the result of a node of its own."""
    dtype = node.out.dtype
    wide = dtype if dtype == "float64" else "float32"
    sign = 1 if node.attrs["inverse"] else -1

    def compute(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        x, y = (ops.cast(t, wide) for t in (a, b))
        c, d = x, None if real else y
        for axis in node.attrs["axes"]:
            last = None if d is None else ops.moveaxis(d, axis, -1)
            results = _last_axis(ops.moveaxis(c, axis, -1), last, sign, wide)
            c, d = (ops.moveaxis(t, -1, axis) for t in results)
        # The results are not inputs, even without an axis.
        c, d = (ops.zeros_like(x) if t is None else t for t in (c, d))
        return ops.cast(c * 1.0, dtype), ops.cast(d * 1.0, dtype)

    return trace(compute, *(v.spec for v in node.inputs)).graph


def _last_axis(a: Any, b: Any, sign: int, dtype: str) -> tuple[Any, Any]:
    """Return both parts of the transform of a + ib along the last axis; b None: 0."""
    size = a.shape[-1]
    rows = next((p for p in range(LONGEST, 1, -1) if size % p == 0), size)
    if size <= LONGEST or rows == size:
        return _by_products(a, b, sign, dtype)
    columns = size // rows
    lead = a.shape[:-1]

    def turned(t: Any, shape: tuple[int, int]) -> Any:
        return None if t is None else ops.swapaxes(ops.reshape(t, (*lead, *shape)), -1, -2)

    # Element columns * i + j and frequency k + rows * l: sums over i, a rotation, sums over j.
    first = _last_axis(turned(a, (rows, columns)), turned(b, (rows, columns)), sign, dtype)
    real, imaginary = _rotation(columns, rows, size, sign, dtype)
    c, d = first
    c, d = c * real - d * imaginary, c * imaginary + d * real
    second = _last_axis(turned(c, (columns, rows)), turned(d, (columns, rows)), sign, dtype)
    e, f = (ops.reshape(turned(t, (rows, columns)), (*lead, size)) for t in second)
    return e, f


def _rotation(rows: int, columns: int, size: int, sign: int, dtype: str) -> tuple[Any, Any]:
    """Return both parts of exp(sign * 2 pi i * row * column / size)."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % size / size
    angles = 2 * np.pi * sign * turns
    kind = dtypes.array_dtype(dtype)
    return np.cos(angles).astype(kind), np.sin(angles).astype(kind)


def _by_products(a: Any, b: Any, sign: int, dtype: str) -> tuple[Any, Any]:
    size = a.shape[-1]
    real, imaginary = _rotation(size, size, size, sign, dtype)
    c, d = ops.matmul(a, real), ops.matmul(a, imaginary)
    if b is None:
        return c, d
    return c - ops.matmul(b, imaginary), d + ops.matmul(b, real)
