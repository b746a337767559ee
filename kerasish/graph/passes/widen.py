"""Compute 16-bit floats in float32 where the processor has no fast instructions for them.

Products, convolutions and loops then use float32 code, and no value is rounded between them, so
results are at least as accurate. Inputs and outputs of the graph keep their dtype. So do ops whose
kind is not in `KINDS`, or whose result depends on the storage format.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from kerasish.graph.ir import Graph, Node, Value
from kerasish.ops.op import REGISTRY
from kerasish.ops.shapes import Spec

KINDS = frozenset((
    "elementwise", "comparison", "logic", "movement", "creation", "indexing", "reduce",
    "convolution", "linalg", "pool", "recurrent",
))  # fmt: skip
HALVES = frozenset(("bfloat16", "float16"))


def widen_halves(graph: Graph, halves: Collection[str] = HALVES) -> Graph:
    """Return the graph with the values of these dtypes computed in float32."""
    values = [*graph.inputs, *graph.constants, *(v for n in graph.nodes for v in n.outputs)]
    if not any(v.dtype in halves for v in values):
        return graph
    return _Widener(graph, halves).run()


class _Widener:
    """Walks a graph and keeps, for each 16-bit value of it, the float32 value in the new graph."""

    def __init__(self, graph: Graph, halves: Collection[str]) -> None:
        self.graph, self.halves = graph, halves
        self.constants = dict(graph.constants)
        self.nodes: list[Node] = []
        self.wide: dict[Value, Value] = {}  # 16-bit value -> the same in float32
        self.same: dict[Value, Value] = {}  # value of the old graph -> the same, dtype unchanged

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self._add(node)
        return self.graph.replace(
            constants=self.constants,
            outputs=[self._as_it_was(v) for v in self.graph.outputs],
            nodes=self.nodes,
        )

    def _add(self, node: Node) -> None:
        if not any(v.dtype in self.halves for v in (*node.inputs, *node.outputs)):
            self._emit(node, [self.same.get(v, v) for v in node.inputs])
            return
        if node.op.name == "cast":
            source = self._read(node.inputs[0])
            if source.dtype == self._target(node.out.dtype):
                self._become(node.out, source)
                return
        if not self._widened(node):
            self._emit(node, [self._as_it_was(v) for v in node.inputs])

    def _target(self, dtype: str) -> str:
        return "float32" if dtype in self.halves else dtype

    def _widened(self, node: Node) -> bool:
        """Compute the node in float32 if its op allows it."""
        if node.op.kind not in KINDS or node.op.exact_storage:
            return False
        attrs = {k: self._attr(k, v) for k, v in node.attrs.items()}
        inputs = [self._target_spec(v) for v in node.inputs]
        specs = node.op.shape(*inputs, **attrs)
        result = [specs] if isinstance(specs, Spec) else list(specs)
        if result != [self._target_spec(v) for v in node.outputs]:
            return False
        outputs = [v if v.dtype not in self.halves else Value(v.shape, "float32")
                   for v in node.outputs]  # fmt: skip
        reads = [self._read(v) for v in node.inputs]
        self.nodes.append(Node(node.op, reads, attrs, outputs))
        self.wide.update((old, new) for old, new in zip(node.outputs, outputs) if old is not new)
        return True

    def _attr(self, name: str, value: Any) -> Any:
        return self._target(value) if name == "dtype" else value

    def _target_spec(self, v: Value) -> Spec:
        return Spec(v.shape, self._target(v.dtype))

    def _emit(self, node: Node, inputs: Sequence[Value]) -> None:
        changed = any(a is not b for a, b in zip(inputs, node.inputs))
        self.nodes.append(Node(node.op, inputs, node.attrs, node.outputs) if changed else node)

    def _become(self, old: Value, new: Value) -> None:
        (self.wide if old.dtype in self.halves else self.same)[old] = new

    def _read(self, v: Value) -> Value:
        """Return a value as the new graph reads it: 16-bit values in float32."""
        if v.dtype not in self.halves:
            return self.same.get(v, v)
        if v not in self.wide:
            self.wide[v] = self._cast(v, "float32")
        return self.wide[v]

    def _as_it_was(self, v: Value) -> Value:
        """Return a value in its original dtype."""
        if v.dtype not in self.halves or v not in self.wide:
            return self.same.get(v, v)
        if v not in self.same:
            self.same[v] = self._cast(self.wide[v], v.dtype)
        return self.same[v]

    def _cast(self, v: Value, dtype: str) -> Value:
        out = Value(v.shape, dtype)
        if v in self.constants and dtype == "float32":
            self.constants[out] = np.asarray(self.constants[v]).astype(np.float32)
        else:
            self.nodes.append(Node(REGISTRY["cast"], [v], {"dtype": dtype}, [out]))
        return out
