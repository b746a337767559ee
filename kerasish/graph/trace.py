"""Tracing: run a Python function once on values without numbers and keep what it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish import tree
from kerasish.errors import TraceError
from kerasish.graph.ir import Graph, Node, Value
from kerasish.ops.op import Op, Spec, using_engine
from kerasish.tensor import (
    Scope,
    Tensor,
    Variable,
    convert,
    prepare,
    record,
    recording,
    using_scope,
    wrap,
)


class Traced(NamedTuple):
    """A traced function.

    Attributes:
        graph: inputs are the tensor arguments, then the variables read; outputs are the tensor
            results, then the new values of the variables assigned.
        arguments: how many of the inputs are arguments.
        variables: the variables behind the other inputs, in order.
        updated: the variables behind the outputs after the results, in order.
        structure: the function's result with the place of each tensor result as a `Place`.
    """

    graph: Graph
    arguments: int
    variables: tuple[Variable, ...]
    updated: tuple[Variable, ...]
    structure: Any


class Place:
    """Stands in a result's structure for the tensor result of this number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"<result {self.number}>"


class Tracer(Scope):
    """The engine, and the scope of variables, while a function is traced."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[Value, Any] = {}
        self._known: dict[int, tuple[Any, Value]] = {}
        self.inputs: list[Value] = []
        self.variables: dict[Variable, Tensor] = {}
        self.read_values: dict[Variable, Value] = {}
        self.written: dict[Variable, Tensor] = {}

    # --- engine -----------------------------------------------------------------------------

    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Write a node; return tensors without numbers."""
        tensors, attrs = prepare(op, args, attrs)
        inputs = [self.value_of(t) for t in tensors]
        specs = op.shape(*(Spec(v.shape, v.dtype) for v in inputs), **attrs)
        many = (specs,) if op.outputs == 1 else tuple(specs)
        outputs = [Value(tuple(s.shape), s.dtype) for s in many]
        self.nodes.append(Node(op, inputs, attrs, outputs))
        results = tuple(wrap(v) for v in outputs)
        if op.grad is not None and recording.on and any(t.tracked for t in tensors):
            record(op, tensors, attrs, results)
        return results[0] if op.outputs == 1 else results

    def value_of(self, tensor: Tensor) -> Value:
        """Return the graph's value of a tensor; one with numbers becomes a constant."""
        value = tensor.value
        if isinstance(value, Value):
            return value
        if type(value.dtype) is str:
            raise TraceError("A value of another, unfinished trace was used in this one.")
        found = self._known.get(id(value))
        if found is not None:
            return found[1]
        made = Value(tuple(value.shape), tensor.dtype)
        self.constants[made] = value
        self._known[id(value)] = (value, made)  # keeps the array, so that its id stays its own
        return made

    # --- variables ----------------------------------------------------------------------------

    def read(self, variable: Variable) -> Tensor:
        """Return the variable's value in the trace: an input, or what was assigned."""
        if variable in self.written:
            return self.written[variable]
        if variable not in self.variables:
            leaf = variable._leaf
            value = Value(tuple(leaf.shape), leaf.dtype)
            self.read_values[variable] = value
            self.variables[variable] = self._leaf(variable, value)
        return self.variables[variable]

    def write(self, variable: Variable, value: Tensor) -> None:
        """Make the assignment an output of the graph."""
        self.written[variable] = self._leaf(variable, self.value_of(value))

    def _leaf(self, variable: Variable, value: Value) -> Tensor:
        leaf = wrap(value)
        leaf.key = variable._key
        leaf.tracked = variable._leaf.tracked
        return leaf


def trace(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Traced:
    """Return the graph of what `function` does for arguments like these.

    Args:
        function: a function of structures of tensors. Variables that it reads become inputs of
            the graph, those that it assigns outputs.
        args, kwargs: structures of Specs (or tensors, arrays); anything else is a constant.

    Raises:
        TraceError: Python asked for a number that is not there yet.
    """
    tracer = Tracer()
    inputs: list[Value] = []

    def enter(x: Any) -> Any:
        spec = spec_of(x)
        if spec is None:
            return x
        value = Value(tuple(spec.shape), spec.dtype)
        inputs.append(value)
        return wrap(value)

    filled_args = [map_leaves(enter, a) for a in args]
    filled_kwargs = {k: map_leaves(enter, a) for k, a in kwargs.items()}
    with using_engine(tracer), using_scope(tracer):
        result = function(*filled_args, **filled_kwargs)
    outputs: list[Value] = []

    def leave(x: Any) -> Any:
        if isinstance(x, Variable):
            x = tracer.read(x)
        if not isinstance(x, Tensor):
            return x
        outputs.append(tracer.value_of(x))
        return Place(len(outputs) - 1)

    structure = tree.map_structure(leave, result)
    updated = tuple(tracer.written)
    news = [tracer.value_of(tracer.written[v]) for v in updated]
    graph = Graph(
        [*inputs, *tracer.read_values.values()],
        tracer.constants,
        tracer.nodes,
        [*outputs, *news],
    )
    return Traced(graph, len(inputs), tuple(tracer.read_values), updated, structure)


def spec_of(x: Any) -> Spec | None:
    """Return the spec of what counts as a tensor argument, None for anything else."""
    if isinstance(x, Spec):
        return x
    if isinstance(x, (Tensor, Variable)):
        return Spec(tuple(x.shape), x.dtype)
    if isinstance(x, np.ndarray) and x.dtype.kind not in "OUS":
        return Spec(x.shape, convert(x).dtype)
    return None


def map_leaves(f: Callable[[Any], Any], structure: Any) -> Any:
    """Return the structure with `f` applied to its leaves; a Spec is a leaf."""
    if isinstance(structure, Spec):
        return f(structure)
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*(map_leaves(f, part) for part in structure))
    if isinstance(structure, (list, tuple)):
        return type(structure)(map_leaves(f, part) for part in structure)
    if isinstance(structure, dict):
        return {k: map_leaves(f, structure[k]) for k in sorted(structure)}
    return f(structure)
