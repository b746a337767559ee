"""Functional models: a graph of layer calls between symbolic inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish import registry, tree
from kerasish.engine.functional.arrange import _fits
from kerasish.engine.functional.input_layer import Input, InputLayer
from kerasish.engine.layer.call_context import context
from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.masks import is_of_lengths
from kerasish.engine.layer.operation import KerasTensor, Node, OpCall, Operation
from kerasish.errors import ShapeError
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor, Array, Shape, Structure, TensorLike


class FunctionalGraph:
    """The calls between symbolic inputs and outputs, in the order in which they can run.

    Attributes:
        nodes: the calls, each after those it needs.
        operations: the operations in Keras's order: by descending depth, within a depth by the
            first visit of a walk from the outputs.
    """

    def __init__(self, inputs: Structure, outputs: Structure, name: str = "model") -> None:
        self.name = name
        self.inputs = tree.flatten(inputs)
        self.outputs = tree.flatten(outputs)
        for which, tensors in (("input", self.inputs), ("output", self.outputs)):
            for t in tensors:
                if not isinstance(t, KerasTensor):
                    raise ValueError(
                        f"{name}: every {which} must be a symbolic tensor (from Input or from a "
                        f"layer called on one), got {type(t).__name__}: {t!r}"[:300]
                    )
        self._walk()
        self._plan()

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickles and copies hold: the calls, each after those it needs."""
        calls = [(n.operation, n.args, n.kwargs, n.outputs) for n in self.nodes]
        return {
            "name": self.name, "inputs": self.inputs, "outputs": self.outputs, "calls": calls
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.name, self.inputs = state["name"], state["inputs"]
        self.outputs = state["outputs"]
        for call in state["calls"]:
            Node(*call)
        self._walk()
        self._plan()

    def _walk(self) -> None:
        ends = {id(t) for t in self.inputs}
        order: list[Node] = []  # a node follows all that it needs
        visit_number: dict[int, int] = {}
        done: set[int] = set()
        for output in self.outputs:
            stack: list[tuple[KerasTensor, bool]] = [(output, False)]
            while stack:
                t, leaving = stack.pop()
                node = _node_of(t)
                if node is None:
                    if id(t) in ends:
                        continue
                    raise ValueError(f"{self.name}: {t!r} was made by no layer and is no input.")
                if leaving:
                    if id(node) not in done:
                        done.add(id(node))
                        order.append(node)
                    continue
                visit_number.setdefault(id(node.operation), len(visit_number))
                if id(node) in done:
                    continue
                stack.append((t, True))
                if id(t) in ends:
                    continue
                if not node.inputs and isinstance(node.operation, InputLayer):
                    raise ValueError(
                        f"{self.name}: the outputs depend on the input {node.operation.name!r}, "
                        "which is not among the model's inputs."
                    )
                for needed in reversed(node.inputs):
                    if id(_node_of(needed)) not in done:
                        stack.append((needed, False))
        for t in self.inputs:
            node = _node_of(t)
            if node is not None and id(node) not in done:
                done.add(id(node))
                order.insert(0, node)
                visit_number.setdefault(id(node.operation), len(visit_number))
        self.nodes = order
        self._sort(ends, visit_number)

    def _sort(self, ends: set[int], visit_number: dict[int, int]) -> None:
        depth: dict[int, int] = {}
        for node in reversed(self.nodes):
            key = id(node.operation)
            own = depth.setdefault(key, 0)
            if any(id(t) in ends for t in tree.flatten(node.outputs)):
                continue
            for t in node.inputs:
                maker = _node_of(t)
                if maker is not None:
                    other = id(maker.operation)
                    depth[other] = max(depth.get(other, 0), own + 1)
        # Operations called several times lift what they need: repeat until nothing moves.
        moved = True
        while moved:
            moved = False
            for node in self.nodes:
                if any(id(t) in ends for t in tree.flatten(node.outputs)):
                    continue
                for t in node.inputs:
                    maker = _node_of(t)
                    if maker is None or maker.operation is node.operation:
                        continue
                    other, need = id(maker.operation), depth[id(node.operation)] + 1
                    if depth[other] < need and need <= len(self.nodes):
                        depth[other], moved = need, True
        unique = {id(n.operation): n.operation for n in self.nodes}
        self.operations = sorted(
            unique.values(), key=lambda o: (-depth[id(o)], visit_number[id(o)])
        )

    def _plan(self) -> None:
        """Turn the calls into a list that runs without looking anything up by name."""
        ends = {id(t) for t in self.inputs}
        self._steps = [
            _Call(node)
            for node in self.nodes
            if not any(id(t) in ends for t in tree.flatten(node.outputs))
        ]

    def run(self, inputs: list[Any], call: Callable[..., Any] | None = None) -> list[Any]:
        """Return the outputs' values for the inputs' values.

        Args:
            inputs: a value for each input.
            call: `call(operation, args, kwargs)` calls an operation; None: the operation itself
                is called, with the current training flag instead of its own.
        """
        values: dict[int, Any] = {id(t): v for t, v in zip(self.inputs, inputs)}
        masked = any(is_of_lengths(getattr(v, "_keras_mask", None)) for v in inputs)
        for step in self._steps:
            if call is not None:
                result = call(step.operation, *step.arguments(values))
            elif step.only is not None:
                result = step.operation(values[step.only])
            else:
                args, kwargs = step.arguments(values)
                if context.training is not None and kwargs.get("training") is not None:
                    kwargs["training"] = context.training
                if masked and isinstance(step.operation, Layer):
                    step.operation.join_masks(args, kwargs)
                result = step.operation(*args, **kwargs)
            if len(step.outputs) == 1 and (type(result) is Tensor or not tree.is_nested(result)):
                values[step.outputs[0]] = result
                continue
            for key, value in zip(step.outputs, tree.flatten(result)):
                values[key] = value
        return [values[id(t)] for t in self.outputs]


class _Call:
    """One call of the plan."""

    def __init__(self, node: Node) -> None:
        self.operation = node.operation
        self.args, self.kwargs = node.args, node.kwargs
        self.outputs = [id(t) for t in tree.flatten(node.outputs)]
        plain = len(node.args) == 1 and isinstance(node.args[0], KerasTensor) and not node.kwargs
        self.only = id(node.args[0]) if plain else None

    def arguments(self, values: dict[int, Any]) -> tuple[Any, dict[str, Any]]:
        """Return (args, kwargs) of the call, with values in place of symbolic tensors."""
        if self.only is not None:
            return (values[self.only],), {}
        return _fill(self.args, values), _fill(self.kwargs, values)


def _fill(structure: Structure, values: dict[int, Any]) -> Structure:
    if isinstance(structure, KerasTensor):  # not `tree.map_plain`, which takes longer
        return values[id(structure)]
    if isinstance(structure, dict):
        return {k: _fill(v, values) for k, v in structure.items()}
    if type(structure) in (list, tuple):
        return type(structure)(_fill(v, values) for v in structure)
    return structure


def _node_of(t: KerasTensor) -> Node | None:
    history = t._keras_history
    return None if history is None else history.operation.inbound_nodes[history.node_index]


class Function(Operation):
    """What leads from symbolic inputs to symbolic outputs, callable on tensors.

    Args:
        inputs, outputs: structures of symbolic tensors.
        name: the operation's name; None: made from the class's name.

    Example:
        >>> import numpy as np
        >>> from kerasish import Input
        >>> x = Input((3,))
        >>> double = Function(x, x * 2.0)
        >>> double(np.ones((1, 3))).tolist()
        [[2.0, 2.0, 2.0]]
    """

    layer_graph: FunctionalGraph

    def __init__(self, inputs: TensorLike, outputs: TensorLike, name: str | None = None) -> None:
        super().__init__(name)
        if not tree.flatten(outputs):
            raise ValueError("Function: at least one output was expected, got none.")
        self.inputs_structure, self.outputs_structure = inputs, outputs
        self.layer_graph = FunctionalGraph(inputs, outputs, self.name)

    @property
    def inputs(self) -> list[Any]:
        """The symbolic inputs, flat."""
        return self.layer_graph.inputs

    @property
    def outputs(self) -> list[Any]:
        """The symbolic outputs, flat."""
        return self.layer_graph.outputs

    @property
    def operations(self) -> list[Any]:
        """The operations in between."""
        return list(self.layer_graph.operations)

    def compute_output_shape(self, input_shape: Shape) -> Structure:
        """Return the shape(s) of the outputs for inputs of the given shape(s)."""
        dtypes_of = iter([t.dtype for t in self.inputs])
        specs = tree.map_shape_structure(lambda s: KerasTensor(s, next(dtypes_of)), input_shape)
        return tree.map_structure(lambda t: t.shape, self.compute_output_spec(specs))

    def __call__(self, inputs: Structure) -> Tensor:
        expected, values = [t.shape for t in self.inputs], self._flat(inputs)
        got = [x.shape if hasattr(x, "shape") else np.shape(x) for x in values]
        if len(got) != len(expected) or not all(map(_fits, got, expected)):
            raise ShapeError(f"{self.name}: inputs of shapes {expected} were expected, got {got}.")
        return super().__call__(inputs)

    def _flat(self, inputs: Structure) -> list[Any]:
        """Return the values of the inputs; nested lists of numbers are one value."""
        return tree.flatten(inputs) if tree.is_nested(self.inputs_structure) else [inputs]

    def call(self, inputs: Sequence[Array]) -> Tensor:
        """Compute the outputs."""
        results = self.layer_graph.run(self._flat(inputs), lambda o, a, k: o(*a, **k))
        return tree.pack_sequence_as(self.outputs_structure, results)


def start_at_inputs(inputs: Any, outputs: Any) -> tuple[Any, Any]:
    """Return the structures of inputs and outputs with an Input for each input inside a graph.

    The operations are the same, called again.
    """
    flat = tree.flatten(inputs)
    if not all(isinstance(t, KerasTensor) for t in [*flat, *tree.flatten(outputs)]):
        return inputs, outputs  # which Graph refuses, in its own words
    if all(map(_starts, flat)):
        return inputs, outputs
    graph = FunctionalGraph(inputs, outputs)
    new = [t if _starts(t) else Input(batch_shape=t.shape, dtype=t.dtype) for t in flat]
    result = graph.run(new, call_operation)
    return tree.pack_sequence_as(inputs, new), tree.pack_sequence_as(outputs, result)


def _starts(t: KerasTensor) -> bool:
    node = _node_of(t)
    return node is not None and isinstance(node.operation, InputLayer)


def call_operation(
    operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> AnyTensor:
    """Call one operation of a functional model."""
    return operation(*args, **kwargs)


def clone_graph(
    graph: FunctionalGraph,
    make: Callable[[Any], Any],
    new_inputs: list[Any],
    call: Callable[..., Any] | None = None,
) -> tuple[list[Any], dict[int, Any]]:
    """Return (outputs, old operation id -> new operation) of the graph called again.

    `make(operation)` returns the operation that replaces an old one; each is made once.
    """
    results: dict[int, Any] = {}

    def renew(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        key = id(operation)
        if key not in results:
            results[key] = make(operation)
        return (call or call_operation)(results[key], args, kwargs)

    return graph.run(new_inputs, renew), results


def renew_operation(operation: Operation) -> Operation:
    """Return an equal operation with its own weights."""
    if isinstance(operation, OpCall):
        return OpCall(operation.function, operation.name)
    with registry.recalling():
        return type(operation).from_config(operation.get_config())


registry.add_builtins("keras", {"Function": Function})
