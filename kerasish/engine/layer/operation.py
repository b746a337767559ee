"""Steps of a functional model: symbolic tensors, the calls that made them, operations."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kerasish import registry, tree
from kerasish.engine.layer.chaining import find_method, no_method
from kerasish.engine.layer.dropped_masks import LostMask, note_op
from kerasish.engine.layer.remat import RematMode, call_again
from kerasish.errors import TraceError, at_user_line
from kerasish.graph.abstract import infer
from kerasish.naming import name_for
from kerasish.operators import Operators
from kerasish.ops import dtypes
from kerasish.ops.op import REGISTRY, Op
from kerasish.ops.shapes import Spec
from kerasish.typing import Axis, Shape, Structure, TensorLike
from kerasish.watched import Watched

if TYPE_CHECKING:
    from typing_extensions import Self

    from kerasish.engine.layer.interface import LayerGraph
    from kerasish.tensor import Tensor


class KerasHistory(NamedTuple):
    """Which call made a symbolic tensor, and which of its results it is."""

    operation: Any
    node_index: int
    tensor_index: int


class KerasTensor(Operators):
    """A value of a functional model that is still being written: shape and dtype, no numbers.

    Args:
        shape: the sizes; None where any will do.
        dtype: the dtype's name.
        sparse: whether it represents a `SparseTensor`.
        ragged: accepted for compatibility with Keras; must be false.
        record_history: whether calls on it are remembered.
        name: a name for messages; None: made from the class's name.

    Example:
        >>> import kerasish
        >>> x = kerasish.KerasTensor((None, 3))
        >>> (x * 2.0).shape
        (None, 3)
    """

    shape: Shape
    # Asked of every layer's inputs: without it, `__getattr__` would look for a layer of this name.
    dropped_mask: LostMask | None = None

    def __init__(
        self,
        shape: Sequence[int | None],
        dtype: str = "float32",
        sparse: bool = False,
        ragged: bool = False,
        record_history: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if ragged:
            raise ValueError("KerasTensor: ragged tensors are not supported.")
        self.shape = tuple(None if s is None else int(s) for s in shape)
        self._dtype = dtypes.name_of(dtype)
        self.sparse, self.ragged = bool(sparse), False
        self.record_history = record_history
        self.name = name or name_for(self, None)
        self._keras_history: KerasHistory | None = None

    @property
    def history(self) -> KerasHistory | None:
        """The call that made this tensor; None for one that no call made."""
        return self._keras_history

    @property
    def dtype(self) -> str:
        """The dtype's name."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __kerasish_function__(
        self, function: Op | Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> KerasTensor:
        """Remember a call of an op or a composed function as a step of the model."""
        return OpCall(function).symbolic_call(*args, **kwargs)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Reached only where an attribute is missing: the name of a layer or an op.
            method = find_method(name)
            if method is None:
                raise no_method(self, name)
            return functools.partial(method, self)

    def __repr__(self) -> str:
        return f"<KerasTensor shape={self.shape}, dtype={self.dtype}, name={self.name}>"

    def __iter__(self) -> Any:
        raise TypeError("A symbolic tensor cannot be iterated over; use ops.unstack.")

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self!r} has no truth value while the model is being written: use ops.where or "
            "ops.cond instead of `if`."
        )

    def __array__(self, dtype: str | None = None, copy: Any = None) -> Any:
        raise TraceError(
            f"{self!r} has no numbers{at_user_line()}: NumPy functions do not take a symbolic "
            "tensor. "
            "Use kerasish.ops, or a layer, instead."
        )

    __float__ = __int__ = __index__ = __array__

    @property
    def T(self) -> Structure:  # noqa: N802 (NumPy's name)
        """The tensor with its axes reversed."""
        order = tuple(range(self.ndim))[::-1]
        return self.__kerasish_function__(registry_op("transpose"), (self, order), {})

    def reshape(self, *newshape: Any) -> Structure:
        """Return the elements in another shape."""
        shape = newshape[0] if len(newshape) == 1 else newshape
        return self.__kerasish_function__(registry_op("reshape"), (self, shape), {})

    def squeeze(self, axis: Axis | None = None) -> Structure:
        """Return the tensor without its axes of size 1 (or those named)."""
        axes = (axis,) if isinstance(axis, int) else axis
        axes = [i for i, s in enumerate(self.shape) if s == 1] if axes is None else axes
        picked = [a % self.ndim for a in axes]
        rest = [-1 if s is None else s for i, s in enumerate(self.shape) if i not in picked]
        return self.reshape(tuple(rest))


def registry_op(name: str) -> Op:
    """Return the primitive op called `name`."""
    return REGISTRY[name]


class Node:
    """One call of an operation inside a functional model: its arguments and results."""

    def __init__(
        self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: TensorLike
    ) -> None:
        self.operation, self.args, self.kwargs, self.outputs = operation, args, kwargs, outputs
        self.index = len(operation.inbound_nodes)
        operation.inbound_nodes.append(self)
        for i, t in enumerate(tree.flatten(outputs)):
            if isinstance(t, KerasTensor):
                t._keras_history = KerasHistory(operation, self.index, i)

    @property
    def inputs(self) -> list[KerasTensor]:
        """The symbolic tensors among the arguments, in order."""
        leaves = [*tree.flatten(self.args)]
        for value in self.kwargs.values():
            leaves.extend(tree.flatten(value))
        return [x for x in leaves if isinstance(x, KerasTensor)]


def is_keras_tensor(x: Structure) -> bool:
    """Return whether x is a symbolic tensor.

    Args:
        x: any object.

    Example:
        >>> import kerasish
        >>> is_keras_tensor(kerasish.Input((3,))), is_keras_tensor([1.0])
        (True, False)
    """
    return isinstance(x, KerasTensor)


def any_symbolic(structure: Structure) -> bool:
    """Return whether a structure holds a symbolic tensor."""
    kind = type(structure)
    if kind is KerasTensor:
        return True
    if kind is not tuple and kind is not list and kind is not dict:
        return isinstance(structure, KerasTensor)
    waiting = [structure]  # a loop: lists of the user's may be nested very deeply
    while waiting:
        part = waiting.pop()
        for x in part.values() if type(part) is dict else part:
            kind = type(x)
            if kind is tuple or kind is list or kind is dict:
                waiting.append(x)
            elif kind is KerasTensor or isinstance(x, KerasTensor):
                return True
    return False


def to_specs(structure: Structure) -> Structure:
    """Return the structure with a Spec in place of every symbolic tensor."""
    return tree.map_plain(
        lambda x: Spec(x.shape, x.dtype) if isinstance(x, KerasTensor) else x, structure
    )


def from_specs(structure: Structure) -> Structure:
    """Return the structure with a new symbolic tensor in place of every Spec."""
    if isinstance(structure, Spec):
        return KerasTensor(structure.shape, structure.dtype)
    if isinstance(structure, dict):
        return {k: from_specs(v) for k, v in structure.items()}
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*(from_specs(v) for v in structure))
    if isinstance(structure, (list, tuple)):
        return type(structure)(from_specs(v) for v in structure)
    return structure


class ConstructorSignature:
    """What `inspect.signature`, `help` and editors show of a class: the parameters of `__init__`.

    Without it they would show those of `__new__`, which takes any.
    """

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        if instance is not None:  # an instance is called: its signature is that of `__call__`
            raise AttributeError("__signature__")
        shown = inspect.signature(owner.__init__)  # type: ignore[misc]
        parameters = list(shown.parameters.values())[1:]  # without self
        return inspect.Signature(parameters)


class Operation(Watched):
    """A step that functional models can hold: `call` on tensors, symbolic on symbolic ones.

    Args:
        name: the name in the model; None: made from the class.

    Example:
        >>> class Twice(Operation):
        ...     def call(self, x):
        ...         return x + x
        >>> float(Twice()(3.0))
        6.0
    """

    __signature__ = ConstructorSignature()
    _arguments: dict[str, Any]
    _own_arguments: tuple[Any, Any] | None = None  # the constructor's arguments, of users' classes
    # What diagnostics know of the class: "pass" (values pass through, in another shape at most),
    # "dense", "convolution", "recurrent", "normalization", "activation", ...; "" for nothing.
    layer_role = ""
    result_activation = ""  # the name of the activation that is applied last; "" if not known
    layer_graph: LayerGraph | None = None  # the calls of a functional model
    is_sequential = False  # whether it is a `Sequential`

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = object.__new__(cls)
        if cls.__module__.partition(".")[0] != __name__.partition(".")[0]:
            self.__dict__["_own_arguments"] = (
                args,
                kwargs,
            )  # for the config of a user's class
        return self

    def __init__(self, name: str | None = None) -> None:
        self.name = name_for(self, name)
        self.inbound_nodes: list[Node] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}>"

    def quantized_call(self, *args: Any, **kwargs: Any) -> Structure:
        """Compute the result with quantized weights; classes that have such weights override this.

        Raises:
            NotImplementedError: this class has none.
        """
        raise NotImplementedError(f"{type(self).__name__} has no quantized weights.")

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        if any_symbolic(args) or any_symbolic(kwargs):
            return self.symbolic_call(*args, **kwargs)
        return self.call(*args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Structure:
        """Compute the result; subclasses say how."""
        raise NotImplementedError(f"{type(self).__name__} defines no call().")

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickles and copies hold: the calls belong to the models made of them."""
        return {**self.__dict__, "inbound_nodes": []}

    _remat_mode: RematMode | None = None

    def rematerialized_call(
        self, layer_call: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Callable[..., Any]:
        """Return `layer_call` as the `RematScope` in which this was made wants it.

        Args:
            layer_call: what computes the result.
            args, kwargs: accepted for compatibility with Keras.
        """
        mode = self._remat_mode
        return layer_call if mode is None else call_again(self, mode, layer_call)

    def symbolic_call(self, *args: Any, **kwargs: Any) -> Structure:
        """Return symbolic results and remember the call."""
        outputs = self.compute_output_spec(*args, **kwargs)
        Node(self, args, kwargs, outputs)
        return outputs

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Structure:
        """Return symbolic tensors of the shapes and dtypes that `call` gives."""
        return from_specs(infer(self.call, to_specs(args), to_specs(kwargs)))

    @property
    def input(self) -> Structure:
        """The symbolic input of the first call."""
        return _single(self._first_node().inputs)

    @property
    def output(self) -> Structure:
        """The symbolic result of the first call."""
        return self._first_node().outputs

    def _first_node(self) -> Node:
        if not self.inbound_nodes:
            raise ValueError(
                f"{type(self).__name__} {self.name!r} was never called on symbolic tensors, so it "
                "has no input and output."
            )
        return self.inbound_nodes[0]

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments.

        Raises:
            NotImplementedError: they do not determine a custom class; it writes `get_config`.
        """
        if self._own_arguments is None:
            return {"name": self.name}
        result = _arguments_of(type(self), *self._own_arguments)
        if result.pop("name", self) is not self:
            result["name"] = self.name
        try:
            return {key: registry.serialize_keras_object(value) for key, value in result.items()}
        except (TypeError, ValueError) as error:
            raise NotImplementedError(
                f"{type(self).__name__} must write get_config(): {error}"
            ) from None

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return the operation that `get_config` describes."""
        return cls(**config)


def _arguments_of(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return a constructor's arguments by name, with those left out; `name` if it takes one."""
    bound = inspect.signature(cls).bind(*args, **kwargs)
    bound.apply_defaults()
    results: dict[str, Any] = {}
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL and bound.arguments[name]:
            raise NotImplementedError(f"{cls.__name__} takes *{name}: it must write get_config().")
        if parameter.kind is parameter.VAR_KEYWORD:
            results |= {"name": None, **bound.arguments[name]}
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            results[name] = bound.arguments[name]
    return results


def _single(many: list[Any]) -> Any:
    return many[0] if len(many) == 1 else many


class OpCall(Operation):
    """An op, or a function composed of ops, as a step of a functional model."""

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        self.function = function
        title = "".join(part.title() for part in function.__name__.split("_"))
        self.class_name, self.result_activation = title, function.__name__
        self.name = name or name_for(type(title, (), {})(), None)
        self.inbound_nodes = []

    def call(self, *args: Any, **kwargs: Any) -> Structure:
        """Call the function."""
        return self.function(*args, **kwargs)

    def symbolic_call(self, *args: Any, **kwargs: Any) -> Structure:
        """Return symbolic results and remember the call."""
        outputs = super().symbolic_call(*args, **kwargs)
        note_op(self.class_name, (args, kwargs), outputs)
        return outputs


registry.add_builtins("keras", {"Operation": Operation})
