"""Functional models: a graph of layer calls between symbolic inputs and outputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import registry, tree
from kerasish.engine.functional.arrange import _agree, _fits
from kerasish.engine.layer.call_context import context
from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.masks import is_of_lengths
from kerasish.engine.layer.operation import KerasTensor, Node, OpCall, Operation
from kerasish.errors import DTypeError, ShapeError, levels_to_user
from kerasish.naming import unique_name
from kerasish.ops import dtypes
from kerasish.tensor import Tensor
from kerasish.tracebacks import keyword_hint
from kerasish.typing import AnyTensor, Array, Shape, ShapeLike, Structure, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


class InputLayer(Layer):
    """Where a model's input comes in.

    Args:
        shape: the shape without the batch axis; None: `batch_shape` or `input_tensor` says it.
        batch_size: the batch's size; None: any.
        dtype: the dtype's name; None: `floatx()`.
        sparse: whether data that are sparse matrices stay sparse; None: False.
        ragged: accepted for compatibility with Keras; must be false.
        batch_shape: the shape with the batch axis, instead of `shape`; None: `shape` says it.
        input_tensor: an existing symbolic tensor, instead of a shape; None: a new one.
        optional: whether the model may be called with None here.
        name: the input's name; None: made from the class's name.

    Example:
        >>> InputLayer((3,)).output.shape
        (None, 3)
    """

    def __init__(
        self,
        shape: Shape | None = None,
        batch_size: int | None = None,
        dtype: str | None = None,
        sparse: bool | None = None,
        ragged: bool | None = None,
        batch_shape: Shape | None = None,
        input_tensor: AnyTensor | None = None,
        optional: bool = False,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name or unique_name("input_layer"))
        if ragged:
            raise ValueError(
                f"{self.display_name()}: ragged inputs are not supported. Give a size of None, as "
                "in Input((None,)): fit() takes lists of sequences of different lengths for it."
            )
        batch_shape = kwargs.pop("batch_input_shape", batch_shape)
        if "input_shape" in kwargs:
            warnings.warn(
                "InputLayer: `input_shape` is the old name of `shape`.", stacklevel=levels_to_user()
            )
            shape = kwargs.pop("input_shape")
        if kwargs:
            hint = keyword_hint(type(self).__init__, kwargs)
            who = self.display_name()
            raise TypeError(f"{who}: unexpected argument(s) {sorted(kwargs)}.{hint}")
        if batch_shape is not None and (shape is not None or batch_size is not None):
            raise ValueError(
                f"{self.display_name()}: give shape and batch_size, or batch_shape, not both kinds."
            )
        if input_tensor is not None:
            wanted = batch_shape or shape and (batch_size, *_as_shape(shape, self.display_name()))
            wanted = wanted or batch_size and (batch_size, *input_tensor.shape[1:])
            batch_shape = _shape_of_input(input_tensor, wanted, dtype, self.display_name())
            dtype = input_tensor.dtype
        elif shape is not None:
            batch_shape = (batch_size, *_as_shape(shape, self.display_name()))
        elif batch_shape is None:
            raise ValueError(
                f"{self.display_name()}: give the shape of one example, e.g. Input((28, 28))."
            )
        self.batch_shape = _as_shape(batch_shape, self.display_name())
        self.expected_dtype = dtypes.name_of(dtype)
        self.sparse, self.ragged, self.optional = bool(sparse), False, optional
        if sparse and len(self.batch_shape) != 2:
            raise ShapeError(
                f"{self.display_name()}: a sparse input is a matrix, Input((width,), sparse=True), "
                f"got the shape {self.batch_shape}."
            )
        self.built = True
        output = input_tensor
        if output is None:
            output = KerasTensor(self.batch_shape, self.expected_dtype, self.sparse, name=self.name)
        Node(self, (), {}, output)

    @property
    def dtype(self) -> str:
        """The dtype of the input."""
        return self.expected_dtype

    def call(self, *args: Any) -> Structure:
        """Nothing to compute."""
        raise TypeError(f"{self.display_name()} stands for an input and is not called.")

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "batch_shape": self.batch_shape, "dtype": self.expected_dtype,
            "sparse": self.sparse, "ragged": False, "name": self.name, "optional": self.optional,
        }  # fmt: skip


def _shape_of_input(tensor: AnyTensor, wanted: Any, dtype: str | None, who: str) -> tuple[int, ...]:
    """Return the shape of a tensor given as input, if it is symbolic and is of the wanted one."""
    if not isinstance(tensor, KerasTensor):
        raise ValueError(f"{who}: input_tensor must be a KerasTensor, got {tensor!r}.")
    if wanted and not (len(wanted) == len(tensor.shape) and _agree(wanted, tensor.shape)):
        raise ShapeError(f"{who}: input_tensor has shape {tensor.shape}, not {tuple(wanted)}.")
    if dtype is not None and dtypes.name_of(dtype) != tensor.dtype:
        raise DTypeError(f"{who}: input_tensor is of dtype {tensor.dtype}, not {dtype}.")
    return tensor.shape


def _as_shape(shape: ShapeLike, who: str) -> tuple[Any, ...]:
    many = shape if isinstance(shape, (tuple, list)) else (shape,)
    for s in many:
        if s is not None and (not hasattr(s, "__index__") or isinstance(s, bool) or s < 0):
            raise ShapeError(f"{who}: a shape is made of sizes >= 0 or None, got {shape!r}.")
    return tuple(None if s is None else int(s) for s in many)


def Input(  # noqa: N802 (Keras's name)
    shape: Shape | None = None,
    batch_size: int | None = None,
    dtype: str | None = None,
    sparse: bool | None = None,
    ragged: bool | None = None,
    batch_shape: Shape | None = None,
    name: str | None = None,
    tensor: AnyTensor | None = None,
    optional: bool = False,
) -> KerasTensor:
    """Return a symbolic tensor from which a functional model starts.

    Args:
        shape: the shape of one example, without the batch axis;
            None: `batch_shape` or `tensor` says it.
        batch_size: the batch's size; None: any.
        dtype: None: `floatx()`.
        sparse: whether SciPy matrices given to `fit` and the like stay sparse: a `Dense` layer
            multiplies them so, and its kernel gets gradients for the columns that occur alone;
            None: False.
        ragged: must be False: `fit` takes sequences of different lengths for a size of None.
        batch_shape: the shape with the batch axis, instead of `shape`; None: `shape` says it.
        name: name of the input, by which dicts of data are matched; None: made up.
        tensor: a symbolic tensor to take as the input; None: a new one.
        optional: whether the model may be called with None here.

    Example:
        >>> Input((3,)).shape
        (None, 3)
    """
    layer = InputLayer(
        shape, batch_size, dtype, sparse, ragged, batch_shape, tensor, optional, name
    )
    result: Any = layer.inbound_nodes[0].outputs
    return result


class Graph:
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
        order: list[Node] = []  # a node stands after all that it needs
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
                is called, with the training flag in force in place of its own.
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
    if isinstance(structure, KerasTensor):
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

    def __init__(self, inputs: TensorLike, outputs: TensorLike, name: str | None = None) -> None:
        super().__init__(name)
        if not tree.flatten(outputs):
            raise ValueError("Function: at least one output was expected, got none.")
        self.inputs_structure, self.outputs_structure = inputs, outputs
        self.layer_graph = Graph(inputs, outputs, self.name)

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
        wanted, values = [t.shape for t in self.inputs], self._flat(inputs)
        got = [x.shape if hasattr(x, "shape") else np.shape(x) for x in values]
        if len(got) != len(wanted) or not all(map(_fits, got, wanted)):
            raise ShapeError(f"{self.name}: inputs of shapes {wanted} were expected, got {got}.")
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
    graph = Graph(inputs, outputs)
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
    graph: Graph,
    make: Callable[[Any], Any],
    new_inputs: list[Any],
    call: Callable[..., Any] | None = None,
) -> tuple[list[Any], dict[int, Any]]:
    """Return (outputs, old operation id -> new operation) of the graph called again.

    `make(operation)` gives the operation that stands for an old one; each is made once.
    """
    results: dict[int, Any] = {}

    def renew(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        key = id(operation)
        if key not in results:
            results[key] = make(operation)
        return (call or call_operation)(results[key], args, kwargs)

    return graph.run(new_inputs, renew), results


def renew_operation(operation: Operation) -> Operation:
    """Return an equal operation with weights of its own."""
    if isinstance(operation, OpCall):
        return OpCall(operation.function, operation.name)
    with registry.recalling():
        return type(operation).from_config(operation.get_config())


registry.add_builtins("keras.layers", {"InputLayer": InputLayer, "Input": Input})
registry.add_builtins("keras", {"Function": Function})
