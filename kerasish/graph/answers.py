"""Numbers that Python reads in a trace: each answer becomes a condition of the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kerasish.errors import at_user_line
from kerasish.graph.ir import Node, Value
from kerasish.ops import dtypes
from kerasish.tensor import Variable, to_numpy
from kerasish.typing import Array

if TYPE_CHECKING:
    from kerasish.graph.tracer import NodeWriter

MOST_ELEMENTS = 64  # of an array that Python reads: larger ones rarely repeat


class Condition(NamedTuple):
    """An assumption of a trace: that a value equals the answer that Python got.

    Attributes:
        value: the value.
        answer: its array.
        line: " at file:line" of the user's code that read it.
    """

    value: Value
    answer: Array
    line: str


class Answers:
    """Answers Python's reads of numbers in one trace: first known answers, then computed ones.

    Args:
        given: the answers to the first reads.
        kernel_of: op -> its kernel, to compute the other answers from the call's arguments.

    Attributes:
        conditions: the values read and their answers, in order.
    """

    def __init__(
        self, given: Sequence[Array], kernel_of: Callable[[Any], Callable[..., Any]]
    ) -> None:
        self._given, self._kernel_of = list(given), kernel_of
        self._known: dict[Value, Any] = {}
        self._makers: dict[Value, Node] = {}
        self._seen = 0  # nodes of the trace that `_makers` holds
        self.conditions: list[Condition] = []

    def bind(self, value: Value, argument: object) -> None:
        """Note the array of an argument of the call."""
        if hasattr(argument, "shape") and hasattr(argument, "dtype"):
            self._known[value] = to_numpy(argument)

    def ask(self, tracer: NodeWriter, value: Value) -> Array | None:
        """Return the array of a value; None if it cannot be known, or is too large to compare."""
        if value.size > MOST_ELEMENTS:
            return None
        for condition in self.conditions:
            if condition.value is value:
                return condition.answer
        place = len(self.conditions)
        if place < len(self._given):
            answer = self._given[place]
            if (answer.shape, answer.dtype) != (value.shape, dtypes.array_dtype(value.dtype)):
                return None  # Python took another path: it reads other values than before
        else:
            computed = self._compute(tracer, value)
            if computed is None:
                return None
            answer = np.array(computed)
        answer.flags.writeable = False
        self.conditions.append(Condition(value, answer, at_user_line()))
        return answer

    def _compute(self, tracer: NodeWriter, value: Value) -> Array | None:
        for node in tracer.nodes[self._seen :]:
            self._makers.update(dict.fromkeys(node.outputs, node))
        self._seen = len(tracer.nodes)
        self._known.update(tracer.constants)
        for variable, read in tracer.read_values.items():
            if read not in self._known:
                self._known[read] = _array_of(variable)
        with np.errstate(all="ignore"):
            for node in self._needed(value):
                if any(v not in self._known for v in node.inputs):
                    return None
                out = self._kernel_of(node.op)(*(self._known[v] for v in node.inputs), **node.attrs)
                self._known.update(zip(node.outputs, (out,) if node.op.outputs == 1 else out))
        return self._known.get(value)

    def _needed(self, value: Value) -> Iterator[Node]:
        """Yield the nodes that must still run for a value, each after those that it reads."""
        done: set[int] = set()
        stack = [(value, False)]
        while stack:
            v, ready = stack.pop()
            node = self._makers.get(v)
            if v in self._known or node is None or id(node) in done:
                continue
            if ready:
                done.add(id(node))
                yield node
            else:
                stack.append((v, True))
                stack += [(i, False) for i in node.inputs]


def _array_of(variable: Variable) -> Array:
    return to_numpy(variable.latest)
