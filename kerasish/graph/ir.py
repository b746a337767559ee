"""The graph: typed values, the nodes that compute them, and a readable printed form."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from kerasish.ops.op import Traits
from kerasish.ops.rows import Rule
from kerasish.ops.shapes import Spec
from kerasish.typing import Structure

_numbers = itertools.count()


class Value:
    """A value of a graph: shape and dtype, all sizes known; compared by identity."""

    __slots__ = ("dtype", "number", "shape", "size", "__weakref__")

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self.shape, self.dtype = shape, dtype
        self.size = math.prod(shape)
        self.number = next(_numbers)

    @property
    def spec(self) -> Spec:
        """Shape and dtype."""
        return Spec(self.shape, self.dtype)

    def __repr__(self) -> str:
        return f"%{self.number}:{_short(self.dtype)}[{','.join(map(str, self.shape))}]"


def _short(dtype: str) -> str:
    return dtype.replace("float", "f").replace("uint", "u").replace("int", "i")


class GraphOp(Traits):
    """An op that occurs in graphs only: it holds a body (a fused loop), or combines several ops.

    Args:
        name: its name in printed graphs, and its kind.
        kernel: `kernel(xp, *inputs, **attrs)`, the computation.
        shape: `shape(*specs, **attrs)` -> Spec, or a tuple of them.
        outputs: the number of results.
    """

    grad = None

    def __init__(
        self, name: str, kernel: Callable[..., Any], shape: Callable[..., Any], outputs: int = 1
    ) -> None:
        self.name = self.kind = name
        self.kernel, self.shape, self.outputs = kernel, shape, outputs

    def __repr__(self) -> str:
        return f"<op {self.name}>"


class NodeOp(Protocol):
    """The interface of a node's op: an `Op`, a `GraphOp` or a `ControlOp`."""

    name: str
    kind: str
    outputs: int
    elementwise: bool
    commutative: bool
    native: str | Callable[..., Any] | None
    reduction: str
    view: bool
    aliases: bool
    exact: bool
    keeps_zero: bool
    repeats: bool
    cheap: bool
    cheaper_than_memory: bool
    exact_storage: bool
    epilogues: bool
    adds_rows: bool
    communicates: str
    calls_python: bool
    effect: bool
    symbol: str
    rows: Rule | None

    @property
    def gives_index(self) -> bool:
        """Whether the op is a reduction to the index of an element, not to a value."""

    @property
    def kernel(self) -> Callable[..., Any]:
        """`kernel(xp, *inputs, **attrs)` on arrays."""

    @property
    def shape(self) -> Callable[..., Any]:
        """`shape(*specs, **attrs)` -> Spec, or a tuple of them."""


class Node:
    """One application of an op.

    Attributes:
        op: the op.
        inputs: the values that it reads, in the op's order.
        attrs: the op's attributes in canonical form.
        outputs: the values that it computes.
    """

    __slots__ = ("attrs", "inputs", "op", "outputs")

    def __init__(
        self, op: NodeOp, inputs: Sequence[Value], attrs: dict[str, Any], outputs: Sequence[Value]
    ) -> None:
        self.op, self.inputs, self.attrs = op, tuple(inputs), attrs
        self.outputs = tuple(outputs)

    @property
    def out(self) -> Value:
        """The only output."""
        return self.outputs[0]

    def __repr__(self) -> str:
        attrs = ", ".join(f"{k}={_attr(v)}" for k, v in self.attrs.items())
        inside = ", ".join(map(repr, self.inputs)) + (f"; {attrs}" if attrs else "")
        return f"{', '.join(map(repr, self.outputs))} = {self.op.name}({inside})"


def _attr(value: object) -> str:
    if _inside(value):
        return "{...}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _inside(value: Structure) -> tuple[Graph, ...]:
    """Return the graphs that an attribute holds."""
    if isinstance(value, Graph):
        return (value,)
    graphs = type(value) is tuple and value and all(isinstance(v, Graph) for v in value)
    return value if graphs else ()


class Graph:
    """A pure computation.

    Attributes:
        inputs: values that the caller supplies.
        constants: values that are known -> their arrays.
        nodes: the nodes in topological order.
        outputs: the values that it returns; a value may occur several times.
    """

    __slots__ = ("constants", "inputs", "nodes", "outputs")

    def __init__(
        self,
        inputs: Iterable[Value],
        constants: dict[Value, Any],
        nodes: Iterable[Node],
        outputs: Iterable[Value],
    ) -> None:
        self.inputs, self.constants = tuple(inputs), constants
        self.nodes, self.outputs = tuple(nodes), tuple(outputs)

    def replace(self, **parts: Any) -> Graph:
        """Return a graph that differs in the given parts."""
        current = {name: getattr(self, name) for name in self.__slots__}
        return Graph(**{**current, **parts})

    def uses(self) -> dict[Value, int]:
        """Return the number of reads of each value, by nodes and as an output."""
        counts: dict[Value, int] = {}
        for node in self.nodes:
            for v in node.inputs:
                counts[v] = counts.get(v, 0) + 1
        for v in self.outputs:
            counts[v] = counts.get(v, 0) + 1
        return counts

    def readers(self) -> dict[Value, list[Node]]:
        """Return value -> the nodes that read it, for values with at least one reader."""
        results: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for v in node.inputs:
                results.setdefault(v, []).append(node)
        return results

    def makers(self) -> dict[Value, Node]:
        """Return value -> the node that computes it."""
        return {v: node for node in self.nodes for v in node.outputs}

    def __str__(self) -> str:
        names: dict[Value, str] = {}

        def name(v: Value) -> str:
            if v not in names:
                names[v] = f"%{len(names)}"
            return names[v]

        def typed(v: Value) -> str:
            return f"{name(v)}: {_short(v.dtype)}[{','.join(map(str, v.shape))}]"

        lines = [f"graph({', '.join(typed(v) for v in self.inputs)})"]
        for v, array in self.constants.items():
            shown = np.array2string(np.asarray(array), threshold=4, edgeitems=1, separator=",")
            lines.append(f"  {typed(v)} = constant {' '.join(shown.split())}")
        for node in self.nodes:
            attrs = ", ".join(f"{k}={_attr(v)}" for k, v in node.attrs.items())
            inside = ", ".join(map(name, node.inputs)) + (f"; {attrs}" if attrs else "")
            outs = ", ".join(map(typed, node.outputs))
            lines.append(f"  {outs} = {node.op.name}({inside})")
            for key, value in node.attrs.items():
                for graph in _inside(value):
                    lines.append(f"    {key}: " + str(graph).replace("\n", "\n    "))
        lines.append(f"  return {', '.join(map(name, self.outputs))}")
        return "\n".join(lines)


class GraphError(AssertionError):
    """A graph breaks a rule of the IR. This is a bug in kerasish, not in the user's program."""


def check_order(graph: Graph) -> Graph:
    """Return the graph if every value is computed before it is read, as a step requires.

    Raises:
        GraphError: a pass has lost a node, or moved it after one that reads its result.
    """
    known: set[Value] = set(graph.inputs) | set(graph.constants)
    for node in graph.nodes:
        if not known.issuperset(node.inputs):
            raise GraphError(f"{node!r} reads a value before it is computed")
        known.update(node.outputs)
    if not known.issuperset(graph.outputs):
        raise GraphError("an output is never computed")
    return graph


def verify(graph: Graph) -> Graph:
    """Return the graph if it is valid.

    Every value is computed once and before it is read, shapes and dtypes follow the ops' rules,
    sizes are known, and attributes are hashable.

    Raises:
        GraphError: the graph is not valid; the message names the node.
    """
    known: set[Value] = set(graph.inputs) | set(graph.constants)
    for v, array in graph.constants.items():
        if tuple(np.shape(array)) != v.shape:
            raise GraphError(f"constant {v!r} holds an array of shape {np.shape(array)}")
    for node in graph.nodes:
        for v in node.inputs:
            if v not in known:
                raise GraphError(f"{node!r} reads {v!r} before it is computed")
        for value in node.attrs.values():
            for inner in _inside(value):
                verify(inner)
        specs = node.op.shape(*(v.spec for v in node.inputs), **node.attrs)
        all_specs = (specs,) if isinstance(specs, Spec) else tuple(specs)
        if [tuple(s) for s in all_specs] != [(v.shape, v.dtype) for v in node.outputs]:
            raise GraphError(f"{node!r}: the shape rule returns {all_specs}")
        try:
            hash(tuple(node.attrs.items()))
        except TypeError:
            raise GraphError(f"{node!r}: attributes must be hashable") from None
        for v in node.outputs:
            if v in known:
                raise GraphError(f"{node!r} computes {v!r} a second time")
            if None in v.shape:
                raise GraphError(f"{node!r}: size of {v!r} is unknown")
            known.add(v)
    for v in graph.outputs:
        if v not in known:
            raise GraphError(f"the output {v!r} is never computed")
    return graph
