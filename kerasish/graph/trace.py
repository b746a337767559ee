"""Tracing: run a Python function once on values without numbers, and record its ops as a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish import tree
from kerasish.graph.answers import Answers, Condition
from kerasish.graph.ir import Graph, Value
from kerasish.graph.nested import Tracer
from kerasish.ops.op import using_engine
from kerasish.ops.shapes import Spec
from kerasish.tensor import Tensor, Variable, convert, using_scope, wrap
from kerasish.typing import Structure


class Traced(NamedTuple):
    """A traced function.

    Attributes:
        graph: inputs are the tensor arguments, then the variables read; outputs are the tensor
            results, then the values of the conditions, then the new values of the variables
            assigned.
        arguments: the number of inputs that are arguments.
        variables: the variables of the other inputs, in order.
        updated: the variables of the outputs after the results, in order.
        structure: the function's result with the place of each tensor result as a `TensorRef`.
        paths: value -> the names of the layers inside which it was computed, "model/layer".
        lines: value -> (file, line) of the user's code that computed it, if that is near.
        conditions: the numbers that Python read; the graph is valid for data with these answers.
    """

    graph: Graph
    arguments: int
    variables: tuple[Variable, ...]
    updated: tuple[Variable, ...]
    structure: Any
    paths: dict[Value, str]
    lines: dict[Value, tuple[str, int]]
    conditions: tuple[Condition, ...] = ()


class TensorRef:
    """A placeholder in a result's structure for the tensor result with this index."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"<result {self.number}>"


def trace(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Traced:
    """Return the graph of `function` for arguments like these.

    Args:
        function: a function of structures of tensors. Variables that it reads become inputs of
            the graph, those that it assigns outputs.
        args, kwargs: structures of Specs (or tensors, arrays); anything else is a constant.

    Raises:
        NumberAskedError: Python read a number that is not known during the trace.
    """
    return trace_by(Tracer(), function, *args, **kwargs)


def trace_answering(
    answers: Answers,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
) -> Traced:
    """Return the graph of `function` for arguments like these; Python may read numbers.

    Args:
        answers: answers Python's reads of numbers.
        function: as in `trace`.
        args, kwargs: as in `trace`; the answers are computed from tensors and arrays.

    Raises:
        NumberAskedError: Python read a number that is not known during the trace.
    """
    tracer = Tracer()
    tracer.answers, tracer.effects = answers, True
    return trace_by(tracer, function, *args, **(kwargs or {}))


def trace_by(tracer: Tracer, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Traced:
    """Return the result of `trace`, recorded by the caller's tracer.

    Args:
        tracer: a new one; one that overrides `fused_call` records composed functions as nodes.
        function, args, kwargs: as for `trace`.
    """
    answers = tracer.answers
    inputs: list[Value] = []

    def enter(x: Spec | Tensor | float | None) -> Any:
        spec = spec_of(x)
        if spec is None:
            return x
        value = Value(tuple(spec.shape), spec.dtype)
        inputs.append(value)
        if answers is not None:
            answers.bind(value, x)
        return wrap(value)

    filled_args = [map_leaves(enter, a) for a in args]
    filled_kwargs = {k: map_leaves(enter, a) for k, a in kwargs.items()}
    with using_engine(tracer), using_scope(tracer):
        result = function(*filled_args, **filled_kwargs)
    outputs: list[Value] = []

    def leave(x: str | Tensor | float | None) -> Any:
        if isinstance(x, Variable):
            x = tracer.read(x)
        if not isinstance(x, Tensor):
            return x
        outputs.append(tracer.value_of(x))
        return TensorRef(len(outputs) - 1)

    structure = tree.map_structure(leave, result)
    updated = tuple(tracer.written)
    news = [tracer.value_of(tracer.written[v]) for v in updated]
    conditions = () if answers is None else tuple(answers.conditions)
    graph = Graph(
        [*inputs, *tracer.read_values.values()],
        tracer.constants,
        tracer.nodes,
        [*outputs, *(c.value for c in conditions), *news],
    )
    variables = tuple(tracer.read_values)
    return Traced(
        graph, len(inputs), variables, updated, structure, tracer.paths, tracer.lines, conditions
    )


def spec_of(x: object) -> Spec | None:
    """Return the spec of a tensor argument; None for anything else."""
    if isinstance(x, Spec):
        return x
    if isinstance(x, (Tensor, Variable)):
        return Spec(tuple(x.shape), x.dtype)
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind not in "OUS":
        return Spec(x.shape, convert(x).dtype)
    return None


def map_leaves(f: Callable[[Any], Any], structure: Structure) -> Structure:
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
