"""An optimizer's formula, traced for one variable: nodes computed once, and nodes per element.

The formula is written once, in ops (`optimizers/`). Its trace is a small graph, from which
`numpy_update.py` generates a chain of NumPy calls and `cuda/update_source.py` CUDA code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kerasish.errors import TraceError
from kerasish.graph.ir import Graph, Node, Value
from kerasish.graph.passes.drop import drop_dead
from kerasish.graph.trace import trace
from kerasish.ops.op import UpdateFormula
from kerasish.ops.shapes import Spec
from kerasish.tensor import Variable

_ARRAY = (2,)  # the shape of a traced variable: it represents every shape


class UpdateProgram(NamedTuple):
    """The trace of a formula.

    Attributes:
        elements: its inputs that have elements: value, gradient, slots.
        numbers: its inputs without axes: those of `numbers` that are not None, then the
            variables read.
        variables: the variables of the last ones of `numbers`.
        decay: the input for the weight decay of a variable, None without decay.
        constants: numbers that were known during the trace.
        once: the nodes that need no elements, in order.
        each: the nodes that are computed for each element, in the variable's dtype.
        outputs: the new value and slots.
    """

    elements: tuple[Value, ...]
    numbers: tuple[Value, ...]
    variables: tuple[Variable, ...]
    decay: Value | None
    constants: dict[Value, Any]
    once: tuple[Node, ...]
    each: tuple[Node, ...]
    outputs: tuple[Value, ...]


def program_of(
    formula: UpdateFormula,
    dtype: str,
    count: int,
    numbers: Sequence[Spec | None],
    decay: bool,
) -> UpdateProgram | None:
    """Return the program of a formula, None if it is not computed element by element.

    Args:
        formula: the update of one variable.
        dtype: of the variable, its gradient and its slots.
        count: the number of these.
        numbers: shapes and dtypes of the formula's numbers.
        decay: whether the variable decays.
    """
    element, share = Spec(_ARRAY, dtype), Spec((), dtype) if decay else None
    try:
        traced = trace(formula, [element] * count, list(numbers), share)
    except TraceError:
        return None
    graph = drop_dead(traced.graph)
    split = _split(graph, count)
    if split is None or traced.updated or len(graph.outputs) != count - 1:
        return None
    once, each = split
    inputs = graph.inputs[count:]
    own = inputs[traced.arguments - count - 1] if decay else None
    return UpdateProgram(
        graph.inputs[:count],
        tuple(v for v in inputs if v is not own),
        traced.variables,
        own,
        graph.constants,
        once,
        each,
        graph.outputs,
    )


def _split(graph: Graph, count: int) -> tuple[tuple[Node, ...], tuple[Node, ...]] | None:
    """Return the nodes without elements, and those of elements of the variable's dtype.

    None: a node is neither.
    """
    with_elements = set(graph.inputs[:count])
    dtype = graph.inputs[0].dtype
    once, each = [], []
    if any(v.shape for v in (*graph.inputs[count:], *graph.constants)):
        return None
    for node in graph.nodes:
        if with_elements.isdisjoint(node.inputs):
            if any(v.shape for v in node.outputs):
                return None
            once.append(node)
        elif node.op.elementwise and node.out.shape == _ARRAY and node.out.dtype == dtype:
            with_elements.add(node.out)
            each.append(node)
        else:
            return None
    if any(v not in with_elements or v.dtype != dtype for v in graph.outputs):
        return None
    return tuple(once), tuple(each)
