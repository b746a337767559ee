"""The engine, and the variable scope, that record nodes while a function is traced."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from kerasish.errors import TraceError, at_user_line, user_place
from kerasish.graph.answers import Answers
from kerasish.graph.ir import Node, Value
from kerasish.graph.known_integers import known_integer
from kerasish.ops.op import Engine, Op
from kerasish.ops.shapes import Spec, no_size
from kerasish.scopes import current_path
from kerasish.tensor import Scope, Tensor, Variable, prepare, record, recording, wrap
from kerasish.typing import Array, Structure


@functools.cache
def effect_order() -> Variable:
    """Return the variable that ops with an effect read and assign, each after the previous one."""
    return Variable(0, dtype="int32", trainable=False, name="effect_order")


class NodeWriter(Scope, Engine):
    """Records every op as a node and every variable that is read as an input."""

    def __init__(self) -> None:
        self.answers: Answers | None = None  # None: Python may not read numbers
        self.effects = False  # whether the graph includes the effects of ops
        self.nodes: list[Node] = []
        self.paths: dict[Value, str] = {}  # first result of a node -> the layers around it
        self.lines: dict[Value, tuple[str, int]] = {}  # likewise -> the user's line
        self.constants: dict[Value, Any] = {}
        self._known: dict[int, tuple[Any, Value]] = {}
        self._aliases: dict[Value, Value] = {}
        self.inputs: list[Value] = []
        self.variables: dict[Variable, Tensor] = {}
        self.read_values: dict[Variable, Value] = {}
        self.written: dict[Variable, Tensor] = {}

    # --- engine -----------------------------------------------------------------------------

    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Structure:
        """Record a node; return tensors without numbers."""
        tensors, attrs = prepare(op, args, attrs)
        known = known_integer(op, [t.value for t in tensors], attrs)
        if known is not None:
            return wrap(known)
        inputs = [self.value_of(t) for t in tensors]
        specs = op.shape(*[Spec(v.shape, v.dtype) for v in inputs], **attrs)
        all_specs = (specs,) if op.outputs == 1 else tuple(specs)
        for s in all_specs:
            if None in s.shape:
                raise no_size(op.name, s.shape)
        outputs = [Value(tuple(s.shape), s.dtype) for s in all_specs]
        self.write_node(Node(op, inputs, attrs, outputs))
        results = tuple([wrap(v) for v in outputs])
        if op.grad is not None and recording.on and any(t.tracked for t in tensors):
            record(op, tensors, attrs, results)
        return results[0] if op.outputs == 1 else results

    def run_effect(self, op: Op, inputs: Sequence[Any], attrs: dict[str, Any]) -> None:
        """Record a node that reads the result of the previous effect."""
        if self.effects:
            order = effect_order()
            self.write(order, self.apply(op, [self.read(order), *inputs], attrs))

    def write_node(self, node: Node) -> None:
        """Record a node."""
        self.nodes.append(node)
        first, maker = node.outputs[0], recording.maker
        origin = None if maker is None else maker.results[0]
        if isinstance(
            origin, Value
        ):  # a reverse pass belongs to the layers of what it differentiates
            path, line = self.paths.get(origin, ""), self.lines.get(origin)
        else:
            path, line = current_path(), user_place()
        if path:
            self.paths[first] = path
        if line is not None:
            self.lines[first] = line
        if node.op.name == "alias":
            self._aliases[node.outputs[0]] = node.inputs[0]

    def number_of(self, tensor: Tensor) -> Array:
        """Return the array of a tensor whose numbers are known; None for others."""
        value = tensor.value
        if not isinstance(value, Value):
            return value
        while value in self._aliases:
            value = self._aliases[value]
        return self.constants.get(value)

    def numbers_of(self, tensor: Tensor) -> Any:
        """Return the array that Python reads; the trace is valid for data with the same answer."""
        known = self.number_of(tensor)
        if known is not None or self.answers is None:
            return known
        return self.answers.ask(self, self.value_of(tensor))

    def value_of(self, tensor: Tensor) -> Value:
        """Return the graph's value of a tensor; one with numbers becomes a constant."""
        value = tensor.value
        if isinstance(value, Value):
            return value
        if type(value.dtype) is str:
            raise TraceError(
                f"A value of another, unfinished trace was used in this one{at_user_line()}."
            )
        result = self._known.get(id(value))
        if result is not None:
            return result[1]
        created = Value(tuple(value.shape), tensor.dtype)
        self.constants[created] = value.copy() if tensor.borrowed else value
        self._known[id(value)] = (value, created)  # a reference, so that the id is not reused
        return created

    # --- variables ----------------------------------------------------------------------------

    def read(self, variable: Variable) -> Tensor:
        """Return the variable's value in the trace: an input, or the value last assigned."""
        if variable in self.written:
            return self.written[variable]
        if variable not in self.variables:
            value = Value(tuple(variable.shape), variable.stored_dtype)
            self.read_values[variable] = value
            self.variables[variable] = variable.leaf_of(value)
        return self.variables[variable]

    def write(self, variable: Variable, value: Tensor) -> None:
        """Make the assignment an output of the graph."""
        self.written[variable] = variable.leaf_of(self.value_of(value))
