"""Graphs in which some sizes stay open, as nodes with their ops: the input of an exporter.

`portable` writes such graphs as plain records for this package's files. An exporter to another
format needs more about each node: the op itself, the specs of its results, the layer that computed
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kerasish.graph.ir import Graph
from kerasish.graph.portable import ReferenceRecorder, Sizes
from kerasish.graph.trace import Traced
from kerasish.ops.shapes import Spec

Term = tuple[int, tuple[int, ...]]


class OpenSize(NamedTuple):
    """A size computed from the open sizes: the sum of factor * product of sizes.

    Attributes:
        terms: (factor, numbers of the open sizes); without numbers, just the factor.
    """

    terms: tuple[Term, ...]


class SymbolicNode(NamedTuple):
    """One application of an op.

    Attributes:
        op: the op of the traced nodes.
        inputs: places of the values that it reads: inputs, constants, then results in order.
        attrs: attributes; numbers may be `OpenSize`s, graphs are `SymbolicGraph`s.
        outputs: (dtype, shape) of each result; a size is a number, an `OpenSize`, or None where it
            is not a sum of products of the open sizes.
        path: the names of the layers around it, "model/layer".
    """

    op: Any
    inputs: list[int]
    attrs: dict[str, Any]
    outputs: list[Spec]
    path: str


class SymbolicGraph(NamedTuple):
    """A graph of `SymbolicNode`s.

    Attributes:
        inputs: the specs of the inputs.
        constants: arrays, or (spec, value) of constants that hold one number in an open shape.
        nodes: the nodes, in order.
        outputs: places of the results.
    """

    inputs: list[Spec]
    constants: list[Any]
    nodes: list[SymbolicNode]
    outputs: list[int]


class SymbolicRecorder(ReferenceRecorder):
    """Converts traces of one function to one `SymbolicGraph`.

    Args:
        sizes: the open sizes of each trace; from `sample_sizes`.
        traces: the traces.
    """

    def __init__(self, sizes: Sequence[Sizes], traces: Sequence[Traced]) -> None:
        self._arrays: list[Any] = []
        self._paths = traces[0].paths
        super().__init__(sizes, self._keep_array)

    def symbolic(self, graphs: Sequence[Graph]) -> SymbolicGraph:
        """Return the graph that the traces' graphs have in common.

        Raises:
            ValueError: they depend on the sizes in a way that no formula expresses; the message
                names the layer.
        """
        if len({len(g.nodes) for g in graphs}) > 1:
            raise self._error(f"the number of steps {self._parting(graphs)}depends on them")
        return self._opened(self.graph(graphs))

    def _parting(self, graphs: Sequence[Graph]) -> str:
        """Return the first layer in which the graphs differ, as a part of a message."""
        for nodes in zip(*(g.nodes for g in graphs)):
            path = self._paths.get(nodes[0].outputs[0], "")
            if any(n.op is not nodes[0].op for n in nodes):
                return f"of the layer {path!r} " if path else ""
        return ""

    def _keep_array(self, array: Any) -> str:
        self._arrays.append(array)
        return str(len(self._arrays) - 1)

    def _opened(self, record: dict[str, Any]) -> SymbolicGraph:
        return SymbolicGraph(
            [_spec(*parts) for parts in record["inputs"]],
            [self._opened_constant(c) for c in record["constants"]],
            record["nodes"],
            record["outputs"],
        )

    def _opened_constant(self, constant: Any) -> Any:
        if isinstance(constant, str):
            return self._arrays[int(constant)]
        dtype, shape, value = constant
        return _spec(dtype, shape), _opened(value)

    def _node(self, nodes: Sequence[Any], places: Sequence[dict[Any, int]]) -> Any:
        first = nodes[0]
        path = self._paths.get(first.outputs[0], "")
        try:
            if any(n.op is not first.op or n.attrs.keys() != first.attrs.keys() for n in nodes):
                raise self._error(f"whether {first.op.name!r} is computed depends on them")
            attrs = {
                name: _opened(self._attr([n.attrs[name] for n in nodes], first), self._opened)
                for name in first.attrs
            }
            inputs = self._places([n.inputs for n in nodes], places)
            outputs = [self._result(column) for column in zip(*(n.outputs for n in nodes))]
        except ValueError as error:
            raise ValueError(f"layer {path!r}: {error}" if path else str(error)) from error
        return SymbolicNode(first.op, inputs, attrs, outputs, path)

    def _result(self, values: Sequence[Any]) -> Spec:
        if len({len(v.shape) for v in values}) > 1:
            raise self._error("a value's number of axes depends on them")
        sizes = []
        for column in zip(*(v.shape for v in values)):
            try:
                sizes.append(_opened(self._number(column)))
            except ValueError:  # rounded sizes: no attribute contains them, so none needs them
                sizes.append(None)
        return Spec(tuple(sizes), values[0].dtype)


def _spec(dtype: str, shape: Sequence[Any]) -> Spec:
    return Spec(tuple(_opened(n) for n in shape), dtype)


def _opened(value: Any, graph: Callable[[Any], Any] | None = None) -> Any:
    """Return a record's attribute with `OpenSize`s and graphs in place of their records."""
    if isinstance(value, list):
        return tuple(_opened(v, graph) for v in value)
    if isinstance(value, dict):
        if "graph" in value and graph is not None:
            return graph(value["graph"])
        return OpenSize(tuple((factor, tuple(product)) for factor, product in value["size"]))
    return value
